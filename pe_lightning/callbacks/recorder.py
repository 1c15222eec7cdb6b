"""What a run leaves: its directory, configuration, logs, ``metrics.json`` and reconstructions."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from pe_lightning import runs
from pe_lightning.callbacks.loggers import WandbSettings, make_loggers
from pe_lightning.callbacks.pictures import file_names, write_signal
from pe_lightning.callbacks.plots import plot_choice
from pe_lightning.callbacks.report import (
    describe,
    log_scores,
    run_name,
    score,
    score_baselines,
    versions,
    write_reconstructions,
)
from pe_lightning.callbacks.table import print_scores
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError
from pe_lightning.modules import CoordinateModule

__all__ = ["RunRecorder"]


class RunRecorder(Callback):
    """Gives a run its directory and fills it.

    The directory is made when data and model are known to be good: a run that fails on bad input leaves nothing behind.
    The first process chooses it and tells the others. A fit that resumes from a checkpoint keeps the directory of that
    checkpoint; validate, test and predict of a checkpoint write into a folder beside it, named after what they do.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: The checkpoint that the Trainer is going to load, if any.
        config: The resolved configuration as YAML, kept as ``config.yaml``.
        hyper_parameters: The resolved configuration as plain values, for the loggers.
        wandb: How the run appears in W&B.
        log: Whether a fit that has no logger gets a CSV and a W&B logger.
        table: Whether a table of the scores is printed.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        ckpt_path: str | Path | None = None,
        config: str | None = None,
        hyper_parameters: dict[str, Any] | None = None,
        wandb: WandbSettings | None = None,
        log: bool = True,
        table: bool = True,
    ) -> None:
        self.root = root
        self.ckpt_path = ckpt_path
        self.config = config
        self.hyper_parameters = hyper_parameters or {}
        self.wandb = wandb or WandbSettings()
        self.log_runs = log
        self.table = table
        self.run_dir: Path | None = None
        self.metrics: dict[str, Any] = {}
        self._fit_seconds: float | None = None
        self._started = self._excluded = 0.0
        self._paused_at: float | None = None
        self._predictions: list[Tensor] = []
        self._values: list[Tensor] = []

    # -- the directory ------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which can still refuse the data, then chooses the directory and attaches loggers."""
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        if not isinstance(pl_module, CoordinateModule):
            raise InputError(f"RunRecorder records modules of pe_lightning, got a {type(pl_module).__name__}")
        pl_module.configure_model()
        chosen: str | None = None
        if trainer.is_global_zero:
            if self.ckpt_path is not None:
                run = runs.of_checkpoint(self.ckpt_path)
                folder = run if stage == "fit" else run / TrainerFn(stage).value
            else:
                folder = runs.claim(self.root or Path(trainer.default_root_dir) / "runs", run_name(pl_module))
            folder.mkdir(parents=True, exist_ok=True)
            chosen = str(folder)
        self.run_dir = Path(str(trainer.strategy.broadcast(chosen)))
        home = self.run_dir if self.ckpt_path is None else runs.of_checkpoint(self.ckpt_path)
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(home / runs.CHECKPOINTS)
        if stage == "fit":
            self._prepare_fit(trainer)

    def _prepare_fit(self, trainer: Trainer) -> None:
        assert self.run_dir is not None
        data = data_of(trainer)
        held_out = data is None or data.effective_protocol != "none"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.monitor == "val/psnr" and not held_out:
                callback.monitor = None  # nothing to compare checkpoints by: the latest is kept
        if self.log_runs and not trainer.loggers:
            trainer.loggers = make_loggers(self.run_dir, self.wandb, trainer.is_global_zero)
        if self.config is not None and trainer.is_global_zero:
            runs.write_atomically(self.run_dir / runs.CONFIG, self.config)

    # -- the clock: from data in memory to final parameters, validation and its checkpoints left out --------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        self._started, self._excluded, self._paused_at, self._fit_seconds = time.perf_counter(), 0.0, None, None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        self._paused_at = time.perf_counter()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Starts the clock again after a validation."""
        if self._paused_at is not None:
            self._excluded += time.perf_counter() - self._paused_at
            self._paused_at = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Reads the clock."""
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
        end = self._paused_at if self._paused_at is not None else time.perf_counter()
        self._fit_seconds = end - self._started - self._excluded

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves what a fit of no steps, the exact one, would leave out: the time and a checkpoint."""
        if self.run_dir is None:
            return
        if self._fit_seconds is None:
            self.on_train_end(trainer, pl_module)
        if trainer.max_steps == 0 and trainer.checkpoint_callbacks:
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / "last.ckpt", weights_only=False)
        if trainer.is_global_zero and isinstance(pl_module, CoordinateModule):
            # at the end, when everything that is chosen during a fit is known
            described = describe(pl_module, data_of(trainer))
            described |= {"run_dir": str(self.run_dir), "config": self.hyper_parameters}
            for logger in trainer.loggers:
                logger.log_hyperparams(described)

    # -- scores and files -----------------------------------------------------------------------------------------------

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keeps the prediction for the files."""
        if self.run_dir is not None and trainer.is_global_zero:
            self._predictions.append(outputs["prediction"].float().cpu())
            self._values.append(batch.values.float().cpu())

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes ``metrics.json`` and the reconstructions, logs them, prints the table."""
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        predictions, values = torch.cat(self._predictions).numpy(), torch.cat(self._values).numpy()
        self._predictions, self._values = [], []
        self.metrics = {
            **score(pl_module, predictions, values),
            "fit_seconds": self._fit_seconds,
            "steps": trainer.global_step,
            **describe(pl_module, data_of(trainer)),
            "baselines": score_baselines(data_of(trainer)),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": versions(),
        }
        runs.write_atomically(self.run_dir / runs.METRICS, json.dumps(self.metrics, indent=2, allow_nan=False) + "\n")
        pictures = write_reconstructions(self.run_dir / runs.RECONSTRUCTIONS, self.metrics, predictions, values)
        choice = (self.metrics["solution"] or {}).get("choice")
        curve = plot_choice(self.run_dir / "choice.png", choice) if choice else None
        log_scores(trainer.loggers, self.metrics, pictures, curve, trainer.global_step)
        if self.table:
            print_scores(self.metrics, self.run_dir)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the scores of a ``validate``; during a fit they are in the logs."""
        if self.run_dir is None or trainer.state.fn != TrainerFn.VALIDATING or not trainer.is_global_zero:
            return
        scores = {key: float(value) for key, value in trainer.callback_metrics.items()}
        plain = {"schema": 1, **{key: value if math.isfinite(value) else None for key, value in scores.items()}}
        runs.write_atomically(self.run_dir / runs.METRICS, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Writes each predicted signal as a file."""
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        size = "x".join(str(n) for n in outputs.shape[1:-1])
        files = file_names(pl_module.require_info().names)
        written = [
            write_signal(self.run_dir / size / stem, values)
            for stem, values in zip(files, outputs.float().cpu().numpy(), strict=True)
        ]
        if self.table:
            for path in written:
                print(path)


def data_of(trainer: Trainer) -> SignalDataModule | None:
    """The Trainer's DataModule, if it is one of ours."""
    data = getattr(trainer, "datamodule", None)
    return data if isinstance(data, SignalDataModule) else None

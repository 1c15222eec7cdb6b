"""What a run leaves: its directory, configuration, logs, ``metrics.json`` and reconstructions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from pe_lightning import runs
from pe_lightning.callbacks.clock import TrainingClock
from pe_lightning.callbacks.loggers import WandbSettings, flat, make_loggers
from pe_lightning.callbacks.monitors import check_monitors
from pe_lightning.callbacks.pieces import FilePieces, MemoryPieces
from pe_lightning.callbacks.plots import plot_choice
from pe_lightning.callbacks.predictions import Predictions
from pe_lightning.callbacks.report import (
    describe,
    log_checkpoint,
    log_scores,
    run_name,
    score,
    score_baselines,
    versions,
    write_reconstructions,
)
from pe_lightning.callbacks.reporting import reports
from pe_lightning.callbacks.table import print_scores
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.output import OutputGrid
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
        folder: The run directory itself, in place of the next free one below ``root``.
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
        folder: str | Path | None = None,
    ) -> None:
        self.root = root
        self.ckpt_path = ckpt_path
        self.config = config
        self.hyper_parameters = hyper_parameters or {}
        self.wandb = wandb or WandbSettings()
        self.log_runs = log
        self.table = table
        self.folder = folder
        self.run_dir: Path | None = None
        self.metrics: dict[str, Any] = {}
        self.clock = TrainingClock()
        self._earlier, self._fitted = 0.0, False
        self._pieces: FilePieces | MemoryPieces | None = None
        self._truth: MemoryPieces | None = None
        self._predictions: Predictions | None = None

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
            elif self.folder is not None:
                folder = Path(self.folder).absolute()
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
            self._prepare_fit(trainer, pl_module)

    def _prepare_fit(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.run_dir is not None
        data = data_of(trainer)
        held_out = data is None or data.effective_protocol != "none"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.monitor == "val/psnr" and not held_out:
                callback.monitor = None  # nothing to compare checkpoints by: the latest is kept
        if type(pl_module).__module__.startswith("pe_lightning."):  # a module of the user's own may log anything
            check_monitors(trainer.callbacks, held_out)  # type: ignore[attr-defined]
        if self.log_runs and not trainer.loggers:
            trainer.loggers = make_loggers(self.run_dir, self.wandb, self.clock, trainer.is_global_zero)
        if self.config is not None and trainer.is_global_zero:
            runs.write_atomically(self.run_dir / runs.CONFIG, self.config)

    # -- the clock: from data in memory to final parameters, validation and its checkpoints left out --------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock, where that of a fit that is resumed stood."""
        self._log_description(trainer, pl_module)
        self.clock.start(self._earlier)
        self._earlier, self._fitted = 0.0, False

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        _wait(pl_module)
        self.clock.pause()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Starts the clock again after a validation."""
        self.clock.resume()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock for good."""
        _wait(pl_module)
        self.clock.pause()
        self._fitted = True

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the last weights as a checkpoint, and the time of a fit of no steps."""
        if self.run_dir is None:
            return
        self.on_train_end(trainer, pl_module)  # no step was taken, no training ended
        if trainer.checkpoint_callbacks:
            # what came after the last whole epoch, all of it where no step was asked for
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / "last.ckpt", weights_only=False)
        self._log_description(trainer, pl_module)  # now that everything that is chosen during a fit is known

    def _log_description(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        described = describe(pl_module, data_of(trainer))
        described["data"] = {"fingerprint": described.pop("data_fingerprint"), "paths": described.pop("paths")}
        described |= {"seed": self.hyper_parameters.get("seed_everything"), "run_dir": str(self.run_dir)}
        for logger in trainer.loggers:
            logger.log_hyperparams({**flat(described), "config": self.hyper_parameters})

    def state_dict(self) -> dict[str, Any]:
        """The seconds of fitting so far, for a fit that is resumed."""
        return {"fit_seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what :meth:`state_dict` gave."""
        self._earlier = state_dict["fit_seconds"]

    # -- scores and files -----------------------------------------------------------------------------------------------

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Prepares for the prediction of signals that stay in their file: it goes into files too."""
        data = data_of(trainer)
        if self.run_dir is None or not isinstance(pl_module, CoordinateModule):
            return
        info = pl_module.require_info()
        if data is not None and data.streamed:
            self._pieces = FilePieces(self.run_dir / runs.RECONSTRUCTIONS, info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")
        elif trainer.is_global_zero:
            self._pieces, self._truth = (
                MemoryPieces((info.num_signals, *info.grid, info.channels)) for _ in ("prediction", "truth")
            )

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
        if self._pieces is not None:
            self._pieces.add(outputs["prediction"], batch.start)
        if self._truth is not None:
            self._truth.add(batch.values, batch.start)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes ``metrics.json`` and the reconstructions, logs them, prints the table."""
        data, pieces, truth = data_of(trainer), self._pieces, self._truth
        self._pieces = self._truth = None
        if isinstance(pieces, FilePieces):
            trainer.strategy.barrier("all pieces are written")
            pieces.finish()
        if self.run_dir is None or not trainer.is_global_zero or not isinstance(pl_module, CoordinateModule):
            return
        predictions = pieces.values if isinstance(pieces, MemoryPieces) else None
        values = truth.values if truth is not None else None
        self.metrics = {
            **score(pl_module, predictions, values),
            "fit_seconds": self.clock.seconds if self._fitted else None,
            "steps": trainer.global_step,
            **describe(pl_module, data),
            "baselines": score_baselines(data),
            **reports(trainer),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": versions(),
        }
        runs.write_atomically(self.run_dir / runs.METRICS, json.dumps(self.metrics, indent=2, allow_nan=False) + "\n")
        pictures = []
        if predictions is not None and values is not None:
            mask = data.split.train_mask().numpy() if data is not None else None
            folder, info = self.run_dir / runs.RECONSTRUCTIONS, pl_module.require_info()
            pictures = write_reconstructions(folder, self.metrics, predictions, values, info, train_mask=mask)
        choice = (self.metrics["solution"] or {}).get("choice")
        curve = plot_choice(self.run_dir / "choice.png", choice) if choice else None
        log_scores(trainer.loggers, self.metrics, pictures, curve, trainer.global_step)
        if self.wandb.artifact:
            log_checkpoint(trainer.loggers, self.run_dir / runs.CHECKPOINTS / "last.ckpt")
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
        if self._predictions is None:
            data = getattr(trainer, "datamodule", None)
            output = data if isinstance(data, OutputGrid) else None
            self._predictions = Predictions(self.run_dir, pl_module.require_info(), output)
        for path in self._predictions.add(outputs):
            if self.table:
                print(path)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets what was predicted."""
        self._predictions = None


def _wait(module: LightningModule) -> None:
    """Until the device has done what it was given."""
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)


def data_of(trainer: Trainer) -> SignalDataModule | None:
    """The Trainer's DataModule, if it is one of ours."""
    data = getattr(trainer, "datamodule", None)
    return data if isinstance(data, SignalDataModule) else None

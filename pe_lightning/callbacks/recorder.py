"""What a run leaves: its directory, configuration, logs, ``metrics.json`` and reconstructions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from pe_lightning import runs
from pe_lightning.callbacks.context import (
    Describes,
    check_monitors,
    data_of,
    info_of,
    logged_by,
    metric_of,
    reports,
    require_described,
)
from pe_lightning.callbacks.loggers import WandbSettings, flat, log_checkpoint, log_scores, make_loggers
from pe_lightning.callbacks.report import describe, print_scores, run_name, score, score_baselines, versions
from pe_lightning.callbacks.timing import TimedCallback, TrainingClock
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.output import OutputGrid
from pe_lightning.media.assembly import FileAssembly, PredictionWriter
from pe_lightning.media.figures import plot_choice
from pe_lightning.media.reconstructions import write_reconstructions

__all__ = ["RunRecorder"]

Array = npt.NDArray[np.float32]


class RunRecorder(TimedCallback):
    """Gives a run its directory and fills it, for any module that describes itself (see :class:`Describes`).

    The directory is made when data and model are known to be good: a run that fails on bad input leaves nothing behind.
    The first process chooses it and tells the others. A fit that resumes from a checkpoint keeps the directory of that
    checkpoint; validate, test and predict of a checkpoint write into a folder beside it, named after what they do.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: The checkpoint that the Trainer is going to load, if any.
        config: The resolved configuration as YAML, written to ``config.yaml``.
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
        super().__init__()
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
        self._fitted = False
        self._files: FileAssembly | None = None
        self._tested: tuple[Array, Array] | None = None
        self._writer: PredictionWriter | None = None

    @staticmethod
    def run_dir_of(trainer: Trainer) -> Path | None:
        """The run directory; ``None`` without a recorder, and in a ``fast_dev_run``, which leaves nothing."""
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, RunRecorder)]  # type: ignore[attr-defined]
        return recorders[0].run_dir if recorders else None

    # -- the directory ------------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which can still refuse the data, then chooses the directory and attaches loggers."""
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        module = require_described("RunRecorder", pl_module)
        pl_module.configure_model()
        self.run_dir = Path(str(trainer.strategy.broadcast(str(self._choose(trainer, module, stage)))))
        home = self.run_dir if self.ckpt_path is None else runs.of_checkpoint(self.ckpt_path)
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(home / runs.CHECKPOINTS)
        if stage == "fit":
            self._prepare_fit(trainer, pl_module, self.run_dir)

    def _choose(self, trainer: Trainer, module: Describes, stage: str) -> Path | None:
        if not trainer.is_global_zero:
            return None
        if self.ckpt_path is not None:
            run = runs.of_checkpoint(self.ckpt_path)
            folder = run if stage == "fit" else run / TrainerFn(stage).value
        elif self.folder is not None:
            folder = Path(self.folder).absolute()
        else:
            folder = runs.claim(self.root or Path(trainer.default_root_dir) / "runs", run_name(module))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _prepare_fit(self, trainer: Trainer, pl_module: LightningModule, run_dir: Path) -> None:
        module, data = require_described("RunRecorder", pl_module), data_of(trainer)
        held_out = data is None or data.effective_protocol != "none"
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.monitor == module.monitor and not held_out:
                callback.monitor = None  # nothing to compare checkpoints by: the latest is saved
        if type(pl_module).__module__.startswith("pe_lightning."):  # a module of the user's own may log anything
            check_monitors(trainer.callbacks, logged_by(module), held_out)  # type: ignore[attr-defined]
        if self.log_runs and not trainer.loggers:
            clock, goals = TrainingClock.of(trainer), logged_by(module)
            trainer.loggers = make_loggers(run_dir, self.wandb, clock, goals, trainer.is_global_zero)
        if self.config is not None and trainer.is_global_zero:
            runs.write_atomically(run_dir / runs.CONFIG, self.config)

    # -- the fit --------------------------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Logs what is fitted, and starts the clock."""
        self._log_description(trainer, pl_module)
        self._fitted = False
        self._earlier = self._earlier or getattr(pl_module, "choice_seconds", 0.0)
        super().on_fit_start(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the last weights as a checkpoint, and logs what was chosen during the fit."""
        super().on_fit_end(trainer, pl_module)
        self._fitted = True
        if self.run_dir is None:
            return
        if trainer.checkpoint_callbacks:  # which have none of a fit of no steps, and none after the last whole epoch
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / "last.ckpt", weights_only=False)
        self._log_description(trainer, pl_module)

    def _log_description(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.run_dir is None or not trainer.is_global_zero:
            return
        described = describe(require_described("RunRecorder", pl_module), data_of(trainer))
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
        """Makes the files for predictions of signals that stay in their file."""
        data, info = data_of(trainer), info_of(pl_module)
        self._files = self._tested = None
        if self.run_dir is not None and info is not None and data is not None and data.streamed:
            self._files = FileAssembly(self.run_dir / runs.RECONSTRUCTIONS, info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Takes the prediction for the files, if there is one."""
        prediction = outputs.get("prediction") if isinstance(outputs, dict) else None
        if prediction is None or self.run_dir is None or not isinstance(batch, GridBatch):
            return
        if self._files is not None:
            self._files.add(prediction, batch.start)
        elif trainer.is_global_zero and batch.start is None:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), batch.values.float().cpu().numpy()

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes ``metrics.json`` and the reconstructions, logs them, prints the table."""
        if self._files is not None:  # every process has added its blocks when all have said so
            self._files.finish(trainer.strategy.reduce_boolean_decision(self._files.filled, all=False))
        if self.run_dir is None or not trainer.is_global_zero:
            return
        module, data = require_described("RunRecorder", pl_module), data_of(trainer)
        described, tested = describe(module, data), self._tested
        self.metrics = {
            **score(module, described, tested),
            "fit_seconds": self.clock.seconds if self._fitted else None,
            "steps": trainer.global_step,
            **described,
            "baselines": score_baselines(data, metric_of(module)),
            **reports(trainer),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": versions(),
        }
        _write_json(self.run_dir / runs.METRICS, self.metrics)
        pictures = []
        if tested is not None:
            mask = data.split.train_mask().numpy() if data is not None else None
            write = getattr(getattr(data, "source", None), "write", None)  # a source may have a format of its own
            folder, info = self.run_dir / runs.RECONSTRUCTIONS, info_of(pl_module)
            pictures = write_reconstructions(folder, self.metrics, *tested, info, train_mask=mask, write=write)
            self._tested = None
        choice = (described["solution"] or {}).get("choice")
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
        plain = {key: value if math.isfinite(value) else None for key, value in scores.items()}
        _write_json(self.run_dir / runs.METRICS, {"schema": 1, **plain})

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Writes each predicted signal as a file."""
        info = info_of(pl_module)
        if self.run_dir is None or not trainer.is_global_zero or info is None:
            return
        if self._writer is None:
            data = getattr(trainer, "datamodule", None)
            self._writer = PredictionWriter(self.run_dir, info, data if isinstance(data, OutputGrid) else None)
        for path in self._writer.add(outputs):
            if self.table:
                print(path)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets what was predicted."""
        self._writer = None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    runs.write_atomically(path, json.dumps(content, indent=2, allow_nan=False) + "\n")

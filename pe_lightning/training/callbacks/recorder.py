"""The recorder of a run: which of its files is written at which moment of a fit, test or prediction."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import Metric

import pe_lightning
from pe_lightning.errors import InputError, printable, say
from pe_lightning.evaluation.baselines import BaselineChoice
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import LAST, locate
from pe_lightning.results.pictures import plot_choice
from pe_lightning.results.predictions import FileAssembly, PredictionWriter
from pe_lightning.results.reconstructions import compare_files, write_reconstructions
from pe_lightning.results.signal_files import media
from pe_lightning.signals.batches import GridBatch, PointBatch, to_device
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import real_path, write_atomically
from pe_lightning.signals.validation import choice
from pe_lightning.training.base import datamodule_of
from pe_lightning.training.callbacks import scores
from pe_lightning.training.callbacks.base import TrainingClock, callbacks, check_monitors, data_of, refuse_lost_results
from pe_lightning.training.callbacks.baseline_scores import score_baselines
from pe_lightning.training.callbacks.loggers import (
    RECORDS,
    CSVLog,
    WandbSettings,
    end_wandb,
    log_histograms,
    log_scores,
    start_wandb,
)
from pe_lightning.training.callbacks.picture_scores import PictureScores
from pe_lightning.training.callbacks.scores import rmse_in_units, score
from pe_lightning.training.callbacks.table import print_fit_scores
from pe_lightning.training.checkpoints import CheckpointFiles, callbacks_of, close_epoch
from pe_lightning.training.datamodule import OutputGrid
from pe_lightning.training.function import FunctionModule

VERSIONS = {
    **{module.__name__: module.__version__ for module in (pe_lightning, torch, lightning, np)},
    "python": platform.python_version(),
}


@callbacks.register("RunRecorder")
class RunRecorder(Callback):
    """Creates the run directory and writes its files, for any module that implements :class:`Describes`.

    The directory is created after data and model are checked: a run that fails on bad input leaves no files. A fit that
    resumes from a checkpoint in a folder ``checkpoints`` uses the directory around it; validate, test and predict write into
    a folder of their name there (``predict``; ``predict/best`` for ``best.ckpt``), or below ``root``, if that is elsewhere.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: Checkpoint that the Trainer will load, if any.
        wandb: How the run appears in W&B.
        log: Whether a fit gets a CSV log, besides the loggers of its Trainer; without these a W&B run too.
        table: Whether a table of the scores is printed.
        folder: The run directory; ``None``: the next free one below ``root``.
        pictures: Whether reconstructions are drawn beside the truth.
        metrics: Metrics of torchmetrics that score the reconstructed pictures, besides SSIM: of all samples of each,
            clamped to [0, 1].
        baselines: Interpolation that is scored beside the fit: ``fast`` takes no longer than a fit of so many samples, by
            an estimate; ``all`` can take hours; ``none``.
        config: The resolved configuration as plain values, for ``config.yaml`` and the loggers.

    Attributes:
        run_dir: The run directory; ``None`` before it is chosen.
        metrics: Content of ``metrics.json`` after a test.
        clock: The clock of the fit, which runs from data in memory to final parameters.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        ckpt_path: str | Path | None = None,
        wandb: WandbSettings | None = None,
        log: bool = True,
        table: bool = True,
        folder: str | Path | None = None,
        pictures: bool = True,
        metrics: list[Metric] | None = None,
        baselines: BaselineChoice = "fast",
        config: dict[str, Any] | None = None,
    ) -> None:
        self.baselines: BaselineChoice = choice("baselines", baselines, BaselineChoice)
        self.root, self.folder = root, folder
        self.ckpt_path = None if ckpt_path is None else locate(ckpt_path)
        self.wandb = wandb or WandbSettings()
        if log and self.wandb.enabled:
            self.wandb.check()
        self.log_runs, self.table, self.pictures = log, table, pictures
        self.picture_scores = PictureScores(metrics or [])
        self.run_dir: Path | None = None
        self.config = config or {}
        self.metrics: dict[str, Any] = {}
        self._origin = dict[str, str | None]()
        self.durations = runs.Durations()
        self.clock = TrainingClock()
        self._earlier = 0.0  # seconds of the fit that is resumed
        self._begun = False
        self._claimed: runs.ClaimedFolder | None = None
        self._start_wandb: Callable[[], list[Logger]] | None = None
        self._results: TestResults | None = None
        self._predictions: PredictionWriter | None = None

    @staticmethod
    def run_dir_of(trainer: Trainer) -> Path | None:
        """The run directory of a Trainer; ``None`` without a recorder and in a ``fast_dev_run``."""
        return next((one.run_dir for one in callbacks_of(trainer) if isinstance(one, RunRecorder)), None)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which may refuse the data, then chooses the directory and attaches loggers."""
        refuse_lost_results(trainer)
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = CheckpointFiles()
        self._begun = False
        if stage == "fit" or not self._origin:  # the test after a fit belongs to it
            self._origin = runs.origin()
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        module, data = scores.check_describes(pl_module), data_of(trainer)
        self.picture_scores.check(data)
        self.durations.mark("reading" if trainer.world_size == 1 else "processes")
        pl_module.configure_model()
        if trainer.is_global_zero:
            self._claimed = runs.ClaimedFolder(self._folder(trainer, module, stage), lock=stage == "fit")
        self.run_dir = Path(str(trainer.strategy.broadcast(str(self._claimed.path if self._claimed else None))))
        held_out = data is None or data.signals.scores_validation
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(self.run_dir / runs.CHECKPOINTS)
                if stage == "fit" and callback.monitor == module.monitor and not held_out:
                    callback.monitor = None  # nothing to compare checkpoints by: the latest is saved
        if stage != "fit":
            return
        goals = scores.goals_of(module)
        if hasattr(pl_module, "logged_values"):
            check_monitors(callbacks_of(trainer), goals, held_out)
        if self.log_runs:
            group = self.wandb.group or os.environ.get("WANDB_RUN_GROUP")
            group = group or scores.data_name(module.describe().get("signals", ["data"]), data)
            if self.wandb.enabled and not trainer.loggers:
                self._start_wandb = partial(start_wandb, trainer, self.run_dir, replace(self.wandb, group=group), goals)
            trainer.loggers = [*trainer.loggers, CSVLog(self.run_dir, TrainingClock.of(trainer))]

    def _folder(self, trainer: Trainer, module: Any, stage: str) -> Path:
        path = self.ckpt_path
        if path is not None and stage == "fit" and path.parent.name == runs.CHECKPOINTS:
            return runs.of_checkpoint(path)
        if path is not None and stage != "fit":
            run = runs.of_checkpoint(path)
            if self.root is None or real_path(run).is_relative_to(real_path(self.root)):
                return run / TrainerFn(stage).value / ("" if path.name == LAST else path.stem)
        if self.folder is not None:
            return Path(self.folder).absolute()
        if path is None or stage == "fit":
            name = scores.run_name(module.describe(), data_of(trainer))
        else:  # the model is described by the checkpoint, which is not loaded yet
            name = run.parent.name if path.parent.name == runs.CHECKPOINTS else path.stem
        return runs.claim(self.root or Path(trainer.default_root_dir) / "runs", name)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._claimed is not None:
            self._claimed.release()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Ends the record; the directory of a fit that failed before its first step is removed: it has no results."""
        if self._claimed is None:
            return
        failed = trainer.state.fn == TrainerFn.FITTING and trainer.global_step == 0
        if failed:
            end_wandb(trainer.loggers, 1)  # it writes into the directory
        self._claimed.release({runs.CONFIG, *RECORDS} if failed else ())

    # -- a fit --------------------------------------------------------------------------------------------------------

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        """Writes the configuration and the description of a fit, and starts its W&B run; once."""
        if self._begun or self.run_dir is None:
            return
        self._begun = True
        if self.config and trainer.is_global_zero:
            commit = f", commit {self._origin['git_commit']}" if self._origin["git_commit"] else ""
            words = ", ".join(f"{name} {version}" for name, version in VERSIONS.items())
            head = [
                f"lightning.pytorch=={lightning.__version__}",
                f"{self._origin['date']}{commit}, {words}",
                self._origin["command"],
            ]
            comments = "".join(f"# {printable(line)}\n" for line in head)
            settings = yaml.safe_dump(self.config, sort_keys=False)
            write_atomically(self.run_dir / runs.CONFIG, f"{comments}{settings}")
        if self.table:
            rank_zero_info(f"run directory: {runs.in_short(self.run_dir)}")
        if self._start_wandb is not None:
            self.durations.mark("fit")
            trainer.loggers = [*trainer.loggers, *self._start_wandb()]
            self.durations.mark("W&B")
        self._log_description(trainer, module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins the record of a resumed fit: all of its state is restored, and nothing has refused it."""
        self._begin(trainer, pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.ckpt_path is None:
            self._begin(trainer, pl_module)
        self.clock = TrainingClock.of(trainer)
        self.clock.start(self._earlier or getattr(pl_module, "choice_seconds", 0.0))
        self._earlier = 0.0

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock.pause(pl_module.device)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self.clock.resume()

    def next_step(self, trainer: Trainer) -> None:
        """Resumes the clock before steps outside of Lightning's loop, all of which may go on without the recorder."""
        self.clock.resume()

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if self.wandb.watch is not None and every and (trainer.global_step + 1) % every == 0:
            log_histograms(trainer.loggers, pl_module, trainer.global_step, self.wandb.watch)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock.pause(pl_module.device)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the final weights as a checkpoint and logs the choices made during the fit."""
        self.clock.pause(pl_module.device)  # of a fit without steps
        if self.run_dir is None:
            if self.table and getattr(trainer, "fast_dev_run", False):
                rank_zero_info(
                    f"fast_dev_run: {trainer.global_step} training step(s) and {sum(trainer.num_val_batches)} validation "
                    "batch(es) ran without an error; no file is written"
                )
            return
        self._begin(trainer, pl_module)  # of a resumed fit without steps
        # callbacks write none for a fit of no steps; of a fit that ended within an epoch the state to resume from is there
        callbacks = trainer.checkpoint_callbacks
        if callbacks and not any(getattr(callback, "last_is_complete", False) for callback in callbacks):
            close_epoch(trainer)  # not closed by Lightning if the checkpoint was of the last step: no loop has run
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / LAST, weights_only=False)
        self._log_description(trainer, pl_module)

    def _log_description(self, trainer: Trainer, pl_module: Any) -> None:
        if self.run_dir is None or not trainer.is_global_zero:
            return
        described = scores.describe(pl_module, data_of(trainer))
        described["data"] = {"fingerprint": described.pop("data_fingerprint"), "paths": described.pop("paths")}
        described |= {"seed": self.config.get("seed_everything"), "run_dir": str(self.run_dir)}
        for logger in trainer.loggers:
            logger.log_hyperparams({**scores.settings(described), "config": self.config})

    def state_dict(self) -> dict[str, Any]:
        return {"fit_seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict["fit_seconds"]

    # -- scores -------------------------------------------------------------------------------------------------------

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the scores of the verb ``validate``; a fit logs its validations."""
        if self.run_dir is None or trainer.state.fn != TrainerFn.VALIDATING or not trainer.is_global_zero:
            return
        logged = {key: float(value) for key, value in trainer.callback_metrics.items()}
        plain = {key: value if math.isfinite(value) else None for key, value in logged.items()}
        runs.write_metrics(self.run_dir / runs.METRICS, {"schema": runs.SCHEMA, **plain})

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.durations.mark("fit")
        self._results = None if self.run_dir is None else TestResults(trainer, pl_module, self.run_dir)

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        prediction = outputs.get("prediction") if isinstance(outputs, dict) else None
        if prediction is not None and self._results is not None:
            self._results.add(prediction, batch)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Writes and logs ``metrics.json`` and the reconstructions, and prints the table."""
        results, self._results = self._results, None
        if results is None or self.run_dir is None:
            return
        results.gather()
        if not trainer.is_global_zero:
            return
        file, last = self.run_dir / runs.METRICS, self.run_dir / runs.CHECKPOINTS / LAST
        described, size = scores.describe(pl_module, data_of(trainer)), last if last.is_file() else self.ckpt_path
        self.metrics = {
            **results.scores(described, self.picture_scores),
            "fit_seconds": self.clock.seconds or None,
            "steps": trainer.global_step,
            **described,
            "checkpoint_bytes": size.stat().st_size if size is not None and size.is_file() else None,
            "baselines": {},
            **scores.reports(trainer),
            "seed": self.config.get("seed_everything"),
            "versions": VERSIONS,
            **self._origin,
        }
        runs.write_metrics(file, self.metrics)  # before anything that could still fail
        found = score_baselines(data_of(trainer), scores.metric_of(pl_module), self.baselines)
        self.metrics["baselines"], best = found
        self.durations.mark("scores")
        pictures = results.write(self.metrics, best, self.pictures)
        runs.write_metrics(file, self.metrics)
        chosen = (described["solution"] or {}).get("choice")
        curve = plot_choice(self.run_dir / "choice.png", chosen) if chosen else None
        keys, artifact = self.picture_scores.keys, last if self.wandb.artifact else None
        log_scores(trainer.loggers, self.metrics, pictures, curve, trainer.global_step, artifact, keys)
        self.durations.mark("files")
        if self.table:
            print_fit_scores(self.metrics, self.run_dir, self.durations, "solver" in pl_module.hparams, keys)

    # -- predictions --------------------------------------------------------------------------------------------------

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        output = OutputGrid() if data_of(trainer) is not None else datamodule_of(trainer, OutputGrid)
        has_std = isinstance(pl_module, FunctionModule) and pl_module.has_std
        if output is not None and output.output_std and not has_std:
            raise InputError(
                f"{type(pl_module).__name__} has no standard deviations from a checkpoint: leave out output_std; Adaptive "
                "has them, of one signal"
            )
        info, self._predictions = getattr(pl_module, "info", None), None
        if self.run_dir is not None and info is not None and trainer.is_global_zero:
            self._predictions = PredictionWriter(self.run_dir, info, output, has_std)

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        writer = self._predictions
        if writer is not None:
            std = pl_module.std(OutputGrid.flat(batch)).reshape(outputs.shape) if writer.takes_std else None
            for path in writer.add(outputs, std):
                if self.table:
                    say(path)


Array = npt.NDArray[np.float32]


class TestResults:
    """Predictions of a test, kept by the first process, or in files if the signals are read block by block."""

    def __init__(self, trainer: Trainer, module: Any, run_dir: Path) -> None:
        self.trainer, self.module, self.folder = trainer, module, run_dir / runs.RECONSTRUCTIONS
        self.data, self.info = data_of(trainer), getattr(module, "info", None)
        self._tested: tuple[Array, GridBatch | PointBatch] | None = None
        self._files: FileAssembly | None = None
        if self.info is not None and self.data is not None and self.data.signals.streamed:
            self._files = FileAssembly(self.folder, self.info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def add(self, prediction: Tensor, batch: Any) -> None:
        whole = isinstance(batch, PointBatch) or (isinstance(batch, GridBatch) and batch.start is None)
        if isinstance(batch, GridBatch) and self._files is not None:
            self._files.add(prediction, batch.start)
        elif whole and self.trainer.is_global_zero:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), to_device(batch, torch.device("cpu"))

    def gather(self) -> None:
        """Completes the files when all processes have added their blocks."""
        if self._files is None:
            return
        filled = self.trainer.strategy.reduce_boolean_decision(self._files.filled, all=False)
        paths = self._files.finish(filled)
        if filled and self.trainer.is_global_zero and self.data is not None:
            compare_files(paths, self.data.signals.raw, self._files.info)

    def scores(self, described: dict[str, Any], of_pictures: PictureScores) -> dict[str, Any]:
        """Scores for ``metrics.json``, of a module with this description."""
        scores, tested = score(self.module, described), self._tested
        at_points = tested is not None and isinstance(tested[1], PointBatch)
        if "grid" in described:
            on_grid = None if tested is None or at_points else (tested[0], tested[1].values.float().numpy())
            scores |= of_pictures.score(on_grid, described["num_signals"])
        if at_points and "test/psnr" in self.module.scores:
            scores |= rmse_in_units(self.module.scores, self.module.info)
        return scores

    def write(self, metrics: dict[str, Any], best: tuple[str, Array] | None, draw: bool) -> list[str]:
        """Writes the reconstructions beside the truth and the best interpolation, and returns the pictures among them."""
        if self._tested is None or self.info is None:
            return []
        prediction, batch = self._tested
        pictures = media.create(self.info.media).pictures(self.folder, metrics, prediction, batch, self.info, draw)
        if pictures is not None:
            return pictures
        mask = self.data.signals.split.train_mask().numpy() if self.data is not None else None
        values = batch.values.float().numpy()
        return write_reconstructions(self.folder, metrics, prediction, values, self.info, mask, best, draw)

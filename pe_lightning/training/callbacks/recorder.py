"""The recorder of a run: its directory, logs, ``metrics.json``, reconstructions, and the table of its scores."""

from __future__ import annotations

import json
import math
import multiprocessing
import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
import yaml
from filelock import FileLock
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torchmetrics import Metric

import pe_lightning
from pe_lightning.errors import InputError, say
from pe_lightning.estimators.report import FitReport
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import LAST, locate
from pe_lightning.results.metrics_file import SCHEMA, write_metrics
from pe_lightning.results.pictures import plot_choice
from pe_lightning.results.reconstructions import FileAssembly, PredictionWriter, write_reconstructions
from pe_lightning.results.runs import flatten
from pe_lightning.results.signal_files import media
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.blocks import FileValues
from pe_lightning.signals.dataset import to_device
from pe_lightning.signals.files import real_path, write_atomically
from pe_lightning.training.base import TrainedModule, datamodule_of
from pe_lightning.training.callbacks.base import TrainingClock, callbacks, check_monitors, data_of
from pe_lightning.training.callbacks.loggers import CSVLog, WandbSettings, log_scores, start_wandb
from pe_lightning.training.callbacks.picture_scores import PictureScores
from pe_lightning.training.callbacks.scores import (
    Describes,
    data_name,
    describe,
    metric_of,
    print_fit_scores,
    rmse_in_units,
    run_name,
    score,
    score_baselines,
)
from pe_lightning.training.checkpoints import CheckpointFiles, close_epoch
from pe_lightning.training.coordinate import FunctionModule
from pe_lightning.training.datamodule import OutputGrid

Array = npt.NDArray[np.float32]

RECORD_KEY = "pe_lightning/record"
"""Key of ``callback_metrics`` by which a process that fits gives the record to the one that has started it."""
VERSIONS = {
    **{module.__name__: module.__version__ for module in (pe_lightning, torch, lightning, np)},
    "python": platform.python_version(),
}


@callbacks.register("RunRecorder")
class RunRecorder(Callback):
    """Creates the run directory and writes its files, for any module that implements :class:`Describes`.

    The directory is created after data and model are checked: a run that fails on bad input leaves no files.
    The first process chooses it and broadcasts it. A fit that resumes from a checkpoint in a folder ``checkpoints`` uses
    the directory around it; validate, test and predict write into a folder of their name there, ``predict`` for
    ``last.ckpt`` and ``predict/best`` for ``best.ckpt``, or into a new directory below ``root``, if that is elsewhere.

    Args:
        root: Where run directories go; ``None`` is ``runs`` in the Trainer's ``default_root_dir``.
        ckpt_path: Checkpoint that the Trainer will load, if any.
        wandb: How the run appears in W&B.
        log: Whether a fit without loggers gets a CSV and a W&B logger.
        table: Whether a table of the scores is printed.
        folder: The run directory; ``None``: the next free one below ``root``.
        pictures: Whether reconstructions are drawn beside the truth.
        metrics: Metrics of torchmetrics that score the reconstructed pictures, besides SSIM: of all samples of each,
            clamped to [0, 1].

    Attributes:
        run_dir: The run directory; ``None`` before it is chosen.
        hyper_parameters: The resolved configuration as plain values, for ``config.yaml`` and the loggers; set before a fit.
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
    ) -> None:
        self.root = root
        self.ckpt_path = None if ckpt_path is None else locate(ckpt_path)
        self.wandb = wandb or WandbSettings()
        if log and self.wandb.enabled:
            self.wandb.check()
        self.log_runs = log
        self.table = table
        self.folder = folder
        self.pictures = pictures
        self.picture_scores = PictureScores(metrics or [])
        self.run_dir: Path | None = None
        self.hyper_parameters: dict[str, Any] = {}
        self.metrics: dict[str, Any] = {}
        self.durations = runs.Durations()
        self.clock = TrainingClock()
        self._earlier = 0.0  # seconds of the fit that is resumed
        self._begun = False
        self._unused: Path | None = None  # the run directory, if nothing was in it
        self._start_wandb: Callable[[], list[Logger]] | None = None
        self._handed_over: dict[str, Any] = {}  # of a fit of other processes
        self._lock: FileLock | None = None
        self._results: TestResults | None = None
        self._predictions: PredictionWriter | None = None

    @staticmethod
    def run_dir_of(trainer: Trainer) -> Path | None:
        """The run directory of a Trainer; ``None`` without a recorder and in a ``fast_dev_run``."""
        recorders = [callback for callback in trainer.callbacks if isinstance(callback, RunRecorder)]  # type: ignore[attr-defined]
        return recorders[0].run_dir if recorders else None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Builds the module, which may refuse the data, then chooses the directory and attaches loggers."""
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = CheckpointFiles()
        self._begun = False
        if self.run_dir is None and RECORD_KEY in trainer.callback_metrics:
            self._take_over(trainer, pl_module)
        if self.run_dir is not None or getattr(trainer, "fast_dev_run", False):
            return
        if not isinstance(pl_module, Describes):
            raise InputError(
                f"RunRecorder records modules that describe themselves; {type(pl_module).__name__} needs describe() -> dict "
                "with 'model', 'num_params' and 'encoder', the attributes monitor ('val/<metric>') and monitor_mode ('max' "
                "or 'min'), and after a test scores ('test/<metric>' -> values per signal)"
            )
        self.picture_scores.check(data_of(trainer))
        self.durations.mark("reading")
        pl_module.configure_model()
        chosen = self._choose(trainer, pl_module, stage) if trainer.is_global_zero else None
        self.run_dir = Path(str(trainer.strategy.broadcast(str(chosen))))
        held_out = (data := data_of(trainer)) is None or data.scores_validation
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint):
                callback.dirpath = callback.dirpath or str(self.run_dir / runs.CHECKPOINTS)
                if stage == "fit" and callback.monitor == pl_module.monitor and not held_out:
                    callback.monitor = None  # nothing to compare checkpoints by: the latest is saved
        if stage != "fit":
            return
        # a module that does not declare its logged values may log anything
        goals: dict[str, str] = getattr(pl_module, "logged_values", None) or {
            pl_module.monitor: pl_module.monitor_mode,
            f"train/{metric_of(pl_module)}": pl_module.monitor_mode,
            "train/loss": "min",
        }
        if hasattr(pl_module, "logged_values"):
            check_monitors(trainer.callbacks, goals, held_out)  # type: ignore[attr-defined]
        if self.log_runs and not trainer.loggers:
            group = self.wandb.group or data_name(pl_module.describe().get("signals", ["data"]), data)
            trainer.loggers = [CSVLog(self.run_dir, TrainingClock.of(trainer))]
            settings = replace(self.wandb, group=group)
            self._start_wandb = partial(start_wandb, trainer, self.run_dir, settings, goals) if settings.enabled else None

    def _hand_over(self, trainer: Trainer, module: Any) -> None:
        """Gives the record to the process that has started this one, such as by ``ddp_spawn``.

        Lightning takes back the weights and ``callback_metrics`` alone.
        """
        solution = getattr(module, "solution", None)
        record = {
            "run_dir": str(self.run_dir),
            "seconds": self.clock.seconds,
            "steps": trainer.global_step,
            "optimization": getattr(module, "optimization", None),
            "solution": None if solution is None else solution.to_dict(),
            "reports": reports(trainer),
        }
        trainer.callback_metrics[RECORD_KEY] = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)

    def _take_over(self, trainer: Trainer, module: Any) -> None:
        """Continues the record of a fit that other processes made."""
        if not any(True for _ in module.parameters()):
            raise InputError(
                f"{type(module).__name__} was not built when its fit was given to other processes, whose weights it has not "
                "received: call build_from(data) before Trainer.fit, or use strategy='ddp'"
            )
        record = json.loads(trainer.callback_metrics[RECORD_KEY].numpy().tobytes())
        self.run_dir, self._handed_over = Path(record["run_dir"]), record
        self.clock.start(record["seconds"])
        self.clock.pause(torch.device("cpu"))
        if isinstance(module, TrainedModule):
            module.optimization = record["optimization"]
        if isinstance(module, FunctionModule) and record["solution"] is not None:
            module.solution = FitReport.from_dict(record["solution"])

    def _choose(self, trainer: Trainer, module: Describes, stage: str) -> Path:
        path = self.ckpt_path
        if path is not None and stage == "fit" and path.parent.name == runs.CHECKPOINTS:
            folder = runs.of_checkpoint(path)
        elif path is not None and stage != "fit" and self._may_hold(run := runs.of_checkpoint(path)):
            folder = run / TrainerFn(stage).value / ("" if path.name == LAST else path.stem)
        elif self.folder is not None:
            folder = Path(self.folder).absolute()
        else:
            if path is None or stage == "fit":
                name = run_name(module.describe(), data_of(trainer))
            else:  # the model is described by the checkpoint, which is not loaded yet
                name = run.parent.name if path.parent.name == runs.CHECKPOINTS else path.stem
            folder = runs.claim(self.root or Path(trainer.default_root_dir) / "runs", name)
        folder.mkdir(parents=True, exist_ok=True)
        self._unused = folder if not any(folder.iterdir()) else None
        if stage == "fit":
            self._lock = runs.hold(folder)
        return folder

    def _may_hold(self, run: Path) -> bool:
        """Whether a run directory is one that evaluations may add to: any, unless ``root`` is elsewhere."""
        return self.root is None or real_path(run).is_relative_to(real_path(self.root))

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._lock is not None:
            self._lock.release()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Ends the record; the directory of a fit that was refused before it began is removed, as nothing is in it."""
        self.teardown(trainer, pl_module, "")
        if self._unused is not None and not self._begun:
            with suppress(OSError):
                (self._unused / runs.LOCK).unlink()
                self._unused.rmdir()

    def _begin(self, trainer: Trainer, module: LightningModule) -> None:
        """Writes the configuration and the description of a fit, and starts its W&B run; once."""
        if self._begun or self.run_dir is None:
            return
        self._begun = True
        if self.hyper_parameters and trainer.is_global_zero:
            text = f"# lightning.pytorch=={lightning.__version__}\n{yaml.safe_dump(self.hyper_parameters, sort_keys=False)}"
            write_atomically(self.run_dir / runs.CONFIG, text)
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

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.clock.pause(pl_module.device)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves the final weights as a checkpoint and logs the choices made during the fit."""
        self.clock.pause(pl_module.device)  # of a fit without steps
        if self.run_dir is None:
            return
        self._begin(trainer, pl_module)  # of a resumed fit without steps
        # callbacks write none for a fit of no steps; of a fit that ended within an epoch the state to resume from is there
        callbacks = trainer.checkpoint_callbacks
        if callbacks and not any(getattr(callback, "last_is_complete", False) for callback in callbacks):
            close_epoch(trainer)  # not closed by Lightning if the checkpoint was of the last step: no loop has run
            trainer.save_checkpoint(self.run_dir / runs.CHECKPOINTS / LAST, weights_only=False)
        self._log_description(trainer, pl_module)
        if multiprocessing.parent_process() is not None:
            self._hand_over(trainer, pl_module)

    def _log_description(self, trainer: Trainer, pl_module: Any) -> None:
        if self.run_dir is None or not trainer.is_global_zero:
            return
        described = describe(pl_module, data_of(trainer))
        described["data"] = {"fingerprint": described.pop("data_fingerprint"), "paths": described.pop("paths")}
        described |= {"seed": self.hyper_parameters.get("seed_everything"), "run_dir": str(self.run_dir)}
        for logger in trainer.loggers:
            logger.log_hyperparams({**dict(flatten(described, entries=True)), "config": self.hyper_parameters})

    def state_dict(self) -> dict[str, Any]:
        return {"fit_seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict["fit_seconds"]

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
        file = self.run_dir / runs.METRICS
        self.metrics = {
            **results.scores(self.picture_scores),
            "fit_seconds": self.clock.seconds or None,
            "steps": self._handed_over.get("steps", trainer.global_step),
            **results.described,
            "checkpoint_bytes": self._checkpoint_bytes(),
            "baselines": {},
            **self._handed_over.get("reports", reports(trainer)),
            "seed": self.hyper_parameters.get("seed_everything"),
            "versions": VERSIONS,
        }
        write_metrics(file, self.metrics)  # before anything that could still fail
        self.metrics["baselines"], best = score_baselines(data_of(trainer), metric_of(pl_module))
        self.durations.mark("scores")
        pictures = results.write(self.metrics, best, self.pictures)
        write_metrics(file, self.metrics)
        choice = (results.described["solution"] or {}).get("choice")
        curve = plot_choice(self.run_dir / "choice.png", choice) if choice else None
        last = self.run_dir / runs.CHECKPOINTS / LAST if self.wandb.artifact else None
        scored = self.picture_scores.keys
        log_scores(trainer.loggers, self.metrics, pictures, curve, trainer.global_step, last, scored)
        self.durations.mark("files")
        if self.table:
            print_fit_scores(
                self.metrics, self.run_dir, self.durations, getattr(pl_module, "can_solve_exactly", False), scored
            )

    def _checkpoint_bytes(self) -> int | None:
        assert self.run_dir is not None
        last = self.run_dir / runs.CHECKPOINTS / LAST
        path = last if last.is_file() else self.ckpt_path
        return path.stat().st_size if path is not None and path.is_file() else None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes the scores of the verb ``validate``; those of a fit are in its logs."""
        if self.run_dir is None or trainer.state.fn != TrainerFn.VALIDATING or not trainer.is_global_zero:
            return
        scores = {key: float(value) for key, value in trainer.callback_metrics.items()}
        plain = {key: value if math.isfinite(value) else None for key, value in scores.items()}
        write_metrics(self.run_dir / runs.METRICS, {"schema": SCHEMA, **plain})

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
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        writer = self._predictions
        if writer is not None:
            std = pl_module.std(OutputGrid.flat(batch)).reshape(outputs.shape) if writer.takes_std else None  # type: ignore[operator]
            for path in writer.add(outputs, std):
                if self.table:
                    say(path)

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._predictions = None


def reports(trainer: Trainer) -> dict[str, Any]:
    """Entries that callbacks with a method ``report()`` add to ``metrics.json``: plain values by name, none before a fit."""
    found: dict[str, Any] = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if hasattr(callback, "report"):
            found |= callback.report()
    return found


class TestResults:
    """Predictions of a test, kept by the first process, or in files for signals that stay in theirs."""

    def __init__(self, trainer: Trainer, module: Any, run_dir: Path) -> None:
        self.trainer, self.module, self.run_dir = trainer, module, run_dir
        self.data, self.info = data_of(trainer), getattr(module, "info", None)
        self._tested: tuple[Array, GridBatch | PointBatch] | None = None
        self._files: FileAssembly | None = None
        if self.info is not None and self.data is not None and self.data.streamed:
            self._files = FileAssembly(run_dir / runs.RECONSTRUCTIONS, self.info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def add(self, prediction: Tensor, batch: Any) -> None:
        whole = isinstance(batch, PointBatch) or (isinstance(batch, GridBatch) and batch.start is None)
        if isinstance(batch, GridBatch) and self._files is not None:
            self._files.add(prediction, batch.start)
        elif whole and self.trainer.is_global_zero:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), to_device(batch, torch.device("cpu"))

    def gather(self) -> None:
        """Completes the files, to which every process has added its blocks when all have said so."""
        if self._files is not None:
            filled = self.trainer.strategy.reduce_boolean_decision(self._files.filled, all=False)
            values = self.data.dataset.values if self.data is not None else None
            self._files.finish(filled, values if isinstance(values, FileValues) else None)

    def scores(self, of_pictures: PictureScores) -> dict[str, Any]:
        """Scores for ``metrics.json``; :attr:`described` is then the description of the module."""
        self.described = describe(self.module, self.data)
        scores = score(self.module, self.described)
        tested = self._tested
        at_points = tested is not None and isinstance(tested[1], PointBatch)
        if "grid" in self.described:
            on_grid = None if tested is None or at_points else (tested[0], tested[1].values.float().numpy())
            scores |= of_pictures.of(on_grid, self.described["num_signals"])
        if at_points and "test/psnr" in self.module.scores:
            scores |= rmse_in_units(self.module.scores, self.module.info)
        return scores

    def write(self, metrics: dict[str, Any], best: tuple[str, Array] | None, draw: bool) -> list[str]:
        """Writes the reconstructions beside the truth and the best interpolation, and returns the pictures among them."""
        folder = self.run_dir / runs.RECONSTRUCTIONS
        if self._tested is None:
            return []
        prediction, batch = self._tested
        if self.info is not None:
            pictures = media.create(self.info.media).pictures(folder, metrics, prediction, batch, self.info, draw)
            if pictures is not None:
                return pictures
        mask = self.data.split.train_mask().numpy() if self.data is not None else None
        return write_reconstructions(folder, metrics, prediction, batch.values.float().numpy(), self.info, mask, best, draw)

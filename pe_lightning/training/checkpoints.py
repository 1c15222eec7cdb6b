"""Checkpoints of a Trainer: their files, the settings that they hold, and resumed fits.

A fit that is resumed from a checkpoint equals the uninterrupted fit bit for bit. Lightning saves neither the logged metrics,
which callbacks monitor, nor resumes at the start of an epoch: where ``max_steps`` is set, it repeats the end of the epoch in
which the checkpoint was written, without its validation.
"""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor
from torch.optim import Optimizer

from pe_lightning.errors import InputError, paragraph
from pe_lightning.registry import import_class
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import LAST, read_checkpoint
from pe_lightning.results.config_files import read_config
from pe_lightning.signals.files import write_atomically

METRICS_KEY = "pe_lightning/logged_metrics"
"""Where a checkpoint holds the metrics that were logged last."""
AVERAGED_KEY = "pe_lightning/weights_are_averages"
"""Whether a checkpoint was written after a callback had replaced the weights by their averages."""


class CheckpointFiles(TorchCheckpointIO):
    """Writes checkpoints atomically, and reads them with checks and ``weights_only``.

    Lightning copies a temporary file over the old one, which a kill or a full disk leaves incomplete.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        write_atomically(path, buffer.getbuffer())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(path)


class BestAndLast(ModelCheckpoint):
    """Writes ``last.ckpt`` after every epoch, whether the score improved or not, and ``best.ckpt`` where it did.

    A fit that ends within an epoch leaves the state after its last step, before the validation that ends it: resumed, the
    fit continues as one that was never stopped.

    Args:
        monitor: The logged value; with ``None`` the latest checkpoint is the best.
        mode: ``max`` if larger values are better, else ``min``.

    Attributes:
        last_is_complete: Whether ``last.ckpt`` has the state to resume from, and is not to be overwritten.
    """

    def __init__(self, monitor: str | None, mode: str) -> None:
        super().__init__(
            filename="best", monitor=monitor, mode=mode, enable_version_counter=False, save_on_train_epoch_end=True
        )
        self.last_is_complete = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.last_is_complete = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes ``last.ckpt`` after the last step of a fit that ends within an epoch."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        ends = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
        if ends and not trainer.is_last_batch and not swa_ends_with(trainer, trainer.current_epoch):
            self._write_last(trainer)
            self.last_is_complete = True

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Writes both, ``best.ckpt`` once there was a validation; ``last.ckpt`` second, as it holds the best score."""
        if self.monitor is None or self.monitor in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)
        if not self.last_is_complete:
            self._write_last(trainer)

    def _write_last(self, trainer: Trainer) -> None:
        if not getattr(trainer, "fast_dev_run", False):
            trainer.save_checkpoint(Path(str(self.dirpath)) / LAST, weights_only=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the best score if its checkpoint exists in the run directory, which may have been moved."""
        best = str(Path(str(self.dirpath)) / f"best{self.FILE_EXTENSION}")
        if os.path.isfile(best) and (score := state_dict["best_model_score"]) is not None:
            paths = {"best_model_path": best, "kth_best_model_path": best, "last_model_path": ""}
            super().load_state_dict({**state_dict, **paths, "dirpath": self.dirpath, "best_k_models": {best: score}})


def check_optimizer(optimizer: Optimizer) -> None:
    """Checks the loaded state of optimisers with fused kernels, which do not check shapes before they write."""
    fused = isinstance(optimizer, (torch.optim.Adagrad, torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD))
    for parameter, state in optimizer.state.items() if fused else ():
        for name, value in state.items():
            like = torch.ones(()) if name == "step" else parameter
            if isinstance(value, Tensor) and (
                (value.shape, value.dtype) != (like.shape, like.dtype) or value.is_contiguous() < like.is_contiguous()
            ):
                raise InputError(
                    f"the checkpoint is damaged: {name} in the state of the optimiser has shape {tuple(value.shape)} and "
                    f"dtype {value.dtype}, its parameter {tuple(like.shape)} and {like.dtype}. Fit again without --ckpt_path"
                )


@contextmanager
def restoring() -> Iterator[None]:
    """Turns exceptions of Lightning during the restoration of a checkpoint into an :class:`InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
        if not any(name.endswith("checkpoint_connector") for name in frames):
            raise
        raise InputError(
            f"the checkpoint does not fit the model, or is damaged: {type(error).__name__}, {paragraph(str(error), 400)}. "
            "Name another one, or fit again without --ckpt_path"
        ) from error


def model_class(name: str) -> type[LightningModule]:
    """The class that a checkpoint names, imported by :func:`~pe_lightning.registry.import_class`."""
    try:
        found = import_class(name)
    except InputError:
        raise
    except (ImportError, AttributeError, ValueError):
        found = None
    if not (isinstance(found, type) and issubclass(found, LightningModule)):
        raise InputError(f"the checkpoint is of {name!r}, which is not a LightningModule that can be imported here")
    return found


def read_model(path: str | Path) -> dict[str, Any] | None:
    """The model of a checkpoint as ``{"class_path": ..., "init_args": {...}}``; ``None`` if it does not name one."""
    arguments = dict(read_checkpoint(path)["hyper_parameters"])
    name = arguments.pop("_class_path", None)
    if name is not None:
        model_class(name)
    return None if name is None else {"class_path": name, "init_args": arguments}


def saved_settings(path: str | Path, verb: str, configured: bool) -> dict[str, Any]:
    """The sections of a configuration that a checkpoint and, unless ``configured`` otherwise, its run hold for a verb."""
    settings: dict[str, Any] = {}
    config = runs.of_checkpoint(path) / runs.CONFIG
    model = read_model(path)
    if verb != "fit" and not configured and config.is_file():
        # predict needs no data; a model that the checkpoint does not name is the one of the run
        keys = ("model",) if verb == "predict" else ("model", "data", "seed_everything")
        saved = read_config(config)
        settings = {key: saved[key] for key in keys if key in saved}
    if model is not None:
        settings["model"] = model
    return settings


def swa_ends_with(trainer: Trainer, epoch: int) -> bool:
    """Whether stochastic weight averaging replaces the weights by their averages if training ends in this epoch."""
    averaging = any(isinstance(callback, StochasticWeightAveraging) for callback in _callbacks(trainer))
    return averaging and trainer.max_epochs in (-1, epoch + 1)


class Resumption(Callback):
    """Restores what Lightning does not, and refuses fits that cannot be resumed or monitored.

    Every module of this package adds it to its Trainer.
    """

    def __init__(self) -> None:
        self._checkpoint: dict[str, Any] = {}
        self._averaged = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        averaging = any(isinstance(callback, StochasticWeightAveraging) for callback in _callbacks(trainer))
        if stage == "fit" and averaging and not any(True for _ in pl_module.parameters()):
            raise InputError(
                f"StochasticWeightAveraging copies the model before it is built: call {type(pl_module).__name__}.build_from("
                "data) before Trainer.fit"
            )

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[METRICS_KEY] = {name: value.detach().cpu() for name, value in trainer.callback_metrics.items()}
        checkpoint[AVERAGED_KEY] = self._averaged

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        self._averaged = checkpoint.get(AVERAGED_KEY, False)
        self._checkpoint = {
            "metrics": checkpoint.get(METRICS_KEY, {}),
            "callbacks": checkpoint.get("callbacks", {}),
            "rates": [[group["lr"] for group in state["param_groups"]] for state in checkpoint.get("optimizer_states", [])],
        }

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in _callbacks(trainer):
            if isinstance(callback, EarlyStopping) and callback.stopping_reason is not EarlyStoppingReason.NOT_STOPPED:
                trainer.should_stop = True
                rank_zero_info(
                    f"EarlyStopping has ended this fit: {callback.stopping_reason_message} To train further, leave it out."
                )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restores the metrics, starts a new epoch after a finished one, and restores weight averaging."""
        metrics = self._checkpoint.get("metrics", {})
        trainer.callback_metrics.update({name: value.to(pl_module.device) for name, value in metrics.items()})
        if not trainer.fit_loop.is_resuming:
            return
        if self._averaged:
            raise InputError(
                "the checkpoint holds the average of the weights of a fit that has ended, and cannot be trained further; "
                "name an earlier checkpoint, or fit again"
            )
        close_epoch(trainer)
        for callback in _callbacks(trainer):  # acts at the start of an epoch, which this one has had
            if isinstance(callback, GradientAccumulationScheduler):
                callback.on_train_epoch_start(trainer)
        self._restore_averaging(trainer, pl_module)
        self._checkpoint = {}

    def _restore_averaging(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the schedule of stochastic weight averaging, which resets the learning rates, and restores the rates."""
        for callback in _callbacks(trainer):
            state = self._checkpoint.get("callbacks", {}).get(callback.state_key, {})
            if isinstance(callback, StochasticWeightAveraging) and state.get("scheduler_state") is not None:
                callback.on_train_epoch_start(trainer, pl_module)
                for optimizer, rates in zip(trainer.optimizers, self._checkpoint["rates"], strict=True):
                    for group, rate in zip(optimizer.param_groups, rates, strict=True):
                        group["lr"] = rate

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        moving = any(isinstance(callback, WeightAveraging) for callback in _callbacks(trainer))
        self._averaged = moving or swa_ends_with(trainer, trainer.current_epoch - 1)


def _callbacks(trainer: Trainer) -> list[Callback]:
    found: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return found


def close_epoch(trainer: Trainer) -> None:
    """Counts the epoch of a resumed checkpoint as completed if its batches and its end were run before it was written."""
    loop = trainer.fit_loop
    epoch: Any = loop.epoch_progress.current
    if not loop.restarting or not trainer.is_last_batch or epoch.processed < epoch.ready:
        return
    if epoch.completed < epoch.processed:
        loop.epoch_progress.increment_completed()
    loop.reset_restart_stage()
    loop.epoch_loop.restarting = False
    loop.epoch_loop.reset_restart_stage()

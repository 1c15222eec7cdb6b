"""Checkpoint files of a Trainer: written atomically, and the settings that they hold."""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.optim import Optimizer

from pe_lightning.errors import InputError, paragraph
from pe_lightning.registry import import_class
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import LAST, read_checkpoint
from pe_lightning.results.config_files import read_config
from pe_lightning.signals.files import write_atomically
from pe_lightning.training.resumption import swa_ends_with


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

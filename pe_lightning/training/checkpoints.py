"""Checkpoint files of a fit, whose weights are finite."""

from __future__ import annotations

import io
import math
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities import rank_zero_warn
from torch.nn.utils import get_total_norm

from pe_lightning.errors import InputError, paragraph
from pe_lightning.results.checkpoint_files import LAST, read_checkpoint
from pe_lightning.signals.files import write_atomically


class CheckpointFiles(TorchCheckpointIO):
    """Writes checkpoints of finite weights atomically, and reads them with checks and ``weights_only``.

    Lightning copies a temporary file over the old one, which a kill or a full disk leaves incomplete.
    """

    def __init__(self) -> None:
        self.weights: frozenset[str] = frozenset()
        """Names of the parameters that have to be finite, set by :class:`FiniteWeights`."""
        self._left_out = False

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        state = checkpoint.get("state_dict", checkpoint)  # a process that is started for a fit returns its state alone
        self._left_out = not all(bool(state[name].isfinite().all()) for name in self.weights & state.keys())
        if self._left_out:
            rank_zero_warn(f"{path} is not written: the weights are not finite")
            return
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        write_atomically(path, buffer.getbuffer())

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(path)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Removes a checkpoint, unless the new one was not written."""
        if not self._left_out:
            super().remove_checkpoint(path)


class FiniteWeights(Callback):
    """Stops a fit whose weights are not finite; checkpoints are never replaced by such weights.

    The weights are checked every ``log_every_n_steps`` steps, at the end of every epoch and at the end of the fit, in all
    processes together. Every module of this package adds this callback to its Trainer, unless the Trainer has one.

    Args:
        stop: Whether the fit ends with an :class:`InputError`; else it goes on, with a warning.
    """

    def __init__(self, stop: bool = True) -> None:
        self.stop = stop
        self._finite_step = self._checked_step = 0
        self._warned = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finite_step, self._warned = 0, False
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = CheckpointFiles()
        if isinstance(files := trainer.strategy.checkpoint_io, CheckpointFiles):
            files.weights = frozenset(name for name, _ in pl_module.named_parameters())

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._finite_step = self._checked_step = trainer.global_step

    def next_step(self, trainer: Trainer) -> int | None:
        return self._checked_step + trainer.log_every_n_steps if trainer.log_every_n_steps else None  # type: ignore[attr-defined]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if every and trainer.global_step - self._checked_step >= every:
            self._check(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.global_step > self._checked_step:
            self._check(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Checks the final weights: a solution, or an average of the weights of several steps."""
        self._check(trainer, pl_module)

    def _check(self, trainer: Trainer, module: LightningModule) -> None:
        step = self._checked_step = trainer.global_step
        # the largest absolute value: one number is read from the device
        finite = bool(get_total_norm([p.detach() for p in module.parameters() if p.numel()], math.inf).isfinite())
        if trainer.strategy.reduce_boolean_decision(finite):  # processes may have signals of their own
            self._finite_step = step
            return
        since = f"after step {step}, and were after step {self._finite_step}" if step else "before the first step"
        words = f"the weights are not finite {since}; checkpoints keep earlier weights"
        if self.stop:
            raise InputError(
                f"{words}. Try a lower learning rate (--model.optimizer.lr; also with --ckpt_path of the last checkpoint), "
                "--trainer.gradient_clip_val 1, --trainer.precision 32-true, or a larger ridge of an exact fit. "
                "--trainer.callbacks+ FiniteWeights --trainer.callbacks.stop false goes on anyway"
            )
        if not self._warned:
            rank_zero_warn(f"{words}; the fit goes on, as stop is false")
            self._warned = True


class BestAndLast(ModelCheckpoint):
    """Writes ``last.ckpt`` after every epoch, and ``best.ckpt`` where the score improved.

    A fit that ends within an epoch leaves the state after its last step, before the validation that ends it.

    Args:
        monitor: The logged value; with ``None`` the latest checkpoint is the best.
        mode: ``max`` if larger values are better, else ``min``.
    """

    def __init__(self, monitor: str | None, mode: str) -> None:
        super().__init__(
            filename="best", monitor=monitor, mode=mode, enable_version_counter=False, save_on_train_epoch_end=True
        )
        self.last_is_complete = False
        """Whether ``last.ckpt`` has the state to resume from, and is not to be overwritten."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.last_is_complete = False

    def next_step(self, trainer: Trainer) -> None:
        """No step but the last of a fit, which Lightning takes."""

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


def swa_ends_with(trainer: Trainer, epoch: int) -> bool:
    """Whether stochastic weight averaging replaces the weights if training ends in this epoch."""
    return averages_weights(trainer) and trainer.max_epochs in (-1, epoch + 1)


def averages_weights(trainer: Trainer) -> bool:
    """Whether a callback averages the weights of several steps, and replaces the schedule."""
    return any(isinstance(callback, StochasticWeightAveraging) for callback in callbacks_of(trainer))


def callbacks_of(trainer: Trainer) -> list[Callback]:
    """The callbacks of a Trainer, which declares none."""
    found: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return found


@contextmanager
def restoring() -> Iterator[None]:
    """Turns exceptions of Lightning and optimisers about settings, and of restored checkpoints, into :class:`InputError`."""
    try:
        yield
    except InputError:
        raise
    except MisconfigurationException as error:
        epochs = ": raise --trainer.max_epochs, or set it to -1" if "current_epoch" in str(error) else ""
        raise InputError(f"{paragraph(str(error), 400).rstrip('. ')}{epochs}") from error
    except Exception as error:
        frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
        if frames[-1].startswith("torch.optim") and isinstance(error, (ArithmeticError, ValueError)):
            raise InputError(f"the optimiser or its schedule: {paragraph(str(error), 400)}") from error
        if not any(name.endswith("checkpoint_connector") for name in frames):
            raise
        raise InputError(
            f"the checkpoint does not fit the model, or is damaged: {type(error).__name__}, {paragraph(str(error), 400)}. "
            "Name another one, or fit again without --ckpt_path"
        ) from error

"""Checkpoint files of a fit, whose weights are finite, and fits that are resumed from them.

A resumed fit equals the uninterrupted fit bit for bit. Lightning does not save the logged metrics, which callbacks monitor,
nor resume at the start of an epoch: with ``max_steps`` it repeats the end of the epoch in which the checkpoint was written,
without its validation.
"""

from __future__ import annotations

import io
import math
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
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
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch.nn.utils import get_total_norm

from pe_lightning.errors import InputError, paragraph
from pe_lightning.results.checkpoint_files import LAST, read_checkpoint
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import write_atomically
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.optimization import OptimizerSettings

METRICS_KEY = "pe_lightning/logged_metrics"
"""Where a checkpoint holds the metrics that were logged last."""
AVERAGED_KEY = "pe_lightning/weights_are_averages"
"""Whether a checkpoint was written after a callback had replaced the weights by their averages."""
DATA_KEY = "pe_lightning/data"
"""Where a checkpoint holds the fingerprint and the settings of the data."""
OPTIMIZERS_KEY = "pe_lightning/optimizers"
"""Where a checkpoint holds the arguments of the optimisers and their schedulers, from before the first step."""
DATA_SETTINGS = ("fingerprint", "protocol", "samples", "scaling", "axes", "metric")
"""Entries of a description of data that a resumed fit must not change; the fingerprint covers values and trained samples."""
SHOWN_SETTINGS = ("names", "grid", "channels", "sampling")
"""Further entries, for messages: they differ where the fingerprint does, or do not matter."""


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
        write_atomically(path, buffer.getvalue())

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


def describe_data(data: Any) -> dict[str, Any] | None:
    """The entry of a checkpoint about the DataModule of its fit, if that has a ``fingerprint``."""
    if (fingerprint := getattr(data, "fingerprint", None)) is None:
        return None
    described = data.describe() if isinstance(data, SignalDataModule) else {}
    kept = {key: described[key] for key in (*DATA_SETTINGS, *SHOWN_SETTINGS) if key in described}
    return {**kept, "fingerprint": fingerprint}


def refuse_other_data(checkpoint: Mapping[str, Any], data: Any) -> None:
    """Checks that a DataModule has the data of the fit that wrote a checkpoint, if both have a ``fingerprint``."""
    saved, given = checkpoint.get(DATA_KEY), describe_data(data)
    if saved is None or given is None or all(saved.get(key) == given.get(key) for key in DATA_SETTINGS):
        return
    differing = [key for key in (*SHOWN_SETTINGS, *DATA_SETTINGS) if saved.get(key) != given.get(key)]
    words = "; ".join(f"{key} {saved.get(key)}, now {given.get(key)}" for key in differing)
    raise InputError(
        f"the checkpoint is of a fit of other data: {paragraph(words, 600)}. Give the data of that fit; or start a new fit "
        "on this data from its weights, --init in place of --ckpt_path, in Python the callback InitialWeights(PATH)"
    )


class Resumption(Callback):
    """Makes a resumed fit equal the uninterrupted fit, and refuses fits that cannot be resumed.

    Every module of this package adds it to its Trainer, unless the Trainer has one. The arguments of optimiser and scheduler
    may change: the learning rates then follow as if the fit had had the new arguments from its beginning.
    """

    def __init__(self) -> None:
        self._checkpoint: dict[str, Any] = {}
        self._averaged = False
        self._settings = OptimizerSettings()
        self._patience: dict[EarlyStopping, int] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        self._checkpoint = {}
        # loading a checkpoint would set the earlier one
        self._patience = {callback: callback.patience for callback in trainer.early_stopping_callbacks}
        if averages_weights(trainer) and not any(True for _ in pl_module.parameters()):
            raise InputError(
                f"StochasticWeightAveraging copies the model before it is built: call {type(pl_module).__name__}.build_from("
                "data) before Trainer.fit"
            )

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint[METRICS_KEY] = {name: value.detach().cpu() for name, value in trainer.callback_metrics.items()}
        checkpoint[AVERAGED_KEY] = self._averaged
        checkpoint[OPTIMIZERS_KEY] = self._settings.described
        if trainer.is_global_zero:  # which writes it
            checkpoint[DATA_KEY] = describe_data(trainer.datamodule)  # type: ignore[attr-defined]

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == TrainerFn.FITTING:  # a checkpoint is scored on any data
            refuse_other_data(checkpoint, trainer.datamodule)  # type: ignore[attr-defined]
        self._averaged = checkpoint.get(AVERAGED_KEY, False)
        self._checkpoint = {
            "step": checkpoint["global_step"],
            "metrics": checkpoint.get(METRICS_KEY, {}),
            "callbacks": checkpoint.get("callbacks", {}),
            "rates": [[group["lr"] for group in state["param_groups"]] for state in checkpoint.get("optimizer_states", [])],
            "optimizers": checkpoint.get(OPTIMIZERS_KEY, []),
        }

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in trainer.early_stopping_callbacks:
            callback.patience = self._patience.get(callback, callback.patience)
            if callback.stopping_reason is not EarlyStoppingReason.NOT_STOPPED:
                trainer.should_stop = True
                rank_zero_info(
                    f"EarlyStopping has ended this fit: {callback.stopping_reason_message} To train further, leave it out."
                )
        self._settings = OptimizerSettings(trainer)
        saved = self._checkpoint.get("optimizers")
        if saved and not trainer.lr_scheduler_configs and averages_weights(trainer):  # which has replaced the schedule
            for settings, before in zip(self._settings.described, saved, strict=False):
                settings["schedulers"] = before["schedulers"]
        if saved:
            self._settings.check(saved, self._checkpoint["step"], trainer.max_steps)

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
        for callback in callbacks_of(trainer):  # acts at the start of an epoch, which this one has had
            if isinstance(callback, GradientAccumulationScheduler):
                callback.on_train_epoch_start(trainer)
        averages = self._restore_averaging(trainer, pl_module)
        if changes := self._settings.changes(self._checkpoint["optimizers"]):
            self._settings.apply(trainer, averages)
            rank_zero_info(f"Resumed with other arguments of the optimiser: {', '.join(changes)}.")
        self._checkpoint = {}

    def _restore_averaging(self, trainer: Trainer, pl_module: LightningModule) -> bool:
        """Starts the schedule of stochastic weight averaging, and restores the rates; False if nothing is averaged."""
        averages = False
        for callback in callbacks_of(trainer):
            state = self._checkpoint.get("callbacks", {}).get(callback.state_key, {})
            if isinstance(callback, StochasticWeightAveraging) and state.get("scheduler_state") is not None:
                averages = True
                callback.on_train_epoch_start(trainer, pl_module)
                for optimizer, rates in zip(trainer.optimizers, self._checkpoint["rates"], strict=True):
                    for group, rate in zip(optimizer.param_groups, rates, strict=True):
                        group["lr"] = rate
        return averages

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        moving = any(isinstance(callback, WeightAveraging) for callback in callbacks_of(trainer))
        self._averaged = moving or swa_ends_with(trainer, trainer.current_epoch - 1)


def own_callbacks(given: Iterable[Callback]) -> list[Callback]:
    """The callbacks that every fit has, unless they are given."""
    classes = {type(callback) for callback in given}
    return [cls() for cls in (Resumption, FiniteWeights) if cls not in classes]


def close_epoch(trainer: Trainer) -> None:
    """Counts the epoch of a resumed checkpoint as completed if the checkpoint was written after its end."""
    loop = trainer.fit_loop
    epoch: Any = loop.epoch_progress.current
    if not loop.restarting or not trainer.is_last_batch or epoch.processed < epoch.ready:
        return
    if epoch.completed < epoch.processed:
        loop.epoch_progress.increment_completed()
    loop.reset_restart_stage()
    loop.epoch_loop.restarting = False
    loop.epoch_loop.reset_restart_stage()

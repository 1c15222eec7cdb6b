"""Resuming a fit from a checkpoint so that it equals the uninterrupted fit bit for bit.

Lightning saves neither the logged metrics, which callbacks monitor, nor resumes at the start of an epoch: where
``max_steps`` is set, it repeats the end of the epoch in which the checkpoint was written, without its validation.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.errors import InputError

METRICS_KEY = "pe_lightning/logged_metrics"
"""Where a checkpoint holds the metrics that were logged last."""
AVERAGED_KEY = "pe_lightning/weights_are_averages"
"""Whether a checkpoint was written after a callback had replaced the weights by their averages."""


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

"""Resumed fits, which equal uninterrupted fits bit for bit.

Lightning does not save the logged metrics, which callbacks monitor, nor resume at the start of an epoch: with ``max_steps``
it repeats the end of the epoch in which the checkpoint was written, without its validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    EarlyStopping,
    GradientAccumulationScheduler,
    StochasticWeightAveraging,
    WeightAveraging,
)
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.trainer.states import TrainerFn

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.training.checkpoints import FiniteWeights, averages_weights, callbacks_of, swa_ends_with
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


def own_callbacks(trainer: Trainer | None) -> list[Callback]:
    """The callbacks that every fit has, unless its Trainer has them."""
    given = () if trainer is None else tuple(map(type, callbacks_of(trainer)))
    return [cls() for cls in (Resumption, FiniteWeights) if cls not in given]


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

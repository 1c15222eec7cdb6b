"""Optimiser steps between two moments at which anything but the model has something to do.

Lightning's loop takes half a millisecond a step, many times the arithmetic of a small model. The training loader therefore
offers each batch to :class:`UninterruptedSteps` first, and Lightning gets the batch of a step at which a value is logged, a
callback acts, a validation follows, or an epoch or the fit ends. The weights are the same, bit for bit.
"""

from __future__ import annotations

import inspect
import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    DeviceStatsMonitor,
    LearningRateMonitor,
    ModelCheckpoint,
    ProgressBar,
    RichProgressBar,
    Timer,
    TQDMProgressBar,
)
from lightning.pytorch.plugins.precision import DoublePrecision, MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.loaders import TrainLoader
from pe_lightning.training.checkpoints import callbacks_of

MAX_SECONDS = 0.1
"""Seconds after which one process gives the next step to Lightning: for progress bars, timers and requests to stop."""
BATCH_HOOKS = (
    "on_train_batch_start",
    "on_train_batch_end",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)
STEP_METHODS = (
    *BATCH_HOOKS,
    "training_step",
    "backward",
    "optimizer_step",
    "optimizer_zero_grad",
    "on_before_batch_transfer",
)
"""Methods of a module that are not called in these steps, unless they are the methods of the base class."""
SPARSE_HOOKS = [
    getattr(owner, name)
    for owner in (
        DeviceStatsMonitor,
        LearningRateMonitor,
        ModelCheckpoint,
        ProgressBar,
        RichProgressBar,
        Timer,
        TQDMProgressBar,
    )
    for name in BATCH_HOOKS
]
"""Hooks of Lightning's callbacks that do something at logged steps, after an interval, or when the state is shown."""


class UninterruptedSteps:
    """Takes steps of a fit without Lightning's loop, where nothing else has to happen.

    A callback with hooks of batches may define ``next_step(trainer)``. It is called before such steps, and returns the
    number of the step, counted from 1 over the fit, at which the callback's hooks are needed next; ``None``: at no certain
    step. A fit with other callbacks of this kind takes single steps.

    Args:
        module: A module with ``compute_gradients(batch, optimizer)``.
        base: The class whose own methods of steps are known to be covered.
    """

    def __init__(self, module: Any, base: type[LightningModule]) -> None:
        self.module, self.trainer, self.base = module, module.trainer, base
        self._last = 0  # the step that Lightning takes next; 0: not known yet
        self._since = 0.0
        self._given: GridBatch | PointBatch | None = None
        self._moved: GridBatch | PointBatch | None = None

    def attach(self) -> None:
        """Takes steps of the epoch that begins, if that is possible."""
        loader = self.trainer.train_dataloader
        if isinstance(loader, TrainLoader):
            loader.takes = self if self.reason() is None else None

    def reason(self) -> str | None:
        """Why the fit takes single steps by Lightning's loop; ``None``: it need not."""
        trainer, module = self.trainer, self.module
        if not isinstance(trainer.train_dataloader, TrainLoader):
            return "the training loader is not one of pe_lightning's DataModules"
        if trainer.log_every_n_steps == 1:
            return "log_every_n_steps is 1"
        if trainer.accumulate_grad_batches != 1:
            return f"accumulate_grad_batches is {trainer.accumulate_grad_batches}"
        if not isinstance(trainer.profiler, PassThroughProfiler):
            return f"{type(trainer.profiler).__name__} measures each step"
        precision = trainer.precision_plugin
        scaled = isinstance(precision, MixedPrecision) and precision.scaler is not None
        if scaled or type(precision) not in (Precision, DoublePrecision, MixedPrecision):
            return f"precision {trainer.precision} scales the loss or converts the model"
        if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            return f"the strategy is {type(trainer.strategy).__name__}"
        if len(trainer.optimizers) != 1:
            return f"there are {len(trainer.optimizers)} optimisers"
        closure = inspect.signature(type(trainer.optimizers[0]).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            return f"{type(trainer.optimizers[0]).__name__} evaluates the loss several times in a step"
        for owner, base in ((module, self.base), (trainer.datamodule, LightningDataModule)):
            for name in STEP_METHODS:
                if not _is_own(owner, name, base):
                    return f"{type(owner).__name__} defines {name}"
        for callback in callbacks_of(trainer):
            hooks = [name for name in BATCH_HOOKS if not _is_own(callback, name, Callback)]
            if any(_function(callback, name) not in SPARSE_HOOKS for name in hooks) and not hasattr(callback, "next_step"):
                return f"{type(callback).__name__} acts at every step: it has no next_step"
        return None

    def __call__(self, batch: GridBatch | PointBatch) -> bool:
        """Takes the step of a batch, unless Lightning has to: whether the step is taken."""
        step = self.trainer.global_step + 1
        if not self._last:
            self._since, self._last = time.monotonic(), self._plan()
        late = self.trainer.world_size == 1 and time.monotonic() - self._since > MAX_SECONDS
        if step >= self._last or late:
            self._last = 0
            return False
        self._take(batch)
        return True

    def _plan(self) -> int:
        """The next step that Lightning has to take, counted from 1."""
        trainer = self.trainer
        step: int = trainer.global_step
        done, every = trainer.fit_loop.batch_idx + 1, trainer.log_every_n_steps
        if trainer.should_stop:
            return step + 1
        known = [step + trainer.num_training_batches - done]
        if trainer.max_steps >= 0:
            known.append(trainer.max_steps)
        if trainer.val_check_batch != float("inf"):
            past = trainer.fit_loop.total_batch_idx + 1 if trainer.check_val_every_n_epoch is None else done
            known.append(step + _to_multiple(past, trainer.val_check_batch))
        if every:
            known += [step + _to_multiple(n, every) for n in (step, _logged_batches(trainer))]
        for callback in callbacks_of(trainer):
            if isinstance(callback, ModelCheckpoint) and (period := _checkpoint_period(callback)):
                known.append(step + _to_multiple(step, period))
            if hasattr(callback, "next_step") and (needed := callback.next_step(trainer)) is not None:
                known.append(needed)
        return int(min(known))

    def _take(self, batch: GridBatch | PointBatch) -> None:
        trainer, module = self.trainer, self.module
        optimizer: torch.optim.Optimizer = trainer.optimizers[0]
        if batch is not self._given:
            converted = trainer.precision_plugin.convert_input(batch)
            self._given, self._moved = batch, trainer.strategy.batch_to_device(converted, dataloader_idx=0)
        if trainer.strategy.model is module:
            module.compute_gradients(self._moved, optimizer)
            module.on_before_optimizer_step(optimizer)
            if trainer.gradient_clip_val:
                module.configure_gradient_clipping(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)
            optimizer.step()
        else:
            self._take_together(optimizer)
        _count_step(trainer)
        for config in trainer.lr_scheduler_configs:
            is_due = (trainer.fit_loop.batch_idx + 1) % config.frequency == 0
            if config.interval == "step" and not config.reduce_on_plateau and is_due:
                module.lr_scheduler_step(config.scheduler, None)
                _count_scheduler_step(trainer)

    def _take_together(self, optimizer: torch.optim.Optimizer) -> None:
        """A step of several processes, whose wrapper of the module averages the gradients."""
        strategy = self.trainer.strategy

        def closure() -> Any:
            loss = strategy.training_step(self._moved, self.trainer.fit_loop.batch_idx + 1)
            optimizer.zero_grad()
            return strategy.backward(loss, optimizer)

        strategy.optimizer_step(optimizer, closure)


def _to_multiple(count: int, period: float) -> int:
    """How many more make the next multiple of a period."""
    return int(period - count % period)


def _function(owner: object, name: str) -> Any:
    method = getattr(owner, name)
    return getattr(method, "__func__", method)


def _is_own(owner: object, name: str, base: type) -> bool:
    """Whether a method of an object is the method of a base class, or exists in neither."""
    return not hasattr(owner, name) or _function(owner, name) is getattr(base, name, None)


# -- Lightning's counters, which are not public -------------------------------------------------------------------------


def _count_step(trainer: Trainer) -> None:
    """Counts a batch and its optimiser step as Lightning's loop does."""
    loop: Any = trainer.fit_loop
    epoch = loop.epoch_loop
    batches, optimizer = epoch.batch_progress, epoch.automatic_optimization.optim_progress.optimizer
    batches.increment_ready()
    batches.increment_started()
    optimizer.step.increment_ready()
    optimizer.zero_grad.increment_ready()
    optimizer.zero_grad.increment_started()
    optimizer.zero_grad.increment_completed()
    optimizer.step.increment_completed()
    batches.increment_processed()
    batches.increment_completed()
    epoch._batches_that_stepped += 1
    loop._data_fetcher.fetched += 1


def _count_scheduler_step(trainer: Trainer) -> None:
    progress: Any = trainer.fit_loop.epoch_loop.scheduler_progress
    progress.increment_ready()
    progress.increment_completed()


def _logged_batches(trainer: Trainer) -> int:
    """The count by which Lightning's own callbacks find logged steps."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def _checkpoint_period(callback: ModelCheckpoint) -> int:
    """Steps between two checkpoints; 0: none at steps."""
    return callback._every_n_train_steps

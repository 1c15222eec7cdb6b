"""Optimiser steps between two moments at which anything but the model has something to do.

Lightning's loop takes half a millisecond a step, many times the arithmetic of a small model. The training loader therefore
offers each batch to :class:`UninterruptedSteps` first, and Lightning gets the batch of a step at which a value is logged, a
callback acts, a validation follows, or an epoch or the fit ends. The weights are the same, bit for bit.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterator
from operator import attrgetter
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
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from lightning.pytorch.plugins.precision import DoublePrecision, MixedPrecision, Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.loaders import TrainLoader
from pe_lightning.training.checkpoints import callbacks_of
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.sharding import SignalsStrategy

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
OUTSIDE = re.compile(
    r"on_(fit|train|sanity_check|train_epoch)_(start|end)|(on_)?(validation|test|predict|val)_\w+|on_exception"
    r"|on_(load|save)_checkpoint|(load_)?state_dict|prepare_data|setup|teardown|train_dataloader"
    r"|configure_(sharded_model|model|callbacks|optimizers)"
    # functions that a module calls, and that Lightning's loop does not call between two batches
    r"|load_from_checkpoint|from_datasets|optimizers|lr_schedulers|print|log|log_dict|all_gather|forward|manual_backward"
    r"|(un)?toggled?_optimizer|(un)?freeze|to_\w+"
)
"""Public methods of Lightning's classes that are not called between two batches of training; any other one may be."""
HOOKS: dict[type, tuple[type, ...]] = {
    LightningModule: (LightningModule, ModelHooks, DataHooks, CheckpointHooks),
    LightningDataModule: (LightningDataModule, DataHooks, CheckpointHooks),
    Callback: (Callback,),
}
"""The classes whose public methods are the hooks of a class."""
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

    These steps call nothing of Lightning's between two batches, so that everything that takes part has to be of a known
    class with its own methods: a fit with anything else takes single steps, and says why.

    A callback with hooks of batches may define ``next_step(trainer)``, in the class that defines the hooks or below it. It
    is called before such steps, and returns the number of the step, counted from 1 over the fit, at which the callback's
    hooks are needed next; ``None``: at no certain step.

    Args:
        module: A module with ``step_of(batch)``.
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
        if type(trainer.strategy) not in (SingleDeviceStrategy, DDPStrategy, SignalsStrategy):
            return f"the strategy is {type(trainer.strategy).__name__}"
        if len(trainer.optimizers) != 1:
            return f"there are {len(trainer.optimizers)} optimisers"
        optimizer = type(trainer.optimizers[0])
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            return f"{optimizer.__name__} evaluates the loss several times in a step"
        if not optimizer.__module__.startswith("torch.optim."):
            return f"{optimizer.__name__} is not an optimiser of PyTorch, and may use a closure or its own zero_grad"
        if any(c.reduce_on_plateau and c.interval == "step" for c in trainer.lr_scheduler_configs):
            return "ReduceLROnPlateau reads a value at every step"
        for owner, base, own in (
            (module, LightningModule, self.base),
            (trainer.datamodule, LightningDataModule, SignalDataModule),
        ):
            if owner is not None and (name := next(_changed_hooks(owner, base, own), None)):
                return f"{type(owner).__name__} defines {name}"
        for callback in callbacks_of(trainer):
            for name in _changed_hooks(callback, Callback, Callback):
                if _function(callback, name) not in SPARSE_HOOKS and not _tells_next_step(callback, name):
                    return f"{type(callback).__name__} acts at every step: it has no next_step"
            timed = isinstance(callback, Timer) or getattr(callback, "_train_time_interval", None)
            if timed and trainer.world_size > 1:
                return f"{type(callback).__name__} measures time, on which several processes agree at every step"
        if (missing := _missing_counter(trainer)) is not None:
            return f"this version of Lightning has no {missing}"
        return None

    def __call__(self, batch: GridBatch | PointBatch) -> bool:
        """Takes the step of a batch, unless Lightning has to: whether the step is taken."""
        step = self.trainer.global_step + 1
        if self.trainer.accumulate_grad_batches != 1:  # a callback may change it within the epoch
            self._last = 0
            return False
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
            # the second is the count by which Lightning's own callbacks find logged steps
            known += [step + _to_multiple(n, every) for n in (step, trainer.fit_loop.epoch_loop._batches_that_stepped)]
        for callback in callbacks_of(trainer):
            if isinstance(callback, ModelCheckpoint) and (period := callback._every_n_train_steps):
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
            for parameter in (one for group in optimizer.param_groups for one in group["params"]):
                parameter.grad = None  # Optimizer.zero_grad measures itself for the profiler, which takes longer
            module.step_of(self._moved).set_gradients(self._moved)
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
                trainer.fit_loop.epoch_loop.scheduler_progress.increment_ready()
                trainer.fit_loop.epoch_loop.scheduler_progress.increment_completed()

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


def _changed_hooks(owner: object, base: type, own: type) -> Iterator[str]:
    """The hooks between two batches that an object defines itself: whose method is not that of its known class."""
    for name in dict.fromkeys(name for cls in HOOKS[base] for name in vars(cls)):
        if name.startswith("_") or OUTSIDE.fullmatch(name) or not callable(getattr(base, name, None)):
            continue
        if _function(owner, name) is not _function(own if hasattr(own, name) else base, name):
            yield name


def _tells_next_step(callback: Callback, hook: str) -> bool:
    """Whether ``next_step`` is defined where the hook is, or below: a subclass that changes the hook says when it acts."""
    if hook in vars(callback) or not hasattr(callback, "next_step"):
        return False
    defines = {name: next(cls for cls in type(callback).__mro__ if name in vars(cls)) for name in (hook, "next_step")}
    return issubclass(defines["next_step"], defines[hook])


# -- Lightning's counters, which are not public -------------------------------------------------------------------------

COUNTERS = (
    "epoch_loop.batch_progress",
    "epoch_loop.automatic_optimization.optim_progress.optimizer",
    "epoch_loop.scheduler_progress",
    "epoch_loop._batches_that_stepped",
    "_data_fetcher",
)


def _missing_counter(trainer: Trainer) -> str | None:
    """The first counter that the loop of this version of Lightning does not have."""
    for name in COUNTERS:
        try:
            attrgetter(name)(trainer.fit_loop)
        except AttributeError:
            return f"fit_loop.{name}"
    checkpoints = [callback for callback in callbacks_of(trainer) if isinstance(callback, ModelCheckpoint)]
    missing = any(not hasattr(callback, "_every_n_train_steps") for callback in checkpoints)
    return "ModelCheckpoint._every_n_train_steps" if missing else None


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

"""Several optimiser steps on one batch of the Trainer, whose work around a batch then counts once for all of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.loaders import FullLoader
from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["check_resumed", "check_steps_per_batch", "check_trainer", "step_plateau", "steps_at_once", "take_steps"]


def check_steps_per_batch(steps: int) -> int:
    """``steps`` if it is an integer >= 1, else an :class:`InputError`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"steps_per_batch must be an integer >= 1, got {steps!r}; 10 makes a step of Lightning cheap")
    return steps


def check_trainer(trainer: Trainer) -> None:
    """Refuses settings that would change what several steps mean.

    Raises:
        InputError: For batches that differ, accumulated gradients or scaled losses.
    """
    data = getattr(trainer, "datamodule", None)
    if isinstance(data, SignalDataModule) and data.batching.kind != "full":
        raise InputError(
            f"steps_per_batch > 1 takes steps on the same samples; set --data.batching.kind full (now {data.batching.kind})"
        )
    if trainer.accumulate_grad_batches != 1:
        raise InputError("steps_per_batch > 1 takes steps, accumulate_grad_batches saves them: set one of the two to 1")
    if trainer.precision == "16-mixed":
        raise InputError("steps_per_batch > 1 does not scale losses; use precision 'bf16-mixed' or '32-true'")


def check_resumed(steps: int, saved: Mapping[str, Any]) -> None:
    """Refuses to resume with several steps a fit that took one per batch, or the other way round.

    Lightning counts the two kinds of steps apart, so that the count would begin anew.

    Args:
        steps: ``steps_per_batch`` of the fit that begins.
        saved: Hyper-parameters of the checkpoint.

    Raises:
        InputError: If one of the two is 1 and the other is not.
    """
    before = saved.get("steps_per_batch", 1)
    if (steps == 1) != (before == 1):
        raise InputError(f"this checkpoint is of a fit with steps_per_batch={before}; resume it with that, not with {steps}")


def take_steps(module: CoordinateModule, batch: Any, wanted: int) -> Tensor:
    """Steps by Lightning's manual optimisation: the weights are those of one step per batch, bit for bit.

    ``trainer.global_step`` counts every one, schedulers follow it, and gradients are clipped as the Trainer is told to. A
    batch ends early where something is logged and at ``max_steps``, and at multiples of ``wanted``, also after a
    resumption.

    Args:
        module: Whose ``training_loss`` is minimised.
        batch: All samples; each step sees it.
        wanted: Steps to take.

    Returns:
        The loss before the last step, ``()``.

    Raises:
        InputError: If the next batch would be another one.
    """
    trainer = module.trainer
    if not isinstance(trainer.train_dataloader, FullLoader):
        raise InputError(
            "steps_per_batch > 1 takes steps on the same samples; set --data.batching.kind full, or leave it out"
        )
    optimizer = module.optimizers()
    assert isinstance(optimizer, LightningOptimizer)
    schedulers = [c.scheduler for c in trainer.lr_scheduler_configs if c.interval == "step" and not c.reduce_on_plateau]
    # an optimiser that can do without a closure sees no loss, which then need not be computed
    argument = inspect.signature(optimizer.optimizer.step).parameters.get("closure")
    asks = argument is not None and argument.default is argument.empty
    latest: list[Tensor] = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = module.training_loss(batch, seen=asks or last)
        module.manual_backward(loss)
        latest[:] = [loss.detach()]
        return loss

    count = steps_at_once(trainer, wanted)
    for number in range(count):
        last = number == count - 1
        optimizer.step(closure)
        for scheduler in schedulers:
            module.lr_scheduler_step(scheduler, None)
    return latest[0]


def steps_at_once(trainer: Trainer, wanted: int) -> int:
    """How many steps to take before Lightning looks again: up to a multiple of ``wanted``, a logged step or the end."""
    step = trainer.global_step
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    ends = [wanted - step % wanted]
    if every > 0:
        ends.append(every - step % every)
    if trainer.max_steps >= 0:
        ends.append(trainer.max_steps - step)
    return max(1, min(ends))


def step_plateau(module: CoordinateModule) -> None:
    """Tells ``ReduceLROnPlateau`` the value that it waits for; Lightning leaves that to who takes steps by hand.

    Raises:
        InputError: If nothing logged the value.
    """
    trainer = module.trainer
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau and (trainer.current_epoch + 1) % config.frequency == 0:
            if config.monitor not in trainer.callback_metrics:
                found = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
                raise InputError(f"ReduceLROnPlateau waits for {config.monitor!r}, which is not logged; there is: {found}")
            module.lr_scheduler_step(config.scheduler, trainer.callback_metrics[config.monitor])

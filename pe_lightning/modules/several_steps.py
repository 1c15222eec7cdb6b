"""Several optimiser steps on one batch of the Trainer, whose work around a step then counts once for all of them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from pe_lightning.data.loaders import FullLoader
from pe_lightning.errors import InputError
from pe_lightning.modules.base import CoordinateModule

__all__ = ["SeveralSteps", "check_steps_per_batch", "steps_at_once"]


class SeveralSteps(CoordinateModule):
    """A module that can take ``steps_per_batch`` optimiser steps on each batch, if the batch is always the same one.

    The last step of a batch is Lightning's; those before it are taken here. Each is counted in ``trainer.global_step``, on
    the loggers' axis and by the learning-rate scheduler, and gradients are clipped as Lightning does. A batch ends early
    where something is logged and at ``max_steps``, and at multiples of ``steps_per_batch``: the weights are those of one
    step per batch, bit for bit, also after a resumption. Hooks of callbacks run once per batch, and epochs, validation and
    checkpoint intervals count batches.
    """

    steps_per_batch: int = 1

    def on_fit_start(self) -> None:
        """Refuses what would change its meaning.

        Raises:
            InputError: If several steps are asked for with accumulated gradients or scaled losses.
        """
        super().on_fit_start()
        if self.steps_per_batch == 1:
            return
        if self.trainer.accumulate_grad_batches != 1:
            raise InputError("steps_per_batch > 1 takes steps, accumulate_grad_batches saves them: set one of the two to 1")
        if self.trainer.precision == "16-mixed":
            raise InputError("steps_per_batch > 1 does not scale losses; use precision 'bf16-mixed' or '32-true'")

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Takes all steps of this batch but the last.

        Raises:
            InputError: If the next batch would be another one.
        """
        if self.steps_per_batch == 1:
            return
        trainer: Trainer = self.trainer
        if not isinstance(trainer.train_dataloader, FullLoader):
            raise InputError("steps_per_batch > 1 takes steps on the same samples; set --data.batch full, or leave it out")
        (optimizer,) = trainer.optimizers
        loop = trainer.fit_loop.epoch_loop
        counter = loop.automatic_optimization.optim_progress.optimizer.step
        schedulers = [c.scheduler for c in trainer.lr_scheduler_configs if c.interval == "step" and not c.reduce_on_plateau]

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = trainer.strategy.training_step(batch, batch_idx)
            assert isinstance(loss, Tensor)
            loss.backward()  # type: ignore[no-untyped-call]
            self.configure_gradient_clipping(optimizer, trainer.gradient_clip_val, trainer.gradient_clip_algorithm)
            return loss

        # an optimiser that can do without a closure sees no loss, which then need not be computed
        argument = inspect.signature(optimizer.step).parameters.get("closure")
        asks = argument is not None and argument.default is argument.empty
        with torch.enable_grad():
            for _ in range(steps_at_once(trainer, self.steps_per_batch) - 1):
                counter.increment_ready()
                if asks:
                    optimizer.step(closure)  # type: ignore[arg-type]
                else:
                    self.loss_is_seen = False
                    try:
                        closure()
                    finally:
                        self.loss_is_seen = True
                    optimizer.step()
                counter.increment_completed()
                loop._batches_that_stepped += 1  # the loggers' axis
                for scheduler in schedulers:
                    self.lr_scheduler_step(scheduler, None)


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


def check_steps_per_batch(steps: int) -> int:
    """``steps`` if it is an integer >= 1, else an :class:`InputError`."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError(f"steps_per_batch must be an integer >= 1, got {steps!r}; 10 makes a step of Lightning cheap")
    return steps

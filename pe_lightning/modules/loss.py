"""The training loss of every module, and how it is shared by processes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.loaders import FullLoader
from pe_lightning.metrics import psnr
from pe_lightning.modules.scoring import log_step, over_signals

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["training_loss"]


def training_loss(module: CoordinateModule, batch: GridBatch | PointBatch, seen: bool = True) -> Tensor:
    """The sum over signals of the mean squared error, ``()``, logged when it is time to.

    Args:
        module: Under a Trainer that fits it.
        batch: The training samples.
        seen: Whether anything looks at the loss, and not only at its gradient.
    """
    trainer, loader = module.trainer, module.trainer.train_dataloader
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    logged = seen and every > 0 and (trainer.global_step + 1) % every == 0  # 0: never
    given, repeated = batch, loader.batch if isinstance(loader, FullLoader) else None
    if repeated is not None:  # Lightning makes it a new one, every step, where it changes its dtype
        batch = module.cached("batch", (repeated,), lambda: given)
    # a line search compares losses of nearby weights
    compares = isinstance(trainer.optimizers[0], torch.optim.LBFGS)
    squared = module.squared_errors(batch, repeated is not None and not compares, logged if seen else None)
    own = math.prod(batch.values.shape[1:])
    if seen:
        module.last_train_errors = squared.detach(), own
    shared = batch.total is not None and module.own is None
    count = own if batch.total is None else batch.total * batch.values.shape[-1]
    if logged:
        together = squared.detach().clone()  # a reduction writes into what it is given
        if shared:
            together = trainer.strategy.reduce(together, reduce_op="sum")
        scores = over_signals(module, psnr(together, torch.full_like(together, count)))
        loss = over_signals(module, together / count)
        log_step(module, {"train/loss": loss, "train/psnr": scores / module.require_info().num_signals})
    loss = squared.sum() / count
    # processes average their gradients, and each has its share of the sum
    return loss * trainer.world_size if shared else loss

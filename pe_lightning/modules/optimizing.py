"""The optimiser and the learning-rate scheduler, as Lightning takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch.optim.lr_scheduler import ReduceLROnPlateau

from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["make_optimizer"]


def make_optimizer(module: CoordinateModule) -> OptimizerLRScheduler:
    """The optimiser over all parameters, and the scheduler if there is one.

    Raises:
        InputError: If ``ReduceLROnPlateau`` waits for the PSNR to fall.
    """
    optimizer = module.optimizer(module.parameters())
    if module.lr_scheduler is None:
        return optimizer
    scheduler = module.lr_scheduler(optimizer)
    if not isinstance(scheduler, ReduceLROnPlateau):
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
    monitor = getattr(scheduler, "monitor", "val/psnr")
    if "psnr" in monitor and scheduler.mode != "max":
        raise InputError(f"ReduceLROnPlateau: {monitor} grows as the fit improves; set mode='max'")
    every = module.trainer.check_val_every_n_epoch or 1
    plateau = {"scheduler": scheduler, "monitor": monitor, "interval": "epoch", "frequency": every}
    return {"optimizer": optimizer, "lr_scheduler": plateau}  # type: ignore[return-value]

"""Building a module for the data of the Trainer that runs it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from pe_lightning.data.batches import SignalInfo
from pe_lightning.errors import InputError
from pe_lightning.modules.apart import hold_own
from pe_lightning.modules.several_steps import check_trainer

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["build_for_fit", "is_fitted", "no_inference"]

COORDINATES_LOST = ("16-true", "bf16-true")
"""Precisions in which Lightning would round the coordinates themselves, to 11 or 8 bits."""


def build_for_fit(module: CoordinateModule) -> None:
    """Builds from the Trainer's DataModule; without a Trainer the shape comes from the checkpoint.

    Raises:
        InputError: If there is no shape to build for, the module was built for another, the Trainer's precision would
            round the coordinates, or its settings do not go with several steps per batch.
    """
    trainer = _trainer(module)
    if trainer is None:
        return
    if trainer.precision in COORDINATES_LOST:
        raise InputError(
            f"precision {trainer.precision!r} would round the coordinates, so that neighbouring samples fall "
            f"together; use {trainer.precision.replace('true', 'mixed')!r} or '32-true'"
        )
    fitted = is_fitted(module)
    if fitted and module.steps_per_batch > 1:
        check_trainer(trainer)
    data = getattr(trainer, "datamodule", None)
    info = getattr(data, "info", None)
    if module.info is not None:
        if isinstance(info, SignalInfo):
            module.build(info)  # refuses signals of another shape
    elif info is None and not fitted:
        return  # the checkpoint, read next, knows the shape
    elif not isinstance(info, SignalInfo):
        raise InputError(
            f"{type(module).__name__} needs the shape of the signals: pass a DataModule of pe_lightning.data, such "
            "as TensorDataModule(values), to the Trainer"
        )
    else:
        module.build(info)
    if not module.calibrated and isinstance(info, SignalInfo):
        # whoever built the module: scales and means come from the data, once
        module.calibrate(data.calibration_batch())  # type: ignore[union-attr]
        module.calibrated = True
    if fitted:
        hold_own(module, trainer.strategy)


def is_fitted(module: LightningModule) -> bool:
    """Whether a Trainer has the module to fit it, and not to test it or for nothing."""
    trainer = _trainer(module)
    return trainer is not None and trainer.state.fn == TrainerFn.FITTING


def no_inference() -> contextlib.AbstractContextManager[None]:
    """Parameters made while Lightning is in inference mode could not be trained later."""
    return torch.inference_mode(False)


def _trainer(module: LightningModule) -> Trainer | None:
    try:
        return module.trainer
    except RuntimeError:  # Lightning's way to say that there is none
        return None

"""What a callback finds around it: the run directory, the data, the loggers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lightning.pytorch import LightningModule, Trainer

from pe_lightning.callbacks.recorder import RunRecorder, data_of
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError
from pe_lightning.modules import CoordinateModule

__all__ = ["log_values", "require_module", "require_recorder", "require_signals", "run_dir_of"]


def require_module(owner: str, module: LightningModule) -> CoordinateModule:
    """The module, if it is one of ours.

    Raises:
        InputError: If it is another.
    """
    if not isinstance(module, CoordinateModule):
        raise InputError(f"{owner} is for the modules of pe_lightning, got a {type(module).__name__}")
    return module


def require_signals(owner: str, trainer: Trainer) -> SignalDataModule:
    """The Trainer's DataModule, if it is one of ours.

    Raises:
        InputError: If it is another, or there is none.
    """
    data = data_of(trainer)
    if data is None:
        raise InputError(f"{owner} needs a DataModule of pe_lightning.data, such as TensorDataModule(values)")
    return data


def require_recorder(owner: str, trainer: Trainer) -> None:
    """Raises :class:`InputError` if nothing gives the run a directory."""
    if not any(isinstance(callback, RunRecorder) for callback in trainer.callbacks):  # type: ignore[attr-defined]
        raise InputError(f"{owner} writes into the run directory: give the Trainer callbacks=[..., RunRecorder()] too")


def run_dir_of(trainer: Trainer) -> Path | None:
    """The run directory; ``None`` without a :class:`RunRecorder`, and in a ``fast_dev_run``, which leaves nothing."""
    recorders = [callback for callback in trainer.callbacks if isinstance(callback, RunRecorder)]  # type: ignore[attr-defined]
    return recorders[0].run_dir if recorders else None


def log_values(trainer: Trainer, values: Mapping[str, float]) -> None:
    """Gives numbers to all loggers at once, as of the current step.

    ``LightningModule.log`` would wait for a step that is a multiple of ``log_every_n_steps``, and drop the others.
    """
    for logger in trainer.loggers:
        logger.log_metrics(dict(values), trainer.global_step)

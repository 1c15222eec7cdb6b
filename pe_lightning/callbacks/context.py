"""What a callback expects of a module, of the data and of other callbacks, and an error where it is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.modules import CoordinateModule

__all__ = [
    "Describes",
    "Reporting",
    "check_monitors",
    "data_of",
    "info_of",
    "log_values",
    "logged_by",
    "metric_of",
    "reports",
    "require_coordinates",
    "require_described",
    "require_signals",
]


@runtime_checkable
class Describes(Protocol):
    """A LightningModule that can be recorded.

    After a test it also has ``scores``, a dictionary of values per signal ``(S,)`` by name, such as ``test/psnr`` and
    ``train/psnr``. If its ``test_step`` returns a dictionary with ``prediction``, that becomes the run's reconstructions.
    """

    monitor: str
    """The logged value by which fits are compared: ``val/<metric>``."""
    monitor_mode: Literal["max", "min"]

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: at least ``model``, ``num_params`` and ``encoder`` (with ``name``, or None)."""
        ...


@runtime_checkable
class Reporting(Protocol):
    """A callback that adds to ``metrics.json``."""

    def report(self) -> dict[str, Any]:
        """Keys and plain values: no tensors, and ``None`` for what is not finite.

        Nothing before a fit. What concerns all processes was exchanged during the fit: one process may ask alone.
        """
        ...


def reports(trainer: Trainer) -> dict[str, Any]:
    """The reports of all callbacks of a Trainer, in their order."""
    found: dict[str, Any] = {}
    callbacks: list[object] = list(trainer.callbacks)  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Reporting):
            found |= callback.report()
    return found


def metric_of(module: Describes) -> str:
    """The name of the metric that a module is compared by: that of ``val/psnr`` is ``psnr``."""
    return module.monitor.rpartition("/")[2]


def logged_by(module: Describes) -> dict[str, str]:
    """What our modules log during a fit, and in which direction it improves."""
    return {module.monitor: module.monitor_mode, f"train/{metric_of(module)}": module.monitor_mode, "train/loss": "min"}


def require_described(owner: str, module: LightningModule) -> Describes:
    """The module, if it describes itself.

    Raises:
        InputError: If it does not.
    """
    if not isinstance(module, Describes):
        raise InputError(
            f"{owner} records modules that describe themselves; {type(module).__name__} needs describe() -> dict with "
            "'model', 'num_params' and 'encoder', the attributes monitor ('val/<metric>') and monitor_mode ('max' or "
            "'min'), and after a test scores ('test/<metric>' -> values per signal)"
        )
    return module


def require_coordinates(owner: str, module: LightningModule) -> CoordinateModule:
    """The module, if it is one of ours that maps coordinates to signals.

    Raises:
        InputError: If it is another.
    """
    if not isinstance(module, CoordinateModule):
        raise InputError(f"{owner} is for the coordinate networks of pe_lightning, got a {type(module).__name__}")
    return module


def info_of(module: LightningModule) -> SignalInfo | None:
    """The shape of the signals that a module was built for, if it has one."""
    info = getattr(module, "info", None)
    return info if isinstance(info, SignalInfo) else None


def data_of(trainer: Trainer) -> SignalDataModule | None:
    """The Trainer's DataModule, if it is one of ours."""
    data = getattr(trainer, "datamodule", None)
    return data if isinstance(data, SignalDataModule) else None


def require_signals(owner: str, trainer: Trainer) -> SignalDataModule:
    """The Trainer's DataModule, if it is one of ours.

    Raises:
        InputError: If it is another, or there is none.
    """
    data = data_of(trainer)
    if data is None:
        raise InputError(f"{owner} needs a DataModule of pe_lightning.data, such as TensorDataModule(values)")
    return data


def log_values(trainer: Trainer, values: Mapping[str, float]) -> None:
    """Gives numbers to all loggers at once, as of the current step.

    ``LightningModule.log`` would wait for a step that is a multiple of ``log_every_n_steps``, and drop the others.
    """
    for logger in trainer.loggers:
        logger.log_metrics(dict(values), trainer.global_step)


def check_monitors(callbacks: Iterable[object], logged: Mapping[str, str], held_out: bool) -> None:
    """Refuses an ``EarlyStopping`` or ``ModelCheckpoint`` that would wait for what does not come, or for the worse.

    Args:
        callbacks: The callbacks of a Trainer.
        logged: What the module logs, and in which direction it improves (see :func:`logged_by`).
        held_out: Whether samples are held out, so that there is a validation.

    Raises:
        InputError: If a callback monitors something else, or in the other direction.
    """
    known = [name for name in logged if held_out or not name.startswith("val/")]
    for callback in callbacks:
        if not isinstance(callback, (EarlyStopping, ModelCheckpoint)) or callback.monitor is None:
            continue
        owner, monitor = type(callback).__name__, callback.monitor
        if monitor in logged and monitor not in known:
            raise InputError(
                f"{owner}: there is no {monitor}, as no sample is held out (protocol none); monitor {known[0]!r}, or hold "
                "samples out"
            )
        if monitor not in known:
            near = did_you_mean(monitor, known) or "."
            raise InputError(f"{owner}: nothing logs {monitor!r}{near} There are: {', '.join(known)}")
        if callback.mode != (best := logged[monitor]):
            grows = "grows" if best == "max" else "falls"
            raise InputError(f"{owner}: {monitor} {grows} as the fit improves; set mode: {best} (now: {callback.mode})")

"""Shared by callbacks: the clock of a fit, and checks of the module and the data."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.training.base import datamodule_of
from pe_lightning.training.datamodule import SignalDataModule

_MOVED = {"pe_lightning.training.resumption": "pe_lightning.training.checkpoints.Resumption is the path of Resumption now"}
callbacks: Registry[Callback] = Registry("callback", Callback, "pe_lightning.callbacks", removed=_MOVED)
"""The names that ``--trainer.callbacks+`` accepts, besides Lightning's callbacks."""


def data_of(trainer: Trainer) -> SignalDataModule | None:
    """The Trainer's DataModule if it is a :class:`SignalDataModule`, else ``None``."""
    return datamodule_of(trainer, SignalDataModule)


def check_monitors(callbacks: Iterable[object], logged: Mapping[str, str], held_out: bool) -> None:
    """Refuses an ``EarlyStopping`` or ``ModelCheckpoint`` whose value is not ``logged`` (``max`` or ``min`` by name).

    Without ``held_out`` samples there is no validation, and no value of ``val/``.
    """
    known = {name: mode for name, mode in logged.items() if held_out or not name.startswith("val/")}
    for callback in callbacks:
        if not isinstance(callback, (EarlyStopping, ModelCheckpoint)) or callback.monitor is None:
            continue
        if known.get(callback.monitor) != callback.mode:
            allowed = ", ".join(f"{name} (mode: {mode})" for name, mode in known.items())
            reason = "" if held_out else "; no sample is held out (protocol none), so there is no validation"
            raise InputError(
                f"{type(callback).__name__} cannot monitor {callback.monitor} with mode: {callback.mode}. "
                f"There are: {allowed}{reason}"
            )


def refuse_lost_results(trainer: Trainer) -> None:
    """Refuses strategies whose processes end with the fit and return its weights alone, such as ``ddp_spawn``."""
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
        raise InputError(
            "the processes of this strategy keep the results of a fit: set --trainer.strategy ddp, and run a script"
        )


class TrainingClock:
    """Seconds of training; validation and measuring callbacks are excluded. One clock per Trainer."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    @classmethod
    def of(cls, trainer: Trainer) -> TrainingClock:
        return _CLOCKS.setdefault(trainer, cls())

    def start(self, seconds: float = 0.0) -> None:
        """Starts with the seconds of the resumed fit, the largest that any callback knows."""
        if self._since is None or seconds > self._before:
            self._before, self._since = seconds, time.perf_counter()

    def pause(self, device: torch.device) -> None:
        """Waits until the device has finished its work, then stops."""
        _wait(device)
        self._before, self._since = self.seconds, None

    def resume(self) -> None:
        if self._since is None:
            self._since = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)

    @contextmanager
    def paused(self, device: torch.device) -> Iterator[None]:
        """Stops the clock inside the context, if it runs."""
        ran = self._since is not None
        self.pause(device)
        try:
            yield
        finally:
            _wait(device)
            if ran:
                self.resume()


_CLOCKS: WeakKeyDictionary[Trainer, TrainingClock] = WeakKeyDictionary()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

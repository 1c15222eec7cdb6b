"""The clock of a fit, which stands still while something other than training goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.pytorch import Trainer

__all__ = ["TrainingClock", "clocks_paused"]


class TrainingClock:
    """Seconds of training. Whoever stops it has waited for the device: what a GPU was still given belongs to training."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def start(self, seconds: float = 0.0) -> None:
        """Runs, from a number of seconds on: those of the fit that is resumed."""
        self._before, self._since = seconds, time.perf_counter()

    def pause(self) -> bool:
        """Stands still; returns whether it ran."""
        ran = self._since is not None
        self._before, self._since = self.seconds, None
        return ran

    def resume(self) -> None:
        """Runs on; a clock that runs is left alone."""
        if self._since is None:
            self._since = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)


@contextmanager
def clocks_paused(trainer: Trainer) -> Iterator[None]:
    """Stops the clocks of all callbacks that have one under ``clock``, so that looking at a fit does not lengthen it."""
    callbacks: list[object] = list(trainer.callbacks)  # type: ignore[attr-defined]
    found = [getattr(callback, "clock", None) for callback in callbacks]
    clocks = [clock for clock in found if isinstance(clock, TrainingClock)]
    device = trainer.strategy.root_device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    stopped = [clock for clock in clocks if clock.pause()]
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        for clock in stopped:
            clock.resume()

"""Where the fits of a sweep run; which, and what becomes of them, is the queue's business."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Protocol, TypeAlias

from pe_lightning.experiments.sweep.attempts import Job, Outcome, attempt
from pe_lightning.experiments.sweep.fits import Fits

__all__ = ["Launcher", "Process", "Queue", "Results"]

Results: TypeAlias = Generator[tuple[Job, Outcome], None, None]


class Queue(Protocol):
    """The fits that are still to be run, as a launcher sees them."""

    def take(self) -> Job | None:
        """The next fit, which is recorded as running from now on; ``None`` if no more are to be started."""

    def left(self) -> int:
        """How many fits :meth:`take` still gives: none after an interrupt."""

    def warn(self, job: Job, text: str) -> None:
        """Shows a warning of a fit."""

    def say(self, text: str) -> None:
        """Shows a notice of the launcher."""


class Launcher(Protocol):
    """Takes fits from a queue, as many at a time as it can run, and gives each back with its outcome."""

    def run(self, queue: Queue) -> Results:
        """Runs until nothing is left. Closing the generator, or an exception in it, ends all fits at once."""


class Process:
    """One fit after the other in this process.

    Args:
        fits: Runs them.
    """

    def __init__(self, fits: Fits) -> None:
        self.fits = fits

    def run(self, queue: Queue) -> Results:
        """Runs until nothing is left."""
        while (job := queue.take()) is not None:
            yield job, attempt(self.fits, job, partial(queue.warn, job))

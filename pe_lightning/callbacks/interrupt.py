"""Ctrl-C ends a fit as its last step would: with a validation, a checkpoint, scores and files."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.callbacks.timing import Schedule

__all__ = ["GracefulStop"]

CHECK_EVERY = 50
"""Steps after which several processes agree on whether to stop; one process checks after every step."""


class GracefulStop(Callback):
    """Stops a fit after the current step when the user interrupts it; a second interrupt ends it at once.

    Outside the training loop an interrupt does what it always does.

    Attributes:
        stopped: Whether the last fit was stopped.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._asked = False
        self._schedule = Schedule("GracefulStop", CHECK_EVERY)
        self._before: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listens, if this is the main thread, which alone may."""
        self.stopped = self._asked = False
        self._schedule.start(trainer.global_step)
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, signum: int, frame: FrameType | None) -> None:
        self._asked = True
        signal.signal(signal.SIGINT, self._before)
        rank_zero_info("\nStopping after this step; results so far are kept. Interrupt again to stop at once.")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stops if asked to; several processes do it at the same step."""
        asked = self._asked
        if trainer.world_size > 1:
            if not self._schedule.due(trainer.global_step):
                return
            asked = trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked:
            self.stopped = trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops listening."""
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stops listening."""
        self._restore()

    def _restore(self) -> None:
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)
        self._before = None

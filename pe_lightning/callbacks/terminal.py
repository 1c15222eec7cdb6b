"""What a fit does at a terminal: its progress bar, and ending early at Ctrl-C."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.utilities import rank_zero_info
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pe_lightning.metrics import unit_of
from pe_lightning.modules import CoordinateModule

__all__ = ["GracefulStop", "PSNRProgressBar"]

CHECK_EVERY = 50
"""Steps after which several processes agree on whether to stop; one process checks after every step."""


class GracefulStop(Callback):
    """Stops a fit after the current step when the user interrupts it; a second interrupt ends it at once.

    The fit ends as its last step would: with a validation, a checkpoint, scores and files.

    Attributes:
        stopped: Whether the last fit was stopped.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._asked = False
        self._before: Any = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listens, if this is the main thread, which alone may."""
        self.stopped = self._asked = False
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
            if trainer.global_step % CHECK_EVERY:
                return
            asked = trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked:
            self.stopped = trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops listening."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        self._before = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stops listening."""
        self.on_train_end(trainer, pl_module)


class PSNRProgressBar(ProgressBar):
    """A rich progress bar over the steps of a fit: train score of the latest step, held-out score of the last validation.

    Scores are read from the device only when the bar is redrawn, so that steps do not wait for it.

    Args:
        refresh_every: Steps between two updates of the bar.
    """

    def __init__(self, refresh_every: int = 20) -> None:
        super().__init__()
        self._refresh_every = refresh_every
        self._enabled = True
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def enable(self) -> None:
        """Shows the bar; on all processes but the first Lightning disables it."""
        self._enabled = True

    def disable(self) -> None:
        """Hides the bar."""
        self._enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Prints above the bar."""
        console = self._progress.console if self._progress is not None else Console()
        console.print(*args, **kwargs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the bar at the step the fit starts from."""
        super().on_train_start(trainer, pl_module)
        if not self._enabled:
            return
        step, total = trainer.global_step, trainer.estimated_stepping_batches
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            refresh_per_second=5,
            transient=True,  # the table that follows has the scores of the last step
        )
        steps = None if total == float("inf") else int(total)
        self._task = self._progress.add_task("fit", total=steps, completed=step, score="")
        self._progress.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar every few steps."""
        if trainer.global_step % self._refresh_every == 0:
            self._update(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Takes the bar away."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Gives the terminal back."""
        self._stop()

    def _update(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._progress is None:
            return
        monitor, logged = getattr(pl_module, "monitor", ""), trainer.callback_metrics
        metric = monitor.rpartition("/")[2]
        # under several processes the latest logged score, which is that of all: the latest batch is this one's share
        now = logged.get(f"train/{metric}")
        if trainer.world_size == 1 and isinstance(pl_module, CoordinateModule):
            now = pl_module.last_train_psnr()
        scores = {"train": now, "held out": logged.get(monitor)}
        shown = [f"{k} {v.item():.2f} {unit_of(metric)}".rstrip() for k, v in scores.items() if isinstance(v, torch.Tensor)]
        self._progress.update(self._task, completed=trainer.global_step, score=", ".join(shown))

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

"""One bar over all optimiser steps, with the current scores."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pe_lightning.callbacks.timing import Schedule
from pe_lightning.metrics import unit_of
from pe_lightning.modules import CoordinateModule

__all__ = ["PSNRProgressBar"]


class PSNRProgressBar(ProgressBar):
    """A rich progress bar over the steps of a fit: train PSNR of the latest step, held-out PSNR of the last validation.

    The score is that of the module's metric. It is read from the device only when the bar is redrawn, so a step is never
    made to wait for it.

    Args:
        refresh_every: Steps between two updates of the bar.
    """

    def __init__(self, refresh_every: int = 20) -> None:
        super().__init__()
        self._schedule = Schedule("PSNRProgressBar", refresh_every)
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
        self._schedule.start(trainer.global_step)
        total = trainer.estimated_stepping_batches
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            refresh_per_second=5,
        )
        self._task = self._progress.add_task(
            "fit", total=None if total == float("inf") else int(total), completed=trainer.global_step, score=""
        )
        self._progress.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Moves the bar every few steps."""
        if self._schedule.due(trainer.global_step):
            self._update(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the bar at its last state."""
        self._update(trainer, pl_module)
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Gives the terminal back."""
        self._stop()

    def _update(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._progress is None:
            return
        monitor, logged = getattr(pl_module, "monitor", ""), trainer.callback_metrics
        metric = monitor.rpartition("/")[2]
        now = pl_module.last_train_psnr() if isinstance(pl_module, CoordinateModule) else logged.get(f"train/{metric}")
        scores = {"train": now, "held out": logged.get(monitor)}
        shown = [f"{k} {v.item():.2f} {unit_of(metric)}".rstrip() for k, v in scores.items() if isinstance(v, torch.Tensor)]
        self._progress.update(self._task, completed=trainer.global_step, score=", ".join(shown))

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

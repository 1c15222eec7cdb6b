"""One bar over all optimiser steps, with the current PSNR."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pe_lightning.modules import CoordinateModule

__all__ = ["PSNRProgressBar"]


class PSNRProgressBar(ProgressBar):
    """A rich progress bar over the steps of a fit: train PSNR of the latest step, held-out PSNR of the last validation.

    The PSNR is read from the device only when the bar is redrawn, so a step is never made to wait for it.

    Args:
        refresh_every: Steps between two updates of the bar.
    """

    def __init__(self, refresh_every: int = 20) -> None:
        super().__init__()
        self.refresh_every = refresh_every
        self._enabled = True
        self._progress: Progress | None = None
        self._task: TaskID | None = None

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
        if self._progress is not None and trainer.global_step % self.refresh_every == 0:
            self._update(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the bar at its last state."""
        if self._progress is not None:
            self._update(trainer, pl_module)
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Gives the terminal back."""
        self._stop()

    def _update(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self._progress is not None
        assert self._task is not None
        parts = []
        if isinstance(pl_module, CoordinateModule):
            parts.append(f"train {pl_module.last_train_psnr().item():.2f} dB")
        held_out = trainer.callback_metrics.get("val/psnr")
        if isinstance(held_out, torch.Tensor):
            parts.append(f"held out {held_out.item():.2f} dB")
        self._progress.update(self._task, completed=trainer.global_step, score=", ".join(parts))

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

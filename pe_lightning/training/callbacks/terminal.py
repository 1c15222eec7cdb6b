"""A fit at a terminal: its progress bar, and ending early at Ctrl-C and other signals."""

from __future__ import annotations

import math
import signal
import threading
import time
from contextlib import ExitStack
from typing import Any, ClassVar

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pe_lightning.evaluation.metrics import unit_of
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.training import CoordinateModule
from pe_lightning.training.callbacks.loggers import mark_preempting
from pe_lightning.training.interrupts import StopSignals

STEPS_BETWEEN_AGREEMENTS = 50
"""Steps after which several processes find out whether one of them is asked to stop."""


class GracefulStop(Callback):
    """Stops a fit after the current step at Ctrl-C, SIGTERM or SIGHUP; Ctrl-C again ends it at once.

    The fit ends as after its last step: with a checkpoint, a validation, scores and files. SIGTERM marks a W&B run as
    preempted.

    Args:
        listen: Whether to handle the signals during training; else the handlers from before the fit stay in force.

    Attributes:
        signum: The signal that stopped the last fit, if one did.
        training: Whether a fit is being trained, and can be stopped.
    """

    def __init__(self, listen: bool = True) -> None:
        self.listen = listen
        self.signum: int | None = None
        self.training = False
        self._requested: int | None = None
        self._stack = ExitStack()
        self._before: Any = None

    def request(self, signum: int) -> None:
        """Requests a stop after the current step."""
        self._requested = signum
        is_interrupt = signum == signal.SIGINT
        first = "" if is_interrupt else f"{signal.Signals(signum).name}: "
        again = " Interrupt again to stop at once." * is_interrupt
        rank_zero_info(f"\n{first}Stopping after this step; results so far are kept.{again}")

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Notes the handler of SIGTERM, before Lightning installs its own, which ends a fit with status 0."""
        self._before = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.signum = self._requested = None
        self.training = True
        if self.listen:
            self._stack.enter_context(StopSignals(self.request))
        elif threading.current_thread() is threading.main_thread():
            self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, self._before))

    def next_step(self, trainer: Trainer) -> int | None:
        """The step at which several processes agree; of one process the next, once a stop is requested."""
        if trainer.world_size > 1:
            return trainer.global_step + STEPS_BETWEEN_AGREEMENTS - trainer.global_step % STEPS_BETWEEN_AGREEMENTS
        return None if self._requested is None else trainer.global_step + 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stops if requested, with no gradient accumulated; several processes do it at the same step."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        signum = self._requested or 0
        if trainer.world_size > 1:
            if trainer.global_step % STEPS_BETWEEN_AGREEMENTS:
                return
            together = torch.tensor(float(signum), device=trainer.strategy.root_device)
            signum = int(trainer.strategy.reduce(together, reduce_op="max"))
        if signum and self.signum is None:
            self.signum, trainer.should_stop = signum, True
            if signum == signal.SIGTERM:
                mark_preempting(trainer.loggers)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.training = False
        self._stack.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)


class PSNRProgressBar(ProgressBar):
    """Rich progress bar over the steps of a fit, with the train score of the last step and the last validation score.

    Where standard error is not a terminal it prints a line now and then: 10 seconds after the last, or after a tenth of the
    steps and a second. Scores are read from the device only then, so that steps do not wait for them.

    Args:
        refresh_every: Steps between two updates of the bar, at least.
    """

    prints_scores: ClassVar[bool] = True
    """Modules need not print their scores."""

    def __init__(self, refresh_every: int = 20) -> None:
        super().__init__()
        self._refresh_every, self._enabled = refresh_every, True
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._shown = 0  # the step that the bar, or the last line, shows
        self._since = 0.0  # the time of the last line

    def enable(self) -> None:
        self._enabled = True

    def disable(self) -> None:
        self._enabled = False

    def print(self, *args: Any, **kwargs: Any) -> None:
        console = self._progress.console if self._progress is not None else Console()
        console.print(*args, **kwargs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
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
            transient=True,  # the table has the last scores
        )
        steps, self._shown, self._since = None if total == float("inf") else int(total), step, time.monotonic()
        self._task = self._progress.add_task("fit", total=steps, completed=step, score="")
        self._progress.start()

    def next_step(self, trainer: Trainer) -> int | None:
        """Of several processes the step of the next update, which must be the same in all; of one, a moment decides."""
        return trainer.global_step + self._refresh_every if trainer.world_size > 1 else None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step, taken = trainer.global_step, trainer.global_step - self._shown
        if self._progress is None:
            return
        task, waited, in_lines = self._progress.tasks[0], time.monotonic() - self._since, self._progress.disable
        is_due = waited >= 10 or (waited >= 1 and taken >= (task.total or math.inf) / 10)
        if not (is_due if in_lines else taken >= self._refresh_every):
            return
        self._shown, self._since = step, time.monotonic()
        monitor, logged = getattr(pl_module, "monitor", ""), trainer.callback_metrics
        metric = monitor.rpartition("/")[2]
        # under several processes the latest batch is a share of the samples: the logged score is of all
        now = logged.get(f"train/{metric}")
        if trainer.world_size == 1 and isinstance(pl_module, CoordinateModule):
            now = pl_module.batch_psnr
        scores = {"train": now, "held out": logged.get(monitor)}
        shown = [f"{k} {v.item():.2f} {unit_of(metric)}".rstrip() for k, v in scores.items() if isinstance(v, torch.Tensor)]
        self._progress.update(self._task, completed=step, score=", ".join(shown))
        if in_lines:
            of = f"step {step:,}" if task.total is None else f"step {step:,} of {int(task.total):,}"
            left = [] if task.time_remaining is None else [f"{task.time_remaining:.0f} s left"]
            self._progress.console.print(", ".join([of, *shown, *left]), soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, pl_module)

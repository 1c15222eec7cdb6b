"""The loop over the cells of a sweep in this process, and the progress that it shares with the one on Ray."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text
from typing_extensions import Self

from pe_lightning.experiments.sweep.cells import Cell
from pe_lightning.experiments.sweep.fits import Fits, Outcome
from pe_lightning.experiments.sweep.record import SweepRecord

__all__ = ["SweepProgress", "run_cells"]


class SweepProgress:
    """The progress of a sweep: in its record, on the terminal, and whether the user has asked it to stop.

    Within its block, the first interrupt only sets :attr:`interrupted`; a second one is an ordinary interrupt.

    Args:
        cells: All cells of the sweep.
        record: Of its folder, which is locked.
        bar: Whether to draw a progress bar on the standard error stream, if that is a terminal.
        keep_stopped: Whether cells that a scheduler stopped in an earlier command stay stopped.

    Raises:
        InputError: If a finished cell has another configuration.

    Attributes:
        waiting: The cells that are to be run.
        interrupted: Whether no more cells are to be started.
    """

    def __init__(self, cells: Sequence[Cell], record: SweepRecord, bar: bool = True, keep_stopped: bool = False) -> None:
        self.record = record
        self.interrupted = False
        self.waiting: list[Cell] = []
        self._lines: list[tuple[str, str, str]] = []
        for cell in cells:
            metrics = record.finished(cell)
            if metrics is not None:
                record.note(cell, "done", **_scores(metrics))
                self._lines.append((cell.name, f"{_psnr(metrics)}, finished before", "dim"))
            elif cell.tree is None:
                record.note(cell, "refused", error=cell.error)
                self._lines.append((cell.name, f"refused: {cell.error}", "red"))
            elif keep_stopped and record.status(cell) == "stopped":
                self._lines.append((cell.name, "stopped before", "dim"))
            else:
                record.note(cell, "waiting")
                self.waiting.append(cell)
        record.write()
        self._count, self._total = 0, len(cells)
        self._handler: Any = None
        console = Console(stderr=True)
        self._bar = Progress(console=console, disable=not (bar and console.is_terminal), transient=True)
        self._task = self._bar.add_task("sweep", total=len(cells))
        self._running: list[str] = []

    def __enter__(self) -> Self:
        self._bar.start()
        for line in self._lines:
            self._count_one(*line)
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore_handler()
        self._bar.stop()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._restore_handler()
        self.say("Stopping after what is running now; the same command resumes it. Interrupt again to stop at once.")

    def _restore_handler(self) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None

    def say(self, text: str, style: str = "yellow") -> None:
        """Prints a line above the bar."""
        self._bar.console.print(Text(text, style), soft_wrap=True)

    def start(self, cell: Cell) -> None:
        """Records that a cell is running."""
        if cell.name not in self._running:  # a retry starts it again
            self._running.append(cell.name)
        self._show_running()
        self.record.note(cell, "running")
        self.record.write()

    def stop(self, cell: Cell, score: float | None) -> None:
        """Records that a scheduler has stopped a cell.

        Args:
            cell: The cell.
            score: Its last validation score.
        """
        self.record.note(cell, "stopped", **{"val/psnr": score})
        self.record.write()
        self._count_one(cell.name, f"stopped by the scheduler at {_psnr({'test/psnr': score})}", "dim")

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        """Records the outcome of a cell."""
        if outcome.error is None:
            self.record.note(cell, "done", seconds=outcome.seconds, **_scores(outcome.metrics))
            resumed = ", resumed" if outcome.resumed else ""
            line, style = f"{_psnr(outcome.metrics)}, {outcome.seconds:.1f} s{resumed}", ""
        else:
            self.record.note(cell, "failed", error=outcome.error, traceback=outcome.trace)
            line, style = f"failed: {outcome.error}", "red"
        self.record.write()
        self._count_one(cell.name, line, style)

    def _count_one(self, name: str, line: str, style: str) -> None:
        self._count += 1
        if name in self._running:
            self._running.remove(name)
            self._show_running()
        self.say(f"{self._count}/{self._total} {name}: {line}", style)
        self._bar.update(self._task, completed=self._count)

    def _show_running(self) -> None:
        more = f" and {len(self._running) - 1} more" if len(self._running) > 1 else ""
        self._bar.update(self._task, description=self._running[0] + more if self._running else "sweep")

    def run_dir(self, cell: Cell) -> Path:
        """The absolute run directory of a cell."""
        return (self.record.folder / cell.name).absolute()


def run_cells(progress: SweepProgress, fits: Fits) -> None:
    """Runs the waiting cells one after the other, until the user interrupts."""
    for cell in progress.waiting:
        if progress.interrupted:
            break
        assert cell.tree is not None
        progress.start(cell)
        name = cell.name
        warn = lambda text, name=name: progress.say(f"{name}: warning: {text}")  # noqa: E731
        progress.finish(cell, fits.run(cell.tree, progress.run_dir(cell), warn))


def _scores(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metrics.get(key) for key in ("test/psnr", "test/psnr_std", "fit_seconds", "num_params")}


def _psnr(metrics: Mapping[str, Any]) -> str:
    value = metrics.get("test/psnr")
    return "no test PSNR" if value is None else f"{value:.2f} dB"

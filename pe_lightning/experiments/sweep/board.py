"""What a sweep shows while it runs: a bar over the cells and a line for each that is finished."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text
from typing_extensions import Self

__all__ = ["Board"]


class Board:
    """A progress bar on the standard error stream, if that is a terminal, and lines above it.

    Args:
        total: Number of cells.
        bar: Whether to draw the bar.
    """

    def __init__(self, total: int, bar: bool = True) -> None:
        console = Console(stderr=True)
        self.total = total
        self.count = 0
        self._running: list[str] = []
        self._progress = Progress(
            TextColumn("[bold]sweep"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[cell]}", markup=False),
            TextColumn("{task.fields[last]}", markup=False, style="green"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not (bar and console.is_terminal),
            transient=True,
        )
        self._task = self._progress.add_task("sweep", total=total, cell="", last="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()

    def say(self, text: str, style: str = "") -> None:
        """Prints a line above the bar."""
        self._progress.console.print(Text(text, style), soft_wrap=True)

    def start(self, cell: str) -> None:
        """Shows that a cell is running."""
        self._running.append(cell)
        self._show_running()

    def _show_running(self) -> None:
        others = len(self._running) - 1
        shown = "" if others < 0 else self._running[0] + (f" and {others} more" if others else "")
        self._progress.update(self._task, cell=shown)

    def finish(self, cell: str, outcome: str, style: str = "") -> None:
        """Counts a cell.

        Args:
            cell: Its name.
            outcome: PSNR and seconds, or what went wrong.
            style: Of the line.
        """
        self.count += 1
        if cell in self._running:
            self._running.remove(cell)
            self._show_running()
        self.say(f"{self.count}/{self.total} {cell}: {outcome}", style)
        self._progress.update(self._task, completed=self.count, last=outcome if not style else "")

"""The cells of a sweep on their way from waiting to done: kept, taken up again, or run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pe_lightning import runs
from pe_lightning.checkpoints import read_model
from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.attempts import Job, Outcome
from pe_lightning.experiments.sweep.board import Board
from pe_lightning.experiments.sweep.cells import Cell
from pe_lightning.experiments.sweep.interrupt import AfterThis
from pe_lightning.experiments.sweep.launchers import Launcher
from pe_lightning.experiments.sweep.record import Record

__all__ = ["run_cells"]


def run_cells(cells: Sequence[Cell], record: Record, launcher: Launcher, bar: bool = True) -> None:
    """Runs every cell that is not finished, and keeps the record; ends early if the user interrupts it.

    Args:
        cells: All of the sweep.
        record: Of its folder, which is locked.
        launcher: Runs the fits.
        bar: Whether to draw a progress bar.

    Raises:
        InputError: Before anything is run, if a finished cell has another configuration; or if the launcher has nowhere
            left to run the cells, which go on waiting.
    """
    kept = {cell.name: record.finished(cell) for cell in cells}
    for cell in cells:
        metrics = kept[cell.name]
        if metrics is not None:
            record.note(cell, "done", **_scores(metrics))
        elif cell.tree is None:
            record.note(cell, "refused", error=cell.error)
        else:
            record.note(cell, "waiting")
    record.write()
    with Board(len(cells), bar) as board, AfterThis(lambda: _announce(board)) as interrupt:
        for cell in cells:
            metrics = kept[cell.name]
            if metrics is not None:
                board.finish(cell.name, f"{_psnr(metrics)}, finished before", "dim")
            elif cell.tree is None:
                board.finish(cell.name, f"refused: {cell.error}", "red")
        waiting = _Waiting([cell for cell in cells if kept[cell.name] is None], record, board, interrupt)
        with closing(launcher.run(waiting)) as results:
            for job, outcome in results:
                waiting.finish(job, outcome)


def _announce(board: Board) -> None:
    board.say(
        "Stopping after what is running now; the same command goes on later. Interrupt again to stop at once.", "yellow"
    )


class _Waiting:
    """The cells that no launcher has taken yet, in order; the record and the board follow what happens to them."""

    def __init__(self, cells: Sequence[Cell], record: Record, board: Board, interrupt: AfterThis) -> None:
        self._cells = [(cell, cell.tree) for cell in cells if cell.tree is not None]
        self._record = record
        self._board = board
        self._interrupt = interrupt
        self._taken: dict[str, Cell] = {}

    def left(self) -> int:
        """How many cells are still to be started."""
        return 0 if self._interrupt.asked else len(self._cells)

    def take(self) -> Job | None:
        """Starts the next cell."""
        return self._start(*self._cells.pop(0)) if self.left() else None

    def _start(self, cell: Cell, tree: dict[str, Any]) -> Job:
        folder = (self._record.folder / cell.name).absolute()
        checkpoint = _checkpoint(folder) if self._record.unfinished(cell) else None
        if checkpoint is None and folder.exists():
            shutil.rmtree(folder)
        self._taken[cell.name] = cell
        self._board.start(cell.name)
        self._record.note(cell, "running")
        self._record.write()
        return Job(cell.name, tree, folder, checkpoint)

    def finish(self, job: Job, outcome: Outcome) -> None:
        """Records what became of a cell."""
        cell = self._taken.pop(job.name)
        if outcome.error is None:
            self._record.note(cell, "done", seconds=outcome.seconds, **_scores(outcome.metrics))
            resumed = ", resumed" if job.checkpoint else ""
            self._board.finish(cell.name, f"{_psnr(outcome.metrics)}, {outcome.seconds:.1f} s{resumed}")
        else:
            self._record.note(cell, "failed", error=outcome.error, traceback=outcome.trace)
            self._board.finish(cell.name, f"failed: {outcome.error}", "red")
        self._record.write()

    def warn(self, job: Job, text: str) -> None:
        """Shows a warning of a fit above the bar."""
        self._board.say(f"{job.name}: warning: {text}", "yellow")

    def say(self, text: str) -> None:
        """Shows a notice above the bar."""
        self._board.say(text, "yellow")


def _checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of an unfinished run, if it can be read."""
    path = folder / runs.CHECKPOINTS / "last.ckpt"
    try:
        read_model(path)
    except InputError:
        return None  # killed before the first, or while it was written: the cell is run anew
    return path


def _scores(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: metrics.get(key) for key in ("test/psnr", "test/psnr_std", "fit_seconds", "num_params")}


def _psnr(metrics: dict[str, Any]) -> str:
    value = metrics.get("test/psnr")
    return "no test PSNR" if value is None else f"{value:.2f} dB"

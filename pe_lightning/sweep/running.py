"""The cells of a sweep, one after the other: kept, taken up again, or run."""

from __future__ import annotations

import logging
import shutil
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pe_lightning import runs
from pe_lightning.checkpoints import read_model
from pe_lightning.errors import InputError
from pe_lightning.sweep.board import Board
from pe_lightning.sweep.cells import Cell
from pe_lightning.sweep.fits import Fits
from pe_lightning.sweep.interrupt import AfterThis
from pe_lightning.sweep.record import Record

__all__ = ["run_cells"]


def run_cells(cells: Sequence[Cell], record: Record, fits: Fits, bar: bool = True) -> None:
    """Runs every cell that is not finished, and keeps the record; ends early if the user interrupts it.

    Args:
        cells: All of the sweep.
        record: Of its folder, which is locked.
        fits: Runs the fits.
        bar: Whether to draw a progress bar.

    Raises:
        InputError: Before anything is run, if a finished cell has another configuration.
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
    with Board(len(cells), bar) as board, AfterThis(lambda: _announce(board)) as interrupt, _quiet():
        for cell in cells:
            metrics = kept[cell.name]
            if metrics is not None:
                board.finish(cell.name, f"{_psnr(metrics)}, finished before", "dim")
            elif cell.tree is None:
                board.finish(cell.name, f"refused: {cell.error}", "red")
            elif interrupt.asked:
                break
            else:
                _run(cell, record, fits, board)


def _announce(board: Board) -> None:
    board.say("Stopping after this cell; the same command goes on later. Interrupt again to stop at once.", "yellow")


def _run(cell: Cell, record: Record, fits: Fits, board: Board) -> None:
    assert cell.tree is not None
    folder = record.folder / cell.name
    checkpoint = _checkpoint(folder) if record.unfinished(cell) else None
    if checkpoint is None and folder.exists():
        shutil.rmtree(folder)
    board.start(cell.name)
    record.note(cell, "running")
    record.write()
    began = time.perf_counter()
    try:
        with _warnings_to(board, cell.name):
            metrics = fits.fit(cell.tree, folder, checkpoint)
    except InputError as error:
        _fail(cell, record, board, str(error))
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # Lightning makes it the status of a failure
            raise KeyboardInterrupt from None
        _fail(cell, record, board, f"the fit ended the process with status {error.code}", traceback.format_exc())
    except Exception as error:  # whatever one cell dies of, the others are run
        message = " ".join(str(error).split())[:500]
        _fail(cell, record, board, f"{type(error).__name__}: {message}".rstrip(": "), traceback.format_exc())
    else:
        seconds = time.perf_counter() - began
        record.note(cell, "done", seconds=seconds, **_scores(metrics))
        board.finish(cell.name, f"{_psnr(metrics)}, {seconds:.1f} s{', resumed' if checkpoint else ''}")
    record.write()


def _checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of an unfinished run, if it can be read."""
    path = folder / runs.CHECKPOINTS / "last.ckpt"
    try:
        read_model(path)
    except InputError:
        return None  # killed before the first, or while it was written: the cell is run anew
    return path


def _fail(cell: Cell, record: Record, board: Board, message: str, trace: str | None = None) -> None:
    record.note(cell, "failed", error=message, traceback=trace)
    board.finish(cell.name, f"failed: {message}", "red")


def _scores(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: metrics.get(key) for key in ("test/psnr", "test/psnr_std", "fit_seconds", "num_params")}


def _psnr(metrics: dict[str, Any]) -> str:
    value = metrics.get("test/psnr")
    return "no test PSNR" if value is None else f"{value:.2f} dB"


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's notes on every fit stay out of the terminal; its warnings do not."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(max(logger.level, logging.WARNING))
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _warnings_to(board: Board, cell: str) -> Iterator[None]:
    """Warnings become lines above the bar, each once per cell."""
    with warnings.catch_warnings():
        seen: set[str] = set()

        def show(message: Warning | str, *_: Any) -> None:
            text = " ".join(str(message).split())
            if text not in seen:
                seen.add(text)
                board.say(f"{cell}: warning: {text}", "yellow")

        warnings.showwarning = show  # type: ignore[assignment]
        yield

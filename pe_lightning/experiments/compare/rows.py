"""Rows as values for a plot: whole if they are short, else the range of every so many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pe_lightning.experiments.compare.shelf import Entry, Shelf
from pe_lightning.experiments.compare.values import Source, read_row, read_trained

__all__ = ["Curve", "points_per_row", "put_rows"]

MOST, FEWEST = 65_536, 512
"""How many values of a channel are embedded at most, and at least, before ranges take their place."""
CHANNELS = 8
"""How many channels are shown."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Curve:
    """A row and its truth, as keys of the page's contents.

    The arrays are float32, ``(channels, N)``; where ``step`` > 1, ``(channels, 2, ceil(N / step))``: the least and the
    greatest of every ``step`` samples.

    Args:
        truth: The truth; empty if it is not known.
        values: The reconstruction.
        error: Reconstruction - truth, where ``step`` > 1; else it is the difference of the two.
        trained: One bit per sample that was trained on, the first one highest; empty if not known, or where ``step`` > 1.
        count: Number of samples.
        step: How many samples share a range.
        channels: How many channels are shown.
        total: Of how many.
        rate: Samples per second, if known.
        note: What one who looks at it should know.
    """

    truth: str
    values: str
    error: str
    trained: str
    count: int
    step: int
    channels: int
    total: int
    rate: float | None = None
    note: str = ""


def points_per_row(rows: Sequence[Mapping[Entry, Source | str]], most: float) -> int:
    """How many values of a channel can be embedded if there may be so many in all: :data:`FEWEST` to :data:`MOST`.

    Counted are the reconstructions, their errors and the truths of long rows.
    """
    found = [source for sources in rows for source in sources.values() if isinstance(source, Source)]
    curves = sum(2 * min(source.channels, CHANNELS) for source in found) + CHANNELS * len(rows)
    return int(min(MOST, max(FEWEST, most / max(1, curves))))


def put_rows(sources: Mapping[Entry, Source | str], points: int, shelf: Shelf) -> dict[Entry, Curve | str]:
    """Puts a row and its reconstructions on the shelf, one after another.

    Args:
        sources: The file of every run, or why there is none.
        points: How many values of a channel are embedded.
        shelf: Where to.

    Returns:
        The curves, with digests in place of keys, or why there is none.
    """
    donor = next((source for source in sources.values() if isinstance(source, Source) and source.truth), None)
    truth, trained, why = None, None, ""
    if donor is not None:
        try:
            truth, trained = read_row(donor, truth=True), read_trained(donor)
        except ValueError as error:
            why = f"no ground truth: {error}"
    made: dict[Entry, Curve | str] = {}
    for entry, source in sources.items():
        try:
            made[entry] = source if isinstance(source, str) else _put(source, truth, trained, why, points, shelf)
        except ValueError as error:
            made[entry] = str(error)
    return made


def _put(
    source: Source, truth: Array | None, trained: npt.NDArray[np.bool_] | None, why: str, points: int, shelf: Shelf
) -> Curve:
    count, shown = source.grid[0], min(source.channels, CHANNELS)
    step = 1 if count <= points else -(-2 * count // points)

    def put(values: Array) -> str:
        lines = values[:, :shown].T
        return shelf.add_array(np.ascontiguousarray(lines if step == 1 else ranges(lines, step)))

    values = read_row(source)
    known = truth if truth is not None and truth.shape == values.shape else None
    with np.errstate(invalid="ignore", over="ignore"):
        error = "" if known is None or step == 1 else put(values - known)
    bits = "" if trained is None or known is None or step > 1 else shelf.add_array(np.packbits(trained))
    return Curve(
        truth="" if known is None else put(known),
        values=put(values),
        error=error,
        trained=bits,
        count=count,
        step=step,
        channels=shown,
        total=source.channels,
        rate=source.rate,
        note="; ".join(note for note in (source.note, why) if note),
    )


def ranges(lines: Array, step: int) -> Array:
    """``(C, N)`` -> ``(C, 2, ceil(N / step))``: the least and the greatest of every ``step`` values that are numbers."""
    starts = np.arange(0, lines.shape[1], step)
    return np.stack([np.fmin.reduceat(lines, starts, axis=1), np.fmax.reduceat(lines, starts, axis=1)], axis=1)

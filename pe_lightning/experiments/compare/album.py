"""All reconstructions that a page shows, within its size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pe_lightning.experiments.compare.cubes import find_cubes, fit_frames, put_frames, put_truth
from pe_lightning.experiments.compare.pictures import Pair, put_pictures
from pe_lightning.experiments.compare.reading import Run, Signal
from pe_lightning.experiments.compare.rows import Curve, points_per_row, put_rows
from pe_lightning.experiments.compare.shelf import Entry, Shelf
from pe_lightning.experiments.compare.values import find_all
from pe_lightning.runs import file_names

__all__ = ["Album", "Shown", "collect"]

THREADS = min(4, os.cpu_count() or 1)
VALUES_PER_MEGAPIXEL = 281_250
"""How many values of a row take as many bytes as a megapixel of a picture: 1.5 MB, with 16 bytes in base64 for 3 values."""

Shown = Pair | Curve


@dataclass(frozen=True)
class Album:
    """The reconstructions of a page.

    Args:
        contents: Key -> text: a ``data:`` URI or an array in base64, each distinct one once.
        shown: For every run and signal what is shown, or why nothing is.
        scale: What the sides of the pictures were multiplied by, at most 1.
    """

    contents: dict[str, str]
    shown: dict[Run, dict[Signal, Shown | str]]
    scale: float


def collect(found: Sequence[Run], most: int, megapixels: float, frames: int = 16) -> Album:
    """Reads the reconstructions of the first signals of every run.

    Args:
        found: The runs.
        most: How many signals of a run are shown.
        megapixels: If the pictures would have more than this together, there are fewer frames of cubes, and then all are
            made smaller by the same factor. Rows take at most as many bytes.
        frames: How many frames of a cube are shown at most.
    """
    entries = [entry for run in found for entry in _entries(run)[:most]]
    images, rows, cubes = ([entry for entry in entries if len(entry.grid) == axes] for axes in (2, 1, 3))
    shelf, made = Shelf(), dict[Entry, Shown | str]()
    made |= {entry: _no_picture(entry) for entry in entries if len(entry.grid) not in (1, 2, 3)}

    # a reconstruction each; truths are shared by the runs on the same data, and so are the smaller part
    pixels = sum(entry.grid[0] * entry.grid[1] for entry in images)
    found_cubes = find_cubes(cubes)
    frames = fit_frames(found_cubes, frames, megapixels * 1e6 - pixels)
    pixels += sum(cube.pixels * len(cube.chosen(frames)) for cube in found_cubes)
    scale = min(1.0, (megapixels * 1e6 / pixels) ** 0.5) if pixels else 1.0

    with ThreadPoolExecutor(THREADS) as pool:  # Pillow decodes and encodes without holding the interpreter
        pairs = pool.map(lambda entry: put_pictures(entry, scale, shelf), images)
        truths = pool.map(lambda cube: put_truth(cube, frames, scale, shelf), found_cubes)
        parts = [(cube, entry) for cube in found_cubes for entry in cube.sources]
        films = pool.map(lambda part: put_frames(part[0], part[1], frames, scale, shelf), parts)
        made |= zip(images, pairs, strict=True)
        by_cube = {id(cube): truth for cube, truth in zip(found_cubes, truths, strict=True)}
        for (cube, entry), film in zip(parts, films, strict=True):
            made[entry] = replace(film, truth=by_cube[id(cube)]) if isinstance(film, Pair) else film
    found_rows = find_all(rows)
    points = points_per_row(found_rows, megapixels * VALUES_PER_MEGAPIXEL)
    for sources in found_rows:  # one after another, as they are in memory meanwhile
        made |= put_rows(sources, points, shelf)

    shown: dict[Run, dict[Signal, Shown | str]] = {run: {} for run in found}
    for entry in entries:
        shown[entry.run][entry.signal] = _with_keys(made[entry], shelf)
    return Album(shelf.contents, shown, scale)


def _entries(run: Run) -> list[Entry]:
    grid: Any = run.metrics.get("grid")
    known = isinstance(grid, list) and all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in grid)
    stems = file_names(tuple(run.metrics["signals"]))
    axes = tuple(grid) if known else ()
    return [Entry(run, signal, stem, axes) for signal, stem in zip(run.signals, stems, strict=True)]


def _no_picture(entry: Entry) -> str:
    return f"signals of {len(entry.grid)} axes are not shown" if entry.grid else "the size of the signals is not known"


def _with_keys(shown: Shown | str, shelf: Shelf) -> Shown | str:
    """With the names of the page in place of digests."""
    if isinstance(shown, Pair):
        truths, made = (tuple(map(shelf.key, digests)) for digests in (shown.truth, shown.reconstruction))
        return replace(shown, truth=truths, reconstruction=made)
    if isinstance(shown, Curve):
        digests = shown.truth, shown.values, shown.error, shown.trained
        truth, values, error, trained = (shelf.key(digest) if digest else "" for digest in digests)
        return replace(shown, truth=truth, values=values, error=error, trained=trained)
    return shown

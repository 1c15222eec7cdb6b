"""Frames of videos and slices of volumes, the same ones of every run that was fitted to the same cube."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pe_lightning.experiments.compare.pictures import Pair, smaller
from pe_lightning.experiments.compare.shelf import Entry, Shelf, as_picture
from pe_lightning.experiments.compare.values import Source, find_all, read_frames
from pe_lightning.runs import frames_of

__all__ = ["Cube", "find_cubes", "fit_frames", "put_frames", "put_truth"]

FEWEST = 4
"""Rather than showing fewer frames than this, they are made smaller."""


@dataclass(frozen=True)
class Cube:
    """A cube and its reconstructions.

    Args:
        sources: For every run's entry the file, or why there is none.
        frames: The frames that all these files have.
    """

    sources: dict[Entry, Source | str]
    frames: tuple[int, ...]

    @property
    def readable(self) -> dict[Entry, Source]:
        """The entries that have a file."""
        return {entry: source for entry, source in self.sources.items() if isinstance(source, Source)}

    @property
    def pixels(self) -> int:
        """How many pixels a frame of all reconstructions has together."""
        return sum(math.prod(source.grid[1:]) for source in self.readable.values())

    def chosen(self, most: int) -> tuple[int, ...]:
        """At most so many of the frames, evenly spaced."""
        count, parts = len(self.frames), min(len(self.frames), most)
        if any(frame != place for place, frame in enumerate(self.frames)):  # not all that there are: chosen before
            return tuple(self.frames[(2 * part + 1) * count // (2 * parts)] for part in range(parts))
        return tuple(frames_of(count, most))


def find_cubes(entries: Sequence[Entry]) -> list[Cube]:
    """The cubes of these entries, in their order."""
    cubes = []
    for sources in find_all(entries):
        held = [set(source.frames) for source in sources.values() if isinstance(source, Source)]
        cubes.append(Cube(sources, tuple(sorted(set.intersection(*held))) if held else ()))
    return cubes


def fit_frames(cubes: Sequence[Cube], most: int, pixels: float) -> int:
    """How many frames of each cube fit into so many pixels: at least :data:`FEWEST`, at most ``most``."""
    for frames in range(most, FEWEST, -1):
        if sum(cube.pixels * len(cube.chosen(frames)) for cube in cubes) <= pixels:
            return frames
    return min(most, FEWEST)


def put_truth(cube: Cube, most: int, scale: float, shelf: Shelf) -> tuple[str, ...]:
    """Puts the truth on the shelf, from the first file that has it, and returns a digest per frame; none without one."""
    for source in cube.readable.values():
        if source.truth:
            try:
                return _put(source, cube.chosen(most), scale, shelf, truth=True)
            except ValueError:
                continue  # the reconstruction in the same file says what is wrong
    return ()


def put_frames(cube: Cube, entry: Entry, most: int, scale: float, shelf: Shelf) -> Pair | str:
    """Puts the reconstruction of a run on the shelf.

    Returns:
        The pair without a truth, with digests in place of keys, or why there is none.
    """
    source = cube.sources[entry]
    if isinstance(source, str):
        return source
    chosen = cube.chosen(most)
    if not chosen:
        return "no frame that all runs have"
    try:
        digests = _put(source, chosen, scale, shelf)
    except ValueError as error:
        return str(error)
    size = smaller((source.grid[2], source.grid[1]), scale)
    return Pair((), digests, size, chosen, source.grid[0], source.rate, source.media or "array", source.note)


def _put(source: Source, frames: Sequence[int], scale: float, shelf: Shelf, truth: bool = False) -> tuple[str, ...]:
    size = smaller((source.grid[2], source.grid[1]), scale)
    return tuple(shelf.add_picture(as_picture(levels), size) for levels in read_frames(source, frames, truth))

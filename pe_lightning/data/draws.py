"""Random samples of a grid, the same on every machine and process, for grids of any size.

Each sample has a 64-bit key, a number of its position, the seed and the signal alone; the smallest keys are drawn. NumPy
promises the output of its bit generators for ever, but not what ``Generator.choice`` makes of it; and a generator can be
advanced, so that the keys of a part of a grid cost only that part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pe_lightning.blocks import Block, shape_of

__all__ = ["draw", "drawn_in", "threshold"]

Keys = np.ndarray[Any, np.dtype[np.uint64]]
Positions = np.ndarray[Any, np.dtype[np.int64]]

CHUNK = 1 << 22
"""Keys that are made at once: 32 MB."""


def draw(seed: int, signal: int, size: int, count: int) -> Positions:
    """``count`` distinct positions below ``size``, ascending."""
    limit = threshold(seed, signal, size, count)
    found = [first + np.flatnonzero(part <= limit) for first, part in _chunks(seed, signal, size)]
    return np.concatenate(found)[:count].astype(np.int64, copy=False)


def threshold(seed: int, signal: int, size: int, count: int) -> int:
    """The ``count``-th smallest of the keys of ``size`` samples, in one pass and little memory.

    Only keys within eight standard deviations of where it is expected are kept.
    """
    share = count / size
    spread = 8 * math.sqrt(size * share * (1 - share) + 1) / size
    low, high = (int(max(0.0, min(share + side * spread, 1.0)) * 2.0**64) for side in (-1, 1))
    low, high = (0, 2**64 - 1) if size <= CHUNK else (low, min(high, 2**64 - 1))
    below, kept = 0, []
    for _, part in _chunks(seed, signal, size):
        below += int(np.count_nonzero(part < np.uint64(low)))
        kept.append(part[(part >= np.uint64(low)) & (part <= np.uint64(high))])
    inside = np.concatenate(kept)
    place = count - 1 - below
    if not 0 <= place < len(inside):  # less likely than 1e-14
        raise RuntimeError(f"the {count}-th of {size} keys is not where it is expected; choose another sampling seed")
    return int(np.partition(inside, place)[place])


def drawn_in(seed: int, signal: int, limit: int, grid: Sequence[int], box: Block) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which samples of a box are drawn, given the :func:`threshold` of the whole grid: booleans of the box's shape."""
    sizes = shape_of(box)
    # trailing axes that the box covers whole make one run with the axis before them
    run = len(grid) - 1
    while run > 0 and sizes[run] == grid[run]:
        run -= 1
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    length = sizes[run] * strides[run]
    mask = np.empty((math.prod(sizes[:run]), length), dtype=bool)
    generator, at = np.random.PCG64(np.random.SeedSequence((seed, signal))), 0
    for place, lead in enumerate(np.ndindex(*sizes[:run])):
        first = sum((box[axis].start + step) * strides[axis] for axis, step in enumerate(lead))
        first += box[run].start * strides[run]
        generator.advance(first - at)
        mask[place] = generator.random_raw(length) <= np.uint64(limit)
        at = first + length
    return mask.reshape(sizes)


def _chunks(seed: int, signal: int, size: int) -> Iterator[tuple[int, Keys]]:
    """All keys, some at a time: the position of the first one, and ``(n,)`` of them."""
    generator = np.random.PCG64(np.random.SeedSequence((seed, signal)))
    for first in range(0, size, CHUNK):
        yield first, generator.random_raw(min(CHUNK, size - first))

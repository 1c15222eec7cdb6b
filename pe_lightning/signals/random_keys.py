"""Random samples of a grid of any size, reproducible on every machine and process, and in any block of the grid.

Each sample has a 64-bit key that depends only on its position, the seed and the signal; the samples with the smallest keys
are chosen. NumPy guarantees a stable output of its bit generators, but not of ``Generator.choice``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pe_lightning.signals.blocks import Block, shape_of

KEYS_AT_ONCE = 1 << 22
"""Keys generated at a time (32 MB)."""


def chosen_positions(seed: int, signal: int, size: int, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """``count`` distinct random positions below ``size``, ascending."""
    limit = largest_chosen_key(seed, signal, size, count)
    found = [first + np.flatnonzero(keys <= limit) for first, keys in _keys(seed, signal, size)]
    return np.concatenate(found)[:count].astype(np.int64, copy=False)


def largest_chosen_key(seed: int, signal: int, size: int, count: int) -> int:
    """The ``count``-th smallest key of ``size`` samples, found in one pass.

    Memory is bounded: only keys within eight standard deviations of the expected value are stored.
    """
    share = count / size
    spread = 8 * math.sqrt(size * share * (1 - share) + 1) / size
    limits = [0.0, 1.0] if size <= KEYS_AT_ONCE else [max(share - spread, 0.0), min(share + spread, 1.0)]
    low, high = (np.uint64(min(int(limit * 2.0**64), 2**64 - 1)) for limit in limits)
    below, candidates = 0, []
    for _, keys in _keys(seed, signal, size):
        below += int(np.count_nonzero(keys < low))
        candidates.append(keys[(keys >= low) & (keys <= high)])
    inside, place = np.concatenate(candidates), count - 1 - below
    if not 0 <= place < len(inside):  # probability below 1e-14
        raise RuntimeError(f"key {count} of {size} is outside the expected range; choose another sampling seed")
    return int(np.partition(inside, place)[place])


def chosen_in(seed: int, signal: int, limit: int, grid: Sequence[int], block: Block) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Mask of the chosen samples of a block, booleans of the block's shape.

    Args:
        seed: Seed of the choice.
        signal: Index of the signal.
        limit: Largest chosen key of the whole grid, from :func:`largest_chosen_key`.
        grid: Number of samples per axis.
        block: A block of the grid.
    """
    sizes = shape_of(block)
    run = len(grid) - 1  # trailing axes covered completely are read together with the axis before them
    while run > 0 and sizes[run] == grid[run]:
        run -= 1
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    length = sizes[run] * strides[run]
    mask = np.empty((math.prod(sizes[:run]), length), dtype=bool)
    corner = sum(part.start * stride for part, stride in zip(block, strides, strict=True))
    generator, position = np.random.PCG64(np.random.SeedSequence((seed, signal))), 0
    for row, lead in enumerate(np.ndindex(*sizes[:run])):
        first = corner + sum(step * stride for step, stride in zip(lead, strides, strict=False))
        generator.advance(first - position)
        mask[row] = generator.random_raw(length) <= np.uint64(limit)
        position = first + length
    return mask.reshape(sizes)


def _keys(seed: int, signal: int, size: int) -> Iterator[tuple[int, np.ndarray[Any, np.dtype[np.uint64]]]]:
    """All keys in order. Yields the position of the first key of a chunk, and the keys."""
    generator = np.random.PCG64(np.random.SeedSequence((seed, signal)))
    for first in range(0, size, KEYS_AT_ONCE):
        yield first, generator.random_raw(min(KEYS_AT_ONCE, size - first))

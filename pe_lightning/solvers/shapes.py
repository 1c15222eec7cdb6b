"""Shapes: grids cut into tiles, outer products, axes of size one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from torch import Tensor

from pe_lightning.errors import InputError

__all__ = ["outer", "tiles", "trailing"]


def tiles(grid: Sequence[int], tile: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Cuts a grid into tiles that cover it once, row by row; those at the far ends may be smaller.

    Args:
        grid: Samples per axis.
        tile: Samples of a tile per axis, at most.

    >>> [[(part.start, part.stop) for part in box] for box in tiles((3, 2), (2, 2))]
    [[(0, 2), (0, 2)], [(2, 3), (0, 2)]]
    """
    if len(grid) != len(tile) or any(size < 1 for size in tile):
        raise InputError(f"a tile has one size >= 1 per axis of the grid {tuple(grid)}; got {tuple(tile)}")
    cuts = [[slice(first, min(first + size, n)) for first in range(0, n, size)] for n, size in zip(grid, tile, strict=True)]
    yield from itertools.product(*cuts)


def outer(vectors: Sequence[Tensor]) -> Tensor:
    """The outer product of ``D`` vectors ``(n_a,)``: ``(n_1, ..., n_D)``."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = product[..., None] * vector
    return product


def trailing(x: Tensor, count: int) -> Tensor:
    """``x`` with ``count`` more axes of size one at the end."""
    return x.reshape(*x.shape, *[1] * count)

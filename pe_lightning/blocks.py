"""Boxes: parts of a grid, one slice per axis, and grids cut into them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from pe_lightning.errors import InputError

__all__ = ["Block", "shape_of", "tiles", "whole"]

Block: TypeAlias = tuple[slice, ...]
"""A part of a grid: one slice of step 1 per axis."""


def whole(grid: Sequence[int]) -> Block:
    """The box of everything.

    Args:
        grid: Samples per axis, ``(N_1, ..., N_D)``.
    """
    return tuple(slice(0, n) for n in grid)


def shape_of(box: Block) -> tuple[int, ...]:
    """Samples of a box per axis, ``(n_1, ..., n_D)``.

    >>> shape_of((slice(2, 5), slice(0, 4)))
    (3, 4)
    """
    return tuple(part.stop - part.start for part in box)


def tiles(grid: Sequence[int], tile: Sequence[int]) -> Iterator[Block]:
    """Cuts a grid into tiles that cover it once, row by row; those at the far ends may be smaller.

    Args:
        grid: Samples per axis, ``(N_1, ..., N_D)``.
        tile: Samples of a tile per axis, at most.

    Raises:
        InputError: If there is not one size >= 1 per axis.

    >>> [[(part.start, part.stop) for part in box] for box in tiles((3, 2), (2, 2))]
    [[(0, 2), (0, 2)], [(2, 3), (0, 2)]]
    """
    if len(grid) != len(tile) or any(size < 1 for size in tile):
        raise InputError(f"a tile has one size >= 1 per axis of the grid {tuple(grid)}; got {tuple(tile)}")
    cuts = [[slice(first, min(first + size, n)) for first in range(0, n, size)] for n, size in zip(grid, tile, strict=True)]
    yield from itertools.product(*cuts)

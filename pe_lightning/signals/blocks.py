"""Grids: blocks of their samples, and coordinates: sample i of N lies at i/N, so coordinates are in [0, 1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from pe_lightning.errors import InputError

Block: TypeAlias = tuple[slice, ...]
"""One slice of step 1 per axis."""
ROW_BLOCK_VALUES = 1 << 20
"""Number of values in a block of rows, roughly."""


def whole(grid: Sequence[int]) -> Block:
    """The block that covers a grid of ``(N_1, ..., N_D)`` samples."""
    return tuple(slice(0, n) for n in grid)


def shape_of(block: Block) -> tuple[int, ...]:
    """Number of samples of a block per axis, ``(n_1, ..., n_D)``.

    >>> shape_of((slice(2, 5), slice(0, 4)))
    (3, 4)
    """
    return tuple(along.stop - along.start for along in block)


def grid_blocks(grid: Sequence[int], size: Sequence[int]) -> Iterator[Block]:
    """Divides a grid into disjoint blocks, in row-major order; the last ones along an axis may be smaller.

    Args:
        grid: Samples per axis, ``(N_1, ..., N_D)``.
        size: Largest number of samples of a block per axis.

    >>> [[(along.start, along.stop) for along in block] for block in grid_blocks((3, 2), (2, 2))]
    [[(0, 2), (0, 2)], [(2, 3), (0, 2)]]
    """
    if len(grid) != len(size) or any(n < 1 for n in size):
        raise InputError(f"a block has one size >= 1 per axis of the grid {tuple(grid)}; got {tuple(size)}")
    cuts = [[slice(first, min(first + n, end)) for first in range(0, end, n)] for end, n in zip(grid, size, strict=True)]
    yield from itertools.product(*cuts)


def row_blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Divides the first axis of an array of this shape, in order, so that temporary copies of a block stay small.

    A block has about :data:`ROW_BLOCK_VALUES` values, and one row at least.

    >>> [(rows.start, rows.stop) for rows in row_blocks((5, 512, 1024))]
    [(0, 2), (2, 4), (4, 5)]
    """
    rows = max(1, ROW_BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for first in range(0, shape[0], rows):
        yield slice(first, min(first + rows, shape[0]))


def grid_axes(shape: Sequence[int], dtype: torch.dtype = torch.float32, cells: Sequence[float] = ()) -> tuple[Tensor, ...]:
    """Coordinate vectors of a grid: ``i/N`` for ``i = 0..N-1``, computed in float64 and rounded once.

    Args:
        shape: Number of samples per axis, ``(N_1, ..., N_D)``.
        dtype: Dtype of the result.
        cells: Lengths of the cells of the fitted samples, where these are means over cells. The first of them has its centre
            at 0 and begins half a cell before it; the cells of this grid divide the same extent, and have their centres
            where those of the fit have: ``(i + 1/2)/N`` from its beginning.

    Returns:
        ``D`` vectors, axis a of shape ``(N_a,)``.

    >>> grid_axes((2, 4))
    (tensor([0.0000, 0.5000]), tensor([0.0000, 0.2500, 0.5000, 0.7500]))
    >>> grid_axes((4,), cells=[0.5])
    (tensor([-0.1250,  0.1250,  0.3750,  0.6250]),)
    """
    begins = [0.5 / n - cell / 2 for n, cell in zip(shape, cells, strict=True)] if cells else [0.0] * len(shape)
    each = zip(shape, begins, strict=True)
    return tuple((torch.arange(n, dtype=torch.float64) / n + begin).to(dtype) for n, begin in each)


def point_coordinates(axes: Sequence[Tensor], index: Tensor) -> Tensor:
    """Coordinates of the samples of a grid at row-major positions ``index``.

    Args:
        axes: ``D`` coordinate vectors, axis a of shape ``(N_a,)``.
        index: ``(*batch,)`` integers below ``N_1 * ... * N_D``.

    Returns:
        ``(*batch, D)``.
    """
    grid = [len(axis) for axis in axes]
    if index.device.type != "cpu":
        positions = torch.unravel_index(index, tuple(grid))
    else:  # faster on the CPU: NumPy divides by a constant with multiplications
        rest, found = index.numpy(), []
        for axis in range(len(grid)):
            step = math.prod(grid[axis + 1 :])
            along = rest // step
            rest = rest - along * step
            found.append(torch.as_tensor(along))
        positions = tuple(found)
    columns = [
        axis.index_select(0, along.flatten().to(axis.device)).view(index.shape)
        for axis, along in zip(axes, positions, strict=True)
    ]
    return torch.stack(columns, dim=-1)

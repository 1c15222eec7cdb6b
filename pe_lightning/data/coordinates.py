"""Coordinates of samples: sample i of N lies at i/N, so coordinates live in [0, 1) and 1 is never reached.

These are the papers' ``linspace(0, 1, N + 1)[:-1]``. The same rule serves output at any other size. A sample's position in a
grid is one row-major number, or one number along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["grid_axes", "point_coordinates", "row_major", "unravelled"]

Position = TypeVar("Position", int, Tensor)


def grid_axes(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """One coordinate vector per axis: ``i/N`` for ``i = 0..N-1``, divided in float64 and rounded once.

    Args:
        shape: Number of samples per axis, ``(N_1, ..., N_D)``.
        dtype: Of the result.

    Returns:
        ``D`` vectors, axis a of shape ``(N_a,)``.

    >>> grid_axes((2, 4))
    (tensor([0.0000, 0.5000]), tensor([0.0000, 0.2500, 0.5000, 0.7500]))
    """
    return tuple((torch.arange(n, dtype=torch.float64) / n).to(dtype) for n in shape)


def point_coordinates(axes: Sequence[Tensor], index: Tensor) -> Tensor:
    """Coordinates of the samples of a grid at row-major positions ``index``.

    Args:
        axes: ``D`` coordinate vectors, axis a of shape ``(N_a,)``.
        index: ``(*batch,)`` integers below ``N_1 * ... * N_D``.

    Returns:
        ``(*batch, D)``.
    """
    columns = [
        axis.index_select(0, along.flatten().to(axis.device)).view(index.shape)
        for axis, along in zip(axes, unravelled(index, [len(axis) for axis in axes]), strict=True)
    ]
    return torch.stack(columns, dim=-1)


def unravelled(index: Tensor, grid: Sequence[int]) -> Iterator[Tensor]:
    """The positions along each axis of samples at row-major positions, as :func:`torch.unravel_index`.

    Args:
        index: ``(*batch,)`` integers below ``N_1 * ... * N_D``.
        grid: Samples per axis, ``(N_1, ..., N_D)``.

    Yields:
        ``(*batch,)`` for each axis.
    """
    if index.device.type != "cpu":
        yield from torch.unravel_index(index, tuple(grid))
        return
    rest = index.numpy()  # NumPy divides by a single number by multiplying, in a fifth of torch's time
    for axis in range(len(grid)):
        step = math.prod(grid[axis + 1 :])
        along = rest // step
        rest = rest - along * step
        yield torch.from_numpy(np.asarray(along))


def row_major(place: Iterable[Position], grid: Sequence[int]) -> Position:
    """The row-major position in a grid of samples at the given positions along its axes.

    Args:
        place: ``D`` integers, or ``D`` tensors of them, each ``(*batch,)``.
        grid: Samples per axis, ``(N_1, ..., N_D)``.

    >>> row_major((1, 2), (3, 4))
    6
    """
    positions = iter(place)
    result = next(positions)
    for along, n in zip(positions, grid[1:], strict=True):
        result = result * n + along
    return result

"""Coordinates of samples, as in the papers: sample i of N lies at i/N, so coordinates are in [0, 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["grid_axes", "point_coordinates"]


def grid_axes(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Coordinate vectors of a grid: ``i/N`` for ``i = 0..N-1``, computed in float64 and rounded once.

    Args:
        shape: Number of samples per axis, ``(N_1, ..., N_D)``.
        dtype: Dtype of the result.

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

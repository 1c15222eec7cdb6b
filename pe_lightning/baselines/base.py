"""The contract of an interpolation, and the registry of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.errors import InputError
from pe_lightning.linalg import full_precision, mode_products
from pe_lightning.registry import Registry

__all__ = ["GridInterpolation", "Interpolation", "baselines", "interpolate"]

BLOCK_NUMBERS = 1 << 24
"""Signals are interpolated in turns of about so many numbers of output."""


class Interpolation:
    """Fills a grid from training samples, without anything to fit or choose.

    A subclass defines :meth:`from_grid`, :meth:`from_points`, or both. Neither extrapolates: past the outermost training
    samples of an axis the border is replicated; outside the hull of scattered points the nearest is taken.
    """

    def from_grid(self, values: Tensor, training: Sequence[Tensor], axes: Sequence[Tensor]) -> Tensor:
        """Values on a grid from values on another.

        Args:
            values: ``(S, n_1, ..., n_D, C)``.
            training: Their coordinates, axis a of shape ``(n_a,)``, ascending.
            axes: Output coordinates, axis a of shape ``(N_a,)``.

        Returns:
            ``(S, N_1, ..., N_D, C)``, of the dtype and on the device of ``values``.
        """
        raise InputError(f"{self._name()} interpolates scattered points; for training samples on a grid use linear")

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor], spacing: Sequence[float]) -> Tensor:
        """Values on a grid from values at scattered points.

        Args:
            values: ``(S, P, C)``.
            coords: ``(S or 1, P, D)``.
            axes: Output coordinates, axis a of shape ``(N_a,)``.
            spacing: What counts as one unit of distance along each axis.

        Returns:
            ``(S, N_1, ..., N_D, C)``, of the dtype and on the device of ``values``.
        """
        raise InputError(f"{self._name()} interpolates samples of a grid; for scattered training points use delaunay")

    def _name(self) -> str:
        return baselines.name_of(type(self))


baselines: Registry[Interpolation] = Registry("baseline", Interpolation, "pe_lightning.baselines")


class GridInterpolation(Interpolation, ABC):
    """Interpolation on a grid by one matrix per axis, applied by mode products."""

    @abstractmethod
    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Weights of the training samples of one axis at other coordinates.

        Args:
            training: ``(n,)`` float64, ascending.
            x: ``(N,)`` float64.

        Returns:
            ``(N, n)``; every row sums to one.
        """

    def from_grid(self, values: Tensor, training: Sequence[Tensor], axes: Sequence[Tensor]) -> Tensor:
        """One mode product per axis."""
        matrices = []
        for a, (known, x) in enumerate(zip(training, axes, strict=True)):
            known, x = known.double().contiguous(), x.double().contiguous()
            if len(known) > 1 and not bool((known.diff() > 0).all()):
                raise InputError(f"axis {a}: the coordinates of the training samples must ascend")
            matrices.append(self.matrix(known, x).to(values))
        columns = values.movedim(-1, 1)
        rows = max(1, BLOCK_NUMBERS // max(1, columns.shape[1] * math.prod(len(x) for x in axes)))
        with full_precision(values.device):
            parts = [mode_products(part, matrices).movedim(1, -1) for part in torch.split(columns, rows)]
        return torch.cat(parts)


def interpolate(name: str, batch: GridBatch | PointBatch, axes: Sequence[Tensor]) -> Tensor:
    """Predicts the values on a grid from a training batch, by a named interpolation.

    Args:
        name: ``nearest``, ``linear``, ``bicubic`` or ``spline`` for a sub-grid; ``nearest`` or ``delaunay`` for scattered
            points; or a registered name of your own.
        batch: The training samples.
        axes: Coordinates of the output, axis a of shape ``(N_a,)``.

    Returns:
        ``(S, N_1, ..., N_D, C)``; not clamped, so that cubic methods may leave [0, 1].

    Raises:
        InputError: If there is no such interpolation, or it is not for this kind of batch or number of axes.
    """
    method = baselines.create(name)
    num_axes = len(batch.axes) if isinstance(batch, GridBatch) else batch.coords.shape[-1]
    if len(axes) != num_axes:
        raise InputError(f"the training samples have {num_axes} axes, the output has {len(axes)}")
    if isinstance(batch, GridBatch):
        return method.from_grid(batch.values, batch.axes, axes)
    # samples of a grid are compared in units of its spacing, so that a pixel is as wide as it is high
    grid = batch.axes if batch.axes is not None else axes
    square = batch.axes is not None and batch.index is not None
    spacing = [1 / len(x) if square else 1.0 for x in grid]
    return method.from_points(batch.values, batch.coords, axes, spacing)

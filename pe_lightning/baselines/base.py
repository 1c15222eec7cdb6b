"""The contract of an interpolation, and the registry of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.errors import InputError
from pe_lightning.linalg import full_precision, mode_products
from pe_lightning.registry import Registry

__all__ = ["Interpolation", "baselines", "interpolate"]

LIMIT = 1 << 24
"""Signals are interpolated a few at a time, about so many numbers of output at once."""


class Interpolation:
    """Fills a grid from training samples, without anything to fit or choose.

    A subclass defines :meth:`matrix` (or :meth:`from_grid`), :meth:`from_points`, or both. Neither extrapolates: past the
    outermost training samples of an axis the border is replicated; outside the hull of scattered points the nearest is
    taken.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Weights of the training samples of one axis at other coordinates.

        Args:
            training: ``(n,)`` float64, ascending.
            x: ``(N,)`` float64.

        Returns:
            ``(N, n)``; every row sums to one.
        """
        raise InputError(
            f"{baselines.name_of(type(self))} interpolates scattered points; for training samples on a grid use linear"
        )

    def from_grid(self, values: Tensor, training: Sequence[Tensor], axes: Sequence[Tensor]) -> Tensor:
        """Values on a grid from values on another: one mode product per axis.

        Args:
            values: ``(S, n_1, ..., n_D, C)``.
            training: Their coordinates, axis a of shape ``(n_a,)``, ascending.
            axes: Output coordinates, axis a of shape ``(N_a,)``.

        Returns:
            ``(S, N_1, ..., N_D, C)``, of the dtype and on the device of ``values``.
        """
        matrices = []
        for a, (known, x) in enumerate(zip(training, axes, strict=True)):
            known, x = known.double().contiguous(), x.double().contiguous()
            if not bool((known.diff() > 0).all()):
                raise InputError(f"axis {a}: the coordinates of the training samples must ascend")
            matrices.append(self.matrix(known, x).to(values))
        columns = values.movedim(-1, 1)
        count = max(1, LIMIT // max(1, columns.shape[1] * math.prod(len(x) for x in axes)))
        with full_precision(values.device):
            return torch.cat([mode_products(some, matrices).movedim(1, -1) for some in torch.split(columns, count)])

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor]) -> Tensor:
        """Values on a grid from values at scattered points.

        Args:
            values: ``(S, P, C)``.
            coords: ``(S or 1, P, D)`` float64 on the CPU, in units in which a distance is the same along each axis.
            axes: Output coordinates, likewise, axis a of shape ``(N_a,)``.

        Returns:
            ``(S, N_1, ..., N_D, C)``, of the dtype and on the device of ``values``.
        """
        raise InputError(
            f"{baselines.name_of(type(self))} interpolates samples of a grid; for scattered training points use delaunay"
        )


baselines: Registry[Interpolation] = Registry("baseline", Interpolation, "pe_lightning.baselines")


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
    coords, axes = batch.coords.cpu().double(), [x.cpu().double() for x in axes]
    if batch.axes is not None and batch.index is not None:
        # samples of a grid are compared in units of its spacing, so that a pixel is as wide as it is high
        sizes = [len(x) for x in batch.axes]
        coords, axes = coords * coords.new_tensor(sizes), [x * n for x, n in zip(axes, sizes, strict=True)]
    return method.from_points(batch.values, coords, axes)

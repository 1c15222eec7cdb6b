"""Interpolation: what a reader would use instead of any encoding, and a row of every table.

>>> from pe_lightning.baselines import interpolate, names
>>> from pe_lightning.data import TensorDataModule
>>> names()
['bicubic', 'delaunay', 'linear', 'nearest', 'spline']
>>> data = TensorDataModule(torch.rand(2, 16, 16, 3))
>>> tuple(interpolate("bicubic", data.train_batch(), data.evaluation_batch().axes).shape)
(2, 16, 16, 3)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.interpolate import CubicSpline, LinearNDInterpolator
from scipy.spatial import Delaunay as Triangulation
from scipy.spatial import QhullError, cKDTree
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.errors import InputError
from pe_lightning.linalg import full_precision, mode_products
from pe_lightning.registry import Registry

__all__ = ["Interpolation", "baselines", "interpolate", "names"]

Array = np.ndarray[Any, np.dtype[np.float64]]
LIMIT = 1 << 24
"""Signals are interpolated a few at a time, about so many numbers of output at once."""


class Interpolation:
    """Fills a grid from training samples, without anything to fit or choose.

    A subclass defines :meth:`matrix` (or :meth:`from_grid`), :meth:`from_points`, or both. Neither extrapolates: past the
    outermost training samples of an axis the border is replicated; outside the hull of scattered points the nearest is
    taken.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Weights ``(N, n)`` of the training samples of an axis, at ascending coordinates ``(n,)``, at others ``(N,)``."""
        raise InputError(f"{baselines.name_of(type(self))} interpolates scattered points; on a grid use linear")

    def from_grid(self, values: Tensor, training: Sequence[Tensor], axes: Sequence[Tensor]) -> Tensor:
        """Values on a grid ``(S, n_1, ..., n_D, C)`` -> on another ``(S, N_1, ..., N_D, C)``: a mode product per axis."""
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
        """Values at scattered points ``(S, P, C)`` -> on a grid ``(S, N_1, ..., N_D, C)``.

        ``coords`` ``(S or 1, P, D)`` and ``axes`` are float64 on the CPU, in units that are the same along each axis.
        """
        raise InputError(f"{baselines.name_of(type(self))} interpolates samples of a grid; for points use delaunay")


baselines: Registry[Interpolation] = Registry("baseline", Interpolation, "pe_lightning.baselines")
names = baselines.names


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


def _cells(training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The training sample to the left of each coordinate, and the position between it and the next, in [0, 1]."""
    inside = x.clamp(training[0], training[-1])
    left = (torch.searchsorted(training, inside, right=True) - 1).clamp(0, max(len(training) - 2, 0))
    right = (left + 1).clamp_max(len(training) - 1)
    gap = training[right] - training[left]
    return left, torch.where(gap > 0, (inside - training[left]) / torch.where(gap > 0, gap, 1.0), 0.0)


def _place(columns: Tensor, weights: Tensor, size: int) -> Tensor:
    """A matrix ``(N, size)`` with ``weights`` ``(N, m)`` in ``columns`` ``(N, m)``; past the ends, in the last column."""
    matrix = weights.new_zeros(len(weights), size)
    return matrix.scatter_add_(1, columns.clamp(0, size - 1), weights)


@baselines.register("nearest")
class Nearest(Interpolation):
    """The value of the nearest training sample; halfway between two, the one on the left.

    Scattered points: by Euclidean distance, in samples if the points are samples of a grid.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """One 1 per row."""
        left, beta = _cells(training, x)
        # midpoints often lie on a rounding error's other side
        return _place((left + (beta > 0.5 + 1e-6))[:, None], torch.ones_like(x)[:, None], len(training))

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor]) -> Tensor:
        """The nearest of the scattered points."""
        return _fill(values, coords, axes, lambda points, known, wanted: known[cKDTree(points).query(wanted)[1]])


@baselines.register("linear")
class Linear(Interpolation):
    """Linear interpolation along each axis: bilinear on images (25.41 dB on every second sample of 16 photographs)."""

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Two weights per row."""
        left, beta = _cells(training, x)
        return _place(torch.stack([left, left + 1], 1), torch.stack([1 - beta, beta], 1), len(training))


@baselines.register("bicubic")
class CubicConvolution(Interpolation):
    r"""Keys' cubic convolution, :math:`a = -1/2`, along each axis: bicubic on images (25.59 dB on the 16 photographs).

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Four weights per row: Catmull-Rom."""
        if len(training) > 2 and not torch.allclose(training.diff(), training.diff().mean(), rtol=1e-3):
            raise InputError("bicubic needs evenly spaced training samples on every axis; use linear or spline")
        spacing = training.diff().mean() if len(training) > 1 else torch.ones_like(training[0])
        # unlike the others it looks past the border, at replicated samples, so coordinates are not moved
        position = (x - training[0]) / spacing
        left = (position + 1e-6).floor()  # a coordinate a rounding error below a sample is on it
        u = position - left
        v = 1 - u
        weights = (-u * v * v / 2, 1 + u * u * (3 * u - 5) / 2, 1 + v * v * (3 * v - 5) / 2, -v * u * u / 2)
        columns = left.long()[:, None] + torch.arange(-1, 3, device=x.device)
        return _place(columns, torch.stack(weights, 1), len(training))


@baselines.register("spline")
class Spline(Interpolation):
    """The interpolating cubic spline along each axis, twice continuously differentiable, with not-a-knot ends.

    Border replicated: past the outermost training samples their values hold, where the polynomial would run away.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Dense: every sample has a say everywhere, falling by the factor 3.7 per sample."""
        if len(training) < 3:
            return Linear().matrix(training, x)
        knots, inside = training.cpu().numpy(), x.clamp(training[0], training[-1]).cpu().numpy()
        return torch.from_numpy(CubicSpline(knots, np.eye(len(knots)))(inside)).to(x.device)


@baselines.register("delaunay")
class Delaunay(Interpolation):
    """Linear interpolation on the Delaunay triangulation of scattered points; in 1-D, between neighbours.

    Outside the hull of the points the nearest point's value is taken. 25 % of the 16 photographs: 23.37 dB.
    """

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor]) -> Tensor:
        """One triangulation per set of points; the triangles depend on the units."""
        if len(axes) > 3:
            raise InputError(f"delaunay takes up to 3 axes, the signals have {len(axes)}; use nearest")
        return _fill(values, coords, axes, self._interpolate)

    @staticmethod
    def _interpolate(points: Array, known: Array, wanted: Array) -> Array:
        if points.shape[1] == 1:
            order = np.argsort(points[:, 0], kind="stable")
            return np.stack([np.interp(wanted[:, 0], points[order, 0], column) for column in known[order].T], -1)
        try:
            triangulation = Triangulation(points)
        except (QhullError, ValueError) as error:
            raise InputError(
                f"delaunay needs at least {points.shape[1] + 1} points that span all axes; these {len(points)} do not "
                f"({str(error).strip().splitlines()[0]}). Train on more samples, or use nearest"
            ) from error
        result: Array = LinearNDInterpolator(triangulation, known)(wanted)
        outside = np.isnan(result).any(1)
        result[outside] = known[cKDTree(points).query(wanted[outside])[1]]
        return result


def _fill(values: Tensor, coords: Tensor, axes: Sequence[Tensor], method: Callable[[Array, Array, Array], Array]) -> Tensor:
    """:meth:`Interpolation.from_points` by a method: points ``(P, D)``, their values, points of the grid -> its values."""
    wanted = torch.cartesian_prod(*axes).reshape(-1, len(axes)).numpy()
    filled = []
    for points, group in zip(coords.numpy(), values[None] if len(coords) == 1 else values[:, None], strict=True):
        # (signals of this set of points, P, C) -> (P, signals * C)
        known = group.movedim(1, 0).flatten(1).double().cpu().numpy()
        result = torch.from_numpy(method(points, known, wanted))
        filled.append(result.reshape(-1, *group.shape[::2]).movedim(1, 0))
    return torch.cat(filled).reshape(len(values), *(len(x) for x in axes), values.shape[-1]).to(values)

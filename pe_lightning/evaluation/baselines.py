"""Interpolation of the training samples: runs and ``pe-lightning suggest`` show all registered baselines that apply.

>>> from pe_lightning.evaluation.baselines import interpolate
>>> from pe_lightning.training import TensorDataModule
>>> data = TensorDataModule(torch.rand(2, 16, 16, 3))
>>> tuple(interpolate("bicubic", data.train_batch(), data.evaluation_batch().axes).shape)
(2, 16, 16, 3)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from scipy.interpolate import CubicSpline, LinearNDInterpolator
from scipy.spatial import Delaunay as Triangulation
from scipy.spatial import QhullError, cKDTree
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.blocks import grid_blocks
from pe_lightning.signals.splits import GridSplit, Split

BaselineChoice: TypeAlias = Literal["none", "fast", "all"]
"""Which baselines a run computes: ``fast`` are those that :func:`refuse_slow` lets pass."""

Array = np.ndarray[Any, np.dtype[np.float64]]
MAX_OUTPUT_VALUES = 1 << 24
"""Output values computed at once."""
POSITION_TOLERANCE = 1e-6
"""Rounding error of positions, in samples."""


class Interpolation:
    """Predicts values from training samples.

    A subclass defines :meth:`weights` (or :meth:`along`, or :meth:`from_grid`) and sets :attr:`on_grids`, or defines
    :meth:`scattered` (or :meth:`from_points`) and sets :attr:`on_points`, or both. No method extrapolates: beyond the
    outermost samples of an axis, and outside the convex hull of scattered points, the nearest value continues.
    """

    on_grids: ClassVar[bool] = False
    """Whether it interpolates training samples on a grid."""
    on_points: ClassVar[bool] = False
    """Whether it interpolates scattered training samples."""
    num_axes: ClassVar[tuple[int, ...]] = ()
    """Numbers of axes that it takes; empty: any."""
    program: ClassVar[str] = ""
    """The equal function of a public library; tables name it where it is ahead of a fit."""
    fast_places: ClassVar[Mapping[int, int]] = {}
    """The most places between scattered samples, by the number of axes, that take no longer than a fit."""

    def applies_to(self, info: SignalInfo, split: Split) -> bool:
        """Whether tables show this baseline for signals of this shape and these training samples."""
        if isinstance(split, GridSplit):
            return self.on_grids
        return self.on_points and (not self.num_axes or info.num_axes in self.num_axes)

    def weights(self, training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Indices, which :meth:`along` clamps, and weights of the ``m`` samples whose weighted sum is each value.

        Args:
            training: Ascending coordinates of the training samples of one axis, ``(n,)`` float64.
            x: Coordinates of the output, ``(N,)`` float64.

        Returns:
            ``(N, m)`` each.
        """
        raise NotImplementedError

    def along(self, values: Tensor, training: Tensor, x: Tensor, axis: int) -> Tensor:
        """Interpolates along an axis: values ``(..., n, ...)`` at ``training`` -> ``(..., N, ...)`` at ``x``."""
        numbers, weights = self.weights(training, x)
        shape = [-1 if a == axis else 1 for a in range(values.ndim)]
        columns = zip(numbers.clamp(0, len(training) - 1).T, weights.to(values.dtype).T, strict=True)
        terms = (values.index_select(axis, number).mul_(weight.view(shape)) for number, weight in columns)
        return reduce(Tensor.add_, terms)

    def from_grid(self, values: Tensor, training: Sequence[Tensor], axes: Sequence[Tensor]) -> Tensor:
        """Interpolates from grid to grid, axis by axis: ``(S, n_1, ..., n_D, C)`` -> ``(S, N_1, ..., N_D, C)``."""
        pairs = [(known.double().contiguous(), x.double().contiguous()) for known, x in zip(training, axes, strict=True)]
        count = max(1, MAX_OUTPUT_VALUES // max(1, values.shape[-1] * math.prod(len(x) for x in axes)))
        blocks = torch.split(values, count)
        for a, (known, x) in enumerate(pairs):
            blocks = tuple(self.along(block, known, x, 1 + a) for block in blocks)
        return torch.cat(blocks)

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor] | Tensor) -> Tensor:
        """Interpolates from scattered points to a grid or to points.

        Args:
            values: Values at the points, ``(S, P, C)``.
            coords: The points, ``(S or 1, P, D)`` float64 on the CPU, in the same unit of length along all axes.
            axes: Coordinates of the output per axis, or points ``(Q, D)``, in the same unit.

        Returns:
            ``(S, N_1, ..., N_D, C)`` or ``(S, Q, C)``.
        """
        at_points = isinstance(axes, Tensor)
        wanted = (axes if isinstance(axes, Tensor) else torch.cartesian_prod(*axes).reshape(-1, len(axes))).numpy()
        shape = (len(wanted),) if at_points else tuple(len(x) for x in axes)
        filled = []
        for points, group in zip(coords.numpy(), values[None] if len(coords) == 1 else values[:, None], strict=True):
            # (signals of this set of points, P, C) -> (P, signals * C)
            known = group.movedim(1, 0).flatten(1).double().cpu().numpy()
            distance, near = cKDTree(points).query(wanted)
            result, unseen = known[near], distance > 1e-9  # every method takes the value of a sample at its place
            result[unseen] = self.scattered(points, known, wanted[unseen])
            filled.append(torch.from_numpy(result).reshape(-1, *group.shape[::2]).movedim(1, 0))
        return torch.cat(filled).reshape(len(values), *shape, values.shape[-1]).to(values)

    def scattered(self, points: Array, known: Array, wanted: Array) -> Array:
        """Points ``(P, D)``, their values ``(P, V)``, other points ``(Q, D)`` -> values ``(Q, V)``."""
        raise NotImplementedError


baselines: Registry[Interpolation] = Registry("baseline", Interpolation, "pe_lightning.baselines")
names = baselines.names


def refuse_slow(name: str, info: SignalInfo, split: Split) -> None:
    """Raises InputError for a baseline that takes longer than a fit.

    It follows from the numbers of samples alone, so that all runs of a signal have the same baselines.
    """
    most = baselines.create(name).fast_places.get(info.num_axes)
    if most is None or isinstance(split, GridSplit):
        return
    samples = math.prod(info.grid) if info.num_points is None else info.num_points
    sets = len(split.train_mask(tuple(slice(0, 1) for _ in split.grid)))  # signals may share their points
    if (places := sets * (samples - split.num_train)) > most:
        raise InputError(f"slow for {places:,} places; fit --trainer.callbacks.baselines all computes it")


def interpolate(name: str, batch: GridBatch | PointBatch, axes: Sequence[Tensor] | Tensor) -> Tensor:
    """Interpolates a training batch.

    Args:
        name: A registered name: ``nearest``, ``linear``, ``bicubic`` or ``spline`` for samples on a grid; ``nearest``,
            ``delaunay`` and those of other packages for scattered points.
        batch: The training samples.
        axes: Coordinates of the output, axis a of shape ``(N_a,)``; from scattered points also points ``(Q, D)``.

    Returns:
        ``(S, N_1, ..., N_D, C)``, or ``(S, Q, C)`` at points, not clamped: cubic methods can overshoot [0, 1].
    """
    method, on_grid = baselines.create(name), isinstance(batch, GridBatch)
    num_axes = len(batch.axes) if isinstance(batch, GridBatch) else batch.coords.shape[-1]
    fits = not isinstance(axes, Tensor) and method.on_grids if on_grid else method.on_points
    if not fits or (method.num_axes and num_axes not in method.num_axes):
        kind = "samples of a grid to a grid" if on_grid else f"scattered points of {num_axes} axes"
        raise InputError(f"{name} does not interpolate {kind}; use {'linear' if on_grid else 'nearest'}")
    try:
        if isinstance(batch, GridBatch):
            return method.from_grid(batch.values, batch.axes, list(axes))
        # lengths are measured in samples of the grid, so that pixels are square
        sizes = (1,) * num_axes if batch.axes is None else tuple(len(x) for x in batch.axes)
        unit = torch.tensor(sizes, dtype=torch.float64)
        coords = batch.coords.cpu() * unit
        if isinstance(axes, Tensor):
            return method.from_points(batch.values, coords, axes.cpu() * unit)
        return method.from_points(batch.values, coords, [x.cpu().double() * n for x, n in zip(axes, unit, strict=True)])
    except (ValueError, IndexError, RuntimeError, np.linalg.LinAlgError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        other = "spline" if on_grid else "nearest"
        raise InputError(f"{name} cannot interpolate these samples ({reason}); use {other}, or more samples") from error


def _cells(training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the sample to the left of each coordinate, and the position in the interval, in [0, 1]."""
    inside = x.clamp(training[0], training[-1])
    left = (torch.searchsorted(training, inside, right=True) - 1).clamp(0, max(len(training) - 2, 0))
    right = (left + 1).clamp_max(len(training) - 1)
    gap = training[right] - training[left]
    return left, torch.where(gap > 0, (inside - training[left]) / torch.where(gap > 0, gap, 1.0), 0.0)


@baselines.register("nearest")
class Nearest(Interpolation):
    """The value of the nearest training sample, by Euclidean distance; at midpoints of a grid, of the left one."""

    program = "scipy.interpolate.NearestNDInterpolator"
    on_grids = on_points = True

    def weights(self, training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        left, beta = _cells(training, x)
        return (left + (beta > 0.5 + POSITION_TOLERANCE))[:, None], torch.ones_like(x)[:, None]

    def scattered(self, points: Array, known: Array, wanted: Array) -> Array:
        nearest: Array = known[cKDTree(points).query(wanted)[1]]
        return nearest


@baselines.register("linear")
class Linear(Interpolation):
    """Linear interpolation along each axis: bilinear on images."""

    program = "scipy.interpolate.RegularGridInterpolator"
    on_grids = True

    def weights(self, training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        left, beta = _cells(training, x)
        return torch.stack([left, left + 1], 1), torch.stack([1 - beta, beta], 1)


@baselines.register("bicubic")
class CubicConvolution(Interpolation):
    r"""Keys' cubic convolution with :math:`a = -1/2` along each axis: bicubic on images.

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981.
    """

    on_grids = True

    def weights(self, training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        if len(training) > 2 and not torch.allclose(training.diff(), training.diff().mean(), rtol=1e-3, atol=2**-23):
            raise ValueError("they are not evenly spaced on every axis")
        spacing = training.diff().mean() if len(training) > 1 else torch.ones_like(training[0])
        # coordinates are not clamped: beyond the border the kernel is applied to replicated samples
        position = (x - training[0]) / spacing
        left = (position + POSITION_TOLERANCE).floor()
        u = position - left
        v = 1 - u
        weights = (-u * v * v / 2, 1 + u * u * (3 * u - 5) / 2, 1 + v * v * (3 * v - 5) / 2, -v * u * u / 2)
        return left.long()[:, None] + torch.arange(-1, 3, device=x.device), torch.stack(weights, 1)


@baselines.register("spline")
class Spline(Interpolation):
    """The interpolating cubic spline along each axis, with not-a-knot ends."""

    program = "scipy.interpolate.CubicSpline"
    on_grids = True

    def along(self, values: Tensor, training: Tensor, x: Tensor, axis: int) -> Tensor:
        if len(training) < 3:
            return Linear().along(values, training, x, axis)
        knots, inside = training.cpu().numpy(), x.clamp(training[0], training[-1]).cpu().numpy()
        columns = values.movedim(axis, -1)
        rows = columns.reshape(-1, len(knots))
        made = rows.new_empty(len(rows), len(inside))
        for some in grid_blocks([len(rows)], [max(1, MAX_OUTPUT_VALUES // (8 * len(inside)))]):  # SciPy makes several copies
            made[some] = torch.from_numpy(CubicSpline(knots, rows[some].double().cpu().numpy(), 1)(inside)).to(made)
        return made.reshape(*columns.shape[:-1], -1).movedim(-1, axis)


@baselines.register("delaunay")
class Delaunay(Interpolation):
    """Linear interpolation on the Delaunay triangulation of scattered points; in 1-D, between neighbours."""

    program = "scipy.interpolate.LinearNDInterpolator"
    on_points = True
    num_axes: ClassVar[tuple[int, ...]] = (1, 2, 3)
    fast_places: ClassVar[Mapping[int, int]] = {3: 50_000}
    interpolator: ClassVar[Any] = LinearNDInterpolator

    def scattered(self, points: Array, known: Array, wanted: Array) -> Array:
        if points.shape[1] == 1:
            order = np.argsort(points[:, 0], kind="stable")
            return np.stack([np.interp(wanted[:, 0], points[order, 0], column) for column in known[order].T], -1)
        try:
            triangulation = Triangulation(points)
        except (QhullError, ValueError) as error:
            raise ValueError(f"at least {points.shape[1] + 1} points that span all axes are needed") from error
        result: Array = self.interpolator(triangulation, known)(wanted)
        outside = np.isnan(result).any(1)
        result[outside] = known[cKDTree(points).query(wanted[outside])[1]]
        return result

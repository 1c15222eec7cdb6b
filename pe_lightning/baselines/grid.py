"""Interpolation on grids of any number of axes: a matrix per axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.baselines.base import GridInterpolation, baselines
from pe_lightning.baselines.points import fill_nearest
from pe_lightning.errors import InputError

__all__ = ["CubicConvolution", "Linear", "Nearest", "Spline"]


def _cells(training: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The training sample to the left of each coordinate, and the position between it and the next, in [0, 1].

    Coordinates past the outermost samples are moved to them: the border is replicated.
    """
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
class Nearest(GridInterpolation):
    """The value of the nearest training sample; halfway between two, the one on the left.

    Scattered points: by Euclidean distance, in samples if the points are samples of a grid.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """One 1 per row."""
        left, beta = _cells(training, x)
        # midpoints often lie on a rounding error's other side
        return _place((left + (beta > 0.5 + 1e-6))[:, None], torch.ones_like(x)[:, None], len(training))

    def from_points(self, values: Tensor, coords: Tensor, axes: Sequence[Tensor], spacing: Sequence[float]) -> Tensor:
        """The nearest of the scattered points."""
        return fill_nearest(values, coords, axes, spacing)


@baselines.register("linear")
class Linear(GridInterpolation):
    """Linear interpolation along each axis: bilinear on images, trilinear on volumes. Border replicated.

    On 16 photographs, every second sample of each axis trained on: 25.41 dB.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Two weights per row."""
        left, beta = _cells(training, x)
        return _place(torch.stack([left, left + 1], 1), torch.stack([1 - beta, beta], 1), len(training))


@baselines.register("bicubic")
class CubicConvolution(GridInterpolation):
    r"""Keys' cubic convolution, :math:`a = -1/2`, along each axis: bicubic interpolation on images. Border replicated.

    What most software calls bicubic (with this ``a``; some take -3/4). On 16 photographs, every second sample of each axis
    trained on: 25.59 dB, more than any encoder of the papers as a linear model.

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
class Spline(GridInterpolation):
    """The interpolating cubic spline along each axis, twice continuously differentiable, with not-a-knot ends.

    Border replicated: past the outermost training samples their values hold, where the polynomial would run away.
    """

    def matrix(self, training: Tensor, x: Tensor) -> Tensor:
        """Dense: every sample has a say everywhere, falling by the factor 3.7 per sample."""
        n, (left, beta) = len(training), _cells(training, x)
        if n < 3:
            return Linear().matrix(training, x)
        curvature = _second_derivatives(training)
        right, alpha = left + 1, 1 - beta
        gap = (training[right] - training[left])[:, None]
        bend = (alpha**3 - alpha)[:, None] * curvature[left] + (beta**3 - beta)[:, None] * curvature[right]
        straight = _place(torch.stack([left, right], 1), torch.stack([alpha, beta], 1), n)
        return straight + gap.square() / 6 * bend


def _second_derivatives(t: Tensor) -> Tensor:
    """The matrix ``(n, n)`` from values at the knots ``t`` to the second derivatives of their cubic spline there."""
    n, h = len(t), t.diff()
    left, right = t.new_zeros(n, n), t.new_zeros(n, n)
    inner = torch.arange(1, n - 1, device=t.device)
    before, after = h[:-1], h[1:]
    # equal slopes on both sides of each inner knot
    left[inner, inner - 1], left[inner, inner], left[inner, inner + 1] = before, 2 * (before + after), after
    right[inner, inner - 1], right[inner, inner + 1] = 6 / before, 6 / after
    right[inner, inner] = -6 / before - 6 / after
    if n == 3:  # one parabola: its second derivative is constant
        left[0, 0], left[0, 1] = 1, -1
        left[2, 2], left[2, 1] = 1, -1
    else:  # not a knot: equal third derivatives on both sides of the second and the last but one
        left[0, 0], left[0, 1], left[0, 2] = h[1], -h[0] - h[1], h[0]
        left[-1, -1], left[-1, -2], left[-1, -3] = h[-2], -h[-1] - h[-2], h[-1]
    derivatives: Tensor = torch.linalg.solve(left, right)
    return derivatives

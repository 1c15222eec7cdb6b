r"""The adaptive fit of one axis: linear, cubic and spline interpolation, mixed by how well each predicts trained samples.

Every method predicts each trained sample from others at twice and at four times their spacing, at the midpoint. A signal is
rougher at a larger spacing, which favours methods of high order. The gain of one method over another, in dB, is therefore
extrapolated: at twice the spacing, plus half of its change since four times the spacing where that is negative. The weights
are a logistic function of the gain whose width is the standard error of a ratio of errors, :math:`\propto 1 / \sqrt{n}`.

Predictions at twice the spacing say nothing about a signal that oscillates faster than they can show, such as a pure tone.
Where the autocorrelation of the trained samples shows that, the spline is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

TAPS = range(-7, 9)
"""Trained samples that a value depends on, counted from the one on its left."""
SPLINE_POLE = math.sqrt(3) - 2
"""Pole of the filter from samples to the coefficients of a cubic B-spline."""
MIN_GAIN_DB = 0.1
"""Gain over the method of lower order at which both have the same weight."""
GAIN_WIDTH_DB = 2.0
"""Width of the logistic function, times the root of the number of trained samples."""
MIN_AUTOCORRELATION = (-0.1, -0.7)
"""Autocorrelations at distances of one and two samples, below which the spline is taken."""
MAX_CURVATURE = 0.25
"""Largest ratio of the mean squared second and first differences of a signal that is reflected at its ends."""
ERROR_FLOOR = 1e-12
"""Added to mean squared errors."""
POSITION_TOLERANCE = 2.0**-12
"""Rounding error of positions, in samples of the signal, of up to 4096 samples."""
MAX_VALUES = 1 << 23
"""Values that are gathered at once."""


class AdaptiveLine:
    """One signal of one axis, evenly sampled, as a function of its coordinate; continuous, and exact at trained samples.

    A signal that is nearly linear from sample to sample is continued at both ends by reflection in position and value, any
    other by its outermost samples.

    Args:
        values: Trained samples ``(n, C)``.
        size: Samples of the whole signal ``N``: coordinates are positions divided by it.
        first: Position of the first trained sample.
        step: Distance of trained samples.
        ridge: Kept for checkpoints; interpolation has none.

    Attributes:
        mixture: Weights of linear interpolation, cubic convolution and the cubic spline, ``(3,)``; they sum to one.
        error: Mean squared error of the mixture at twice the spacing.

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981; Unser,
    *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999.
    """

    num_members = 3

    def __init__(self, values: Tensor, size: int, first: float, step: float, ridge: float) -> None:
        self.values, self.size, self.first, self.step, self.ridge = values, size, first, step, ridge
        taps = torch.tensor(TAPS, dtype=torch.float64, device=values.device)
        near = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=torch.float64, device=values.device)
        copied = (near[:, None] == taps).double()
        filtered = math.sqrt(3) * SPLINE_POLE ** (near[:, None] - taps).abs()
        # the filter is cut off: each row keeps the sum of the whole one
        self.filters = torch.stack([copied, copied, filtered / filtered.sum(1, keepdim=True)])
        self.taps = taps.long()
        self.padded = self._extended(1 - TAPS[0], 1 + TAPS[-1])
        self.mixture = self._choose()
        half = torch.full((1,), 0.5, dtype=torch.float64, device=values.device)
        weights = torch.einsum("m,mt->t", self.mixture, self.member_weights(half)[:, 0])
        self.error = float(self._errors(weights[None], 2))

    def member_weights(self, offset: Tensor) -> Tensor:
        """Weights of the taps for positions within a cell: ``(P,)`` in [0, 1) -> ``(3, P, T)``, each summing to one."""
        u, v = offset, 1 - offset
        zero = torch.zeros_like(u)
        linear = torch.stack([zero, v, u, zero], -1)
        keys = torch.stack([-u * v * v / 2, 1 + u * u * (3 * u - 5) / 2, 1 + v * v * (3 * v - 5) / 2, -v * u * u / 2], -1)
        spline = torch.stack([v**3, 4 - 3 * u * u * (2 - u), 4 - 3 * v * v * (2 - v), u**3], -1) / 6
        return torch.stack([linear, keys, spline]) @ self.filters.to(offset)

    def _errors(self, weights: Tensor, spacing: int) -> Tensor:
        """Mean squared errors of the midpoints at a larger spacing, in trained samples: ``(M, T)`` -> ``(M,)``."""
        index, last = torch.arange(len(self.values), device=self.values.device), len(self.values) - 1
        errors = []
        for row in weights.tolist():
            residual = -self.values.double()
            for tap, weight in zip(self.taps.tolist(), row, strict=True):
                if weight != 0:
                    at = (index + spacing * tap - spacing // 2).clamp(0, last)
                    residual = residual.add_(self.values[at], alpha=weight)
            errors.append(residual.square().mean())
        return torch.stack(errors)

    def _choose(self) -> Tensor:
        members = torch.eye(3, dtype=torch.float64, device=self.values.device)
        if self._oscillates():
            return members[2]
        weights = self.member_weights(members.new_full((1,), 0.5))[:, 0]
        near, far = (10 * (self._errors(weights, spacing) + ERROR_FLOOR).log10() for spacing in (2, 4))
        mixture, best = members[0], 0
        for member in (1, 2):
            gain, before = float(near[best] - near[member]), float(far[best] - far[member])
            gain = min(gain, gain + (gain - before) / 2)
            width = GAIN_WIDTH_DB / math.sqrt(len(self.values))
            share = 1 / (1 + math.exp(min((MIN_GAIN_DB - gain) / width, 700.0)))
            mixture = (1 - share) * mixture + share * members[member]
            best = member if share > 0.5 else best
        return mixture

    def _oscillates(self) -> bool:
        centred = self.values.double() - self.values.double().mean(0)
        energy = float(centred.square().sum())
        return len(centred) > 4 and any(
            float((centred[:-lag] * centred[lag:]).sum()) < least * energy
            for lag, least in enumerate(MIN_AUTOCORRELATION, 1)
        )

    def _extended(self, before: int, after: int) -> Tensor:
        """The trained samples with further ones before and after them, ``(before + n + after, C)``."""
        values, last = self.values, len(self.values) - 1
        left = torch.arange(before, 0, -1, device=values.device).clamp(max=last)
        right = last - torch.arange(1, after + 1, device=values.device).clamp(max=last)
        first, second = values.double().diff(dim=0), values.double().diff(n=2, dim=0)
        if len(second) == 0 or second.square().mean() >= MAX_CURVATURE * first.square().mean():
            return torch.cat([values[:1].expand(before, -1), values, values[-1:].expand(after, -1)])
        return torch.cat([2 * values[0] - values[left], values, 2 * values[-1] - values[right]])

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, 1)`` in [0, 1), differentiable in them: ``(P, C)``."""
        if len(points) == 0:
            return self.values.new_zeros(0, self.values.shape[-1])
        count = max(1, MAX_VALUES // (len(TAPS) * max(self.num_members, self.values.shape[-1])))
        return torch.cat([self._at(some[:, 0]) for some in torch.split(points, count)])

    def _at(self, x: Tensor) -> Tensor:
        position = x.double() * self.size
        # float32 coordinates of samples are rounded
        rounding = (position.round() - position).detach()
        tolerance = max(POSITION_TOLERANCE, self.size * torch.finfo(torch.float32).eps)
        position = position + torch.where(rounding.abs() <= tolerance, rounding, 0.0)
        place = ((position - self.first) / self.step).clamp(-1, len(self.values))
        cell = place.detach().floor().clamp(max=len(self.values) - 1)
        weights = torch.einsum("m,mpt->pt", self.mixture, self.member_weights(place - cell))
        index = cell.long()[:, None] + self.taps + 1 - TAPS[0]
        return torch.einsum("pt,ptc->pc", weights.to(self.values.dtype), self.padded[index])

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values at the coordinates of the axis, ``(N,)``: ``(N, C)``."""
        return self.at(axes[0][:, None])

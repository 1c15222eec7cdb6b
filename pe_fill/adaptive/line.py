r"""The exact fit of one evenly sampled axis: splines of many degrees, weighted by their leave-one-out errors.

The interpolating spline of degree d, odd, is the kriging predictor whose power spectrum is :math:`|\omega|^{-d-1}`; on the
grid of the samples, at a distance of one, that spectrum folds to

.. math:: T_d(\theta) = \sum_k |\theta + 2 \pi k|^{-d-1} = b_d(\theta) / (2 \sin \theta / 2)^{d+1},

with the symbol :math:`b_d` of the B-spline. Let the matrix K be the covariance of the samples ``y``. The error of
predicting sample i from all others is :math:`(K^{-1} y)_i / (K^{-1})_{ii}`: the samples filtered by :math:`1 / T_d`, divided
by the mean of that filter over :math:`\theta`. These errors are at the spacing of the samples itself. Errors at twice the
spacing rank members upside down for signals that oscillate every few samples. Sums of two spectra are members too: smooth
signals with a rough part.

Weights fall exponentially with the difference between a member's mean squared error and the least one, in standard errors
of that difference. Both ends are continued by linear prediction (Burg's autoregression).

Reference: Unser, *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999; Rasmussen
and Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 5.4.2; Burg, *Maximum Entropy Spectral
Analysis*, 1975.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import next_fast_len
from torch import Tensor
from torch.nn import functional as F

from pe_fill.adaptive.grid import weighted_rows

DEGREES = (1, 3, 5, 7, 9, 13, 17, 25)
"""Degrees of the splines."""
ROUGH, SMOOTH = 1, 9
"""Degrees of the members that are sums of two spectra."""
CROSSOVERS = (0.06, 0.12, 0.25)
"""Frequencies at which the two spectra are equal, relative to the Nyquist frequency of the samples."""
MARGIN = 64
"""Samples that continue the signal at both ends; the outer half tends to the mean of the outermost ones."""
ORDER, MEMORY = 32, 512
"""Coefficients of the linear prediction at most, and the samples that it is estimated from."""
AT_ONCE = 8
"""Samples that one product predicts from the samples before all of them; :data:`MARGIN` is a multiple."""
LINEAR_RATIO, LOCAL_RATIO, EXACT_RATIO = 1 / 16, 0.6, 1e-12
"""Errors of splines below which they interpolate an axis of a grid; see :func:`spline_predictable_axes`."""
MIN_SAMPLES = 8
"""Samples along an axis that is interpolated by splines, at least."""
MAX_WIDTH = 32
"""Lines along an axis that the choice is made with, along each of the other axes."""
TINY = 1e-30
POSITION_TOLERANCE = 2.0**-12
"""Rounding error of positions, in samples of the signal, of up to 4096 samples."""
MAX_VALUES = 1 << 23
"""Values that are gathered at once."""


class AdaptiveLine:
    """One signal ``(n, C)`` of one axis, evenly sampled, as a function of its coordinate; continuous, and exact at samples.

    Samples have the positions ``first + i step`` of ``size``. The mixture holds the weights of the members with sum one,
    ``(M,)``: :data:`DEGREES`, then the sums of :data:`CROSSOVERS`; by default they follow from leave-one-out errors, whose
    mean square is ``error``. The ridge is kept for checkpoints; interpolation has none.
    """

    num_members = len(DEGREES) + len(CROSSOVERS)

    def __init__(
        self, values: Tensor, size: int, first: float, step: float, ridge: float, mixture: Tensor | None = None
    ) -> None:
        self.values, self.size, self.first, self.step, self.ridge = values, size, first, step, ridge
        padded = continued_ends(values.double())
        spectrum = torch.fft.rfft(padded, dim=0)
        symbols, precisions = spectra(len(padded), values.device)
        if mixture is None:
            mixture, self.error = _choose(member_errors(values))
        self.mixture = mixture
        weights, shares = mixture[len(DEGREES) :, None], _shares(precisions)
        filters = mixture[: len(DEGREES), None].repeat(1, len(spectrum))
        filters[DEGREES.index(ROUGH)] += (weights * shares).sum(0)
        filters[DEGREES.index(SMOOTH)] += (weights * (1 - shares)).sum(0)
        largest = dict(zip(DEGREES, filters.amax(1).tolist(), strict=True))
        self.coefficients = {
            degree: torch.fft.irfft(spectrum * response[:, None], len(padded), dim=0)
            for degree, response in zip(DEGREES, filters / symbols, strict=True)
            if largest[degree]
        }
        """B-spline coefficients by degree, ``(MARGIN + n + MARGIN or more, C)`` float64; the splines add up to the field."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, 1)`` in [0, 1), differentiable in them: ``(P, C)``."""
        if len(points) == 0:
            return self.values.new_zeros(0, self.values.shape[-1])
        count = max(1, MAX_VALUES // ((max(self.coefficients) + 1) * self.values.shape[-1]))
        return torch.cat([self._at(some[:, 0]) for some in torch.split(points, count)])

    def _at(self, x: Tensor) -> Tensor:
        position = x.double() * self.size
        # float32 coordinates of samples are rounded
        rounding = (position.round() - position).detach()
        tolerance = max(POSITION_TOLERANCE, self.size * torch.finfo(torch.float32).eps)
        position = position + torch.where(rounding.abs() <= tolerance, rounding, 0.0)
        place = ((position - self.first) / self.step).clamp(-1, len(self.values))
        cell = place.detach().floor()
        result = torch.zeros((), dtype=torch.float64, device=x.device)
        for degree, basis in spline_bases(place - cell, self.coefficients).items():
            taps = torch.arange(degree + 1, device=x.device) - degree // 2 + MARGIN
            result = result + weighted_rows(self.coefficients[degree], cell.long()[:, None] + taps, basis.T)
        return result.to(self.values.dtype)

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values at the coordinates of the axis, ``(N,)``: ``(N, C)``."""
        return self.at(axes[0][:, None])


def spline_bases(place: Tensor, degrees: Collection[int]) -> dict[int, Tensor]:
    """B-splines that are not zero at places within a cell of uniform knots, by degree ``d``.

    Places ``(P,)`` in [0, 1] -> ``(d + 1, P)``.
    """
    largest = max(degrees)
    before = place + torch.arange(largest, -1, -1, dtype=place.dtype, device=place.device)[:, None]
    after = before.flip(0) + (1 - 2 * place)
    found, basis = {}, torch.ones_like(place)[None]
    for k in range(1, largest + 1):  # Cox and de Boor
        padded = F.pad(basis, (0, 0, 1, 1))
        basis = torch.addcmul(after[: k + 1] * padded[1:], before[-k - 1 :], padded[:-1]) / k
        if k in degrees:
            found[k] = basis
    return found


def member_errors(values: Tensor) -> Tensor:
    """Leave-one-out errors of every member at samples ``(n, C)``: ``(M, n, C)`` float64."""
    padded = continued_ends(values.double())
    spectrum = torch.fft.rfft(padded, dim=0)
    _, precisions = spectra(len(padded), values.device)
    precisions = torch.cat([precisions, precisions[DEGREES.index(ROUGH)] * _shares(precisions)])
    diagonal = torch.fft.irfft(precisions.to(spectrum), len(padded))[:, :1]
    errors = [
        torch.fft.irfft(spectrum * some[..., None], len(padded), dim=1)[:, MARGIN : MARGIN + len(values)]
        for some in torch.split(precisions / diagonal, max(1, (MAX_VALUES >> 4) // spectrum.numel()))
    ]
    return torch.cat(errors)


def _choose(errors: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the members ``(M,)``, which sum to one, and the mean squared error of the mixture."""
    squared = errors.square().mean(-1)
    mean = squared.mean(1)
    best = mean.argmin()[None]
    difference = squared - squared.index_select(0, best)
    deviation = difference.std(1, correction=0) / math.sqrt(squared.shape[1]) + TINY
    weights = torch.exp(-difference.mean(1) / deviation)
    weights = weights.masked_fill((mean > 4 * mean.index_select(0, best) + TINY) | (weights < 1e-3), 0)
    weights /= weights.sum()
    return weights, torch.einsum("m,mnc->nc", weights, errors).square().mean()


def spline_predictable_axes(
    values: Tensor,
    grid: Sequence[int],
    first: Sequence[float],
    step: Sequence[float],
    local: Callable[[Tensor, Sequence[float], int], float] | None = None,
) -> tuple[Tensor, list[float], list[float]]:
    """Interpolates a grid of samples along the axes that splines predict far better than other methods do.

    Splines interpolate an axis if their leave-one-out error along it is below :data:`LINEAR_RATIO` times the error of linear
    interpolation, :data:`LOCAL_RATIO` times the error of local fits, or :data:`EXACT_RATIO` times the variance of the
    samples. The errors are taken of some lines along the axis; with ``local``, of the lines in the middle of the grid.
    ``local`` gives the mean squared error of local fits at every second sample along an axis of samples with distances per
    axis.

    Returns:
        Samples ``(n_1, ..., n_D, C)``, position of the first one, and distance per axis; an interpolated axis is complete.
    """
    first, step = list(first), list(step)
    for axis, size in enumerate(grid):
        count = values.shape[axis]
        if step[axis] == 1 or count < MIN_SAMPLES:
            continue
        some = values
        for other, n in enumerate(values.shape[:-1]):
            if other != axis and n > MAX_WIDTH:
                start = (n - MAX_WIDTH) // 2
                chosen = slice(start, start + MAX_WIDTH) if local else slice(None, None, -(-n // MAX_WIDTH))
                some = some[(slice(None),) * other + (chosen,)]
        lines = some.movedim(axis, 0).flatten(1)
        errors = member_errors(lines)
        mixture, error = _choose(errors)
        scales = torch.stack([error, errors[0].square().mean(), lines.double().var(correction=0)])
        own, linear, variance = scales.tolist()  # at once: every number read from a GPU waits for it
        is_exact = own <= max(LINEAR_RATIO * linear, EXACT_RATIO * variance)
        if not is_exact and (local is None or own > LOCAL_RATIO * local(some, step, axis)):
            continue
        x = torch.arange(size, dtype=torch.float64, device=values.device) / size
        lines = values.movedim(axis, 0)
        parts = torch.split(lines.flatten(1), max(1, MAX_VALUES // size), dim=1)
        found = [AdaptiveLine(part, size, first[axis], step[axis], 0.0, mixture).predict([x]) for part in parts]
        values = torch.cat(found, 1).reshape(size, *lines.shape[1:]).movedim(0, axis).contiguous()
        first[axis], step[axis] = 0.0, 1.0
    return values, first, step


@cache
def _spline_samples() -> NDArray[np.float64]:
    """Values of the centred B-splines at 0, 1, ..., doubled beyond 0: ``(D, 13)``, padded with zeros."""
    bases = spline_bases(torch.zeros(1, dtype=torch.float64), DEGREES)
    samples = torch.zeros(len(DEGREES), max(DEGREES) // 2 + 1, dtype=torch.float64)
    for row, (degree, basis) in zip(samples, bases.items(), strict=True):
        row[: degree // 2 + 1] = basis[degree // 2 : degree, 0]
    samples[:, 1:] *= 2
    return samples.numpy()


def spectra(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Symbols of the B-splines and inverse folded spectra of every degree, at the frequencies of so many samples."""
    theta = 2 * math.pi * torch.fft.rfftfreq(count, dtype=torch.float64, device=device)
    samples = torch.from_numpy(_spline_samples()).to(device)
    symbols = samples @ (torch.arange(samples.shape[1], device=device)[:, None] * theta).cos()
    powers = torch.tensor(DEGREES, device=device)[:, None] + 1
    return symbols, (2 * (theta / 2).sin()) ** powers / symbols


def _shares(precisions: Tensor) -> Tensor:
    """Shares of the rough part in the folded sums of two spectra, which are equal at :data:`CROSSOVERS`: ``(3, F)``."""
    rough, smooth = (precisions[DEGREES.index(degree)] for degree in (ROUGH, SMOOTH))
    ratios = [(math.pi * crossover) ** (SMOOTH - ROUGH) for crossover in CROSSOVERS]
    shares = smooth / (smooth + precisions.new_tensor(ratios)[:, None] * rough)
    shares[:, 0] = 0  # the limit
    return shares


def continued_ends(samples: Tensor) -> Tensor:
    """One period, ``(MARGIN + n + MARGIN or more, C)``: samples ``(n, C)``, continued at both ends by linear prediction."""
    before, after = _predicted(samples)
    middle, half = (samples[:1] + samples[-1:]) / 2, MARGIN // 2
    fade = torch.arange(half, 0, -1, dtype=samples.dtype, device=samples.device)[:, None]
    fade = 0.5 - 0.5 * torch.cos(math.pi * (fade - 0.5) / half)
    tails = middle.lerp(torch.stack([before[half:], after[half:]]), fade)
    count = len(samples) + 2 * MARGIN
    rest = middle.expand(next_fast_len(count, real=True) - count, -1)
    return torch.cat([tails[0].flip(0), before[:half].flip(0), samples, after[:half], tails[1], rest])


def _predicted(samples: Tensor) -> Tensor:
    """Linear prediction of samples ``(n, C)`` beyond both ends, nearest first: ``(2, MARGIN, C)``."""
    # of few samples both ends have the same coefficients, since Burg's method is symmetric in time
    recent = torch.stack([samples[:MEMORY].flip(0), samples[-MEMORY:]]) if len(samples) > MEMORY else samples[None]
    mean = recent.mean(1, keepdim=True)
    coefficients = _burg(recent - mean).mT  # (1 or 2, C, order)
    order = coefficients.shape[-1]
    # the weights of the samples before for each of the next ones, of the oldest sample first, after a zero
    rows = coefficients.new_zeros(*coefficients.shape[:-1], AT_ONCE, order + 1)
    rows[..., 0, 1:] = -coefficients.flip(-1)
    for k in range(1, AT_ONCE):
        torch.addcmul(rows[..., k - 1, :-1], rows[..., k - 1, -1:], rows[..., 0, 1:], out=rows[..., k, 1:])
    ends = torch.stack([samples[:order].flip(0), samples[len(samples) - order :]]) - mean  # (2, order, C)
    ends = ends.reshape(len(mean), 2 // len(mean), *ends.shape[1:]).permute(0, 3, 2, 1)  # columns: ends of the same rows
    result = F.pad(ends, (0, 0, 0, MARGIN))
    for place in range(order, order + MARGIN, AT_ONCE):
        result[:, :, place : place + AT_ONCE] = rows[..., 1:] @ result[:, :, place - order : place]
    return result[:, :, order:].permute(0, 3, 2, 1).flatten(0, 1) + mean


def _burg(signals: Tensor) -> Tensor:
    """Coefficients ``a_1, ...`` of the prediction error of signals ``(S, n, C)`` by Burg's method: ``(S, order, C)``."""
    order = min(ORDER, signals.shape[1] // 3)
    coefficients = signals.new_zeros(len(signals), order + 1, signals.shape[-1])
    coefficients[:, 0] = 1
    forward = backward = signals
    for k in range(1, order + 1):
        forward, backward = forward[:, 1:], backward[:, :-1]
        power = torch.addcmul(forward * forward, backward, backward).sum(1, keepdim=True).clamp_min_(TINY)
        ratio = (forward * backward).sum(1, keepdim=True) / power  # minus half of the reflection coefficient
        some = coefficients[:, : k + 1]
        some.addcmul_(ratio, some.flip(1), value=-2)
        pairs = ((forward, backward), (backward, forward))
        forward, backward = (torch.addcmul(one, ratio, other, value=-2) for one, other in pairs)
    return coefficients[:, 1:]

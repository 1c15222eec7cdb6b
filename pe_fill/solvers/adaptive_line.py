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
from collections.abc import Callable, Sequence

import torch
from scipy.fft import next_fast_len
from torch import Tensor

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
        padded = continued(values.double(), MARGIN)
        spectrum = torch.fft.rfft(padded, dim=0)
        symbols, precisions = spectra(len(padded), values.device)
        if mixture is None:
            mixture, self.error = _choose(member_errors(values))
        self.mixture = mixture
        filters = dict[int, float | Tensor](zip(DEGREES, mixture.tolist(), strict=False))
        for crossover, weight in zip(CROSSOVERS, mixture[len(DEGREES) :].tolist(), strict=True):
            if weight:
                share = _share(precisions, crossover)
                filters[ROUGH] = filters[ROUGH] + weight * share
                filters[SMOOTH] = filters[SMOOTH] + weight * (1 - share)
        self.coefficients = {
            degree: torch.fft.irfft(spectrum * (share / symbols[degree])[:, None], len(padded), dim=0)
            for degree, share in filters.items()
            if isinstance(share, Tensor) or share
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
        for degree, coefficients in self.coefficients.items():
            taps = torch.arange(degree + 1, device=x.device) - degree // 2 + MARGIN
            near = coefficients[cell.long()[:, None] + taps]
            result = result + torch.einsum("pt,ptc->pc", spline_basis(place - cell, degree), near)
        return result.to(self.values.dtype)

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values at the coordinates of the axis, ``(N,)``: ``(N, C)``."""
        return self.at(axes[0][:, None])


def spline_basis(place: Tensor, degree: int) -> Tensor:
    """B-splines that are not zero at places within a cell of uniform knots: ``(P,)`` in [0, 1] -> ``(P, degree + 1)``."""
    basis = torch.ones_like(place)[:, None]
    for k in range(1, degree + 1):  # Cox and de Boor
        before, after = (torch.nn.functional.pad(basis, side) for side in ((1, 0), (0, 1)))
        r = torch.arange(k + 1, dtype=place.dtype, device=place.device)
        basis = ((r + 1 - place[:, None]) * after + (place[:, None] + k - r) * before) / k
    return basis


def member_errors(values: Tensor) -> Tensor:
    """Leave-one-out errors of every member at samples ``(n, C)``: ``(M, n, C)`` float64."""
    padded = continued(values.double(), MARGIN)
    spectrum = torch.fft.rfft(padded, dim=0)
    _, precisions = spectra(len(padded), values.device)
    sums = [precisions[ROUGH] * _share(precisions, crossover) for crossover in CROSSOVERS]
    errors = []
    for precision in (*precisions.values(), *sums):
        diagonal = torch.fft.irfft(precision.to(spectrum), len(padded))[0]
        error = torch.fft.irfft(spectrum * (precision / diagonal)[:, None], len(padded), dim=0)
        errors.append(error[MARGIN : MARGIN + len(values)])
    return torch.stack(errors)


def _choose(errors: Tensor) -> tuple[Tensor, float]:
    """Weights of the members ``(M,)``, which sum to one, and the mean squared error of the mixture."""
    squared = errors.square().mean(-1)
    mean = squared.mean(1)
    best = int(mean.argmin())
    difference = squared - squared[best]
    deviation = difference.std(1, correction=0) / math.sqrt(squared.shape[1]) + TINY
    weights = torch.exp(-difference.mean(1) / deviation)
    weights[(mean > 4 * mean[best] + TINY) | (weights < 1e-3)] = 0
    weights /= weights.sum()
    return weights, float(torch.einsum("m,mnc->nc", weights, errors).square().mean())


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
        bounds = [LINEAR_RATIO * float(errors[0].square().mean()), EXACT_RATIO * float(lines.double().var(correction=0))]
        if error > max(bounds) and (local is None or error > LOCAL_RATIO * local(some, step, axis)):
            continue
        x = torch.arange(size, dtype=torch.float64, device=values.device) / size
        lines = values.movedim(axis, 0)
        parts = torch.split(lines.flatten(1), max(1, MAX_VALUES // size), dim=1)
        found = [AdaptiveLine(part, size, first[axis], step[axis], 0.0, mixture).predict([x]) for part in parts]
        values = torch.cat(found, 1).reshape(size, *lines.shape[1:]).movedim(0, axis).contiguous()
        first[axis], step[axis] = 0.0, 1.0
    return values, first, step


def spectra(count: int, device: torch.device) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Symbols of the B-splines and inverse folded spectra by degree, at the frequencies of so many samples."""
    theta = 2 * math.pi * torch.fft.rfftfreq(count, dtype=torch.float64, device=device)
    start, symbols = torch.zeros(1, dtype=torch.float64, device=device), dict[int, Tensor]()
    for degree in DEGREES:
        samples = spline_basis(start, degree)[0, degree // 2 : degree]  # of the centred B-spline at 0, 1, ...
        samples[1:] *= 2
        symbols[degree] = (theta[:, None] * torch.arange(len(samples), device=device)).cos() @ samples
    return symbols, {degree: (2 * (theta / 2).sin()) ** (degree + 1) / symbols[degree] for degree in DEGREES}


def _share(precisions: dict[int, Tensor], crossover: float) -> Tensor:
    """Share of the rough part in the folded sum of two spectra, which are equal at ``crossover``."""
    ratio = (math.pi * crossover) ** (SMOOTH - ROUGH)
    smooth = precisions[SMOOTH]
    share = smooth / (smooth + ratio * precisions[ROUGH])
    share[0] = 0  # the limit
    return share


def continued(samples: Tensor, margin: int) -> Tensor:
    """One period, ``(margin + n + more, C)``, of samples ``(n, C)`` that linear prediction continues at both ends."""
    count = len(samples)
    before, after = _predicted(samples.flip(0), margin).flip(0), _predicted(samples, margin)
    middle, half = (samples[:1] + samples[-1:]) / 2, margin // 2
    fade = torch.arange(1, half + 1, dtype=samples.dtype, device=samples.device)[:, None]
    fade = 0.5 - 0.5 * torch.cos(math.pi * (fade - 0.5) / half)
    before[:half] = middle.lerp(before[:half], fade)
    after[-half:] = middle.lerp(after[-half:], fade.flip(0))
    rest = next_fast_len(count + 2 * margin, real=True) - count - 2 * margin
    return torch.cat([before, samples, after, middle.expand(rest, -1)])


def _predicted(samples: Tensor, margin: int) -> Tensor:
    """The samples after the last of ``(n, C)`` by linear prediction, ``(margin, C)``."""
    recent = samples[-MEMORY:]
    mean = recent.mean(0)
    forward = backward = recent - mean
    coefficients = torch.ones_like(recent[:1])  # of the prediction error: 1, a_1, ...
    for _ in range(min(ORDER, len(recent) // 3)):
        forward, backward = forward[1:], backward[:-1]
        power = forward.square().sum(0) + backward.square().sum(0)
        reflection = -2 * (forward * backward).sum(0) / power.clamp_min(TINY)
        longer = torch.cat([coefficients, torch.zeros_like(mean)[None]])
        coefficients = longer + reflection * longer.flip(0)
        forward, backward = forward + reflection * backward, backward + reflection * forward
    order = len(coefficients) - 1
    result = torch.cat([recent[len(recent) - order :] - mean, recent.new_zeros(margin, len(mean))])
    weights = -coefficients[1:].flip(0)
    for place in range(order, order + margin):
        result[place] = (weights * result[place - order : place]).sum(0)
    return result[order:] + mean

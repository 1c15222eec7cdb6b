"""Weights of predictions, and quantiles of their errors, from errors at held-out samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates
from torch import Tensor

Array = NDArray[np.float64]

SHRINKAGE = 0.1
"""Share of the mean over all imitated gaps in the moments."""
RIDGE = 0.03
"""Added to the diagonal of local moments, relative to it."""
NEGLIGIBLE_WEIGHT = 0.05
"""Weight below which a prediction is left out of a mean."""
BINS, LEAST_BIN = 6, 40
"""Bins of the distance from known samples with deviations of their own, and fewest hidden samples of a bin."""
COVERAGE = 0.9
"""Share of the errors within as many standard deviations as this share of a normal distribution."""
TAIL_STEPS = 1000
"""Steps of the quantiles of the errors."""
WINDOW, MAX_WINDOWS = 100, 8
"""Fewest held-out samples of a window of similar standard deviations, and most windows."""
TINY = torch.finfo(torch.float32).tiny


def best_share(mixed: Tensor, single: Tensor, truth: Tensor) -> float:
    """Share of the mixture, besides its best member, with the least squared error at hidden samples, in [0, 1]."""
    difference = (mixed - single).double()
    square = float(difference.square().sum())
    return min(max(float((difference * (truth - single)).sum()) / square, 0.0), 1.0) if square > 0 else 1.0


class Moments:
    """Products of the members' errors, mean over channels, and counts, smoothed over a coarse grid."""

    def __init__(self, errors: Tensor, index: Tensor, grid: Sequence[int]) -> None:
        sigma = np.minimum(18, np.array(grid) / 4)  # standard deviation of the local mean, in samples
        self.cell = np.maximum(1, sigma // 3)
        products = torch.einsum("mhc,nhc->mnh", errors, errors).flatten(0, 1).cpu().numpy() / errors.shape[-1]
        self.grid, coarse = tuple(grid), [int(n) for n in np.ceil(np.array(grid) / self.cell)]
        cells = np.ravel_multi_index(tuple((self._places(index) // self.cell[:, None]).astype(int)), coarse)
        area = np.prod(math.sqrt(2 * math.pi) * sigma)  # a sum over neighbours, not a mean
        rows = [*products, np.ones(len(index))]
        sums = [np.bincount(cells, row, math.prod(coarse)).reshape(coarse) for row in rows]
        density = area / np.prod(self.cell)
        self.planes = [gaussian_filter(each, sigma / self.cell, mode="constant", truncate=3.0) * density for each in sums]

    def _places(self, index: Tensor) -> Array:
        return np.stack(np.unravel_index(index.cpu().numpy(), self.grid)).astype(float)

    def at(self, index: Tensor) -> Array:
        """At row-major positions ``(P,)``: ``(M^2 + 1, P)``."""
        places = (self._places(index) + 0.5) / self.cell[:, None] - 0.5
        return np.stack([map_coordinates(plane, places, order=1, mode="nearest") for plane in self.planes])

    @property
    def total(self) -> Array:
        """Sums over all places, ``(M^2 + 1,)``."""
        return np.array([plane.sum() for plane in self.planes])


def local_moments(moments: Sequence[Moments], index: Tensor, size: int, prior_count: float) -> Array:
    """Second moments of the members at some samples of the grid, shrunk towards their mean: ``(P, M, M)``."""
    if not moments:
        return np.broadcast_to(np.eye(size), (len(index), size, size))
    total = np.sum([each.total for each in moments], 0)
    local = np.sum([each.at(index) for each in moments], 0)
    mean = total[:-1] / max(total[-1], 1e-12)
    near = (local[:-1] + prior_count * mean[:, None]) / (local[-1] + prior_count)
    scale = np.trace(near.reshape(size, size, -1)) / max(np.trace(mean.reshape(size, size)), 1e-300)
    shrunk = (1 - SHRINKAGE) * near + SHRINKAGE * scale * mean[:, None]
    return np.moveaxis(shrunk.reshape(size, size, -1), -1, 0)


def least_variance(moments: Array, ridge: float = RIDGE) -> tuple[Array, Array]:
    """Weights of least variance, not negative and with sum one, ``(P, M)``, and that variance, ``(P,)``.

    They follow from second moments of errors ``(P, M, M)``: the member of the most negative weight is left out until none is
    negative.
    """
    size = moments.shape[-1]
    own = np.diagonal(moments, axis1=1, axis2=2)
    ridged = moments + (ridge * own + 1e-14)[..., None] * np.eye(size)
    level = own.mean(1, keepdims=True)
    out = np.zeros(moments.shape[:2], bool)
    weights = np.full(moments.shape[:2], 1 / size)
    for _ in range(size):
        kept = np.where(out[:, :, None] | out[:, None, :], np.eye(size) * (1 + level[..., None]), ridged)
        solved = np.linalg.solve(kept, (~out)[..., None].astype(float))[..., 0] * ~out
        weights = solved / solved.sum(1, keepdims=True)
        negative = weights.min(1) < 0
        if not negative.any():
            break
        out[negative, weights[negative].argmin(1)] = True
    return weights, np.einsum("pm,pmn,pn->p", weights, moments, weights).clip(1e-14)


def least_error_weights(errors: Tensor, more: Tensor) -> Tensor:
    """Weights, not negative and with sum one, of predictions whose mean has about the least squared error.

    The mean products of errors ``(M, *)`` and of errors at further samples, relative to their sums of squares, are added, so
    that weights by few samples are close to weights by all.
    """
    tiny, count = torch.finfo(torch.float64).tiny, len(errors)
    product = torch.zeros(count, count, dtype=torch.float64)
    for part in (errors, more):
        flat = part.double().flatten(1).cpu()
        flat = flat / flat.square().sum().sqrt().clamp_min(tiny**0.25)
        product += flat @ flat.T
    weights = least_variance(product.numpy()[None], 1e-9)[0][0]
    weights = np.where(weights < NEGLIGIBLE_WEIGHT, 0, weights)  # each prediction takes time
    return torch.from_numpy(weights / weights.sum()).to(errors.device)


def normal_quantile(level: float) -> float:
    """This share of the values of a normal distribution is within so many standard deviations."""
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)))


class BinnedDeviations:
    """Standard deviations from the variance of the mixture and the distance, such that held-out errors have the coverage."""

    def __init__(self, errors: Array, variance: Array, distance: Array) -> None:
        count = max(1, min(BINS, len(distance) // LEAST_BIN))
        self.edges = np.unique(np.quantile(distance, np.linspace(0, 1, count + 1)[1:-1]))
        bins = np.searchsorted(self.edges, distance)
        ratio = errors / np.sqrt(variance)[:, None]
        self.centres, factors = np.zeros(0), []
        for number in np.unique(bins):
            here = bins == number
            self.centres = np.append(self.centres, distance[here].mean())
            factors.append(np.quantile(ratio[here], COVERAGE, axis=0) / normal_quantile(COVERAGE))
        self.factors = np.stack(factors)

    def __call__(self, variance: Array, distance: Array) -> Array:
        """Of samples with these variances and distances ``(P,)``: ``(P, C)``; it grows with the root of the distance."""
        beyond = np.sqrt(np.maximum(distance / self.centres[-1], 1))
        factor = np.stack([np.interp(distance, self.centres, column) for column in self.factors.T], 1)
        found: Array = factor * (beyond * np.sqrt(variance))[:, None]
        return found


class ErrorQuantiles:
    """Quantiles of errors relative to standard deviations, both ``(H, C)``, as functions of these deviations.

    Where errors grow faster than deviations do, as in smooth signals with the distance from samples, a power law is taken
    out first; windows of samples with about the same deviation then have quantiles of their own. With ``anywhere`` quantiles
    are the same for all deviations, where asked deviations are not among them.
    """

    def __init__(self, ratios: Tensor, deviations: Tensor, anywhere: bool) -> None:
        place = deviations.log().mean(1)
        self.centre, self.range = place.mean(), place.aminmax()
        around = (place - self.centre)[:, None]
        logs = ratios.clamp_min(1e-3 * ratios.mean(0).clamp_min(TINY)).log()
        slope = (around * (logs - logs.mean(0))).sum(0) / (around.square().sum(0) + 0.01 * len(around))
        self.slope = torch.zeros_like(slope) if anywhere else slope.clamp(-1.0, 1.0)
        ratios = ratios / (around * self.slope).exp()
        count = 1 if anywhere else min(MAX_WINDOWS, max(1, len(place) // WINDOW))
        windows = place.argsort().tensor_split(count)
        self.margin = 1 + 1 / len(windows[-1])
        steps = torch.linspace(0, 1, TAIL_STEPS + 1, dtype=ratios.dtype, device=ratios.device)
        self.places = torch.stack([place[window].mean() for window in windows])
        self.tables = torch.stack([torch.quantile(ratios[window], steps, dim=0) for window in windows])
        """Of windows, shares from 0 to 1 and channels, ``(W, T, C)``."""

    def __call__(self, level: float, deviations: Tensor) -> Tensor:
        """Share ``level`` of the errors are within this many of the standard deviations ``(Q, C)``: ``(Q, C)``.

        Beyond the largest held-out error the tail is a normal distribution, scaled to end there.
        """
        last = TAIL_STEPS
        at = min(level * self.margin * last, last - 1.0)
        low = int(at)
        found = self.tables[:, low].lerp(self.tables[:, low + 1], at - low)
        if level * self.margin * last > at:
            found = found * max(1.0, normal_quantile(level) / normal_quantile(at / last))
        place = deviations.log().mean(1).clamp(*self.range)
        right = torch.bucketize(place, self.places).clamp(1, max(1, len(self.places) - 1))
        left, right = right - 1, right.clamp_max(len(self.places) - 1)
        distance = (self.places[right] - self.places[left]).clamp_min(TINY)
        share = ((place - self.places[left]) / distance).clamp(0, 1)[:, None]
        return found[left].lerp(found[right], share) * ((place - self.centre)[:, None] * self.slope).exp()

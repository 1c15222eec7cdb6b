r"""Kriging with a Matérn covariance whose lengths per axis, smoothness and noise follow from the samples.

The restricted likelihood of the samples is largest at these numbers. Blocks of neighbouring samples and a
random subset are taken as independent: blocks show smoothness and noise, the subset shows long lengths.

Far from samples such a covariance returns to the mean, within lengths that near samples have chosen. The second one has a
variogram that is linear in the distance, in units of the standard deviation of each axis, and learns its noise alone: with
lengths of hundred standard deviations, the covariance of smoothness 1/2 is linear.

Reference: Patterson and Thompson, *Recovery of inter-block information when block sizes are unequal*, Biometrika 58, 1971;
Stein, Chi and Welty, *Approximating likelihoods for large spatial data sets*, JRSS B 66, 2004.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.spatial import cKDTree
from torch import Tensor

from pe_fill.kriging.neighbours import MAX_NUMBERS, in_groups, neighbours_around, split_by_medians, squared_distances
from pe_fill.kriging.ordinary import LocalKriging
from pe_lightning.linalg.threads import sized_threads

SMOOTHNESS = (1.5, 0.5, 2.5, math.inf)
"""Smoothness of the covariances that are tried, the last two while the likelihood grows; the infinite one is a Gaussian."""
SUBSET_SAMPLES, PER_BLOCK = 256, 32
"""Samples of the random subset, and how many of them there are for each block, of half as many neighbouring samples."""
LENGTHS = (3e-3, 30.0)
"""Least and largest length, relative to the extent of the samples."""
NUGGETS = (1e-8, 30.0)
FIRST_LENGTHS = (0.3, 0.05)
"""Lengths that the search starts from."""
LENGTH_RATIO = 1.5
"""Standard deviation of the logarithm of each length about their mean, before the samples are seen."""
LINEAR_LENGTH = 100.0
"""Lengths in standard deviations of the places with which the covariance of smoothness 1/2 is linear."""
MAX_STEPS = 30
NUM_NEIGHBOURS = 64
"""Samples of a system without noise; up to four times as many with noise, so that it is averaged."""
CANDIDATES = 3
"""Nearest samples among which those in each octant are searched, relative to the samples of a system."""


class Matern(NamedTuple):
    """A covariance, relative to its value at distance zero."""

    lengths: Tensor
    """Length per axis, ``(D,)`` float64, in the unit of the positions."""
    nugget: float
    """Variance of the noise."""
    smoothness: float
    """1/2, 3/2, 5/2 or infinite."""

    def similarity(self, squared: Tensor) -> Tensor:
        """Covariances from squared distances in lengths."""
        return _matern(squared, self.smoothness)[0]


def _matern(squared: Tensor, smoothness: float) -> tuple[Tensor, Tensor]:
    """Covariances from squared distances in lengths, and their derivatives with respect to them."""
    if math.isinf(smoothness):
        decay = (-squared / 2).exp()
        return decay, -decay / 2
    r = (2 * smoothness * squared.clamp_min(1e-24)).sqrt()
    decay = (-r).exp()
    if smoothness < 1:
        return decay, -decay / (2 * r)
    if smoothness < 2:
        return (1 + r) * decay, -1.5 * decay
    return (1 + r + r.square() / 3) * decay, -5 / 6 * (1 + r) * decay


@sized_threads(0)
@torch.inference_mode(False)
@torch.no_grad()
def learn_matern(values: Tensor, places: Tensor, linear: bool = False, subset: int = SUBSET_SAMPLES) -> Matern:
    """The covariance of the largest restricted likelihood of samples ``(P, C)`` at ``(P, D)``, one for all channels.

    Of the linear covariance the noise alone is learned. ``subset`` samples are drawn of all, and ``subset / 32`` blocks.
    """
    places, values = places.detach().double().cpu(), values.detach().double().cpu()
    axes, extent = places.shape[1], np.ptp(places.numpy(), axis=0).clip(1e-300)
    values = (values - values.mean(0)) / values.std(0).clamp_min(1e-12)
    unit = places / torch.from_numpy(extent)
    parts = [(unit[rows][:, :, None] - unit[rows][:, None], values[rows]) for rows in _subsets(unit.numpy(), subset)]
    squares = [(offsets.square(), block) for offsets, block in parts]
    bounds = [tuple(map(math.log, LENGTHS))] * axes
    # there may be two maxima: with long lengths, and with short ones and less noise
    firsts = [np.log([*[length] * axes, 0.05]) for length in FIRST_LENGTHS]
    if linear:
        fixed = np.log(LINEAR_LENGTH * unit.std(0).clamp_min(1e-12).numpy())
        bounds, firsts = [(length, length) for length in fixed], [np.append(fixed, math.log(0.1 / LINEAR_LENGTH))]
    bounds += [tuple(map(math.log, NUGGETS))]
    start, least, best = np.empty(0), math.inf, SMOOTHNESS[0]
    for number, smoothness in enumerate((0.5,) if linear else SMOOTHNESS):
        if smoothness > best and best < max(SMOOTHNESS[:number]):
            break
        starts = [start] if len(start) else firsts
        for first in starts:
            found = minimize(
                _cost, first, (squares, smoothness), "L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": MAX_STEPS}
            )
            if found.fun < least:
                least, best, start = found.fun, smoothness, found.x
    return Matern(torch.from_numpy(np.exp(start[:-1]) * extent), float(np.exp(start[-1])), best)


def _subsets(unit: np.ndarray, subset: int) -> list[Tensor]:
    """Numbers of the samples of each block, ``(B, n)``, and of the random subset, ``(1, n)``."""
    count, random = len(unit), np.random.default_rng(0)
    if count <= subset // 2 + subset:
        return [torch.arange(count)[None]]
    order, start = split_by_medians(unit, subset // 2)
    size = int(np.diff(np.append(start, count)).min())
    blocks = random.permutation(start)[: subset // PER_BLOCK, None] + np.arange(size)
    return [torch.from_numpy(order[blocks]), torch.from_numpy(random.permutation(count)[:subset])[None]]


def _cost(theta: np.ndarray, parts: list[tuple[Tensor, Tensor]], smoothness: float) -> tuple[float, np.ndarray]:
    """Half of -2 log of the restricted likelihood, profiled over the variance, and its gradient.

    ``theta`` are logarithms of the lengths and of the nugget, ``(D + 1,)``; parts are squared differences of coordinates
    ``(B, n, n, D)`` and values ``(B, n, C)``.
    """
    axes, inverse, nugget = len(theta) - 1, torch.from_numpy(np.exp(-2 * theta[:-1])), math.exp(theta[-1])
    channels = parts[0][1].shape[-1]
    squares, determinant, count = torch.zeros(channels, dtype=torch.float64), 0.0, 0
    of_squares, of_determinant = torch.zeros(channels, axes + 1, dtype=torch.float64), np.zeros(axes + 1)
    for squared, values in parts:
        matrix, slope = _matern(squared @ inverse, smoothness)
        matrix.diagonal(dim1=1, dim2=2).add_(nugget)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        if bool(failed.any()):
            return 1e10, np.zeros(axes + 1)
        precision = torch.cholesky_inverse(factor)
        ones = precision.sum(2, keepdim=True)
        norm = ones.sum(1, keepdim=True)
        precision = precision - ones @ ones.mT / norm  # of contrasts: the mean is free
        weights = precision @ values
        squares += (weights * values).sum((0, 1))
        determinant += float(2 * factor.diagonal(dim1=1, dim2=2).log().sum() + norm.log().sum())
        count += len(values) * (values.shape[1] - 1)
        for axis in range(axes):
            change = slope * squared[..., axis] * (-2 * inverse[axis])
            of_determinant[axis] += float((precision * change).sum())
            of_squares[:, axis] -= torch.einsum("bic,bij,bjc->c", weights, change, weights)
        of_determinant[-1] += nugget * float(precision.diagonal(dim1=1, dim2=2).sum())
        of_squares[:, -1] -= nugget * weights.square().sum((0, 1))
    apart = theta[:-1] - theta[:-1].mean()
    cost = 0.5 * (count * float((squares / count).log().sum()) + channels * determinant)
    gradient = 0.5 * (count * (of_squares / squares[:, None]).sum(0).numpy() + channels * of_determinant)
    gradient[:-1] += apart / LENGTH_RATIO**2
    return cost + float(np.square(apart).sum()) / (2 * LENGTH_RATIO**2), gradient


class MaternKriging:
    """Ordinary kriging of samples ``(P, C)`` by learned covariances; deviations belong to the first one."""

    def __init__(
        self, values: Tensor, places: Tensor, covariances: Sequence[Matern], num_neighbours: int = NUM_NEIGHBOURS
    ) -> None:
        self.values, self.covariances, self.num_neighbours = values, covariances, num_neighbours
        self.places = [places / covariance.lengths for covariance in covariances]
        """In lengths of each covariance."""
        self.trees = [cKDTree(scaled.cpu().numpy()) for scaled in self.places]

    def at(self, places: Tensor, group: Tensor, members: Sequence[int] = (0,)) -> Tensor:
        """Predictions of covariances, by their numbers, at places ``(Q, D)`` float64, differentiable: ``(M, Q, C)``.

        Places of a group, numbers from zero ``(Q,)``, share one system; with more noise several groups next to each other
        do.
        """
        return torch.cat([self._of_systems(member, places, group, std=False) for member in members])

    def std(self, places: Tensor, group: Tensor) -> Tensor:
        """Standard deviations that are not calibrated, ``(Q, C)``, with the noise."""
        return self._of_systems(0, places, group, std=True)[0]

    def _of_systems(self, member: int, places: Tensor, group: Tensor, std: bool) -> Tensor:
        covariance, own, tree = self.covariances[member], self.places[member], self.trees[member]
        # noise relative to the variance of differences at the size of the domain
        noise = covariance.nugget / max(1e-12, 1 - float(covariance.similarity(own.var(0).sum())))
        groups = 1 + int(min(3.0, 10 * noise))
        count = min(self.num_neighbours * groups, len(own))

        def system(centres: Tensor, points: Tensor) -> Tensor:
            near = neighbours_around(tree, own, centres, count, CANDIDATES * count)
            around, values = own[near], self.values[near].double()
            fit = LocalKriging(
                covariance.similarity(torch.cdist(around, around).square())[:, None], covariance.nugget, values
            )
            to_points = covariance.similarity(squared_distances(points, around))[:, None]
            found = fit.variance(to_points)[..., None].sqrt() if std else fit.predict(to_points)
            return found.movedim(1, 0).expand(*found.shape[1::-1], -1, values.shape[-1]).to(self.values)

        group = group.div(groups, rounding_mode="floor")
        return in_groups(places / covariance.lengths, group, max(1, MAX_NUMBERS // count**2), system)

"""Held-out samples of an adaptive fit: which ones, the weights they give its members, and the size of its errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pe_fill.adaptive.point_level import PointLevel
from pe_fill.mixture.gaps import has_wide_gaps
from pe_fill.mixture.weights import TINY, ErrorQuantiles, least_error_weights, normal_quantile

KNOWN_DISTANCE = 1e-3
"""Distance from a sample, in spacings, below which a point is that sample."""
HELD_OUT = 10
"""One sample in so many is held out at random."""
MIN_CALIBRATION, MIN_LEVEL_SAMPLES = 20, 50
"""Fewest held-out samples that weigh and calibrate, and that do so for a level by themselves."""
GAP_QUANTILE = 0.95
"""Quantile of the distances of missing samples to known ones, which is half the width of the gaps."""
MIN_GAPS, MAX_GAPS = 5, 64
"""Fewest and most cubes that are held out."""
GAP_SHARE, MAX_GAP_SPLITS = 0.1, 4
"""Share of the samples that is held out in cubes at once, and most times that others are."""
NORMAL_SHARE = 0.9
"""This share of the errors is within as many standard deviations as for a normal distribution."""


class CalibrationSet(NamedTuple):
    """Samples that weigh and calibrate, and their predictions by a fit to other samples.

    Args:
        held: Held-out samples, ``(H,)``.
        others: The samples that are fitted.
        predict: Some of the held-out samples ``(h,)`` -> predictions ``(h, C)``; by default of the adaptive fit.
        coarser: The same at twice the distance: half of the change of the factor (in its logarithm) is extrapolated.
    """

    held: Tensor
    others: Tensor
    predict: Callable[[Tensor], Tensor] | None = None
    coarser: CalibrationSet | None = None


class HeldOutErrors(NamedTuple):
    """Errors at held-out samples, of the bank and of the ``M`` kriging members that are mixed with it.

    Args:
        level: Number of the level that predicts each sample, ``(H,)``.
        errors: Prediction minus sample, ``(1 + M, H, C)``.
        deviations: Computes uncalibrated standard deviations of ``K`` models, ``(K, H, C)``.
    """

    level: Tensor
    errors: Tensor
    deviations: Callable[[], Tensor]


class Calibration(NamedTuple):
    """Weights of predictions of a level and sizes of their errors, by held-out samples.

    Args:
        weights: Weights of the bank and of the ``M`` kriging members, which sum to one, ``(1 + M,)``.
        shares: Shares of the variances of ``K`` models.
        models: Errors relative to each model of the standard deviations; none if nothing is calibrated.
        blend: Errors relative to the scaled models together.
        factor: Factor of the standard deviations, for all channels or ``(C,)``.
        size: Nine tenths of the errors are within this many deviations of the first model, ``(C,)``.
    """

    weights: Tensor
    shares: tuple[float, ...] = (1.0,)
    models: tuple[ErrorQuantiles, ...] = ()
    blend: ErrorQuantiles | None = None
    factor: Tensor | float = 1.0
    size: Tensor | float = 1.0

    def spread(self, deviations: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations, or half widths of intervals, from uncalibrated ones: ``(K, Q, C)`` -> ``(Q, C)``."""
        if self.blend is None:
            return deviations[0] * (1.0 if level is None else normal_quantile(level))
        std = blended(self.shares, self.models, deviations.double())
        width = self.blend(NORMAL_SHARE, std) / normal_quantile(NORMAL_SHARE) if level is None else self.blend(level, std)
        return (self.factor * width * std).to(deviations)


def blended(shares: Sequence[float], models: Sequence[ErrorQuantiles], deviations: Tensor) -> Tensor:
    """Standard deviations of scaled models ``(K, Q, C)`` together, ``(Q, C)``."""
    total = torch.zeros_like(deviations[0])
    for share, model, own in zip(shares, models, deviations, strict=True):
        if share:
            total += share * (model(NORMAL_SHARE, own) * own).square()
    return total.sqrt().clamp_min(TINY)


def calibrate(parts: Sequence[HeldOutErrors], anywhere: bool) -> dict[int, Calibration]:
    """The calibration of each level from the errors of held-out fits; the last holds for all further levels.

    Levels are ranges of the distance to the nearest sample, so that errors are as far from samples as the points that they
    calibrate. Nine tenths of the errors are within 1.645 standard deviations, as of a normal distribution: split conformal
    prediction, with a group per level and windows of similar standard deviations (``anywhere``: :class:`ErrorQuantiles`).
    Two models of standard deviations are mixed with the shares of the largest likelihood.

    Reference: Bates and Granger, *The Combination of Forecasts*, Operational Research Quarterly 20, 1969, for the weights;
    Lei et al., *Distribution-Free Predictive Inference for Regression*, JASA 113, 2018, for the quantiles.
    """
    number = torch.cat([part.level for part in parts])
    deviations = torch.cat([part.deviations() for part in parts], 1).double().clamp_min(TINY)
    errors = torch.cat([part.errors for part in parts], 1)
    groups, weights, residuals, models = [], [], [], []
    for n in range(int(number.max()) + 1):
        inside = number == n
        inside = inside if int(inside.sum()) >= MIN_LEVEL_SAMPLES else torch.ones_like(inside)
        groups.append(inside)
        weights.append(least_error_weights(errors[:, inside], errors))
        residuals.append(torch.einsum("m,mhc->hc", weights[-1].double(), errors[:, inside].double()).abs())
        models.append(tuple(ErrorQuantiles(residuals[-1] / own, own, anywhere) for own in deviations[:, inside]))

    def stds(shares: Sequence[float]) -> list[Tensor]:
        return [blended(shares, some, deviations[:, inside]) for some, inside in zip(models, groups, strict=True)]

    def cost(shares: Sequence[float]) -> float:
        total = 0.0
        for residual, std in zip(residuals, stds(shares), strict=True):
            total += float((std.log() + (residual / std).square().clamp_max(36) / 2).sum())
        return total

    shares = min(((share, 1 - share) for share in (1.0, 0.5, 0.0)), key=cost) if len(deviations) > 1 else (1.0,)
    return {
        n: Calibration(
            weights[n].to(errors),
            shares,
            models[n],
            ErrorQuantiles(residuals[n] / std, std, anywhere),
            size=torch.quantile(residuals[n] / deviations[0, groups[n]], NORMAL_SHARE, dim=0),
        )
        for n, std in enumerate(stds(shares))
    }


def random_sets(level: PointLevel, count: int, everything: bool) -> list[CalibrationSet]:
    """Random sets of the first ``count`` samples of a level, a tenth each, and several sets where samples are few.

    Of many samples only samples in some cells are held out, and only samples around them are fitted unless ``everything``.
    """
    some = around = level.some_cells()
    for _ in range(2):  # the neighbours of neighbours
        around = torch.unique(level.cell[level.near[around]])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(level.cell.device)
    size = count // HELD_OUT
    sets = []
    for number in range(min(HELD_OUT // 2, -(-400 // max(1, size)))):  # of few, up to half of all
        start = size * number
        held, others = order[start : start + size], torch.cat([order[:start], order[start + size :]])
        near = held[torch.isin(level.cell[held], some)]
        if len(near) >= MIN_CALIBRATION:
            held = near
            if not everything:
                others = others[torch.isin(level.cell[others], around)]
        sets.append(CalibrationSet(held, others))
    return sets


def gap_size(level: PointLevel, count: int, grid: Sequence[int]) -> float:
    """Width of the gaps in samples of the grid; 0 if missing samples are as near to known ones as random ones are."""
    random = torch.Generator().manual_seed(0)
    nodes = torch.rand(1 << 16, len(grid), generator=random, dtype=torch.float64) * torch.tensor(grid, dtype=torch.float64)
    distance = torch.from_numpy(level.cells.nearest(nodes.floor().numpy())[1])
    missing, known = distance[distance > KNOWN_DISTANCE], count / math.prod(grid)
    if known >= 1 or len(missing) < MIN_CALIBRATION:
        return 0.0
    if not has_wide_gaps(float(missing.mean()), 1 - known, grid):
        return 0.0
    return max(2.0, 2 * float(torch.quantile(missing, GAP_QUANTILE)) - 1)


def question_distance(level: PointLevel, scale: Tensor, share: float) -> float:
    """Quantile of the distances of places, uniform in the range of the samples, to the nearest sample."""
    random = torch.Generator().manual_seed(0)
    nodes = torch.rand(1 << 12, len(scale), generator=random, dtype=torch.float64) * scale.cpu()
    return float(np.quantile(level.cells.nearest(nodes.numpy())[1], share))


def cube_sets(places: Tensor, side: float) -> list[CalibrationSet]:
    """Samples in cubes of a side, in the unit of their positions ``(P, D)``; none if there are too few cubes."""
    cube = (places / side).floor().long()
    _, which, counts = torch.unique(cube, dim=0, return_inverse=True, return_counts=True)
    order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0)).to(which.device)[:MAX_GAPS]
    most = GAP_SHARE * len(places)
    splits = min(MAX_GAP_SPLITS, math.ceil(float(counts[order].sum()) / most))
    split = (counts[order].cumsum(0) / most).ceil().long() - 1
    split_of = torch.full_like(counts, splits).index_copy(0, order, split)[which]
    if int((split < splits).sum()) < MIN_GAPS or int((split_of < splits).sum()) < MIN_CALIBRATION:
        return []
    step = -(-int((split_of < splits).sum()) // 4000)
    held_out = [split_of == n for n in range(splits)]
    return [CalibrationSet(held.nonzero()[::step, 0], (~held).nonzero()[:, 0]) for held in held_out if bool(held.any())]


def are_enough(sets: Sequence[CalibrationSet]) -> bool:
    """Whether there are as many held-out samples, and samples to fit, as weights and calibration take."""
    return min(sum(len(one.held) for one in sets), *(len(one.others) for one in sets)) >= MIN_CALIBRATION

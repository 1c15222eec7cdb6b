"""Held-out samples of an adaptive fit: which ones, the weights they give its members, and the size of its errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pe_lightning.solvers.gaps import has_wide_gaps
from pe_lightning.solvers.point_level import PointLevel, Settings

KNOWN_DISTANCE = 1e-3
"""Distance from a sample, in spacings, below which a point is that sample."""


class CalibrationSet(NamedTuple):
    """Samples that weigh and calibrate, and their predictions by a fit to other samples."""

    held: Tensor
    """Held-out samples, ``(H,)``."""
    others: Tensor
    """The samples that are fitted."""
    predict: Callable[[Tensor], Tensor] | None = None
    """Some of the held-out samples ``(h,)`` -> predictions ``(h, C)``; by default those of the adaptive fit."""
    coarser: CalibrationSet | None = None
    """The same at twice the distance: half of the change of the factor (in its logarithm) is extrapolated."""


class HeldOutErrors(NamedTuple):
    """Errors at held-out samples, of the bank and of the ``M`` kriging members that are mixed with it."""

    level: Tensor
    """Number of the level that predicts each sample, ``(H,)``."""
    errors: Tensor
    """Prediction minus sample, ``(1 + M, H, C)``."""
    deviations: Callable[[], Tensor]
    """Computes standard deviations that are not calibrated, of ``K`` models, ``(K, H, C)``."""


class Calibration(NamedTuple):
    """What held-out samples say about predictions of a level."""

    weights: Tensor
    """Weights of the bank and of the ``M`` kriging members, ``(1 + M,)``; they sum to one."""
    factor: Tensor
    """Factors of the standard deviations of ``K`` models, the root of whose sum of squares is taken: ``(K, C)``."""
    tail: Tensor
    """Quantiles of errors in standard deviations, of shares from 0 to 1 at equal steps: ``(T, C)``."""

    def quantile(self, level: float) -> Tensor:
        """Share ``level`` of the errors are within this many standard deviations, ``(C,)``.

        Beyond the largest held-out error the tail is that of a normal distribution, scaled to end there.
        """
        last = len(self.tail) - 1
        place = min(level * last, last - 1.0)
        low = int(place)
        found = self.tail[low] + (place - low) * (self.tail[low + 1] - self.tail[low])
        return found * normal_quantile(level) / normal_quantile(place / last) if level * last > place else found


TAIL_STEPS = 1000
"""Steps of the quantiles of the errors."""
BLENDS = (1.0, 0.5, 0.0)
"""Shares of the first of two models of standard deviations that are tried."""


def normal_quantile(level: float) -> float:
    """This share of the values of a normal distribution is within so many standard deviations."""
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)))


def calibrate(parts: Sequence[HeldOutErrors], settings: Settings) -> dict[int, Calibration]:
    """The calibration of each level; the last is that of all further levels.

    Levels are ranges of the distance to the nearest sample, so that the errors that say how large an error is are errors as
    far from samples. With the factors of its level, nine tenths of the errors are within 1.645 standard deviations, as those
    of a normal distribution: split conformal prediction, with a group per level. Of two models of standard deviations those
    shares are taken that have the largest likelihood.

    Reference: Bates and Granger, *The Combination of Forecasts*, Operational Research Quarterly 20, 1969, for the weights;
    Lei et al., *Distribution-Free Predictive Inference for Regression*, JASA 113, 2018, for the factors.
    """
    number, deviations = torch.cat([part.level for part in parts]), torch.cat([part.deviations() for part in parts], 1)
    errors, tiny = torch.cat([part.errors for part in parts], 1).double(), torch.finfo(deviations.dtype).tiny
    groups, weights = [], []
    for n in range(int(number.max()) + 1):
        inside = number == n
        groups.append(inside if int(inside.sum()) >= settings.min_level_samples else torch.ones_like(inside))
        weights.append(least_error_weights(errors[:, groups[-1]], errors, settings.sparsity_tolerance))
    residuals = [torch.einsum("m,mhc->hc", w, errors[:, inside]).abs() for w, inside in zip(weights, groups, strict=True)]
    scaled = []
    for residual, inside in zip(residuals, groups, strict=True):
        factors = torch.stack([_factor(residual / model) for model in deviations[:, inside].double()])
        scaled.append((factors, factors[:, None] * deviations[:, inside].double()))

    def blended(share: float, models: Tensor) -> Tensor:
        shares = models.new_tensor([share, 1 - share])[: len(models), None, None]
        return (shares * models.square()).sum(0).sqrt().clamp_min(tiny)

    def cost(share: float) -> float:
        total = 0.0
        for residual, (_, models) in zip(residuals, scaled, strict=True):
            std = blended(share, models)
            total += float((std.log() + (residual / std).square().clamp_max(settings.max_residual**2) / 2).sum())
        return total

    share = min(BLENDS, key=cost) if len(deviations) > 1 else 1.0
    ratios = [residual / blended(share, models) for residual, (_, models) in zip(residuals, scaled, strict=True)]
    last = [_factor(ratio) for ratio in ratios]
    steps = torch.linspace(0, 1, TAIL_STEPS + 1, dtype=errors.dtype, device=errors.device)
    shares = errors.new_tensor([share, 1 - share])[: len(deviations), None].sqrt()
    result = {}
    for n, (ratio, factor) in enumerate(zip(ratios, last, strict=True)):
        tail = torch.quantile(ratio / factor.clamp_min(tiny), steps, dim=0)
        factors = (shares * scaled[n][0] * factor).to(deviations)
        result[n] = Calibration(weights[n].to(deviations), factors, tail.to(deviations))
    return result


def _factor(ratios: Tensor) -> Tensor:
    """Factor of standard deviations with which nine tenths of errors, relative to them ``(H, C)``, are within 1.645."""
    return torch.quantile(ratios, 0.9, dim=0) / normal_quantile(0.9)


def random_sets(level: PointLevel, count: int, everything: bool, settings: Settings) -> list[CalibrationSet]:
    """Random samples, a tenth at once: several times others where they are few.

    Of many samples only those in some cells are held out, and only those around them are fitted.

    Args:
        level: Local fits whose first ``count`` samples are held out.
        count: Samples of the signal.
        everything: Whether all others are fitted in any case.
        settings: Tuned constants.
    """
    some = around = level.some_cells()
    for _ in range(2):  # the neighbours of neighbours
        around = torch.unique(level.cell[level.near[around]])
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(level.cell.device)
    size = count // settings.held_out
    sets = []
    for number in range(min(settings.held_out // 2, -(-settings.few_held_out // max(1, size)))):
        start = size * number
        held, others = order[start : start + size], torch.cat([order[:start], order[start + size :]])
        near = held[torch.isin(level.cell[held], some)]
        if len(near) >= settings.min_calibration:
            held = near
            if not everything:
                others = others[torch.isin(level.cell[others], around)]
        sets.append(CalibrationSet(held, others))
    return sets


def gap_size(level: PointLevel, count: int, grid: Sequence[int], settings: Settings) -> float:
    """Width of the gaps in samples of the grid; 0 if missing samples are as near to known ones as random ones are.

    Args:
        level: Local fits to the samples, with positions in samples of the grid.
        count: Samples of the signal.
        grid: Samples of the grid per axis.
        settings: Tuned constants.
    """
    random = torch.Generator().manual_seed(0)
    nodes = torch.rand(1 << 16, len(grid), generator=random, dtype=torch.float64) * torch.tensor(grid, dtype=torch.float64)
    distance = torch.from_numpy(level.cells.nearest(nodes.floor().numpy())[1])
    missing, known = distance[distance > KNOWN_DISTANCE], count / math.prod(grid)
    if known >= 1 or len(missing) < settings.min_calibration:
        return 0.0
    if not has_wide_gaps(float(missing.mean()), 1 - known, grid):
        return 0.0
    return max(2.0, 2 * float(torch.quantile(missing, settings.gap_quantile)) - 1)


def question_distance(level: PointLevel, scale: Tensor, share: float) -> float:
    """Quantile of the distances of places, uniform in the range of the samples, to the nearest sample."""
    random = torch.Generator().manual_seed(0)
    nodes = torch.rand(1 << 12, len(scale), generator=random, dtype=torch.float64) * scale.cpu()
    return float(np.quantile(level.cells.nearest(nodes.numpy())[1], share))


def cube_sets(places: Tensor, side: float, settings: Settings) -> list[CalibrationSet]:
    """Samples in cubes of a side, in the unit of their positions ``(P, D)``; none if there are too few cubes."""
    cube = (places / side).floor().long()
    _, which, counts = torch.unique(cube, dim=0, return_inverse=True, return_counts=True)
    order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0)).to(which.device)[: settings.max_gaps]
    most = settings.gap_share * len(places)
    splits = min(settings.max_gap_splits, math.ceil(float(counts[order].sum()) / most))
    split = (counts[order].cumsum(0) / most).ceil().long() - 1
    split_of = torch.full_like(counts, splits).index_copy(0, order, split)[which]
    if int((split < splits).sum()) < settings.min_gaps or int((split_of < splits).sum()) < settings.min_calibration:
        return []
    step = -(-int((split_of < splits).sum()) // settings.max_gap_samples)
    held_out = [split_of == n for n in range(splits)]
    return [CalibrationSet(held.nonzero()[::step, 0], (~held).nonzero()[:, 0]) for held in held_out if bool(held.any())]


def are_enough(sets: Sequence[CalibrationSet], settings: Settings) -> bool:
    """Whether there are as many held-out samples, and samples to fit, as weights and calibration take."""
    return min(sum(len(one.held) for one in sets), *(len(one.others) for one in sets)) >= settings.min_calibration


def least_error_weights(errors: Tensor, more: Tensor, tolerance: float = Settings.sparsity_tolerance) -> Tensor:
    """Weights, not negative and with sum one, of the fewest predictions whose mean has about the least squared error.

    Args:
        errors: Errors of each prediction, ``(M, *)``.
        more: Errors at further samples, ``(M, *)``: the mean products of both, relative to their sums of squares, are added,
            so that weights by few samples are close to those by all.
        tolerance: Relative increase of the squared error that is accepted for fewer predictions.

    Returns:
        ``(M,)``.
    """
    tiny, count = torch.finfo(torch.float64).tiny, len(errors)
    product = torch.zeros(count, count, dtype=torch.float64)
    for part in (errors, more):
        flat = part.double().flatten(1).cpu()
        flat = flat / flat.square().sum().sqrt().clamp_min(tiny**0.25)
        product += flat @ flat.T
    product.diagonal().add_(1e-9 * product.trace() + tiny)
    best = []
    for size in range(1, count + 1):
        least = math.inf, torch.zeros(count, dtype=torch.float64)
        for some in map(list, itertools.combinations(range(count), size)):
            solution = torch.linalg.solve(product[some][:, some], torch.ones(size, dtype=torch.float64))
            weights = torch.zeros_like(least[1])
            weights[some] = solution / solution.sum()
            error = float(weights @ product @ weights)
            if bool((weights >= 0).all()) and error < least[0]:
                least = error, weights
        best.append(least)
    limit = (1 + tolerance) * min(error for error, _ in best)
    return next(weights for error, weights in best if error <= limit).to(errors.device)

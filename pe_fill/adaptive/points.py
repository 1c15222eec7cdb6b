"""The adaptive exact fit at scattered samples: local fits, mixed with kriging by power variograms.

Points in a gap, far from all samples, are predicted from means of samples at a distance that grows with the gap, so that the
errors that weight the members there are errors over such distances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.calibration import (
    GAP_QUANTILE,
    KNOWN_DISTANCE,
    Calibration,
    CalibrationSet,
    HeldOutErrors,
    are_enough,
    calibrate,
    cube_sets,
    gap_size,
    question_distance,
    random_sets,
)
from pe_fill.adaptive.point_level import NUM_NEIGHBOURS, PointLevel
from pe_fill.kriging.matern import Matern, MaternKriging
from pe_fill.kriging.power import POWERS, PowerKriging
from pe_fill.mixture.weights import least_error_weights
from pe_lightning.errors import InputError
from pe_lightning.linalg.threads import sized_threads

MIN_SAMPLES = (4, 6, 8)
"""Fewest samples of a signal, for 1, 2 and 3 axes."""
RIDGE = 2.0**-4
"""Ridge of the local fits without noise; larger than on a grid, since some samples nearly coincide."""
NOISE_RIDGES = tuple(RIDGE * 2.0**n for n in (-2, 0, 1, 2, 3, 4))
"""Ridges that are tried for noisy samples, and for samples that may be noisy."""
GAP_DISTANCE = 1.8
"""Distance from the nearest sample, in spacings, up to which points are predicted from the samples themselves."""
SMOOTHING_POWER = 1.0
"""Least power of the variograms that smooth: at a power of 1/2 values follow noise, which held-out samples do not show."""
FACTOR_CHANGE = (0.5, 1.25)
"""Least and largest change of standard deviations from four to two spacings of a grid; half of its logarithm is added."""
SAME_DISTANCE = 1e-6
"""Distance from a sample, in spacings, below which a point is that sample where noise is known."""


class AdaptivePoints:
    """One signal at scattered samples ``(P, C)``, at coordinates ``(P, D)`` in [0, 1), as a function of coordinates.

    Predictions of the bank and of power variograms (:mod:`~pe_fill.kriging.power`) are mixed with weights of the
    least error at held-out samples, by the distance to the nearest sample. These are random samples; or cubes of samples as
    wide as the gaps, where missing samples of a grid are farther from known ones than random ones would be. A bank of one
    member is not mixed.

    Args:
        bank: Covariances of the local fits.
        grid: Samples of the whole signal per axis: the unit of lengths.
        window: Standard deviation of the local mean of errors, in spacings of a grid.
        ridge: Ridge of the local fits.
        keeps_samples: Whether the value at a sample is the sample, rather than its smoothed prediction, to which the
            variogram of the least power does not contribute.
        periodic: Which axes are periodic, none by default. Samples near the seam are repeated beyond it.
        held_out: Samples that calibrate standard deviations, with the predictions of another fit.
        refit: Another fit, whose deviations are calibrated: fitted ``(F,)``, held-out samples ``(H,)`` -> predictions
            ``(H, C)``.
        covariances: Covariances of the samples, with lengths in [0, 1), in place of power variograms; the lengths of the
            first are the unit of each axis, which by default is the sample of the grid.
    """

    def __init__(
        self,
        bank: AnisotropicKernels,
        values: Tensor,
        coords: Tensor,
        grid: Sequence[int],
        window: float,
        ridge: float,
        keeps_samples: bool = True,
        periodic: Sequence[bool] = (),
        held_out: CalibrationSet | None = None,
        refit: Callable[[Tensor, Tensor], Tensor] | None = None,
        covariances: Sequence[Matern] = (),
    ) -> None:
        fewest = MIN_SAMPLES[len(grid) - 1]
        if len(values) < fewest:
            raise InputError(f"Adaptive needs at least {fewest} samples of {len(grid)} axes, got {len(values)}")
        self.bank, self.grid, self.window, self.ridge = bank, list(grid), window, ridge
        self.num_members, self.keeps_samples = len(bank.sparse_forms), keeps_samples
        self.scale, self.covariances = torch.tensor(grid, dtype=torch.float64, device=values.device), covariances
        if covariances:
            lengths = covariances[0].lengths.to(self.scale)
            self.scale = (self.scale * lengths).log().mean().exp() / lengths
        self._given, self._periodic, self._held_out, self._refit = (values, coords), periodic, held_out, refit
        if any(periodic):
            values, coords = _repeated(values, coords, periodic, self.scale)
        self.values, self.places = values, coords.double() * self.scale
        self.levels = {0: self._level(values, self.places)}
        is_mixed = held_out is None and refit is None and len(bank.forms) > 1
        self.kriging: PowerKriging | MaternKriging
        if not covariances:
            least = 0.0 if keeps_samples else SMOOTHING_POWER
            self.kriging = PowerKriging(values, self.places, self.levels[0].cells.tree, ridge if ridge > RIDGE else 0.0)
            self._members = [m for m, power in enumerate(POWERS) if power >= least] if is_mixed else []
        else:
            scaled = [one._replace(lengths=one.lengths.to(self.scale) * self.scale) for one in covariances]
            self.kriging = MaternKriging(values, self.places, scaled)
            self._members = list(range(len(covariances))) if is_mixed else []
        self._calibrations: dict[int, Calibration] | None = None
        self.spacing = float(self.levels[0].spacing.median())
        """Median distance of neighbouring samples, in samples of the grid."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(Q, D)`` in [0, 1), differentiable: ``(Q, C)``."""
        return self._evaluate(points, std=False)

    @torch.no_grad()
    def std(self, points: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations of values at points ``(Q, D)`` in [0, 1): ``(Q, C)``; zero at samples.

        With a level, half the widths of the intervals that hold this share of the values.
        """
        return self._evaluate(points, True, level)

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""
        points = torch.cartesian_prod(*axes).reshape(-1, len(axes)).to(self.values.device)
        return self.at(points).reshape(*(len(x) for x in axes), -1)

    @property
    def error(self) -> float:
        """Mean squared error at random samples, each predicted from the other nine tenths.

        Leave-one-out errors, whose weights follow from the same samples, are too low for noisy samples; they are taken only
        of signals with too few samples to hold some out.
        """
        if not are_enough(self._random_sets):
            return self.levels[0].mean_error()
        errors = torch.cat([part.errors for part in self._random_errors], 1).double()
        return float(torch.einsum("m,mhc->hc", least_error_weights(errors, errors), errors).square().mean())

    @torch.inference_mode(False)
    @torch.no_grad()
    def calibration(self, number: int) -> Calibration:
        if self._calibrations is None:
            if self._held_out is None:
                sets = self._cube_sets() or self._random_sets
                if self.covariances:
                    sets = [*self._random_sets, *self._question_sets()]
                self._calibrations = self._calibrated(sets if self._refit is None else sets[:1])
            else:
                calibration, coarser = self._calibrated([self._held_out])[0], self._held_out.coarser
                if coarser is not None:
                    change = torch.as_tensor(calibration.size / self._calibrated([coarser])[0].size)
                    calibration = calibration._replace(factor=change.clamp(*FACTOR_CHANGE).sqrt())
                self._calibrations = {0: calibration}
            self.__dict__.pop("_random_errors", None)  # they hold fits of nearly the size of this one
        return self._calibrations[min(number, max(self._calibrations))]

    def gap_size(self) -> float:
        return gap_size(self.levels[0], len(self._given[0]), self.grid)

    # -- levels -----------------------------------------------------------------------------------------------------------

    def _level(self, values: Tensor, places: Tensor, targets: Tensor | None = None) -> PointLevel:
        domain = float(max(self.grid))
        return PointLevel(self.bank, values, places, domain, self.window, self.ridge, targets)

    @torch.inference_mode(False)
    @torch.no_grad()
    def level(self, number: int) -> PointLevel:
        """The fits to means of samples over cubes with sides of ``2**number`` spacings, fewer where too few are left."""
        if number not in self.levels:
            cube = (self.places / (self.spacing * 2.0**number)).floor().long()
            cube -= cube.amin(0)
            row_major = torch.zeros_like(cube[:, 0])  # as unique(dim=0), without comparing rows
            for along in cube.T:
                row_major = row_major * (along.amax() + 1) + along
            _, which, counts = torch.unique(row_major, return_inverse=True, return_counts=True)
            if len(counts) < 2 * NUM_NEIGHBOURS[len(self.grid) - 1]:
                self.levels[number] = self.level(number - 1)
                return self.levels[number]

            def means(numbers: Tensor) -> Tensor:
                total = numbers.new_zeros(len(counts), numbers.shape[1], dtype=torch.float64)
                mean: Tensor = total.index_add_(0, which, numbers.double()) / counts[:, None]
                return mean

            places = means(self.places)
            distance = (self.places - places[which]).square().sum(1)
            nearest = torch.from_numpy(np.lexsort((distance.cpu().numpy(), which.cpu().numpy()))).to(which.device)
            first = nearest[counts.cumsum(0) - counts]
            self.levels[number] = self._level(means(self.values).to(self.values), places, self.values[first])
        return self.levels[number]

    def _numbers(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Level of places ``(Q, D)``, nearest sample, and whether it is kept at the place, ``(Q,)`` each."""
        level = self.levels[0]
        sample, distance = (
            torch.from_numpy(part).to(places.device) for part in level.cells.nearest(places.detach().cpu().numpy())
        )
        spacing = level.spacing[level.cell[sample]]
        is_near = distance <= GAP_DISTANCE * spacing.clamp_min(self.spacing)
        number = torch.where(is_near, 0, (distance / (GAP_DISTANCE * self.spacing)).log2().ceil())
        same = KNOWN_DISTANCE if not self.covariances else SAME_DISTANCE
        return number, sample, (distance < same * spacing) & self.keeps_samples

    # -- predictions ------------------------------------------------------------------------------------------------------

    @sized_threads(0)
    def _evaluate(self, points: Tensor, std: bool, level: float | None = None) -> Tensor:
        places = points.double() * self.scale
        result = self.values.new_zeros(len(points), self.values.shape[-1])
        if len(points) == 0:
            return result
        number, sample, known = self._numbers(places)
        wanted = ~known if not points.requires_grad or std else torch.ones_like(known)
        for n, rows in _by_level(number, wanted):
            calibration = self.calibration(n)
            weights, at = calibration.weights, (places[rows], sample[rows])
            if std:
                values = calibration.spread(self._deviations(n, *at), level)
            else:
                members = [m for m, weight in enumerate(weights[1:].tolist()) if weight]
                values = self.values.new_zeros(len(rows), self.values.shape[-1])
                if weights[0]:
                    values = weights[0] * self._by_bank(n, *at)
                if members:
                    others = self.kriging.at(at[0], self._groups(n, *at), [self._members[m] for m in members])
                    values = values + torch.einsum("m,mqc->qc", weights[1:][members], others)
            result = result.index_copy(0, rows, values)
        if std or not bool(known.any()):
            return result
        at_sample = self.values[sample]
        if points.requires_grad:  # the slope of the prediction
            at_sample = result + (at_sample - result).detach()
        return torch.where(known[:, None], at_sample, result)

    def _by_bank(self, number: int, places: Tensor, sample: Tensor, std: bool = False) -> Tensor:
        """Predictions at places, given their nearest samples, or uncalibrated standard deviations: ``(Q, C)``."""
        level = self.level(number)
        if number:
            sample = torch.from_numpy(level.cells.nearest(places.detach().cpu().numpy())[0]).to(places.device)
        return level.at(places, sample, std).to(self.values)

    def _deviations(self, number: int, places: Tensor, sample: Tensor) -> Tensor:
        """Uncalibrated standard deviations of the bank and of kriging with the covariance, ``(K, Q, C)``."""
        found = [self._by_bank(number, places, sample, std=True)]
        if isinstance(self.kriging, MaternKriging):
            found.append(self.kriging.std(places, self._groups(number, places, sample)))
        return torch.stack(found)

    def _groups(self, number: int, places: Tensor, sample: Tensor) -> Tensor:
        """Places in a cell, or in gaps in a cube, share their neighbours: numbers ``(Q,)``."""
        if number == 0:
            return self.levels[0].cell[sample]
        cube = (places.detach() / (self.spacing * 2.0**number)).floor().long()
        which: Tensor = torch.unique(cube, dim=0, return_inverse=True)[1]
        return which

    # -- held-out samples -------------------------------------------------------------------------------------------------

    @cached_property
    def _random_sets(self) -> list[CalibrationSet]:
        return random_sets(self.levels[0], len(self._given[0]), self._refit is not None)

    def _cube_sets(self) -> list[CalibrationSet]:
        side = self.gap_size()
        return cube_sets(self._given[1].double() * self.scale, side) if side else []

    def _question_sets(self) -> list[CalibrationSet]:
        """Samples in cubes, as far from others as places anywhere in the range of the samples are."""
        places, sets = self._given[1].double() * self.scale, []
        for share in (0.5, GAP_QUANTILE):
            side = 2 * question_distance(self.levels[0], self.scale, share)
            while side > self.spacing and not (cubes := cube_sets(places, side)):
                side /= 2
            sets += cubes if side > self.spacing else []
        return sets

    @cached_property
    def _random_errors(self) -> list[HeldOutErrors]:
        return [self._held_out_errors(one) for one in self._random_sets]

    def _calibrated(self, sets: Sequence[CalibrationSet]) -> dict[int, Calibration]:
        if not are_enough(sets):
            alone = self.values.new_zeros(1 + len(self._members))
            alone[0] = 1
            return {0: Calibration(alone)}
        is_random = sets is self.__dict__.get("_random_sets")
        errors = self._random_errors if is_random else [self._held_out_errors(one) for one in sets]
        return calibrate(errors, anywhere=self._held_out is not None)

    def _held_out_errors(self, held_out: CalibrationSet) -> HeldOutErrors:
        held, others, predict, _ = held_out
        if self._refit is not None:
            predict = partial(self._refit, others)
        values, coords = self._given
        fit = AdaptivePoints(
            self.bank, values[others], coords[others], self.grid, self.window, self.ridge, False, self._periodic,
            covariances=self.covariances,
        )  # fmt: skip
        places = coords[held].double() * self.scale
        number, sample, _ = fit._numbers(places)
        errors = values.new_empty(1 + len(self._members), len(held), values.shape[-1])
        if predict is not None:
            errors[0] = predict(held) - values[held]
        levels = _by_level(number)
        for n, rows in levels:
            at = places[rows], sample[rows]
            if predict is None:
                errors[0, rows] = fit._by_bank(n, *at) - values[held[rows]]
            if self._members:
                errors[1:, rows] = fit.kriging.at(at[0], fit._groups(n, *at), self._members) - values[held[rows]]
        return HeldOutErrors(number, errors, partial(fit._all_deviations, levels, places, sample))

    def _all_deviations(self, levels: Sequence[tuple[int, Tensor]], places: Tensor, sample: Tensor) -> Tensor:
        """The deviations of the models at points of several levels, ``(K, H, C)``."""
        result = self.values.new_empty(2 if self.covariances else 1, len(places), self.values.shape[-1])
        for n, rows in levels:
            result[:, rows] = self._deviations(n, places[rows], sample[rows])
        least: Tensor = result.clamp_min(torch.finfo(result.dtype).tiny)
        return least


def _by_level(number: Tensor, wanted: Tensor | None = None) -> list[tuple[int, Tensor]]:
    """Row indices ``(h,)`` of each level number, of the wanted rows."""
    wanted = torch.ones_like(number, dtype=torch.bool) if wanted is None else wanted
    levels = torch.unique(number[wanted]).long().tolist()
    return [(n, (wanted & (number == n)).nonzero()[:, 0]) for n in levels]


def _repeated(values: Tensor, coords: Tensor, periodic: Sequence[bool], scale: Tensor) -> tuple[Tensor, Tensor]:
    """Samples and, after them, copies of samples within eight spacings of the ends of periodic axes, at the other end."""
    spacing = len(values) ** (-1 / coords.shape[1]) * float(scale.log().mean().exp())
    for axis in (a for a, repeats in enumerate(periodic) if repeats):
        margin = min(0.5, 8 * spacing / float(scale[axis]))
        along, turn = coords[:, axis], torch.zeros_like(coords[:1])
        turn[0, axis] = 1
        first, last = along < margin, along >= 1 - margin
        values = torch.cat([values, values[first], values[last]])
        coords = torch.cat([coords, coords[first] + turn, coords[last] - turn])
    return values, coords

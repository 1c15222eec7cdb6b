"""The adaptive exact fit at scattered samples: local fits in cells of samples, weighted by leave-one-out errors.

Samples are divided into cells of a few samples (:mod:`pe_lightning.solvers.neighbourhoods`). A member of a bank is fitted
to the samples around a cell by one factorisation, which gives the leave-one-out errors of the samples of the cell and the
predictions at its points (:mod:`pe_lightning.solvers.local_kriging`). Only cells near the requested points are computed.

Points in a gap, far from all samples, are predicted from means of samples at a distance that grows with the gap, so that the
errors that weight the members there are errors over such distances.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pe_lightning.encodings.bank import Bank
from pe_lightning.errors import InputError
from pe_lightning.linalg.threads import one_thread, side_by_side
from pe_lightning.solvers.adaptive import ERROR_FLOOR, ERROR_POWER
from pe_lightning.solvers.gaps import has_wide_gaps
from pe_lightning.solvers.local_kriging import LocalKriging
from pe_lightning.solvers.neighbourhoods import Neighbourhoods
from pe_lightning.solvers.power_kriging import POWERS, Block, PowerKriging, blocks_of

__all__ = ["NOISE_RIDGES", "RIDGE", "AdaptivePoints", "HeldOut"]

NUM_NEIGHBOURS = (12, 32, 48)
"""Samples that a member is fitted to, for 1, 2 and 3 axes."""
CELL_SAMPLES = (4, 8, 8)
"""Most samples of a cell, which share their neighbours, for 1, 2 and 3 axes."""
MIN_SAMPLES = (4, 6, 8)
"""Fewest samples of a signal, for 1, 2 and 3 axes."""
RIDGE = 2.0**-4
"""Ridge of the local fits without noise; larger than on a grid, since some samples nearly coincide."""
NOISE_RIDGES = tuple(RIDGE * 2.0**n for n in (-2, 0, 1, 2, 3, 4))
"""Ridges that are tried for noisy samples, and for samples that may be noisy."""
MAX_MEMBERS = 12
"""Members that predict the points of a cell: those of the largest weight."""
WINDOW_RATIO = 1.6
"""Standard deviation of the local mean of errors, relative to the window on a grid: there are fewer kinds of errors."""
GAP_DISTANCE = 1.8
"""Distance from the nearest sample, in spacings, up to which points are predicted from the samples themselves."""
SCALE_WINDOW = 2.0
"""Standard deviation of the local mean of the errors that standard deviations are scaled by, in spacings."""
GLOBAL_SHARE = 0.05
"""Weight of the global mean of these errors relative to the local mean."""
COVERAGE = 0.9
"""Share of the leave-one-out errors within :data:`COVERAGE_DEVIATIONS` standard deviations."""
COVERAGE_DEVIATIONS = 1.6448536
"""Half the width of the central interval of a normal distribution that has this share."""
CALIBRATION_CELLS = 512
"""Cells whose errors choose the ridge, weigh the power variograms and calibrate standard deviations."""
MEAN_CELLS = 128
"""Cells whose mean error enters standard deviations."""
RUN_CELLS = 32
"""Cells next to each other among these, which share most of their neighbours."""
HELD_OUT = 10
"""One sample in so many is held out to weigh the power variograms and to calibrate standard deviations."""
FACTOR_CHANGE = (0.5, 1.25)
"""Least and largest change of the factor of standard deviations from four to two spacings of a grid; half of its logarithm
is extrapolated."""
FEW_HELD_OUT = 400
"""Held-out samples below which further tenths are held out in turn, up to five."""
SMOOTHING_POWER = 1.0
"""Least power of the variograms that smooth: that of 1/2 rises so steeply that its values at samples follow their noise, and
held-out samples do not show it."""
MIN_CALIBRATION = 20
"""Fewest held-out samples that weigh and calibrate; with fewer the bank is alone and the factor is one."""
FLOAT32_RIDGE = 2.0**-7
"""Smallest ridge for which float32 is precise enough."""
GAP_QUANTILE = 0.95
"""Quantile of the distances of missing samples to known ones that is taken as half the width of the gaps."""
GAP_PLACES = 1 << 16
"""Places of the grid whose distances to the nearest sample are computed."""
MAX_GAPS, MIN_GAPS = 64, 5
"""Most and fewest cubes that are held out."""
GAP_SHARE, MAX_GAP_SPLITS = 0.1, 4
"""Samples that are held out at once relative to all samples, and most times that others are held out."""
MAX_GAP_SAMPLES = 4000
"""Most samples in all cubes together whose predictions are computed."""
MIN_LEVEL_SAMPLES = 50
"""Fewest held-out samples that weigh and calibrate a level by themselves."""
SPARSITY_TOLERANCE = 0.005
"""Relative increase of the squared held-out error that is accepted for fewer members."""
WEIGHT_RIDGE = 1e-9
"""Added to the diagonal of the products of errors, relative to their trace."""
KNOWN_DISTANCE = 1e-3
"""Distance from a sample, in spacings, below which a point is that sample."""
SEAM_SPACINGS = 8.0
"""Distance from the seam of a periodic axis, in spacings, within which samples are repeated beyond it."""
ROWS_PER_BLOCK = 8
"""Rows of the lower triangle of a matrix of similarities that are computed at once."""
MAX_NUMBERS = {"cpu": 1 << 20}
"""Intermediate numbers that are held at once, by device: few enough for the cache of a CPU."""
MAX_NUMBERS_DEFAULT = 1 << 26


class HeldOut(NamedTuple):
    """Samples that weigh and calibrate, and their predictions by a fit to other samples."""

    held: Tensor
    """Held-out samples, ``(H,)``."""
    others: Tensor
    """The samples that are fitted."""
    predict: Callable[[Tensor], Tensor] | None = None
    """Some of the held-out samples ``(h,)`` -> predictions ``(h, C)``; by default those of the adaptive fit."""
    coarser: HeldOut | None = None
    """The same at twice the distance: half of the change of the factor (in its logarithm) is extrapolated."""


class HeldOutErrors(NamedTuple):
    """Errors at held-out samples, of the bank and of the ``M`` power variograms that are mixed with it."""

    level: Tensor
    """Number of the level that predicts each sample, ``(H,)``."""
    errors: Tensor
    """Prediction minus sample, ``(1 + M, H, C)``."""
    deviations: Callable[[], Tensor]
    """Computes standard deviations that are not calibrated, ``(H, C)``."""


class Calibration(NamedTuple):
    """What held-out samples say about predictions of a level."""

    weights: Tensor
    """Weights of the bank and of each power variogram, ``(1 + K,)``; they sum to one."""
    factor: Tensor
    """Factor of the standard deviations, ``(C,)``."""


class PointLevel:
    """Local fits to one set of samples.

    Args:
        bank: The encoders.
        values: ``(P, C)``.
        places: Positions of the samples, ``(P, D)`` float64.
        domain: Length of the unit interval in the unit of the positions.
        window: Standard deviation of the local mean of errors, in spacings.
        ridge: Ridge of the local fits.
        targets: Values that standard deviations are those of, ``(P, C)``; by default the values.
    """

    def __init__(
        self,
        bank: Bank,
        values: Tensor,
        places: Tensor,
        domain: float,
        window: float,
        ridge: float,
        targets: Tensor | None = None,
    ) -> None:
        axes, device = places.shape[1], values.device
        self.bank, self.places, self.domain, self.window, self.ridge = bank, places, domain, window, ridge
        self.profile = bank.scaled_profile(1.0, domain)
        dtype = torch.float64 if ridge < FLOAT32_RIDGE else values.dtype
        self.values, self.targets = values.to(dtype), (values if targets is None else targets).to(dtype)
        first, second = torch.triu_indices(axes, axes)
        forms = bank.sparse_forms.reshape(-1, axes, axes)
        self.forms = (forms[:, first, second] * torch.where(first == second, 1.0, 2.0)).to(device, dtype)
        self._pairs = first.to(device), second.to(device)
        self.cells = Neighbourhoods(places.cpu().numpy(), CELL_SAMPLES[axes - 1], NUM_NEIGHBOURS[axes - 1])
        self.cell = torch.from_numpy(self.cells.cell).to(device)
        self.near = torch.from_numpy(self.cells.near).to(device)
        self.own = torch.from_numpy(self.cells.own).to(device)
        self.spacing = torch.from_numpy(self.cells.spacing).to(device)
        self._errors = self.values.new_empty(len(values), len(self.forms))
        self._has_errors = torch.zeros(len(self.near), dtype=torch.bool, device=device)
        self._residuals = self.values.new_empty(len(values), self.values.shape[1] + 1)
        self._has_residuals = torch.zeros_like(self._has_errors)
        self._everywhere: Tensor | None = None

    # -- systems ----------------------------------------------------------------------------------------------------------

    def _offsets(self, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centres ``(B, 1, D)`` and units of length ``(B, 1, 1)`` of neighbourhoods, and samples in them ``(B, n, D)``."""
        places = self.places[self.near[cells]]
        centre = places.mean(1, keepdim=True)
        unit = torch.ones_like(centre[..., :1]) if self.bank.has_given_width else self.spacing[cells][:, None, None]
        return centre, unit, ((places - centre) / unit).to(self.values)

    def _similarity(self, points: Tensor, offsets: Tensor, forms: Tensor) -> Tensor:
        """Similarities of points ``(B, q, D)`` and samples ``(B, n, D)``: ``(B, M, q, n)``; forms of all, or with ``B``."""
        first, second = self._pairs
        delta = (points[:, :, None] - offsets[:, None]).flatten(1, 2).mT
        squared = forms @ (delta[:, first] * delta[:, second])
        return self.profile(squared).reshape(*squared.shape[:2], points.shape[1], offsets.shape[1])

    @torch.no_grad()
    def _fit(self, cells: Tensor, offsets: Tensor, members: Tensor | None) -> tuple[LocalKriging, Tensor]:
        """The fits of the bank's members, all or some of them, and their forms.

        Args:
            cells: ``(B,)``.
            offsets: Samples of their neighbourhoods ``(B, n, D)``.
            members: Members of the bank ``(B, J)``.
        """
        forms = self.forms if members is None else self.forms[members]
        count = offsets.shape[1]
        lower = offsets.new_empty(len(cells), forms.shape[-2], count, count)
        for start in range(0, count, ROWS_PER_BLOCK):
            rows, columns = slice(start, start + ROWS_PER_BLOCK), slice(min(start + ROWS_PER_BLOCK, count))
            lower[:, :, rows, columns] = self._similarity(offsets[:, rows], offsets[:, columns], forms)
        return LocalKriging(lower, self.ridge, self.values[self.near[cells]]), forms

    def _chunk(self, members: int) -> int:
        limit = MAX_NUMBERS.get(self.values.device.type, MAX_NUMBERS_DEFAULT)
        return max(1, limit // (members * self.near.shape[1] ** 2))

    # -- held-out errors --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def errors(self, cells: Tensor) -> Tensor:
        """Leave-one-out errors of the samples of neighbourhoods: mean squares over channels, ``(B, n, M)``."""
        self._prepare_errors(cells)
        return self._errors[self.near[cells]]

    def _prepare_errors(self, cells: Tensor) -> None:
        """Computes the errors of the samples of neighbourhoods where they are not known yet."""
        core = self.cells.core

        def errors(some: Tensor) -> Tensor:
            return self._fit(some, self._offsets(some)[2], None)[0].held_out(core)[0].square().mean(-1).mT

        self._compute(cells, self._has_errors, self._errors, errors, self._chunk(len(self.forms)))

    def _compute(self, cells: Tensor, known: Tensor, table: Tensor, compute: Callable[[Tensor], Tensor], size: int) -> None:
        """Computes the entries of a table of the samples of neighbourhoods, ``size`` cells at once, where they are missing.

        Args:
            cells: ``(B,)``.
            known: Cells whose samples have an entry, ``(G,)`` booleans; changed.
            table: ``(P, *)``; changed.
            compute: Cells ``(b,)`` -> entries of their samples ``(b, core, *)``.
            size: Cells that are computed at once.
        """
        around = torch.unique(self.cell[self.near[cells]])
        parts = around[~known[around]].split(size)
        for some, found in zip(parts, side_by_side(compute, parts, self.values.device), strict=True):
            own = self.own[some]
            table[self.near[some][:, -self.cells.core :][own]] = found[own]
        known[around] = True

    def _mixture(self, distances: Tensor, errors: Tensor) -> Tensor:
        """Weights of the members, ``(B, q, M)``, from squared distances ``(B, q, n)`` to samples and their errors."""
        local = torch.softmax(-0.5 / self.window**2 * distances, -1) @ errors
        return torch.softmax(-ERROR_POWER * (local + ERROR_FLOOR).log(), -1)

    @torch.no_grad()
    def residuals(self, cells: Tensor) -> Tensor:
        """Leave-one-out errors of the mixture per channel, and their variances before scaling: ``(B, n, C + 1)``."""
        self._prepare_residuals(cells)
        return self._residuals[self.near[cells]]

    def _prepare_residuals(self, cells: Tensor) -> None:
        """Computes the residuals of the samples of neighbourhoods where they are not known yet."""
        core = self.cells.core
        self._prepare_errors(torch.unique(self.cell[self.near[cells]]))

        def residuals(some: Tensor) -> Tensor:
            _, _, offsets = self._offsets(some)
            mixture = self._mixture(_to_others(offsets, core), self._errors[self.near[some]])
            shares, members = _strongest(mixture)
            found, variance = self._fit(some, offsets, members)[0].held_out(core)
            samples = self.near[some][:, -core:]
            residual = torch.einsum("bcj,bjcv->bcv", shares, found) + (self.targets - self.values)[samples]
            return torch.cat([residual, torch.einsum("bcj,bjc->bc", shares, variance)[..., None]], -1)

        self._compute(cells, self._has_residuals, self._residuals, residuals, self._chunk(MAX_MEMBERS))

    def mean_error(self) -> float:
        """Mean squared leave-one-out error of the mixture, over :data:`CALIBRATION_CELLS` cells."""
        return float(self.residuals(self.some_cells())[..., :-1].double().square().mean())

    def some_cells(self, count: int | None = None) -> Tensor:
        """Up to ``count`` cells, by default :data:`CALIBRATION_CELLS`, in runs of cells that are next to each other."""
        runs = -(-len(self.near) // RUN_CELLS)
        step = max(1, -(-runs * RUN_CELLS // (count or CALIBRATION_CELLS)))
        cells = torch.arange(len(self.near), device=self.near.device)
        return cells[cells // RUN_CELLS % step == 0]

    # -- values -----------------------------------------------------------------------------------------------------------

    def at(self, points: Tensor, sample: Tensor, spread: bool = False) -> Tensor:
        """Values at points, or their standard deviations, which are not calibrated.

        Args:
            points: Positions ``(Q, D)`` float64.
            sample: The nearest sample of each.
            spread: Whether standard deviations are returned.

        Returns:
            ``(Q, C)``.
        """
        cells = torch.unique(self.cell[sample])
        self._prepare_errors(cells)
        if spread:
            self._prepare_residuals(cells)
            self.everywhere()

        def values(block: Block) -> Tensor:
            centre, unit, offsets = self._offsets(block.groups)
            near = self.near[block.groups]
            at = ((points[block.points] - centre) / unit).to(self.values)
            distances = (at[:, :, None] - offsets[:, None]).square().sum(-1)
            shares, members = _strongest(self._mixture(distances, self._errors[near]), block.valid)
            fit, forms = self._fit(block.groups, offsets, members)
            similarity = self._similarity(at, offsets, forms)
            if spread:
                variance = torch.einsum("bqj,bjq->bq", shares, fit.variance(similarity))
                found = (variance[..., None] * self._scale(distances, self._residuals[near])).sqrt()
            else:
                found = torch.einsum("bqj,bjqc->bqc", shares, fit.predict(similarity))
            return found[block.valid]

        blocks = list(blocks_of(self.cell[sample], len(self.near), self._chunk(MAX_MEMBERS)))
        everything = torch.cat(side_by_side(values, blocks, self.values.device))
        indices = torch.cat([block.points[block.valid] for block in blocks])
        return torch.empty_like(everything).index_copy(0, indices, everything)

    # -- standard deviations ----------------------------------------------------------------------------------------------

    def _scale(self, distances: Tensor, residuals: Tensor) -> Tensor:
        """Variance of the signal, ``(B, q, C)``: local means of squared errors over their variances."""
        ratios = residuals[..., :-1].square() / residuals[..., -1:]
        local = torch.softmax(-0.5 / SCALE_WINDOW**2 * distances, -1) @ ratios
        return (local + GLOBAL_SHARE * self.everywhere()) / (1 + GLOBAL_SHARE)

    @torch.no_grad()
    def everywhere(self) -> Tensor:
        """Mean of squared leave-one-out errors over their variances, over :data:`MEAN_CELLS` cells, ``(C,)``."""
        if self._everywhere is None:
            residuals = self.residuals(self.some_cells(MEAN_CELLS))
            self._everywhere = (residuals[..., :-1].square() / residuals[..., -1:]).flatten(0, 1).mean(0)
        return self._everywhere


class AdaptivePoints:
    """One signal at scattered samples, as a function of coordinates.

    Predictions of the bank and of power variograms (:mod:`~pe_lightning.solvers.power_kriging`) are mixed with weights of
    the least error at held-out samples, by the distance to the nearest sample. These are random samples; or cubes of samples
    as wide as the gaps, where missing samples of a grid are farther from known ones than random ones would be. A bank of one
    member is not mixed.

    Args:
        bank: The encoders.
        values: The trained samples ``(P, C)``.
        coords: Their coordinates, ``(P, D)`` in [0, 1).
        grid: Samples of the whole signal per axis, ``N_a``: the unit of lengths.
        window: Standard deviation of the local mean of errors, in spacings of a grid.
        ridge: Ridge of the local fits.
        keeps_samples: Whether the value at a sample is the sample, rather than its smoothed prediction, to which the
            variogram of the least power does not contribute.
        periodic: Which axes are periodic; by default none. Samples near the seam are repeated beyond it.
        held_out: Samples that calibrate standard deviations, with the predictions of another fit.
        refit: Another fit whose standard deviations are calibrated: fitted samples ``(F,)`` and held-out samples ``(H,)`` ->
            predictions of the latter ``(H, C)``.

    Raises:
        InputError: If there are fewer samples than a fit takes.
    """

    def __init__(
        self,
        bank: Bank,
        values: Tensor,
        coords: Tensor,
        grid: Sequence[int],
        window: float,
        ridge: float,
        keeps_samples: bool = True,
        periodic: Sequence[bool] = (),
        held_out: HeldOut | None = None,
        refit: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        axes, fewest = len(grid), MIN_SAMPLES[len(grid) - 1]
        if len(values) < fewest:
            raise InputError(f"Adaptive needs at least {fewest} samples of {axes} axes, got {len(values)}")
        self.bank, self.values, self.window, self.ridge = bank, values, window, ridge
        self.num_members, self.keeps_samples = len(bank.sparse_forms), keeps_samples
        self.scale = torch.tensor(grid, dtype=torch.float64, device=values.device)
        self.domain = float(max(grid))
        self._given, self._periodic, self._held_out, self._refit = (values, coords), periodic, held_out, refit
        if any(periodic):
            values, coords = _repeated(values, coords, periodic)
            self.values = values
        self.places = coords.double() * self.scale
        self.levels = {0: self._level(values, self.places, None)}
        nugget = ridge if ridge > RIDGE else 0.0
        self.powers = PowerKriging(values, self.places, self.levels[0].cells.tree, nugget)
        is_mixed = held_out is None and refit is None and len(bank.forms) > 1
        least = 0.0 if keeps_samples else SMOOTHING_POWER
        self._members = [m for m, power in enumerate(POWERS) if power >= least] if is_mixed else []
        self._calibrations: dict[int, Calibration] | None = None
        self.spacing = float(self.levels[0].spacing.median())
        """Median distance of neighbouring samples, in samples of the grid."""

    def _level(self, values: Tensor, places: Tensor, targets: Tensor | None) -> PointLevel:
        return PointLevel(self.bank, values, places, self.domain, WINDOW_RATIO * self.window, self.ridge, targets)

    @property
    def error(self) -> float:
        """Mean squared error at samples that are held out at random, each predicted from the other nine tenths.

        Leave-one-out errors of the mixture are lower than these where samples are noisy, the more the smaller the ridge, as
        its weights follow from the same samples. They are taken only of signals with too few samples to hold some out.
        """
        if not _is_enough(self._tenths):
            return self.levels[0].mean_error()
        errors = torch.cat([found.errors for found in self._errors_of_tenths], 1).double()
        return float(torch.einsum("m,mhc->hc", least_error_weights(errors, errors), errors).square().mean())

    @torch.inference_mode(False)
    @torch.no_grad()
    def level(self, number: int) -> PointLevel:
        """The fits to means of samples over cubes with sides of ``2**number`` spacings, fewer where too few are left."""
        if number not in self.levels:
            cube = (self.places / (self.spacing * 2.0**number)).floor().long()
            cube -= cube.amin(0)
            sizes = (cube.amax(0) + 1).tolist()
            number_of = cube[:, 0]
            for along, size in zip(
                cube.T[1:], sizes[1:], strict=True
            ):  # row-major: as unique(dim=0), without comparing rows
                number_of = number_of * size + along
            _, which, counts = torch.unique(number_of, return_inverse=True, return_counts=True)
            if len(counts) < 2 * NUM_NEIGHBOURS[len(self.scale) - 1]:
                self.levels[number] = self.level(number - 1)
                return self.levels[number]

            def means(numbers: Tensor) -> Tensor:
                total = numbers.new_zeros(len(counts), numbers.shape[1], dtype=torch.float64).index_add_(
                    0, which, numbers.double()
                )
                mean: Tensor = total / counts[:, None]
                return mean

            places = means(self.places)
            distance = (self.places - places[which]).square().sum(1)
            nearest = torch.from_numpy(np.lexsort((distance.cpu().numpy(), which.cpu().numpy()))).to(which.device)
            first = nearest[counts.cumsum(0) - counts]
            values = means(self.values).to(self.values)
            self.levels[number] = self._level(values, places, self.values[first])
        return self.levels[number]

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(Q, D)`` in [0, 1), differentiable: ``(Q, C)``."""
        return self._evaluate(points, spread=False)

    @torch.no_grad()
    def std(self, points: Tensor) -> Tensor:
        """Standard deviations at points ``(Q, D)`` in [0, 1), of values about predictions: ``(Q, C)``; zero at samples."""
        return self._evaluate(points, spread=True)

    def _numbers(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Number of the level of places ``(Q, D)``, nearest sample, and whether it is at the place, ``(Q,)`` each."""
        level = self.levels[0]
        near, away = level.cells.nearest(places.detach().cpu().numpy())
        sample, distance = torch.from_numpy(near).to(places.device), torch.from_numpy(away).to(places.device)
        spacing = level.spacing[level.cell[sample]]
        unit = spacing.clamp_min(self.spacing)
        number = torch.where(distance <= GAP_DISTANCE * unit, 0, (distance / (GAP_DISTANCE * self.spacing)).log2().ceil())
        return number, sample, distance < KNOWN_DISTANCE * spacing

    @one_thread
    def _evaluate(self, points: Tensor, spread: bool) -> Tensor:
        places = points.double() * self.scale
        found = self.values.new_zeros(len(points), self.values.shape[-1])
        if len(points) == 0:
            return found
        number, sample, known = self._numbers(places)
        if not self.keeps_samples:
            known = torch.zeros_like(known)
        wanted = ~known if not points.requires_grad or spread else torch.ones_like(known)
        for n in torch.unique(number[wanted]).long().tolist():
            which = (wanted & (number == n)).nonzero()[:, 0]
            calibration = self.calibration(n)
            if spread:
                values = calibration.factor * self._by_bank(n, places[which], sample[which], spread=True)
            else:
                weights = calibration.weights.tolist()
                members = [m for m, weight in enumerate(weights[1:]) if weight]
                values = self.values.new_zeros(len(which), self.values.shape[-1])
                if weights[0]:
                    values = values + weights[0] * self._by_bank(n, places[which], sample[which])
                if members:
                    powers = self._by_powers(n, places[which], sample[which], members)
                    values = values + torch.einsum("m,mqc->qc", calibration.weights[1:][members], powers)
            found = found.index_copy(0, which, values)
        if spread or not bool(known.any()):
            return found
        at_sample = self.values[sample]
        if points.requires_grad:  # the slope is that of the prediction
            at_sample = found + (at_sample - found).detach()
        return torch.where(known[:, None], at_sample, found)

    def _by_bank(self, number: int, places: Tensor, sample: Tensor, spread: bool = False) -> Tensor:
        """Predictions at places, given their nearest samples, or uncalibrated standard deviations: ``(Q, C)``."""
        level = self.level(number)
        if number:
            sample = torch.from_numpy(level.cells.nearest(places.detach().cpu().numpy())[0]).to(places.device)
        return level.at(places, sample, spread).to(self.values)

    def _by_powers(self, number: int, places: Tensor, sample: Tensor, members: Sequence[int]) -> Tensor:
        """Predictions of power variograms ``(M, Q, C)``; places in a cell, or in gaps in a cube, share their neighbours."""
        if number == 0:
            return self.powers.at(places, self.levels[0].cell[sample], members)
        cube = (places.detach() / (self.spacing * 2.0**number)).floor().long()
        return self.powers.at(places, torch.unique(cube, dim=0, return_inverse=True)[1], members)

    # -- held-out samples -------------------------------------------------------------------------------------------------

    @torch.inference_mode(False)
    @torch.no_grad()
    def calibration(self, number: int) -> Calibration:
        """Weights and factor of the standard deviations of a level.

        With the factor, :data:`COVERAGE` of the errors at samples that are held out are within :data:`COVERAGE_DEVIATIONS`
        standard deviations, which follow from the other samples: split conformal prediction.

        Reference: Bates and Granger, *The Combination of Forecasts*, Operational Research Quarterly 20, 1969, for the
        weights; Lei et al., *Distribution-Free Predictive Inference for Regression*, JASA 113, 2018, for the factor.
        """
        if self._calibrations is None:
            if self._held_out is None:
                side = self.gap_size()
                splits = (self._cubes(side) if side else []) or self._tenths
                if self._refit is not None:
                    splits = splits[:1]
                self._calibrations = self._calibrated(splits)
            else:
                found, coarser = self._calibrated([self._held_out])[0], self._held_out.coarser
                if coarser is not None:
                    change = found.factor / self._calibrated([coarser])[0].factor
                    found = found._replace(factor=found.factor * change.clamp(*FACTOR_CHANGE).sqrt())
                self._calibrations = {0: found}
            self.__dict__.pop("_errors_of_tenths", None)  # they hold fits of nearly the size of this one
        return self._calibrations[min(number, max(self._calibrations))]

    def _calibrated(self, splits: Sequence[HeldOut]) -> dict[int, Calibration]:
        """The calibration of each level by held-out samples; the last is that of all further levels."""
        alone = torch.tensor([1.0] + [0.0] * len(POWERS), device=self.values.device, dtype=self.values.dtype)
        if not _is_enough(splits):
            return {0: Calibration(alone, torch.ones_like(self.values[0]))}
        parts = self._errors_of_tenths if splits is self._tenths else [self._held_out_errors(split) for split in splits]
        number, deviations = torch.cat([part.level for part in parts]), torch.cat([part.deviations() for part in parts])
        errors = torch.cat([part.errors for part in parts], 1).double()
        everything = torch.ones_like(number, dtype=torch.bool)
        found: dict[int, Calibration] = {}
        for n in range(int(number.max()) + 1):
            enough = int((number == n).sum()) >= MIN_LEVEL_SAMPLES
            which = number == n if enough else everything
            weights = least_error_weights(errors[:, which], errors)
            ratios = torch.einsum("m,mhc->hc", weights, errors[:, which]).abs() / deviations[which]
            factor = (torch.quantile(ratios, COVERAGE, dim=0) / COVERAGE_DEVIATIONS).to(self.values)
            all_weights = torch.zeros_like(alone)
            all_weights[[0, *(1 + member for member in self._members)]] = weights.to(alone)
            found[n] = Calibration(all_weights, factor)
        return found

    def _held_out_errors(self, held_out: HeldOut) -> HeldOutErrors:
        """The errors of a fit to the other samples."""
        held, others, predict, _ = held_out
        if self._refit is not None:
            predict = partial(self._refit, others)
        values, coords = self._given
        grid = [int(n) for n in self.scale]
        rest = values[others], coords[others], grid, self.window, self.ridge
        fit = AdaptivePoints(self.bank, *rest, False, self._periodic)
        places = coords[held].double() * self.scale
        number, sample, _ = fit._numbers(places)
        errors = values.new_empty(1 + len(self._members), len(held), values.shape[-1])
        if predict is not None:
            errors[0] = predict(held) - values[held]
        for n, which in _by_level(number):
            at = places[which], sample[which]
            if predict is None:
                errors[0, which] = fit._by_bank(n, *at) - values[held[which]]
            if self._members:
                errors[1:, which] = fit._by_powers(n, *at, self._members) - values[held[which]]

        def deviations() -> Tensor:
            found = torch.empty_like(errors[0])
            for n, which in _by_level(number):
                found[which] = fit._by_bank(n, places[which], sample[which], spread=True)
            return found.clamp_min(torch.finfo(found.dtype).tiny)

        return HeldOutErrors(number, errors, deviations)

    @cached_property
    def _errors_of_tenths(self) -> list[HeldOutErrors]:
        return [self._held_out_errors(split) for split in self._tenths]

    @cached_property
    def _tenths(self) -> list[HeldOut]:
        """Tenths of the samples, at random: more of them where they are of few samples.

        Of many samples only those in some cells are held out, and only those around them are fitted.
        """
        total, level = len(self._given[0]), self.levels[0]
        some = level.some_cells()
        around = some
        for _ in range(2):  # the neighbours of neighbours
            around = torch.unique(level.cell[level.near[around]])
        order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).to(self.values.device)
        count = total // HELD_OUT
        number = min(HELD_OUT // 2, -(-FEW_HELD_OUT // max(1, count)))
        splits = []
        for start in (count * n for n in range(number)):
            held = order[start : start + count]
            others = torch.cat([order[:start], order[start + count :]])
            near = held[torch.isin(level.cell[held], some)]
            if len(near) >= MIN_CALIBRATION:
                held = near
                if self._refit is None:
                    others = others[torch.isin(level.cell[others], around)]
            splits.append(HeldOut(held, others))
        return splits

    # -- gaps -------------------------------------------------------------------------------------------------------------

    def gap_size(self) -> float:
        """Width of the gaps in samples of the grid; 0 if missing samples are as near to known ones as random ones are."""
        grid, axes = self.scale.cpu(), len(self.scale)
        random = torch.Generator().manual_seed(0)
        nodes = (torch.rand(GAP_PLACES, axes, generator=random, dtype=torch.float64) * grid).floor()
        distance = torch.from_numpy(self.levels[0].cells.nearest(nodes.numpy())[1])
        missing = distance[distance > KNOWN_DISTANCE]
        known = len(self._given[0]) / float(grid.prod())
        if known >= 1 or len(missing) < MIN_CALIBRATION:
            return 0.0
        if not has_wide_gaps(float(missing.mean()), 1 - known, [round(n) for n in grid.tolist()]):
            return 0.0
        return max(2.0, 2 * float(torch.quantile(missing, GAP_QUANTILE)) - 1)

    def _cubes(self, side: float) -> list[HeldOut]:
        """Samples in cubes of this side in samples of the grid; none if there are too few cubes."""
        values, coords = self._given
        cube = (coords.double() * self.scale / side).floor().long()
        _, which, counts = torch.unique(cube, dim=0, return_inverse=True, return_counts=True)
        order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0)).to(which.device)
        order = order[:MAX_GAPS]
        most = GAP_SHARE * len(values)
        splits = min(MAX_GAP_SPLITS, math.ceil(float(counts[order].sum()) / most))
        split = (counts[order].cumsum(0) / most).ceil().long() - 1
        split_of = torch.full_like(counts, splits).index_copy(0, order, split)[which]
        held_out = [split_of == n for n in range(splits)]
        if int((split < splits).sum()) < MIN_GAPS or int((split_of < splits).sum()) < MIN_CALIBRATION:
            return []
        step = -(-sum(int(held.sum()) for held in held_out) // MAX_GAP_SAMPLES)
        return [HeldOut(held.nonzero()[::step, 0], (~held).nonzero()[:, 0]) for held in held_out if bool(held.any())]

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""
        points = torch.cartesian_prod(*axes).reshape(-1, len(axes)).to(self.values.device)
        return self.at(points).reshape(*(len(x) for x in axes), -1)


def _is_enough(splits: Sequence[HeldOut]) -> bool:
    """Whether there are as many held-out samples, and samples to fit, as weights and calibration take."""
    return min(sum(len(split.held) for split in splits), *(len(split.others) for split in splits)) >= MIN_CALIBRATION


def _by_level(number: Tensor) -> list[tuple[int, Tensor]]:
    """Levels among these numbers, and which places ``(h,)`` have each."""
    return [(n, (number == n).nonzero()[:, 0]) for n in torch.unique(number).long().tolist()]


def _repeated(values: Tensor, coords: Tensor, periodic: Sequence[bool]) -> tuple[Tensor, Tensor]:
    """Samples and, after them, those near the ends of periodic axes, at the other end."""
    margin = min(0.5, SEAM_SPACINGS * len(values) ** (-1 / coords.shape[1]))
    for axis in (a for a, repeats in enumerate(periodic) if repeats):
        along, turn = coords[:, axis], torch.zeros_like(coords[:1])
        turn[0, axis] = 1
        first, last = along < margin, along >= 1 - margin
        values = torch.cat([values, values[first], values[last]])
        coords = torch.cat([coords, coords[first] + turn, coords[last] - turn])
    return values, coords


def _to_others(offsets: Tensor, core: int) -> Tensor:
    """Squared distances from the last ``core`` samples to all, infinite to themselves: ``(B, n, D)`` -> ``(B, core, n)``."""
    distances = (offsets[:, -core:, None] - offsets[:, None]).square().sum(-1)
    number = torch.arange(core, device=offsets.device)
    distances[:, number, number + offsets.shape[1] - core] = math.inf
    return distances


def _strongest(mixture: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The strongest members over the points of a cell, ``(B, J)``, and their shares ``(B, q, J)``, which sum to one."""
    total = mixture.detach() if valid is None else mixture.detach() * valid[..., None]
    members = total.sum(1).topk(min(MAX_MEMBERS, mixture.shape[-1]), 1).indices
    shares = mixture.gather(2, members[:, None].expand(-1, mixture.shape[1], -1))
    return shares / shares.sum(-1, keepdim=True), members


def least_error_weights(errors: Tensor, more: Tensor) -> Tensor:
    """Weights, not negative and with sum one, of the fewest predictions whose mean has about the least squared error.

    Args:
        errors: Errors of each prediction, ``(M, *)``.
        more: Errors at further samples, ``(M, *)``: the mean products of both, relative to their sums of squares, are added,
            so that weights by few samples are close to those by all.

    Returns:
        ``(M,)``: those of the smallest set whose error is within :data:`SPARSITY_TOLERANCE` of the least one.
    """
    product = torch.zeros(len(errors), len(errors), dtype=torch.float64)
    for part in (errors, more):
        flat = part.double().flatten(1).cpu()
        flat = flat / flat.square().sum().sqrt().clamp_min(torch.finfo(torch.float64).tiny ** 0.25)
        product += flat @ flat.T
    product.diagonal().add_(WEIGHT_RIDGE * product.trace() + torch.finfo(torch.float64).tiny)
    found = []
    for count in range(1, len(flat) + 1):
        best = math.inf, torch.zeros(len(flat), dtype=torch.float64)
        for some in map(list, itertools.combinations(range(len(flat)), count)):
            solution = torch.linalg.solve(product[some][:, some], torch.ones(count, dtype=torch.float64))
            weights = torch.zeros_like(best[1])
            weights[some] = solution / solution.sum()
            error = float(weights @ product @ weights)
            if bool((weights >= 0).all()) and error < best[0]:
                best = error, weights
        found.append(best)
    least = min(error for error, _ in found)
    return next(weights for error, weights in found if error <= (1 + SPARSITY_TOLERANCE) * least).to(errors.device)

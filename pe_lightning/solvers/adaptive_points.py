"""The adaptive exact fit at scattered samples: local fits in cells of samples, weighted by leave-one-out errors.

Samples are divided into cells of a few samples (:mod:`pe_lightning.solvers.neighbourhoods`). A member of a bank is fitted
to the samples around a cell by one factorisation, which gives the leave-one-out errors of the samples of the cell and the
predictions at its points (:mod:`pe_lightning.solvers.local_kriging`). Only cells near the requested points are computed.

Points in a gap, far from all samples, are predicted from means of samples at a distance that grows with the gap, so that the
errors that weight the members there are errors over such distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from pe_lightning.encodings.bank import Bank
from pe_lightning.errors import InputError
from pe_lightning.solvers.adaptive import ERROR_FLOOR, ERROR_POWER
from pe_lightning.solvers.local_kriging import LocalKriging
from pe_lightning.solvers.neighbourhoods import Neighbourhoods

__all__ = ["RIDGE", "AdaptivePoints", "HeldOut"]

NUM_NEIGHBOURS = (12, 32, 48)
"""Samples that a member is fitted to, for 1, 2 and 3 axes."""
CELL_SAMPLES = (4, 8, 8)
"""Most samples of a cell, which share their neighbours, for 1, 2 and 3 axes."""
MIN_SAMPLES = (4, 6, 8)
"""Fewest samples of a signal, for 1, 2 and 3 axes."""
RIDGE = 2.0**-4
"""Ridge of the local fits without noise; larger than on a grid, since some samples nearly coincide."""
SMOOTH_MEMBERS = ((8.0, 2.0**-11), (16.0, 2.0**-17))
"""Lengths of further members, for smooth signals, relative to that of the encoder, and their ridges, relative to that of the
others. They are computed in float64."""
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
"""Cells whose errors choose the ridge and calibrate standard deviations."""
MEAN_CELLS = 128
"""Cells whose mean error enters standard deviations, where others calibrate them."""
RUN_CELLS = 32
"""Cells next to each other among these, which share most of their neighbours."""
HELD_OUT = 10
"""One sample in so many is held out to calibrate standard deviations."""
FACTOR_CHANGE = (0.5, 1.25)
"""Least and largest change of the factor of standard deviations from four to two spacings of a grid; half of its logarithm
is extrapolated."""
FEW_HELD_OUT = 400
"""Held-out samples below which further tenths are held out in turn, up to five."""
MIN_CALIBRATION = 20
"""Fewest samples that calibrate standard deviations; with fewer they stay as the leave-one-out errors have them."""
FLOAT32_RIDGE = 2.0**-7
"""Smallest ridge for which float32 is precise enough."""
WIDE_GAP = 1.15
"""Mean distance of missing samples to known ones, relative to as many random missing samples, above which cubes of samples
are held out to calibrate standard deviations."""
GAP_QUANTILE = 0.95
"""Quantile of this distance that is taken as half the width of the gaps."""
GAP_PLACES = 1 << 16
"""Places of the grid that this distance is the mean of."""
MAX_GAP_SAMPLES, GAP_SHARE = 6000, 0.15
"""Most samples that are held out in cubes, and most of them relative to all samples."""
MIN_GAPS, MAX_GAPS = 5, 64
"""Fewest and most cubes."""
MIN_LEVEL_SAMPLES = 50
"""Fewest held-out samples that calibrate a level by themselves."""
KNOWN_DISTANCE = 1e-3
"""Distance from a sample, in spacings, below which a point is that sample."""
SEAM_SPACINGS = 8.0
"""Distance from the seam of a periodic axis, in spacings, within which samples are repeated beyond it."""
POINTS_PER_BLOCK = 128
"""Most points of a cell that are predicted at once."""
MAX_NUMBERS = {"cpu": 1 << 20}
"""Intermediate numbers that are held at once, by device: few enough for the cache of a CPU."""
MAX_NUMBERS_DEFAULT = 1 << 26


class HeldOut(NamedTuple):
    """Samples that calibrate standard deviations, and their predictions by a fit to other samples."""

    held: Tensor
    """Held-out samples, ``(H,)``."""
    others: Tensor
    """The samples that are fitted."""
    predict: Callable[[Tensor], Tensor] | None = None
    """Some of the held-out samples ``(h,)`` -> predictions ``(h, C)``; by default those of the adaptive fit."""
    coarser: HeldOut | None = None
    """The same at twice the distance: half of the change of the factor (in its logarithm) is extrapolated."""


class Block(NamedTuple):
    """Points of some cells."""

    cells: Tensor
    """``(B,)``."""
    points: Tensor
    """Numbers of the points of each cell, ``(B, Q)``; padded."""
    valid: Tensor
    """Which are not padding, ``(B, Q)`` booleans."""


class PointLevel:
    """Local fits to one set of samples.

    Args:
        bank: The encoders.
        values: ``(P, C)``.
        places: Positions of the samples, ``(P, D)`` float64.
        domain: Length of the unit interval in the unit of the positions.
        window: Standard deviation of the local mean of errors, in spacings.
        ridge: Ridge of the local fits.
        targets: Values that standard deviations are calibrated for, ``(P, C)``; by default the values.
        held_out: Samples that calibrate standard deviations; by default a tenth of them, at random.
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
        held_out: HeldOut | None = None,
    ) -> None:
        axes, device = places.shape[1], values.device
        self.bank, self.places, self.domain, self.window, self.ridge = bank, places, domain, window, ridge
        self.profile = bank.scaled_profile(1.0, domain)
        dtype = torch.float64 if ridge < FLOAT32_RIDGE else values.dtype
        self.values, self.targets = values.to(dtype), (values if targets is None else targets).to(dtype)
        self.forms = bank.forms.to(device, dtype)
        self.ridges = torch.full((len(self.forms),), ridge, dtype=dtype, device=device)
        smooth = torch.tensor(SMOOTH_MEMBERS, dtype=torch.float64, device=device)
        if len(self.forms) == 1 or bank.has_given_width:  # the encoder alone is wanted
            smooth = smooth[:0]
        self.smooth_forms = bank.forms[:1].to(device) / smooth[:, :1] ** 2
        self.smooth_ridges = ridge * smooth[:, 1]
        self.cells = Neighbourhoods(places.cpu().numpy(), CELL_SAMPLES[axes - 1], NUM_NEIGHBOURS[axes - 1])
        self.cell = torch.from_numpy(self.cells.cell).to(device)
        self.near = torch.from_numpy(self.cells.near).to(device)
        self.own = torch.from_numpy(self.cells.own).to(device)
        self.spacing = torch.from_numpy(self.cells.spacing).to(device)
        self._errors = self.values.new_empty(len(values), len(self.forms) + len(self.smooth_forms))
        self._has_errors = torch.zeros(len(self.near), dtype=torch.bool, device=device)
        self._residuals = self.values.new_empty(len(values), self.values.shape[1] + 1)
        self._has_residuals = torch.zeros_like(self._has_errors)
        self._calibration: tuple[Tensor, Tensor] | None = None
        self._held_out = held_out
        self.gap_factor: Tensor | None = None
        """Factor of the standard deviations ``(C,)`` by samples held out in blocks; by default it is computed here."""

    # -- systems ----------------------------------------------------------------------------------------------------------

    def _offsets(self, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centres ``(B, 1, D)`` and units of length ``(B, 1, 1)`` of neighbourhoods, and samples in them ``(B, n, D)``."""
        places = self.places[self.near[cells]]
        centre = places.mean(1, keepdim=True)
        unit = torch.ones_like(centre[..., :1]) if self.bank.has_given_width else self.spacing[cells][:, None, None]
        return centre, unit, (places - centre) / unit

    def _similarity(self, delta: Tensor, forms: Tensor) -> Tensor:
        """Similarities from differences: ``(B, q, n, D)`` -> ``(B, M, q, n)``; ``forms`` ``(M, D * D)`` or with ``B``."""
        products = (delta[..., :, None] * delta[..., None, :]).flatten(1, 2).flatten(2)  # (B, q n, D D)
        squared = forms @ products.mT
        found = self.profile(squared)
        return found.reshape(*found.shape[:2], *delta.shape[1:3])

    def _groups(
        self, cells: Tensor, offsets: Tensor, members: Tensor | None, delta: Tensor | None = None
    ) -> Iterator[tuple[LocalKriging, Tensor]]:
        """The fits of the bank's members, all or some of them, and those of the smooth ones, with similarities to points.

        Args:
            cells: ``(B,)``.
            offsets: Samples of their neighbourhoods ``(B, n, D)``.
            members: Members of the bank ``(B, J)``.
            delta: Differences of points and samples, ``(B, q, n, D)``.
        """
        near = self.near[cells]
        chosen: slice | Tensor = slice(None) if members is None else members
        groups = [(self.forms[chosen], self.ridges[chosen], self.values)]
        if len(self.smooth_forms):
            groups.append((self.smooth_forms, self.smooth_ridges, self.values.double()))
        for forms, ridges, values in groups:
            with torch.no_grad():
                among = (offsets[:, :, None] - offsets[:, None]).to(values)
                kriging = LocalKriging(self._similarity(among, forms), ridges, values[near])
            yield kriging, self._similarity((offsets[:, :0, None] if delta is None else delta).to(values), forms)

    def _chunk(self, members: int) -> int:
        limit = MAX_NUMBERS.get(self.values.device.type, MAX_NUMBERS_DEFAULT)
        return max(1, limit // (members * self.near.shape[1] ** 2))

    # -- held-out errors --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def errors(self, cells: Tensor) -> Tensor:
        """Leave-one-out errors of the samples of neighbourhoods: mean squares over channels, ``(B, n, M)``."""
        around = torch.unique(self.cell[self.near[cells]])
        core = self.cells.core
        for some in around[~self._has_errors[around]].split(self._chunk(len(self.forms))):
            groups = self._groups(some, self._offsets(some)[2], None)
            errors = [fit.held_out(core)[0].square().mean(-1).to(self._errors) for fit, _ in groups]
            own = self.own[some]
            self._errors[self.near[some][:, -core:][own]] = torch.cat(errors, 1).mT[own]
        self._has_errors[around] = True
        return self._errors[self.near[cells]]

    def _mixture(self, distances: Tensor, errors: Tensor) -> Tensor:
        """Weights of the members, ``(B, q, M)``, from squared distances ``(B, q, n)`` to samples and their errors."""
        local = torch.softmax(-0.5 / self.window**2 * distances, -1) @ errors
        return torch.softmax(-ERROR_POWER * (local + ERROR_FLOOR).log(), -1)

    @torch.no_grad()
    def residuals(self, cells: Tensor) -> Tensor:
        """Leave-one-out errors of the mixture per channel, and their variances before scaling: ``(B, n, C + 1)``."""
        around = torch.unique(self.cell[self.near[cells]])
        core = self.cells.core
        for some in around[~self._has_residuals[around]].split(self._chunk(MAX_MEMBERS)):
            _, _, offsets = self._offsets(some)
            mixture = self._mixture(_to_others(offsets, core).to(self.values), self.errors(some))
            shares, members = _strongest(mixture, len(self.forms))
            each = [fit.held_out(core) for fit, _ in self._groups(some, offsets, members)]
            found, variance = (torch.cat([part.to(shares) for part in parts], 1) for parts in zip(*each, strict=True))
            samples = self.near[some][:, -core:]
            residual = torch.einsum("bcj,bjcv->bcv", shares, found) + (self.targets - self.values)[samples]
            both = torch.cat([residual, torch.einsum("bcj,bjc->bc", shares, variance)[..., None]], -1)
            self._residuals[samples[self.own[some]]] = both[self.own[some]]
        self._has_residuals[around] = True
        return self._residuals[self.near[cells]]

    def mean_error(self) -> float:
        """Mean squared leave-one-out error of the mixture, over :data:`CALIBRATION_CELLS` cells."""
        return float(self.residuals(self._some_cells())[..., :-1].double().square().mean())

    def _some_cells(self, count: int | None = None) -> Tensor:
        """Up to ``count`` cells, by default :data:`CALIBRATION_CELLS`, in runs of cells that are next to each other."""
        runs = -(-len(self.near) // RUN_CELLS)
        step = max(1, -(-runs * RUN_CELLS // (count or CALIBRATION_CELLS)))
        cells = torch.arange(len(self.near), device=self.near.device)
        return cells[cells // RUN_CELLS % step == 0]

    # -- values -----------------------------------------------------------------------------------------------------------

    def blocks(self, sample: Tensor) -> Iterator[Block]:
        """Points in blocks of cells, by the nearest sample of each, ``(Q,)``. Cells with as many points are together."""
        cell = self.cell[sample]
        order = cell.argsort(stable=True)
        counts = cell.bincount(minlength=len(self.near))
        first = counts.cumsum(0) - counts
        parts = (counts + POINTS_PER_BLOCK - 1) // POINTS_PER_BLOCK
        cells = torch.arange(len(counts), device=cell.device).repeat_interleave(parts)
        part = torch.arange(len(cells), device=cell.device) - (parts.cumsum(0) - parts)[cells]
        start = first[cells] + part * POINTS_PER_BLOCK
        sizes = (counts[cells] - part * POINTS_PER_BLOCK).clamp_max(POINTS_PER_BLOCK)
        for some in torch.split(sizes.argsort(stable=True), self._chunk(MAX_MEMBERS)):
            column = torch.arange(int(sizes[some[-1]]), device=cell.device)
            valid = column < sizes[some][:, None]
            index = order[(start[some][:, None] + column).clamp_max(len(order) - 1)]
            yield Block(cells[some], index, valid)

    def at(self, points: Tensor, sample: Tensor, spread: bool = False) -> Tensor:
        """Values at points, or their standard deviations.

        Args:
            points: Positions ``(Q, D)`` float64.
            sample: The nearest sample of each.
            spread: Whether standard deviations are returned.

        Returns:
            ``(Q, C)``.
        """
        indices, values = [], []
        for block in self.blocks(sample):
            centre, unit, offsets = self._offsets(block.cells)
            delta = ((points[block.points] - centre) / unit)[:, :, None] - offsets[:, None]
            distances = delta.square().sum(-1).to(self.values)
            mixture = self._mixture(distances, self.errors(block.cells))
            shares, members = _strongest(mixture, len(self.forms), block.valid)
            groups = self._groups(block.cells, offsets, members, delta)
            if spread:
                each = [fit.variance(similarity).to(shares) for fit, similarity in groups]
                variance = torch.einsum("bqj,bjq->bq", shares, torch.cat(each, 1))
                found = (variance[..., None] * self._scale(distances, self.residuals(block.cells))).sqrt()
            else:
                each = [fit.predict(similarity).to(shares) for fit, similarity in groups]
                found = torch.einsum("bqj,bjqc->bqc", shares, torch.cat(each, 1))
            indices.append(block.points[block.valid])
            values.append(found[block.valid])
        everything = torch.cat(values)
        return torch.empty_like(everything).index_copy(0, torch.cat(indices), everything)

    # -- standard deviations ----------------------------------------------------------------------------------------------

    def _scale(self, distances: Tensor, residuals: Tensor) -> Tensor:
        """Variance of the signal, ``(B, q, C)``: local means of squared errors over their variances, calibrated."""
        factor, everywhere = self.calibration()
        ratios = residuals[..., :-1].square() / residuals[..., -1:]
        local = torch.softmax(-0.5 / SCALE_WINDOW**2 * distances, -1) @ ratios
        return factor**2 * (local + GLOBAL_SHARE * everywhere) / (1 + GLOBAL_SHARE)

    @torch.no_grad()
    def calibration(self) -> tuple[Tensor, Tensor]:
        """Factor of the standard deviations per channel, and the mean of squared errors over their variances, ``(C,)`` each.

        With the factor, :data:`COVERAGE` of the errors at samples that are held out are within :data:`COVERAGE_DEVIATIONS`
        standard deviations, which follow from the other samples: split conformal prediction.

        Reference: Lei et al., *Distribution-Free Predictive Inference for Regression*, JASA 113, 2018.
        """
        if self._calibration is None:
            residuals = self.residuals(self._some_cells(CALIBRATION_CELLS if self.gap_factor is None else MEAN_CELLS))
            everywhere = (residuals[..., :-1].square() / residuals[..., -1:]).flatten(0, 1).mean(0)
            if self.gap_factor is not None:
                self._calibration = self.gap_factor, everywhere
                return self._calibration
            factor = self._factor([self._held_out] if self._held_out else self._tenths())
            if self._held_out and self._held_out.coarser is not None:
                factor = factor * (factor / self._factor([self._held_out.coarser])).clamp(*FACTOR_CHANGE).sqrt()
            self._calibration = factor, everywhere
        return self._calibration

    def _factor(self, splits: Sequence[HeldOut]) -> Tensor:
        """Ratio of held-out errors to standard deviations that follow from the fitted samples alone, ``(C,)``."""
        if min(len(part) for split in splits for part in split[:2]) < MIN_CALIBRATION:
            return torch.ones_like(self.values[0])
        ratios = torch.cat([self._ratios(split) for split in splits])
        return (torch.quantile(ratios.double(), COVERAGE, dim=0) / COVERAGE_DEVIATIONS).to(self.values)

    def _ratios(self, held_out: HeldOut) -> Tensor:
        """Absolute held-out errors relative to these standard deviations, ``(h, C)``."""
        held, others, predict, _ = held_out
        rest = (self.values[others], self.places[others], self.domain, self.window, self.ridge, self.targets[others])
        fit = PointLevel(self.bank, *rest)
        some = held[torch.isin(self.cell[held], self._some_cells())]
        held = some if len(some) >= MIN_CALIBRATION else held
        near = torch.from_numpy(fit.cells.nearest(self.places[held].cpu().numpy())[0]).to(held.device)
        residuals = fit.residuals(torch.unique(fit.cell[near]))
        fit._calibration = (
            torch.ones_like(self.values[0]),
            (residuals[..., :-1].square() / residuals[..., -1:]).flatten(0, 1).mean(0),
        )
        prediction = predict(held) if predict else fit.at(self.places[held], near)
        deviations = fit.at(self.places[held], near, spread=True)
        return (prediction - self.targets[held]).abs() / deviations.clamp_min(torch.finfo(deviations.dtype).tiny)

    def _tenths(self) -> list[HeldOut]:
        """Tenths of the samples, at random: more of them where they are of few samples."""
        order = torch.randperm(len(self.values), generator=torch.Generator().manual_seed(0)).to(self.values.device)
        count = len(order) // HELD_OUT
        number = min(HELD_OUT // 2, -(-FEW_HELD_OUT // max(1, count)))
        starts = [count * n for n in range(number)]
        return [HeldOut(order[i : i + count], torch.cat([order[:i], order[i + count :]])) for i in starts]


class AdaptivePoints:
    """One signal at scattered samples, as a function of coordinates.

    Args:
        bank: The encoders.
        values: The trained samples ``(P, C)``.
        coords: Their coordinates, ``(P, D)`` in [0, 1).
        grid: Samples of the whole signal per axis, ``N_a``: the unit of lengths.
        window: Standard deviation of the local mean of errors, in spacings of a grid.
        ridge: Ridge of the local fits.
        keeps_samples: Whether the value at a sample is the sample, rather than its smoothed prediction.
        periodic: Which axes are periodic; by default none. Samples near the seam are repeated beyond it.
        held_out: Samples that calibrate standard deviations; by default a tenth of them, at random.
        refit: Of standard deviations of another fit to the samples: fitted samples ``(F,)`` and held-out samples ``(H,)`` ->
            predictions of the latter ``(H, C)``, for samples that are held out in cubes as wide as gaps.

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
        self.num_members, self.keeps_samples = len(bank.forms), keeps_samples
        self.scale = torch.tensor(grid, dtype=torch.float64, device=values.device)
        self.domain = float(max(grid))
        given = values, coords
        if any(periodic):
            values, coords = _repeated(values, coords, periodic)
            self.values = values
        self.places = coords.double() * self.scale
        self._given, self._periodic = given, periodic
        self._refit, self._calibrates_gaps = refit, held_out is None or refit is not None
        self._gap_factors: dict[int, Tensor] | None = None
        self.levels = {0: self._level(values, self.places, None, held_out)}
        self.spacing = float(self.levels[0].spacing.median())
        """Median distance of neighbouring samples, in samples of the grid."""

    def _level(self, values: Tensor, places: Tensor, targets: Tensor | None, held_out: HeldOut | None = None) -> PointLevel:
        window = WINDOW_RATIO * self.window
        return PointLevel(self.bank, values, places, self.domain, window, self.ridge, targets, held_out)

    @property
    def error(self) -> float:
        """Mean squared leave-one-out error of the members with the weights of the mixture."""
        return self.levels[0].mean_error()

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
            at = self.level(n)
            if spread and at.gap_factor is None and self.gap_factors():
                at.gap_factor = self.gap_factors()[min(n, max(self.gap_factors()))]
            if n:
                own = torch.from_numpy(at.cells.nearest(places[which].detach().cpu().numpy())[0]).to(places.device)
            else:
                own = sample[which]
            found = found.index_copy(0, which, at.at(places[which], own, spread).to(found))
        if spread or not bool(known.any()):
            return found
        at_sample = self.values[sample]
        if points.requires_grad:  # the slope is that of the prediction
            at_sample = found + (at_sample - found).detach()
        return torch.where(known[:, None], at_sample, found)

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
        unknown = torch.rand([round(GAP_PLACES ** (1 / axes))] * axes, generator=random).numpy() >= known
        if not unknown.any() or unknown.all() or missing.mean() < WIDE_GAP * distance_transform_edt(unknown)[unknown].mean():
            return 0.0
        return max(2.0, 2 * float(torch.quantile(missing, GAP_QUANTILE)) - 1)

    @torch.inference_mode(False)
    @torch.no_grad()
    def gap_factors(self) -> dict[int, Tensor]:
        """Factors of the standard deviations by level, from samples that are held out in cubes as wide as the gaps.

        Empty where missing samples are as near to known ones as random ones would be, or too few cubes can be held out.
        """
        if self._gap_factors is None:
            self._gap_factors = {}
            side = self.gap_size() if self._calibrates_gaps else 0.0
            if side:
                self._gap_factors = self._factors_of_cubes(side)
        return self._gap_factors

    def _factors_of_cubes(self, side: float) -> dict[int, Tensor]:
        """:meth:`gap_factors`, ``(C,)`` each, by cubes of this side in samples of the grid."""
        values, coords = self._given
        cube = (coords.double() * self.scale / side).floor().long()
        _, which, counts = torch.unique(cube, dim=0, return_inverse=True, return_counts=True)
        order = torch.randperm(len(counts), generator=torch.Generator().manual_seed(0)).to(which.device)
        order = order[:MAX_GAPS]
        taken = order[counts[order].cumsum(0) <= min(MAX_GAP_SAMPLES, GAP_SHARE * len(values))]
        held = torch.isin(which, taken)
        if len(taken) < MIN_GAPS or int(held.sum()) < MIN_CALIBRATION:
            return {}
        grid = [int(n) for n in self.scale]
        others = values[~held], coords[~held], grid, self.window, self.ridge
        fit = AdaptivePoints(self.bank, *others, False, self._periodic)
        fit._gap_factors = {0: torch.ones_like(fit.values[0])}  # the last factor is that of all further levels
        places = coords[held]
        predicted = self._refit((~held).nonzero()[:, 0], held.nonzero()[:, 0]) if self._refit else fit.at(places)
        errors = (predicted - values[held]).abs()
        deviations = fit.std(places)
        normalised = (errors / deviations.clamp_min(torch.finfo(deviations.dtype).tiny)).double()
        number = fit._numbers(places.double() * self.scale)[0]

        def factor(which: Tensor) -> Tensor:
            return (torch.quantile(normalised[which], COVERAGE, dim=0) / COVERAGE_DEVIATIONS).to(values)

        found: dict[int, Tensor] = {}
        every = factor(torch.ones_like(number, dtype=torch.bool))
        for n in range(int(number.max()) + 1):
            at = number == n
            found[n] = factor(at) if int(at.sum()) >= MIN_LEVEL_SAMPLES else found.get(n - 1, every)
        return found

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""
        points = torch.cartesian_prod(*axes).reshape(-1, len(axes)).to(self.values.device)
        return self.at(points).reshape(*(len(x) for x in axes), -1)


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


def _strongest(mixture: Tensor, count: int, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The strongest of the first ``count`` members over the points of a cell, ``(B, J)``, and shares ``(B, q, J + K)``.

    The ``K`` members after them have shares too; all shares of a point sum to one.
    """
    total = mixture.detach()[..., :count] if valid is None else mixture.detach()[..., :count] * valid[..., None]
    members = total.sum(1).topk(min(MAX_MEMBERS, count), 1).indices
    shares = mixture.gather(2, members[:, None].expand(-1, mixture.shape[1], -1))
    shares = torch.cat([shares, mixture[..., count:]], -1)
    return shares / shares.sum(-1, keepdim=True), members

"""Local fits of a bank to one set of scattered samples, weighted by leave-one-out errors.

A member of the bank is fitted to the samples around a cell (:mod:`~pe_fill.kriging.neighbours`) by one
factorisation (:mod:`~pe_fill.kriging.ordinary`), which gives the leave-one-out errors of the samples of the cell
and the predictions at its points. Only cells near the requested points are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.grid import ERROR_FLOOR, ERROR_POWER
from pe_fill.kriging.neighbours import Block, Neighbourhoods, by_blocks
from pe_fill.kriging.ordinary import LocalKriging
from pe_lightning.linalg.threads import side_by_side

NUM_NEIGHBOURS = (12, 32, 48)
"""Samples that a member is fitted to, for 1, 2 and 3 axes."""
CELL_SAMPLES = (4, 8, 8)
"""Most samples of a cell, which share their neighbours, for 1, 2 and 3 axes."""
MAX_MEMBERS = 12
"""Members of the largest weight, which predict the points of a cell."""
MEAN_CELLS, CALIBRATION_CELLS = 128, 512
"""Cells of the global mean; and cells that choose the ridge, weigh the power variograms and calibrate."""
MAX_NUMBERS = 1 << 20
"""Intermediate numbers that are held at once on a CPU: few enough for its cache."""


class _Rows(NamedTuple):
    """Numbers per sample that are computed for all samples of a cell when they are first needed."""

    numbers: Tensor
    """``(P, *)``."""
    known: Tensor
    """Cells whose samples have an entry, ``(G,)`` booleans."""


class PointLevel:
    """Local fits of a bank to one set of samples ``(P, C)`` at positions ``(P, D)`` float64.

    Args:
        domain: Length of the unit interval in the unit of the positions.
        window: Standard deviation of the local mean of errors, in spacings of a grid.
        ridge: Ridge of the local fits.
        targets: Values whose standard deviations are asked for, ``(P, C)``; by default the values.
    """

    def __init__(
        self,
        bank: AnisotropicKernels,
        values: Tensor,
        places: Tensor,
        domain: float,
        window: float,
        ridge: float,
        targets: Tensor | None = None,
    ) -> None:
        axes, device = places.shape[1], values.device
        self.bank, self.places, self.ridge = bank, places, ridge
        self.window = 1.6 * window  # there are fewer kinds of errors than on a grid
        self.profile = bank.scaled_profile(1.0, domain)
        dtype = torch.float64 if ridge < 2.0**-7 else values.dtype  # float32 is not precise enough for a smaller ridge
        self.values, self.targets = values.to(dtype), (values if targets is None else targets).to(dtype)
        first, second = torch.triu_indices(axes, axes)
        forms = bank.sparse_forms.reshape(-1, axes, axes)
        self.forms = (forms[:, first, second] * torch.where(first == second, 1.0, 2.0)).to(device, dtype)
        self._pairs = first.to(device), second.to(device)
        self.cells = Neighbourhoods(places.cpu().numpy(), CELL_SAMPLES[axes - 1], NUM_NEIGHBOURS[axes - 1])
        self.cell, self.near, self.own, self.spacing = (
            torch.from_numpy(part).to(device)
            for part in (self.cells.cell, self.cells.near, self.cells.own, self.cells.spacing)
        )
        unknown = torch.zeros(len(self.near), dtype=torch.bool, device=device)
        self.errors = _Rows(self.values.new_empty(len(values), len(self.forms)), unknown)
        """Leave-one-out errors of every member: mean squares over channels."""
        self.residuals = _Rows(self.values.new_empty(len(values), values.shape[1] + 1), unknown.clone())
        """Leave-one-out errors of the mixture per channel, and their variances before scaling."""
        self._everywhere: Tensor | None = None

    def at(self, points: Tensor, sample: Tensor, std: bool = False) -> Tensor:
        """Values at points ``(Q, D)`` float64 with nearest samples ``(Q,)``, or uncalibrated deviations: ``(Q, C)``."""
        cells = torch.unique(self.cell[sample])
        self._prepare_errors(cells)
        if std:
            self._prepare_residuals(cells)
            self.everywhere()

        def values(block: Block) -> Tensor:
            centre, unit, offsets = self._offsets(block.groups)
            near = self.near[block.groups]
            at = ((points[block.points] - centre) / unit).to(self.values)
            distances = (at[:, :, None] - offsets[:, None]).square().sum(-1)
            shares, members = self._strongest(self._mixture(distances, self.errors.numbers[near]), block.valid)
            fit, forms = self._fit(block.groups, offsets, members)
            similarity = self._similarity(at, offsets, forms)
            if std:
                variance = torch.einsum("bqj,bjq->bq", shares, fit.variance(similarity))
                result = (variance[..., None] * self._scale(distances, self.residuals.numbers[near])).sqrt()
            else:
                result = torch.einsum("bqj,bjqc->bqc", shares, fit.predict(similarity))
            return result[None]

        return by_blocks(self.cell[sample], len(self.near), self._cells_at_once(MAX_MEMBERS), values)[0]

    @torch.no_grad()
    def everywhere(self) -> Tensor:
        """Mean of squared leave-one-out errors over their variances, over some cells, ``(C,)``."""
        if self._everywhere is None:
            residuals = self._residuals_of(self.some_cells(MEAN_CELLS))
            self._everywhere = (residuals[..., :-1].square() / residuals[..., -1:]).flatten(0, 1).mean(0)
        return self._everywhere

    @torch.no_grad()
    def mean_error(self) -> float:
        """Mean squared leave-one-out error of the mixture, over some cells."""
        return float(self._residuals_of(self.some_cells())[..., :-1].double().square().mean())

    def some_cells(self, count: int | None = None) -> Tensor:
        """Up to ``count`` cells, in runs of neighbouring cells, which share samples."""
        run = 32
        runs = math.ceil(len(self.near) / run)
        step = max(1, math.ceil(runs * run / (count or CALIBRATION_CELLS)))
        cells = torch.arange(len(self.near), device=self.near.device)
        return cells[cells // run % step == 0]

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
        """The fits around cells ``(B,)`` of all members of the bank, or of ``(B, J)`` of them, and their forms."""
        forms = self.forms if members is None else self.forms[members]
        count = offsets.shape[1]
        lower = offsets.new_empty(len(cells), forms.shape[-2], count, count)
        for start in range(0, count, 8):  # a few rows at once of the lower triangle
            rows, columns = slice(start, start + 8), slice(min(start + 8, count))
            lower[:, :, rows, columns] = self._similarity(offsets[:, rows], offsets[:, columns], forms)
        return LocalKriging(lower, self.ridge, self.values[self.near[cells]]), forms

    def _cells_at_once(self, members: int) -> int:
        limit = MAX_NUMBERS if self.values.device.type == "cpu" else 1 << 26
        return max(1, limit // (members * self.near.shape[1] ** 2))

    # -- leave-one-out errors ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _prepare_errors(self, cells: Tensor) -> None:

        def errors(some: Tensor) -> Tensor:
            fit, _ = self._fit(some, self._offsets(some)[2], None)
            return fit.held_out(self.cells.core)[0].square().mean(-1).mT

        self._prepare(self.errors, cells, errors, len(self.forms))

    @torch.no_grad()
    def _prepare_residuals(self, cells: Tensor) -> None:
        core = self.cells.core
        self._prepare_errors(torch.unique(self.cell[self.near[cells]]))

        def residuals(some: Tensor) -> Tensor:
            _, _, offsets = self._offsets(some)
            distances = _distances_to_others(offsets, core)
            shares, members = self._strongest(self._mixture(distances, self.errors.numbers[self.near[some]]))
            errors, variance = self._fit(some, offsets, members)[0].held_out(core)
            samples = self.near[some][:, -core:]
            residual = torch.einsum("bcj,bjcv->bcv", shares, errors) + (self.targets - self.values)[samples]
            return torch.cat([residual, torch.einsum("bcj,bjc->bc", shares, variance)[..., None]], -1)

        self._prepare(self.residuals, cells, residuals, MAX_MEMBERS)

    def _prepare(self, rows: _Rows, cells: Tensor, compute: Callable[[Tensor], Tensor], members: int) -> None:
        """Computes missing rows of the samples of neighbourhoods ``(B,)``, by members of cells ``(b,)`` at once."""
        around = torch.unique(self.cell[self.near[cells]])
        parts = around[~rows.known[around]].split(self._cells_at_once(members))
        for some, numbers in zip(parts, side_by_side(compute, parts, self.values.device), strict=True):
            own = self.own[some]
            rows.numbers[self.near[some][:, -self.cells.core :][own]] = numbers[own]
        rows.known[around] = True

    def _residuals_of(self, cells: Tensor) -> Tensor:
        self._prepare_residuals(cells)
        return self.residuals.numbers[self.near[cells]]

    # -- local weights ----------------------------------------------------------------------------------------------------

    def _mixture(self, distances: Tensor, errors: Tensor) -> Tensor:
        """Weights of the members, ``(B, q, M)``, from squared distances ``(B, q, n)`` to samples and their errors."""
        local = torch.softmax(-0.5 / self.window**2 * distances, -1) @ errors
        return torch.softmax(-ERROR_POWER * (local + ERROR_FLOOR).log(), -1)

    def _strongest(self, mixture: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Shares of the strongest members of each cell, ``(B, q, J)`` with sum one, and which they are, ``(B, J)``."""
        total = mixture.detach() if valid is None else mixture.detach() * valid[..., None]
        members = total.sum(1).topk(min(MAX_MEMBERS, mixture.shape[-1]), 1).indices
        shares = mixture.gather(2, members[:, None].expand(-1, mixture.shape[1], -1))
        return shares / shares.sum(-1, keepdim=True), members

    def _scale(self, distances: Tensor, residuals: Tensor) -> Tensor:
        """Variance of the signal, ``(B, q, C)``: local means of squared errors over their variances."""
        ratios = residuals[..., :-1].square() / residuals[..., -1:]
        local = torch.softmax(-0.5 / 2.0**2 * distances, -1) @ ratios  # a window of two spacings
        return (local + 0.05 * self.everywhere()) / 1.05


def _distances_to_others(offsets: Tensor, core: int) -> Tensor:
    """Squared distances from the last ``core`` samples to all, infinite to themselves: ``(B, n, D)`` -> ``(B, core, n)``."""
    distances = (offsets[:, -core:, None] - offsets[:, None]).square().sum(-1)
    number = torch.arange(core, device=offsets.device)
    distances[:, number, number + offsets.shape[1] - core] = math.inf
    return distances

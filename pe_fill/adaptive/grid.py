r"""The adaptive exact fit on a grid: local ridge fits by a bank of encoders, weighted by their held-out errors.

Every member of :class:`~pe_fill.adaptive.bank.AnisotropicKernels` is a ridge regression with a free mean on the
samples around a point (ordinary kriging). At every trained sample each member predicts the value twice: from its neighbours
(leave-one-out), and from samples two spacings apart, in the geometry of a prediction between samples. The weights of the
members are :math:`(e + \epsilon)^{-\beta}` of the local mean ``e`` of these squared errors.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from pe_fill.adaptive.bank import AnisotropicKernels

Numbers: TypeAlias = NDArray[Any]
NEIGHBOUR_RADIUS = 2
"""Leave-one-out predictions use the samples up to this distance along each axis: 5 x 5 - 1 in 2-D."""
ERROR_RADIUS = 4
"""Distance of the samples that the errors of a sample depend on: three for two spacings, and one more on the right."""
ERROR_POWER = 5.0
"""Members are weighted by their errors to the power of minus this."""
ERROR_FLOOR = 3e-6
"""Added to squared errors, so that differences of 1/600 of the range do not matter."""
RIDGES = tuple(2.0**power for power in (-10, -8, -6, -4, -2, 0))
"""Candidate ridges of the local fits: the first without noise, else the one with the least held-out error."""
SNAP = 2.0**-12
"""Distance before a sample, in trained samples, within which a point belongs to the cell of that sample."""
MAX_NUMBERS = 1 << 23
"""Intermediate numbers that are held at once."""
CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)


def ordinary_kriging(similarity: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Solves the ridge fit with a free mean for the weights of samples with similarities ``(*batch, n, n)`` float64.

    The weights at a point with similarities ``k`` ``(n,)`` to the samples are ``k @ slope + mean``; they sum to one.
    Negative eigenvalues, from rounding or because ``D`` of a length is not a covariance in the plane, are set to zero. The
    ridge is relative to the diagonal, which is one.

    Returns:
        ``slope`` ``(*batch, n, n)`` and ``mean`` ``(*batch, n)``.

    Reference: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 2.7.
    """
    values, vectors = torch.linalg.eigh(similarity)
    inverse = (vectors / (values.clamp_min(0) + ridge)[..., None, :]) @ vectors.mT
    ones = inverse.sum(-1)
    mean = ones / ones.sum(-1, keepdim=True)
    return inverse - ones[..., :, None] * mean[..., None, :], mean


class AdaptiveGrid:
    """One signal ``(n_1, ..., n_D, C)`` on a grid of trained samples, as a function of coordinates.

    Linear interpolation is a member too, unless the bank has one member. Beyond the outermost samples the border is
    replicated. The function is differentiable between samples; at samples it is discontinuous by the residual that the ridge
    leaves.

    Args:
        grid: Samples of the whole signal per axis: coordinates are positions divided by it.
        first: Position of the first trained sample of each axis.
        step: Distance of trained samples per axis, in samples.
        window: Standard deviation of the local mean of errors, in trained samples.
        ridge: Ridge of the local fits, relative to the diagonal.
    """

    def __init__(
        self,
        bank: AnisotropicKernels,
        values: Tensor,
        grid: Sequence[int],
        first: Sequence[float],
        step: Sequence[float],
        window: float,
        ridge: float,
    ) -> None:
        self.bank, self.values, self.grid, self.window, self.ridge = bank, values, grid, window, ridge
        self.sizes, self.has_linear = values.shape[:-1], len(bank.forms) > 1
        self.num_members = len(bank.forms) + self.has_linear
        self.first, self.step, self.spacing = list(first), list(step), math.prod(step) ** (1 / len(step))
        self._distances = torch.tensor(self.step, dtype=torch.float64, device=values.device)
        # samples around a point, counted from the sample on its left: 4 x 4 in 2-D
        self.taps = _cube((-1, 0, 1, 2), len(grid), values.device)
        self.slope, self.mean = self._kriging(self.taps)
        mixed = [self._mixture(rows) for rows in self._rows(self.sizes, 4 * self.num_members)]
        self.mixture = torch.cat([mixture for mixture, _ in mixed])
        """Weight of each member at each sample, ``(n_1, ..., n_D, M)``; they sum to one."""
        self.error = torch.stack([error for _, error in mixed]).double().sum() / math.prod(self.sizes)
        """Mean squared held-out error of the members with the weights of the mixture."""

    def _similarity(self, delta: Tensor) -> Tensor:
        """Similarities of points from differences in trained samples: ``(*batch, D)`` -> ``(M, *batch)``."""
        return self.bank.similarity(delta * self._distances.to(delta.dtype), self.spacing, max(self.grid)).movedim(-1, 0)

    def _kriging(self, taps: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return ordinary_kriging(self._similarity(taps[:, None] - taps), self.ridge)

    def weights(self, offset: Tensor) -> Tensor:
        """Weights of the samples around points, from places within the cell ``(P, D)`` in [0, 1): ``(M, P, 4^D)``."""
        delta = offset[:, None] - self.taps.to(offset)
        found = self._similarity(delta) @ self.slope.to(offset) + self.mean.to(offset)[:, None]
        return torch.cat([found, (1 - delta.abs()).clamp_min(0).prod(-1)[None]]) if self.has_linear else found

    # -- held-out errors and weights of the members ---------------------------------------------------------------------

    def _rows(self, sizes: Sequence[int], per_sample: int) -> Iterator[slice]:
        """Ranges of rows such that ``per_sample`` numbers per sample stay below :data:`MAX_NUMBERS`."""
        rows = max(1, MAX_NUMBERS // (per_sample * math.prod(sizes[1:])))
        return (slice(start, min(start + rows, sizes[0])) for start in range(0, sizes[0], rows))

    @torch.no_grad()
    def errors(self, rows: slice) -> Tensor:
        """Squared held-out errors of each member at samples, mean over channels: ``(M, rows, n_2, ..., n_D)``.

        The leave-one-out error, plus the error of predictions from samples two spacings apart, averaged over the midpoints
        of edges, faces and cells.
        """
        axes, count, device = len(self.sizes), self.num_members, self.values.device
        ends = [(rows.start, rows.stop), *((0, n) for n in self.sizes[1:])]
        padded = self.values
        for axis, ((start, stop), size) in enumerate(zip(ends, self.sizes, strict=True)):
            positions = torch.arange(start - ERROR_RADIUS, stop + ERROR_RADIUS, device=device)
            padded = padded.index_select(axis, positions.clamp_(0, size - 1))
        padded = padded.movedim(-1, 0)[:, None]  # (C, 1, ...)
        truth, convolve = _crop(padded, [(ERROR_RADIUS, b - a) for a, b in ends]), CONVOLUTIONS[axes - 1]

        def squared(weights: Tensor, reach: int, dilation: int, shift: Sequence[int]) -> Tensor:
            side = round(weights.shape[1] ** (1 / axes))
            length = dilation * (side - 1)
            part = _crop(padded, [(ERROR_RADIUS - reach - s, b - a + length) for s, (a, b) in zip(shift, ends, strict=True)])
            kernel = weights.to(padded).reshape(count, 1, *[side] * axes)
            return (convolve(part, kernel, dilation=dilation) - truth).square_().mean(0)

        around = _cube(range(-NEIGHBOUR_RADIUS, NEIGHBOUR_RADIUS + 1), axes, device)
        middle = len(around) // 2
        others = torch.cat([around[:middle], around[middle + 1 :]])
        slope, mean = self._kriging(others)
        found = (self._similarity(others)[:, None] @ slope)[:, 0] + mean
        if self.has_linear:  # the mean of the samples before and after it along each axis
            found = torch.cat([found, (others.abs().sum(1) == 1)[None] / (2 * axes)])
        weights = torch.cat([found[:, :middle], torch.zeros_like(found[:, :1]), found[:, middle:]], 1)
        result = squared(weights, NEIGHBOUR_RADIUS, 1, [0] * axes)
        kinds = list(itertools.product((0, 1), repeat=axes))[1:]
        between = self.weights(torch.tensor(kinds, dtype=torch.float64, device=device) / 2)
        for kind, weights in zip(kinds, between.unbind(1), strict=True):
            result.add_(squared(weights, 2, 2, kind), alpha=1 / len(kinds))
        return result

    def _mixture(self, rows: slice) -> tuple[Tensor, Tensor]:
        radius = math.ceil(3 * self.window)
        outer = slice(max(0, rows.start - radius), min(self.sizes[0], rows.stop + radius))
        errors = self.errors(outer)
        errors = _local_mean(errors, self.window, radius)
        inner = errors[:, rows.start - outer.start : rows.stop - outer.start]
        mixture = torch.softmax(-ERROR_POWER * (inner + ERROR_FLOOR).log(), 0)
        return mixture.movedim(0, -1).contiguous(), (mixture * inner).sum()

    # -- values ---------------------------------------------------------------------------------------------------------

    def _positions(self, x: Tensor, axis: int) -> Tensor:
        return (x * self.grid[axis] - self.first[axis]) / self.step[axis]

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""
        if len(points) == 0:
            return self.values.new_zeros(0, self.values.shape[-1])
        per_point = (self.num_members * 4 + self.values.shape[-1]) * len(self.taps)
        return torch.cat([self._at(some) for some in torch.split(points, max(1, MAX_NUMBERS // per_point))])

    def _at(self, points: Tensor) -> Tensor:
        position = torch.stack([self._positions(x, axis) for axis, x in enumerate(points.unbind(1))], 1)
        cell = (position.detach() + SNAP).floor()
        offset = position - cell

        def rows(taps: Tensor) -> Tensor:
            index, rows = cell.long()[:, None] + taps.long(), torch.zeros((), dtype=torch.int64, device=points.device)
            for along, size in zip(index.unbind(-1), self.sizes, strict=True):
                rows = rows * size + along.clamp(0, size - 1)
            return rows

        corners = _cube((0, 1), len(self.sizes), points.device).to(offset)
        shares = (corners * offset[:, None] + (1 - corners) * (1 - offset[:, None])).prod(-1)
        mixture = (shares[..., None] * self.mixture.flatten(0, -2)[rows(corners)].to(offset)).sum(1)
        weights = torch.einsum("pm,mpn->pn", mixture, self.weights(offset))
        return torch.einsum("pn,pnc->pc", weights.to(self.values), self.values.flatten(0, -2)[rows(self.taps)])

    @torch.no_grad()
    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``.

        Points at the same place within their cells share their weights, which are computed once. The groups of these points
        are made on the CPU, since every size that is read from a GPU waits for it.
        """
        device = self.values.device
        along = [_by_place(self._positions(x.cpu().double(), axis).numpy()) for axis, x in enumerate(axes)]
        *others, last = along
        many = len(last.places) > 16  # of few, each place of the last axis is computed by itself
        groups = [np.arange(len(last.cells))] if many else last.groups
        result = self.values.new_empty(*map(len, axes), self.values.shape[-1])
        per_point = 2 * (self.num_members + len(self.taps))
        for kind in itertools.product(*(range(len(axis.places)) for axis in others)):
            places = [axis.places[k] for k, axis in zip(kind, others, strict=True)]
            offset = np.stack([*(np.full_like(last.places, place) for place in places), last.places], 1)
            weights = self.weights(torch.from_numpy(offset).to(device)).to(self.values).movedim(0, 1)  # (U, M, 4^D)
            rows = [axis.groups[k] for k, axis in zip(kind, others, strict=True)]
            for columns in groups:
                own = last.which[columns[: None if many else 1]]
                first, *rest = *rows, columns
                step = max(1, MAX_NUMBERS // (per_point * math.prod(map(len, rest))))
                for start in range(0, len(first), step):
                    targets = [first[start : start + step], *rest]
                    cells = [axis.cells[at] for at, axis in zip(targets, along, strict=True)]
                    at_places = weights[own] if many else weights[own[0]]
                    found = self._mixed(cells, [*places, last.places[own]], at_places)
                    result[tuple(torch.from_numpy(at).to(device) for at in np.ix_(*targets))] = found
        return result

    def _mixed(self, cells: Sequence[Numbers], offset: Sequence[Numbers], weights: Tensor) -> Tensor:
        """Values on a grid of cells ``(n_a,)`` per axis, all at one place within their cells.

        Along the last axis places may differ: its offset is ``(n_D or 1,)``, weights are ``(n_D, M, 4^D)`` or ``(M, 4^D)``.
        """
        device, count = self.values.device, len(cells)
        index, shares = torch.zeros((), dtype=torch.int64, device=device), self.values.new_ones(())
        for axis, (cell, share) in enumerate(zip(cells, offset, strict=True)):
            near = (cell[:, None] + np.arange(-1, 3)).clip(0, self.sizes[axis] - 1) * math.prod(self.sizes[axis + 1 :])
            sides = np.broadcast_to(np.stack([1 - share, share], -1), (len(cell), 2))
            shape = [len(cell) if a == axis else 1 for a in range(count)]
            index = index + torch.from_numpy(near).to(device).reshape(*shape, *[4 if a == axis else 1 for a in range(count)])
            sides = sides.reshape(*shape, *[2 if a == axis else 1 for a in range(count)])
            shares = shares * torch.tensor(sides, dtype=shares.dtype, device=device)
        corners = index[(slice(None),) * count + (slice(1, 3),) * count].flatten(-count)
        mixture = weighted_rows(self.mixture.flatten(0, -2), corners, shares.flatten(-count))
        kernels = torch.einsum("...nm,nmt->...nt" if weights.ndim == 3 else "...m,mt->...t", mixture, weights)
        return weighted_rows(self.values.flatten(0, -2), index.flatten(-count), kernels)


def _cube(along: Sequence[int], axes: int, device: torch.device) -> Tensor:
    """All combinations of numbers, one per axis: ``(n^D, D)`` float64."""
    return torch.tensor(list(itertools.product(along, repeat=axes)), dtype=torch.float64, device=device)


def _local_mean(errors: Tensor, window: float, radius: int) -> Tensor:
    """Means over the samples inside of the grid with the weights of a Gaussian along each axis: ``(M, n_1, ..., n_D)``."""
    bell = [math.exp(-0.5 * (k / window) ** 2) for k in range(-radius, radius + 1)]
    for axis, size in enumerate(errors.shape[1:], 1):
        result = torch.zeros_like(errors)
        for shift, weight in zip(range(-radius, radius + 1), bell, strict=True):
            if (length := size - abs(shift)) > 0:
                target = result.narrow(axis, max(0, -shift), length)
                target.add_(errors.narrow(axis, max(0, shift), length), alpha=weight)  # faster than a convolution
        total = np.convolve(np.ones(size), bell)[radius : radius + size]
        errors = result.div_(torch.from_numpy(total).to(errors).reshape(-1, *[1] * (errors.ndim - 1 - axis)))
    return errors


def _crop(padded: Tensor, parts: Sequence[tuple[int, int]]) -> Tensor:
    for axis, (start, length) in enumerate(parts):
        padded = padded.narrow(axis + 2, start, length)
    return padded


class _Axis(NamedTuple):
    """Positions on an axis, grouped by their place within their cells.

    Args:
        cells: Cell of each position, ``(N,)``.
        places: Distinct places in [0, 1), means of places closer than ``SNAP``, ``(U,)``.
        which: Index in ``places`` of each position, ``(N,)``.
        groups: Indices of the positions at each place.
    """

    cells: Numbers
    places: Numbers
    which: Numbers
    groups: list[Numbers]


def _by_place(position: Numbers) -> _Axis:
    cell = np.floor(position + SNAP)
    place = position - cell
    _, which, counts = np.unique(np.round(place / SNAP), return_inverse=True, return_counts=True)
    groups = np.split(which.argsort(kind="stable"), counts.cumsum()[:-1])
    return _Axis(cell.astype(np.int64), np.bincount(which, place) / counts, which, groups)


def weighted_rows(table: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of rows of a table ``(N, C)``: indices and weights ``(*batch, T)`` -> ``(*batch, C)``.

    Differentiable in the weights, any number of times. Where no gradient is needed it is one operation.
    """
    if torch.is_grad_enabled() and weights.requires_grad:
        return torch.einsum("...t,...tc->...c", weights, table[index])
    rows, shares = index.flatten(0, -2), weights.flatten(0, -2)
    return F.embedding_bag(rows, table, per_sample_weights=shares, mode="sum").reshape(*index.shape[:-1], -1)

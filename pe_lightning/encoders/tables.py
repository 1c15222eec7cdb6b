"""Tables of trained vectors, interpolated between positions: grids, hash grids, lines and planes, embeddings."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from pe_lightning.encoders.arguments import PositiveInt, Samples, SeedLike, plain, sample_value, seeded
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import clamped, points
from pe_lightning.encoders.lookups import Lookup, SparseLookup, TableEncoder, at_once
from pe_lightning.errors import InputError

PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)
"""Factors of the hash per axis, from the paper and its reference implementation."""


Cells: TypeAlias = int | list[int] | Literal["auto"]
"""Cells of a table: one number for all axes, one per axis, or ``auto`` from the trained samples."""


def corners(positions: Tensor, last: Tensor, factors: Tensor, hashed: int | None = None) -> tuple[Tensor, Tensor]:
    """Linear interpolation, axis by axis, between the ``2^D`` corners of a cell: rows and shares, as of :class:`Lookup`.

    Args:
        positions: Coordinates in units of cells, ``(D, *batch, lookups)``.
        last: Number of the last cell on each axis, ``(D, lookups)``.
        factors: The row of a node is the sum of its coordinates times the factors, ``(D, lookups)``.
        hashed: If given, the row is the exclusive or of these products instead, modulo this number.
    """
    # clamped as integers, which a coordinate that is NaN has too: its shares are NaN
    lower = torch.minimum(positions.detach().long().clamp(0), beside(last, positions))
    upper = positions - lower
    steps = beside(factors, positions)
    terms = lower * steps
    shares, *other_shares = torch.stack([1 - upper, upper], 1)
    rows, *other_terms = torch.stack([terms, terms + steps], 1)
    for term, share in zip(other_terms, other_shares, strict=True):
        rows = (rows[:, None] + term if hashed is None else rows[:, None] ^ term).flatten(0, 1)
        shares = (shares[:, None] * share).flatten(0, 1)
    if hashed is not None:  # the remainder takes long where it is not that of a power of two
        rows = rows % hashed if hashed & (hashed - 1) else rows & (hashed - 1)
    return rows, shares


def beside(constants: Tensor, positions: Tensor) -> Tensor:
    """Numbers of each axis and lookup, ``(D, lookups)``, in the shape for positions ``(D, *batch, lookups)``."""
    return constants.reshape(len(constants), *[1] * (positions.ndim - 2), -1)


def starts(sizes: Sequence[int]) -> Tensor:
    """The first row of each of several tables of these sizes in one, ``(tables,)``."""
    return torch.tensor([0, *itertools.accumulate(sizes)], device="cpu")[:-1]


def strides(nodes: Sequence[int]) -> list[int]:
    """Row-major strides."""
    return [math.prod(nodes[axis + 1 :]) for axis in range(len(nodes))]


def cells_of(encoder: Encoder, name: str, value: Cells) -> list[int]:
    """The number of cells on each axis, checked."""
    given = sample_value(encoder, name, value)
    cells = [plain(n) for n in given] if isinstance(given, (list, tuple)) else [plain(given)] * encoder.num_axes
    if len(cells) != encoder.num_axes or not all(type(n) is int and n >= 1 for n in cells):
        raise InputError(
            f"{type(encoder).__name__}: {name} must be 'auto', an integer >= 1, or a list of {encoder.num_axes}, one per "
            f"axis, got {value!r}"
        )
    return cells


def axes_of(num_axes: int, *cells: Cells) -> int:
    """The number of axes; if it is one, the length of a list of cells."""
    lists = [len(value) for value in cells if isinstance(value, (list, tuple)) and value]
    return lists[0] if lists and num_axes == 1 else num_axes


def uniform_table(rows: int, features: int, low: float, high: float, seed: SeedLike) -> nn.Parameter:
    """Trained vectors ``(rows, features)``, uniform at the start."""
    start = torch.empty(rows, features, dtype=torch.float32, device="cpu")
    return nn.Parameter(start.uniform_(low, high, generator=seeded(seed)))


def share_of_samples(divisor: float) -> Callable[[Samples], list[int]]:
    """The rule: one cell on each axis per ``divisor`` trained samples."""
    return lambda samples: [max(1, round(n / divisor)) for n in samples.per_unit]


@registry.register("grid")
class Grids(TableEncoder):
    r"""Dense grids of several resolutions: trained vectors at all nodes, interpolated linearly.

    As ``hash`` with tables as large as the grids: exact, but of ``finest ** num_axes`` entries.

    When to use:
        Works as ``hash`` does, without collisions, in one or two dimensions. In three its tables are too large: take
        ``hash`` or ``planes``.

    Args:
        num_levels: Number of levels.
        level_features: Features of each level; the output has ``num_levels * level_features``.
        finest: Cells ``N_L`` of the last level, of all axes or a list of one per axis. ``auto`` is a quarter of the trained
            samples, for predicting those between them; to fit the trained ones alone, take as many as they are.
        span: How many times finer the last level is than the first, ``N_L / N_1``.
        seed: Seed of the initial vectors, which are uniform within 1e-4 of zero; ``None``: of the run.
        num_axes: Number of coordinates of a point.

    Reference: Müller et al., *Instant Neural Graphics Primitives with a Multiresolution Hash Encoding*, ACM TOG 41, 2022,
    Sec. 3.
    """

    formula = "linear interpolation in dense tables of trained vectors, several resolutions"
    joint = True
    normalizable = False
    from_samples: ClassVar = {"finest": share_of_samples(4)}
    cell_nodes = 4
    table_size: int | None = None
    level_cells: Tensor
    factors: Tensor
    first: Tensor

    def __init__(
        self,
        num_levels: PositiveInt = 8,
        level_features: PositiveInt = 4,
        finest: Cells = "auto",
        span: Annotated[float, "[1, 1e+12]"] = 4.0,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        self.level_features = level_features
        super().__init__(num_levels * level_features, axes_of(num_axes, finest))
        self.finest = cells_of(self, "finest", finest)
        self.span = span
        coarser = [self.span ** -((num_levels - 1 - level) / max(num_levels - 1, 1)) for level in range(num_levels)]
        self.cells = [[max(1, math.floor(n * share + 1e-6)) for n in self.finest] for share in coarser]
        dense = [math.prod(n + 2 for n in cells) for cells in self.cells]
        self.sizes = [min(nodes, self.table_size or nodes) for nodes in dense]
        self.hashed = [size < nodes for size, nodes in zip(self.sizes, dense, strict=True)]
        self.table = uniform_table(sum(self.sizes), self.level_features, -1e-4, 1e-4, seed)
        primes, levels = PRIMES[: self.num_axes], zip(self.cells, self.hashed, strict=True)
        factors = [primes if hashed else strides([n + 2 for n in cells]) for cells, hashed in levels]
        level_cells = torch.tensor(self.cells, device="cpu").T
        factors_of_axes = torch.tensor(factors, device="cpu").T
        self.register_constants(level_cells=level_cells, factors=factors_of_axes, first=starts(self.sizes))

    def _columns(self, x: Tensor) -> Tensor:
        """Coordinates, clamped to [0, 1], axis by axis: ``(D, *batch, 1)``."""
        return clamped(points(self, x), 0, 1).movedim(-1, 0).contiguous()[..., None]

    def _levels(self, columns: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The corners in the tables of some levels, either dense or hashed ones."""
        cells, factors = self.level_cells[:, first:last], self.factors[:, first:last]
        # shifted by half a cell, so that the nodes of different levels do not coincide; this takes one more cell
        positions = columns * beside(cells, columns) + 0.5
        return corners(positions, cells, factors, self.table_size if self.hashed[first] else None)

    def lookup(self, x: Tensor) -> list[Lookup]:
        """The corners of a cell of each level, from the coarsest; coordinates outside [0, 1] are clamped."""
        columns = self._columns(x)
        borders = [0, self.hashed.count(False), len(self.hashed)]  # finer levels are hashed
        kinds = [self._levels(columns, *ends) for ends in itertools.pairwise(borders) if ends[0] < ends[1]]
        rows, shares = (torch.cat(parts, -1) for parts in zip(*kinds, strict=True)) if len(kinds) > 1 else kinds[0]
        return [Lookup(rows + self.first, shares, tuple(self.sizes))]

    def from_lookup(self, lookups: Sequence[Lookup | SparseLookup]) -> Tensor:
        return lookups[0].sums(self.table).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        """The features of each level, from the coarsest; coordinates outside [0, 1] are clamped."""
        columns = self._columns(x)
        if at_once(columns[0].numel() * self.num_features * 2**self.num_axes, columns.device):
            return self.from_lookup(self.lookup(x)).to(x.dtype)
        tables = enumerate(torch.split(self.table, self.sizes))
        levels = [Lookup(*self._levels(columns, level, level + 1), (len(table),)).sums(table) for level, table in tables]
        return torch.cat(levels, -1).squeeze(-2).to(x.dtype)


@registry.register("hash")
class HashGrid(Grids):
    r"""Multi-resolution hash grid: trained vectors at the nodes of grids of ``N_l`` cells, interpolated linearly.

    :math:`N_l = \lfloor N_1 b^{l-1} \rfloor` cells of each axis on level ``l``, half a cell shifted. A grid with more nodes
    than ``table_size`` stores the node ``n`` in row :math:`(\bigoplus_a n_a \pi_a) \bmod T` of its table, with fixed primes.
    The other levels and the network resolve collisions.

    When to use:
        Works below a small network, which then trains faster, and where all samples are trained on. Fails between samples if
        its cells are finer than their spacing: cells without samples keep their initial values.

    Args:
        table_size: Number ``T`` of rows of a level's table.
        num_axes: Number of coordinates of a point, at most 7.

    Reference: Müller et al., *Instant Neural Graphics Primitives with a Multiresolution Hash Encoding*, ACM TOG 41, 2022,
    Sec. 3.
    """

    formula = "linear interpolation in hashed tables of trained vectors, several resolutions"

    def __init__(
        self,
        num_levels: PositiveInt = 8,
        level_features: PositiveInt = 4,
        finest: Cells = "auto",
        span: Annotated[float, "[1, 1e+12]"] = 4.0,
        table_size: PositiveInt = 32768,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        self.table_size = table_size
        if axes_of(num_axes, finest) > len(PRIMES):
            raise InputError(f"HashGrid: num_axes must be at most {len(PRIMES)}, got {num_axes!r}")
        super().__init__(num_levels, level_features, finest, span, seed, num_axes)


@registry.register("lines")
class Lines(TableEncoder):
    r"""Products of a trained function per axis: :math:`\psi_r(x) = \prod_a l_{a,r}(x_a)`.

    A linear layer of it is a tensor of rank ``rank`` (CP decomposition), where complex encoding has all entries. The
    functions are piecewise linear. In 1-D it is a table with linear interpolation.

    When to use:
        Works for signals that are nearly sums of few products of functions of one axis, with few parameters in many
        dimensions. Fails on diagonal structures, which need many components.

    Args:
        rank: Number of products, which are the features.
        cells: Cells of the lines, of all axes or a list of one per axis; ``auto``: as many as trained samples. More are not
            trained.
        seed: Seed of the initial values, from 0.1 to 0.5: their products do not vanish. ``None``: of the run.
        num_axes: Number of coordinates of a point.

    Reference: Chen et al., *TensoRF: Tensorial Radiance Fields*, ECCV 2022, Sec. 3 (CP).
    """

    formula = "product over the axes of trained piecewise linear functions"
    from_samples: ClassVar = {"cells": share_of_samples(1)}
    joint = True
    normalizable = False
    cell_nodes = 4
    plane_cells: list[int] | None = None
    line_cells: Tensor
    line_first: Tensor
    plane_axes: Tensor
    cells_of_planes: Tensor
    plane_factors: Tensor
    plane_first: Tensor

    def __init__(
        self, rank: PositiveInt = 64, cells: Cells = "auto", seed: SeedLike = None, num_axes: PositiveInt = 1
    ) -> None:
        super().__init__(rank, axes_of(num_axes, cells))
        self.cells = cells_of(self, "cells", cells)
        self._draw(seed)

    def _draw(self, seed: SeedLike) -> None:
        """Draws the tables of the lines, and of the planes of pairs of axes if there are any."""
        self.pairs = list(itertools.combinations(range(self.num_axes), 2)) if self.plane_cells else []
        nodes = [[n + 1] for n in self.cells]
        nodes += [[n + 1 for n in self._plane(pair)] for pair in self.pairs]
        self.sizes = [math.prod(sizes) for sizes in nodes]
        self.table = uniform_table(sum(self.sizes), self.num_features, 0.1, 0.5, seed)
        cells, first = torch.tensor([self.cells], device="cpu"), starts(self.sizes[: self.num_axes])
        self.register_constants(line_cells=cells, line_first=first)
        if self.pairs:
            axes = torch.tensor(self.pairs, device="cpu").T
            planes = torch.tensor([self._plane(pair) for pair in self.pairs], device="cpu").T
            factors = torch.stack([planes[1] + 1, torch.ones_like(planes[1])])
            first = starts(self.sizes[self.num_axes :])
            self.register_constants(plane_axes=axes, cells_of_planes=planes, plane_factors=factors, plane_first=first)

    def _tables(self) -> list[Tensor]:
        """The rows of all lines, and of all planes if there are any."""
        lines, planes = sum(self.sizes[: self.num_axes]), sum(self.sizes[self.num_axes :])
        return list(torch.split(self.table, [lines, planes] if self.pairs else [lines]))

    def _plane(self, pair: tuple[int, int]) -> list[int]:
        assert self.plane_cells is not None
        return [self.plane_cells[axis] for axis in pair]

    def lookup(self, x: Tensor) -> list[Lookup]:
        """Positions on the lines, and on the planes if there are any; coordinates are clamped to [0, 1]."""
        coords, sizes = clamped(points(self, x), 0, 1), tuple(self.sizes)
        rows, shares = corners(coords[None] * self.line_cells, self.line_cells - 1, torch.ones_like(self.line_cells))
        lookups = [Lookup(rows + self.line_first, shares, sizes[: self.num_axes])]
        if self.pairs:
            columns = coords[..., self.plane_axes].movedim(-2, 0)
            positions = columns * beside(self.cells_of_planes, columns)
            rows, shares = corners(positions, self.cells_of_planes - 1, self.plane_factors)
            lookups.append(Lookup(rows + self.plane_first, shares, sizes[self.num_axes :]))
        return lookups

    def from_lookup(self, lookups: Sequence[Lookup | SparseLookup]) -> Tensor:
        if self.num_axes == 1:
            return lookups[0].sums(self.table).squeeze(-2)
        lines, *planes = (lookup.each(table) for lookup, table in zip(lookups, self._tables(), strict=True))
        features = functools.reduce(operator.mul, lines)
        for pair, plane in zip(self.pairs, *planes, strict=True):
            others = [line for axis, line in enumerate(lines) if axis not in pair]
            features = features + functools.reduce(operator.mul, others, plane)
        return features


@registry.register("planes")
class Planes(Lines):
    r"""Lines and low-resolution planes: :math:`\prod_a l_a(x_a) + \sum_{a<b} p_{ab}(x_a, x_b) \prod_{c \ne a,b} l_c(x_c)`.

    The lines represent details along the axes, the planes the rest. In 2-D it is
    :math:`l_1(x_1)\, l_2(x_2) + p(x_1, x_2)`, in 1-D a line. The products are element by element, over ``rank`` components.

    When to use:
        Works below a small network, where it and ``hash`` are the best encoders of photographs here (docs/which.md), and on
        volumes, where full grids are too large. Fails on fine detail that follows no axis, which the planes' low
        resolution does not hold.

    Args:
        plane_cells: Cells of the planes, likewise; ``auto``: a quarter of the trained samples.

    Reference: Sivgin et al., *Geometric Algebra Planes: Convex Implicit Neural Volumes*, arXiv 2411.13525, without
    the volume; Fridovich-Keil et al., *K-Planes*, CVPR 2023.
    """

    formula = "product of trained lines of each axis + trained planes of two axes, times the other lines"
    from_samples: ClassVar = {"cells": share_of_samples(1), "plane_cells": share_of_samples(4)}

    def __init__(
        self,
        rank: PositiveInt = 32,
        cells: Cells = "auto",
        plane_cells: Cells = "auto",
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        Encoder.__init__(self, rank, axes_of(num_axes, cells, plane_cells))
        self.cells = cells_of(self, "cells", cells)
        self.plane_cells = cells_of(self, "plane_cells", plane_cells)
        self._draw(seed)

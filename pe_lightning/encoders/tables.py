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

from pe_lightning.encoders.arguments import CountLike, NonNegativeInt, PositiveInt, Samples, plain
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import points
from pe_lightning.encoders.learned_fourier import DropoutShare, Grouped, positions_for
from pe_lightning.encoders.resolution import sample_value
from pe_lightning.encoders.shifted import cell
from pe_lightning.errors import InputError

PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)
"""Factors of the hash per axis, from the paper and its reference implementation."""


Cells: TypeAlias = int | list[int] | Literal["auto"]
"""Cells of a table: one number for all axes, one per axis, or ``auto`` from the trained samples."""


def interpolate(
    table: Tensor, positions: Sequence[Tensor], cells: Sequence[int], factors: Sequence[int], hashed: bool = False
) -> Tensor:
    """Linear interpolation, axis by axis, between the entries of a table at the ``2^D`` corners of a cell.

    Args:
        table: ``(rows, F)``.
        positions: Coordinates on each axis in units of cells, from 0 to their number, ``(*batch,)``.
        cells: Number of cells on each axis; one less than there are nodes.
        factors: One per axis. The row of a node is the sum of its coordinates times the factors.
        hashed: Whether the row is the exclusive or of these products instead, modulo the number of rows.
    """
    # clamped as integers, which a coordinate that is NaN has too: its shares are NaN
    lower = [x.detach().long().clamp_(0, n - 1) for x, n in zip(positions, cells, strict=True)]
    shares = [(1 - (x - left), x - left) for x, left in zip(positions, lower, strict=True)]
    terms = [(left * factor, (left + 1) * factor) for left, factor in zip(lower, factors, strict=True)]
    features = table.new_zeros(())
    # all corners of the cell, in the same order for both products
    for row_terms, axis_shares in zip(itertools.product(*terms), itertools.product(*shares), strict=True):
        row = functools.reduce(operator.xor if hashed else operator.add, row_terms)
        share = functools.reduce(operator.mul, axis_shares)
        # index_select has a faster backward pass than table[row]
        entries = table.index_select(0, (row % len(table) if hashed else row).flatten())
        features = features + share[..., None] * entries.reshape(*row.shape, table.shape[-1])
    return features


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


def uniform_table(rows: int, features: int, low: float, high: float, seed: int) -> nn.Parameter:
    """Trained vectors ``(rows, features)``, uniform at the start."""
    start = torch.empty(rows, features, dtype=torch.float32, device="cpu")
    return nn.Parameter(start.uniform_(low, high, generator=torch.Generator("cpu").manual_seed(seed)))


def share_of_samples(divisor: float) -> Callable[[Samples], list[int]]:
    """The rule: one cell on each axis per ``divisor`` trained samples."""
    return lambda samples: [max(1, round(n / divisor)) for n in samples.per_unit]


@registry.register("grid")
class Grids(Encoder):
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
        seed: Seed of the initial vectors, which are uniform within 1e-4 of zero.
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

    def __init__(
        self,
        num_levels: PositiveInt = 8,
        level_features: PositiveInt = 4,
        finest: Cells = "auto",
        span: Annotated[float, "[1, 1e+12]"] = 4.0,
        seed: NonNegativeInt = 0,
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

    def forward(self, x: Tensor) -> Tensor:
        """The features of each level, from the coarsest; coordinates outside [0, 1] are clamped."""
        coords = points(self, x).clamp(0, 1)
        features = []
        tables = torch.split(self.table.to(coords.dtype), self.sizes)
        for table, cells, hashed in zip(tables, self.cells, self.hashed, strict=True):
            # shifted by half a cell, so that the nodes of different levels do not coincide; this takes one more cell
            positions = [column * n + 0.5 for column, n in zip(coords.unbind(-1), cells, strict=True)]
            factors = PRIMES[: self.num_axes] if hashed else strides([n + 2 for n in cells])
            features.append(interpolate(table, positions, [n + 1 for n in cells], factors, hashed))
        return torch.cat(features, -1).to(x.dtype)


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
        seed: NonNegativeInt = 0,
        num_axes: PositiveInt = 1,
    ) -> None:
        self.table_size = table_size
        super().__init__(num_levels, level_features, finest, span, seed, num_axes)
        if self.num_axes > len(PRIMES):
            raise InputError(f"HashGrid: num_axes must be at most {len(PRIMES)}, got {num_axes!r}")


@registry.register("lines")
class Lines(Encoder):
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
        seed: Seed of the initial values, from 0.1 to 0.5: their products do not vanish.
        num_axes: Number of coordinates of a point.

    Reference: Chen et al., *TensoRF: Tensorial Radiance Fields*, ECCV 2022, Sec. 3 (CP).
    """

    formula = "product over the axes of trained piecewise linear functions"
    from_samples: ClassVar = {"cells": share_of_samples(1)}
    joint = True
    normalizable = False
    cell_nodes = 4
    plane_cells: list[int] | None = None

    def __init__(
        self, rank: PositiveInt = 64, cells: Cells = "auto", seed: NonNegativeInt = 0, num_axes: PositiveInt = 1
    ) -> None:
        super().__init__(rank, axes_of(num_axes, cells))
        self.cells = cells_of(self, "cells", cells)
        self._draw(seed)

    def _draw(self, seed: int) -> None:
        """Draws the tables of the lines, and of the planes of pairs of axes if there are any."""
        self.pairs = list(itertools.combinations(range(self.num_axes), 2)) if self.plane_cells else []
        nodes = [[n + 1] for n in self.cells]
        nodes += [[n + 1 for n in self._plane(pair)] for pair in self.pairs]
        self.sizes = [math.prod(sizes) for sizes in nodes]
        self.table = uniform_table(sum(self.sizes), self.num_features, 0.1, 0.5, seed)

    def _plane(self, pair: tuple[int, int]) -> list[int]:
        assert self.plane_cells is not None
        return [self.plane_cells[axis] for axis in pair]

    def forward(self, x: Tensor) -> Tensor:
        """The product of the lines, plus each plane times the lines of other axes; coordinates are clamped to [0, 1]."""
        columns = points(self, x).clamp(0, 1).unbind(-1)
        tables = torch.split(self.table.to(columns[0].dtype), self.sizes)
        sides = zip(tables[: self.num_axes], columns, self.cells, strict=True)
        lines = [interpolate(table, [column * n], [n], [1]) for table, column, n in sides]
        features = functools.reduce(operator.mul, lines)
        for pair, table in zip(self.pairs, tables[self.num_axes :], strict=True):
            cells = self._plane(pair)
            position = [columns[axis] * n for axis, n in zip(pair, cells, strict=True)]
            plane = interpolate(table, position, cells, strides([n + 1 for n in cells]))
            others = [line for axis, line in enumerate(lines) if axis not in pair]
            features = features + functools.reduce(operator.mul, others, plane)
        return features.to(x.dtype)


@registry.register("planes")
class Planes(Lines):
    r"""Lines and low-resolution planes: :math:`\prod_a l_a(x_a) + \sum_{a<b} p_{ab}(x_a, x_b) \prod_{c \ne a,b} l_c(x_c)`.

    The lines represent details along the axes, the planes the rest. In 2-D it is
    :math:`l_1(x_1)\, l_2(x_2) + p(x_1, x_2)`, in 1-D a line. The products are element by element, over ``rank`` components.

    When to use:
        Works below a small network, where it and ``hash`` are the best encoders of photographs here (docs/trade.md), and on
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
        seed: NonNegativeInt = 0,
        num_axes: PositiveInt = 1,
    ) -> None:
        Encoder.__init__(self, rank, axes_of(num_axes, cells, plane_cells))
        self.cells = cells_of(self, "cells", cells)
        self.plane_cells = cells_of(self, "plane_cells", plane_cells)
        self._draw(seed)


@registry.register("embed")
class Embedding(Grouped):
    """A trained vector per position :math:`i/P`, as Transformers have them; between positions interpolated.

    With ``flat`` one vector per position of all axes together (Embed-1D of the paper), else one per position of each axis,
    side by side (Embed-2D, Embed-4D).

    When to use:
        Works where positions are few and all of them are trained, as tokens of Transformers. Fails between and beyond
        trained positions: vectors without samples keep their initial values.

    Args:
        num_features: Number of features of the output; ``auto``: as many as trained samples.
        num_positions: Number ``P`` of positions per axis; ``auto``: of the trained samples. Positions between which there is
            no sample are not trained.
        flat: Whether all axes of a group have one table together, of ``P ** num_axes`` rows.
        interpolation: Between positions: ``linear``, or ``nearest``, which has no gradient with respect to ``x``.
        num_inputs: Length of the vector of a group below the MLP; without it there are ``num_features / groups``.
        seed: Seed of all initial weights; the vectors are normal, of mean squared length one.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Embed-1D, -2D and -4D in Tables 7-9.
    """

    formula = "row x P of a trained table, or between two"
    cell_nodes = 4
    from_samples: ClassVar = {"num_positions": positions_for}
    normalizable = False

    def __init__(
        self,
        num_features: CountLike = "auto",
        num_positions: Annotated[int, 2] | Literal["auto"] = "auto",
        flat: bool = False,
        interpolation: Literal["linear", "nearest"] = "linear",
        mlp: bool = False,
        num_inputs: PositiveInt = 256,
        hidden: PositiveInt = 32,
        groups: PositiveInt = 1,
        layer_norm: bool = False,
        dropout: DropoutShare = 0.0,
        seed: NonNegativeInt = 0,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp, num_inputs)
        self.num_positions: int = sample_value(self, "num_positions", num_positions)
        self.flat = flat
        self.interpolation = interpolation
        axes_per_group = self.num_axes // self.groups
        if not flat and self.num_inputs < axes_per_group:
            raise InputError(
                f"Embedding: {axes_per_group} axes of a group need at least {axes_per_group} features, got {self.num_inputs}"
            )
        generator = torch.Generator("cpu").manual_seed(seed)
        start = torch.empty(
            self.num_positions ** (axes_per_group if flat else 1), self.num_inputs, dtype=torch.float32, device="cpu"
        )
        self.table = nn.Parameter(start.normal_(0, self.num_inputs**-0.5, generator=generator))
        self.add_modulator(hidden, layer_norm, dropout, generator)

    def group_features(self, coords: Tensor) -> Tensor:
        last = self.num_positions - 1
        nearest = self.interpolation == "nearest"
        position = (cell(coords, self.num_positions, 0.5) if nearest else coords * self.num_positions).clamp(0, last)
        table, positions = self.table.to(coords.dtype), position.unbind(-1)
        if self.flat:
            nodes = [self.num_positions] * len(positions)
            return interpolate(table, positions, [last] * len(positions), strides(nodes))
        blocks = torch.tensor_split(table, len(positions), 1)
        vectors = [interpolate(block, [column], [last], [1]) for block, column in zip(blocks, positions, strict=True)]
        return torch.cat(vectors, -1)

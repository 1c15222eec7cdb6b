"""Tables of trained vectors, interpolated between positions: multi-resolution hash grids and grids, embeddings."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from pe_lightning.encoders.base import Encoder, check_choice, check_count, points, registry
from pe_lightning.encoders.learned_fourier import Grouped
from pe_lightning.encoders.shifted import cell
from pe_lightning.errors import InputError

__all__ = ["Embedding", "Grids", "HashGrid", "interpolate", "strides"]

PRIMES = (1, 2654435761, 805459861, 3674653429, 2097192037, 1434869437, 2165219737)
"""Factors of the hash per axis: those of the paper, and of its reference implementation for more than three axes."""


def interpolate(table: Tensor, position: Tensor, cells: int, factors: Sequence[int], hashed: bool = False) -> Tensor:
    """Linear interpolation, axis by axis, between the entries of a table at the ``2^D`` corners of a cell.

    Args:
        table: ``(rows, F)``.
        position: Points in units of cells, in [0, ``cells``], ``(*batch, D)``.
        cells: Cells per axis; one less than there are nodes.
        factors: One per axis. The row of a node is the sum of its coordinates times these.
        hashed: Whether it is their exclusive or instead, modulo the number of rows.

    Returns:
        ``(*batch, F)``, twice differentiable with respect to table and positions.
    """
    lower = position.detach().floor().clamp(0, cells - 1)
    upper_share = position - lower
    shares = [(1 - share, share) for share in upper_share.unbind(-1)]
    first = [column.long() * factor for column, factor in zip(lower.unbind(-1), factors, strict=True)]
    terms = [(term, term + factor) for term, factor in zip(first, factors, strict=True)]
    features = table.new_zeros(())
    # all choices of one side per axis, in the same order for both
    for row_terms, axis_shares in zip(itertools.product(*terms), itertools.product(*shares), strict=True):
        row = functools.reduce(operator.xor if hashed else operator.add, row_terms)
        share = functools.reduce(operator.mul, axis_shares)
        # index_select: its backward pass takes half the time of that of table[row]
        entries = table.index_select(0, (row % len(table) if hashed else row).flatten())
        features = features + share[..., None] * entries.reshape(*row.shape, table.shape[-1])
    return features


def strides(nodes: int, num_axes: int) -> list[int]:
    """What one step along each axis adds to the row of a dense table of ``nodes ** num_axes`` entries."""
    return [nodes ** (num_axes - 1 - axis) for axis in range(num_axes)]


class _Levels(Encoder):
    """Grids of rising resolution, each of a few features; those of more than ``limit`` nodes share entries by a hash."""

    joint = True
    normalizable = False

    def __init__(
        self, num_levels: int, level_features: int, coarsest: int, finest: int, limit: int | None, seed: int, num_axes: int
    ) -> None:
        levels = check_count(self, "num_levels", num_levels)
        self.level_features = check_count(self, "level_features", level_features)
        super().__init__(levels * self.level_features, num_axes)
        first, last = check_count(self, "coarsest", coarsest), check_count(self, "finest", finest)
        if last < first:
            raise InputError(f"{type(self).__name__}: finest must be at least coarsest, {first}, got {last}")
        growth = (last / first) ** (1 / max(levels - 1, 1))
        self.resolutions = [math.floor(first * growth**level + 1e-6) for level in range(levels)]
        dense = [(n + 2) ** self.num_axes for n in self.resolutions]
        self.sizes = [min(nodes, limit or nodes) for nodes in dense]
        self.hashed = [size < nodes for size, nodes in zip(self.sizes, dense, strict=True)]
        generator = torch.Generator("cpu").manual_seed(check_count(self, "seed", seed, minimum=0))
        start = torch.empty(sum(self.sizes), self.level_features, dtype=torch.float32, device="cpu")
        self.table = nn.Parameter(start.uniform_(-1e-4, 1e-4, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """The features of each level, from the coarsest; coordinates outside of [0, 1] take the border's."""
        coords = points(self, x).clamp(0, 1)
        features = []
        tables = torch.split(self.table.to(coords.dtype), self.sizes)
        for table, n, hashed in zip(tables, self.resolutions, self.hashed, strict=True):
            factors = PRIMES[: self.num_axes] if hashed else strides(n + 2, self.num_axes)
            # half a cell further, so that the nodes of different levels do not coincide
            features.append(interpolate(table, coords * n + 0.5, n + 1, factors, hashed))
        return torch.cat(features, -1).to(x.dtype)


@registry.register("hash")
class HashGrid(_Levels):
    r"""Multi-resolution hash grid: trained vectors at the nodes of grids of ``N_l`` cells, interpolated linearly.

    :math:`N_l = \lfloor N_0 b^l \rfloor` cells per axis on level ``l``, half a cell shifted. A grid with more nodes than
    ``table_size`` stores the node ``n`` in row :math:`(\bigoplus_a n_a \pi_a) \bmod T` of its table, with fixed primes.
    Nodes that share a row are told apart by the other levels and by the network. For one small network, which it makes
    much faster to fit; cells finer than the spacing of the trained samples are noise between them.

    Args:
        num_levels: Number of levels.
        level_features: Features of each level; the output has ``num_levels * level_features``.
        coarsest: Cells per axis ``N_0`` of the first level.
        finest: Cells per axis of the last level: about the trained samples per axis, or less.
        table_size: Number ``T`` of rows of a level's table.
        seed: Seed of the initial vectors, which are uniform within 1e-4 of zero.
        num_axes: Number of coordinates of a point, at most 7.

    Shape:
        ``(*batch,)``, or ``(*batch, num_axes)`` for several axes -> ``(*batch, num_levels * level_features)``.

    Reference: Müller et al., *Instant Neural Graphics Primitives with a Multiresolution Hash Encoding*, ACM TOG 41, 2022,
    Sec. 3.
    """

    formula = "linear interpolation in hashed tables of trained vectors, 16 resolutions"

    def __init__(
        self,
        num_levels: int = 16,
        level_features: int = 2,
        coarsest: int = 16,
        finest: int = 256,
        table_size: int = 32768,
        seed: int = 0,
        num_axes: int = 1,
    ) -> None:
        self.table_size = check_count(self, "table_size", table_size)
        super().__init__(num_levels, level_features, coarsest, finest, self.table_size, seed, num_axes)
        if self.num_axes > len(PRIMES):
            raise InputError(f"HashGrid: num_axes must be at most {len(PRIMES)}, got {num_axes!r}")


@registry.register("grid")
class Grids(_Levels):
    r"""Dense grids of several resolutions: trained vectors at all nodes, interpolated linearly.

    As ``hash`` with tables as large as the grids: exact, but of ``finest ** num_axes`` entries.

    Args:
        num_levels: Number of levels.
        level_features: Features of each level; the output has ``num_levels * level_features``.
        coarsest: Cells per axis of the first level.
        finest: Cells per axis of the last level: about the trained samples per axis, or less.
        seed: Seed of the initial vectors, which are uniform within 1e-4 of zero.
        num_axes: Number of coordinates of a point.

    Shape:
        ``(*batch,)``, or ``(*batch, num_axes)`` for several axes -> ``(*batch, num_levels * level_features)``.

    Reference: Müller et al., *Instant Neural Graphics Primitives with a Multiresolution Hash Encoding*, ACM TOG 41, 2022,
    Sec. 3.
    """

    formula = "linear interpolation in dense tables of trained vectors, 4 resolutions"

    def __init__(
        self,
        num_levels: int = 4,
        level_features: int = 4,
        coarsest: int = 16,
        finest: int = 128,
        seed: int = 0,
        num_axes: int = 1,
    ) -> None:
        super().__init__(num_levels, level_features, coarsest, finest, None, seed, num_axes)


@registry.register("embed")
class Embedding(Grouped):
    r"""A trained vector per position :math:`i/P`, as Transformers have them; between positions interpolated.

    With ``flat`` one vector per position of all axes together (Embed-1D of the paper), else one per position of each axis,
    side by side (Embed-2D, Embed-4D).

    Args:
        num_features: Number of features of the output.
        num_positions: Number ``P`` of positions per axis. Positions that no sample is at or beside are not trained.
        flat: Whether all axes of a group have one table together, of ``P ** num_axes`` rows.
        interpolation: Between positions: ``linear``, or ``nearest``, which has no gradient with respect to ``x``.
        mlp: Whether an MLP comes after the vectors, as in ``lff``.
        num_inputs: Length of the vector of a group below the MLP; without it there are ``num_features / groups``.
        hidden: Hidden units of the MLP.
        groups: Number of groups that the coordinates are divided into. All share their weights.
        layer_norm: Whether a LayerNorm comes before each dense layer of the MLP.
        dropout: Share of the hidden units that are left out in training.
        seed: Seed of all initial weights; the vectors are normal, of mean squared length one.
        num_axes: Number of coordinates of a point.

    Raises:
        InputError: If an axis would have no feature.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Embed-1D, -2D and -4D in Tables 7-9.
    """

    formula = "row x P of a trained table, or between two"
    normalizable = False

    def __init__(
        self,
        num_features: int = 256,
        num_positions: int = 256,
        flat: bool = False,
        interpolation: Literal["linear", "nearest"] = "linear",
        mlp: bool = False,
        num_inputs: int = 256,
        hidden: int = 32,
        groups: int = 1,
        layer_norm: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
        num_axes: int = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp, num_inputs)
        self.num_positions = check_count(self, "num_positions", num_positions, minimum=2)
        self.flat = check_choice(self, "flat", flat, (False, True))
        self.interpolation = check_choice(self, "interpolation", interpolation, ("linear", "nearest"))
        each = self.num_axes // self.groups
        if not flat and self.num_inputs < each:
            raise InputError(f"Embedding: {each} axes of a group need at least {each} features, got {self.num_inputs}")
        generator = torch.Generator("cpu").manual_seed(check_count(self, "seed", seed, minimum=0))
        start = torch.empty(self.num_positions ** (each if flat else 1), self.num_inputs, dtype=torch.float32, device="cpu")
        self.table = nn.Parameter(start.normal_(0, self.num_inputs**-0.5, generator=generator))
        self.add_modulator(hidden, layer_norm, dropout, generator)

    def group_features(self, coords: Tensor) -> Tensor:
        """The vectors of the positions."""
        last = self.num_positions - 1
        nearest = self.interpolation == "nearest"
        position = (cell(coords, self.num_positions, 0.5) if nearest else coords * self.num_positions).clamp(0, last)
        table, num_axes = self.table.to(coords.dtype), coords.shape[-1]
        if self.flat:
            return interpolate(table, position, last, strides(self.num_positions, num_axes))
        sides = zip(torch.tensor_split(table, num_axes, 1), position.unbind(-1), strict=True)
        return torch.cat([interpolate(block, x[..., None], last, [1]) for block, x in sides], -1)

"""Low-rank tables: products of trained functions of each axis, and of planes."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from pe_lightning.encoders.arguments import NonNegativeInt, PositiveInt
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import points
from pe_lightning.encoders.tables import Cells, axes_of, cells_of, interpolate, share_of_samples, strides


class _LowRank(Encoder):
    """Piecewise linear functions of each axis, and piecewise bilinear ones of pairs of axes: one table after the other.

    Args:
        rank: Number of products, which are the features.
        cells: Cells of the lines, of all axes or a list of one per axis; ``auto``: as many as trained samples. More are not
            trained.
        seed: Seed of the initial values, from 0.1 to 0.5.
    """

    joint = True
    normalizable = False
    cell_nodes = 4
    cells: list[int]
    plane_cells: list[int]

    def draw(self, seed: int, pairs: Iterable[tuple[int, int]]) -> None:
        """Draws all tables uniformly from 0.1 to 0.5, so that their products do not vanish."""
        self.pairs = list(pairs)
        nodes = [[n + 1] for n in self.cells] + [[self.plane_cells[a] + 1 for a in pair] for pair in self.pairs]
        self.sizes = [math.prod(sizes) for sizes in nodes]
        generator = torch.Generator("cpu").manual_seed(seed)
        start = torch.empty(sum(self.sizes), self.num_features, dtype=torch.float32, device="cpu")
        self.table = nn.Parameter(start.uniform_(0.1, 0.5, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        """The product of the lines, plus that of each plane with the other lines; coordinates are clamped to [0, 1]."""
        columns = points(self, x).clamp(0, 1).unbind(-1)
        tables = torch.split(self.table.to(columns[0].dtype), self.sizes)
        sides = zip(tables[: self.num_axes], columns, self.cells, strict=True)
        lines = [interpolate(table, [column * n], [n], [1]) for table, column, n in sides]
        features = functools.reduce(operator.mul, lines)
        for pair, table in zip(self.pairs, tables[self.num_axes :], strict=True):
            cells = [self.plane_cells[axis] for axis in pair]
            position = [columns[axis] * n for axis, n in zip(pair, cells, strict=True)]
            plane = interpolate(table, position, cells, strides([n + 1 for n in cells]))
            others = [line for axis, line in enumerate(lines) if axis not in pair]
            features = features + functools.reduce(operator.mul, others, plane)
        return features.to(x.dtype)


@registry.register("lines")
class Lines(_LowRank):
    r"""Products of a trained function per axis: :math:`\psi_r(x) = \prod_a l_{a,r}(x_a)`.

    A linear layer of it is a tensor of rank ``rank`` (CP decomposition), where complex encoding has all entries. The
    functions are piecewise linear. In 1-D it is a table with linear interpolation.

    When to use:
        Works for signals that are nearly sums of few products of functions of one axis, with few parameters in many
        dimensions. Fails on diagonal structures, which need many components.

    Reference: Chen et al., *TensoRF: Tensorial Radiance Fields*, ECCV 2022, Sec. 3 (CP).
    """

    formula = "product over the axes of trained piecewise linear functions"

    from_samples: ClassVar = {"cells": share_of_samples(1)}

    def __init__(
        self, rank: PositiveInt = 64, cells: Cells = "auto", seed: NonNegativeInt = 0, num_axes: PositiveInt = 1
    ) -> None:
        super().__init__(rank, axes_of(num_axes, cells))
        self.cells = cells_of(self, "cells", cells)
        self.draw(seed, [])


@registry.register("planes")
class Planes(_LowRank):
    r"""Lines and low-resolution planes, added.

    :math:`\psi(x) = \prod_a l_a(x_a) + \sum_{a<b} p_{ab}(x_a, x_b) \prod_{c \ne a,b} l_c(x_c)`. The planes represent what
    is no product of lines; the lines represent details along the axes. In 2-D it is
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
        super().__init__(rank, axes_of(num_axes, cells, plane_cells))
        self.cells = cells_of(self, "cells", cells)
        self.plane_cells = cells_of(self, "plane_cells", plane_cells)
        self.draw(seed, itertools.combinations(range(self.num_axes), 2))

"""Low-rank tables: products of trained functions of each axis, and of planes. The relatives of complex encoding."""

from __future__ import annotations

import functools
import itertools
import operator

import torch
from torch import Tensor, nn

from pe_lightning.encoders.base import Encoder, check_count, points, registry
from pe_lightning.encoders.tables import interpolate, strides

__all__ = ["Lines", "Planes"]


class _LowRank(Encoder):
    """Piecewise linear functions of each axis, ``(num_axes, resolution + 1, rank)``, which start between 0.1 and 0.5."""

    joint = True
    normalizable = False

    def __init__(self, rank: int, resolution: int, num_axes: int) -> None:
        super().__init__(check_count(self, "rank", rank), num_axes)
        self.rank = self.num_features
        self.resolution = check_count(self, "resolution", resolution)

    def drawn(self, *shape: int, generator: torch.Generator) -> nn.Parameter:
        """Uniform from 0.1 to 0.5, so that products of several do not vanish."""
        return nn.Parameter(torch.empty(shape, dtype=torch.float32, device="cpu").uniform_(0.1, 0.5, generator=generator))

    def line_features(self, coords: Tensor, lines: Tensor) -> list[Tensor]:
        """The functions of each axis: ``(*batch, num_axes)`` -> ``num_axes`` tensors ``(*batch, rank)``."""
        tables = lines.to(coords.dtype).unbind(0)
        position = (coords * self.resolution).unbind(-1)
        return [interpolate(table, x[..., None], self.resolution, [1]) for table, x in zip(tables, position, strict=True)]


@registry.register("lines")
class Lines(_LowRank):
    r"""Products of a trained function per axis: :math:`\psi_r(x) = \prod_a l_{a,r}(x_a)`.

    A linear layer of it is a tensor of rank ``rank`` (CP decomposition), where complex encoding has all entries. The
    functions are piecewise linear. In 1-D it is a table with linear interpolation.

    Args:
        rank: Number of products, which are the features.
        resolution: Cells per axis; cells finer than the spacing of the trained samples are not trained.
        seed: Seed of the initial values, from 0.1 to 0.5.
        num_axes: Number of coordinates of a point.

    Shape:
        ``(*batch,)``, or ``(*batch, num_axes)`` for several axes -> ``(*batch, rank)``.

    Reference: Chen et al., *TensoRF: Tensorial Radiance Fields*, ECCV 2022, Sec. 3 (CP).
    """

    formula = "product over the axes of trained piecewise linear functions"

    def __init__(self, rank: int = 64, resolution: int = 256, seed: int = 0, num_axes: int = 1) -> None:
        super().__init__(rank, resolution, num_axes)
        generator = torch.Generator("cpu").manual_seed(check_count(self, "seed", seed, minimum=0))
        self.lines = self.drawn(self.num_axes, self.resolution + 1, self.rank, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """The products; coordinates outside of [0, 1] take the border's."""
        features = self.line_features(points(self, x).clamp(0, 1), self.lines)
        return functools.reduce(operator.mul, features).to(x.dtype)


@registry.register("planes")
class Planes(_LowRank):
    r"""Lines and low-resolution planes, added.

    :math:`\psi(x) = \prod_a l_a(x_a) + \sum_{a<b} p_{ab}(x_a, x_b) \prod_{c \ne a,b} l_c(x_c)`. The planes hold what is no
    product of lines; the lines hold the details along the axes. In 2-D it is :math:`l_1(x_1)\, l_2(x_2) + p(x_1, x_2)`, in
    1-D a line. The products are element by element, over ``rank`` components.

    Args:
        rank: Number of components, which are the features.
        resolution: Cells per axis of the lines; cells finer than the spacing of the trained samples are not trained.
        plane_resolution: Cells per axis of the planes.
        seed: Seed of the initial values, from 0.1 to 0.5.
        num_axes: Number of coordinates of a point.

    Shape:
        ``(*batch,)``, or ``(*batch, num_axes)`` for several axes -> ``(*batch, rank)``.

    Reference: Sivgin et al., *Geometric Algebra Planes: Convex Implicit Neural Volumes*, arXiv 2411.13525, without
    the volume; Fridovich-Keil et al., *K-Planes*, CVPR 2023.
    """

    formula = "product of trained lines of each axis + trained planes of two axes, times the other lines"

    def __init__(
        self, rank: int = 32, resolution: int = 256, plane_resolution: int = 64, seed: int = 0, num_axes: int = 1
    ) -> None:
        super().__init__(rank, resolution, num_axes)
        self.plane_resolution = check_count(self, "plane_resolution", plane_resolution)
        generator = torch.Generator("cpu").manual_seed(check_count(self, "seed", seed, minimum=0))
        self.lines = self.drawn(self.num_axes, self.resolution + 1, self.rank, generator=generator)
        self.pairs = list(itertools.combinations(range(self.num_axes), 2))
        if self.pairs:
            nodes = (self.plane_resolution + 1) ** 2
            self.planes = self.drawn(len(self.pairs), nodes, self.rank, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """The sum; coordinates outside of [0, 1] take the border's."""
        coords = points(self, x).clamp(0, 1)
        lines = self.line_features(coords, self.lines)
        features = functools.reduce(operator.mul, lines)
        tables = self.planes.to(coords.dtype).unbind(0) if self.pairs else ()
        for pair, table in zip(self.pairs, tables, strict=True):
            position = coords[..., list(pair)] * self.plane_resolution
            factors = strides(self.plane_resolution + 1, 2)
            others = (lines[axis] for axis in range(self.num_axes) if axis not in pair)
            features = features + functools.reduce(
                operator.mul, others, interpolate(table, position, self.plane_resolution, factors)
            )
        return features.to(x.dtype)

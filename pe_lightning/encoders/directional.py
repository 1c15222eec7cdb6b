"""Shifted features along several directions of the plane."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders.arguments import DEFAULT_NUM_FEATURES, CountLike, PositiveInt, Width, WidthLike
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.cells import projected_cell
from pe_lightning.encoders.coordinates import boxes, points
from pe_lightning.errors import InputError
from pe_lightning.signals import validation


@registry.register("directional")
class Directional(Encoder):
    r"""A shifted encoder along ``n`` directions, evenly spaced over 180 degrees: :math:`\bigoplus_j \psi(v_j)`.

    Direction :math:`j` is at :math:`180^\circ j/n` from the first axis, less 180 degrees where that is above 90. Its
    coordinate :math:`v_j = w_j \cdot x + o_j` is scaled so that the unit square covers [0, 1]. Four directions are the
    papers': ``x, (x + y)/2, y, (x - y + 1)/2``. On one axis it equals ``base``.

    When to use:
        Works for ``SimpleMLP`` on pictures: below a hidden layer eight directions have 22.6 dB on a photograph, the papers'
        four 21.6. Not for ``ComplexLinear``, which encodes one axis at a time, nor for more than two axes.

    Args:
        num_features: Number of all features: ``n`` times the number of a direction. ``auto``: the most that divide so, up
            to the papers' 256 per axis; on one axis as many as trained samples.
        base: Name of a registered shifted encoder.
        directions: Number ``n`` of directions.
        base_width: The width of ``base``, in units of a direction's [0, 1]. Default ``0.64/K`` for ``gau``, or the rule of
            another base, for ``K`` features per direction.
        num_axes: Number of coordinates of a point: 1 or 2.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 11, for four directions.
    """

    formula = "shifted features of n rotated coordinates"
    width: Width | None = Width("base_width", "length", lambda k: 0.64 / k, "0.64/K")  # type: ignore[misc]
    fallback_ridge = 1e-2
    joint = True
    axiswise = False

    def __init__(
        self,
        num_features: CountLike = "auto",
        base: str = "gau",
        directions: PositiveInt = 4,
        base_width: WidthLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes)
        if self.num_axes > 2:
            raise InputError(
                f"Directional: num_axes must be 1 or 2, got {num_axes!r}; use layout 'axes' and encoder {base!r}"
            )
        self.base = validation.choice(
            "Directional: base", base, [name for name in registry if registry.get(name).directional]
        )
        self.directions = directions
        per_direction = self.num_features
        if self.num_axes == 2:
            total = 2 * DEFAULT_NUM_FEATURES if num_features == "auto" else self.num_features
            per_direction = total // directions
            if num_features == "auto" and per_direction:
                self.num_features = directions * per_direction
            elif directions * per_direction != total:
                usable = " or ".join(str(directions * k) for k in (per_direction, per_direction + 1) if k)
                raise InputError(
                    f"Directional: num_features must be a multiple of {directions} for {directions} directions, "
                    f"got {total}; use {usable}"
                )
        arguments: dict[str, Any] = {} if base_width in (None, "auto") else {"width": base_width}
        self.encoder = registry.create(base, num_features=per_direction, **arguments)
        if self.encoder.width is None:
            self.width = None
        self.base_width = self.encoder.width and getattr(self.encoder, self.encoder.width.argument)
        self.projections = _projections(self.directions) if self.num_axes == 2 else [[1.0, 0.0]]

    @property
    def is_open(self) -> bool:
        return super().is_open and self.num_axes == 1

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.encoder(self._projected(points(self, x), offset=True))
        return features.flatten(-2).to(x.dtype)

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        coords, sizes = boxes(self, x, size)
        along = self._projected(coords, offset=True).unbind(-1)
        pairs = zip(along, self.projections, strict=True)
        return torch.cat([projected_cell(self.encoder, v, sizes, row[: self.num_axes]) for v, row in pairs], -1).to(x.dtype)

    def distance(self, delta: Tensor) -> Tensor:
        r"""The sum over the directions, :math:`\sum_j D(w_j \cdot \Delta)`: ``(*batch, num_axes)`` -> ``(*batch,)``."""
        return self.encoder.distance(self._projected(points(self, delta), offset=False)).sum(-1)

    def default_width(self, per_unit: float) -> float:
        return self.encoder.default_width(per_unit)

    def _projected(self, coords: Tensor, offset: bool) -> Tensor:
        """The coordinates of each direction: ``(*batch, num_axes)`` -> ``(*batch, n)``."""
        # not a matrix product, which may be computed in reduced precision on GPUs
        rows = [(coords * coords.new_tensor(row[:-1])).sum(-1) + offset * row[-1] for row in self.projections]
        return torch.stack(rows, -1)


def _projections(count: int) -> list[list[float]]:
    """Rows ``(w_1, w_2, offset)`` of the directions ``v = w . x + offset``."""
    rows = []
    for j in range(count):
        angle = math.pi * (j / count - (2 * j > count))
        w = math.cos(angle), math.sin(angle)
        length = abs(w[0]) + abs(w[1])  # of the projection of the unit square
        rows.append([round(v / length, 15) for v in (*w, max(-w[1], 0.0))])  # so that a half is exactly that
    return rows

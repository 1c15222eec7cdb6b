r"""Features averaged over cells: the mean of :math:`\psi` over :math:`[x - h/2, x + h/2]`, or over a box.

A linear layer that is fitted to the means over pixels predicts the means over smaller pixels: the integrated positional
encoding, in closed form or by quadrature.

Reference: Barron et al., *Mip-NeRF: A Multiscale Representation for Anti-Aliasing Neural Radiance Fields*, ICCV 2021.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.coordinates import exact_dtype, quadrature


class CellMeans(Encoder):
    """The features of an encoder averaged over cells of one size; parameters and description are the encoder's own.

    Args:
        encoder: The encoder of points.
        size: Length of the cells, one per axis if there are several.
    """

    def __init__(self, encoder: Encoder, size: float | tuple[float, ...]) -> None:
        super().__init__(encoder.num_features, encoder.num_axes)
        self.encoder, self.size = encoder, size

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder.cell(x, x.new_tensor(self.size, dtype=exact_dtype(x)))

    @property
    def support(self) -> float | None:
        own = self.encoder.support
        assert isinstance(self.size, float)
        return None if own is None else own + self.size / 2

    def leading(self, count: int) -> Encoder:
        return CellMeans(self.encoder.leading(count), self.size)

    def copy(self, **changes: Any) -> CellMeans:
        return CellMeans(self.encoder.copy(**changes), self.size)


# all other traits come from the encoder
for _name in (
    "width", "default_width", "fallback_ridge", "normalizable", "multiple", "drawn", "from_samples", "resolution",
    "per_feature", "position", "penalty", "arguments", "is_open", "name", "resolved", "changed_arguments", "spec",
):  # fmt: skip
    setattr(CellMeans, _name, property(attrgetter(f"encoder.{_name}")))


def at_points(encoder: Encoder) -> Encoder:
    """The encoder without :class:`CellMeans`."""
    return encoder.encoder if isinstance(encoder, CellMeans) else encoder


def cell_means(encoders: Sequence[Encoder], cells: Sequence[float]) -> list[Encoder]:
    """The encoders of the axes for cells of these lengths, for length 0 at points; unchanged if there are no lengths."""

    def averaged(encoder: Encoder, size: float) -> Encoder:
        return CellMeans(at_points(encoder), size) if size else at_points(encoder)

    return changed(encoders, averaged, cells) if cells else list(encoders)


def resized(encoder: Encoder, factor: float) -> Encoder:
    """The encoder for coordinates that are multiplied by a factor."""
    if not isinstance(encoder, CellMeans):
        return encoder
    assert isinstance(encoder.size, float)
    return CellMeans(encoder.encoder, factor * encoder.size)


def projected_cell(encoder: Encoder, v: Tensor, sizes: Tensor, slopes: Sequence[float]) -> Tensor:
    r"""Features of :math:`v = w \cdot x` averaged over boxes: in closed form along one edge, by quadrature along the rest.

    Args:
        encoder: An encoder of one axis.
        v: Projections of the centres, ``(*batch,)``.
        sizes: Lengths of the boxes per axis, ``(*batch, D)``.
        slopes: The numbers ``w``, ``(D,)``.
    """
    extents = [sizes[..., axis] * abs(slope) for axis, slope in enumerate(slopes) if slope]
    if len(extents) == 1:
        return encoder.cell(v, extents[0])
    ordered = torch.stack(extents, -1).sort(-1, descending=True).values
    offsets, weights = quadrature(encoder.cell_nodes, len(extents) - 1, ordered)
    places = v[..., None] + (ordered[..., None, 1:] * offsets).sum(-1)
    return (encoder.cell(places, ordered[..., :1].expand(places.shape)) * weights[:, None]).sum(-2)

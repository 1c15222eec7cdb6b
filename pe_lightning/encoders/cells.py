r"""Features averaged over cells: the mean of :math:`\psi` over :math:`[x - h/2, x + h/2]`, or over a box.

A linear layer that is fitted to the means over pixels predicts the means over smaller pixels: the integrated positional
encoding, in closed form or by quadrature.

Reference: Barron et al., *Mip-NeRF: A Multiscale Representation for Anti-Aliasing Neural Radiance Fields*, ICCV 2021.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder
from pe_lightning.encoders.configured import changed
from pe_lightning.encoders.coordinates import quadrature


def with_cells(encoder: Encoder, size: float | None) -> Encoder:
    """The encoder for cells of another length, ``None`` for points; it shares its parameters and buffers."""
    if encoder.cell_size == size:
        return encoder
    averaged = object.__new__(type(encoder))  # torch.compile does not take copy.copy
    vars(averaged).update(vars(encoder), cell_size=size)
    return averaged


def cell_means(encoders: Sequence[Encoder], cells: Sequence[float]) -> list[Encoder]:
    """The encoders of the axes for cells of these lengths, for length 0 at points; unchanged if there are no lengths."""
    return changed(encoders, lambda encoder, size: with_cells(encoder, size or None), cells) if cells else list(encoders)


def resized(encoder: Encoder, factor: float) -> Encoder:
    """The encoder for coordinates that are multiplied by a factor."""
    return encoder if encoder.cell_size is None else with_cells(encoder, factor * encoder.cell_size)


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

"""Coordinates and cells in the dtype and shape that features are computed in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.errors import InputError


def exact_dtype(x: Tensor) -> torch.dtype:
    """The dtype to compute features of ``x`` in: its own, but float32 for the half precisions."""
    if not x.is_floating_point():
        raise InputError(f"coordinates must be floating-point numbers in [0, 1], got dtype {x.dtype}")
    return torch.promote_types(x.dtype, torch.float32)


def clamped(x: Tensor, low: float, high: float) -> Tensor:
    """``x.clamp(low, high)`` with the derivative 1 at the bounds, where the first sample is: PyTorch 2.14 has 0 there."""
    inside = x.clamp(low, high)
    return torch.where(x == inside, x, inside)


def points(encoder: Any, x: Tensor) -> Tensor:
    """Coordinates ``x`` as points ``(*batch, num_axes)``, in the dtype to compute features in."""
    coords = x.to(exact_dtype(x))[..., None] if encoder.num_axes == 1 else x.to(exact_dtype(x))
    if coords.shape[-1:] != (encoder.num_axes,):
        raise InputError(
            f"encoder {encoder.name!r}: points of {encoder.num_axes} axes have the shape (*batch, {encoder.num_axes}), "
            f"got {tuple(x.shape)}"
        )
    return coords


def boxes(encoder: Any, x: Tensor, size: Tensor | float) -> tuple[Tensor, Tensor]:
    """Centres and lengths of cells, each ``(*batch, num_axes)``, in the dtype to compute features in."""
    coords = points(encoder, x)
    return coords, torch.as_tensor(size, dtype=coords.dtype, device=coords.device).expand(x.shape).reshape(coords.shape)


def quadrature(count: int, num_axes: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes in the cell of length one around zero, ``(count ** num_axes, num_axes)``, and weights."""
    nodes, weights = (torch.from_numpy(values / 2).to(like) for values in np.polynomial.legendre.leggauss(count))
    grids = [
        torch.stack(torch.meshgrid(*[values] * num_axes, indexing="ij"), -1).flatten(0, -2) for values in (nodes, weights)
    ]
    return grids[0], grids[1].prod(-1)

"""Differentiable derivatives with respect to coordinates, of networks and other functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import jvp

from pe_lightning.encodings import Encoding
from pe_lightning.networks.activations import exact_slopes

Function = Callable[[Tensor], Tensor]


def gradient(function: Function, coords: Tensor) -> Tensor:
    r"""First derivatives :math:`\partial f / \partial x_a` in forward mode: one evaluation per axis.

    Args:
        function: Treats points independently, ``(*batch, D)`` -> any shape.
        coords: ``(*batch, D)``.

    Returns:
        The shape of ``function(coords)`` with a last axis of length ``D``, in values per unit of the coordinates.
    """
    with exact_slopes():
        return torch.stack([_slope(function, unit, coords) for unit in _units(coords)], -1)


def laplacian(function: Function, coords: Tensor) -> Tensor:
    r"""The Laplacian :math:`\sum_a \partial^2 f / \partial x_a^2`; arguments as in :func:`gradient`.

    Returns:
        The shape of ``function(coords)``, in values per squared unit of the coordinates.
    """
    with exact_slopes():
        return torch.stack([_slope(partial(_slope, function, unit), unit, coords) for unit in _units(coords)]).sum(0)


def _slope(function: Function, direction: Tensor, coords: Tensor) -> Tensor:
    slope: Tensor = jvp(function, (coords,), (direction,))[1]
    return slope


def _units(coords: Tensor) -> list[Tensor]:
    """Unit vectors of all axes at every point."""
    return list(torch.eye(coords.shape[-1], dtype=coords.dtype, device=coords.device).expand(*coords.shape, -1).unbind(-2))


class Network(nn.Module, ABC):
    """Base of the networks of one signal: coordinates ``(*batch, D)`` in [0, 1) -> values ``(*batch, C)``.

    Attributes:
        encoding: The encoding of the coordinates; a subclass sets it.
    """

    encoding: Encoding

    @abstractmethod
    def forward(self, coords: Tensor) -> Tensor:
        """Values at points."""

    def penalty(self) -> Tensor:
        """The sum of the encoders' auxiliary losses, ``()``; an encoder of several axes counts once."""
        return torch.stack([encoder.penalty() for encoder in dict.fromkeys(self.encoding.encoders)]).sum()

    def gradient(self, coords: Tensor) -> Tensor:
        """First derivatives at points, ``(*batch, C, D)``."""
        return gradient(self.forward, coords)

    def laplacian(self, coords: Tensor) -> Tensor:
        """Laplacian at points, ``(*batch, C)``."""
        return laplacian(self.forward, coords)

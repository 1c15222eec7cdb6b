"""Samples and a bank of encoders: the network of :class:`~pe_lightning.modules.Adaptive`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lightning.encodings.bank import Bank

__all__ = ["AdaptiveNetwork"]


class AdaptiveNetwork(nn.Module):
    """The samples of one signal of :class:`~pe_lightning.modules.Adaptive`, and the bank.

    Args:
        encoding: The bank.

    Attributes:
        samples: Trained samples, ``(n_1, ..., n_D, C)`` on a grid, ``(P, C)`` if scattered; a parameter.
        coords: Coordinates of scattered samples, ``(P, D)`` in [0, 1); empty on a grid. A buffer.
        first: Position of the first sample of a grid, ``(D,)``, in samples of the signal.
        step: Distance of the samples of a grid, ``(D,)``.
        ridge: Ridge of the local fits, ``()``.
    """

    encoding: Bank
    coords: Tensor
    first: Tensor
    step: Tensor
    ridge: Tensor

    def __init__(self, encoding: Bank) -> None:
        super().__init__()
        self.encoding = encoding
        self.samples = nn.Parameter(torch.zeros(0))
        self.register_buffer("coords", torch.zeros(0))
        self.register_buffer("first", torch.zeros(encoding.num_axes))
        self.register_buffer("step", torch.ones(encoding.num_axes))
        self.register_buffer("ridge", torch.zeros(()))

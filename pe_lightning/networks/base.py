"""The base of networks."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from pe_lightning.encodings import Encoding


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

"""Trained samples and an encoding: the network of models that hold the samples themselves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lightning.encodings.base import Encoding


class SampleNetwork(nn.Module):
    """The samples of one signal, and the encoding by which values between them are predicted.

    Args:
        encoding: The encoding.

    Attributes:
        samples: Trained samples, ``(n_1, ..., n_D, C)`` on a grid, ``(P, C)`` if scattered; a parameter.
        coords: Coordinates of scattered samples, ``(P, D)`` in [0, 1); empty on a grid. A buffer.
        first: Position of the first sample of a grid, ``(D,)``, in samples of the signal.
        step: Distance of the samples of a grid, ``(D,)``.
        ridge: Ridge of local fits, ``()``.
    """

    coords: Tensor
    first: Tensor
    step: Tensor
    ridge: Tensor

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.samples = nn.Parameter(torch.zeros(0))
        self.register_buffer("coords", torch.zeros(0))
        self.register_buffer("first", torch.zeros(encoding.num_axes))
        self.register_buffer("step", torch.ones(encoding.num_axes))
        self.register_buffer("ridge", torch.zeros(()))

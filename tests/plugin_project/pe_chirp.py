"""Chirps for pe_lightning: after ``pip install pe-chirp``, ``encoder: chirp`` works in every file and command."""

import math

import torch

from pe_lightning.encoders import Encoder


class Chirp(Encoder):
    """Waves whose frequency grows along the axis: ``cos(pi i x^2)``, ``i = 0 .. K-1``.

    Args:
        num_features: Number of chirps ``K``.
    """

    formula = "cos(π i x²)"

    def __init__(self, num_features: int = 256) -> None:
        super().__init__(num_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(*batch,)`` in [0, 1] -> ``(*batch, num_features)``."""
        rates = torch.arange(self.num_features, dtype=x.dtype, device=x.device)
        return torch.cos(math.pi * rates * x[..., None] ** 2)

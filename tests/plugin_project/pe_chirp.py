"""An encoder and a source for pe_lightning: after ``pip install pe-chirp``, ``chirp`` and ``ball`` work everywhere."""

import math

import torch

from pe_lightning.data.signals import RawSignals, Scaling
from pe_lightning.data.sources import Source
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


class Ball(Source):
    """Occupancy of a ball: 1 inside and 0 outside, scored by the intersection over union.

    Args:
        size: Samples per axis.
        radius: Of the ball, in units of the [0, 1] domain.
    """

    metric = "iou"

    def __init__(self, size: int = 16, radius: float = 0.3) -> None:
        self.size = size
        self.radius = radius

    def read(self) -> RawSignals:
        """One signal of three axes."""
        axis = torch.arange(self.size) / self.size - 0.5
        distance = torch.linalg.vector_norm(torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij")), dim=0)
        inside = (distance < self.radius).float().numpy()[None, ..., None]
        return RawSignals.in_memory(inside, ["ball"], Scaling("uint8", (0.0,), (1.0,)))

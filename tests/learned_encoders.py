"""Small trainable encoders: those of the registry, and some as a user would write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder, Gaussian, RandomFourier, registry


class LearnedGaussian(Gaussian):
    """Gaussians whose width is trained, as a logarithm."""

    def __init__(self, num_features: int = 8, sigma: float | None = None, padding: int = 0) -> None:
        super().__init__(num_features, sigma, padding)

    @property
    def sigma(self) -> Tensor:
        return self.log_sigma.exp()

    @sigma.setter
    def sigma(self, value: float) -> None:
        self.log_sigma = nn.Parameter(torch.tensor(value).log())


class Table(Encoder):
    """Linear interpolation in a table of parameters, which starts close to zero."""

    normalizable = False

    def __init__(self, num_features: int = 8, num_rows: int = 5, sharpness: float = 1.0, seed: int = 0) -> None:
        super().__init__(num_features)
        self.sharpness = sharpness
        generator = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.empty(num_rows, num_features).uniform_(-1e-4, 1e-4, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        position = (x.detach().clamp(0, 1) * (len(self.table) - 1)).clamp_max(len(self.table) - 1 - 1e-3)
        left = position.floor().long()
        beta = (position - left)[..., None] ** self.sharpness
        return (1 - beta) * self.table[left] + beta * self.table[left + 1]


class Gained(Encoder):
    """A monomial basis times a buffer that training updates."""

    def __init__(self, num_features: int = 8, offset: float = 0.0) -> None:
        super().__init__(num_features)
        self.offset = offset
        self.register_buffer("gain", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * (x[..., None] + self.offset) ** torch.arange(self.num_features, dtype=x.dtype, device=x.device)


class LearnedFourier(RandomFourier):
    """Random Fourier features whose frequencies are trained."""

    def __init__(self, num_features: int = 8, sigma: float | None = None, seed: int = 0, num_axes: int = 1) -> None:
        super().__init__(num_features, sigma, seed, num_axes)
        start = self.frequencies
        del self.frequencies
        self.frequencies = nn.Parameter(start)


class Waves(Encoder):
    """Cosines and sines of eight frequencies, which are trained unless they are ``fixed``."""

    def __init__(self, scale: float = 10.0, seed: int = 0, fixed: bool = False) -> None:
        super().__init__(16)
        self.frequencies = nn.Parameter(scale * torch.randn(8, generator=torch.Generator().manual_seed(seed)), not fixed)

    def forward(self, x: Tensor) -> Tensor:
        phases = 2 * torch.pi * x[..., None] * self.frequencies.to(x.dtype)
        return torch.cat([phases.cos(), phases.sin()], -1)


LEARNED = [LearnedGaussian, Table, Gained, LearnedFourier]

MLP = {"num_features": 8, "num_inputs": 8, "hidden": 4, "mlp": True}
SINES = {"num_features": 8, "num_positions": 6}
REGISTERED: dict[str, dict[str, Any]] = {
    "lff": {"name": "lff", **MLP, "gamma": 0.2, "kl": 0.1},
    "lff-no-mlp": {"name": "lff", "num_features": 8, "gamma": 0.2},
    "embed": {"name": "embed", "num_features": 8, "num_positions": 6},
    "embed-nearest": {"name": "embed", **MLP, "num_positions": 6, "interpolation": "nearest", "flat": True},
    "pos_mlp": {"name": "pos_mlp", "num_features": 8, "hidden": 4},
    "sine1d": {"name": "sine1d", **SINES, **MLP},
    "sine_nd": {"name": "sine_nd", **SINES, **MLP},
    "md_sine": {"name": "md_sine", **SINES, **MLP},
    "hash": {"name": "hash", "num_levels": 3, "finest": 6, "table_size": 20},
    "grid": {"name": "grid", "num_levels": 2, "finest": 6},
    "lines": {"name": "lines", "rank": 6, "cells": 5},
    "planes": {"name": "planes", "rank": 6, "cells": 5, "plane_cells": 3},
    **{
        name: {"name": name, "num_features": 8, "trainable": True}
        for name in ("gau", "tri", "laplace", "linf", "logf", "rff")
    },
    **{
        f"{name}-each": {"name": name, "num_features": 8, "trainable": True, "per_feature": True}
        for name in ("linf", "logf", "rff")
    },
}
"""Every registered encoder that has parameters, by a short name of the case."""


def takes(name: str, key: str) -> bool:
    """Whether a registered encoder has the argument."""
    return key in registry.parameters(registry.get(name))


def train(encoder: Encoder, seed: int = 0) -> Encoder:
    """The encoder, with every parameter and buffer of real numbers moved away from its initial value."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in filter(torch.is_floating_point, [*encoder.parameters(), *encoder.buffers()]):
            value.add_(0.1 + 0.2 * torch.rand(value.shape, generator=generator, dtype=value.dtype))
    return encoder

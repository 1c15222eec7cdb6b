"""Small modules and signals."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP

GAU = {"name": "gau", "num_features": 8, "sigma": 0.1}
MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "complex": lambda **more: ComplexLinear(GAU, **more),
    "complex-head": lambda **more: ComplexLinear(GAU, depth=2, hidden_size=6, **more),
    "simple": lambda **more: SimpleMLP(GAU, depth=2, hidden_size=6, **more),
    "simple-linear": lambda **more: SimpleMLP(GAU, depth=0, **more),
}


def signals(count: int, *grid: int, channels: int = 3) -> Tensor:
    """Smooth signals in [0, 1], each another: ``(count, *grid, channels)``."""
    x = torch.stack(torch.meshgrid(*[torch.arange(n) / n for n in grid], indexing="ij"), -1)
    waves = [torch.sin((s + 2) * x.sum(-1) + c + s) for s in range(count) for c in range(channels)]
    return 0.5 + 0.4 * torch.stack(waves).reshape(count, channels, *grid).movedim(1, -1)

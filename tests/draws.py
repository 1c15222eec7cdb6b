"""Coordinates and random numbers of tests, in float64."""

import torch
from torch import Tensor


def coordinates(count: int) -> Tensor:
    """``i / count``."""
    return torch.arange(count, dtype=torch.float64) / count


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Uniform in [0, 1)."""
    return torch.rand(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))

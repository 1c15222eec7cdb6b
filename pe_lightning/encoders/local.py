"""The features of a long axis as a banded matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder
from pe_lightning.linalg.block_banded import BLOCK_COLUMNS, BlockBanded
from pe_lightning.linalg.operators import TOLERANCE

MIN_FEATURES = 1024
"""Fewest features of a banded matrix; below this, dense solvers are as fast."""
COORDINATES_AT_ONCE = 1 << 14
"""Coordinates of a line that are tested at once."""
MAX_SHARE = 0.5
"""Largest share of the features in a block of the matrix."""


def bandwidth(encoder: Encoder) -> int:
    """Largest distance of two features that overlap, in shifts."""
    assert encoder.support is not None
    assert encoder.resolution is not None
    return math.floor(2 * encoder.support * encoder.resolution + 1e-6)


def is_local(encoder: Encoder) -> bool:
    """Whether features are shifted copies of one function, and few of them are not negligible at a sample."""
    trained = any(True for _ in encoder.parameters())
    if trained or encoder.num_features < MIN_FEATURES or encoder.resolution is None or encoder.support is None:
        return False
    return BLOCK_COLUMNS + bandwidth(encoder) + 4 <= MAX_SHARE * encoder.num_features


def local_features(encoder: Encoder, x: Tensor, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> BlockBanded:
    """The features of coordinates ``(N,)`` in [0, 1], in any order, computed in float64, times a scale: ``(N, K)``.

    Coordinates are float64 where they are closer than float32 tells apart. The encoder is one that :func:`is_local` allows.
    """
    assert encoder.resolution is not None
    x, resolution = x.double(), encoder.resolution

    def rows(numbers: Tensor, first: Tensor, width: int) -> Tensor:
        # features first, first + 1, ... at x are features 0, 1, ... at shifted coordinates
        features: Tensor = encoder.leading(width)(x[numbers] - first[:, None].double() / resolution)
        return features.mul_(scale)

    position = encoder.position(x).clamp(0, encoder.num_features - 1)
    with torch.no_grad():
        return BlockBanded.build(rows, position, -(-bandwidth(encoder) // 2) + 1, encoder.num_features, dtype)


def interpolates(encoder: Encoder, x: Tensor) -> bool:
    """Whether the features of :func:`local_features` at coordinates ``(N,)`` are the identity matrix, to their rounding.

    It is tested with a random vector, a block of coordinates at a time.
    """
    if len(x) != encoder.num_features:
        return False
    probe = torch.rand(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x.device)
    tolerance = max(TOLERANCE, 2 * len(x) * torch.finfo(x.dtype).eps)
    for first in range(0, len(x), COORDINATES_AT_ONCE):
        some = slice(first, first + COORDINATES_AT_ONCE)
        if (local_features(encoder, x[some]).matvec(probe) - probe[some]).abs().max() > tolerance:
            return False
    return True

"""The features of a long axis as a banded matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder
from pe_lightning.encoders.shifted import Shifted
from pe_lightning.linalg.operators import TOLERANCE
from pe_lightning.linalg.row_banded import RowBanded

MIN_FEATURES = 1024
"""Fewest features of a banded matrix; below this, dense solvers are as fast."""
COORDINATES_AT_ONCE = 1 << 14
"""Coordinates of a line whose features are computed at once."""
MAX_SHARE = 0.5
"""Largest share of the features that overlap with any of 32 neighbours, about."""


def bandwidth(encoder: Encoder) -> int:
    """Largest distance of two features that overlap, in shifts."""
    assert isinstance(encoder, Shifted)
    assert encoder.support is not None
    return math.floor(2 * encoder.support * encoder.resolution + 1e-6)


def is_local(encoder: Encoder) -> bool:
    """Whether features are shifted copies of one function, and few of them overlap with a sample."""
    trained = any(True for _ in encoder.parameters())
    if trained or encoder.num_features < MIN_FEATURES or not isinstance(encoder, Shifted) or encoder.support is None:
        return False
    return 36 + bandwidth(encoder) <= MAX_SHARE * encoder.num_features


def local_features(encoder: Encoder, x: Tensor, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> RowBanded:
    """The features of coordinates ``(N,)``, in any order, computed in float64: ``(N, K)`` of a dtype.

    Args:
        encoder: For which :func:`is_local` is true.
        x: Coordinates in [0, 1]; float64 where they are closer than float32 tells apart.
        dtype: Dtype of the result.
        scale: Factor of the features.
    """
    assert isinstance(encoder, Shifted)
    reach, count = -(-bandwidth(encoder) // 2) + 1, encoder.num_features
    width = 2 * reach + 2
    with torch.no_grad():
        x = x.double()
        first = (encoder.position(x).clamp(0, count - 1).long() - reach).clamp(0, count - width)
        # features first, first + 1, ... at x are features 0, 1, ... at shifted coordinates
        near, leading = x - first.double() / encoder.resolution, encoder.leading(width)
        parts = [leading(some).mul_(scale).to(dtype) for some in torch.split(near, COORDINATES_AT_ONCE)]
        return RowBanded(torch.cat(parts), first, count)


def interpolates(encoder: Encoder, x: Tensor) -> bool:
    """Whether the features at coordinates ``(N,)`` are the identity matrix, to their rounding; tested by a random vector."""
    if len(x) != encoder.num_features:
        return False
    probe = torch.rand(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(x.device)
    tolerance = max(TOLERANCE, 2 * len(x) * torch.finfo(x.dtype).eps)
    for first in range(0, len(x), COORDINATES_AT_ONCE):
        some = slice(first, first + COORDINATES_AT_ONCE)
        if (local_features(encoder, x[some]).matvec(probe) - probe[some]).abs().max() > tolerance:
            return False
    return True

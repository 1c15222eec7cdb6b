"""Whether missing samples of a grid are in wide gaps, or spread as random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

WIDE_GAP = 1.15
"""Least mean distance of missing samples to known ones in wide gaps, relative to that of as many random missing samples."""


def mean_distance(missing: NDArray[np.bool_]) -> float:
    """Mean distance of the missing samples of a grid to the nearest known one, in samples; 0 if none is missing."""
    return float(distance_transform_edt(missing)[missing].mean()) if missing.any() else 0.0


def has_wide_gaps(distance: float, share: float, grid: Sequence[int], seed: int = 0) -> bool:
    """Whether missing samples are farther from known ones than as many random missing samples would be.

    Args:
        distance: Mean distance of a missing sample to the nearest known one, in samples.
        share: Missing samples relative to all, between 0 and 1.
        grid: Samples per axis. Random samples are drawn in a part of a large grid.
        seed: Seed of the random samples.
    """
    sides = list(grid)
    while math.prod(sides) > 1 << 16:
        longest = int(np.argmax(sides))
        sides[longest] //= 2
    order = np.random.default_rng(seed).permutation(math.prod(sides))
    random = (order < max(1, round(share * len(order)))).reshape(sides)
    return not bool(random.all()) and distance > WIDE_GAP * mean_distance(random)

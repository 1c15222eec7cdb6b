"""Where samples of a grid are missing: whether in wide gaps or at random, and known samples that imitate them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

Mask: TypeAlias = NDArray[np.bool_]

MAX_WINDOW = 1 << 20
"""Samples of the part of a grid in which a copy of the gaps is placed."""
COPIES, CANDIDATES_PER_COPY, MAX_SHIFT = 3, 4, 30
"""Copies of the gaps, shifts that are tried for each, and the largest shift per axis, in samples."""
MAX_SCORED = 2000
"""Hidden samples of a copy that are predicted, about; of more, those in random tiles."""
WIDE_GAP = 1.15
"""Least mean distance of missing samples to known ones in wide gaps, relative to that of as many random missing samples."""


def mean_distance(missing: Mask) -> float:
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


class Hidden(NamedTuple):
    """Known samples that are hidden in a held-out fit.

    Args:
        mask: These, ``(N_1, ..., N_D)`` booleans.
        scored: Those of them that are predicted, ``(N_1, ..., N_D)`` booleans.
    """

    mask: Tensor
    scored: Tensor


def imitated_gaps(known: Tensor, seed: int = 0) -> list[Hidden]:
    """Known samples to hide: copies of the missing ones, moved to where their samples are as far from known ones.

    Where much is missing at random, random known samples are hidden instead.

    Args:
        known: ``(N_1, ..., N_D)`` booleans.
        seed: Seed of the shifts.

    Returns:
        The hidden samples of each copy; none where too few samples are known.
    """
    have = known.cpu().numpy()
    random = np.random.default_rng((seed, 1))  # a mask may have been drawn with the seed itself
    whole = have.size <= MAX_WINDOW
    windows = [(slice(None),) * have.ndim] if whole else [_window(have, random) for _ in range(COPIES)]
    result = []
    for window in windows:
        for masks in _imitated(have[window], COPIES // len(windows), random):
            places = [torch.zeros_like(known), torch.zeros_like(known)]
            for place, mask in zip(places, masks, strict=True):
                place[window] = torch.from_numpy(mask).to(known.device)
            result.append(Hidden(*places))
    return result


def _window(known: Mask, random: np.random.Generator) -> tuple[slice, ...]:
    """A part of the grid around a random missing sample."""
    sides = [min(n, round(MAX_WINDOW ** (1 / known.ndim))) for n in known.shape]
    centre = np.unravel_index(random.choice(np.flatnonzero(~known)), known.shape)
    starts = [min(max(0, c - side // 2), n - side) for c, side, n in zip(centre, sides, known.shape, strict=True)]
    return tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))


def _imitated(have: Mask, copies: int, random: np.random.Generator) -> Iterator[tuple[Mask, Mask]]:
    """Samples to hide in each copy, and those of them that are predicted."""
    missing = ~have
    target = mean_distance(missing)
    if missing.mean() > 0.3 and target < 2:
        found = [(0.0, have & (random.random(have.shape) < 0.1)) for _ in range(copies)]
    else:
        found = []
        for _ in range(CANDIDATES_PER_COPY * copies):
            reach = [min(MAX_SHIFT, n // 2) for n in have.shape]
            shift = [int(random.integers(-most, most + 1)) for most in reach]
            some = have & np.roll(missing, shift, range(have.ndim))
            if some.sum() < min(4, have.sum() // 4) or (have & ~some).sum() < have.sum() / 4:
                continue
            distance = float(distance_transform_edt(missing | some)[some].mean())
            found.append((abs(math.log(distance / target)), some))
        found.sort(key=lambda pair: pair[0])
    for _, some in found[:copies]:
        scored, share = some, MAX_SCORED / max(int(some.sum()), 1)
        if share < 1:
            tile = _tiles(have.shape, random)
            scored = some & (tile <= np.quantile(tile[some], share))
        if scored.any():
            yield some, scored


def _tiles(shape: Sequence[int], random: np.random.Generator) -> NDArray[np.float64]:
    """A random number for each tile of a grid, of 16 samples along its longer axes: ``(N_1, ..., N_D)``."""
    sides = [16 if n >= 32 else 1 for n in shape]
    made = random.random([-(-n // s) for n, s in zip(shape, sides, strict=True)])
    for axis, (n, side) in enumerate(zip(shape, sides, strict=True)):
        made = np.repeat(made, side, axis).take(range(n), axis)
    return made

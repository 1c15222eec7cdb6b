"""Where samples of a grid are missing: in wide gaps or at random, and the known samples around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]

OPEN = 1 << 20
"""Distance of known samples where there are none on one side."""
WIDE_GAP = 1.15
"""Least mean distance of missing samples to known ones in wide gaps, relative to as many random missing samples."""


def mean_distance(missing: Mask) -> float:
    """Mean distance of the missing samples of a grid to the nearest known one, in samples; 0 if none is missing."""
    return float(distance_transform_edt(missing)[missing].mean()) if missing.any() else 0.0


def has_wide_gaps(distance: float, share: float, grid: Sequence[int], seed: int = 0) -> bool:
    """Whether missing samples are farther from known ones, in the mean, than as many random missing samples would be.

    ``share`` of the samples of the grid are missing. Random samples are drawn in a part of a large grid.
    """
    sides = list(grid)
    while math.prod(sides) > 1 << 16:
        longest = int(np.argmax(sides))
        sides[longest] //= 2
    order = np.random.default_rng(seed).permutation(math.prod(sides))
    random = (order < max(1, round(share * len(order)))).reshape(sides)
    return not bool(random.all()) and distance > WIDE_GAP * mean_distance(random)


def slab_axis(known: Mask) -> int | None:
    """The axis along which whole slabs are missing, as frames, slices and lines; ``None`` where gaps have another shape."""
    axes = [axis for axis in range(known.ndim) if bool((known != known.take([0], axis)).any())]
    return axes[0] if known.ndim > 1 and len(axes) == 1 else None


def one_sided(known: Mask, axis: int) -> Mask:
    """Which slabs along an axis have known ones on one side only, as ``(N, 1, 1)``."""
    seen = known.any(tuple(other for other in range(known.ndim) if other != axis), keepdims=True)
    after = np.flip(np.logical_or.accumulate(np.flip(seen, axis), axis), axis)
    return ~(np.logical_or.accumulate(seen, axis) & after)


def known_around(have: Mask, axis: int, at: Array) -> tuple[Array, Array]:
    """Positions of the nearest known samples before and after each sample along an axis; infinite where there are none.

    ``at`` are the positions of the samples of the axis, in a shape that is broadcast to the grid.
    """
    before = np.maximum.accumulate(np.where(have, at, -np.inf), axis)
    after = np.flip(np.minimum.accumulate(np.flip(np.where(have, at, np.inf), axis), axis), axis)
    return before, after


def surroundings(have: Mask) -> tuple[Array, Array]:
    """Distance of each sample from the nearest known one, and between known ones before and after it along an axis.

    The latter is the least of all axes. It is :data:`OPEN` at an end, and tells a gap of one sample from a gap of two.
    """
    apart = np.full(have.shape, float(OPEN))
    for axis, size in enumerate(have.shape):
        before, after = known_around(have, axis, np.arange(float(size)).reshape([-1, *[1] * (have.ndim - 1 - axis)]))
        apart = np.minimum(apart, after - before)
    return distance_transform_edt(~have), apart


MARGIN, MARGIN_STEP = 64, 16
"""Samples around wanted ones that members see, and the unit of the start of their part of the grid."""
MAX_PART = 1536
"""Pixels per side of the parts of a picture that are predicted one after another."""


def part_around(wanted: Tensor, periodic: Sequence[bool], within: tuple[slice, ...] = ()) -> tuple[slice, ...]:
    """The part of a grid, or of a part of it, around wanted samples: whole rows, and all of periodic axes."""
    if any(along.step for along in within):  # few samples
        return within
    part = []
    for axis, size in enumerate(wanted.shape):
        along = wanted.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0] if wanted.ndim > 1 else wanted[:0]
        whole = not len(along) or (bool(periodic) and periodic[axis])
        start = 0 if whole else max(0, int(along[0]) - MARGIN) // MARGIN_STEP * MARGIN_STEP
        part.append(slice(start, size if whole else min(size, int(along[-1]) + 1 + MARGIN)))
    limits = within or [slice(0, size) for size in wanted.shape]
    return tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(part, limits, strict=True))


def parts_of_wanted(wanted: Tensor) -> Iterator[Tensor]:
    """The wanted samples of parts of a large picture, one after another: what members hold fits in memory."""
    if wanted.ndim != 2 or wanted.numel() <= MAX_PART**2:
        yield wanted
        return
    for top, left in itertools.product(*[range(0, n, MAX_PART) for n in wanted.shape]):
        inside = torch.zeros_like(wanted)
        part = slice(top, top + MAX_PART), slice(left, left + MAX_PART)
        inside[part] = wanted[part]
        if bool(inside.any()):
            yield inside

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
NEAR_END = 0.25
"""Share of the missing samples near an end, above the share of hidden ones, from which gaps there are imitated."""
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


class Hidden(NamedTuple):
    """Known samples that are hidden in a held-out fit, and predicted ones among them, ``(N_1, ..., N_D)`` booleans each.

    ``part`` is the part of the grid that they are predicted from, which ends as far from them as the grid from gaps at its
    end.
    """

    mask: Tensor
    scored: Tensor
    part: tuple[slice, ...] = ()


def imitated_gaps(known: Tensor, seed: int = 0, periodic: Sequence[bool] = ()) -> list[Hidden]:
    """Known samples to hide: copies of the missing ones, moved to where their samples are as far from known ones.

    Where gaps are near an end of an axis, and moved copies are not, the grid is cut so that the copies are as near to its
    end: predictions are worse there. Where much is missing at random, random known samples are hidden instead. There are
    none where too few samples are known.
    """
    have = known.cpu().numpy()
    random = np.random.default_rng((seed, 1))  # a mask may have been drawn with the seed itself
    whole = have.size <= MAX_WINDOW
    every = tuple(slice(0, n) for n in have.shape)
    windows = [every] if whole else [_window(have, random) for _ in range(COPIES)]
    wraps, result = tuple(periodic) or (False,) * have.ndim, []
    for window in windows:
        ends = [
            (axis, side)
            for axis, (along, size) in enumerate(zip(window, have.shape, strict=True))
            for side, is_end in ((0, along.start == 0), (1, along.stop == size))
            if is_end and not wraps[axis]
        ]
        for mask, scored, cut in _imitated(have[window], COPIES // len(windows), random, ends):
            places = torch.zeros_like(known), torch.zeros_like(known)
            for place, some in zip(places, (mask, scored), strict=True):
                place[window] = torch.from_numpy(some).to(known.device)
            part = list(every)
            if cut is not None:
                axis, shift = cut
                low, high = (window[axis].start + shift, have.shape[axis]) if shift > 0 else (0, window[axis].stop + shift)
                part[axis] = slice(low, high)
            result.append(Hidden(*places, part=tuple(part)))
    return result


def _window(known: Mask, random: np.random.Generator) -> tuple[slice, ...]:
    """A part of the grid around a random missing sample."""
    sides = [min(n, round(MAX_WINDOW ** (1 / known.ndim))) for n in known.shape]
    centre = np.unravel_index(random.choice(np.flatnonzero(~known)), known.shape)
    starts = [min(max(0, c - side // 2), n - side) for c, side, n in zip(centre, sides, known.shape, strict=True)]
    return tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))


Cut: TypeAlias = tuple[int, int]
"""An axis, and how many samples of it are cut off: at its start, or of a negative number at its end."""


def _imitated(
    have: Mask, copies: int, random: np.random.Generator, ends: Sequence[tuple[int, int]]
) -> Iterator[tuple[Mask, Mask, Cut | None]]:
    """Hidden samples of each copy, predicted ones among them, and where the grid is cut; ``ends`` are ends of the grid."""
    missing = ~have
    target = mean_distance(missing)
    if missing.mean() > 0.3 and target < 2:
        found = [_Copy(0.0, mask, mask) for mask in (have & (random.random(have.shape) < 0.1) for _ in range(copies))]
    else:
        moved = [_moved(have, target, random) for _ in range(CANDIDATES_PER_COPY * copies)]
        found = _nearest(moved, copies)
        width = round(4 * target - 2)  # of gaps as long as the grid
        shares = {end: float(np.mean([_share_near(copy.some, end, width) for copy in found] or [0.0])) for end in ends}
        lacking = [end for end in ends if _share_near(missing, end, width) > NEAR_END + shares[end]]
        if lacking:
            shifted = [
                _moved(have, target, random, lacking[number % len(lacking)], max(MAX_SHIFT, 2 * width))
                for number in range(CANDIDATES_PER_COPY * copies)
            ]
            found = _nearest(shifted, copies) or found
    for _, hidden, some, cut in found:
        scored, share = some, MAX_SCORED / max(int(some.sum()), 1)
        if share < 1:
            tile = _tiles(have.shape, random)
            scored = some & (tile <= np.quantile(tile[some], share))
        if scored.any():
            yield hidden, scored, cut


class _Copy(NamedTuple):
    """Hidden samples, the part of them under the moved gaps, and how much their distance differs from the gaps'."""

    difference: float
    hidden: Mask
    some: Mask
    cut: Cut | None = None


def _moved(
    have: Mask, target: float, random: np.random.Generator, end: tuple[int, int] | None = None, most: int = MAX_SHIFT
) -> _Copy | None:
    """The gaps moved at random; from an end along its axis, and the samples that they have left behind cut off."""
    shift = [int(random.integers(-reach, reach + 1)) for reach in (min(MAX_SHIFT, n // 2) for n in have.shape)]
    outside, cut = np.zeros_like(have), None
    if end is not None:
        axis, side = end
        reach = min(most, have.shape[axis] // 2)
        shift[axis] = int(random.integers(1, reach + 1)) * (1 if side == 0 else -1)
        cut = axis, shift[axis]
        behind = slice(0, shift[axis]) if side == 0 else slice(shift[axis], None)
        outside[(slice(None),) * axis + (behind,)] = True
    some = have & ~outside & np.roll(~have, shift, range(have.ndim))
    hidden = have & (some | outside)
    if some.sum() < min(4, have.sum() // 4) or (have & ~hidden).sum() < have.sum() / 4:
        return None
    distance = float(distance_transform_edt(~have | hidden)[some].mean())
    return _Copy(abs(math.log(distance / target)), hidden, some, cut)


def _nearest(found: Sequence[_Copy | None], count: int) -> list[_Copy]:
    """The copies whose distances from known samples differ least from the distances of the gaps."""
    return sorted((one for one in found if one is not None), key=lambda one: one.difference)[:count]


def _share_near(mask: Mask, end: tuple[int, int], width: int) -> float:
    """Share of the samples of a mask within a distance from an end of an axis."""
    axis, side = end
    along = mask.sum(tuple(a for a in range(mask.ndim) if a != axis))
    return float((along[:width] if side == 0 else along[max(0, len(along) - width) :]).sum() / max(along.sum(), 1))


def _tiles(shape: Sequence[int], random: np.random.Generator) -> NDArray[np.float64]:
    """A random number for each tile of a grid, of 16 samples along its longer axes: ``(N_1, ..., N_D)``.

    Of 4 samples in clips and volumes: a few large tiles of a lost frame may show nothing that moves.
    """
    sides = [(16 if len(shape) < 3 else 4) if n >= 32 else 1 for n in shape]
    made = random.random([-(-n // s) for n, s in zip(shape, sides, strict=True)])
    for axis, (n, side) in enumerate(zip(shape, sides, strict=True)):
        made = np.repeat(made, side, axis).take(range(n), axis)
    return made

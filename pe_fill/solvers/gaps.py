"""Where samples of a grid are missing: whether in wide gaps or at random, and known samples that imitate them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

Mask: TypeAlias = NDArray[np.bool_]

MAX_WINDOW = 1 << 20
"""Samples of the part of a grid in which a copy of the gaps is placed."""
COPIES, CANDIDATES_PER_COPY, TRIES, MAX_SHIFT = 3, 4, 3, 30
"""Copies of the gaps, candidates for each, shifts tried for a candidate, and the largest shift per axis, in samples."""
MAX_SCORED = 2000
"""Hidden samples of a copy that are predicted, about; of more, those in random tiles."""
NEAR_END = 0.25
"""Share of the missing samples near an end, above the share of hidden ones, from which gaps there are imitated."""
ALIKE, ALIKE_ALONG_ONE, LEAST_ALIKE = 0.7, 0.25, 0.1
"""Largest difference, in the logarithm, of distances around a scored sample and around the one that it imitates, and where
gaps are along one axis: one lost frame is not two. The least share of such samples among the hidden ones of a copy."""
OPEN = 1 << 20
"""Distance of known samples where there are none on one side."""
MAX_PERIOD, REGULAR = 8, 0.9
"""Samples after which a regular pattern repeats, at most, and the least share of its samples that do."""
DISTANCES, LEAST_TRIPLES = (1, 2, 3, 4, 6, 8, 12, 16), 30
"""Distances at which neighbours predict known samples, and the fewest predictions of a mean error."""
STEEPER = 0.8
"""Exponent by which errors grow faster at the smallest distances of a lattice, as measured on photographs."""
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

    ``part`` is the part of the grid that they are predicted from: it ends as far from them as the grid from gaps at its end,
    and has a step where a pattern is imitated at a larger spacing. ``words`` say what was done.
    """

    mask: Tensor
    scored: Tensor
    part: tuple[slice, ...] = ()
    words: str = "folds"

    @property
    def step(self) -> int:
        """Spacing of the samples of the part."""
        return max((along.step or 1 for along in self.part), default=1)


def imitated_gaps(known: Tensor, seed: int = 0, periodic: Sequence[bool] = ()) -> list[Hidden]:
    """Known samples to hide: copies of the missing ones, moved to where their samples are as far from known ones.

    Scored are hidden samples around which as much is missing as around the samples that they imitate: as far from the
    nearest known sample, in a gap as wide, and as near to an end. Where gaps are near an end of an axis, and moved copies
    are not, the grid is cut so that the copies are as near to its end: predictions are worse there. No copy of a regular
    pattern, such as every second line, fits between the missing samples: it is imitated on known samples at a larger
    spacing. Where much is missing at random, random known samples are hidden instead. There are none where too few samples
    are known.
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
        for copy in _imitated(have[window], COPIES // len(windows), random, ends):
            places = torch.zeros_like(known), torch.zeros_like(known)
            for place, some in zip(places, (copy.hidden, copy.scored), strict=True):
                place[window] = torch.from_numpy(some).to(known.device)
            part = list(every)
            if copy.cut is not None:
                axis, shift = copy.cut
                low, high = (window[axis].start + shift, have.shape[axis]) if shift > 0 else (0, window[axis].stop + shift)
                part[axis] = slice(low, high)
            if copy.lattice:
                part = [
                    slice(along.start + some.start, along.start + some.stop, some.step)
                    for along, some in zip(window, copy.lattice, strict=True)
                ]
            result.append(Hidden(*places, tuple(part), copy.words))
    return result


def _window(known: Mask, random: np.random.Generator) -> tuple[slice, ...]:
    """A part of the grid around a random missing sample."""
    sides = [min(n, round(MAX_WINDOW ** (1 / known.ndim))) for n in known.shape]
    centre = np.unravel_index(random.choice(np.flatnonzero(~known)), known.shape)
    starts = [min(max(0, c - side // 2), n - side) for c, side, n in zip(centre, sides, known.shape, strict=True)]
    return tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))


class _Copy(NamedTuple):
    """Hidden and scored samples, and how much the distances of the scored ones from known ones differ from the gaps'.

    ``cut`` is an axis, and how many samples of it are cut off: at its start, or of a negative number at its end. A
    ``lattice`` holds all samples that are seen or predicted.
    """

    hidden: Mask
    scored: Mask
    words: str
    difference: float = 0.0
    cut: tuple[int, int] | None = None
    lattice: tuple[slice, ...] = ()


def _imitated(have: Mask, copies: int, random: np.random.Generator, ends: Sequence[tuple[int, int]]) -> Iterator[_Copy]:
    """Copies of the missing samples; ``ends`` are ends of the grid, each an axis and its side."""
    missing = ~have
    gaps = _Gaps(have, ends)
    dense = missing.mean() > 0.3 and gaps.target < 2
    found = [] if dense else gaps.moved(copies, random)
    if not found:
        found = _patterns(have, copies, random)
    if not found and dense:
        words = "random tenths of the known samples"
        found = [_Copy(mask, mask, words) for mask in (have & (random.random(have.shape) < 0.1) for _ in range(copies))]
    for copy in found:
        scored, share = copy.scored, MAX_SCORED / max(int(copy.scored.sum()), 1)
        if share < 1:
            tile = _tiles(have.shape, random)
            scored = scored & (tile <= np.quantile(tile[scored], share))
        if scored.any():
            yield copy._replace(scored=scored)


class _Gaps:
    """Missing samples, and what surrounds each."""

    def __init__(self, have: Mask, ends: Sequence[tuple[int, int]]) -> None:
        self.have, self.ends = have, ends
        self.target = mean_distance(~have)
        self.width = round(4 * self.target - 2)  # of gaps as long as the grid
        self.varies = [bool((have != have.take([0], axis)).any()) for axis in range(have.ndim)]
        self.around = _surroundings(have)
        self.near = {end: self._near(end) for end in ends}

    def _near(self, end: tuple[int, int], cut: int = 0) -> NDArray[np.int64]:
        """Samples to an end of an axis with so many of them cut off, up to the width of the gaps."""
        (axis, side), shape = end, self.have.shape
        place = np.arange(shape[axis]) if side == 0 else np.arange(shape[axis])[::-1]
        place = (place - cut).clip(max=self.width).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return np.broadcast_to(place, shape)

    def moved(self, copies: int, random: np.random.Generator) -> list[_Copy]:
        """Copies of the gaps, moved at random; from an end along its axis if moved ones lack samples near that end."""
        found = self._best(copies, random, [None])
        near = {end: place < self.width for end, place in self.near.items()}
        shares = {end: float(np.mean([some[copy.scored].mean() for copy in found] or [0])) for end, some in near.items()}
        lacking = [end for end, some in near.items() if some[~self.have].mean() > NEAR_END + shares[end]]
        return (self._best(copies, random, lacking) or found) if lacking else found

    def _moved(self, random: np.random.Generator, end: tuple[int, int] | None) -> _Copy | None:
        """The gaps moved at random; from an end along its axis, and the samples that they have left behind cut off."""
        have, most = self.have, max(MAX_SHIFT, 2 * self.width)
        reaches = [min(most, n // 2) if varies else 0 for n, varies in zip(have.shape, self.varies, strict=True)]
        shift = [int(random.integers(-reach, reach + 1)) for reach in reaches]
        outside, cut, near = np.zeros_like(have), None, dict(self.near)
        if end is not None:
            axis, side = end
            shift[axis] = int(random.integers(1, reaches[axis] + 1)) * (1 if side == 0 else -1)
            cut = axis, shift[axis]
            behind = slice(0, shift[axis]) if side == 0 else slice(shift[axis], None)
            outside[(slice(None),) * axis + (behind,)] = True
            near[end] = self._near(end, abs(shift[axis]))
        gaps = _shifted(~have, shift)
        some = have & ~outside & gaps
        hidden = have & (some | outside)
        if some.sum() < min(4, have.sum() // 4) or (have & ~hidden).sum() < have.sum() / 4:
            return None
        scored, alike = some, ALIKE if sum(self.varies) > 1 else ALIKE_ALONG_ONE
        for now, before in zip(_surroundings(have & ~hidden), self.around, strict=True):
            scored = scored & (np.abs(np.log(now.clip(1) / _shifted(before, shift).clip(1))) <= alike)
        for place, samples in near.items():
            scored = scored & (samples == _shifted(self.near[place], shift))
        if scored.sum() < max(min(4, some.sum()), LEAST_ALIKE * some.sum()):
            return None
        difference = abs(math.log(float(distance_transform_edt(~have | hidden)[scored].mean()) / self.target))
        return _Copy(hidden, scored, "moved copies of the gaps", difference, cut)

    def _best(self, count: int, random: np.random.Generator, ends: Sequence[tuple[int, int] | None]) -> list[_Copy]:
        """Of copies with many scored samples the ones whose distances from known samples differ least from the gaps'."""
        found = dict[bytes, _Copy]()
        for number in range(TRIES * CANDIDATES_PER_COPY * count):
            copy = self._moved(random, ends[number % len(ends)])
            if copy is not None:
                found[copy.hidden.tobytes()] = copy
            if len(found) == CANDIDATES_PER_COPY * count:
                break
        most = max((copy.scored.sum() for copy in found.values()), default=0)
        many = [copy for copy in found.values() if copy.scored.sum() >= most / 2]
        return sorted(many, key=lambda copy: copy.difference)[:count]


def _shifted(array: NDArray[Any], shift: Sequence[int]) -> NDArray[Any]:
    """An array moved along its axes, zero at what comes in."""
    made = np.zeros_like(array)
    to = tuple(slice(max(0, s), min(n, n + s)) for s, n in zip(shift, array.shape, strict=True))
    by = tuple(slice(max(0, -s), min(n, n - s)) for s, n in zip(shift, array.shape, strict=True))
    made[to] = array[by]
    return made


def _surroundings(have: Mask) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distance of each sample from the nearest known one, and between known ones before and after it along an axis.

    The latter is the least of all axes. It is long at an end, and tells a gap of one sample from a gap of two.
    """
    apart = np.full(have.shape, float(OPEN))
    for axis, size in enumerate(have.shape):
        place = np.arange(float(size)).reshape([-1 if a == axis else 1 for a in range(have.ndim)])
        before = np.maximum.accumulate(np.where(have, place, -OPEN), axis)
        after = np.flip(np.minimum.accumulate(np.flip(np.where(have, place, size + OPEN), axis), axis), axis)
        apart = np.minimum(apart, after - before)
    return distance_transform_edt(~have), apart


def _patterns(have: Mask, copies: int, random: np.random.Generator) -> list[_Copy]:
    """A regular pattern, imitated on every second sample of all axes, or on the least coarse lattice that takes it."""
    periods = [_period(have, axis) or 0 for axis in range(have.ndim)]
    if not min(periods) or max(periods) == 1:
        return []
    around, found = _surroundings(have), list[_Copy]()
    for step in range(2, MAX_PERIOD + 1):
        starts = list(itertools.product(*[range(step * period if period > 1 else step) for period in periods]))
        for start in (starts[number] for number in random.permutation(len(starts))):
            counts = [len(range(first, n, step)) for first, n in zip(start, have.shape, strict=True)]
            # the pattern ends as at the end of the grid
            counts = [m - (m - n) % period for m, n, period in zip(counts, have.shape, periods, strict=True)]
            lattice = tuple(slice(first, first + m * step, step) for first, m in zip(start, counts, strict=True))
            same = tuple(slice(0, m) for m in counts)
            given, kept = have[lattice], have[same]
            if (given & kept).sum() <= REGULAR * kept.sum():
                continue
            wanted = given & ~kept
            for now, before in zip(_surroundings(given & kept), around, strict=True):
                wanted &= now == before[same]
            if wanted.any():
                scored, hidden = np.zeros_like(have), have.copy()
                hidden[lattice] &= ~kept
                scored[lattice] = wanted
                words = f"copies of the pattern at {step} times its spacing"
                found.append(_Copy(hidden, scored, words, lattice=lattice))
            if len(found) == copies:
                return found
        if found:
            break
    return found


def _period(have: Mask, axis: int) -> int | None:
    """The least distance along an axis at which missing samples are missing again."""
    missing = ~np.moveaxis(have, axis, 0)
    for period in range(1, min(MAX_PERIOD, len(missing) // 3) + 1):
        again = (missing[period:] & missing[:-period]).sum()
        if again > REGULAR * max(missing[period:].sum(), missing[:-period].sum(), 1):
            return period
    return None


def _tiles(shape: Sequence[int], random: np.random.Generator) -> NDArray[np.float64]:
    """A random number for each tile of a grid, of 16 samples along its longer axes: ``(N_1, ..., N_D)``.

    Of 4 samples in clips and volumes: a few large tiles of a lost frame may show nothing that moves.
    """
    sides = [(16 if len(shape) < 3 else 4) if n >= 32 else 1 for n in shape]
    made = random.random([-(-n // s) for n, s in zip(shape, sides, strict=True)])
    for axis, (n, side) in enumerate(zip(shape, sides, strict=True)):
        made = np.repeat(made, side, axis).take(range(n), axis)
    return made


def carried_over(values: Tensor, known: Tensor, step: int, error: float) -> float:
    """Size of errors in a regular pattern relative to errors in its copy at ``step`` times the spacing, at most 1.

    Of one signal ``(N_1, ..., N_D, C)``. It follows from how errors of the mean of two neighbours grow with their distance:
    along axes whose neighbours are missing from the least distance of known samples on. Below that distance the growth is as
    much steeper as along axes whose neighbours are known; if there is none, by :data:`STEEPER`. A method whose mean squared
    ``error`` in the copy is far below is limited by noise instead, which does not depend on the distance.
    """
    have, data = known.cpu().numpy(), values.double().cpu().numpy()
    errors = np.array([[_neighbour_error(data, have, axis, k) for k in DISTANCES] for axis in range(have.ndim)])
    near, far = np.isfinite(errors[:, 0]), np.isfinite(errors).any(1) & ~np.isfinite(errors[:, 0])
    middle = float(np.median(_surroundings(have)[1][~have])) / 2
    if not far.any():
        return min(1.0, step ** (-_growth(errors[near], middle, step) / 2)) if near.any() else 1.0
    least = min(DISTANCES[int(np.isfinite(row).argmax())] for row in errors[far])
    exponent = _growth(errors[far], least, 2)
    if near.any() and math.isnan(exponent):  # too few samples along an axis: as along others, where errors are as large
        size = float(np.nanmax(errors[far]))
        alike = np.interp(size, np.maximum.accumulate(np.nan_to_num(errors[near]).max(0)), DISTANCES)
        exponent = _growth(errors[near], max(1.0, alike * middle / least), step)
    elif near.any():
        fine, coarse = _growth(errors[near], middle, step), _growth(errors[near], least, 2)
        exponent += (fine - coarse) * (np.clip(2 * exponent / coarse, 0.5, 1) if coarse > 0 else 1)
    elif have.ndim > 1:
        exponent += STEEPER * np.clip(2 * exponent, 0, 1)
    exponent *= np.clip(2 * error / np.nanmean(errors[far, DISTANCES.index(least)]), 0, 1)
    return float(min(1.0, step ** (-np.nan_to_num(exponent) / 2)))


def _growth(errors: NDArray[np.float64], distance: float, times: float) -> float:
    """Mean exponent of errors ``(W, K)`` between a distance and a multiple of it; NaN where they are not known there."""
    found = []
    for row in errors:
        at, known = np.log(DISTANCES), np.isfinite(row)
        if DISTANCES[int(np.flatnonzero(known)[-1])] >= times * distance:
            low, high = np.interp(np.log([distance, times * distance]), at[known], np.log(row[known]))
            found.append((high - low) / math.log(times))
    return float(np.mean(found)) if found else math.nan


def _neighbour_error(values: NDArray[np.float64], have: Mask, axis: int, distance: int) -> float:
    """Mean squared error of the mean of both samples at a distance from a known one along an axis, where these are known."""
    have, values = np.moveaxis(have, axis, 0), np.moveaxis(values, axis, 0)
    count = max(0, len(have) - 2 * distance)
    before, here, after = (slice(start, start + count) for start in (0, distance, 2 * distance))
    inside = have[before] & have[here] & have[after]
    if inside.sum() < LEAST_TRIPLES:
        return math.nan
    mean = (values[before] + values[after]) / 2
    return float(np.square(values[here] - mean)[inside].mean()) + 1e-20

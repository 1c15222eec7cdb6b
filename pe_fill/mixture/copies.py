"""Known samples that imitate missing ones: copies of the gaps, moved to where as much is missing around them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from pe_fill.mixture.gaps import Mask, mean_distance, one_sided, slab_axis, surroundings

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
    spacing. Lost slabs at an end, as last frames, are imitated there and others apart from it. Where much is missing at
    random, random known samples are hidden instead. There are none where too few samples are known.
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
    found = [] if dense else gaps.moved_copies(copies, random)
    if not found:
        for hidden, scored, lattice in pattern_copies(have, copies, random):
            words = f"copies of the pattern at {lattice[0].step} times its spacing"
            found.append(_Copy(hidden, scored, words, lattice=lattice))
    if not found and dense and gaps.slabs is not None:
        found = gaps.moved_copies(copies, random)
    if not found and dense:
        words = "random tenths of the known samples"
        found = [_Copy(mask, mask, words) for mask in (have & (random.random(have.shape) < 0.1) for _ in range(copies))]
    kinds = [gaps.by_sides(copy) for copy in found]
    counts = np.array([[some.sum() for some in kind] for kind in kinds]).reshape(-1, 2).sum(0)
    lost = np.array([(missing & gaps.one_sided).sum(), (missing & ~gaps.one_sided).sum()])
    balance = lost / counts if counts.all() else np.ones(2)  # as many of each kind as are missing
    for copy, kind in zip(found, kinds, strict=True):
        shares = balance / balance.max() * min(1.0, MAX_SCORED / max(int(copy.scored.sum()), 1))
        scored, tile = np.zeros_like(have), _tiles(have.shape, random) if shares.min() < 1 else np.zeros(have.shape)
        for some, share in zip(kind, shares, strict=True):
            if some.any():
                scored |= some & (tile <= np.quantile(tile[some], share))
        if scored.any():
            yield copy._replace(scored=scored)


class _Gaps:
    """Missing samples, and what surrounds each."""

    def __init__(self, have: Mask, ends: Sequence[tuple[int, int]]) -> None:
        self.have, self.ends = have, ends
        self.target = mean_distance(~have)
        self.width = round(4 * self.target - 2)  # of gaps as long as the grid
        self.varies = [bool((have != have.take([0], axis)).any()) for axis in range(have.ndim)]
        self.around, self.slabs = surroundings(have), slab_axis(have)
        self.one_sided = np.zeros_like(have)
        if self.slabs is not None:
            self.one_sided |= one_sided(have, self.slabs)
            self.width = min(self.width, int(np.median(self.around[1][~have])) - 1)  # a single slab is not two
        self.near = {end: self._near(end) for end in ends}

    def _near(self, end: tuple[int, int], cut: int = 0) -> NDArray[np.int64]:
        """Samples to an end of an axis with so many of them cut off, up to the width of the gaps."""
        (axis, side), shape = end, self.have.shape
        place = np.arange(shape[axis]) if side == 0 else np.arange(shape[axis])[::-1]
        place = (place - cut).clip(max=self.width).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        return np.broadcast_to(place, shape)

    def by_sides(self, copy: _Copy) -> tuple[Mask, Mask]:
        """The scored samples in slabs with known ones on one side, and others."""
        single = np.zeros_like(self.have)
        if self.slabs is not None:
            single[copy.lattice] |= one_sided((self.have & ~copy.hidden)[copy.lattice], self.slabs)
        return copy.scored & single, copy.scored & ~single

    def moved_copies(self, copies: int, random: np.random.Generator) -> list[_Copy]:
        """Copies of the gaps, moved at random; from an end along its axis if moved ones lack samples near that end."""
        near = {end: place < self.width for end, place in self.near.items()}
        if self.slabs is not None:
            ends = [end for end, some in near.items() if end[0] == self.slabs and (some & self.one_sided & ~self.have).any()]
            found = self._slabs(copies, random, [None])
            return [*found[:1], *self._slabs(max(1, copies - len(found[:1])), random, ends)] if ends else found
        alike = ALIKE if sum(self.varies) > 1 else ALIKE_ALONG_ONE
        found = self._best(copies, random, [None], alike)
        shares = {end: float(np.mean([some[copy.scored].mean() for copy in found] or [0])) for end, some in near.items()}
        lacking = [end for end, some in near.items() if some[~self.have].mean() > NEAR_END + shares[end]]
        return (self._best(copies, random, lacking, alike) or found) if lacking else found

    def _slabs(self, count: int, random: np.random.Generator, ends: Sequence[tuple[int, int] | None]) -> list[_Copy]:
        """Copies of lost slabs; where none is alike, less alike ones."""
        for alike in (ALIKE_ALONG_ONE, ALIKE, math.inf):
            if found := self._best(count, random, ends, alike):
                return found
        return []

    def _moved(self, random: np.random.Generator, end: tuple[int, int] | None, alike: float) -> _Copy | None:
        """The gaps moved at random; from an end along its axis, and the samples that they have left behind cut off.

        ``alike`` is the largest difference of distances around scored samples, as :data:`ALIKE`.
        """
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
        gaps = _shifted(~have if end is None or self.slabs is None else ~have & self.one_sided, shift)
        some = have & ~outside & gaps
        hidden = have & (some | outside)
        if some.sum() < min(4, have.sum() // 4) or (have & ~hidden).sum() < have.sum() / 4:
            return None
        scored = some
        for place, samples in near.items():
            scored = scored & (samples == _shifted(self.near[place], shift))
        for _ in range(1 if self.slabs is None else 2):
            for now, before in zip(surroundings(have & ~hidden), self.around, strict=True):
                scored = scored & (np.abs(np.log(now.clip(1) / _shifted(before, shift).clip(1))) <= alike)
            if self.slabs is not None:  # others need not be hidden
                hidden = have & (scored | outside)
        if scored.sum() < max(min(4, some.sum()), LEAST_ALIKE * some.sum()):
            return None
        difference = abs(math.log(float(distance_transform_edt(~have | hidden)[scored].mean()) / self.target))
        return _Copy(hidden, scored, "moved copies of the gaps", difference, cut)

    def _best(
        self, count: int, random: np.random.Generator, ends: Sequence[tuple[int, int] | None], alike: float
    ) -> list[_Copy]:
        """Of copies with many scored samples the ones whose distances from known samples differ least from the gaps'."""
        found = dict[bytes, _Copy]()
        for number in range(TRIES * CANDIDATES_PER_COPY * count):
            copy = self._moved(random, ends[number % len(ends)], alike)
            if copy is not None:
                found[copy.hidden.tobytes()] = copy
            if len(found) == CANDIDATES_PER_COPY * count:
                break
        most = max((copy.scored.sum() for copy in found.values()), default=0)
        many = [copy for copy in found.values() if copy.scored.sum() >= most / 2]
        return sorted(many, key=lambda copy: (copy.difference, -copy.scored.sum()))[:count]


def _shifted(array: NDArray[Any], shift: Sequence[int]) -> NDArray[Any]:
    """An array moved along its axes, zero at what comes in."""
    made = np.zeros_like(array)
    to = tuple(slice(max(0, s), min(n, n + s)) for s, n in zip(shift, array.shape, strict=True))
    by = tuple(slice(max(0, -s), min(n, n - s)) for s, n in zip(shift, array.shape, strict=True))
    made[to] = array[by]
    return made


def _tiles(shape: Sequence[int], random: np.random.Generator) -> NDArray[np.float64]:
    """A random number for each tile of a grid, of 16 samples along its longer axes: ``(N_1, ..., N_D)``.

    Of 4 samples in clips and volumes: a few large tiles of a lost frame may show nothing that moves.
    """
    sides = [(16 if len(shape) < 3 else 4) if n >= 32 else 1 for n in shape]
    made = random.random([-(-n // s) for n, s in zip(shape, sides, strict=True)])
    for axis, (n, side) in enumerate(zip(shape, sides, strict=True)):
        made = np.repeat(made, side, axis).take(range(n), axis)
    return made


MAX_PERIOD, REGULAR = 8, 0.9
"""Samples after which a regular pattern repeats, at most, and the least share of its samples that do."""


def pattern_copies(have: Mask, copies: int, random: np.random.Generator) -> list[tuple[Mask, Mask, tuple[slice, ...]]]:
    """A regular pattern, imitated on every second sample of all axes, or on the least coarse lattice that takes it.

    Hidden samples, scored ones, and the lattice of each copy. Scored are samples as far from known ones as missing ones.
    """
    periods = [_period(have, axis) or 0 for axis in range(have.ndim)]
    if not min(periods) or max(periods) == 1:
        return []
    lost = np.unique(_kinds(have)[~have])
    found = list[tuple[Mask, Mask, tuple[slice, ...]]]()
    for step in range(2, MAX_PERIOD + 1):
        starts = list(itertools.product(*[range(step * period if period > 1 else step) for period in periods]))
        for start in (starts[number] for number in random.permutation(len(starts))):
            counts = [len(range(first, n, step)) for first, n in zip(start, have.shape, strict=True)]
            # the pattern ends as at the end of the grid
            counts = [m - (m - n) % period for m, n, period in zip(counts, have.shape, periods, strict=True)]
            if any(m < 2 * period for m, period in zip(counts, periods, strict=True)):
                continue
            lattice = tuple(slice(first, first + m * step, step) for first, m in zip(start, counts, strict=True))
            same = tuple(slice(0, m) for m in counts)
            given, kept = have[lattice], have[same]
            if (given & kept).sum() <= REGULAR * kept.sum():
                continue
            wanted = given & ~kept & np.isin(_kinds(given & kept), lost)
            if wanted.any():
                scored, hidden = np.zeros_like(have), have.copy()
                hidden[lattice] &= ~kept
                scored[lattice] = wanted
                found.append((hidden, scored, lattice))
            if len(found) == copies:
                return found
        if found:
            break
    return found


def _kinds(have: Mask) -> NDArray[np.complex128]:
    """Distances around each sample, as one number."""
    distance, apart = surroundings(have)
    return distance + 1j * apart


def _period(have: Mask, axis: int) -> int | None:
    """The least distance along an axis at which missing samples are missing again."""
    missing = ~np.moveaxis(have, axis, 0)
    for period in range(1, min(MAX_PERIOD, len(missing) // 3) + 1):
        again = (missing[period:] & missing[:-period]).sum()
        if again > REGULAR * max(missing[period:].sum(), missing[:-period].sum(), 1):
            return period
    return None

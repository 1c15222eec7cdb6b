"""Gaps in a regular pattern, such as every second line, which no copy of fits between them: copies at a larger spacing."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from pe_fill.mixture.gaps import Mask, surroundings

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

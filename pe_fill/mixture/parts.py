"""Parts of a grid around wanted samples, which members see in place of all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

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


def divided(wanted: Tensor) -> Iterator[Tensor]:
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

"""Limits of filling: missing samples in wide gaps, or far from known samples, which stay missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, grey_opening

from pe_fill.formats.point_axes import Limit, length_of
from pe_fill.mixture.gaps import known_around
from pe_fill.request import check_limit
from pe_lightning.errors import InputError
from pe_lightning.signals import Axis

Mask: TypeAlias = NDArray[np.bool_]


def beyond_limits(missing: Mask, axes: Sequence[Axis], max_gap: Limit | None, max_distance: Limit | None) -> Mask:
    """Missing samples ``(N_1, ..., N_D)`` that stay missing.

    These are in a gap of more than ``max_gap`` samples along every axis (of a row, in a longer run), or farther than
    ``max_distance`` from the nearest known sample, in samples. A length of time is along the axis of dates alone; a gap has
    the length of its samples times their mean distance.
    """
    beyond = np.zeros_like(missing)
    if max_gap is not None:
        length, of_time = length_of("max_gap", max_gap)
        limits = [_in_samples(axis, length) for axis in axes] if of_time else [length] * missing.ndim
        sides = [min(int(limit + 1e-9) + 1, n) if limit else 1 for limit, n in zip(limits, missing.shape, strict=True)]
        wrapped, inner = _wrapped(missing, axes, sides)
        beyond |= grey_opening(wrapped.astype(np.uint8), tuple(sides), mode="constant").astype(bool)[inner]
    if max_distance is not None:
        length, of_time = length_of("max_distance", max_distance)
        if of_time:
            (place,) = (number for number, axis in enumerate(axes) if axis.time)
            times = axes[place].grid() * abs(axes[place].length)
            times = times.reshape(-1, *[1] * (missing.ndim - 1 - place))
            before, after = known_around(~missing, place, times)
            beyond |= missing & (np.minimum(times - before, after - times) > length * (1 + 1e-9))
        else:
            wrapped, inner = _wrapped(missing, axes, [math.ceil(length)] * missing.ndim)
            beyond |= missing & (distance_transform_edt(wrapped)[inner] > length)
    return beyond


def _wrapped(missing: Mask, axes: Sequence[Axis], sides: Sequence[int]) -> tuple[Mask, tuple[slice, ...]]:
    """Missing samples with up to so many of the other end around those of periodic axes, and where they are in it."""
    margins = [min(side, n) if axis.periodic else 0 for axis, side, n in zip(axes, sides, missing.shape, strict=False)]
    margins = margins or [0] * missing.ndim
    inner = tuple(slice(margin, margin + n) for margin, n in zip(margins, missing.shape, strict=True))
    return np.pad(missing, [(margin, margin) for margin in margins], "wrap"), inner


def check_dates(axes: Sequence[Axis], max_gap: Limit | None, max_distance: Limit | None) -> None:
    """Refuses limits that are lengths of time without one axis of dates."""
    for name, limit in (("max_gap", max_gap), ("max_distance", max_distance)):
        if check_limit(name, limit) and sum(axis.time for axis in axes) != 1:
            raise InputError(f"{name} {limit!r} is for files with one axis of dates: give a number of samples")


def _in_samples(axis: Axis, seconds: float) -> float:
    """A length of time along an axis; 0 along others."""
    return seconds * axis.size / abs(axis.length) if axis.time else 0.0

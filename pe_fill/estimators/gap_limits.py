"""Limits of filling: missing samples in wide gaps, or far from known samples, which stay missing."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, grey_opening

from pe_fill.formats.point_axes import SECONDS
from pe_lightning.errors import InputError
from pe_lightning.signals import Axis

Mask: TypeAlias = NDArray[np.bool_]
Limit: TypeAlias = int | float | str
"""A number of samples, or a length of time, such as ``3h``."""

LENGTH = rf"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)({'|'.join(SECONDS)})?"


def length_of(name: str, given: Limit) -> tuple[float, bool]:
    """A positive number, and whether it is a length of time, in seconds.

    >>> length_of("max_gap", "3h"), length_of("max_gap", 12)
    ((10800.0, True), (12.0, False))
    """
    found = re.fullmatch(LENGTH, str(given).strip())
    if found is None or not 0 < float(found[1]) < math.inf:
        raise InputError(
            f"{name} is a positive number, or a length of time along dates, such as 3h ({', '.join(SECONDS)}); got {given!r}"
        )
    return float(found[1]) * SECONDS.get(found[2] or "", 1.0), found[2] is not None


def check_limits(max_gap: Limit | None, max_distance: Limit | None, axes: Sequence[Axis] | None = None) -> None:
    """Refuses limits that are no lengths, or, of these axes, lengths of time without one axis of dates."""
    for name, given in (("max_gap", max_gap), ("max_distance", max_distance)):
        if given is None:
            continue
        length, of_time = length_of(name, given)
        if name == "max_gap" and not of_time and length != int(length):
            raise InputError(f"max_gap is a whole number of samples, or a length of time, such as 3h; got {given!r}")
        if of_time and axes is not None and sum(axis.time for axis in axes) != 1:
            raise InputError(f"{name} {given!r} is for files with one axis of dates: give a number of samples")


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
        beyond |= grey_opening(missing.astype(np.uint8), tuple(sides), mode="constant").astype(bool)
    if max_distance is not None:
        length, of_time = length_of("max_distance", max_distance)
        if of_time:
            (place,) = (number for number, axis in enumerate(axes) if axis.time)
            times = axes[place].grid() * abs(axes[place].length)
            beyond |= missing & (_distance_along(missing, place, times) > length * (1 + 1e-9))
        else:
            beyond |= missing & (distance_transform_edt(missing) > length)
    return beyond


def _in_samples(axis: Axis, seconds: float) -> float:
    """A length of time along an axis; 0 along others."""
    return seconds * axis.size / abs(axis.length) if axis.time else 0.0


def _distance_along(missing: Mask, axis: int, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of samples from the nearest known one along an axis; infinite without one."""
    moved = np.moveaxis(missing, axis, 0)
    at = times.reshape(-1, *[1] * (missing.ndim - 1))
    before = np.maximum.accumulate(np.where(moved, -np.inf, at), 0)
    after = np.minimum.accumulate(np.where(moved, np.inf, at)[::-1], 0)[::-1]
    return np.moveaxis(np.minimum(at - before, after - at), 0, axis)

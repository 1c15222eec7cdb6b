"""Checks of what a user sets, which need no file, and of what files that are fitted together must share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias, TypeVar, get_args

import numpy as np

from pe_lightning.errors import InputError

__all__ = [
    "MAX_PIXELS",
    "Size",
    "as_size",
    "check_area",
    "check_choice",
    "check_length",
    "check_max_pixels",
    "in_common",
    "is_count",
    "number_range",
    "one_length",
]

MAX_PIXELS = 178_956_970
"""More pixels than this are refused by default, as by Pillow: a file of some kilobytes can claim any number."""

Size: TypeAlias = "int | Sequence[int]"
T = TypeVar("T", bound=Hashable)


def is_count(value: object, least: int = 0) -> bool:
    """Whether a value is an integer of at least ``least``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_choice(name: str, value: object, choices: object) -> None:
    """Raises :class:`InputError` unless ``value`` is one of the strings of the ``Literal`` type ``choices``."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def as_size(name: str, value: Size | None) -> tuple[int, int] | None:
    """``(height, width)`` from ``n`` or ``[height, width]``.

    Raises:
        InputError: If it is neither, or less than 2.
    """
    if value is None:
        return None
    sides = [value, value] if isinstance(value, int) else list(value) if isinstance(value, (list, tuple)) else []
    if len(sides) != 2 or not all(is_count(side, 2) for side in sides):
        raise InputError(f"{name} must be an integer >= 2 or [height, width] of two such integers; got {value!r}")
    return sides[0], sides[1]


def check_max_pixels(max_pixels: int | None) -> None:
    """Raises :class:`InputError` unless ``max_pixels`` is a positive integer or ``None``."""
    if max_pixels is not None and not is_count(max_pixels, 1):
        raise InputError(f"max_pixels must be an integer >= 1, or null for no limit; got {max_pixels!r}")


def check_area(given: str, height: int, width: int, max_pixels: int | None) -> None:
    """Raises :class:`InputError` if the header of a file claims more than ``max_pixels``."""
    if max_pixels is not None and height * width > max_pixels:
        raise InputError(
            f"{given!r} claims {height}x{width} (height x width), {height * width} pixels, more than max_pixels, "
            f"{max_pixels}; nothing was decoded. If the file is genuine, set max_pixels: {height * width} "
            "(--data.max_pixels), or shrink it first"
        )


def number_range(name: str, value: Sequence[float] | None) -> tuple[float, float] | None:
    """``(low, high)`` of an argument such as ``value_range``.

    Raises:
        InputError: If it is not two finite numbers, the lower one first.
    """
    if value is None:
        return None
    given = list(value) if isinstance(value, (list, tuple)) else []
    plain = [number for number in given if isinstance(number, (int, float)) and not isinstance(number, bool)]
    if len(given) != 2 or len(plain) != 2 or not np.isfinite(plain).all() or plain[0] >= plain[1]:
        raise InputError(f"{name} must be two finite numbers, the lower one first; got {value!r}")
    return float(plain[0]), float(plain[1])


def check_length(length: int | None) -> None:
    """Raises :class:`InputError` unless ``length`` is an integer of at least 2, or ``None``."""
    if length is not None and not is_count(length, 2):
        raise InputError(f"length is the number of first samples to take, an integer >= 2; got {length!r}")


def one_length(lengths: Sequence[tuple[str, int]], length: int | None, remedy: str = "") -> int:
    """How many samples of each signal are taken.

    Args:
        lengths: What messages call each signal, or file, and its number of samples.
        length: How many first samples to take; ``None``: all of them, if all have as many.
        remedy: What else could be set, for the message: ``", or resize"``.

    Raises:
        InputError: If the signals differ in length, or one has fewer samples than ``length``, or than 2.
    """
    name, shortest = min(lengths, key=lambda entry: entry[1])
    if shortest < 2:
        raise InputError(f"{name!r} has {shortest} sample(s); a signal needs at least 2. Remove it from the paths")
    if length is None:
        return in_common("lengths (in samples)", lengths, f"Set length: {shortest} to take the first samples{remedy}")
    if length > shortest:
        raise InputError(f"length {length} is more than the {shortest} samples of {name!r}; set length: {shortest}")
    return length


def in_common(
    what: str, values: Sequence[tuple[str, T]], remedy: str, show: Callable[[Any], str] = str, few: int = 3, most: int = 8
) -> T:
    """The value that all files have in common.

    Args:
        what: What is compared, in the plural.
        values: What messages call each file, and its value.
        remedy: What to do if they differ: a sentence without its full stop.
        show: How messages write a value.
        few: How many files a message names per value.
        most: How many values a message lists.

    Raises:
        InputError: If they differ.
    """
    groups: dict[T, list[str]] = {}
    for given, value in values:
        groups.setdefault(value, []).append(given)
    if len(groups) == 1:
        return next(iter(groups))
    listed = "; ".join(
        f"{show(value)}: {', '.join(names[:few])}{f' and {len(names) - few} more' if len(names) > few else ''}"
        for value, names in list(groups.items())[:most]
    )
    more = f"; and {len(groups) - most} more" if len(groups) > most else ""
    raise InputError(
        f"there are {len(groups)} different {what}, but signals that are fitted together share one. {listed}{more}. {remedy}"
    )

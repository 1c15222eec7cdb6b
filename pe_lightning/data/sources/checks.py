"""Checks of what a user sets, which need no file, and of what files that are fitted together must share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar, get_args

import numpy as np

from pe_lightning.errors import InputError

__all__ = [
    "MAX_PIXELS",
    "Size",
    "as_size",
    "check_area",
    "check_choice",
    "check_count",
    "in_common",
    "is_count",
    "is_list",
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


def is_list(value: object, of: Callable[[Any], bool]) -> TypeGuard[Sequence[Any]]:
    """Whether a value is a list or tuple of what ``of`` accepts."""
    return isinstance(value, (list, tuple)) and all(map(of, value))


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
    sides: object = [value, value] if isinstance(value, int) else value
    if not is_list(sides, lambda side: is_count(side, 2)) or len(sides) != 2:
        raise InputError(f"{name} must be an integer >= 2 or [height, width] of two such integers; got {value!r}")
    return sides[0], sides[1]


def check_count(name: str, value: int | None, least: int) -> None:
    """Raises :class:`InputError` unless ``value`` is an integer of at least ``least``, or ``None``."""
    if value is not None and not is_count(value, least):
        raise InputError(f"{name} must be an integer >= {least}; got {value!r}")


def check_area(given: str, height: int, width: int, max_pixels: int | None) -> None:
    """Raises :class:`InputError` if the header of a file claims more than ``max_pixels``."""
    if max_pixels is not None and height * width > max_pixels:
        raise InputError(
            f"{given!r} claims {height}x{width} (height x width), {height * width} pixels, more than max_pixels, "
            f"{max_pixels}; nothing was decoded. If the file is genuine, set max_pixels: {height * width} "
            "(--data.max_pixels), or shrink it first"
        )


def number_range(name: str, value: Sequence[float] | None, least: float = -np.inf) -> tuple[float, float] | None:
    """``(low, high)`` of an argument such as ``value_range``, both at least ``least``.

    Raises:
        InputError: If it is not two finite numbers, the lower one first.
    """
    if value is None:
        return None
    numbers = is_list(value, lambda number: isinstance(number, (int, float)) and not isinstance(number, bool))
    if not numbers or len(value) != 2 or not np.isfinite(value).all() or not least <= value[0] < value[1]:
        bound = "" if least == -np.inf else f" of at least {least:g}"
        raise InputError(f"{name} must be [low, high], two finite numbers{bound}, the lower one first; got {value!r}")
    return float(value[0]), float(value[1])


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

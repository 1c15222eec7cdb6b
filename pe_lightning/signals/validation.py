"""Checks of arguments, which return plain Python values, and of sizes in headers of files before anything is decoded."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar, get_args

import numpy as np
import psutil

from pe_lightning.errors import InputError, did_you_mean, show_bytes

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)
Size: TypeAlias = int | list[int]

MAX_INTEGER = 2**63 - 1
MAX_PIXELS = 178_956_970
"""Default limit of pixels, as in Pillow: the header of a small file can claim any number."""
MAX_COMPRESSION_RATIO = 2000
"""Decoded size over file size above which a file is empty or damaged; deflate reaches 1032."""
MAX_UNCHECKED_BYTES = 1 << 28
"""Decoded size up to which the ratio is not checked: constant arrays compress further."""


def is_integer(value: object, minimum: int = 0, maximum: int = MAX_INTEGER) -> bool:
    """Whether a value is an integer, also of NumPy, but not a boolean, from ``minimum`` to ``maximum``."""
    return type(value) is not bool and isinstance(value, Integral) and minimum <= int(value) <= maximum


def integer(name: str, value: object, minimum: int = 0, maximum: int = MAX_INTEGER, hint: str = "") -> int:
    """An integer from ``minimum`` to ``maximum`` as ``int``; ``hint`` follows the range in the message."""
    if not is_integer(value, minimum, maximum):
        allowed = f">= {minimum}" if maximum == MAX_INTEGER else f"from {minimum} to {maximum}"
        raise InputError(f"{name} must be an integer {allowed}{hint}; got {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def integers(name: str, value: object, minimum: int = 0, hint: str = ", or a list of one per axis") -> int | list[int]:
    """An integer of at least ``minimum``, or a list of such integers."""
    if isinstance(value, (list, tuple)) and value and all(is_integer(one, minimum) for one in value):
        return [int(one) for one in value]
    return integer(name, value, minimum, hint=hint)


def number(name: str, value: object, interval: str, hint: str = "") -> float:
    """A number in an interval as ``float``; ``hint`` follows the range in the message.

    >>> number("fraction", 1, "(0, 1]")
    1.0
    """
    opening, low, high, closing = re.fullmatch(r"([\[(])(\S+), (\S+)([\])])", interval).groups()  # type: ignore[union-attr]
    least, most = float(low), float(high)
    if type(value) is not bool and isinstance(value, Real):
        # compared before it is converted: float() of a very long integer overflows
        exact: Any = value
        above = exact >= least if opening == "[" else exact > least
        if above and (exact <= most if closing == "]" else exact < most):
            return float(exact)
    allowed = f"number in {interval}"
    if most == math.inf:
        allowed = f"number >= {low}" if opening == "[" else f"number above {low}" if least else "positive number"
    elif opening + closing == "[]":
        allowed = f"{'positive ' if least > 0 else ''}number from {low} to {high}"
    raise InputError(f"{name} must be a {allowed}{hint}; got {value!r}")


def choice(name: str, value: T, allowed: object) -> T:
    """A value that a sequence or a ``Literal`` type lists, with the same type."""
    options: Sequence[Any] = get_args(allowed) or allowed  # type: ignore[assignment]
    if not any(value is one or (value == one and type(value) is type(one)) for one in options):
        words = [str(one).lower() if isinstance(one, bool) else str(one) for one in options]
        near = did_you_mean(value, words) if isinstance(value, str) else ""
        listed = f"one of {', '.join(words)}" if len(words) > 2 else " or ".join(words)
        raise InputError(f"{name} must be {listed}; got {value!r}{near}")
    return value


def as_size(name: str, value: Size | None) -> tuple[int, int] | None:
    """``(height, width)`` from ``n`` or ``[height, width]``, at least 2 each."""
    if value is None:
        return None
    hint = ", or [height, width] of two such integers"
    size = integers(name, value, 2, hint=hint)
    pair = [size, size] if isinstance(size, int) else size
    if len(pair) != 2:
        raise InputError(f"{name} must be an integer >= 2{hint}; got {value!r}")
    return pair[0], pair[1]


def number_range(name: str, value: Sequence[float] | None, least: float = -np.inf) -> tuple[float, float] | None:
    """``(low, high)`` of an argument such as ``value_range``, with ``least <= low < high``."""
    if value is None:
        return None
    pair = value if isinstance(value, (list, tuple)) and len(value) == 2 else (np.nan, np.nan)
    numbers = all(type(one) is not bool and isinstance(one, (int, float)) and abs(one) < np.inf for one in pair)
    if not numbers or not least <= pair[0] < pair[1]:
        bound = "" if least == -np.inf else f" of at least {least:g}"
        raise InputError(f"{name} must be [low, high], two finite numbers{bound}, the lower one first; got {value!r}")
    return float(pair[0]), float(pair[1])


def in_common(what: str, values: Sequence[tuple[str, H]], remedy: str) -> H:
    """The common value of labelled files; different values are an error that names ``what``, a plural, and a remedy."""
    groups: dict[H, list[str]] = {}
    for given, value in values:
        groups.setdefault(value, []).append(given)
    if len(groups) > 1:
        shown = {"x".join(map(str, key)) if isinstance(key, tuple) else str(key): names for key, names in groups.items()}
        listed = [f"{value}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" for value, names in shown.items()]
        raise InputError(
            f"there are {len(groups)} different {what}, but signals that are fitted together need the same. "
            f"{'; '.join(listed[:8])}{'; ...' if len(listed) > 8 else ''}. {remedy}"
        )
    return next(iter(groups))


def one_length(lengths: Sequence[tuple[str, int]], length: int | None) -> int:
    """Number of leading samples taken of each signal: ``length``, or the common length of labelled signals."""
    name, shortest = min(lengths, key=lambda entry: entry[1])
    if shortest < 2:
        raise InputError(f"{name!r} has {shortest} sample(s); a signal needs at least 2. Remove it from the paths")
    if length is None:
        return in_common("lengths (in samples)", lengths, f"Set length: {shortest} to take the first samples")
    if length > shortest:
        raise InputError(f"length {length} is more than the {shortest} samples of {name!r}; set length: {shortest}")
    return length


def check_numbers(label: str, dtype: np.dtype[Any], hint: str = "", kinds: str = "iuf") -> None:
    """Refuses a dtype that is of none of these kinds of NumPy."""
    if dtype.kind not in kinds:
        supported = "booleans, integers" if "b" in kinds else "integers"
        raise InputError(f"{label} holds {dtype} values; supported are {supported} and floating point{hint}")


def free_memory() -> int:
    """Bytes of memory that are available without swapping."""
    return int(psutil.virtual_memory().available)


def check_area(given: str, height: int, width: int, max_pixels: int | None) -> None:
    """Refuses a file whose header claims more than ``max_pixels``."""
    if max_pixels is not None and height * width > max_pixels:
        raise InputError(
            f"{given!r} claims {height}x{width} (height x width), {height * width} pixels, more than max_pixels, "
            f"{max_pixels}; nothing was decoded. If the file is genuine, set max_pixels: {height * width}"
        )


def check_claim(label: str, shape: Sequence[int], itemsize: int, stored: int) -> None:
    """Refuses an array whose header claims more than its file, of ``stored`` bytes, can hold."""
    decoded = math.prod(shape) * itemsize
    if decoded > max(MAX_UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * stored):
        raise InputError(
            f"{label} claims {_shown(shape, itemsize)}, in a file of {show_bytes(stored)}: it is empty, or damaged. Nothing "
            "was decoded"
        )


def check_memory(label: str, shape: Sequence[int], itemsize: int, remedy: str) -> None:
    """Refuses to decode at once more than the free memory; ``remedy`` is a sentence without its full stop."""
    free = free_memory()
    if math.prod(shape) * itemsize > free:
        raise InputError(
            f"{label} has {_shown(shape, itemsize)}, to decode at once, and {show_bytes(free)} of memory are free. Nothing "
            f"was decoded. {remedy}"
        )


def _shown(shape: Sequence[int], itemsize: int) -> str:
    return f"the shape {'x'.join(map(str, shape))}, {show_bytes(math.prod(shape) * itemsize)}"

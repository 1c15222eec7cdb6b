"""Checks of arguments against a declared range, and of the sizes in headers of files before anything is decoded.

Checks of arguments return the value as plain Python. All raise :class:`~pe_lightning.errors.InputError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeVar, get_args

import psutil

from pe_lightning.errors import InputError, did_you_mean, show_bytes

T = TypeVar("T")
MAX_INTEGER = 2**63 - 1


def is_integer(value: object, minimum: int = 0, maximum: int = MAX_INTEGER) -> bool:
    """Whether a value is an integer, also of NumPy, from ``minimum`` to ``maximum``; booleans are not."""
    return type(value) is not bool and isinstance(value, Integral) and minimum <= int(value) <= maximum


def integer(name: str, value: object, minimum: int = 0, maximum: int = MAX_INTEGER, hint: str = "") -> int:
    """The value as ``int`` if it is one from ``minimum`` to ``maximum``.

    Args:
        name: Name in messages.
        value: Given value.
        minimum: The smallest that is allowed.
        maximum: The largest that is allowed.
        hint: Text after the range in the message, such as ``", or null for all"``.

    >>> integer("rank", 3, 1)
    3
    """
    if not is_integer(value, minimum, maximum):
        allowed = f">= {minimum}" if maximum == MAX_INTEGER else f"from {minimum} to {maximum}"
        raise InputError(f"{name} must be an integer {allowed}{hint}; got {value!r}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def integers(name: str, value: object, minimum: int = 0, hint: str = ", or a list of one per axis") -> int | list[int]:
    """One integer, or a list of them, each as :func:`integer`."""
    if isinstance(value, (list, tuple)) and value and all(is_integer(one, minimum) for one in value):
        return [int(one) for one in value]
    return integer(name, value, minimum, hint=hint)


def number(name: str, value: object, interval: str, hint: str = "") -> float:
    """The value as ``float`` if it is in an interval.

    Args:
        name: Name in messages.
        value: Given value.
        interval: The range in interval notation: ``"[0, 1)"``, ``"(0, inf)"``.
        hint: Text after the range in the message, such as ``", such as 0.25"``.

    >>> number("fraction", 1, "(0, 1]")
    1.0
    """
    opening, low, high, closing = re.fullmatch(r"([\[(])(\S+), (\S+)([\])])", interval).groups()  # type: ignore[union-attr]
    least, most, given = float(low), float(high), None
    if type(value) is not bool and isinstance(value, Real):
        given = _bounded(value, least, most, opening == "[", closing == "]")
    if given is None:
        allowed = f"number in {interval}"
        if most == math.inf:
            allowed = f"number >= {low}" if opening == "[" else f"number above {low}" if least else "positive number"
        elif opening + closing == "[]":
            allowed = f"{'positive ' if least > 0 else ''}number from {low} to {high}"
        raise InputError(f"{name} must be a {allowed}{hint}; got {value!r}")
    return given


def _bounded(value: Any, least: float, most: float, with_least: bool, with_most: bool) -> float | None:
    # compared before it is converted: float() of a very long integer overflows
    above = value >= least if with_least else value > least
    below = value <= most if with_most else value < most
    return float(value) if above and below else None


def choice(name: str, value: T, allowed: object) -> T:
    """The value if it is one of those that are allowed, of the same type.

    Args:
        name: Name in messages.
        value: Given value.
        allowed: A sequence, or a ``Literal`` type.
    """
    options: Sequence[Any] = get_args(allowed) or allowed  # type: ignore[assignment]
    if not any(value is one or (value == one and type(value) is type(one)) for one in options):
        words = [str(one).lower() if isinstance(one, bool) else str(one) for one in options]
        near = did_you_mean(value, words) if isinstance(value, str) else ""
        listed = f"one of {', '.join(words)}" if len(words) > 2 else " or ".join(words)
        raise InputError(f"{name} must be {listed}; got {value!r}{near}")
    return value


def flag(name: str, value: object) -> bool:
    """The value if it is true or false."""
    return bool(choice(name, value, (True, False)))


def check_fill_options(
    model: object,
    encoder: str | None,
    smooth: bool,
    upscale: int | Sequence[int],
    std: bool,
    folds: str,
    block: int | None,
    grow: int | None,
) -> None:
    """Refuses arguments of :func:`pe_lightning.fill` that do not go together."""
    for factor in [upscale] if isinstance(upscale, int) else upscale:
        choice("upscale", factor, (1, 2, 3, 4, 6, 8))
    choice("folds", folds, ("auto", "random", "blocks", "none"))
    for name, value, least in (("block", block, 1), ("grow", grow, 0)):
        if value is not None:
            integer(name, value, least)
    if isinstance(model, str):
        choice("model", model, ("auto", "adaptive", "exact"))
    if encoder is not None and model == "adaptive":
        raise InputError("encoder is for the exact fit: set model to exact, or leave encoder out")
    if std and (smooth or upscale != 1):
        raise InputError("std is of missing samples that are filled: leave out smooth and upscale")
    if smooth and upscale != 1:
        raise InputError("smooth and upscale are two steps: fill with smooth first, then enlarge the result with upscale")


MAX_COMPRESSION_RATIO = 2000
"""Decoded size over file size above which a file is empty or damaged; deflate reaches 1032."""
MAX_UNCHECKED_BYTES = 1 << 28
"""Decoded size up to which the ratio is not checked: constant pictures and arrays compress further."""


def free_memory() -> int:
    """Bytes of memory that are available without swapping."""
    return int(psutil.virtual_memory().available)


def check_claim(label: str, shape: Sequence[int], itemsize: int, stored: int) -> None:
    """Refuses an array whose header claims more than its file can hold.

    Args:
        label: What messages call the array.
        shape: Its shape.
        itemsize: Bytes of one number.
        stored: Bytes of the file.
    """
    decoded = math.prod(shape) * itemsize
    if decoded > max(MAX_UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * stored):
        raise InputError(
            f"{label} claims {_shown(shape, itemsize)}, in a file of {show_bytes(stored)}: it is empty, or damaged. Nothing "
            "was decoded"
        )


def check_memory(label: str, shape: Sequence[int], itemsize: int, remedy: str) -> None:
    """Refuses to decode at once what does not fit in the free memory.

    Args:
        label: What messages call it.
        shape: Shape of what is decoded at once.
        itemsize: Bytes of one number.
        remedy: What the user can do, a sentence without its full stop.
    """
    free = free_memory()
    if math.prod(shape) * itemsize > free:
        raise InputError(
            f"{label} has {_shown(shape, itemsize)}, to decode at once, and {show_bytes(free)} of memory are free. Nothing "
            f"was decoded. {remedy}"
        )


def _shown(shape: Sequence[int], itemsize: int) -> str:
    return f"the shape {'x'.join(map(str, shape))}, {show_bytes(math.prod(shape) * itemsize)}"


def check_dataset(dataset: Any, path: Path, given: str) -> None:
    """Refuses an HDF5 dataset that is stored in other files, claims too much, or has chunks larger than the free memory.

    Args:
        dataset: An ``h5py.Dataset``.
        path: The file it was opened from.
        given: What messages call the file.
    """
    label = f"{dataset.name!r} of {given!r}"
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{label} is stored in other files, which are not read")
    check_claim(label, dataset.shape, dataset.dtype.itemsize, path.stat().st_size)
    if dataset.chunks is not None:
        check_memory(f"a chunk of {label}", dataset.chunks, dataset.dtype.itemsize, "Save it in smaller chunks")

"""Checks of the headers of files before anything is decoded: size against the file and the free memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import psutil

from pe_lightning.errors import InputError, show_bytes

__all__ = ["check_claim", "check_memory", "free_memory"]

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

"""Fills that would not fit in the free memory are refused before they begin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pe_lightning.errors import InputError, show_bytes
from pe_lightning.signals.validation import free_memory

ADAPTIVE_SAMPLE_BYTES = 600
"""Memory of the adaptive fit for each known sample."""
BYTES_PER_VALUE, BYTES_PER_CELL = 28, 220
"""Memory of an enlargement for each value of the result and of the source, of all copies that are held at once."""


def check_fit_memory(known: int) -> None:
    """Refuses more known samples than the adaptive fit holds in the free memory."""
    needed, free = known * ADAPTIVE_SAMPLE_BYTES, free_memory()
    if needed > free:
        raise InputError(
            f"the adaptive fit of {known:,} known samples takes about {show_bytes(needed)}, and {show_bytes(free)} are "
            "free: fill a part of the file, such as a crop or the frames around the lost ones"
        )


def check_enlarging_memory(name: str, shape: Sequence[int], factors: Sequence[int]) -> None:
    """Refuses an enlargement of values ``(n_1, ..., n_D, C)`` that would not fit in the free memory."""
    sizes = [n * f for n, f in zip(shape, factors, strict=False)]
    needed, free = math.prod(sizes) * shape[-1] * BYTES_PER_VALUE + math.prod(shape) * BYTES_PER_CELL, free_memory()
    if needed > free:
        raise InputError(
            f"{name!r} enlarged to {'x'.join(map(str, sizes))} takes about {show_bytes(needed)} of memory, and "
            f"{show_bytes(free)} are free: enlarge by less, or crops of it one after another"
        )

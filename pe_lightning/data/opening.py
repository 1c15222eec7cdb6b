"""From a DataModule's source to signals that can be read: from the cache if they were decoded before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import psutil
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning import __version__
from pe_lightning.data.cache import CacheError, SignalCache
from pe_lightning.data.signals import RawSignals
from pe_lightning.errors import InputError

__all__ = ["check_storage", "fits_in_memory", "open_signals"]

MEMORY_SHARE = 0.25
"""Share of the free memory that signals may take; training needs more than their values."""


def check_storage(in_memory: object, cache: object) -> None:
    """Raises :class:`InputError` unless the settings are among those allowed."""
    if in_memory != "auto" and not isinstance(in_memory, bool):
        raise InputError(f"in_memory must be auto, true or false; got {in_memory!r}")
    if cache not in ("auto", "off"):
        raise InputError(f"cache must be auto or off; got {cache!r}")


def fits_in_memory(raw: RawSignals) -> bool:
    """Whether the signals, as float32, take at most a quarter of the memory that is free."""
    free: int = psutil.virtual_memory().available
    return raw.nbytes <= MEMORY_SHARE * free


def open_signals(
    read: Callable[[], RawSignals],
    files: Sequence[Path],
    parameters: dict[str, Any],
    cache: Literal["auto", "off"],
    cache_dir: str | None,
) -> RawSignals:
    """The signals that ``read`` describes, from the cache if their files and parameters have not changed.

    Args:
        read: Describes the signals.
        files: The files that are decoded; without any there is nothing to cache.
        parameters: What decoding depends on, as plain values.
        cache: Whether there is a cache.
        cache_dir: Where; ``None`` is the default place, whose faults are a notice and not an error.

    Raises:
        InputError: If the source cannot be read, or the given cache cannot be used.
    """
    if cache == "off" or not files:
        return read()
    store = SignalCache(cache_dir)
    key = store.key({**parameters, "pe_lightning": __version__}, files)
    try:
        found = store.find(key)
        return found if found is not None else store.store(key, read)
    except CacheError as error:
        if cache_dir is not None:
            raise
        rank_zero_info(f"The decoded signals are not kept for the next run: {error}")
        return read()

"""Grouped options of a DataModule: what one training step sees, and where the values are held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import psutil

from pe_lightning.data.signals import RawSignals
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["BatchKind", "Batching", "Storage", "options_of"]

BatchKind: TypeAlias = Literal["full", "points", "blocks"]
Options = TypeVar("Options", "Batching", "Storage")

POINTS = 65536
"""Points per signal in a batch of ``points`` whose size is not given."""
BLOCK = {1: 65536, 2: 256, 3: 64}
"""Trained samples per axis of a block whose size is not given, by the number of axes."""
STEPS_PER_EPOCH = 100
"""Optimiser steps that make one epoch where each sees all samples."""
MEMORY_SHARE = 0.25
"""Share of the free memory that values may take; training needs more than the values."""


@dataclass(frozen=True)
class Batching:
    """What one training step sees.

    Args:
        kind: ``full`` (all trained samples), ``points`` (random ones) or ``blocks`` (blocks of the trained grid).
        size: For ``points``, how many per signal, of all processes together; for ``blocks``, the trained samples of a
            block per axis, one number or one per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100 of ``full`` batches, else one pass over the
            trained samples.

    Raises:
        InputError: If the options contradict each other.
    """

    kind: BatchKind = "full"
    size: int | list[int] | None = None
    shuffle: bool = True
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(BatchKind):
            raise InputError(f"batching.kind must be one of {', '.join(get_args(BatchKind))}; got {self.kind!r}")
        if self.steps_per_epoch is not None and not _is_count(self.steps_per_epoch):
            raise InputError(f"batching.steps_per_epoch must be an integer >= 1, got {self.steps_per_epoch!r}")
        if self.size is None:
            return
        if self.kind == "full":
            raise InputError("a full batch has no size; set batching.kind to points or blocks, or leave batching.size out")
        sizes = self.size if isinstance(self.size, (list, tuple)) else [self.size]
        if not sizes or not all(_is_count(size) for size in sizes) or (self.kind == "points" and self.size is sizes):
            allowed = "an integer >= 1" if self.kind == "points" else "an integer >= 1, or one per axis"
            raise InputError(f"batching.size of {self.kind} must be {allowed}; got {self.size!r}")

    @property
    def num_points(self) -> int:
        """Points per signal in a batch of ``points``."""
        return self.size if isinstance(self.size, int) else POINTS

    def block(self, num_axes: int) -> tuple[int, ...]:
        """Trained samples of a block per axis.

        Raises:
            InputError: If the size is for another number of axes.
        """
        size = self.size or BLOCK.get(num_axes, 16)
        sizes = [size] * num_axes if isinstance(size, int) else size
        if len(sizes) != num_axes:
            given = f"batching.size {list(sizes)} is for {len(sizes)} axes"
            raise InputError(f"{given}, the signals have {num_axes}: give one number or {num_axes}")
        return tuple(sizes)


@dataclass(frozen=True)
class Storage:
    """Where the values of the signals are held, and whether decoded signals are cached.

    Args:
        in_memory: Whether signals are loaded, or stay in their file and are read as they are needed; ``auto`` loads what
            fits in a quarter of the free memory.
        cache: ``auto`` keeps decoded signals for the next run, ``off`` does not.
        cache_dir: The folder of the cache; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.

    Raises:
        InputError: If an option has another value.
    """

    in_memory: bool | Literal["auto"] = "auto"
    cache: Literal["auto", "off"] = "auto"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        if self.in_memory != "auto" and not isinstance(self.in_memory, bool):
            raise InputError(f"in_memory must be auto, true or false; got {self.in_memory!r}")
        if self.cache not in ("auto", "off"):
            raise InputError(f"cache must be auto or off; got {self.cache!r}")

    def loads(self, raw: RawSignals) -> bool:
        """Whether these signals are loaded into memory."""
        if isinstance(self.in_memory, bool):
            return self.in_memory
        free: int = psutil.virtual_memory().available
        return raw.nbytes <= MEMORY_SHARE * free


def options_of(cls: type[Options], given: Options | Mapping[str, Any]) -> Options:
    """The options, which may be given as a mapping of their arguments.

    Raises:
        InputError: If there is no argument of that name, or a value is refused.
    """
    if isinstance(given, cls):
        return given
    name = cls.__name__.lower()
    if not isinstance(given, Mapping):
        raise InputError(f"{name} is a {cls.__name__}, or a mapping of its arguments; got {given!r}")
    known = list(cls.__dataclass_fields__)
    for key in given:
        if key not in known:
            raise InputError(f"{name} has no option {key!r}{did_you_mean(key, known) or '.'} It takes: {', '.join(known)}")
    return cls(**given)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

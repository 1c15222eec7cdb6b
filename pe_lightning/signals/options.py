"""Grouped options of a DataModule: batches and storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.validation import choice, free_memory, integer, integers

BatchKind: TypeAlias = Literal["full", "points", "blocks"]
ValidationShare: TypeAlias = float | Literal["auto"]
"""Share of the trained samples that is held out for the ``val/`` scores."""

DEFAULT_POINTS = 65536
"""Default number of points per signal in a batch of ``points``."""
DEFAULT_BLOCK_SAMPLES = {1: 65536, 2: 256, 3: 64}
"""Default number of trained samples per axis of a block, by number of axes."""
DEFAULT_STEPS_PER_EPOCH = 100
"""Default number of optimiser steps per epoch of full batches."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of the free memory for values; training needs memory besides."""


@dataclass(frozen=True)
class Batching:
    """Batches of training.

    Args:
        kind: ``full`` (all trained samples), ``points`` (random ones) or ``blocks`` (blocks of the trained grid).
        size: For ``points``, the number of points per signal, over all processes; for ``blocks``, the number of trained
            samples per axis, one number or one per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps per epoch; by default 100 for ``full`` batches, otherwise one pass over the trained
            samples.
    """

    kind: BatchKind = "full"
    size: int | list[int] | None = None
    shuffle: bool = True
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        choice("batching.kind", self.kind, BatchKind)
        if self.steps_per_epoch is not None:
            integer("batching.steps_per_epoch", self.steps_per_epoch, 1)
        if self.size is not None and self.kind == "full":
            raise InputError(
                f"batching.size is for batches of points or blocks; leave it out for full ones; got {self.size!r}"
            )
        if self.size is not None:
            (integers if self.kind == "blocks" else integer)("batching.size", self.size, 1)

    @property
    def num_points(self) -> int:
        """Number of points per signal in a batch of ``points``."""
        return self.size if isinstance(self.size, int) else DEFAULT_POINTS

    def block(self, num_axes: int) -> tuple[int, ...]:
        """Number of trained samples of a block per axis."""
        size = self.size or DEFAULT_BLOCK_SAMPLES.get(num_axes, 16)
        sizes = (size,) * num_axes if isinstance(size, int) else tuple(size)
        if len(sizes) != num_axes:
            raise InputError(f"batching.size {size} is for {len(sizes)} axes, the signals have {num_axes}; give one number")
        return sizes


@dataclass(frozen=True)
class Storage:
    """Storage of the values, and the cache of decoded signals.

    Args:
        in_memory: ``true`` loads the signals, ``false`` reads blocks of their file when they are needed, ``auto`` loads them
            if they fit in a quarter of the free memory.
        cache: ``auto`` stores decoded signals for the next run, ``off`` does not.
        cache_dir: Folder of the cache; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.
    """

    in_memory: bool | Literal["auto"] = "auto"
    cache: Literal["auto", "off"] = "auto"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        choice("in_memory", self.in_memory, ("auto", True, False))
        choice("cache", self.cache, ("auto", "off"))

    def loads(self, raw: RawSignals) -> bool:
        """Whether to load these signals into memory."""
        if isinstance(self.in_memory, bool):
            return self.in_memory
        return raw.nbytes <= MAX_MEMORY_SHARE * free_memory()

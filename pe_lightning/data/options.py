"""Grouped options of a DataModule: what one training step sees, and where the values are held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pe_lightning.checks import choice, integer, integers
from pe_lightning.data.signals import RawSignals
from pe_lightning.errors import InputError
from pe_lightning.limits import free_memory

__all__ = ["Batching", "Storage"]

BatchKind: TypeAlias = Literal["full", "points", "blocks"]

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
        """Points per signal in a batch of ``points``."""
        return self.size if isinstance(self.size, int) else POINTS

    def block(self, num_axes: int) -> tuple[int, ...]:
        """Trained samples of a block per axis; refused if the size is for another number of axes."""
        size = self.size or BLOCK.get(num_axes, 16)
        sizes = (size,) * num_axes if isinstance(size, int) else tuple(size)
        if len(sizes) != num_axes:
            raise InputError(f"batching.size {size} is for {len(sizes)} axes, the signals have {num_axes}; give one number")
        return sizes


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
        choice("in_memory", self.in_memory, ("auto", True, False))
        choice("cache", self.cache, ("auto", "off"))

    def loads(self, raw: RawSignals) -> bool:
        """Whether these signals are loaded into memory."""
        if isinstance(self.in_memory, bool):
            return self.in_memory
        return raw.nbytes <= MEMORY_SHARE * free_memory()

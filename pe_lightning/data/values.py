"""Values of signals in [0, 1], read a box at a time: from memory, or from a file larger than memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.blocks import Block, tiles
from pe_lightning.data.signals import ArrayLike, RawSignals
from pe_lightning.errors import InputError

__all__ = ["FileValues", "boxes", "load", "unit_slabs"]

SLAB_BYTES = 1 << 26
"""How much is read at once when everything is read."""


class FileValues:
    """Signals that stay in their file and are read by boxes.

    Args:
        raw: The signals; they must have an ``array``.
    """

    def __init__(self, raw: RawSignals) -> None:
        if raw.array is None:
            raise InputError("these signals have to be decoded first; leave the cache on (cache: auto)")
        self.raw = raw
        self.shape = raw.shape
        self._array: ArrayLike | None = None

    def __getstate__(self) -> dict[str, object]:
        """The open file stays behind."""
        return {**self.__dict__, "_array": None}

    @property
    def _opened(self) -> ArrayLike:
        if self._array is None:
            assert self.raw.array is not None
            self._array = self.raw.array()
        return self._array

    def read(self, box: Block, stride: Sequence[int] | None = None) -> Tensor:
        """``(S, n_1, ..., n_D, C)`` float32 in [0, 1] of a box of the grid, or of every ``stride``-th sample of it per axis.

        Raises:
            InputError: If a value is NaN or infinite.
        """
        index = (slice(None), *box, slice(None))
        part = self._opened[index]
        if stride is not None:  # after reading: files that are chunked are slow to pick single samples
            every = (slice(None), *(slice(None, None, step) for step in stride))
            part = part[every]
        scaling = self.raw.scaling
        if self.raw.unit or (part.dtype == np.float32 and (scaling.low, scaling.high) == ((0.0,), (1.0,))):
            values = np.asarray(part, dtype=np.float32)
        elif len(scaling.low) == 1:
            values = scaling.to_unit(part, 0)
        else:
            values = np.stack([scaling.to_unit(signal, place) for place, signal in enumerate(part)])
        # the sum costs a quarter of looking at each value, and is not finite if one of them is not
        if part.dtype.kind == "f" and not np.isfinite(values.sum()) and not np.isfinite(values).all():
            where = [axis.start for axis in box]
            raise InputError(f"there are values that are not finite in the part that starts at sample {where}")
        if not values.flags.writeable:  # memory-mapped: a tensor may be written to
            values = values.copy()
        return torch.from_numpy(np.ascontiguousarray(values))

    @property
    def chunks(self) -> tuple[int, ...]:
        """Samples per axis of the pieces in which the file is stored, ``(D,)``; those of one row where it has none."""
        stored = getattr(self._opened, "chunks", None)
        grid = self.raw.grid
        return tuple(stored[1:-1]) if stored else (1, *grid[1:])


def load(raw: RawSignals) -> Tensor:
    """All values of signals, ``(S, N_1, ..., N_D, C)`` float32 in [0, 1] on the CPU.

    Raises:
        InputError: If they cannot be decoded, or decoding gives another number of samples than was announced.
    """
    whole = raw.array() if raw.array is not None and raw.unit else None
    if isinstance(whole, np.ndarray) and whole.dtype == np.float32 and not isinstance(whole, np.memmap):
        return torch.from_numpy(whole)  # in memory already
    values = torch.empty(raw.shape, dtype=torch.float32)
    flat = values.view(len(raw.names) * raw.grid[0], *raw.shape[2:]).numpy()
    done = 0
    for slab in unit_slabs(raw):
        flat[done : done + len(slab)] = slab
        done += len(slab)
    return values


def unit_slabs(raw: RawSignals) -> Iterator[npt.NDArray[np.float32]]:
    """Decodes all values of signals from the start: ``(n, N_2, ..., N_D, C)`` float32 in [0, 1] that follow one another.

    Raises:
        InputError: If they cannot be decoded, or decoding gives another number of samples than was announced.
    """
    done, rows, signals = 0, raw.grid[0], len(raw.names)
    for slab in raw.blocks():
        signal = done // rows
        done += len(slab)
        if done > signals * rows or (done - 1) // rows != signal:
            raise InputError(f"{raw.names[min(signal, signals - 1)]}: more than the {rows} samples that it announced")
        yield np.asarray(slab, dtype=np.float32) if raw.unit else raw.scaling.to_unit(slab, signal)
    if done != signals * rows:
        raise InputError(f"{raw.names[done // rows]}: only {done % rows} of the {rows} samples that it announced")


def boxes(grid: Sequence[int], chunks: Sequence[int], bytes_per_sample: int, limit: int = SLAB_BYTES) -> list[Block]:
    """Cuts a grid into boxes of at most ``limit`` bytes that follow the chunks of its file, in row-major order.

    A box is a whole number of chunks thick along each axis and grows along the last axis first; a single chunk is never
    cut, however large.

    >>> boxes((4, 6), (1, 6), 4, 50)
    [(slice(0, 2, None), slice(0, 6, None)), (slice(2, 4, None), slice(0, 6, None))]
    """
    sizes = [min(chunk, n) for chunk, n in zip(chunks, grid, strict=True)]
    for axis in reversed(range(len(grid))):
        others = math.prod(sizes[:axis]) * math.prod(sizes[axis + 1 :]) * bytes_per_sample
        fitting = max(limit // (others * sizes[axis]), 1)
        sizes[axis] = min(sizes[axis] * fitting, grid[axis])
    return list(tiles(grid, sizes))

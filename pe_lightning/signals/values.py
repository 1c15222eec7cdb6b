"""Values of signals in [0, 1], in memory or read from a file block by block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import Block, grid_blocks
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, ArrayLike, RawSignals
from pe_lightning.signals.validation import check_memory

BLOCK_BYTES = 1 << 24
"""Float32 bytes per block when all values are read. Larger blocks need more memory and are not faster."""

MAX_LISTED = 8
"""Most signals that a notice lists."""


class FileValues:
    """Signals that are read from their file block by block; they must have an ``array``."""

    def __init__(self, raw: RawSignals) -> None:
        if raw.array is None:
            raise InputError("these signals can only be read from the cache; leave it on (cache: auto)")
        self.raw = raw
        self.shape = raw.shape
        self._array: ArrayLike | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_array": None}

    @property
    def _opened(self) -> ArrayLike:
        if self._array is None:
            assert self.raw.array is not None
            self._array = self.raw.array()
        return self._array

    def read(self, block: Block, stride: Sequence[int] | None = None) -> Tensor:
        """A block of the grid, or every ``stride``-th sample of it per axis: ``(S, n_1, ..., n_D, C)`` float32 in [0, 1]."""
        index, scaling = (slice(None), *block, slice(None)), self.raw.scaling
        part = self._opened[index]
        if stride is not None:  # after reading: strided reads of chunked files are slow
            every = (slice(None), *(slice(None, None, step) for step in stride))
            part = part[every]
        if self.raw.unit or (part.dtype == np.float32 and (scaling.low, scaling.high) == ((0.0,), (1.0,))):
            values = np.asarray(part, dtype=np.float32)
        elif len(scaling.low) == 1:
            values = scaling.to_unit(part, 0)
        else:
            values = np.stack([scaling.to_unit(signal, place) for place, signal in enumerate(part)])
        # the sum is cheaper than a test of each value, and not finite if one value is not
        if part.dtype.kind == "f" and not np.isfinite(values.sum()) and not np.isfinite(values).all():
            where = [axis.start for axis in block]
            raise InputError(
                f"the block that starts at sample {where} holds missing samples (NaN or infinite), which signals that are "
                "read from their file cannot have: set --data.storage.in_memory true, or fit a part of the signals"
            )
        # a copy of a memory-mapped file, since a tensor may be written to
        return torch.from_numpy(np.require(values, requirements=["C", "W"]))

    def blocks(self, limit: int = BLOCK_BYTES) -> list[Block]:
        """Blocks of at most ``limit`` bytes that cover the grid and align with the chunks of the file."""
        signals, *grid, channels = self.shape
        return file_blocks(grid, self.chunks, 4 * signals * channels, limit)

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk size of the file in samples per axis, ``(D,)``; one row if it has no chunks."""
        stored = getattr(self._opened, "chunks", None)
        return tuple(stored[1:-1]) if stored else (1, *self.raw.grid[1:])


def load(raw: RawSignals) -> Tensor:
    """All values, ``(S, N_1, ..., N_D, C)`` float32 in [0, 1] on the CPU; float32 arrays in memory are not copied."""
    opened = raw.array() if raw.array is not None and raw.unit else None
    if isinstance(opened, np.ndarray) and opened.dtype == np.float32 and not isinstance(opened, np.memmap):
        return torch.from_numpy(opened)
    remedy = "Set --data.storage.in_memory false to read blocks, or make the signals smaller"
    remedy += " (resize, center_crop, frames, length)"
    check_memory("the set of signals", raw.shape, np.dtype(np.float32).itemsize, remedy)
    values = np.empty(raw.shape, dtype=np.float32)
    rows, first = values.reshape(-1, *raw.shape[2:]), 0
    for block in unit_blocks(raw):
        rows[first : first + len(block)] = block
        first += len(block)
    return torch.from_numpy(values)


def known_samples(values: Tensor) -> Tensor | None:
    """Samples whose channels are all finite: ``(S, N_1, ..., N_D, C)`` -> ``(S, N_1, ..., N_D)``; ``None`` if all are."""
    if bool(values.sum().isfinite()):  # cheaper than a test of each value
        return None
    known = values.isfinite().all(-1)
    return None if bool(known.all()) else known


def check_known(known: Tensor, names: Sequence[str]) -> None:
    """Prints how many samples are missing.

    Args:
        known: Samples that are not missing, ``(S, N_1, ..., N_D)`` booleans.
        names: Names of the signals.
    """
    missing, size = (~known).flatten(1).sum(1).tolist(), known[0].numel()
    some = [(name, count) for name, count in zip(names, missing, strict=True) if count]
    if empty := [name for name, count in some if count == size]:
        raise InputError(f"all {size} samples are missing (NaN, infinite or marked) of: {', '.join(empty)}; leave it out")
    listed = ", ".join(f"{count} of {name}" for name, count in some[:MAX_LISTED]) + (
        ", ..." if len(some) > MAX_LISTED else ""
    )
    rank_zero_info(
        f"Missing samples are neither trained on nor scored: {sum(missing)} of {known.numel()} "
        f"({100 * sum(missing) / known.numel():.3g} %){f': {listed}' if len(names) > 1 else ''}."
    )


def unit_blocks(raw: RawSignals) -> Iterator[npt.NDArray[np.float32]]:
    """All values in order, in blocks ``(n, N_2, ..., N_D, C)`` float32 in [0, 1]."""
    for signal, _, block in decoded_blocks(raw):
        yield np.asarray(block, dtype=np.float32) if raw.unit else raw.scaling.to_unit(block, signal)


def decoded_blocks(raw: RawSignals) -> Iterator[tuple[int, int, AnyArray]]:
    """Decodes all values in order. Yields signal, first row and stored values ``(n, N_2, ..., N_D, C)``."""
    signals, rows, *rest = raw.shape
    found = 0
    for block in raw.blocks():
        signal, row = divmod(found, rows)
        if signal >= signals or block.shape[1:] != tuple(rest) or row + len(block) > rows or block.dtype != raw.stored:
            raise _changed(raw, found, f"{block.dtype} of shape {block.shape}")
        yield signal, row, block
        found += len(block)
    if found < signals * rows:
        raise _changed(raw, found, "no more values")


def _changed(raw: RawSignals, found: int, read: str) -> InputError:
    signal, row = divmod(found, raw.grid[0])
    where = f"at sample {row} of {raw.names[signal]!r}" if signal < len(raw.names) else f"after {raw.names[-1]!r}"
    return InputError(
        f"expected {raw.stored} signals of shape {raw.shape}, but read {read} {where}. A file is damaged, or was changed "
        "while it was read; check it and run again"
    )


def file_blocks(grid: Sequence[int], chunks: Sequence[int], bytes_per_sample: int, limit: int = BLOCK_BYTES) -> list[Block]:
    """Divides a grid into blocks of at most ``limit`` bytes that align with the chunks of its file, in row-major order.

    Each side of a block is a whole number of chunks. Blocks are extended along the last axis first. A chunk is never
    divided, even if it is larger than ``limit``.

    >>> file_blocks((4, 6), (1, 6), 4, 50)
    [(slice(0, 2, None), slice(0, 6, None)), (slice(2, 4, None), slice(0, 6, None))]
    """
    sizes = [min(chunk, n) for chunk, n in zip(chunks, grid, strict=True)]
    for axis in reversed(range(len(grid))):
        fitting = max(limit // (math.prod(sizes) * bytes_per_sample), 1)
        sizes[axis] = min(sizes[axis] * fitting, grid[axis])
    return list(grid_blocks(grid, sizes))

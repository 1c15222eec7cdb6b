"""Grids: blocks of their samples, coordinates in [0, 1) (sample i of N lies at i/N), and values read block by block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import BLOCK_BYTES, RawSignals
from pe_lightning.signals.validation import check_memory

Block: TypeAlias = tuple[slice, ...]
"""One slice of step 1 per axis."""
ROW_BLOCK_VALUES = 1 << 20
"""Approximate number of values in a block of rows."""
MAX_LISTED = 8
"""Most signals that a notice lists."""


def whole_grid(grid: Sequence[int]) -> Block:
    """The block that covers a grid of ``(N_1, ..., N_D)`` samples."""
    return tuple(slice(0, n) for n in grid)


def shape_of(block: Block) -> tuple[int, ...]:
    """Number of samples of a block per axis, ``(n_1, ..., n_D)``."""
    return tuple(along.stop - along.start for along in block)


def grid_blocks(grid: Sequence[int], size: Sequence[int]) -> Iterator[Block]:
    """Divides a grid into disjoint blocks of at most ``size`` samples per axis, in row-major order.

    >>> [[(along.start, along.stop) for along in block] for block in grid_blocks((3, 2), (2, 2))]
    [[(0, 2), (0, 2)], [(2, 3), (0, 2)]]
    """
    cuts = [[slice(start, min(start + n, end)) for start in range(0, end, n)] for end, n in zip(grid, size, strict=True)]
    yield from itertools.product(*cuts)


def row_blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Divides the first axis of an array of this shape into blocks of about :data:`ROW_BLOCK_VALUES`, one row at least."""
    rows = max(1, ROW_BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for (along,) in grid_blocks(shape[:1], (rows,)):
        yield along


def grid_axes(shape: Sequence[int], dtype: torch.dtype = torch.float32, cells: Sequence[float] = ()) -> tuple[Tensor, ...]:
    """Coordinate vectors of a grid, axis a of shape ``(N_a,)``: ``i/N`` for ``i = 0..N-1``, rounded once from float64.

    Args:
        shape: Number of samples per axis, ``(N_1, ..., N_D)``.
        dtype: Dtype of the result.
        cells: Lengths of the fitted cells, where samples are means over cells. The first fitted cell has its centre at 0 and
            begins half a cell before it; the cells of this grid divide the same extent.

    >>> grid_axes((2, 4))
    (tensor([0.0000, 0.5000]), tensor([0.0000, 0.2500, 0.5000, 0.7500]))
    >>> grid_axes((4,), cells=[0.5])
    (tensor([-0.1250,  0.1250,  0.3750,  0.6250]),)
    """
    starts = [0.5 / n - cell / 2 for n, cell in zip(shape, cells, strict=True)] if cells else [0.0] * len(shape)
    axes = zip(shape, starts, strict=True)
    return tuple((torch.arange(n, dtype=torch.float64) / n + start).to(dtype) for n, start in axes)


def point_coordinates(axes: Sequence[Tensor], index: Tensor) -> Tensor:
    """Coordinates ``(*batch, D)`` of the samples of a grid at the row-major ``index``, ``(*batch,)``."""
    grid = tuple(len(axis) for axis in axes)
    if index.device.type == "cpu":  # NumPy is several times faster
        along = tuple(torch.as_tensor(one) for one in np.unravel_index(index.numpy(), grid))
    else:
        along = torch.unravel_index(index, grid)
    return torch.stack([axis[one.to(axis.device)] for axis, one in zip(axes, along, strict=True)], dim=-1)


def load(raw: RawSignals) -> Tensor:
    """All values, ``(S, N_1, ..., N_D, C)`` float32 in [0, 1] on the CPU; float32 arrays in memory are not copied."""
    if raw.is_loaded:
        return torch.from_numpy(raw.values)
    smaller = "make the signals smaller (resize, center_crop, frames, length)"
    check_memory("the set of signals", raw.shape, 4, f"Set --data.storage.in_memory false to read blocks, or {smaller}")
    values = np.empty(raw.shape, dtype=np.float32)
    rows, start = values.reshape(-1, *raw.shape[2:]), 0
    for block in raw.unit_blocks():
        rows[start : start + len(block)] = block
        start += len(block)
    return torch.from_numpy(values)


def known_samples(values: Tensor) -> Tensor | None:
    """Mask of samples with finite channels, ``(S, N_1, ..., N_D, C)`` -> ``(S, N_1, ..., N_D)``; ``None`` if all are."""
    if bool(values.sum().isfinite()):  # cheaper than a test of each value
        return None
    known = values.isfinite().all(-1)
    return None if bool(known.all()) else known


def report_missing(known: Tensor, names: Sequence[str]) -> None:
    """Prints how many samples are missing, where the mask ``(S, N_1, ..., N_D)`` is false; all of a signal are an error."""
    missing, size = (~known).flatten(1).sum(1).tolist(), known[0].numel()
    some = [(name, count) for name, count in zip(names, missing, strict=True) if count]
    if empty := [name for name, count in some if count == size]:
        raise InputError(f"all {size} samples are missing (NaN, infinite or marked) of: {', '.join(empty)}; leave it out")
    listed = ", ".join([f"{count} of {name}" for name, count in some[:MAX_LISTED]] + ["..."] * (len(some) > MAX_LISTED))
    rank_zero_info(
        f"Missing samples are neither trained on nor scored: {sum(missing)} of {known.numel()} "
        f"({100 * sum(missing) / known.numel():.3g} %){f': {listed}' if len(names) > 1 else ''}."
    )


def blocks_of(raw: RawSignals, limit: int = BLOCK_BYTES) -> list[Block]:
    """Blocks of at most ``limit`` bytes that cover the grid of signals and align with the chunks of their file."""
    return file_blocks(raw.grid, raw.chunks, 4 * raw.shape[0] * raw.channels, limit)


def file_blocks(grid: Sequence[int], chunks: Sequence[int], bytes_per_sample: int, limit: int = BLOCK_BYTES) -> list[Block]:
    """Divides a grid into blocks of at most ``limit`` bytes, in row-major order.

    Blocks consist of whole chunks of the file, even if one is larger than ``limit``, and grow along the last axis first.

    >>> file_blocks((4, 6), (1, 6), 4, 50)
    [(slice(0, 2, None), slice(0, 6, None)), (slice(2, 4, None), slice(0, 6, None))]
    """
    sizes = [min(chunk, n) for chunk, n in zip(chunks, grid, strict=True)]
    for axis in reversed(range(len(grid))):
        fitting = max(limit // (math.prod(sizes) * bytes_per_sample), 1)
        sizes[axis] = min(sizes[axis] * fitting, grid[axis])
    return list(grid_blocks(grid, sizes))

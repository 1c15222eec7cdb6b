"""Batches of signals that stay in their file: each part of it is read once in a pass, in pieces that follow its chunks.

Random points come from a buffer that is filled with randomly chosen pieces of the file, as many as its memory holds, and
emptied in random order. Which points make a batch does not depend on the number of processes; each reads only its own
pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.loaders import Process, TrainLoader, permutation, tiles
from pe_lightning.data.splits import GridSplit, Protocol, Split
from pe_lightning.data.values import Box, FileValues, boxes
from pe_lightning.errors import InputError

__all__ = ["BlockStream", "EvaluationStream", "PointStream", "read_block", "sample_points", "training_blocks"]

BUFFER_BYTES = 1 << 27
"""Memory of the buffer that random points are drawn from, of all processes together."""
SAMPLED = 16
"""Pieces that are looked at for means and scales."""
SAMPLE_BYTES = 1 << 22
"""Size of these pieces, unless the chunks of the file are larger."""


@dataclass
class _Pieces:
    """Some pieces of the file: which of their samples are trained on, and the values of those that this process read."""

    counts: list[int]
    mine: list[bool]
    index: Tensor  # (P_mine,) row-major positions in the whole grid
    values: Tensor  # (S, P_mine, C)


class PointStream(TrainLoader):
    """Random training samples from a file, each once in a pass.

    Args:
        values: The signals.
        split: Their training samples, the same for all signals.
        size: Points per signal in a batch, of all processes together; the last one of a pass may be smaller.
        steps_per_epoch: Batches in one epoch; by default one pass.
        seed: Of the order.
        process: This process.
        buffer_bytes: Memory of the buffer, of all processes together; two are held, one being filled.
    """

    def __init__(
        self,
        values: FileValues,
        split: Split,
        size: int,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        process: Process | None = None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.values = values
        self.split = split
        self.size = min(size, split.num_train)
        self.seed = seed
        self.process = process or Process()
        signals, *grid, channels = values.shape
        self.axes = grid_axes(grid)
        per_sample = 4 * signals * channels
        self.pieces = boxes(grid, values.chunks, per_sample, buffer_bytes // 16)
        # a point is its value, its position and its place in the order
        share = split.num_train / math.prod(grid)
        self._per_group = max(1, int(buffer_bytes / max(share * (per_sample + 16) * _samples(self.pieces[0]), 1)))
        super().__init__(math.ceil(split.num_train / self.size), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points of all pieces, ``size`` at a time."""
        order = permutation(len(self.pieces), self.seed, number).tolist()
        groups = [order[start : start + self._per_group] for start in range(0, len(order), self._per_group)]
        skip = first * self.size
        rest = _empty(self.values.shape, len(self.axes))
        waiting = 0
        with ThreadPoolExecutor(1) as reader:
            pending = reader.submit(self._read, groups[0])
            for place in range(len(groups)):
                pieces = pending.result()
                if place + 1 < len(groups):
                    pending = reader.submit(self._read, groups[place + 1])
                for total, index, values in self._shuffled(pieces, number, place, waiting):
                    rest = torch.cat([rest[0], index]), torch.cat([rest[1], values], 1)
                    waiting += total
                    if waiting < self.size:
                        continue
                    if skip:
                        skip -= waiting
                    else:
                        yield self._batch(*rest, waiting)
                    rest, waiting = _empty(self.values.shape, len(self.axes)), 0
        if waiting and not skip:
            yield self._batch(*rest, waiting)

    def _batch(self, index: Tensor, values: Tensor, total: int) -> PointBatch:
        coords = point_coordinates(self.axes, index)[None]
        return PointBatch(coords, values, self.axes, index[None], total)

    def _read(self, places: Sequence[int]) -> _Pieces:
        counts, mine, indices, parts = [], [], [], []
        for turn, place in enumerate(places):
            box, own = self.pieces[place], turn % self.process.world_size == self.process.rank
            mine.append(own)
            if isinstance(self.split, GridSplit) and not own:
                counts.append(math.prod(len(p) for p in self.split.positions_in(box)))
                continue
            inside = _trained(self.split, box)
            counts.append(len(inside))
            if own:
                parts.append(self.values.read(box).flatten(1, -2).index_select(1, inside))
                indices.append(_global(inside, box, self.split.grid))
        empty = _empty(self.values.shape, len(self.axes))
        return _Pieces(counts, mine, torch.cat([empty[0], *indices]), torch.cat([empty[1], *parts], 1))

    def _shuffled(self, pieces: _Pieces, number: int, place: int, waiting: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The points of a buffer in random order, cut where batches end: how many there are, and this process's."""
        count = sum(pieces.counts)
        order = permutation(count, self.seed + 1, number * 1_000_003 + place)
        if self.process.world_size > 1:
            # where each point of the buffer lies among those that this process read, -1 for the others
            spans = [torch.full((n,), own) for n, own in zip(pieces.counts, pieces.mine, strict=True)]
            own = torch.cat(spans)
            where = torch.where(own, own.cumsum(0) - 1, -1)
            order = where[order]
        start = 0
        while start < count:
            end = min(count, start + self.size - waiting)
            chosen = order[start:end]
            if self.process.world_size > 1:
                chosen = chosen[chosen >= 0]
            yield end - start, pieces.index[chosen], pieces.values.index_select(1, chosen)
            waiting, start = (waiting + end - start) % self.size, end


class BlockStream(TrainLoader):
    """Blocks of the training grid from a file, each once in a pass.

    Args:
        values: The signals.
        split: Their training grid.
        size: Trained samples of a block per axis.
        steps_per_epoch: Batches in one epoch; by default one pass.
        seed: Of the order; ``None`` is in row-major order.
        process: This process: it reads its rows of each block.
    """

    def __init__(
        self,
        values: FileValues,
        split: GridSplit,
        size: tuple[int, ...],
        steps_per_epoch: int | None = None,
        seed: int | None = 0,
        process: Process | None = None,
    ) -> None:
        self.values = values
        self.split = split
        self.blocks = tiles([len(index) for index in split.index], size)
        self.seed = seed
        self.process = process or Process()
        super().__init__(len(self.blocks), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch]:
        """The blocks, in a new order."""
        order = range(len(self.blocks)) if self.seed is None else permutation(len(self.blocks), self.seed, number).tolist()
        for place in order[first:]:
            block = self.blocks[place]
            rows = self.process.share(block[0].stop - block[0].start)
            mine = (slice(block[0].start + rows.start, block[0].start + rows.stop), *block[1:])
            batch = read_block(self.values, self.split, mine)
            batch.total = _samples(block) if self.process.world_size > 1 else None
            yield batch


def read_block(values: FileValues, split: GridSplit, block: Box) -> GridBatch:
    """A block of the training grid: positions in it, not in the file."""
    index = [positions[part] for positions, part in zip(split.index, block, strict=True)]
    axes = tuple(x[i] for x, i in zip(grid_axes(split.grid), index, strict=True))
    start = tuple(part.start for part in block)
    if any(len(i) == 0 for i in index):
        shape = (values.shape[0], *(len(i) for i in index), values.shape[-1])
        return GridBatch(axes, torch.zeros(shape), start=start)
    box = tuple(slice(int(i[0]), int(i[-1]) + 1) for i in index)
    part = values.read(box)
    for axis, step in enumerate(split.stride):
        part = part.index_select(axis + 1, torch.arange(0, part.shape[axis + 1], step)) if step > 1 else part
    return GridBatch(axes, part.contiguous(), start=start)


def training_blocks(values: FileValues, split: GridSplit, process: Process) -> Iterator[GridBatch]:
    """This process's part of the training grid, for a solver: blocks that follow the file's chunks."""
    chunks = [max(1, chunk // step) for chunk, step in zip(values.chunks, split.stride, strict=True)]
    sizes = [len(index) for index in split.index]
    per_sample = 4 * values.shape[0] * values.shape[-1] * math.prod(split.stride)
    every = boxes(sizes, chunks, per_sample)
    for block in every[process.share(len(every))]:
        yield read_block(values, split, block)


def sample_points(values: FileValues, split: Split, count: int) -> PointBatch:
    """About ``count`` training samples from pieces spread evenly over the file, always the same."""
    signals, *grid, channels = values.shape
    pieces = boxes(grid, values.chunks, 4 * signals * channels, SAMPLE_BYTES)
    axes = grid_axes(grid)
    some = [pieces[place * len(pieces) // SAMPLED] for place in range(SAMPLED)] if len(pieces) > SAMPLED else pieces
    indices, parts = [], []
    for box in some:
        inside = _trained(split, box)
        inside = inside[:: max(1, len(inside) * len(some) // count)]
        indices.append(_global(inside, box, split.grid))
        parts.append(values.read(box).flatten(1, -2).index_select(1, inside))
    index = torch.cat(indices)
    return PointBatch(point_coordinates(axes, index)[None], torch.cat(parts, 1), axes, index[None])


class EvaluationStream:
    """The whole grid from a file, a piece at a time, with the masks of scored and of trained samples.

    Args:
        values: The signals.
        split: Their training samples.
        protocol: Which samples are scored.
        process: This process; each reads its own pieces.
    """

    def __init__(self, values: FileValues, split: Split, protocol: Protocol, process: Process | None = None) -> None:
        self.values = values
        self.split = split
        self.protocol: Protocol = protocol
        signals, *grid, channels = values.shape
        self.axes = grid_axes(grid)
        every = boxes(grid, values.chunks, 4 * signals * channels)
        process = process or Process()
        self.pieces = every[process.share(len(every))]

    def __len__(self) -> int:
        return len(self.pieces)

    def __iter__(self) -> Iterator[GridBatch]:
        for box in self.pieces:
            yield GridBatch(
                tuple(x[part] for x, part in zip(self.axes, box, strict=True)),
                self.values.read(box),
                self.split.test_mask_of(self.protocol, box),
                self.split.train_mask_of(box),
                tuple(part.start for part in box),
            )


def _samples(box: Box) -> int:
    return math.prod(part.stop - part.start for part in box)


def _empty(shape: Sequence[int], num_axes: int) -> tuple[Tensor, Tensor]:
    return torch.zeros(0, dtype=torch.int64), torch.zeros(shape[0], 0, shape[-1])


def _trained(split: Split, box: Box) -> Tensor:
    """Row-major positions within a box of its trained samples, ``(P,)`` int64, ascending."""
    sizes = [part.stop - part.start for part in box]
    if isinstance(split, GridSplit):
        position = torch.zeros(1, dtype=torch.int64)
        for size, along in zip(sizes, split.positions_in(box), strict=True):
            position = (position[:, None] * size + along).flatten()
        return position
    mask = split.train_mask_of(box)
    if len(mask) > 1:
        raise InputError(
            "signals that stay in their file are trained on the same points; set sampling: {name: random, shared: true}"
        )
    return mask.flatten().nonzero().flatten()


def _global(inside: Tensor, box: Box, grid: Sequence[int]) -> Tensor:
    """Row-major positions in the grid from those in a box."""
    sizes = tuple(part.stop - part.start for part in box)
    position = torch.zeros_like(inside)
    for along, part, n in zip(torch.unravel_index(inside, sizes), box, grid, strict=True):
        position = position * n + along + part.start
    return position

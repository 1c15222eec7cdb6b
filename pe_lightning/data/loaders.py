"""Loaders: all training samples at once, random points, or blocks of the grid; and the whole grid for evaluation.

A loader goes through passes over the training samples, and an epoch is a stretch of them. The order within a pass depends
on the seed and the number of the pass alone. Under several processes every one finds the same batches and takes its own
share: together they see what one process would see, each sample once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from pe_lightning.blocks import Block, grid_blocks, shape_of, whole
from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.splits import Split
from pe_lightning.data.values import FileValues
from pe_lightning.distributed import Process

__all__ = ["BlockLoader", "FilePointLoader", "FullLoader", "GridLoader", "PointLoader", "TrainLoader", "permutation"]

B = TypeVar("B")

BUFFER_BYTES = 1 << 27
"""Memory of the buffer that random points of a file are taken from, of all processes together."""
BLOCKS_PER_BUFFER = 128
"""Blocks of the file in a full buffer, unless its chunks are larger."""
ROUND = 1 << 16
"""Points that are brought into random order at once."""


class TrainLoader(ABC):
    """Passes over the training samples, an epoch at a time; its position is saved with a checkpoint.

    Args:
        batches: Batches in one pass.
        steps_per_epoch: Batches in one epoch; by default one pass.
        process: This process, which takes its share of every batch.
        seed: Of the order.
    """

    def __init__(self, batches: int, steps_per_epoch: int | None, process: Process, seed: int = 0) -> None:
        self.batches = batches
        self.steps_per_epoch = steps_per_epoch or batches
        self.process = process
        self.seed = seed
        self.position = 0

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[GridBatch | PointBatch]:
        """The rest of the current epoch."""
        end = (self.position // self.steps_per_epoch + 1) * self.steps_per_epoch
        while self.position < end:
            number, first = divmod(self.position, self.batches)
            for batch in self.one_pass(number, first):
                self.position += 1
                yield batch
                if self.position == end:
                    break

    @abstractmethod
    def one_pass(self, number: int, first: int) -> Iterator[GridBatch | PointBatch]:
        """The batches of pass ``number``, from batch ``first`` on."""

    def state_dict(self) -> dict[str, Any]:
        """How many batches were handed out. Its presence tells Lightning that a fit can resume within an epoch."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.position = state["position"]


class FullLoader(TrainLoader):
    """All training samples, every step: this process's rows of a sub-grid, or its share of the points."""

    def __init__(self, batch: GridBatch | PointBatch, steps_per_epoch: int, process: Process) -> None:
        super().__init__(1, steps_per_epoch, process)
        self.batch = batch
        if process.world_size > 1 and isinstance(batch, GridBatch):
            self.batch = _own_rows(batch.block, whole([len(x) for x in batch.axes]), process)
        elif process.world_size > 1 and isinstance(batch, PointBatch):
            own, index = process.share(batch.values.shape[1]), batch.index
            index = None if index is None else index[:, own]
            self.batch = PointBatch(batch.coords[:, own], batch.values[:, own], batch.axes, index, batch.values.shape[1])

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch | PointBatch]:
        """The batch; always the same object, so that what depends on it alone need be computed once."""
        yield self.batch


class PointLoader(TrainLoader):
    """Random training samples of signals in memory, each once in a pass.

    Args:
        batch: The training samples, on the device where the batches are wanted.
        size: Points per signal in a batch, of all processes together; the last one of a pass may be smaller.
        steps_per_epoch, seed, process: See :class:`TrainLoader`.
    """

    def __init__(
        self, batch: GridBatch | PointBatch, size: int, steps_per_epoch: int | None, seed: int, process: Process
    ) -> None:
        self.index = None if isinstance(batch, GridBatch) else batch.index  # of a grid: the place among the values
        self.axes = batch.axes
        self.values = batch.values.flatten(1, -2)
        self.count = self.values.shape[1]
        self.size = min(size, self.count)
        super().__init__(math.ceil(self.count / self.size), steps_per_epoch, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points in a new order, ``size`` at a time."""
        assert self.axes is not None
        order = permutation(self.count, self.seed, number).to(self.values.device)
        for chosen in torch.split(order, self.size)[first:]:
            own = chosen[self.process.share(len(chosen))]
            index = own[None] if self.index is None else self.index.index_select(1, own)
            values = self.values.index_select(1, own)
            yield PointBatch(point_coordinates(self.axes, index), values, self.axes, index, len(chosen))


class FilePointLoader(TrainLoader):
    """Random training samples from a file, each once in a pass, with bounded memory.

    The file is read in blocks that follow its chunks, each once in a pass. A buffer holds as many randomly chosen blocks as
    its memory allows, and is emptied in random order. Each process reads only its own blocks.

    Args:
        values: The signals.
        split: Their training samples, the same for all signals.
        size: Points per signal in a batch, of all processes together; the last one of a pass may be smaller.
        steps_per_epoch, seed, process: See :class:`TrainLoader`.
        buffer_bytes: Memory of the buffer, of all processes together; two are held, one being filled.
    """

    def __init__(
        self,
        values: FileValues,
        split: Split,
        size: int,
        steps_per_epoch: int | None,
        seed: int,
        process: Process,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.values = values
        self.split = split
        self.size = min(size, split.num_train)
        signals, *grid, channels = values.shape
        self.axes = grid_axes(grid)
        share = split.num_train / math.prod(grid)
        self.blocks = values.blocks(int(buffer_bytes / BLOCKS_PER_BUFFER / share))
        point = 4 * signals * channels + 8  # its values and its position
        self.blocks_per_buffer = max(1, int(buffer_bytes / max(share * point * math.prod(shape_of(self.blocks[0])), 1)))
        super().__init__(math.ceil(split.num_train / self.size), steps_per_epoch, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points of all blocks, ``size`` at a time."""
        turn, total = 0, 0
        parts: list[tuple[Tensor, Tensor]] = []
        for order, index, values in self._rounds(number):
            for chosen in order.tensor_split(list(range(self.size - total, len(order), self.size))):
                own = chosen[chosen >= 0]
                parts.append((index.index_select(0, own), values.index_select(1, own)))
                total += len(chosen)
                if total == self.size:
                    if turn >= first:
                        yield self._batch(parts, total)
                    turn, total, parts = turn + 1, 0, []
        if parts:
            yield self._batch(parts, total)

    def _batch(self, parts: Sequence[tuple[Tensor, Tensor]], total: int) -> PointBatch:
        index, values = torch.cat([i for i, _ in parts])[None], torch.cat([v for _, v in parts], 1)
        return PointBatch(point_coordinates(self.axes, index), values, self.axes, index, total)

    def _rounds(self, number: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The points of all blocks in rounds, to each of which every block in the buffer gives the same share of its own.

        The random order of all points of the round, as places among those that this process read and -1 for the others;
        and the row-major positions and values of what it read.
        """
        blocks = permutation(len(self.blocks), self.seed, number).tolist()
        groups = [blocks[start : start + self.blocks_per_buffer] for start in range(0, len(blocks), self.blocks_per_buffer)]
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(self._read, groups[0], number)
            for place in range(len(groups)):
                buffer = following.result()
                if place + 1 < len(groups):
                    following = reader.submit(self._read, groups[place + 1], number)
                rounds = math.ceil(sum(count for count, _, _ in buffer) / ROUND)
                for turn in range(rounds):
                    own, indices, values = [], [], []
                    for count, index, read in buffer:
                        part = slice(count * turn // rounds, count * (turn + 1) // rounds)
                        own.append(torch.full((part.stop - part.start,), len(index) == count))
                        indices.append(index[part])
                        values.append(read[:, part])
                    mine = torch.cat(own)
                    order = permutation(len(mine), self.seed + 2, (number * len(self.blocks) + place) * 1_000_003 + turn)
                    yield torch.where(mine, mine.cumsum(0) - 1, -1)[order], torch.cat(indices), torch.cat(values, 1)

    def _read(self, places: Sequence[int], number: int) -> list[tuple[int, Tensor, Tensor]]:
        """The trained samples of some blocks: how many, and their positions and values; none of other processes' blocks.

        Each block is brought into an order of its own, which is fast as it fits in the processor's cache.
        """
        buffer = []
        for turn, place in enumerate(places):
            block = self.blocks[place]
            inside, index = self.split.train_positions(block)
            count, signals, channels = len(inside), self.values.shape[0], self.values.shape[-1]
            if turn % self.process.world_size == self.process.rank:
                order = permutation(count, self.seed + 1, number * len(self.blocks) + place)
                values = self.values.read(block).flatten(1, -2).index_select(1, inside.index_select(0, order))
                buffer.append((count, index.index_select(0, order), values))
            else:
                buffer.append((count, index[:0], torch.empty(signals, 0, channels)))
        return buffer


class BlockLoader(TrainLoader):
    """Blocks of the training grid, each once in a pass.

    Args:
        grid: Training samples per axis, ``(n_1, ..., n_D)``.
        size: Samples of a block per axis; those at the end of an axis may be smaller.
        read: Gives a block, from memory or from a file.
        steps_per_epoch, seed, process: See :class:`TrainLoader`.
        shuffle: Whether the order is random, else row-major.
    """

    def __init__(
        self,
        grid: Sequence[int],
        size: Sequence[int],
        read: Callable[[Block], GridBatch],
        steps_per_epoch: int | None,
        seed: int,
        process: Process,
        shuffle: bool = True,
    ) -> None:
        self.blocks = list(grid_blocks(grid, size))
        self.read = read
        self.shuffle = shuffle
        super().__init__(len(self.blocks), steps_per_epoch, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch]:
        """The blocks, in a new order."""
        count = len(self.blocks)
        order = permutation(count, self.seed, number).tolist() if self.shuffle else list(range(count))
        for place in order[first:]:
            yield _own_rows(self.read, self.blocks[place], self.process)


class GridLoader(Generic[B]):
    """Blocks of the whole grid in order, for evaluation and prediction; one block where that fits in memory.

    Args:
        blocks: The blocks that this process takes.
        read: Gives what belongs to a block.
    """

    def __init__(self, blocks: Sequence[Block], read: Callable[[Block], B]) -> None:
        self.blocks = blocks
        self.read = read

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[B]:
        return map(self.read, self.blocks)


def permutation(count: int, seed: int, number: int) -> Tensor:
    """The order of ``count`` things in pass ``number``, ``(count,)`` int64: the same on all processes and devices."""
    # a generator's seed is one number of 64 bits; neighbouring seeds and passes must not meet
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 1) % 2**63
    return torch.randperm(count, generator=torch.Generator().manual_seed(mixed))


def _own_rows(read: Callable[[Block], GridBatch], block: Block, process: Process) -> GridBatch:
    """This process's rows of a block of the training grid."""
    total = math.prod(shape_of(block)) if process.world_size > 1 else None
    return replace(read(process.rows(block)), total=total)

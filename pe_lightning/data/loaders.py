"""Loaders: all training samples at once, random points, or blocks of the grid; and the whole grid for evaluation.

A loader goes through passes over the training samples, and an epoch is a stretch of them. The order within a pass depends
on the seed and the number of the pass alone. Under several processes every one finds the same batches and takes its own
share: together they see what one process would see, each sample once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from pe_lightning.blocks import Block, shape_of, tiles, whole
from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import point_coordinates
from pe_lightning.distributed import Process

__all__ = ["BlockLoader", "FullLoader", "GridLoader", "PointLoader", "TrainLoader", "permutation"]

B = TypeVar("B")


class TrainLoader(ABC):
    """Passes over the training samples, an epoch at a time; its position is saved with a checkpoint.

    Args:
        batches: Batches in one pass.
        steps_per_epoch: Batches in one epoch; by default one pass.
    """

    def __init__(self, batches: int, steps_per_epoch: int | None) -> None:
        self.batches = batches
        self.steps_per_epoch = steps_per_epoch or batches
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
    """All training samples, every step: this process's rows of a sub-grid, or its share of the points.

    Args:
        batch: The training samples.
        steps_per_epoch: Batches in one epoch.
        process: This process.
    """

    def __init__(self, batch: GridBatch | PointBatch, steps_per_epoch: int, process: Process | None = None) -> None:
        super().__init__(1, steps_per_epoch)
        process = process or Process()
        if process.world_size == 1:
            self.batch = batch
        elif isinstance(batch, GridBatch):
            self.batch = _own_rows(batch.block, whole([len(x) for x in batch.axes]), process)
        else:
            count = batch.values.shape[1]
            own = process.share(count)
            index = None if batch.index is None else batch.index[:, own]
            self.batch = replace(batch, coords=batch.coords[:, own], values=batch.values[:, own], index=index, total=count)

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch | PointBatch]:
        """The batch; always the same object, so that what depends on it alone need be computed once."""
        yield self.batch


class PointLoader(TrainLoader):
    """Random training samples of signals in memory, each once in a pass.

    Args:
        batch: The training samples, on the device where the batches are wanted.
        size: Points per signal in a batch, of all processes together; the last one of a pass may be smaller.
        steps_per_epoch: Batches in one epoch; by default one pass.
        seed: Of the order.
        process: This process.
    """

    def __init__(
        self,
        batch: GridBatch | PointBatch,
        size: int,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        process: Process | None = None,
    ) -> None:
        self.index = None if isinstance(batch, GridBatch) else batch.index  # of a grid: the place among the values
        self.axes = batch.axes
        self.values = batch.values.flatten(1, -2)
        self.count = self.values.shape[1]
        self.size = min(size, self.count)
        self.seed = seed
        self.process = process or Process()
        super().__init__(math.ceil(self.count / self.size), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points in a new order, ``size`` at a time."""
        assert self.axes is not None
        order = permutation(self.count, self.seed, number).to(self.values.device)
        for chosen in torch.split(order, self.size)[first:]:
            own = chosen[self.process.share(len(chosen))]
            index = own[None] if self.index is None else self.index.index_select(1, own)
            values = self.values.index_select(1, own)
            yield PointBatch(point_coordinates(self.axes, index), values, self.axes, index, len(chosen))


class BlockLoader(TrainLoader):
    """Blocks of the training grid, each once in a pass.

    Args:
        grid: Training samples per axis, ``(n_1, ..., n_D)``.
        size: Samples of a block per axis; those at the end of an axis may be smaller.
        read: Gives a block, from memory or from a file.
        steps_per_epoch: Batches in one epoch; by default one pass.
        seed: Of the order; ``None`` is in row-major order.
        process: This process: it takes its rows of each block.
    """

    def __init__(
        self,
        grid: Sequence[int],
        size: Sequence[int],
        read: Callable[[Block], GridBatch],
        steps_per_epoch: int | None = None,
        seed: int | None = 0,
        process: Process | None = None,
    ) -> None:
        self.blocks = list(tiles(grid, size))
        self.read = read
        self.seed = seed
        self.process = process or Process()
        super().__init__(len(self.blocks), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch]:
        """The blocks, in a new order."""
        order = range(len(self.blocks)) if self.seed is None else permutation(len(self.blocks), self.seed, number).tolist()
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

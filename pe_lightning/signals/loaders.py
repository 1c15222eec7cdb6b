"""Loaders: all training samples, random points or blocks of the training grid; and the whole grid for evaluation.

A loader makes passes over the training samples; an epoch is a fixed number of steps. The order within a pass depends only on
the seed and the number of the pass. All processes compute the same batches, and each takes a share of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.blocks import Block, blocks_of, grid_blocks, shape_of, whole_grid
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.splits import Split
from pe_lightning.signals.validation import choice, integer, integers

B = TypeVar("B")

BUFFER_BYTES = 1 << 27
"""Bytes of the shuffle buffer for random points of a file, over all processes."""
BLOCKS_PER_BUFFER = 128
"""Number of blocks in a full buffer, unless the chunks of the file are larger."""
SHUFFLED_POINTS = 1 << 16
"""Number of points shuffled at a time."""

BatchKind: TypeAlias = Literal["full", "points", "blocks"]
DEFAULT_POINTS = 65536
"""Default number of points per signal in a batch of ``points``."""
DEFAULT_BLOCK_SAMPLES = {1: 65536, 2: 256, 3: 64}
"""Default number of trained samples per axis of a block, by number of axes."""
MAX_STEPS_PER_EPOCH = 100
"""Largest default number of optimiser steps per epoch of full batches."""


@dataclass(frozen=True)
class Batching:
    """Batches of training.

    Args:
        kind: ``full`` (all trained samples), ``points`` (random ones) or ``blocks`` (blocks of the trained grid).
        size: For ``points``, the number of points per signal, over all processes; for ``blocks``, the number of trained
            samples per axis, one number or one per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps per epoch; by default, for ``full`` batches, a tenth of the fit, but not fewer than
            ``log_every_n_steps`` of the Trainer and not more than 100; for others one pass over the trained samples.
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
        if not self.shuffle and self.kind != "blocks":
            raise InputError(f"batching.shuffle is for batches of blocks; leave it out for {self.kind} ones")
        if self.size is not None:
            (integers if self.kind == "blocks" else integer)("batching.size", self.size, 1)

    def epoch_of(self, max_steps: int, logging_interval: int) -> int | None:
        """Steps per epoch of a fit of so many steps (-1: no limit), of which some are logged; ``None``: one pass."""
        if self.steps_per_epoch is not None or self.kind != "full":
            return self.steps_per_epoch
        tenth = MAX_STEPS_PER_EPOCH if max_steps < 0 else math.ceil(max_steps / 10)
        return min(MAX_STEPS_PER_EPOCH, max(1, logging_interval, tenth))

    @property
    def num_points(self) -> int:
        return self.size if isinstance(self.size, int) else DEFAULT_POINTS

    def block(self, num_axes: int) -> tuple[int, ...]:
        size = self.size or DEFAULT_BLOCK_SAMPLES.get(num_axes, 16)
        sizes = (size,) * num_axes if isinstance(size, int) else tuple(size)
        if len(sizes) != num_axes:
            raise InputError(f"batching.size {size} is for {len(sizes)} axes, the signals have {num_axes}; give one number")
        return sizes


class TrainLoader(ABC):
    """Base of training loaders; its position is saved in checkpoints.

    Args:
        batches: Batches in a pass.
        steps_per_epoch: Batches in an epoch; by default one pass.
        process: This process, which takes its share of every batch.
        seed: Seed of the order.
    """

    def __init__(self, batches: int, steps_per_epoch: int | None, process: Process, seed: int = 0) -> None:
        self.batches = batches
        self.steps_per_epoch = steps_per_epoch or batches
        self.process = process
        self.seed = seed
        self.position = 0
        self.takes: Callable[[GridBatch | PointBatch], bool] | None = None
        """Is offered every batch but the last of an epoch; a batch that it takes is not delivered by the iterator."""

    def __len__(self) -> int:
        return self.steps_per_epoch

    def __iter__(self) -> Iterator[GridBatch | PointBatch]:
        """The remaining batches of the current epoch."""
        end = (self.position // self.steps_per_epoch + 1) * self.steps_per_epoch
        while self.position < end:
            number, first = divmod(self.position, self.batches)
            for batch in self.one_pass(number, first):
                self.position += 1
                if self.position == end:
                    yield batch
                    break
                if self.takes is None or not self.takes(batch):
                    yield batch

    @abstractmethod
    def one_pass(self, number: int, first: int) -> Iterator[GridBatch | PointBatch]:
        """The batches of pass ``number``, from batch ``first`` on."""

    def state_dict(self) -> dict[str, Any]:
        """The number of batches delivered. Lightning resumes within an epoch because this method exists."""
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class FullLoader(TrainLoader):
    """All training samples in every step: this process's rows of a sub-grid, or its share of the points."""

    def __init__(self, batch: GridBatch | PointBatch, steps_per_epoch: int, process: Process) -> None:
        super().__init__(1, steps_per_epoch, process)
        if process.world_size > 1 and isinstance(batch, GridBatch):
            batch = _own_rows(batch.block, whole_grid([len(x) for x in batch.axes]), process)
        elif process.world_size > 1 and isinstance(batch, PointBatch):
            batch = _own_points(batch, torch.arange(batch.values.shape[1], device=batch.values.device), process)
        self.batch = replace(batch)  # which is not the only batch of other loaders
        self.batch.repeated = True

    def one_pass(self, number: int, first: int) -> Iterator[GridBatch | PointBatch]:
        yield self.batch


class PointLoader(TrainLoader):
    """Random training samples of signals in memory, ``size`` per signal over all processes; each occurs once in a pass."""

    def __init__(
        self, batch: GridBatch | PointBatch, size: int, steps_per_epoch: int | None, seed: int, process: Process
    ) -> None:
        self.batch = replace(batch, values=batch.values.contiguous())
        self.count = math.prod(batch.values.shape[1:-1])
        self.size = min(size, self.count)
        super().__init__(math.ceil(self.count / self.size), steps_per_epoch, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        order = permutation(self.count, self.seed, number).to(self.batch.values.device)
        for chosen in torch.split(order, self.size)[first:]:
            yield _own_points(self.batch, chosen, self.process)


class FilePointLoader(TrainLoader):
    """Random training samples from a file with bounded memory, as :class:`PointLoader`; all signals have the same samples.

    Blocks that align with the chunks of the file are read in random order into a shuffle buffer, from which points are taken
    in random order. Each process reads its own blocks only. Two buffers of ``buffer_bytes``, over all processes, exist at a
    time, as the next one is being filled.
    """

    def __init__(
        self,
        raw: RawSignals,
        split: Split,
        axes: Sequence[Tensor],
        size: int,
        steps_per_epoch: int | None,
        seed: int,
        process: Process,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.raw = raw
        self.split = split
        self.size = min(size, split.num_train)
        self.axes = axes
        signals, *grid, channels = raw.shape
        share = split.num_train / math.prod(grid)
        self.blocks = blocks_of(raw, int(buffer_bytes / BLOCKS_PER_BUFFER / share))
        point = 4 * signals * channels + 8  # bytes of its values and position
        self.blocks_per_buffer = max(1, int(buffer_bytes / max(share * point * math.prod(shape_of(self.blocks[0])), 1)))
        super().__init__(math.ceil(split.num_train / self.size), steps_per_epoch, process, seed)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
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
        batch = PointBatch.of_grid(self.axes, index, values)
        batch.total = total
        return batch

    def _rounds(self, number: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The points of all blocks in rounds; each round takes the same share of every block in the buffer.

        Yields the random order of all points of the round, as indices into the points that this process has read (-1: read
        by another process); their row-major positions; and their values.
        """
        blocks = permutation(len(self.blocks), self.seed, number).tolist()
        groups = [blocks[start : start + self.blocks_per_buffer] for start in range(0, len(blocks), self.blocks_per_buffer)]
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(self._read, groups[0], number)
            for place in range(len(groups)):
                buffer = following.result()
                if place + 1 < len(groups):
                    following = reader.submit(self._read, groups[place + 1], number)
                rounds = math.ceil(sum(count for count, _, _ in buffer) / SHUFFLED_POINTS)
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
        """Number, positions and values of the trained samples of several blocks, each shuffled in the processor's cache."""
        buffer = []
        for turn, place in enumerate(places):
            block = self.blocks[place]
            inside, index = self.split.train_index(block)
            count, signals, channels = len(inside), self.raw.shape[0], self.raw.channels
            if turn % self.process.world_size == self.process.rank:
                order = permutation(count, self.seed + 1, number * len(self.blocks) + place)
                values = torch.from_numpy(self.raw.read(block)).flatten(1, -2)
                values = values.index_select(1, inside.index_select(0, order))
                buffer.append((count, index.index_select(0, order), values))
            else:
                buffer.append((count, index[:0], torch.empty(signals, 0, channels)))
        return buffer


class BlockLoader(TrainLoader):
    """Blocks of the training grid; each occurs once in a pass.

    Args:
        grid: Training samples per axis, ``(n_1, ..., n_D)``.
        size: Samples of a block per axis; the last blocks along an axis may be smaller.
        read: Returns a block, from memory or from a file.
        steps_per_epoch, seed, process: See :class:`TrainLoader`.
        shuffle: Whether the order is random; otherwise row-major.
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
        count = len(self.blocks)
        order = permutation(count, self.seed, number).tolist() if self.shuffle else list(range(count))
        for place in order[first:]:
            yield _own_rows(self.read, self.blocks[place], self.process)


class GridLoader(Generic[B]):
    """Blocks of the whole grid in order, for evaluation and prediction; ``read`` returns the batch of one."""

    def __init__(self, blocks: Sequence[Block], read: Callable[[Block], B]) -> None:
        self.blocks = blocks
        self.read = read

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[B]:
        return map(self.read, self.blocks)


def permutation(count: int, seed: int, number: int) -> Tensor:
    """Random permutation of pass ``number``, ``(count,)`` int64, the same on all processes and devices."""
    # a generator takes one 64-bit seed; (seed, number) pairs must not collide for small values
    mixed = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 1) % 2**63
    return torch.randperm(count, generator=torch.Generator().manual_seed(mixed))


def _own_points(batch: GridBatch | PointBatch, chosen: Tensor, process: Process) -> PointBatch:
    own = batch.take(chosen[process.share(len(chosen))])
    own.total = len(chosen)
    return own


def _own_rows(read: Callable[[Block], GridBatch], block: Block, process: Process) -> GridBatch:
    total = math.prod(shape_of(block)) if process.world_size > 1 else None
    return replace(read(process.rows(block)), total=total)

"""Random points of signals that stay in their file, with bounded memory.

The file is read in blocks that follow its chunks, each once in a pass. A buffer holds as many randomly chosen blocks as its
memory allows, and is emptied in random order. Which points make a batch does not depend on the number of processes; each
process reads only its own blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.blocks import Block, shape_of
from pe_lightning.data.batches import PointBatch
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.loaders import TrainLoader, permutation
from pe_lightning.data.splits import Split
from pe_lightning.data.values import FileValues
from pe_lightning.distributed import Process

__all__ = ["FilePointLoader", "spread_points"]

BUFFER_BYTES = 1 << 27
"""Memory of the buffer that random points are taken from, of all processes together."""
BLOCKS_PER_BUFFER = 128
"""Blocks of the file in a full buffer, unless its chunks are larger."""
ROUND = 1 << 16
"""Points that are brought into random order at once."""
CALIBRATION_BLOCKS = 16
"""Blocks that are read for means and scales."""
CALIBRATION_BYTES = 1 << 22
"""Size of these blocks, unless the chunks of the file are larger."""


@dataclass
class _BlockPoints:
    """The trained samples of a block of the file, in random order.

    Args:
        count: How many there are.
        index: Row-major positions in the grid, ``(P,)``; ``None`` if another process reads the block.
        values: ``(S, P, C)``.
    """

    count: int
    index: Tensor | None = None
    values: Tensor | None = None


class FilePointLoader(TrainLoader):
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
        share = split.num_train / math.prod(grid)
        self.blocks = values.blocks(int(buffer_bytes / BLOCKS_PER_BUFFER / share))
        point = 4 * signals * channels + 8  # its values and its position
        self.blocks_per_buffer = max(1, int(buffer_bytes / max(share * point * math.prod(shape_of(self.blocks[0])), 1)))
        super().__init__(math.ceil(split.num_train / self.size), steps_per_epoch)

    def one_pass(self, number: int, first: int) -> Iterator[PointBatch]:
        """The points of all blocks, ``size`` at a time."""
        order = permutation(len(self.blocks), self.seed, number).tolist()
        groups = [order[start : start + self.blocks_per_buffer] for start in range(0, len(order), self.blocks_per_buffer)]
        skip = first * self.size
        parts: list[tuple[Tensor, Tensor]] = []
        waiting = 0
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(self._read, groups[0], number)
            for place in range(len(groups)):
                buffer = following.result()
                if place + 1 < len(groups):
                    following = reader.submit(self._read, groups[place + 1], number)
                for count, index, values in self._shuffled(buffer, number, place, waiting):
                    parts.append((index, values))
                    waiting += count
                    if waiting < self.size:
                        continue
                    if skip:
                        skip -= waiting
                    else:
                        yield self._batch(parts, waiting)
                    parts, waiting = [], 0
        if waiting and not skip:
            yield self._batch(parts, waiting)

    def _batch(self, parts: Sequence[tuple[Tensor, Tensor]], total: int) -> PointBatch:
        index, values = parts[0]
        if len(parts) > 1:
            index, values = torch.cat([i for i, _ in parts]), torch.cat([v for _, v in parts], 1)
        return PointBatch(point_coordinates(self.axes, index[None]), values, self.axes, index[None], total)

    def _read(self, places: Sequence[int], number: int) -> list[_BlockPoints]:
        """The points of some blocks, each block in an order of its own: one block fits in the processor's cache."""
        buffer = []
        for turn, place in enumerate(places):
            block, own = self.blocks[place], turn % self.process.world_size == self.process.rank
            if not own:
                buffer.append(_BlockPoints(self.split.count_in(block)))
                continue
            inside, index = self.split.train_positions(block)
            order = permutation(len(inside), self.seed + 1, number * len(self.blocks) + place)
            values = self.values.read(block).flatten(1, -2).index_select(1, inside.index_select(0, order))
            buffer.append(_BlockPoints(len(inside), index.index_select(0, order), values))
        return buffer

    def _shuffled(
        self, buffer: Sequence[_BlockPoints], number: int, place: int, waiting: int
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The points of a buffer in random order, cut where batches end: how many there are, and this process's.

        They come in rounds, to each of which every block gives the same share of its points.
        """
        signals, channels = self.values.shape[0], self.values.shape[-1]
        nothing = (torch.empty(0, dtype=torch.int64), torch.empty(signals, 0, channels))
        rounds = math.ceil(sum(block.count for block in buffer) / ROUND)
        for turn in range(rounds):
            ends = [(block.count * turn // rounds, block.count * (turn + 1) // rounds) for block in buffer]
            count = sum(end - start for start, end in ends)
            order = permutation(count, self.seed + 2, (number * len(self.blocks) + place) * 1_000_003 + turn)
            if self.process.world_size > 1:
                # where each point of the round lies among those that this process read, -1 for the others
                own = torch.cat(
                    [
                        torch.full((end - start,), block.index is not None)
                        for block, (start, end) in zip(buffer, ends, strict=True)
                    ]
                )
                order = torch.where(own, own.cumsum(0) - 1, -1)[order]
            read = [
                (block.index[start:end], block.values[:, start:end])
                for block, (start, end) in zip(buffer, ends, strict=True)
                if block.index is not None and block.values is not None
            ]
            index = torch.cat([part for part, _ in read or [nothing]])
            values = torch.cat([part for _, part in read or [nothing]], 1)
            start = 0
            while start < count:
                end = min(count, start + self.size - waiting)
                chosen = order[start:end]
                if self.process.world_size > 1:
                    chosen = chosen[chosen >= 0]
                yield end - start, index.index_select(0, chosen), values.index_select(1, chosen)
                waiting, start = (waiting + end - start) % self.size, end


def spread_points(values: FileValues, split: Split, count: int) -> PointBatch:
    """About ``count`` training samples from blocks spread evenly over the file, always the same."""
    blocks: Sequence[Block] = values.blocks(CALIBRATION_BYTES)
    if len(blocks) > CALIBRATION_BLOCKS:
        blocks = [blocks[place * len(blocks) // CALIBRATION_BLOCKS] for place in range(CALIBRATION_BLOCKS)]
    indices, parts = [], []
    for block in blocks:
        inside, index = split.train_positions(block)
        step = max(1, len(inside) * len(blocks) // count)
        indices.append(index[::step])
        parts.append(values.read(block).flatten(1, -2).index_select(1, inside[::step]))
    axes, index = grid_axes(split.grid), torch.cat(indices)[None]
    return PointBatch(point_coordinates(axes, index), torch.cat(parts, 1), axes, index)

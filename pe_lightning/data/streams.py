"""Parts of the grid of signals that stay in their file: what training, evaluation and the solvers read of it.

Pieces follow the chunks of the file, so that each is read once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from pe_lightning.blocks import Block, whole
from pe_lightning.data.batches import GridBatch
from pe_lightning.data.coordinates import grid_axes
from pe_lightning.data.splits import GridSplit, Protocol, Split
from pe_lightning.data.values import FileValues, boxes
from pe_lightning.distributed import Process

__all__ = ["EvaluationStream", "read_block", "training_blocks"]


def read_block(values: FileValues, split: GridSplit, block: Block) -> GridBatch:
    """A block of the training grid: positions in it, not in the file."""
    index = [positions[part] for positions, part in zip(split.index, block, strict=True)]
    axes = tuple(x[i] for x, i in zip(grid_axes(split.grid), index, strict=True))
    start = tuple(part.start for part in block)
    if any(len(i) == 0 for i in index):
        shape = (values.shape[0], *(len(i) for i in index), values.shape[-1])
        return GridBatch(axes, torch.zeros(shape), start=start)
    box = tuple(slice(int(i[0]), int(i[-1]) + 1) for i in index)
    return GridBatch(axes, values.read(box, split.stride), start=start)


def training_blocks(values: FileValues, split: GridSplit, process: Process) -> Iterator[GridBatch]:
    """This process's part of the training grid, for a solver: blocks that follow the file's chunks."""
    chunks = [max(1, chunk // step) for chunk, step in zip(values.chunks, split.stride, strict=True)]
    sizes = [len(index) for index in split.index]
    per_sample = 4 * values.shape[0] * values.shape[-1] * math.prod(split.stride)
    every = boxes(sizes, chunks, per_sample)
    for block in every[process.share(len(every))]:
        yield read_block(values, split, block)


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
        # Lightning wants a batch from every process: one without pieces gets one without samples
        none = whole([0, *grid[1:]])
        self.pieces = every[process.share(len(every))] or [none]

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

"""Batches for training, evaluation and the solvers, of signals in memory or in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.blocks import Block, FileValues, file_blocks, grid_axes, whole
from pe_lightning.signals.lattice import Lattice, find_lattice
from pe_lightning.signals.loaders import (
    DEFAULT_POINTS,
    MAX_STEPS_PER_EPOCH,
    Batching,
    BlockLoader,
    FilePointLoader,
    FullLoader,
    GridLoader,
    PointLoader,
    TrainLoader,
)
from pe_lightning.signals.process import Process
from pe_lightning.signals.splits import EvalMask, GridSplit, PointSplit, Split

Batch = TypeVar("Batch", bound=GridBatch | PointBatch)

MAX_FLOAT32_SAMPLES = 1 << 14
"""Longest axis whose coordinates are float32, with a rounding error below 0.1 % of their distance."""
CENTRAL_BLOCK_SAMPLES = {1: 16384, 2: 1024, 3: 160}
"""Trained samples per axis of the central block from which encoders of signals in a file are learned."""
CALIBRATION_BLOCKS = 16
"""Number of blocks of a file from which means and scales are computed."""
CALIBRATION_BYTES = 1 << 22
"""Bytes of each of these blocks, unless the chunks of the file are larger."""


@dataclass(eq=False)
class SignalDataset:
    """Batches of one set of signals, on a grid or at scattered samples.

    Args:
        values: ``(S, N_1, ..., N_D, C)`` in [0, 1], NaN at missing samples; the file that holds them; or ``(S, P, C)`` of
            scattered samples, whose split has a grid ``(P,)``.
        split: The trained samples.
        eval_mask: Which samples are scored.
        uneven: The axes in the user's units, if samples are not at equal distances.
        cells: Lengths of the cells that samples are means of, one per axis; none if samples are values at points.
        points: Coordinates of scattered samples, ``(P, D)`` float64 in [0, 1), the same for all signals.
        grid: Number of samples per axis of a grid; for scattered samples of one of the same density.
    """

    values: Tensor | FileValues
    split: Split
    eval_mask: EvalMask
    uneven: tuple[Axis, ...] = ()
    cells: tuple[float, ...] = ()
    points: Tensor | None = None
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.grid = self.grid or self.split.grid
        # on longer axes the rounding error of float32 is not small against the distance of neighbours
        dtype = torch.float64 if max(self.grid) > MAX_FLOAT32_SAMPLES else torch.float32
        self.axes = grid_axes(self.grid, dtype)
        if self.uneven:
            self.axes = tuple(torch.from_numpy(axis.grid()).to(dtype) for axis in self.uneven)
        if self.points is not None:
            self.points = self.points.to(dtype)
            if not isinstance(self.split, PointSplit):
                index = self.split.train_index(whole(self.split.grid))[1]
                self.split = PointSplit(self.split.grid, index[None], known=self.split.known)

    def of(self, signals: slice) -> SignalDataset:
        return replace(self, values=self.in_memory()[signals], split=self.split.of(signals))

    def resampled(self, split: Split, eval_mask: EvalMask) -> SignalDataset:
        return replace(self, values=self.in_memory(), split=split, eval_mask=eval_mask)

    def in_memory(self) -> Tensor:
        if isinstance(self.values, FileValues):
            raise InputError("the signals are read from their file and not loaded; set in_memory: true to load them")
        return self.values

    @cached_property
    def train_batch(self) -> GridBatch | PointBatch:
        values, split = self.in_memory(), self.split
        if isinstance(split, GridSplit):
            chosen = tuple(axis[index] for axis, index in zip(self.axes, split.index, strict=True))
            return GridBatch(chosen, split.take(values))
        assert isinstance(split, PointSplit)
        if self.points is not None:
            return PointBatch(self.points[split.index], split.take(values), self.axes)
        return PointBatch.of_grid(self.axes, split.index, split.take(values))

    @cached_property
    def lattice(self) -> Lattice | None:
        """The grid that the trained samples in memory are, or are but for a few missing ones."""
        if isinstance(self.values, FileValues):
            return None
        batch = self.train_batch
        return Lattice(batch, None) if isinstance(batch, GridBatch) else find_lattice(batch)

    @property
    def trained_axes(self) -> tuple[Tensor, ...] | None:
        """Coordinates of the trained grid per axis; ``None`` where the trained samples are scattered."""
        if isinstance(self.split, GridSplit):
            return tuple(x[index] for x, index in zip(self.axes, self.split.index, strict=True))
        return None if self.lattice is None else self.lattice.batch.axes

    @cached_property
    def evaluation_batch(self) -> GridBatch | PointBatch:
        """The whole grid of signals in memory, or all points, with masks of scored and trained samples."""
        masks: dict[str, Any] = {"mask": self.split.test_mask(self.eval_mask), "train_mask": self.split.train_mask()}
        if self.points is not None:
            return PointBatch(self.points[None], self.in_memory(), self.axes, **masks)
        return GridBatch(self.axes, self.in_memory(), **masks)

    @cached_property
    def validation_batch(self) -> GridBatch | PointBatch:
        """:attr:`evaluation_batch` with the mask of the samples that are scored during training."""
        batch, mask = self.evaluation_batch, self.split.validation
        return batch if mask is None else replace(batch, mask=mask)

    def calibration_batch(self) -> GridBatch | PointBatch:
        """Samples for means and scales: all trained samples, or a fixed set of points spread over the file."""
        values = self.values
        if not isinstance(values, FileValues):
            return self.train_batch
        blocks = values.blocks(CALIBRATION_BYTES)
        if len(blocks) > CALIBRATION_BLOCKS:
            blocks = [blocks[place * len(blocks) // CALIBRATION_BLOCKS] for place in range(CALIBRATION_BLOCKS)]
        indices, parts = [], []
        for block in blocks:
            inside, index = self.split.train_index(block)
            step = max(1, len(inside) * len(blocks) // DEFAULT_POINTS)
            indices.append(index[::step])
            parts.append(values.read(block).flatten(1, -2).index_select(1, inside[::step]))
        return PointBatch.of_grid(self.axes, torch.cat(indices)[None], torch.cat(parts, 1))

    def central_block(self) -> GridBatch:
        """The central block of the trained grid of signals in a file, or all of a grid in memory."""
        sizes = self.grid_split().sizes
        if not isinstance(self.values, FileValues):
            return self._train_grid
        wide = CENTRAL_BLOCK_SAMPLES.get(len(sizes), 16)
        firsts = [max(0, (n - wide) // 2) for n in sizes]
        return self.train_block(tuple(slice(a, min(a + wide, n)) for a, n in zip(firsts, sizes, strict=True)))

    def train_blocks(self, process: Process) -> Iterator[GridBatch]:
        """This process's blocks of the trained grid."""
        split, values = self.grid_split(), self.values
        if not isinstance(values, FileValues):
            yield self.train_block(process.rows(whole(split.sizes)))
            return
        chunks = [max(1, chunk // step) for chunk, step in zip(values.chunks, split.stride, strict=True)]
        per_sample = 4 * values.shape[0] * values.shape[-1] * math.prod(split.stride)
        blocks = file_blocks(split.sizes, chunks, per_sample)
        yield from map(self.train_block, blocks[process.share(len(blocks))])

    def train_block(self, block: Block) -> GridBatch:
        """A block of the trained grid; ``block`` counts trained samples."""
        split, values = self.grid_split(), self.values
        if not isinstance(values, FileValues):
            return self._train_grid.block(block)
        index = [positions[part] for positions, part in zip(split.index, block, strict=True)]
        axes = tuple(x[i] for x, i in zip(self.axes, index, strict=True))
        if all(len(i) for i in index):
            read = values.read(tuple(slice(int(i[0]), int(i[-1]) + 1) for i in index), split.stride)
        else:
            read = torch.zeros(values.shape[0], *(len(i) for i in index), values.shape[-1])
        return GridBatch(axes, read, start=tuple(part.start for part in block))

    @property
    def _train_grid(self) -> GridBatch:
        assert isinstance(self.train_batch, GridBatch)
        return self.train_batch

    def grid_split(self) -> GridSplit:
        if not isinstance(self.split, GridSplit):
            raise InputError(
                "the exact fit of signals that are read from their file needs a training grid; set sampling: grid, train on "
                "random points (solver: null and a given sigma), or set in_memory: true"
            )
        return self.split

    def train_loader(self, batching: Batching, seed: int, process: Process, device: torch.device) -> TrainLoader:
        values, steps = self.values, batching.steps_per_epoch
        if batching.kind == "points":
            if isinstance(values, FileValues):
                return FilePointLoader(values, self.split, batching.num_points, steps, seed, process)
            return PointLoader(to_device(self.train_batch, device), batching.num_points, steps, seed, process)
        if batching.kind == "full":
            return FullLoader(to_device(self.train_batch, device), steps or MAX_STEPS_PER_EPOCH, process)
        sizes, read = self.grid_split().sizes, self.train_block
        if not isinstance(values, FileValues):
            read = to_device(self._train_grid, device).block
        return BlockLoader(sizes, batching.block(len(sizes)), read, steps, seed, process, batching.shuffle)

    def evaluation_loader(self, process: Process, validation: bool = False) -> GridLoader[Any]:
        """Loader of the whole grid, for validation too: one batch in memory, or this process's blocks of a file."""
        if not isinstance(self.values, FileValues):
            batch = self.validation_batch if validation else self.evaluation_batch
            return GridLoader([whole(self.split.grid)], lambda _: batch)
        blocks = self.values.blocks()
        # Lightning needs a batch in every process: one without blocks gets an empty batch
        own = blocks[process.share(len(blocks))] or [whole([0, *self.split.grid[1:]])]
        return GridLoader(own, self._evaluation_block)

    def _evaluation_block(self, block: Block) -> GridBatch:
        assert isinstance(self.values, FileValues)
        return GridBatch(
            tuple(x[part] for x, part in zip(self.axes, block, strict=True)),
            self.values.read(block),
            tuple(part.start for part in block),
            mask=self.split.test_mask(self.eval_mask, block),
            train_mask=self.split.train_mask(block),
        )


class TrainedGrid:
    """The trained grid of signals in a file, ``(S, n_1, ..., n_D, C)``, read by ``grid[signals, *block]``."""

    def __init__(self, dataset: SignalDataset, device: torch.device) -> None:
        assert isinstance(dataset.values, FileValues)
        signals, channels = dataset.values.shape[0], dataset.values.shape[-1]
        self.dataset, self.shape = dataset, torch.Size((signals, *dataset.grid_split().sizes, channels))
        self.dtype, self.device = torch.float32, device
        self.axes = tuple(x[index] for x, index in zip(dataset.axes, dataset.grid_split().index, strict=True))

    def __getitem__(self, index: tuple[slice, ...], /) -> Tensor:
        signals, *block = index
        return self.dataset.train_block(tuple(block)).values[signals].to(self.device)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on a device; the same object if they are there already."""
    if batch.values.device == device:
        return batch

    def move(value: object) -> object:
        if isinstance(value, Tensor):
            return value.to(device)
        return tuple(move(entry) for entry in value) if isinstance(value, tuple) else value

    given = [field.name for field in fields(batch) if field.init]
    return type(batch)(**{name: move(getattr(batch, name)) for name in given})  # type: ignore[arg-type]

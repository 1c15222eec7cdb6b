"""From signals and their split to the batches of training, evaluation and the solvers, in memory or from a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Literal, TypeAlias, TypeVar, get_args

import torch
from torch import Tensor

from pe_lightning.blocks import Block, whole
from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.loaders import BlockLoader, FullLoader, PointLoader, Repeat, TrainLoader
from pe_lightning.data.point_stream import PointStream, sample_points
from pe_lightning.data.splits import GridSplit, PointSplit, Protocol, Split
from pe_lightning.data.streams import EvaluationStream, read_block, training_blocks
from pe_lightning.data.values import FileValues
from pe_lightning.distributed import Process
from pe_lightning.errors import InputError

__all__ = ["BatchKind", "SignalDataset", "check_batches"]

BatchKind: TypeAlias = Literal["full", "points", "blocks"]
Batch = TypeVar("Batch", bound=GridBatch | PointBatch)

POINTS = 65536
"""Points per signal in a batch of ``points`` whose size is not given."""
BLOCK = {1: 65536, 2: 256, 3: 64}
"""Trained samples per axis of a block whose size is not given."""
STEPS_PER_EPOCH = 100
"""Optimiser steps that make one epoch where each sees all samples."""
CHOICE_WINDOW = {1: 16384, 2: 1024, 3: 160}
"""Trained samples per axis of the central part of a file from which sigma and the ridge are chosen."""


def check_batches(batch: str, batch_size: int | Sequence[int] | None, steps_per_epoch: int | None) -> None:
    """Raises :class:`InputError` if the settings contradict each other."""
    if batch not in get_args(BatchKind):
        raise InputError(f"batch must be one of {', '.join(get_args(BatchKind))}; got {batch!r}")
    if steps_per_epoch is not None and not _is_count(steps_per_epoch):
        raise InputError(f"steps_per_epoch must be an integer >= 1, got {steps_per_epoch!r}")
    if batch_size is None:
        return
    if batch == "full":
        raise InputError("a full batch has no batch_size; set batch: points or blocks, or leave it out")
    sizes = [batch_size] if isinstance(batch_size, int) else list(batch_size)
    if not sizes or not all(_is_count(size) for size in sizes) or (batch == "points" and len(sizes) > 1):
        allowed = "an integer >= 1" if batch == "points" else "an integer >= 1, or one per axis"
        raise InputError(f"batch_size of batch: {batch} must be {allowed}; got {batch_size!r}")


class SignalDataset:
    """The batches of one set of signals.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, or the file that holds them.
        split: The trained samples.
        protocol: Which samples are scored.
    """

    def __init__(self, values: Tensor | FileValues, split: Split, protocol: Protocol) -> None:
        self.values = values
        self.split = split
        self.protocol: Protocol = protocol
        self.axes = grid_axes(split.grid)

    def of(self, own: slice) -> SignalDataset:
        """The same for some of the signals.

        Raises:
            InputError: If they stay in their file.
        """
        split = self.split
        if isinstance(split, PointSplit) and len(split.index) > 1:
            split = PointSplit(split.grid, split.index[own])
        return SignalDataset(self.in_memory()[own], split, self.protocol)

    # -- whole batches, of signals in memory ----------------------------------------------------------------------------

    @cached_property
    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples."""
        values, split = self.in_memory(), self.split
        if isinstance(split, GridSplit):
            chosen = tuple(axis[index] for axis, index in zip(self.axes, split.index, strict=True))
            return GridBatch(chosen, split.take(values))
        if isinstance(split, PointSplit):
            return PointBatch(point_coordinates(self.axes, split.index), split.take(values), self.axes, split.index)
        raise TypeError(f"a split is a GridSplit or a PointSplit, got a {type(split).__name__}")

    @cached_property
    def evaluation_batch(self) -> GridBatch:
        """The whole grid, with the masks of scored and of trained samples."""
        return GridBatch(self.axes, self.in_memory(), self.split.test_mask(self.protocol), self.split.train_mask())

    def in_memory(self) -> Tensor:
        """The values.

        Raises:
            InputError: If they stay in their file.
        """
        if isinstance(self.values, FileValues):
            raise InputError("the signals stay in their file and are not loaded; set in_memory: true to load them")
        return self.values

    # -- for the solvers and the scales of a module ---------------------------------------------------------------------

    def calibration_batch(self) -> GridBatch | PointBatch:
        """All trained samples, or points spread over the file: enough for means and the scales of features."""
        if isinstance(self.values, FileValues):
            return sample_points(self.values, self.split, POINTS)
        return self.train_batch

    def choice_batch(self) -> GridBatch:
        """The trained grid, or its central part where it stays in a file.

        Raises:
            InputError: If the trained samples are no grid.
        """
        split = self._grid()
        if not isinstance(self.values, FileValues):
            return self._train_grid()
        wide = CHOICE_WINDOW.get(len(split.grid), 16)
        sizes = [len(index) for index in split.index]
        first = [max(0, (n - wide) // 2) for n in sizes]
        return read_block(self.values, split, tuple(slice(a, min(a + wide, n)) for a, n in zip(first, sizes, strict=True)))

    def train_blocks(self, process: Process) -> Iterator[GridBatch]:
        """This process's part of the trained grid, in blocks with their first sample.

        Raises:
            InputError: If the trained samples are no grid.
        """
        split = self._grid()
        if isinstance(self.values, FileValues):
            yield from training_blocks(self.values, split, process)
            return
        yield self._train_grid().part(process.rows(whole([len(index) for index in split.index])))

    def _grid(self) -> GridSplit:
        if not isinstance(self.split, GridSplit):
            raise InputError(
                "signals that stay in their file are solved for on a training grid; set sampling: grid, or train on "
                "random points (warm_start: false and a given sigma), or in_memory: true"
            )
        return self.split

    def _train_grid(self) -> GridBatch:
        assert isinstance(self.train_batch, GridBatch)
        return self.train_batch

    # -- loaders --------------------------------------------------------------------------------------------------------

    def train_loader(
        self,
        batch: BatchKind,
        batch_size: int | Sequence[int] | None,
        shuffle: bool,
        steps_per_epoch: int | None,
        seed: int,
        process: Process,
        device: torch.device,
    ) -> TrainLoader:
        """The training batches; those of signals in memory are made on ``device``."""
        values = self.values
        if batch == "points":
            count = batch_size if isinstance(batch_size, int) else POINTS
            if isinstance(values, FileValues):
                return PointStream(values, self.split, count, steps_per_epoch, seed, process)
            return PointLoader(to_device(self.train_batch, device), count, steps_per_epoch, seed, process)
        if batch == "blocks":
            split = self._grid()
            read: Callable[[Block], GridBatch] = (
                partial(read_block, values, split)
                if isinstance(values, FileValues)
                else to_device(self._train_grid(), device).part
            )
            sizes = [len(index) for index in split.index]
            return BlockLoader(sizes, self._block(batch_size), read, steps_per_epoch, seed if shuffle else None, process)
        return FullLoader(to_device(self.train_batch, device), steps_per_epoch or STEPS_PER_EPOCH, process)

    def evaluation_loader(self, process: Process) -> Repeat[GridBatch] | EvaluationStream:
        """The whole grid: in memory every process takes it all, from a file each its own pieces."""
        if isinstance(self.values, FileValues):
            return EvaluationStream(self.values, self.split, self.protocol, process)
        return Repeat(self.evaluation_batch)

    def _block(self, size: int | Sequence[int] | None) -> tuple[int, ...]:
        axes = len(self.axes)
        sizes = [size] * axes if isinstance(size, int) else list(size or [BLOCK.get(axes, 16)] * axes)
        if len(sizes) != axes:
            raise InputError(
                f"batch_size {sizes} is for {len(sizes)} axes, the signals have {axes}: give one number or {axes}"
            )
        return tuple(sizes)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on a device; itself if they are there."""
    if batch.values.device == device:
        return batch

    def move(value: object) -> object:
        if isinstance(value, Tensor):
            return value.to(device)
        return tuple(move(entry) for entry in value) if isinstance(value, tuple) else value

    return type(batch)(**{key: move(value) for key, value in vars(batch).items()})  # type: ignore[arg-type]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

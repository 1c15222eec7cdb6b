"""Signals with trained and held-out samples, in memory or in their file, and their batches; without Lightning."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo, find_lattice, to_device
from pe_lightning.signals.blocks import (
    Block,
    blocks_of,
    file_blocks,
    grid_axes,
    known_samples,
    load,
    report_missing,
    whole_grid,
)
from pe_lightning.signals.cache import open_signals
from pe_lightning.signals.distributed import Process
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
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sampling import FoldSampling, Sampling, Splitting, check_known, split_samples
from pe_lightning.signals.sources.base import Source
from pe_lightning.signals.sources.kinds import source_of
from pe_lightning.signals.sources.paths import Paths
from pe_lightning.signals.splits import EvalMask, GridSplit, PointSplit, Split, trained_scaling

MAX_FLOAT32_SAMPLES = 1 << 14
"""Longest axis whose coordinates are float32, with a rounding error below 0.1 % of their distance."""
CENTRAL_BLOCK_SAMPLES = {1: 16384, 2: 1024, 3: 160}
"""Trained samples per axis of the central block from which encoders of signals in a file are learned."""
CALIBRATION_BLOCKS = 16
"""Number of blocks of a file from which means and scales are computed."""
CALIBRATION_BYTES = 1 << 22
"""Bytes of each of these blocks, unless the chunks of the file are larger."""


@dataclass(eq=False)
class Signals:
    """Signals of one shape with the split of their samples, on a grid or at scattered points.

    Args:
        source: Where the signals come from.
        raw: The signals as their source describes them.
        info: Their shape and origin.
        split: The trained samples.
        eval_mask: Which samples are scored; ``none`` where the requested mask leaves none.
        loaded: ``(S, N_1, ..., N_D, C)`` float32 in [0, 1], NaN at missing samples, or ``(S, P, C)`` of scattered samples;
            ``None``: values are read from their file block by block.
        axes: Coordinates per axis of the grid, or of a grid of the density of scattered samples, axis a ``(N_a,)``.
        noise: Added to the values that are trained on, of the shape of ``loaded``; ``None``: nothing is added.
    """

    source: Source
    raw: RawSignals
    info: SignalInfo
    split: Split
    eval_mask: EvalMask
    loaded: Tensor | None
    axes: tuple[Tensor, ...]
    noise: Tensor | None = None
    streamed: ClassVar[bool] = False
    """Whether values are read from their file block by block."""

    @classmethod
    def read(cls, source: Source, splitting: Splitting) -> Signals:
        sampling, eval_mask = splitting.sampling, splitting.eval_mask
        raw = open_signals(source, splitting.storage)
        info = SignalInfo.from_raw(raw, source.metric, splitting.samples)
        if min(info.grid) < 2:
            raise InputError(f"the signals have {info.grid} samples; at least 2 are needed on each axis")
        is_loaded = splitting.storage.loads(raw)
        split = split_samples(sampling, info, None) if is_loaded else sampling.stream(raw.grid, info.num_signals)
        split.test_mask(eval_mask, tuple(slice(0, 1) for _ in raw.grid))  # raises if the mask does not apply
        values = load(raw) if is_loaded else None
        if values is not None and (known := known_samples(values)) is not None:
            report_missing(known, info.names)
            split = split_samples(sampling, info, known)
            check_known(split, known)
            values = values.where(known[..., None], torch.nan)
        split, eval_mask = splitting.hold_out(source, raw, split, is_loaded)
        noise = None
        if values is not None and splitting.added_noise:
            # the same in every run, so that runs differ by what is fitted alone
            noise = torch.randn(values.shape, generator=torch.Generator().manual_seed(0)) * splitting.added_noise
        kind = FileSignals if values is None else cls
        signals = kind(source, raw, info, split, eval_mask, values, _axes(info), noise)
        if signals.has_trained_range:
            return signals.scaled(trained_scaling(raw, split, source.trained_range == "unit"))
        return signals

    # -- the signals --------------------------------------------------------------------------------------------------

    @property
    def has_trained_range(self) -> bool:
        """Whether the trained samples give the range that becomes [0, 1]."""
        scaling = self.info.scaling
        is_measured = scaling.found_in_data and np.dtype(scaling.dtype).kind == "f" and not self.raw.unit
        return is_measured and self.source.trained_range != "declared"

    def scaled(self, scaling: ValueRange) -> Signals:
        """The signals with another scaling of the source's values to [0, 1]."""
        if scaling == self.info.scaling:
            return self
        raw, known = replace(self.raw, scaling=scaling), self.split.known
        values = None if self.streamed else load(raw)
        if values is not None and known is not None:
            values = values.where(known[..., None], torch.nan)
        return replace(self, raw=raw, info=replace(self.info, scaling=scaling), loaded=values)

    def resampled(self, sampling: Sampling, eval_mask: EvalMask = "rest") -> Signals:
        """The signals with the trained samples of another sampling."""
        split, values = split_samples(sampling, self.info, self.split.known), self.values
        return replace(self, split=split, eval_mask=eval_mask, loaded=values)

    def select(self, signals: slice) -> Signals:
        """Some of the signals."""
        low, high = zip(*(self.info.scaling.limits(s) for s in range(self.info.num_signals)[signals]), strict=True)
        info = replace(self.info, names=self.info.names[signals], scaling=ValueRange(self.info.scaling.dtype, low, high))
        noise = None if self.noise is None else self.noise[signals]
        return replace(self, info=info, split=self.split.select(signals), loaded=self.values[signals], noise=noise)

    @property
    def values(self) -> Tensor:
        """``(S, N_1, ..., N_D, C)`` float32 in [0, 1], NaN at missing samples."""
        if self.loaded is None:
            raise InputError("the signals are read from their file and not loaded; set in_memory: true to load them")
        return self.loaded

    @property
    def _trained_values(self) -> Tensor:
        """The values with the noise that is added to those that are trained on."""
        return self.values if self.noise is None else self.values + self.noise

    @property
    def num_missing(self) -> list[int] | None:
        """Missing samples of each signal; ``None`` if there are none."""
        known = self.split.known
        return None if known is None else (~known).flatten(1).sum(1).tolist()

    @property
    def num_validation(self) -> int:
        """Samples of each signal that are held out of training for the ``val/`` scores."""
        mask = self.split.validation
        return 0 if mask is None else int(mask[0].sum())

    @property
    def scores_validation(self) -> bool:
        """Whether there are samples for ``val/`` scores."""
        return self.eval_mask != "none" or self.num_validation > 0

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the values, the shape and the trained samples: 16 hexadecimal digits."""
        info, digest = self.info, hashlib.sha256()
        digest.update(f"{(info.num_signals, *self.split.grid, info.channels)} {self.split.num_train};".encode())
        points = () if self.raw.points is None else (self.raw.points,)
        values = self.raw.unit_blocks() if self.streamed else (self._trained_values,)
        for numbers in itertools.chain(values, points, self.split.train_indices):
            digest.update(np.ascontiguousarray(numbers).data.cast("B"))
        return digest.hexdigest()[:16]

    @cached_property
    def points(self) -> Tensor | None:
        """Coordinates of scattered samples, ``(P, D)`` in [0, 1), the same for all signals."""
        return None if self.raw.points is None else torch.from_numpy(self.raw.points).to(self.axes[0].dtype)

    @cached_property
    def lattice(self) -> GridBatch | None:
        """The grid that the trained samples in memory are, or are but for a few missing ones, where its mask is false."""
        batch = self.train_batch()
        return batch if isinstance(batch, GridBatch) else find_lattice(batch)

    @property
    def trained_axes(self) -> tuple[Tensor, ...] | None:
        """Coordinates of the trained grid per axis; ``None`` where the trained samples are scattered."""
        if isinstance(self.split, GridSplit):
            return tuple(x[index] for x, index in zip(self.axes, self.split.index, strict=True))
        return None if self.lattice is None else self.lattice.axes

    # -- batches of all samples -----------------------------------------------------------------------------------------

    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples; not for signals that are read from their file."""
        return self._train_batch

    @cached_property
    def _train_batch(self) -> GridBatch | PointBatch:
        values, split = self._trained_values, self.split
        if isinstance(split, GridSplit):
            return GridBatch(tuple(x[index] for x, index in zip(self.axes, split.index, strict=True)), split.take(values))
        assert isinstance(split, PointSplit)
        if self.points is not None:
            return PointBatch(self.points[split.index], split.take(values), self.axes)
        return PointBatch.of_grid(self.axes, split.index, split.take(values))

    def evaluation_batch(self) -> GridBatch | PointBatch:
        """The whole grid, or all points, with masks of scored and trained samples; not for signals in their file."""
        return self._evaluation_batch

    @cached_property
    def _evaluation_batch(self) -> GridBatch | PointBatch:
        masks: dict[str, Any] = {"mask": self.split.test_mask(self.eval_mask), "train_mask": self.split.train_mask()}
        if self.points is not None:
            return PointBatch(self.points[None], self.values, self.axes, **masks)
        return GridBatch(self.axes, self.values, **masks)

    @cached_property
    def validation_batch(self) -> GridBatch | PointBatch:
        """:meth:`evaluation_batch` with the mask of the samples that are scored during training.

        Those that are held out of the trained ones have the noise of these: what they select knows nothing else.
        """
        batch, mask = self.evaluation_batch(), self.split.validation
        return batch if mask is None else replace(batch, mask=mask, values=self._trained_values)

    def calibration_batch(self) -> GridBatch | PointBatch:
        """Samples for means and scales of features: all trained samples, or a fixed set of points spread over the file."""
        return self.train_batch()

    # -- blocks of the trained grid -------------------------------------------------------------------------------------

    def grid_split(self) -> GridSplit:
        """The split of signals that are trained on a grid; others are refused."""
        if not isinstance(self.split, GridSplit):
            raise InputError(
                "the exact fit of signals that are read from their file needs a training grid; set sampling: grid, train on "
                "random points (solver: null and a given sigma), or set in_memory: true"
            )
        return self.split

    def central_block(self) -> GridBatch:
        """The central block of the trained grid of signals in a file, or all of a grid in memory."""
        return self.train_block(whole_grid(self.grid_split().sizes))

    def train_blocks(self, process: Process) -> Iterator[GridBatch]:
        """This process's blocks of the trained grid."""
        yield self.train_block(process.rows(whole_grid(self.grid_split().sizes)))

    def train_block(self, block: Block) -> GridBatch:
        """A block of the trained grid; ``block`` counts trained samples."""
        self.grid_split()
        batch = self.train_batch()
        assert isinstance(batch, GridBatch)
        return batch.block(block)

    # -- loaders --------------------------------------------------------------------------------------------------------

    def train_loader(self, batching: Batching, seed: int, process: Process, device: torch.device) -> TrainLoader:
        batch, steps = to_device(self.train_batch(), device), batching.steps_per_epoch
        if batching.kind == "full":
            return FullLoader(batch, steps or MAX_STEPS_PER_EPOCH, process)
        if batching.kind == "points":
            return PointLoader(batch, batching.num_points, steps, seed, process)
        sizes = self.grid_split().sizes
        assert isinstance(batch, GridBatch)
        return BlockLoader(sizes, batching.block(len(sizes)), batch.block, steps, seed, process, batching.shuffle)

    def evaluation_loader(self, process: Process, validation: bool = False) -> GridLoader[Any]:
        """Loader of the whole grid, for validation too: one batch in memory, or this process's blocks of a file."""
        batch = self.validation_batch if validation else self.evaluation_batch()
        return GridLoader([whole_grid(self.split.grid)], lambda _: batch)


class FileSignals(Signals):
    """Signals whose values are read from their file block by block when they are needed."""

    streamed = True
    lattice = None

    def calibration_batch(self) -> PointBatch:
        blocks = blocks_of(self.raw, CALIBRATION_BYTES)
        if len(blocks) > CALIBRATION_BLOCKS:
            blocks = [blocks[place * len(blocks) // CALIBRATION_BLOCKS] for place in range(CALIBRATION_BLOCKS)]
        indices, parts = [], []
        for block in blocks:
            inside, index = self.split.train_index(block)
            step = max(1, len(inside) * len(blocks) // DEFAULT_POINTS)
            indices.append(index[::step])
            parts.append(torch.from_numpy(self.raw.read(block)).flatten(1, -2).index_select(1, inside[::step]))
        return PointBatch.of_grid(self.axes, torch.cat(indices)[None], torch.cat(parts, 1))

    def central_block(self) -> GridBatch:
        sizes = self.grid_split().sizes
        wide = CENTRAL_BLOCK_SAMPLES.get(len(sizes), 16)
        firsts = [max(0, (n - wide) // 2) for n in sizes]
        return self.train_block(tuple(slice(a, min(a + wide, n)) for a, n in zip(firsts, sizes, strict=True)))

    def train_blocks(self, process: Process) -> Iterator[GridBatch]:
        split, raw = self.grid_split(), self.raw
        chunks = [max(1, chunk // step) for chunk, step in zip(raw.chunks, split.stride, strict=True)]
        blocks = file_blocks(split.sizes, chunks, 4 * raw.shape[0] * raw.channels * math.prod(split.stride))
        return map(self.train_block, blocks[process.share(len(blocks))])

    def train_block(self, block: Block) -> GridBatch:
        split, raw = self.grid_split(), self.raw
        index = [positions[part] for positions, part in zip(split.index, block, strict=True)]
        if all(len(i) for i in index):
            values = torch.from_numpy(raw.read(tuple(slice(int(i[0]), int(i[-1]) + 1) for i in index), split.stride))
        else:
            values = torch.zeros(raw.shape[0], *(len(i) for i in index), raw.channels)
        axes = tuple(x[i] for x, i in zip(self.axes, index, strict=True))
        return GridBatch(axes, values, start=tuple(part.start for part in block))

    def train_loader(self, batching: Batching, seed: int, process: Process, device: torch.device) -> TrainLoader:
        steps = batching.steps_per_epoch
        if batching.kind == "points":
            return FilePointLoader(self.raw, self.split, self.axes, batching.num_points, steps, seed, process)
        if batching.kind == "full":
            return super().train_loader(batching, seed, process, device)  # which refuses
        sizes = self.grid_split().sizes
        return BlockLoader(sizes, batching.block(len(sizes)), self.train_block, steps, seed, process, batching.shuffle)

    def evaluation_loader(self, process: Process, validation: bool = False) -> GridLoader[Any]:
        blocks = blocks_of(self.raw)
        # Lightning needs a batch in every process: one without blocks gets an empty batch
        own = blocks[process.share(len(blocks))] or [whole_grid([0, *self.split.grid[1:]])]
        return GridLoader(own, self._evaluation_block)

    def _evaluation_block(self, block: Block) -> GridBatch:
        return GridBatch(
            tuple(x[part] for x, part in zip(self.axes, block, strict=True)),
            torch.from_numpy(self.raw.read(block)),
            tuple(part.start for part in block),
            mask=self.split.test_mask(self.eval_mask, block),
            train_mask=self.split.train_mask(block),
        )


class TrainedGrid:
    """The trained grid of signals in a file, ``(S, n_1, ..., n_D, C)``, read by ``grid[signals, *block]``."""

    def __init__(self, signals: Signals, device: torch.device) -> None:
        split = signals.grid_split()
        self.signals, self.shape = signals, torch.Size((signals.info.num_signals, *split.sizes, signals.info.channels))
        self.dtype, self.device = torch.float32, device
        self.axes = tuple(x[index] for x, index in zip(signals.axes, split.index, strict=True))

    def __getitem__(self, index: tuple[slice, ...], /) -> Tensor:
        signals, *block = index
        return self.signals.train_block(tuple(block)).values[signals].to(self.device)


def _axes(info: SignalInfo) -> tuple[Tensor, ...]:
    # on longer axes the rounding error of float32 is not small against the distance of neighbours
    dtype = torch.float64 if max(info.grid) > MAX_FLOAT32_SAMPLES else torch.float32
    if any(axis.samples is not None for axis in info.axes):
        return tuple(torch.from_numpy(axis.grid()).to(dtype) for axis in info.axes)
    return grid_axes(info.grid, dtype)


def read_signals(
    signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any
) -> tuple[Signals, FoldSampling | None]:
    """Reads and splits signals.

    Args:
        signals: As of :func:`source_of`.
        **arguments: Arguments of :class:`Splitting` and of the source.

    Returns:
        The signals, and the folds by which they are scored, if there are some.
    """
    splitting = {name: arguments.pop(name) for name in inspect.signature(Splitting).parameters if name in arguments}
    options = Splitting(**splitting)
    return Signals.read(source_of(signals, **arguments), options), options.folds

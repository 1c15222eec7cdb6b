"""Samplings: named rules that choose the trained samples of a grid; and the options of a split."""

from __future__ import annotations

import hashlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pe_lightning.errors import InputError, refuse
from pe_lightning.registry import Description, Registry
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import PICTURES
from pe_lightning.signals.raw import Decoded, RawSignals
from pe_lightning.signals.sources.base import Source
from pe_lightning.signals.sources.missing import read_masks, spread_mask
from pe_lightning.signals.sources.paths import expand
from pe_lightning.signals.splits import (
    MIN_TRAINED_SAMPLES,
    EvalMask,
    GridSplit,
    PointSplit,
    RandomSplit,
    Split,
    ValidationShare,
    chosen_positions,
    largest_chosen_key,
)
from pe_lightning.signals.validation import choice, in_common, integer, integers, number

DEFAULT_VALIDATION = 0.1
"""Share of the trained samples that ``validation: auto`` holds out."""
FOLD_KEYS = 1 << 20
"""Stream of keys that choose folds: the stream of signal 0 is NumPy's own of the seed, by which masks may be drawn."""
BLOCK_SAMPLES = 16
"""Default samples per axis of the blocks of a fold."""

ROW_SEED = 0x524F5753
"""Second seed of the order in which rows of points are split."""

FoldsLike: TypeAlias = Literal["random", "blocks"] | Description
"""The kind of the folds, or a mapping of the arguments of :class:`FoldSampling`."""


class Sampling(ABC):
    """Base of samplings. A subclass stores every constructor argument as an attribute of its name, with plain values."""

    draws: ClassVar[bool] = False
    """Whether samples are drawn at random."""

    @abstractmethod
    def split(self, grid: Sequence[int], num_signals: int) -> Split:
        """Splits ``num_signals`` signals on a grid of ``(N_1, ..., N_D)`` samples."""

    def stream(self, grid: Sequence[int], num_signals: int) -> Split:
        """:meth:`split` for signals that are read from their file; the result should not list all samples."""
        return self.split(grid, num_signals)

    def split_known(self, grid: Sequence[int], num_signals: int, known: Tensor) -> Split:
        """:meth:`split` without missing samples: ``known``, ``(S, N_1, ..., N_D)``, is false there."""
        return self.split(grid, num_signals).without_missing(known)

    def split_rows(self, count: int, num_signals: int) -> PointSplit:
        """Splits ``count`` scattered points, the rows of a table."""
        split = self.split((count,), num_signals)
        if not isinstance(split, PointSplit):
            split = PointSplit((count,), torch.cat(list(split.train_indices))[None])
        if not self.draws:
            return split
        # NumPy's default_rng(seed) draws the same keys: coordinates drawn with one seed would be split by coordinate
        keys = np.random.PCG64(np.random.SeedSequence((count, ROW_SEED))).random_raw(count)
        order = torch.from_numpy(keys.argsort(kind="stable"))
        return replace(split, index=order[split.index].sort(1).values)

    def spec(self) -> dict[str, Any]:
        """Name and arguments as plain values; ``samplings.resolve`` returns an equal sampling."""
        arguments = {key: getattr(self, key) for key in inspect.signature(type(self)).parameters}
        return {"name": samplings.name_of(type(self)), **arguments}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.spec().items() if key != "name")
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sampling) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash(repr(self))


samplings: Registry[Sampling] = Registry("sampling", Sampling, "pe_lightning.samplings")  # type: ignore[type-abstract]


@samplings.register("grid")
class GridSampling(Sampling):
    """Every ``stride``-th sample of each axis, so that the trained samples form a grid.

    Args:
        stride: Distance between trained samples, in samples: one number for all axes, or one per axis. 1 trains on
            every sample.
        offset: The first trained sample, less than the stride: one number for all axes, or one per axis.
    """

    def __init__(self, stride: int | list[int] = 2, offset: int | list[int] = 0) -> None:
        self.stride = integers("stride", stride, 1)
        self.offset = integers("offset", offset, 0)
        if np.max(self.offset) >= np.max(self.stride):
            raise InputError(f"offset is the first trained sample and must be less than the stride {stride}; got {offset}")

    def split(self, grid: Sequence[int], num_signals: int) -> GridSplit:
        strides, offsets = (x if isinstance(x, list) else [x] * len(grid) for x in (self.stride, self.offset))
        axes = list(zip(offsets, grid, strides, strict=False))
        suits = all(offset < stride and offset + stride < size for offset, size, stride in axes)
        if not suits or not len(strides) == len(offsets) == len(grid):
            raise InputError(
                f"{self} does not suit signals of {len(grid)} axes ({_by(grid)} samples): strides and offsets are one "
                "number or one per axis, each offset must be less than its stride, and at least 2 samples of each axis are "
                f"trained on; set a stride of at most {max(min(grid) - 1, 1)}"
            )
        return GridSplit(tuple(grid), tuple(torch.arange(*axis) for axis in axes), tuple(strides))


@samplings.register("random")
class RandomSampling(Sampling):
    """A random subset of the samples, different for each signal, as in the papers.

    The choice depends only on the seed, the index of the signal and the grid: it is the same on every process, machine and
    version of NumPy. A smaller fraction is a subset of a larger one.

    Args:
        fraction: Trained share of the samples, in (0, 1]; rounded to whole samples, at least one.
        count: Number of trained samples, instead of a fraction.
        seed: Seed of the choice, a non-negative integer.
        shared: Whether all signals are trained on the same samples.
    """

    draws = True

    def __init__(self, fraction: float = 0.25, seed: int = 0, shared: bool = False, count: int | None = None) -> None:
        self.fraction = number("fraction", fraction, "(0, 1]", hint=", such as 0.25")
        self.seed = integer("seed", seed)
        self.shared = choice("shared", shared, (True, False))
        self.count = None if count is None else integer("count", count, 1)

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        size = math.prod(grid)
        index = self._chosen([size] * (1 if self.shared else num_signals), grid)
        return PointSplit(tuple(grid), torch.stack(index))

    def stream(self, grid: Sequence[int], num_signals: int) -> RandomSplit:
        if num_signals > 1 and not self.shared:
            raise InputError(
                f"{num_signals} signals that are read from their file need the same trained samples: set "
                "sampling: {name: random, shared: true}, or give one signal"
            )
        size = math.prod(grid)
        count = self._count(size, grid)
        return RandomSplit(tuple(grid), self.seed, count, largest_chosen_key(self.seed, 0, size, count))

    def split_known(self, grid: Sequence[int], num_signals: int, known: Tensor) -> Split:
        """Chooses among known samples; the fraction refers to the signal with the fewest."""
        if self.shared:
            return super().split_known(grid, num_signals, known)
        rows = [row.nonzero().flatten() for row in known.flatten(1)]
        chosen = self._chosen([len(row) for row in rows], grid)
        index = torch.stack([row[index] for row, index in zip(rows, chosen, strict=True)])
        return PointSplit(tuple(grid), index, known=known)

    def _chosen(self, sizes: Sequence[int], grid: Sequence[int]) -> list[Tensor]:
        count = self._count(min(sizes), grid)
        draws = [chosen_positions(self.seed, signal, size, count) for signal, size in enumerate(sizes)]
        return [torch.from_numpy(index) for index in draws]

    def _count(self, size: int, grid: Sequence[int]) -> int:
        count = max(round(self.fraction * size), 1) if self.count is None else self.count
        if count > size:
            raise InputError(f"count {count} is more than the {size} samples of a signal ({_by(grid)})")
        return count


@samplings.register("mask")
class MaskSampling(Sampling):
    """The samples at which a mask is not zero.

    Args:
        path: An image (for signals of 2 axes; a pixel is marked if a colour channel is not zero and it is not
            transparent) or a ``.npy`` file of booleans or numbers, of the shape of the grid, or of its leading or last axes.
            One file for all signals, or a list of one per signal, in order, which mark equally many samples. In Python also
            an array of such a shape for all signals.
        invert: Whether to train on the samples at which the mask is zero.
    """

    def __init__(self, path: str | list[str] | Tensor | NDArray[Any] = "", invert: bool = False) -> None:
        self.array: NDArray[np.bool_] | None = None
        if isinstance(path, (Tensor, np.ndarray)):
            self.array = np.asarray(path.cpu() if isinstance(path, Tensor) else path) != 0
            digest = hashlib.sha256(np.packbits(self.array).tobytes()).hexdigest()
            path = f"array of {'x'.join(map(str, self.array.shape))} samples, {digest[:8]}"
        if not path:
            raise InputError("path is the mask file, or a list of one per signal: sampling: {name: mask, path: FILE}")
        self.path = fspath(path) if isinstance(path, (str, PathLike)) else [fspath(one) for one in path]
        self.invert = choice("invert", invert, (True, False))

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        if self.array is not None:
            whole = spread_mask(self.array, grid, "sampling")
            return PointSplit(tuple(grid), torch.from_numpy(self._marked(whole, "sampling"))[None])
        files = expand(self.path, PICTURES | {"npy"}, "mask")
        masks = zip(files, read_masks(files, grid, num_signals), strict=True)
        indices = [self._marked(mask, file.given) for file, mask in masks]
        counts = [(file.given, len(index)) for file, index in zip(files, indices, strict=True)]
        in_common("numbers of samples that masks mark", counts, "Fit these signals in separate runs")
        return PointSplit(tuple(grid), torch.from_numpy(np.stack(indices)))

    def _marked(self, mask: NDArray[np.bool_], file: str) -> NDArray[np.int64]:
        index = np.flatnonzero(~mask if self.invert else mask).astype(np.int64, copy=False)
        if not len(index):
            raise InputError(
                f"the mask {file!r} marks no sample; set invert: {str(not self.invert).lower()}, or give another mask"
            )
        return index


@samplings.register("folds")
class FoldSampling(Sampling):
    """All samples outside one fold, for cross-validation; the folds are disjoint, and together all samples.

    Args:
        kind: ``random``: single samples. ``blocks``: blocks of samples, which show how gaps of that size are filled.
        number: Number of folds.
        fold: The fold that is not trained on, from 0.
        size: Samples of a block per axis; one number or one per axis. ``None``: 16, and at most a fifth of the axis.
        seed: Seed of the choice.
    """

    draws = True

    def __init__(
        self,
        kind: Literal["random", "blocks"] = "random",
        number: int = 5,
        fold: int = 0,
        size: int | list[int] | None = None,
        seed: int = 0,
    ) -> None:
        self.kind = choice("folds.kind", kind, ("random", "blocks"))
        self.number = integer("folds.number", number, 2)
        self.fold = integer("folds.fold", fold)
        self.size = None if size is None else integers("folds.size", size, 1)
        self.seed = integer("folds.seed", seed)
        refuse(
            (self.fold >= self.number, f"fold {fold} of {number} folds: folds count from 0 to {number - 1}"),
            (kind == "random" and size, "folds.size is the size of blocks; set kind: blocks, or leave it out"),
        )

    def sizes(self, grid: Sequence[int]) -> list[int]:
        if self.size is None:
            return [1 if self.kind == "random" else min(BLOCK_SAMPLES, max(1, n // 5)) for n in grid]
        sizes = self.size if isinstance(self.size, list) else [self.size] * len(grid)
        if len(sizes) != len(grid):
            raise InputError(f"folds.size {self.size} has {len(sizes)} numbers for signals of {len(grid)} axes; give one")
        return sizes

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        sizes = self.sizes(grid)
        counts = [-(-n // size) for n, size in zip(grid, sizes, strict=True)]
        blocks = math.prod(counts)
        if blocks < self.number:
            raise InputError(
                f"{self.number} folds of {blocks} block(s) of {_by(sizes)} samples: set a smaller folds.size or kind: random"
            )
        held_out = np.zeros(blocks, dtype=bool)
        # choices with one seed are nested: the fold is what its choice has more than the one before
        for folds, is_held_out in ((self.fold + 1, True), (self.fold, False)):
            if folds:
                held_out[chosen_positions(self.seed, FOLD_KEYS, blocks, blocks * folds // self.number)] = is_held_out
        mask = held_out.reshape(counts)
        for axis, (size, n) in enumerate(zip(sizes, grid, strict=True)):
            mask = mask.repeat(size, axis).take(range(n), axis)
        return PointSplit(tuple(grid), torch.from_numpy(np.flatnonzero(~mask))[None])

    def hold_out(self, fold: int) -> FoldSampling:
        return FoldSampling(self.kind, self.number, fold, self.size, self.seed)

    def words(self) -> str:
        if self.kind == "random":
            return f"{self.number} random folds"
        size = self.size or BLOCK_SAMPLES
        return f"{self.number} folds of blocks of {_by(size) if isinstance(size, list) else size} samples"


def make_folds(folds: FoldsLike | FoldSampling) -> FoldSampling:
    """The folds from their kind, or a mapping of arguments."""
    if isinstance(folds, FoldSampling):
        return folds
    made = samplings.resolve({"name": "folds", **({"kind": folds} if isinstance(folds, str) else folds)})
    assert isinstance(made, FoldSampling)
    return made


class Splitting:
    """Which samples are trained on and scored, and how they are stored.

    The arguments are described at :class:`~pe_lightning.training.SignalDataModule`.
    """

    def __init__(
        self,
        sampling: Sampling | str | Description | Tensor | np.ndarray[Any, Any] = "grid",
        eval_mask: EvalMask = "rest",
        storage: Storage | Mapping[str, Any] = Storage(),
        folds: FoldsLike | FoldSampling | None = None,
        validation: ValidationShare | None = None,
        samples: SampleKind = "points",
        added_noise: float = 0.0,
    ) -> None:
        self.eval_mask: EvalMask = choice("eval_mask", eval_mask, EvalMask)
        self.samples: SampleKind = choice("samples", samples, SampleKind)
        if validation is not None and validation not in (0, "auto"):
            number("validation", validation, "(0, 0.5]", hint=", such as 0.1, auto, or 0 for none")
        self.validation = validation
        self.added_noise = number("added_noise", added_noise, "[0, inf)", hint=", such as 0.1 for 20 dB")
        self.folds = None if folds is None else make_folds(folds)
        if isinstance(sampling, (Tensor, np.ndarray)):
            sampling = MaskSampling(sampling)
        chosen = samplings.resolve(sampling, default="grid")
        # folds are of everything that is known
        self.sampling = GridSampling(1) if self.folds is not None and chosen == GridSampling() else chosen
        self.storage = Storage(**storage) if isinstance(storage, Mapping) else storage

    def hold_out(self, source: Source, raw: RawSignals, split: Split, loaded: bool) -> tuple[Split, EvalMask]:
        """The split without validation samples, and the eval_mask in use; refuses what the signals cannot have."""
        nothing_scored = self.eval_mask == "rest" and split.trains_all
        even = raw.points is None and all(axis.samples is None for axis in raw.axes)
        refuse(
            (
                self.samples == "cells" and not even,
                "samples: cells is for grids of evenly spaced samples: leave it out",
            ),
            (
                not loaded and getattr(source, "missing", "nan") != "nan",
                "signals with missing samples are held in memory: set --data.storage.in_memory true, or make them smaller "
                "(resize, center_crop, frames, length)",
            ),
            (
                not loaded and isinstance(raw.values, Decoded),
                "these signals can only be read from the cache; leave it on (cache: auto)",
            ),
            (
                not loaded and self.validation not in (None, 0, "auto"),
                "validation samples are held out of signals in memory only: set in_memory: true, or validation: 0",
            ),
            (
                not loaded and self.added_noise > 0,
                "added_noise is for signals in memory: set --data.storage.in_memory true, or make them smaller",
            ),
            (
                self.folds is not None and not (nothing_scored and loaded),
                "folds score signals in memory whose known samples are all trained on: set --data.sampling.stride 1 and "
                "--data.storage.in_memory true, or leave out folds",
            ),
        )
        share = self.validation or 0.0
        if share == "auto":
            share = DEFAULT_VALIDATION if loaded and split.num_train >= MIN_TRAINED_SAMPLES else 0.0
        if nothing_scored and self.folds is None:
            rank_zero_info(
                f"Every sample is trained on ({self.sampling!r}), so eval_mask {self.eval_mask!r} scores nothing and "
                "is replaced by 'none': there is no held-out PSNR. Hold samples out, or set folds: random."
            )
        return split.with_validation(share) if share else split, "none" if nothing_scored else self.eval_mask


def split_samples(sampling: Sampling, info: SignalInfo, known: Tensor | None) -> Split:
    """The split of signals in memory; ``known``, ``(S, N_1, ..., N_D)``, is false at missing samples."""
    if info.num_points is not None:
        return sampling.split_rows(info.num_points, info.num_signals)
    if known is None:
        return sampling.split(info.grid, info.num_signals)
    return sampling.split_known(info.grid, info.num_signals, known)


def check_known(split: Split, known: Tensor) -> None:
    """Refuses too few known samples; a notice says how many are not trained on."""
    counts = known.flatten(1).sum(1)
    if split.num_train < 2:
        raise InputError(
            f"{int(counts.min())} of {known[0].numel()} samples are known, {split.num_train} would be trained on, "
            "and a fit needs at least 2: check what marks missing samples"
        )
    if isinstance(split, PointSplit) and split.trains_all and (surplus := int((counts - counts.min()).sum())):
        rank_zero_info(
            f"Signals that are fitted together are trained on equally many samples, {split.num_train}: {surplus} of "
            f"{int(counts.sum())} known samples, of signals with fewer missing ones, are not trained on. To train "
            "on all of them, fit one file at a time, or use pe-lightning fill, which fits each signal by itself."
        )


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))

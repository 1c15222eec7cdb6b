"""Signals that are read and checked, and split into trained and held-out samples; without Lightning."""

from __future__ import annotations

import hashlib
import inspect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pe_lightning.errors import InputError, refuse
from pe_lightning.registry import Description
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.blocks import FileValues, known_samples, load, report_missing, whole
from pe_lightning.signals.cache import Storage, open_signals
from pe_lightning.signals.dataset import SignalDataset
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.loaders import Batching
from pe_lightning.signals.raw import RawSignals, ValueRange
from pe_lightning.signals.sampling import (
    FoldSampling,
    FoldsLike,
    GridSampling,
    MaskSampling,
    Sampling,
    make_folds,
    samplings,
)
from pe_lightning.signals.sources.base import Source
from pe_lightning.signals.sources.kinds import source_of
from pe_lightning.signals.sources.paths import Paths
from pe_lightning.signals.sources.tensor import TensorSource
from pe_lightning.signals.splits import MIN_TRAINED_SAMPLES, EvalMask, GridSplit, PointSplit, Split, ValidationShare
from pe_lightning.signals.validation import choice, number

DEFAULT_VALIDATION = 0.1
"""Share of the trained samples that ``validation: auto`` holds out."""


class Splitting:
    """Which samples are trained on and scored, and how they are stored.

    The arguments are described at :class:`~pe_lightning.training.SignalDataModule`; ``batching`` is ``None`` for fits that
    take all samples at once, or block by block.
    """

    def __init__(
        self,
        sampling: Sampling | str | Description | Tensor | np.ndarray[Any, Any] = "grid",
        eval_mask: EvalMask = "rest",
        batching: Batching | Mapping[str, Any] | None = Batching(),
        storage: Storage | Mapping[str, Any] = Storage(),
        folds: FoldsLike | FoldSampling | None = None,
        validation: ValidationShare | None = None,
        samples: SampleKind = "points",
    ) -> None:
        self.eval_mask: EvalMask = choice("eval_mask", eval_mask, EvalMask)
        self.samples: SampleKind = choice("samples", samples, SampleKind)
        if validation is not None and validation not in (0, "auto"):
            number("validation", validation, "(0, 0.5]", hint=", such as 0.1, auto, or 0 for none")
        self.validation = validation
        self.folds = None if folds is None else make_folds(folds)
        if isinstance(sampling, (Tensor, np.ndarray)):
            sampling = MaskSampling(sampling)
        chosen = samplings.resolve(sampling, default="grid")
        # folds are of everything that is known
        self.sampling = GridSampling(1) if self.folds is not None and chosen == GridSampling() else chosen
        self.storage = Storage(**storage) if isinstance(storage, Mapping) else storage
        self.batching = Batching(**batching) if isinstance(batching, Mapping) else batching


@dataclass(eq=False)
class Signals:
    """Signals of one shape with the split of their samples.

    Args:
        source: Where the signals come from.
        sampling: The rule that chose the trained samples.
        raw: The signals as their source describes them.
        info: Their shape and origin.
        dataset: Their values, split and batches.
    """

    source: Source
    sampling: Sampling
    raw: RawSignals
    info: SignalInfo
    dataset: SignalDataset

    @classmethod
    def read(cls, source: Source, splitting: Splitting) -> Signals:
        sampling, eval_mask = splitting.sampling, splitting.eval_mask
        raw = open_signals(source, splitting.storage)
        scattered = raw.points is not None
        grid, count = (tuple(axis.size for axis in raw.axes), raw.grid[0]) if scattered else (raw.grid, None)
        info = SignalInfo(
            raw.names,
            grid,
            raw.channels,
            raw.scaling,
            raw.rate,
            raw.media,
            source.metric,
            raw.axes,
            count,
            splitting.samples,
        )
        if min(info.grid) < 2:
            raise InputError(f"the signals have {info.grid} samples; at least 2 are needed on each axis")
        loaded = scattered or splitting.storage.loads(raw)
        split = _split(sampling, info) if loaded else sampling.stream(raw.grid, info.num_signals)
        split.test_mask(eval_mask, tuple(slice(0, 1) for _ in raw.grid))  # raises if the mask does not apply
        values = load(raw) if loaded else None
        if values is not None and (known := known_samples(values)) is not None:
            report_missing(known, info.names)
            split = _split_of_known(sampling, info, known)
            values = values.where(known[..., None], torch.nan)
        nothing_scored = eval_mask == "rest" and split.trains_all
        _check(splitting, source, raw, split, loaded, nothing_scored)
        share = splitting.validation or 0.0
        if share == "auto":
            share = DEFAULT_VALIDATION if loaded and split.num_train >= MIN_TRAINED_SAMPLES else 0.0
        if share:
            split = split.with_validation(share)
        if nothing_scored and splitting.folds is None:
            rank_zero_info(
                f"Every sample is trained on ({sampling!r}), so eval_mask {eval_mask!r} scores nothing and is "
                "replaced by 'none': there is no held-out PSNR. Hold samples out, or set folds: random."
            )
        eval_mask = "none" if nothing_scored else eval_mask
        uneven = raw.axes if any(axis.samples is not None for axis in raw.axes) else ()
        points = None if raw.points is None else torch.from_numpy(raw.points)
        stored = FileValues(raw) if values is None else values
        dataset = SignalDataset(stored, split, eval_mask, uneven, info.cells, points, info.grid)
        signals = cls(source, sampling, raw, info, dataset)
        return signals.scaled(_trained_scaling(source, raw, split)) if signals.has_trained_range else signals

    @property
    def has_trained_range(self) -> bool:
        """Whether the trained samples give the range that becomes [0, 1]."""
        scaling = self.info.scaling
        measured = scaling.found_in_data and np.dtype(scaling.dtype).kind == "f" and not self.raw.unit
        return measured and self.source.trained_range(0.0, 2.0) is not None

    def scaled(self, scaling: ValueRange) -> Signals:
        """The signals with another scaling of the source's values to [0, 1]."""
        if scaling == self.info.scaling:
            return self
        raw, known = replace(self.raw, scaling=scaling), self.split.known
        values = FileValues(raw) if self.streamed else load(raw)
        if isinstance(values, Tensor) and known is not None:
            values = values.where(known[..., None], torch.nan)
        info, dataset = replace(self.info, scaling=scaling), replace(self.dataset, values=values)
        return replace(self, raw=raw, info=info, dataset=dataset)

    def resampled(self, sampling: Sampling, eval_mask: EvalMask = "rest") -> Signals:
        """The signals with the trained samples of another sampling."""
        split = _split(sampling, self.info, self.split.known)
        return replace(self, sampling=sampling, dataset=self.dataset.resampled(split, eval_mask))

    def one(self, signal: int) -> Signals:
        return self.of(slice(signal, signal + 1))

    def of(self, signals: slice) -> Signals:
        """Some of the signals."""
        low, high = zip(*(self.info.scaling.of(s) for s in range(self.info.num_signals)[signals]), strict=True)
        info = replace(self.info, names=self.info.names[signals], scaling=ValueRange(self.info.scaling.dtype, low, high))
        return replace(self, info=info, dataset=self.dataset.of(signals))

    @property
    def split(self) -> Split:
        return self.dataset.split

    @property
    def streamed(self) -> bool:
        return isinstance(self.dataset.values, FileValues)

    @property
    def values(self) -> Tensor:
        return self.dataset.in_memory()

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

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the values, the shape and the trained samples: 16 hexadecimal digits."""
        info, digest = self.info, hashlib.sha256()
        digest.update(f"{(info.num_signals, *self.split.grid, info.channels)} {self.split.num_train};".encode())
        points = () if self.raw.points is None else (self.raw.points,)
        values = self.raw.unit_blocks() if self.streamed else (self.values,)
        for numbers in itertools.chain(values, points, self.split.train_indices):
            digest.update(np.ascontiguousarray(numbers).data.cast("B"))
        return digest.hexdigest()[:16]

    def train_batch(self) -> GridBatch | PointBatch:
        return self.dataset.train_batch

    def calibration_batch(self) -> GridBatch | PointBatch:
        return self.dataset.calibration_batch()

    def evaluation_batch(self) -> GridBatch | PointBatch:
        return self.dataset.evaluation_batch


def _split(sampling: Sampling, info: SignalInfo, known: Tensor | None = None) -> Split:
    if info.num_points is not None:
        return sampling.split_rows(info.num_points, info.num_signals)
    if known is None:
        return sampling.split(info.grid, info.num_signals)
    return sampling.split_known(info.grid, info.num_signals, known)


def _split_of_known(sampling: Sampling, info: SignalInfo, known: Tensor) -> Split:
    """The split of signals with missing samples."""
    split, counts = _split(sampling, info, known), known.flatten(1).sum(1)
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
    return split


def _trained_scaling(source: Source, raw: RawSignals, split: Split) -> ValueRange:
    """The scaling by the trained samples, for which values are read again; signals with one range keep one."""
    if split.trains_all:
        return raw.scaling
    signals, rows, *rest = raw.shape[:-1]
    low, high, row = np.full(signals, np.inf), np.full(signals, -np.inf), 0
    for signal, block in raw.decoded():
        mask = split.train_mask((slice(row % rows, row % rows + len(block)), *whole(rest)))
        chosen = block[mask[signal % len(mask)].numpy()]
        low[signal] = min(low[signal], chosen.min(initial=np.inf, where=np.isfinite(chosen)))
        high[signal] = max(high[signal], chosen.max(initial=-np.inf, where=np.isfinite(chosen)))
        row += len(block)
    shared: dict[tuple[float, float], list[int]] = {}
    for signal in range(signals):
        shared.setdefault(raw.scaling.of(signal), []).append(signal)
    ranges: dict[tuple[float, float], tuple[float, float]] = {}
    for whole_range, some in shared.items():
        extremes = float(low[some].min()), float(high[some].max())
        if extremes[0] == extremes[1]:
            raise InputError(
                f"{raw.names[some[0]]}: all trained samples have the value {extremes[0]:g}; set value_range: [low, high], "
                "or train on more samples"
            )
        ranges[whole_range] = source.trained_range(*extremes) or whole_range
    every = [ranges[raw.scaling.of(signal)] for signal in range(signals if len(raw.scaling.low) > 1 else 1)]
    return ValueRange(raw.scaling.dtype, *zip(*every, strict=True))


def _check(splitting: Splitting, source: Source, raw: RawSignals, split: Split, loaded: bool, nothing_scored: bool) -> None:
    """Refuses what signals in their file, scattered points or a split without a grid cannot have."""
    batches = None if splitting.batching is None else splitting.batching.kind
    even = raw.points is None and all(axis.samples is None for axis in raw.axes)
    reason = "" if split.known is None else ", since trained samples are missing"
    refuse(
        (
            splitting.samples == "cells" and not even,
            "samples: cells is for grids of evenly spaced samples: leave it out",
        ),
        (
            not loaded and getattr(source, "missing", "nan") != "nan",
            "signals with missing samples are held in memory: set --data.storage.in_memory true, or make them smaller "
            "(resize, center_crop, frames, length)",
        ),
        (
            not loaded and splitting.validation not in (None, 0, "auto"),
            "validation samples are held out of signals in memory only: set in_memory: true, or validation: 0",
        ),
        (
            batches == "blocks" and (raw.points is not None or not isinstance(split, GridSplit)),
            f"batches of blocks need a training grid, which {splitting.sampling!r} does not give{reason}: set "
            "--data.batching.kind points",
        ),
        (
            splitting.folds is not None and not (nothing_scored and loaded),
            "folds score signals in memory whose known samples are all trained on: set --data.sampling.stride 1 and "
            "--data.storage.in_memory true, or leave out folds",
        ),
    )


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
    source = source_of(signals, **arguments)
    if isinstance(source, TensorSource):
        splitting.setdefault("storage", Storage(in_memory=True))
    options = Splitting(**{"batching": None, **splitting})
    return Signals.read(source, options), options.folds

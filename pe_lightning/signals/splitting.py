"""Options by which the samples of signals are split into trained and held-out ones, and the range of the trained values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from pe_lightning.errors import InputError, refuse
from pe_lightning.registry import Description
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.blocks import whole_grid
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import Decoded, RawSignals, ValueRange
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
from pe_lightning.signals.splits import MIN_TRAINED_SAMPLES, EvalMask, PointSplit, Split, ValidationShare
from pe_lightning.signals.validation import choice, number

DEFAULT_VALIDATION = 0.1
"""Share of the trained samples that ``validation: auto`` holds out."""


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
                f"Every sample is trained on ({self.sampling!r}), so eval_mask {self.eval_mask!r} scores nothing and is "
                "replaced by 'none': there is no held-out PSNR. Hold samples out, or set folds: random."
            )
        return split.with_validation(share) if share else split, "none" if nothing_scored else self.eval_mask


def split_samples(sampling: Sampling, info: SignalInfo, known: Tensor | None = None) -> Split:
    """The split of signals in memory; ``known``, ``(S, N_1, ..., N_D)``, is false at missing samples."""
    if info.num_points is not None:
        return sampling.split_rows(info.num_points, info.num_signals)
    if known is None:
        return sampling.split(info.grid, info.num_signals)
    return sampling.split_known(info.grid, info.num_signals, known)


def split_known_samples(sampling: Sampling, info: SignalInfo, known: Tensor) -> Split:
    """The split of signals with missing samples, with a notice of known samples that are not trained on."""
    split, counts = split_samples(sampling, info, known), known.flatten(1).sum(1)
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


def trained_scaling(source: Source, raw: RawSignals, split: Split) -> ValueRange:
    """The scaling by the trained samples, for which values are read again; signals with one range keep one."""
    if split.trains_all:
        return raw.scaling
    signals, rows, *rest = raw.shape[:-1]
    low, high, row = np.full(signals, np.inf), np.full(signals, -np.inf), 0
    for signal, block in raw.decoded():
        mask = split.train_mask((slice(row % rows, row % rows + len(block)), *whole_grid(rest)))
        chosen = block[mask[signal % len(mask)].numpy()]
        low[signal] = min(low[signal], chosen.min(initial=np.inf, where=np.isfinite(chosen)))
        high[signal] = max(high[signal], chosen.max(initial=-np.inf, where=np.isfinite(chosen)))
        row += len(block)
    shared: dict[tuple[float, float], list[int]] = {}
    for signal in range(signals):
        shared.setdefault(raw.scaling.limits(signal), []).append(signal)
    ranges: dict[tuple[float, float], tuple[float, float]] = {}
    for whole_range, some in shared.items():
        least, most = float(low[some].min()), float(high[some].max())
        if least == most:
            raise InputError(
                f"{raw.names[some[0]]}: all trained samples have the value {least:g}; set value_range: [low, high], "
                "or train on more samples"
            )
        is_unit = source.trained_range == "unit" and least >= 0 and most <= 1
        ranges[whole_range] = (0.0, 1.0) if is_unit else (least, most)
    every = [ranges[raw.scaling.limits(signal)] for signal in range(signals if len(raw.scaling.low) > 1 else 1)]
    return ValueRange(raw.scaling.dtype, *zip(*every, strict=True))

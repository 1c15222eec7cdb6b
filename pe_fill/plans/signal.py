"""One signal with missing samples: what plans read of it, and how it is scored by folds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pe_fill.adaptive.point_level import NUM_NEIGHBOURS
from pe_fill.estimators.adaptive import AdaptiveFit
from pe_fill.kriging.seasons import find_periods
from pe_fill.members.seasonal import MAX_SEASONAL
from pe_fill.memory import check_fit_memory
from pe_fill.mixture.gaps import has_wide_gaps, mean_distance
from pe_fill.mixture.limits import beyond_limits
from pe_fill.mixture.mixture import GapMixture
from pe_fill.plans.enlarging import Enlargement
from pe_fill.request import FillRequest
from pe_fill.sparse.patch_noise import noise_level
from pe_lightning.encoders import automatic_width, with_seed
from pe_lightning.errors import InputError
from pe_lightning.estimators import Field, Fits, LinearRidge
from pe_lightning.estimators.folds import FoldScore, predicted_at
from pe_lightning.signals import Axis, FoldSampling, GridSampling, Signals, Splitting, Storage, ValueRange
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.distributed import without_notices
from pe_lightning.signals.raw import AnyArray, Mask, Media
from pe_lightning.signals.sources import TensorSource

MAX_FOLD_SAMPLES = 1 << 16
"""Known samples of a signal over all folds that are fitted for its score; of larger signals fewer folds are scored."""
NO_FOLDS = "too few known samples, or too close to each other, to hold some out"


@dataclass
class FilledSignal:
    """One signal with its missing samples predicted.

    Args:
        name: Its name.
        num_missing: Missing samples.
        num_samples: All samples.
        model: The fitted model, or the mixture with the weights of its members; ``None`` if all missing samples are beyond a
            limit.
        unit: An error of 1 in [0, 1], in the units of the source.
        protocol: How the held-out known samples are chosen, or why there is no score.
        score: Score of the held-out samples.
        baselines: Scores of interpolation of the same samples.
        left_out: Reasons why other baselines have no score.
        noise: Standard deviation of the noise that ``smooth`` removed, in the units of the source; 0 if there was none, and
            ``None`` where a fit smooths as much as held-out samples support.
        periods: Periods of the values of a row, in the unit of its axis (of dates in seconds), or in samples.
        num_left: Samples that stay missing, beyond a limit.
    """

    name: str
    num_missing: int
    num_samples: int
    model: Field | GapMixture | Enlargement | None
    unit: float
    protocol: str = "no folds"
    score: FoldScore | None = None
    baselines: dict[str, FoldScore] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    noise: float | None = None
    periods: tuple[float, ...] = ()
    num_left: int = 0


class Outcome(NamedTuple):
    """A filled signal in the units and the dtype of the source, ``(N_1, ..., N_D, C)``, and how it was filled.

    ``std`` are standard deviations of missing samples, zero elsewhere, where they are requested and known.
    """

    values: AnyArray
    about: FilledSignal
    std: AnyArray | None = None


class Frame(NamedTuple):
    """What holds for all signals of a file: the axes, periods of rows in their unit, and the numbers of an enlargement.

    ``periods`` of ``None`` are found in the values. ``factors`` are samples of the result per sample and axis, none where a
    signal keeps its size.
    """

    axes: tuple[Axis, ...]
    periods: tuple[float, ...] | None
    media: Media
    factors: tuple[int, ...]
    samples: SampleKind


class Signal:
    """One signal ``(N_1, ..., N_D, C)`` with missing values, which are predicted."""

    def __init__(self, name: str, values: AnyArray, missing: Mask, request: FillRequest, frame: Frame) -> None:
        self.name, self.values, self.missing, self.request, self.frame = name, values, missing, request, frame
        self.unknown: Mask = np.asarray(missing.any(-1))
        """Samples with a missing channel."""
        self.grid, self.num_known = self.unknown.shape, int((~self.unknown).sum())
        if not self.num_known:
            raise InputError(_why_nothing_is_known(name, missing))
        self.left: Mask = np.zeros_like(self.unknown)
        """Missing samples that stay missing."""
        if request.is_limited:
            self.left = beyond_limits(self.unknown, frame.axes, request.max_gap, request.max_distance)
        self.filled = missing & ~self.left[..., None]
        """Values that are predicted."""
        self.scaling = _scaling(values, missing)
        unit = self.scaling.to_unit(np.where(missing, 0, values) if values.dtype.kind == "f" else values, 0)
        unit[self.unknown] = np.nan
        self.unit = torch.from_numpy(unit)
        """The values in [0, 1], NaN at unknown samples."""

    @cached_property
    def data(self) -> Signals:
        """The known samples, all trained on."""
        name = re.sub(r"[/\\\0]", "_", self.name) or "signal"
        return read_quietly(TensorSource(self.unit[None], [name], self.frame.axes))

    @cached_property
    def complete(self) -> Tensor:
        """The values of :attr:`data`, with missing samples predicted."""
        return complete(self.data)

    @cached_property
    def noise_level(self) -> float | None:
        """Standard deviation of white noise of a picture in [0, 1]; ``None`` if it is not found."""
        return noise_level(self.complete[0], torch.from_numpy(~self.unknown))

    @property
    def is_even(self) -> bool:
        """Whether its samples are at equal distances."""
        return all(axis.samples is None for axis in self.frame.axes)

    @property
    def adapts(self) -> bool:
        """Whether the model is not chosen, and local fits have enough samples."""
        return self.request.is_automatic and _adapts(self.grid, self.num_known)

    @property
    def fills(self) -> bool:
        """The same, where missing samples alone are predicted."""
        return self.adapts and not self.request.smooth and not self.frame.factors

    @property
    def length(self) -> float:
        """The length of [0, 1) of a row in the unit of its axis, or in samples."""
        return abs(self.frame.axes[0].length) if self.frame.axes else float(self.grid[0])

    @cached_property
    def periods(self) -> tuple[float, ...]:
        """Periods of the values of a row, relative to the length of [0, 1): given ones, or ones that are found."""
        (size,), axes, given, known = self.grid, self.frame.axes, self.frame.periods, ~self.unknown
        if given is not None:
            return tuple(period / self.length for period in given)
        if self.frame.media == "audio" or not 1 < self.num_known <= MAX_SEASONAL:
            return ()
        times = axes[0].grid() if axes else np.arange(size) / size
        return find_periods(times[known], self.unit.double().numpy()[known])

    def about(
        self, model: Field | GapMixture | Enlargement | None, periods: Sequence[float] = (), **scores: Any
    ) -> FilledSignal:
        """What is known of the filled signal; periods relative to the length of [0, 1)."""
        unit = self.scaling.high[0] - self.scaling.low[0]
        lengths = tuple(period * self.length for period in periods)
        counts = int(self.unknown.sum()), self.unknown.size
        return FilledSignal(self.name, *counts, model, unit, periods=lengths, num_left=int(self.left.sum()), **scores)

    def make_model(self, known: int, pretrained: str) -> Callable[[], Fits]:
        """A function that makes the chosen model for so many known samples."""
        request = self.request
        if not isinstance(request.model, str):
            return request.model
        adapts = _adapts(self.grid, known)
        if request.model == "adaptive" and not adapts:
            raise InputError(f"the adaptive fit needs more samples than {known}, of 1 to 3 axes: set model exact")
        if request.encoder is None and adapts and request.model != "exact":
            if known < math.prod(self.grid):
                check_fit_memory(known)
            return lambda: AdaptiveFit(noise="auto" if request.smooth else "none", pretrained=pretrained)
        return lambda: LinearRidge(automatic_width(with_seed(request.encoder or "laplace", request.seed)))

    def make_folds(self) -> tuple[FoldSampling, int, str] | None:
        """Folds with held-out samples as far from known ones as missing samples; how many are scored; both in words.

        A fold holds out at most half of the known samples. ``None`` if these are too few, or too close to each other, for
        folds that nobody has asked for.
        """
        folds, block, seed = self.request.folds, self.request.block, self.request.seed
        given, distance = folds in ("random", "blocks") or block is not None, mean_distance(self.unknown)
        if folds not in ("random", "blocks"):
            wide = block is not None or has_wide_gaps(distance, float(self.unknown.mean()), self.grid, seed)
            folds = "blocks" if wide else "random"
        if folds == "random" and block is not None:
            raise InputError("block is the size of blocks: set folds blocks, or leave it out")
        side = block or max(2, round(4 * distance - 2))  # samples of a long gap of width w are w/4 + 1/2 from its edges
        sizes = [min(side, max(1, n // 5)) if block is None else side for n in self.grid]
        for blocks in [sizes] * (folds == "blocks") + [None] * (folds == "random" or not given):
            number = min(5, math.prod(-(-n // size) for n, size in zip(self.grid, blocks or [1] * len(sizes), strict=True)))
            sampling = FoldSampling("blocks" if blocks else "random", max(2, number), size=blocks, seed=seed)
            most = min(number, max(1, MAX_FOLD_SAMPLES // self.num_known))
            masks = self.held_out(sampling) if number > 1 else iter([~self.unknown])
            counts = [int(mask.sum()) for mask in islice(masks, most)]
            if max(counts) <= min(self.num_known // 2, self.num_known - 2):
                some = f"{len(counts)} of " if len(counts) < number else ""
                return sampling, len(counts), some + sampling.words()
        if given:
            raise InputError(
                f"{self.name!r}, {sampling.words()}: a fold would hold out more than half of the {self.num_known} known "
                "samples: leave out folds and block, or set folds none"
            )
        return None

    def held_out(self, sampling: FoldSampling) -> Iterator[Mask]:
        """The known samples of each fold that has some."""
        for fold in range(sampling.number):
            trained = sampling.hold_out(fold).split(self.grid, 1).train_mask().reshape(self.grid).numpy()
            mask: Mask = ~self.unknown & ~trained
            if mask.any():
                yield mask


def read_quietly(source: TensorSource, samples: SampleKind = "points") -> Signals:
    """Values in memory, whose known samples are all trained on."""
    with without_notices():
        return Signals.read(source, Splitting(GridSampling(1), "none", Storage(in_memory=True), samples=samples))


def complete(data: Signals) -> Tensor:
    """The values of one signal ``(1, N_1, ..., N_D, C)``, with missing samples predicted."""
    values, trained = data.values.clone(), data.split.train_mask()
    if not bool(trained.all()):
        index = (~trained[0]).flatten().nonzero()[:, 0]
        filled = predicted_at(AdaptiveFit().fit(data), data.evaluation_batch(), index)
        values.view(1, -1, values.shape[-1])[:, index] = filled.clamp(0, 1)
    return values


def _adapts(grid: Sequence[int], known: int) -> bool:
    """Whether local fits have enough samples."""
    return len(grid) <= len(NUM_NEIGHBOURS) and known > 2 * NUM_NEIGHBOURS[min(len(grid), 3) - 1]


def _scaling(values: AnyArray, missing: Mask) -> ValueRange:
    """The range that becomes [0, 1]: all integers of 8 and 16 bits, else minimum and maximum of the known values."""
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2:
        return ValueRange.of_integers(values.dtype)
    known = values[~missing]
    low, high = float(known.min()), float(known.max())
    high = high if high > low else low + max(abs(low), 1.0)
    return ValueRange(values.dtype.name, (low,), (high,))


def _why_nothing_is_known(name: str, missing: Mask) -> str:
    """Why no sample ``(N_1, ..., N_D, C)`` is known in all channels, and what to do."""
    if missing.all():
        size = missing[..., 0].size
        return f"all {size} samples of {name!r} are missing: there is nothing to fit. A mask is 0 at known samples"
    if pattern := _bayer_pattern(missing):
        return (
            f"{name!r}: every pixel has one channel, in the Bayer pattern {pattern} of a camera: the package "
            "colour-demosaicing predicts the others, by colour_demosaicing.demosaicing_CFA_Bayer_Menon2007("
            f"np.where(missing, 0, values).sum(-1), {pattern!r})"
        )
    whole = [str(channel) for channel in range(missing.shape[-1]) if missing[..., channel].all()]
    which = f"channel {', '.join(whole)} is" if whole else "one channel or another of every sample is"
    return (
        f"{name!r}: {which} missing entirely, of {missing.shape[-1]} (from 0), and a sample is missing if one of "
        "its channels is: leave the channel out, or fill each channel as a signal"
    )


def _bayer_pattern(missing: Mask) -> str:
    """The colours of 2 x 2 pixels, such as ``RGGB``, if all pixels have one channel in such a pattern; else empty."""
    if missing.ndim != 3 or missing.shape[-1] != 3 or min(missing.shape[:2]) < 2:
        return ""
    cell = ~missing[:2, :2]
    pattern = "".join("RGB"[channel] for channel in cell.argmax(-1).flat)
    height, width = missing.shape[:2]
    repeated = np.tile(cell, (-(-height // 2), -(-width // 2), 1))[:height, :width]
    is_bayer = sorted(pattern) == ["B", "G", "G", "R"] and bool((cell.sum(-1) == 1).all())
    return pattern if is_bayer and np.array_equal(repeated, ~missing) else ""

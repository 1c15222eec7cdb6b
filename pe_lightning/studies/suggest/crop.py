"""The signals that ``suggest`` scores candidates on: all of them, or a crop of large ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import Block, known_samples
from pe_lightning.signals.split_signals import Signals
from pe_lightning.signals.splits import GridSplit, PointSplit, Split
from pe_lightning.training.datamodule import SignalDataModule

MAX_SAMPLES = 1 << 20
"""Most samples, over all signals, on which candidates are scored: a candidate of a million takes a third of a second."""
MAX_SIGNALS = 4
"""Most signals of a crop."""


@dataclass(frozen=True)
class ScoredSignals:
    """Signals with their trained and scored samples.

    Args:
        data: The signals, or a crop of some of them.
        whole: The split of the whole signals.
        crop: The crop in words, such as ``the central 256x256 samples``; empty: all samples.
    """

    data: Signals
    whole: Split
    crop: str = ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Trained samples per axis; for scattered samples, the size of a grid of the same density."""
        return _sizes(self.data.split)

    def auto_features(self) -> list[tuple[int, int]]:
        """``num_features: auto`` per axis, for these signals and the whole ones; of scattered samples the grid's size."""
        sizes = list(zip(self.sizes, _sizes(self.whole), strict=True))
        if isinstance(self.data.split, GridSplit):
            return sizes
        grid = self.data.info.grid
        return [(n, n if size == whole else round(n * whole / size)) for n, (size, whole) in zip(grid, sizes, strict=True)]


def _sizes(split: Split) -> tuple[int, ...]:
    if isinstance(split, GridSplit):
        return split.sizes
    share = (split.num_train / math.prod(split.grid)) ** (1 / len(split.grid))
    return tuple(max(1, round(n * share)) for n in split.grid)


def scored_signals(data: SignalDataModule, max_samples: int = MAX_SAMPLES) -> ScoredSignals:
    """All signals; of large ones, or ones that stay in their file, the central samples of a few.

    A crop has the proportions of the signals, and begins at a trained sample.
    """
    whole, split, info = data.signals, data.signals.split, data.info
    if not whole.streamed and info.num_signals * math.prod(info.grid) <= max_samples:
        return ScoredSignals(whole, split)
    if isinstance(split, GridSplit):
        positions, stride = split.index, split.stride
    elif whole.streamed:
        raise InputError(
            "the exact fit of random samples needs the signals in memory: set --data.storage.in_memory true, or "
            "--data.sampling grid"
        )
    else:
        positions, stride = tuple(torch.arange(n) for n in info.grid), (1,) * info.num_axes
    count = min(info.num_signals, MAX_SIGNALS)
    signals = [number * info.num_signals // count for number in range(count)]
    share = min(1.0, (max_samples / (count * math.prod(info.grid))) ** (1 / info.num_axes))
    sizes = [max(2, int(share * len(along))) for along in positions]  # trained samples of the crop
    corner = [int(along[(len(along) - n) // 2]) for along, n in zip(positions, sizes, strict=True)]
    grid = tuple((n - 1) * step + 1 for n, step in zip(sizes, stride, strict=True))
    block = tuple(slice(i, i + n) for i, n in zip(corner, grid, strict=True))
    index = (slice(None), *block)
    values = (torch.from_numpy(whole.raw.read(block)) if whole.loaded is None else whole.loaded[index])[signals]
    cropped = _split_of_crop(split, grid, block, signals, info.num_signals)
    if (known := known_samples(values)) is not None:
        cropped = replace(cropped, known=known)
    # as in the signal, trained samples are at multiples of 1/n, which are the shifts of n features
    axes = tuple(torch.arange(n) / (w * step) for n, w, step in zip(grid, sizes, stride, strict=True))
    words = f"the central {'x'.join(map(str, grid))} samples"
    words = words if info.num_signals == 1 else f"{words} of {count} of {info.num_signals} signals"
    names = tuple(info.names[signal] for signal in signals)
    info = replace(info, names=names, grid=grid, samples="points")
    noise = None if whole.noise is None else whole.noise[index][signals]
    part = Signals(whole.source, whole.raw, info, cropped, whole.eval_mask, values, axes, noise)
    return ScoredSignals(part, split, words)


def _split_of_crop(split: Split, grid: tuple[int, ...], block: Block, signals: Sequence[int], num_signals: int) -> Split:
    if isinstance(split, GridSplit):
        index = tuple(torch.arange(0, n, step) for n, step in zip(grid, split.stride, strict=True))
        return GridSplit(grid, index, split.stride)
    masks = split.train_mask(block).expand(num_signals, *grid)[signals]
    points = [row.nonzero()[:, 0] for row in masks.flatten(1)]
    fewest = min(map(len, points))
    if fewest < 1:
        raise InputError("the centre of a signal has no trained sample; set a larger --data.sampling.fraction")
    # signals that are fitted together need the same number of points: the surplus is left out evenly
    return PointSplit(grid, torch.stack([row[torch.arange(fewest) * len(row) // fewest] for row in points]))

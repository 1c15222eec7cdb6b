"""The signals that ``suggest`` scores candidates on: all of them, and windows of some."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import Block, FileValues, known_samples
from pe_lightning.signals.dataset import SignalDataset
from pe_lightning.signals.split_signals import Signals
from pe_lightning.signals.splits import GridSplit, PointSplit, Split
from pe_lightning.training.datamodule import SignalDataModule

WINDOW_SIZES = {1: 512, 2: 64, 3: 24}
"""Trained samples per axis of a window, by number of axes; 16 for more axes."""
MAX_WINDOWS = 4
"""Largest number of windows, over all signals."""


@dataclass(frozen=True)
class ScoredSignals:
    """Signals with their trained and scored samples; ``text`` describes them in messages."""

    data: Signals
    whole: Split
    """The split of the whole signals, if these are windows."""
    text: str

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


def all_signals(data: SignalDataModule) -> ScoredSignals | None:
    """All signals; ``None`` if they are streamed from their file."""
    if data.streamed:
        return None
    return ScoredSignals(data.signals, data.split, "all samples")


def make_windows(data: SignalDataModule) -> ScoredSignals | None:
    """Windows of some signals, whose corners are trained samples; ``None`` if they would contain most of the data."""
    split, info, num_axes = data.split, data.info, data.info.num_axes
    size: float = WINDOW_SIZES.get(num_axes, 16)
    if isinstance(split, GridSplit):
        positions, stride = split.index, split.stride
    elif data.streamed:
        raise InputError(
            "the exact fit of random samples needs the signals in memory: set --data.storage.in_memory true, or "
            "--data.sampling grid"
        )
    else:
        positions, stride = tuple(torch.arange(n) for n in info.grid), (1,) * num_axes
        size /= (split.num_train / math.prod(info.grid)) ** (1 / num_axes)
    count = min(info.num_signals, MAX_WINDOWS)
    signals = [number * info.num_signals // count for number in range(count)]
    axes = [(len(along), min(len(along), round(size))) for along in positions]  # trained samples of the signal, of a window
    # windows of a signal are evenly spaced along its diagonal, without overlap
    per_signal = max(1, min(MAX_WINDOWS // count, max(n // w for n, w in axes)))
    starts = [
        [min(max((2 * number + 1) * n // (2 * per_signal) - w // 2, 0), n - w) for n, w in axes]
        for number in range(per_signal)
    ]
    in_windows = count * per_signal * math.prod(w for _, w in axes)
    in_signals = info.num_signals * math.prod(n for n, _ in axes)
    if not data.streamed and in_signals <= 1.5 * in_windows:
        return None
    grid = tuple((w - 1) * step + 1 for (_, w), step in zip(axes, stride, strict=True))
    corners = [[int(along[i]) for along, i in zip(positions, start, strict=True)] for start in starts]
    blocks = [tuple(slice(i, i + n) for i, n in zip(corner, grid, strict=True)) for corner in corners]
    values = data.dataset.values
    if isinstance(values, FileValues):
        read = [values.read(block) for block in blocks]
    else:
        read = [values[index] for index in [(slice(None), *block) for block in blocks]]
    windows = torch.cat([window[signals] for window in read])
    windowed = _split_of_windows(split, grid, blocks, signals, info.num_signals)
    names = tuple(f"{info.names[signal]} {number}" for number in range(per_signal) for signal in signals)
    if (known := known_samples(windows)) is not None:
        windowed = replace(windowed, known=known)
    dataset = SignalDataset(windows, windowed, data.effective_eval_mask)
    # as in the signal, trained samples are at multiples of 1/w, which are the shifts of w features
    dataset.axes = tuple(torch.arange(n) / (w * step) for n, (_, w), step in zip(grid, axes, stride, strict=True))
    sizes = "x".join(map(str, grid))
    text = f"{len(names)} windows of {sizes} samples from {count} of {info.num_signals} signal(s)"
    return ScoredSignals(replace(data.signals, info=replace(info, names=names, grid=grid), dataset=dataset), split, text)


def _split_of_windows(
    split: Split, grid: tuple[int, ...], blocks: Sequence[Block], signals: Sequence[int], num_signals: int
) -> Split:
    if isinstance(split, GridSplit):
        index = tuple(torch.arange(0, n, step) for n, step in zip(grid, split.stride, strict=True))
        return GridSplit(grid, index, split.stride)
    masks = torch.cat([split.train_mask(block).expand(num_signals, *grid)[signals] for block in blocks])
    points = [row.nonzero()[:, 0] for row in masks.flatten(1)]
    fewest = min(map(len, points))
    if fewest < 1:
        raise InputError("a window of the signals has no trained sample; set a larger --data.sampling.fraction")
    # windows that are fitted together need the same number of points: the surplus is left out evenly
    return PointSplit(grid, torch.stack([row[torch.arange(fewest) * len(row) // fewest] for row in points]))

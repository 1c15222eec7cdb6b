"""The signals that encoders are judged on: all of them, or windows of some where that would take too long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from pe_lightning.blocks import Block
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import SignalDataset
from pe_lightning.data.splits import GridSplit, PointSplit, Split
from pe_lightning.data.values import FileValues
from pe_lightning.errors import InputError

__all__ = ["ScoredSignals", "all_signals", "make_windows"]

SIDE = {1: 512, 2: 64, 3: 24}
"""Trained samples per axis of a window, by number of axes."""
WINDOWS = 4
"""Windows of all signals together."""


@dataclass(frozen=True)
class ScoredSignals:
    """Signals with their trained and their scored samples.

    Args:
        dataset: The samples.
        info: Shape and names.
        text: Description for the user.
        sizes: Trained samples per axis; of scattered ones, those of a grid of the same density.
        full_sizes: Those of the whole signals, where these are windows.
    """

    dataset: SignalDataset
    info: SignalInfo
    text: str
    sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]

    def auto_features(self) -> list[tuple[int, int]]:
        """What ``num_features: auto`` is per axis, of these signals and of the whole ones; scattered: the grid's size."""
        if isinstance(self.dataset.split, GridSplit):
            return list(zip(self.sizes, self.full_sizes, strict=True))
        per_axis = zip(self.info.grid, self.sizes, self.full_sizes, strict=True)
        return [(n, n if size == whole else round(n * whole / size)) for n, size, whole in per_axis]


def _sizes(split: Split) -> tuple[int, ...]:
    if isinstance(split, GridSplit):
        return split.sizes
    share = (split.num_train / math.prod(split.grid)) ** (1 / len(split.grid))
    return tuple(max(1, round(n * share)) for n in split.grid)


def all_signals(data: SignalDataModule) -> ScoredSignals | None:
    """All signals; ``None`` if they stay in their file."""
    if data.streamed:
        return None
    sizes = _sizes(data.split)
    return ScoredSignals(data.dataset, data.info, "all samples", sizes, sizes)


def make_windows(data: SignalDataModule) -> ScoredSignals | None:
    """Windows of some signals, each from a trained sample to another; ``None`` if that is most of the data.

    Raises:
        InputError: If the signals stay in their file and the trained samples are no grid.
    """
    split, info, num_axes = data.split, data.info, data.info.num_axes
    side: float = SIDE.get(num_axes, 16)
    if isinstance(split, GridSplit):
        positions, stride = split.index, split.stride
    elif data.streamed:
        raise InputError(
            "random samples of signals that stay in their file cannot be solved for: set --data.in_memory true, or "
            "--data.sampling grid"
        )
    else:
        positions, stride = tuple(torch.arange(n) for n in info.grid), (1,) * num_axes
        side /= (split.num_train / math.prod(info.grid)) ** (1 / num_axes)
    count = min(info.num_signals, WINDOWS)
    signals = [turn * info.num_signals // count for turn in range(count)]
    axes = [(len(along), min(len(along), round(side))) for along in positions]
    # along the diagonal, evenly spread and not overlapping
    turns = max(1, min(WINDOWS // count, max(n // w for n, w in axes)))
    starts = [[min(max((2 * turn + 1) * n // (2 * turns) - w // 2, 0), n - w) for n, w in axes] for turn in range(turns)]
    taken, there = count * turns * math.prod(w for _, w in axes), info.num_signals * math.prod(n for n, _ in axes)
    if not data.streamed and there <= 1.5 * taken:
        return None
    grid = tuple((w - 1) * step + 1 for (_, w), step in zip(axes, stride, strict=True))
    corners = [[int(along[i]) for along, i in zip(positions, start, strict=True)] for start in starts]
    blocks = [tuple(slice(i, i + n) for i, n in zip(corner, grid, strict=True)) for corner in corners]
    values = data.dataset.values
    whole = [(slice(None), *box) for box in blocks]
    read = [values.read(box[1:]) if isinstance(values, FileValues) else values[box] for box in whole]
    cut = _cut(split, grid, blocks, signals, info.num_signals)
    names = tuple(f"{info.names[signal]} {turn}" for turn in range(turns) for signal in signals)
    dataset = SignalDataset(torch.cat([window[signals] for window in read]), cut, data.effective_protocol)
    # as in the signal, trained samples lie at multiples of 1 / w, where as many features have their shifts
    dataset.axes = tuple(torch.arange(n) / (w * step) for n, (_, w), step in zip(grid, axes, stride, strict=True))
    return ScoredSignals(
        dataset,
        replace(info, names=names, grid=grid),
        f"{len(names)} windows of {'x'.join(map(str, grid))} samples from {count} of {info.num_signals} signal(s)",
        _sizes(cut),
        _sizes(split),
    )


def _cut(split: Split, grid: tuple[int, ...], blocks: Sequence[Block], signals: Sequence[int], num_signals: int) -> Split:
    """The trained samples of the windows."""
    if isinstance(split, GridSplit):
        index = tuple(torch.arange(0, n, step) for n, step in zip(grid, split.stride, strict=True))
        return GridSplit(grid, index, split.stride)
    masks = torch.cat([split.train_mask_of(block).expand(num_signals, *grid)[signals] for block in blocks])
    points = [row.nonzero()[:, 0] for row in masks.flatten(1)]
    fewest = min(map(len, points))
    if fewest < 1:
        raise InputError("a window of the signals has no trained sample: train on more, --data.sampling.fraction")
    # signals that are fitted together have equally many points: the surplus of the others, evenly spread, is left out
    return PointSplit(grid, torch.stack([row[torch.arange(fewest) * len(row) // fewest] for row in points]))

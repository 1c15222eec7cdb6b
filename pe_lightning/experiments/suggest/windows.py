"""The signals that encoders are judged on: all of them, or windows of some where that would take too long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pe_lightning.blocks import Block, shape_of
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import SignalDataset
from pe_lightning.data.splits import GridSplit, PointSplit, Protocol, Split
from pe_lightning.data.values import FileValues
from pe_lightning.errors import InputError

__all__ = ["ScoredSignals", "all_signals", "make_windows"]

WINDOW = {1: 512, 2: 64 * 64, 3: 24**3}
"""Trained samples of a window, by number of axes."""
WINDOWS = 4
"""Windows of all signals together."""


@dataclass(frozen=True)
class ScoredSignals:
    """Signals with their trained and their scored samples.

    Args:
        dataset: The trained samples.
        info: Shape and names.
        scored: Which samples are scored, ``(S or 1, N_1, ..., N_D)``.
        text: Description for the user.
        sizes: Trained samples per axis; of scattered ones, those of a grid of the same density.
        full_sizes: Those of the whole signals, where these are windows.
    """

    dataset: SignalDataset
    info: SignalInfo
    scored: Tensor
    text: str
    sizes: tuple[int, ...]
    full_sizes: tuple[int, ...]


def _sizes(split: Split) -> tuple[int, ...]:
    if isinstance(split, GridSplit):
        return tuple(len(index) for index in split.index)
    share = (split.num_train / math.prod(split.grid)) ** (1 / len(split.grid))
    return tuple(max(1, round(n * share)) for n in split.grid)


def all_signals(data: SignalDataModule) -> ScoredSignals | None:
    """All signals; ``None`` if they stay in their file."""
    if data.streamed:
        return None
    mask = data.evaluation_batch().mask
    assert mask is not None
    sizes = _sizes(data.split)
    return ScoredSignals(data.dataset, data.info, mask, "all samples", sizes, sizes)


def make_windows(data: SignalDataModule) -> ScoredSignals | None:
    """Windows of some signals, with the same samples trained and scored; ``None`` if that is most of the data.

    Raises:
        InputError: If the signals stay in their file and the trained samples are no grid.
    """
    split, info = data.split, data.info
    if data.streamed and not isinstance(split, GridSplit):
        raise InputError(
            "random samples of signals that stay in their file cannot be solved for: set --data.in_memory true, or "
            "--data.sampling grid"
        )
    limit = WINDOW.get(info.num_axes, 16**info.num_axes)
    count = min(info.num_signals, WINDOWS)
    chosen = [turn * info.num_signals // count for turn in range(count)]
    if isinstance(split, GridSplit):
        positions, stride = split.index, split.stride
    else:
        positions, stride = tuple(torch.arange(n) for n in info.grid), (1,) * info.num_axes
        limit = round(limit * math.prod(info.grid) / split.num_train)
    sizes = [len(axis) for axis in positions]
    sides = _sides(sizes, limit)
    starts = _starts(sizes, sides, WINDOWS // count)
    if not data.streamed and info.num_signals * math.prod(sizes) <= 1.5 * count * len(starts) * math.prod(sides):
        return None
    # as many samples per trained one as in the signal; all as long as the one at the signal's end
    corners = [tuple(int(x[i]) for x, i in zip(positions, start, strict=True)) for start in starts]
    lengths = [min(sides[a] * stride[a], *(n - corner[a] for corner in corners)) for a, n in enumerate(info.grid)]
    blocks = [tuple(slice(i, i + n) for i, n in zip(corner, lengths, strict=True)) for corner in corners]
    values, grid = data.dataset.values, shape_of(blocks[0])
    read = [values.read(block) if isinstance(values, FileValues) else _of(values, block) for block in blocks]
    cut, scored = _cut(split, data.effective_protocol, blocks, chosen)
    names = tuple(f"{info.names[signal]} {turn}" for turn in range(len(blocks)) for signal in chosen)
    return ScoredSignals(
        SignalDataset(torch.cat([window[chosen] for window in read]), cut, data.effective_protocol),
        replace(info, names=names, grid=grid),
        scored,
        f"{len(names)} windows of {'x'.join(map(str, grid))} samples from {count} of {info.num_signals} signal(s)",
        _sizes(cut),
        _sizes(split),
    )


def _sides(sizes: Sequence[int], limit: int) -> list[int]:
    """Sides of a window of about ``limit`` samples, none longer than its axis."""
    sides, left, axes = [0] * len(sizes), float(limit), len(sizes)
    for axis in sorted(range(len(sizes)), key=lambda a: sizes[a]):
        sides[axis] = min(sizes[axis], max(2, round(left ** (1 / axes))))
        left, axes = left / sides[axis], axes - 1
    return sides


def _starts(sizes: Sequence[int], sides: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """First samples of at most ``count`` windows along the diagonal, evenly spread and not overlapping."""
    axes = list(zip(sizes, sides, strict=True))
    turns = max(1, min(count, max(n // w for n, w in axes)))
    return [tuple(min(max((2 * turn + 1) * n // (2 * turns) - w // 2, 0), n - w) for n, w in axes) for turn in range(turns)]


def _of(values: Tensor, block: Block) -> Tensor:
    index = (slice(None), *block)
    return values[index]


def _cut(split: Split, protocol: Protocol, blocks: Sequence[Block], signals: Sequence[int]) -> tuple[Split, Tensor]:
    """The trained and the scored samples of the windows."""
    grid = shape_of(blocks[0])
    if isinstance(split, GridSplit):  # which looks the same from every trained sample
        scored, inside = split.test_mask_of(protocol, blocks[0]).clone(), split.positions_in(blocks[0])
        for axis, positions in enumerate(inside):
            # past the last trained sample lies the border of the window, which the signal does not have
            scored.movedim(axis + 1, 0)[int(positions[-1]) + 1 :] = False
        return GridSplit(grid, inside, split.stride), scored

    def stacked(masks: Sequence[Tensor]) -> Tensor:
        return torch.cat([mask[signals] if len(mask) > 1 else mask.expand(len(signals), *grid) for mask in masks])

    points = [row.nonzero()[:, 0] for row in stacked([split.train_mask_of(block) for block in blocks]).flatten(1)]
    fewest = min(map(len, points))
    if fewest < 1:
        raise InputError("a window of the signals has no trained sample: train on more, --data.sampling.fraction")
    # every signal has equally many points: the surplus of the others, spread evenly, is neither trained nor scored
    index = torch.stack([row[torch.arange(fewest) * len(row) // fewest] for row in points])
    return PointSplit(grid, index), stacked([split.test_mask_of(protocol, block) for block in blocks])

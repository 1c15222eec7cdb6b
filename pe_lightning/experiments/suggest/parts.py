"""The signals that encoders are judged on: all of them, or windows of some where that would take too long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pe_lightning.blocks import Block
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import SignalDataset
from pe_lightning.data.splits import GridSplit, PointSplit, Split
from pe_lightning.data.values import FileValues
from pe_lightning.errors import InputError

__all__ = ["Part", "make_windows", "whole"]

WINDOW = {1: 512, 2: 64 * 64, 3: 24**3}
"""Trained samples of a window."""
WINDOWS = 4
"""Windows of all signals together."""


@dataclass(frozen=True)
class Part:
    """Signals with their trained and their scored samples.

    Args:
        dataset: The trained samples.
        info: Shape and names.
        scored: Which samples are scored, ``(S or 1, N_1, ..., N_D)``.
        words: What it is, for the user.
        full: Trained samples per axis of the whole signals, where these are windows.
    """

    dataset: SignalDataset
    info: SignalInfo
    scored: Tensor
    words: str
    full: tuple[int, ...] = ()

    @property
    def spread(self) -> tuple[int, ...]:
        """Trained samples per axis; of scattered ones, as many as a grid of the same density would have."""
        return _spread(self.dataset.split)

    @property
    def full_spread(self) -> tuple[int, ...]:
        """As :attr:`spread`, of the whole signals."""
        return self.full or self.spread


def _spread(split: Split) -> tuple[int, ...]:
    if isinstance(split, GridSplit):
        return tuple(len(index) for index in split.index)
    share = (split.num_train / math.prod(split.grid)) ** (1 / len(split.grid))
    return tuple(max(1, round(n * share)) for n in split.grid)


def whole(data: SignalDataModule) -> Part | None:
    """All signals; ``None`` if they stay in their file."""
    if data.streamed:
        return None
    mask = data.evaluation_batch().mask
    assert mask is not None
    return Part(data.dataset, data.info, mask, "all samples")


def make_windows(data: SignalDataModule) -> Part | None:
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
    signals = sorted({i * info.num_signals // min(info.num_signals, WINDOWS) for i in range(min(info.num_signals, WINDOWS))})
    if isinstance(split, GridSplit):
        sizes, stride = [len(index) for index in split.index], split.stride
    else:
        sizes, stride = list(info.grid), (1,) * info.num_axes
        limit = round(limit * math.prod(info.grid) / split.num_train)
    sides = _sides(sizes, limit)
    places = _places(sizes, sides, WINDOWS // len(signals))
    if not data.streamed and info.num_signals * math.prod(sizes) <= 1.5 * len(signals) * len(places) * math.prod(sides):
        return None
    # as long as the shortest: the grid can end within a stride of the last trained sample
    starts = [tuple(i * s for i, s in zip(at, stride, strict=True)) for at in places]
    lengths = [
        min(w * s, *(n - start[a] for start in starts))
        for a, (w, s, n) in enumerate(zip(sides, stride, info.grid, strict=True))
    ]
    boxes = [tuple(slice(i, i + length) for i, length in zip(start, lengths, strict=True)) for start in starts]
    values = data.dataset.values
    parts = [(values.read(box) if isinstance(values, FileValues) else _of(values, box))[signals] for box in boxes]
    names = tuple(f"{info.names[signal]} {turn}" for turn in range(len(boxes)) for signal in signals)
    grid = tuple(parts[0].shape[1:-1])
    cut, scored = _cut(split, data, boxes, signals, grid)
    dataset = SignalDataset(torch.cat(parts).contiguous(), cut, data.effective_protocol)
    inside = "x".join(map(str, grid))
    words = f"{len(names)} windows of {inside} samples from {len(signals)} of {info.num_signals} signal(s)"
    return Part(dataset, replace(info, names=names, grid=grid), scored, words, _spread(split))


def _sides(sizes: Sequence[int], limit: int) -> list[int]:
    """Sides of a window of about ``limit`` samples, none longer than its axis."""
    sides, left, axes = [0] * len(sizes), float(limit), len(sizes)
    for axis in sorted(range(len(sizes)), key=lambda a: sizes[a]):
        sides[axis] = min(sizes[axis], max(2, round(left ** (1 / axes))))
        left, axes = left / sides[axis], axes - 1
    return sides


def _places(sizes: Sequence[int], sides: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """First samples of at most ``count`` windows along the diagonal, evenly spread and not overlapping."""
    pairs = list(zip(sizes, sides, strict=True))
    turns = max(1, min(count, max(n // w for n, w in pairs)))
    # in the middle of equal pieces of an axis: apart from each other on the axis that has the most room
    return [tuple(min(max((2 * turn + 1) * n // (2 * turns) - w // 2, 0), n - w) for n, w in pairs) for turn in range(turns)]


def _of(values: Tensor, box: Block) -> Tensor:
    index = (slice(None), *box)
    return values[index]


def _cut(
    split: Split, data: SignalDataModule, boxes: Sequence[Block], signals: Sequence[int], grid: tuple[int, ...]
) -> tuple[Split, Tensor]:
    """The trained and the scored samples of the windows."""
    masks = [split.test_mask_of(data.effective_protocol, box) for box in boxes]
    scored = torch.cat([mask[signals] if len(mask) > 1 else mask.expand(len(signals), *grid) for mask in masks])
    if isinstance(split, GridSplit):
        inside = split.positions_in(boxes[0])
        scored = scored.clone()
        for axis, positions in enumerate(inside):
            # past the last trained sample lies the border of the window, which the signal does not have
            scored.movedim(axis + 1, 0)[int(positions[-1]) + 1 :] = False
        return GridSplit(grid, inside, split.stride), scored
    trained = [split.train_mask_of(box) for box in boxes]
    rows = torch.cat([mask[signals] if len(mask) > 1 else mask.expand(len(signals), *grid) for mask in trained]).flatten(1)
    fewest = int(rows.sum(1).min())
    if fewest < 1:
        raise InputError("a window of the signals has no trained sample: train on more, --data.sampling.fraction")
    # every signal has equally many points: the surplus of the others, spread evenly, is neither trained nor scored
    index = []
    for row in rows:
        found = row.nonzero()[:, 0]
        index.append(found[torch.arange(fewest) * len(found) // fewest])
    return PointSplit(grid, torch.stack(index)), scored

"""Splits: which samples of a grid are trained on, scored, and held out for validation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import Block, grid_blocks, shape_of, whole_grid
from pe_lightning.signals.raw import RawSignals, ValueRange

EvalMask: TypeAlias = Literal["rest", "odd", "midpoints", "all", "none"]
"""Which samples are scored. Scores of different masks are not comparable.

- ``rest``: samples that are not trained on (the papers' protocol).
- ``odd``: samples whose index is odd on every axis, between a grid of stride 2.
- ``midpoints``: samples halfway between trained ones on every axis of a grid of even strides.
- ``all``: every sample, trained ones too. ``none``: no sample.
"""

ValidationShare: TypeAlias = float | Literal["auto"]
"""Share of the trained samples that is held out for the ``val/`` scores."""

MIN_TRAINED_SAMPLES = 8
"""Trained samples of a signal from which some can be held out for validation."""
KEYS_AT_ONCE = 1 << 22
"""Random keys generated at a time (32 MB)."""


@dataclass(frozen=True, eq=False)
class Split(ABC):
    """The trained samples of signals on a grid. Masks are booleans ``(S or 1, n_1, ..., n_D)`` of a block, or of the grid.

    Args:
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
        known: Mask of the samples that are not missing; ``None``: all. Missing ones are neither trained nor scored.
        validation: Mask of the samples that are scored during training, and neither trained nor tested; ``None``: the tested
            samples are scored during training.
    """

    grid: tuple[int, ...]
    known: Tensor | None = field(default=None, kw_only=True)
    validation: Tensor | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def num_train(self) -> int:
        """Number of trained samples of each signal."""

    @property
    @abstractmethod
    def train_indices(self) -> Iterable[Tensor]:
        """Integers that define the split, for fingerprints."""

    @abstractmethod
    def _trained(self, block: Block) -> Tensor: ...

    def _scored(self, eval_mask: EvalMask, block: Block) -> Tensor:
        if eval_mask == "rest":
            rest, index = ~self._trained(block), (slice(None), *block)
            return rest if self.validation is None else rest & ~self.validation[index]
        if eval_mask in ("odd", "midpoints"):
            needed = {"odd": "2, offset: 0}", "midpoints": "2}, or another even stride on every axis"}[eval_mask]
            raise InputError(
                f"eval_mask {eval_mask!r} needs sampling: {{name: grid, stride: {needed}, between whose samples it scores; "
                "set that, or eval_mask: rest"
            )
        return torch.full((1, *shape_of(block)), eval_mask == "all")

    def train_mask(self, block: Block | None = None) -> Tensor:
        """Mask of the trained samples."""
        return self._trained(block or whole_grid(self.grid))

    def test_mask(self, eval_mask: EvalMask, block: Block | None = None) -> Tensor:
        """Mask of the scored samples."""
        block = block or whole_grid(self.grid)
        scored, index = self._scored(eval_mask, block), (slice(None), *block)
        return scored if self.known is None else scored & self.known[index]

    def train_index(self, block: Block) -> tuple[Tensor, Tensor]:
        """Row-major indices of the trained samples of a block, in the block and in the grid, each ``(P,)`` ascending."""
        mask = self._trained(block)
        if len(mask) > 1:
            raise InputError("signals that are read from their file need the same trained samples; give one mask for all")
        inside = mask.flatten().nonzero().flatten()
        return inside, _row_major([torch.arange(along.start, along.stop) for along in block], self.grid)[inside]

    @property
    def trains_all(self) -> bool:
        """Whether no known sample is held out, of the signal with the fewest."""
        least = math.prod(self.grid) if self.known is None else int(self.known.flatten(1).sum(1).min())
        return self.num_train == least

    def select(self, signals: slice) -> Self:
        masks = {"known": self.known, "validation": self.validation}
        own: Any = {name: mask[signals] for name, mask in masks.items() if mask is not None and len(mask) > 1}
        return replace(self, **own)

    def with_validation(self, share: float) -> Self:
        """The split with a share of the trained samples, in (0, 0.5], held out for validation."""
        if self.num_train < MIN_TRAINED_SAMPLES:
            raise InputError(
                f"validation {share} needs at least {MIN_TRAINED_SAMPLES} trained samples, there are {self.num_train}; set "
                "--data.validation 0"
            )
        split = self._without(share)
        return replace(split, validation=self.train_mask() & ~split.train_mask())

    def _without(self, share: float) -> Self:
        raise NotImplementedError

    def without_missing(self, known: Tensor) -> Split:
        """The split without missing samples: ``known``, ``(S, N_1, ..., N_D)``, is false there.

        Signals that are fitted together are trained on equally many samples: more of a signal are drawn out at random.
        """
        chosen = self.train_mask()
        trained = (chosen & known).flatten(1)
        if bool((trained == chosen.flatten(1)).all()):
            return replace(self, known=known)
        rows = [row.nonzero().flatten() for row in trained]
        least = min(map(len, rows))
        for signal, row in enumerate(rows):
            if len(row) > least > 0:
                rows[signal] = row[torch.from_numpy(chosen_positions(0, signal, len(row), least))]
        return PointSplit(self.grid, torch.stack([row[:least] for row in rows]), known=known)


@dataclass(frozen=True, eq=False)
class GridSplit(Split):
    """A sub-grid shared by all signals: ascending indices along each axis, ``(n_a,)`` int64, and their distances."""

    index: tuple[Tensor, ...]
    stride: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """``(n_1, ..., n_D)``."""
        return tuple(len(index) for index in self.index)

    @property
    def num_train(self) -> int:
        return math.prod(self.sizes)

    @property
    def train_indices(self) -> tuple[Tensor, ...]:
        return self.index

    def _trained(self, block: Block) -> Tensor:
        axes = zip(shape_of(block), self._inside(block), strict=True)
        return _outer_and([torch.zeros(n, dtype=torch.bool).index_fill(0, index, True) for n, index in axes])

    def _scored(self, eval_mask: EvalMask, block: Block) -> Tensor:
        start = [int(index[0]) for index in self.index]
        odd = eval_mask == "odd" and set(self.stride) == {2} and not any(start)
        if not odd and (eval_mask != "midpoints" or any(stride % 2 for stride in self.stride)):
            return super()._scored(eval_mask, block)
        axes = zip(block, start, self.stride, strict=True)
        return _outer_and([(torch.arange(x.start, x.stop) - start) % stride == stride // 2 for x, start, stride in axes])

    def _inside(self, block: Block) -> list[Tensor]:
        axes = zip(self.index, block, strict=True)
        return [_between(index, along.start, along.stop) - along.start for index, along in axes]

    def train_index(self, block: Block) -> tuple[Tensor, Tensor]:
        inside = self._inside(block)
        in_grid = [index + along.start for index, along in zip(inside, block, strict=True)]
        return _row_major(inside, shape_of(block)), _row_major(in_grid, self.grid)

    def _without(self, share: float) -> GridSplit:
        """Leaves out evenly spaced lines of the longest axis, so that the rest is a grid, which is fast to train on."""
        longest = max(range(len(self.index)), key=lambda axis: len(self.index[axis]))
        index = self.index[longest]
        lines = max(1, round(share * len(index)))
        keep = torch.ones(len(index), dtype=torch.bool)
        keep[((torch.arange(lines) + 0.5) * len(index) / lines).long()] = False
        return replace(self, index=(*self.index[:longest], index[keep], *self.index[longest + 1 :]))

    def take(self, values: Tensor) -> Tensor:
        """The trained samples, ``(S, N_1, ..., N_D, C)`` -> ``(S, n_1, ..., n_D, C)``; all samples are not copied."""
        for axis, index in enumerate(self.index):
            if len(index) < values.shape[axis + 1]:
                values = values.index_select(axis + 1, index)
        return values.contiguous()


@dataclass(frozen=True, eq=False)
class PointSplit(Split):
    """Scattered samples, per signal or shared: ascending row-major indices in the grid, ``(S or 1, P)`` int64."""

    index: Tensor

    @property
    def num_train(self) -> int:
        return self.index.shape[1]

    @property
    def train_indices(self) -> tuple[Tensor, ...]:
        return (self.index,)

    def _trained(self, block: Block) -> Tensor:
        row = math.prod(self.grid[1:])
        start, stop = block[0].start * row, block[0].stop * row
        mask = torch.zeros(len(self.index), stop - start, dtype=torch.bool)
        for own, index in zip(mask, self.index, strict=True):
            own[_between(index, start, stop) - start] = True
        inside = (slice(None), slice(None), *block[1:])
        return mask.view(len(mask), block[0].stop - block[0].start, *self.grid[1:])[inside].contiguous()

    def select(self, signals: slice) -> PointSplit:
        split = super().select(signals)
        return split if len(self.index) == 1 else replace(split, index=self.index[signals])

    def _without(self, share: float) -> PointSplit:
        """Leaves out random samples, others of each signal unless signals share them."""
        count = self.num_train - max(1, round(share * self.num_train))
        chosen = [chosen_positions(0, signal, self.num_train, count) for signal in range(len(self.index))]
        return replace(self, index=self.index.gather(1, torch.from_numpy(np.stack(chosen))))

    def take(self, values: Tensor) -> Tensor:
        flat = values.flatten(1, -2)
        index = self.index.expand(len(flat), -1)[..., None].expand(-1, -1, flat.shape[-1])
        return flat.gather(1, index)


@dataclass(frozen=True, eq=False)
class RandomSplit(Split):
    """Random samples shared by all signals, those with keys up to ``limit``, computed block by block."""

    seed: int
    count: int
    limit: int

    @property
    def num_train(self) -> int:
        return self.count

    @property
    def train_indices(self) -> Iterator[Tensor]:
        rows = max(1, KEYS_AT_ONCE * self.grid[0] // math.prod(self.grid))
        for block in grid_blocks(self.grid, (rows, *self.grid[1:])):
            yield self.train_index(block)[1][None]

    def _trained(self, block: Block) -> Tensor:
        return torch.from_numpy(chosen_in(self.seed, 0, self.limit, self.grid, block))[None]


def trained_scaling(raw: RawSignals, split: Split, keeps_unit: bool) -> ValueRange:
    """The scaling by the trained samples, for which values are read again; signals with one range keep one.

    ``keeps_unit``: trained values within [0, 1] are unchanged.
    """
    if split.trains_all:
        return raw.scaling
    rows, row = raw.grid[0], 0
    every = [raw.scaling.limits(signal) for signal in range(len(raw.names))]
    low, high = dict.fromkeys(every, np.inf), dict.fromkeys(every, -np.inf)
    for signal, block in raw.decoded():
        mask = split.train_mask((slice(row % rows, row % rows + len(block)), *whole_grid(raw.grid[1:])))
        chosen, whole = block[mask[signal % len(mask)].numpy()], every[signal]
        low[whole] = min(low[whole], float(chosen.min(initial=np.inf, where=np.isfinite(chosen))))
        high[whole] = max(high[whole], float(chosen.max(initial=-np.inf, where=np.isfinite(chosen))))
        row += len(block)
    ranges = []
    for whole in every[: len(raw.scaling.low)]:
        least, most = low[whole], high[whole]
        if least == most:
            raise InputError(
                f"{raw.names[every.index(whole)]}: all trained samples have the value {least:g}; set value_range: "
                "[low, high], or train on more samples"
            )
        ranges.append((0.0, 1.0) if keeps_unit and least >= 0 and most <= 1 else (least, most))
    return ValueRange(raw.scaling.dtype, *zip(*ranges, strict=True))


def _between(index: Tensor, start: int, stop: int) -> Tensor:
    """View of the entries of an ascending index ``(P,)`` in [``start``, ``stop``)."""
    low, high = torch.searchsorted(index, torch.tensor([start, stop])).tolist()
    return index[low:high]


def _outer_and(masks: Sequence[Tensor]) -> Tensor:
    """Outer product of one mask per axis, ``(1, n_1, ..., n_D)`` booleans."""
    return reduce(lambda mask, along: mask[..., None] & along, masks, torch.ones(1, dtype=torch.bool))


def _row_major(index: Sequence[Tensor], grid: Sequence[int]) -> Tensor:
    """Row-major indices ``(P,)`` of a sub-grid from its indices along each axis."""
    along = zip(index, grid, strict=True)
    return reduce(lambda flat, axis: (flat[:, None] * axis[1] + axis[0]).flatten(), along, torch.zeros(1, dtype=torch.int64))


# Each sample has a 64-bit key that depends only on its index, the seed and the signal. Samples with the smallest keys are
# chosen: the same ones on every machine, in every process and block. NumPy guarantees a stable output of its bit
# generators, but not of Generator.choice.


def chosen_positions(seed: int, signal: int, size: int, count: int) -> NDArray[np.int64]:
    """``count`` distinct random positions below ``size``, ascending."""
    limit = largest_chosen_key(seed, signal, size, count)
    found = [start + np.flatnonzero(keys <= limit) for start, keys in _keys(seed, signal, size)]
    return np.concatenate(found)[:count].astype(np.int64, copy=False)


def largest_chosen_key(seed: int, signal: int, size: int, count: int) -> int:
    """The ``count``-th smallest key, in one pass that stores only keys within eight standard deviations of its mean."""
    share = count / size
    spread = 8 * math.sqrt(size * share * (1 - share) + 1) / size
    limits = [0.0, 1.0] if size <= KEYS_AT_ONCE else [max(share - spread, 0.0), min(share + spread, 1.0)]
    low, high = (np.uint64(min(int(limit * 2.0**64), 2**64 - 1)) for limit in limits)
    below, candidates = 0, []
    for _, keys in _keys(seed, signal, size):
        below += int(np.count_nonzero(keys < low))
        candidates.append(keys[(keys >= low) & (keys <= high)])
    inside, rank = np.concatenate(candidates), count - 1 - below
    if not 0 <= rank < len(inside):  # probability below 1e-14
        raise RuntimeError(f"key {count} of {size} is outside the expected range; choose another sampling seed")
    return int(np.partition(inside, rank)[rank])


def chosen_in(seed: int, signal: int, limit: int, grid: Sequence[int], block: Block) -> NDArray[np.bool_]:
    """Mask of the samples of a block whose keys are at most ``limit``, ``(n_1, ..., n_D)`` booleans."""
    sizes = shape_of(block)
    run = len(grid) - 1  # trailing axes covered completely are read together with the axis before them
    while run > 0 and sizes[run] == grid[run]:
        run -= 1
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    length = sizes[run] * strides[run]
    mask = np.empty((math.prod(sizes[:run]), length), dtype=bool)
    corner = sum(along.start * stride for along, stride in zip(block, strides, strict=True))
    generator, drawn = np.random.PCG64(np.random.SeedSequence((seed, signal))), 0
    for row, lead in enumerate(np.ndindex(*sizes[:run])):
        start = corner + sum(index * stride for index, stride in zip(lead, strides, strict=False))
        generator.advance(start - drawn)
        mask[row] = generator.random_raw(length) <= np.uint64(limit)
        drawn = start + length
    return mask.reshape(sizes)


def _keys(seed: int, signal: int, size: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """All keys in order: the index of the first key of a chunk, and the chunk."""
    generator = np.random.PCG64(np.random.SeedSequence((seed, signal)))
    for start in range(0, size, KEYS_AT_ONCE):
        yield start, generator.random_raw(min(KEYS_AT_ONCE, size - start))

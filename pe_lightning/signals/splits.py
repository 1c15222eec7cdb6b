"""Splits into trained and held-out samples, and the masks that say which samples are scored."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import Self

from pe_lightning.errors import InputError
from pe_lightning.signals.blocks import Block, shape_of, whole

EvalMask: TypeAlias = Literal["rest", "odd", "midpoints", "all", "none"]
"""Which samples are scored. Scores of different masks are not comparable.

- ``rest``: all samples that are not trained on (the papers' protocol).
- ``odd``: only the samples whose index is odd on every axis; with a grid of stride 2.
- ``midpoints``: only the samples halfway between trained ones on every axis; with a grid of even strides.
- ``all``: every sample, the trained ones included.
- ``none``: none.
"""

ValidationShare: TypeAlias = float | Literal["auto"]
"""Share of the trained samples that is held out for the ``val/`` scores."""

MIN_TRAINED_SAMPLES = 8
"""Trained samples of a signal from which some can be held out for validation."""
SAMPLES_AT_ONCE = 1 << 22
"""Samples of a large random split processed at a time."""
KEYS_AT_ONCE = 1 << 22
"""Random keys generated at a time (32 MB)."""


@dataclass(frozen=True, eq=False)
class Split(ABC):
    """The trained samples of a set of signals on a grid of ``(N_1, ..., N_D)`` samples.

    Args:
        grid: ``(N_1, ..., N_D)``.
        known: Samples that are not missing, ``(S or 1, N_1, ..., N_D)`` booleans; ``None``: all. The others are neither
            trained nor scored; :meth:`among` sets it.
        validation: Samples that are neither trained nor tested, but scored during training, ``(S or 1, N_1, ..., N_D)``
            booleans; ``None``: those of the test. :meth:`with_validation` sets it.
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
    def train_mask_of(self, block: Block) -> Tensor:
        """Mask of the trained samples of a block, ``(S or 1, n_1, ..., n_D)`` booleans."""

    def train_mask(self) -> Tensor:
        """Mask of the trained samples, ``(S or 1, N_1, ..., N_D)`` booleans."""
        return self.train_mask_of(whole(self.grid))

    def test_mask_of(self, eval_mask: EvalMask, block: Block) -> Tensor:
        """Mask of the scored samples of a block, ``(S or 1, n_1, ..., n_D)`` booleans."""
        scored, index = self._scored_of(eval_mask, block), (slice(None), *block)
        return scored if self.known is None else scored & self.known[index]

    def _scored_of(self, eval_mask: EvalMask, block: Block) -> Tensor:
        if eval_mask == "rest":
            rest, inside = ~self.train_mask_of(block), (slice(None), *block)
            return rest if self.validation is None else rest & ~self.validation[inside]
        if eval_mask in ("odd", "midpoints"):
            needed = {"odd": "2, offset: 0}", "midpoints": "2}, or another even stride on every axis"}[eval_mask]
            raise InputError(
                f"eval_mask {eval_mask!r} needs sampling: {{name: grid, stride: {needed}, between whose samples it scores; "
                "set that, or eval_mask: rest"
            )
        return torch.full((1, *shape_of(block)), eval_mask == "all")

    def test_mask(self, eval_mask: EvalMask) -> Tensor:
        return self.test_mask_of(eval_mask, whole(self.grid))

    @property
    def trains_all(self) -> bool:
        """Whether every sample is trained on that is not missing; of several signals, of the one with fewest."""
        least = math.prod(self.grid) if self.known is None else int(self.known.flatten(1).sum(1).min())
        return self.num_train == least

    def of(self, signals: slice) -> Self:
        parts = {
            name: mask[signals]
            for name in ("known", "validation")
            if isinstance(mask := getattr(self, name), Tensor) and len(mask) > 1
        }
        return replace(self, **parts)  # type: ignore[arg-type]

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

    def among(self, known: Tensor) -> Split:
        """The split without the samples that are missing.

        It is of the same kind where no trained sample is missing, and otherwise of scattered samples. Signals that are
        fitted together have equally many: of those with more, some are drawn out at random, and count as not trained.

        Args:
            known: Samples that are not missing, ``(S, N_1, ..., N_D)`` booleans.
        """
        chosen = self.train_mask()
        trained = (chosen & known).flatten(1)
        if bool((trained == chosen.flatten(1)).all()):
            return replace(self, known=known)
        counts = trained.sum(1).tolist()
        least = min(counts)
        rows = [row.nonzero().flatten() for row in trained]
        for signal, count in enumerate(counts):
            if count > least > 0:
                rows[signal] = rows[signal][torch.from_numpy(chosen_positions(0, signal, count, least))]
        return PointSplit(self.grid, torch.stack([row[:least] for row in rows]), known=known)

    def train_positions(self, block: Block) -> tuple[Tensor, Tensor]:
        """Row-major positions of the trained samples of a block, in the block and in the grid, each ``(P,)`` ascending."""
        mask = self.train_mask_of(block)
        if len(mask) > 1:
            raise InputError("signals that are read from their file need the same trained samples; give one mask for all")
        inside = mask.flatten().nonzero().flatten()
        return inside, _row_major([torch.arange(part.start, part.stop) for part in block], self.grid)[inside]


@dataclass(frozen=True, eq=False)
class GridSplit(Split):
    """A sub-grid shared by all signals: ascending positions of each axis, ``(n_a,)`` int64, and their distances."""

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

    def _scored_of(self, eval_mask: EvalMask, block: Block) -> Tensor:
        firsts = [int(index[0]) for index in self.index]
        odd = eval_mask == "odd" and set(self.stride) == {2} and not any(firsts)
        if not odd and (eval_mask != "midpoints" or any(stride % 2 for stride in self.stride)):
            return super()._scored_of(eval_mask, block)
        axes = zip(block, firsts, self.stride, strict=True)
        return _outer_and(
            [(torch.arange(part.start, part.stop) - first) % stride == stride // 2 for part, first, stride in axes]
        )

    def _without(self, share: float) -> GridSplit:
        """Evenly spaced lines of the longest axis are left out, so that the others are a grid, which is fast to train on."""
        longest = max(range(len(self.index)), key=lambda axis: len(self.index[axis]))
        index = self.index[longest]
        lines = max(1, round(share * len(index)))
        keep = torch.ones(len(index), dtype=torch.bool)
        keep[((torch.arange(lines) + 0.5) * len(index) / lines).long()] = False
        return replace(self, index=(*self.index[:longest], index[keep], *self.index[longest + 1 :]))

    def take(self, values: Tensor) -> Tensor:
        """The trained sub-grid of ``values``: ``(S, N_1, ..., N_D, C)`` -> ``(S, n_1, ..., n_D, C)``, contiguous.

        No copy where every sample is trained on.
        """
        for axis, index in enumerate(self.index):
            if len(index) < values.shape[axis + 1]:  # indices are distinct and ascending
                values = values.index_select(axis + 1, index)
        return values.contiguous()

    def train_mask_of(self, block: Block) -> Tensor:
        axes = zip(shape_of(block), self.positions_in(block), strict=True)
        return _outer_and([torch.zeros(n, dtype=torch.bool).index_fill(0, i, True) for n, i in axes])

    def positions_in(self, block: Block) -> tuple[Tensor, ...]:
        parts = zip(self.index, block, strict=True)
        return tuple(_between(index, part.start, part.stop) - part.start for index, part in parts)

    def train_positions(self, block: Block) -> tuple[Tensor, Tensor]:
        inside = self.positions_in(block)
        in_grid = [along + part.start for along, part in zip(inside, block, strict=True)]
        return _row_major(inside, shape_of(block)), _row_major(in_grid, self.grid)


@dataclass(frozen=True, eq=False)
class PointSplit(Split):
    """Scattered samples, per signal or shared: ascending row-major positions in the grid, ``(S or 1, P)`` int64."""

    index: Tensor

    @property
    def num_train(self) -> int:
        return self.index.shape[1]

    @property
    def train_indices(self) -> tuple[Tensor, ...]:
        return (self.index,)

    def of(self, signals: slice) -> PointSplit:
        found = super().of(signals)
        return found if len(self.index) == 1 else replace(found, index=self.index[signals])

    def _without(self, share: float) -> PointSplit:
        """Random samples are left out, of each signal others unless it shares them."""
        count = self.num_train - max(1, round(share * self.num_train))
        chosen = [torch.from_numpy(chosen_positions(0, signal, self.num_train, count)) for signal in range(len(self.index))]
        return replace(self, index=torch.stack([row[places] for row, places in zip(self.index, chosen, strict=True)]))

    def take(self, values: Tensor) -> Tensor:
        flat = values.flatten(1, -2)
        index = self.index.expand(len(flat), -1)[..., None].expand(-1, -1, flat.shape[-1])
        return flat.gather(1, index)

    def train_mask_of(self, block: Block) -> Tensor:
        row = math.prod(self.grid[1:])
        first, last = block[0].start * row, block[0].stop * row
        mask = torch.zeros(len(self.index), last - first, dtype=torch.bool)
        for own, index in zip(mask, self.index, strict=True):
            own[_between(index, first, last) - first] = True
        inside = (slice(None), slice(None), *block[1:])
        return mask.view(len(mask), block[0].stop - block[0].start, *self.grid[1:])[inside].contiguous()


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
        rows = max(1, SAMPLES_AT_ONCE * self.grid[0] // math.prod(self.grid))
        for first in range(0, self.grid[0], rows):
            block = (slice(first, min(first + rows, self.grid[0])), *whole(self.grid[1:]))
            yield self.train_positions(block)[1][None]

    def train_mask_of(self, block: Block) -> Tensor:
        return torch.from_numpy(chosen_in(self.seed, 0, self.limit, self.grid, block))[None]


def _between(index: Tensor, start: int, stop: int) -> Tensor:
    """View of the positions in [``start``, ``stop``) of ascending positions ``(P,)``."""
    first, last = torch.searchsorted(index, torch.tensor([start, stop])).tolist()
    return index[first:last]


def _outer_and(masks: Sequence[Tensor]) -> Tensor:
    """Outer product of one mask per axis, ``(1, n_1, ..., n_D)`` booleans."""
    mask = torch.ones(1, dtype=torch.bool)
    for along in masks:
        mask = mask[..., None] & along
    return mask


def _row_major(positions: Sequence[Tensor], grid: Sequence[int]) -> Tensor:
    """Row-major positions of a sub-grid, ``(P,)``, from its positions along each axis."""
    result = torch.zeros(1, dtype=torch.int64)
    for along, n in zip(positions, grid, strict=True):
        result = (result[:, None] * n + along).flatten()
    return result


# Random samples are the same on every machine and process, and in any block of the grid: each sample has a 64-bit key that
# depends only on its position, the seed and the signal, and those with the smallest keys are chosen. NumPy guarantees a
# stable output of its bit generators, but not of Generator.choice.


def chosen_positions(seed: int, signal: int, size: int, count: int) -> NDArray[np.int64]:
    """``count`` distinct random positions below ``size``, ascending."""
    limit = largest_chosen_key(seed, signal, size, count)
    found = [first + np.flatnonzero(keys <= limit) for first, keys in _keys(seed, signal, size)]
    return np.concatenate(found)[:count].astype(np.int64, copy=False)


def largest_chosen_key(seed: int, signal: int, size: int, count: int) -> int:
    """The ``count``-th smallest key of ``size`` samples, found in one pass.

    Memory is bounded: only keys within eight standard deviations of the expected value are stored.
    """
    share = count / size
    spread = 8 * math.sqrt(size * share * (1 - share) + 1) / size
    limits = [0.0, 1.0] if size <= KEYS_AT_ONCE else [max(share - spread, 0.0), min(share + spread, 1.0)]
    low, high = (np.uint64(min(int(limit * 2.0**64), 2**64 - 1)) for limit in limits)
    below, candidates = 0, []
    for _, keys in _keys(seed, signal, size):
        below += int(np.count_nonzero(keys < low))
        candidates.append(keys[(keys >= low) & (keys <= high)])
    inside, place = np.concatenate(candidates), count - 1 - below
    if not 0 <= place < len(inside):  # probability below 1e-14
        raise RuntimeError(f"key {count} of {size} is outside the expected range; choose another sampling seed")
    return int(np.partition(inside, place)[place])


def chosen_in(seed: int, signal: int, limit: int, grid: Sequence[int], block: Block) -> NDArray[np.bool_]:
    """Mask of the samples of a block whose keys are at most ``limit``, booleans of the block's shape."""
    sizes = shape_of(block)
    run = len(grid) - 1  # trailing axes covered completely are read together with the axis before them
    while run > 0 and sizes[run] == grid[run]:
        run -= 1
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]
    length = sizes[run] * strides[run]
    mask = np.empty((math.prod(sizes[:run]), length), dtype=bool)
    corner = sum(part.start * stride for part, stride in zip(block, strides, strict=True))
    generator, position = np.random.PCG64(np.random.SeedSequence((seed, signal))), 0
    for row, lead in enumerate(np.ndindex(*sizes[:run])):
        first = corner + sum(step * stride for step, stride in zip(lead, strides, strict=False))
        generator.advance(first - position)
        mask[row] = generator.random_raw(length) <= np.uint64(limit)
        position = first + length
    return mask.reshape(sizes)


def _keys(seed: int, signal: int, size: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """All keys in order. Yields the position of the first key of a chunk, and the keys."""
    generator = np.random.PCG64(np.random.SeedSequence((seed, signal)))
    for first in range(0, size, KEYS_AT_ONCE):
        yield first, generator.random_raw(min(KEYS_AT_ONCE, size - first))

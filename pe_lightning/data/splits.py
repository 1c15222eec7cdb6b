"""What is trained on and what is held out: the result of a sampling, and the protocols that score it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from pe_lightning.blocks import Block, shape_of, whole
from pe_lightning.data.draws import drawn_in
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["DrawnSplit", "GridSplit", "PointSplit", "Protocol", "Split", "check_protocol"]

Protocol: TypeAlias = Literal["rest", "odd", "all", "none"]
"""Which samples are scored. The same predictor differs by more than 1 dB between protocols.

- ``rest``: everything that is not trained on (the papers').
- ``odd``: only the samples whose index is odd on every axis; with a grid of stride 2.
- ``all``: every sample, the trained ones included.
- ``none``: nothing.
"""


ROWS_AT_ONCE = 1 << 22
"""Samples whose membership in a large random draw is found at once."""


def check_protocol(protocol: str) -> None:
    """Raises :class:`InputError` if there is no such protocol."""
    if protocol not in get_args(Protocol):
        near = did_you_mean(str(protocol), get_args(Protocol))
        raise InputError(f"unknown protocol {protocol!r}{near or '.'} Protocols: {', '.join(get_args(Protocol))}")


@dataclass(frozen=True, eq=False)
class Split(ABC):
    """The trained samples of a set of signals.

    Args:
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
    """

    grid: tuple[int, ...]

    @property
    @abstractmethod
    def num_train(self) -> int:
        """Number of trained samples of each signal."""

    @property
    @abstractmethod
    def train_indices(self) -> Iterable[Tensor]:
        """The integers that define the split, for fingerprints."""

    @abstractmethod
    def train_mask_of(self, box: Block) -> Tensor:
        """Which samples of a part of the grid are trained on: ``(S or 1, n_1, ..., n_D)`` booleans."""

    def train_mask(self) -> Tensor:
        """Which samples are trained on: ``(S or 1, N_1, ..., N_D)`` booleans."""
        return self.train_mask_of(whole(self.grid))

    def test_mask_of(self, protocol: Protocol, box: Block) -> Tensor:
        """Which samples of a part of the grid are scored: ``(S or 1, n_1, ..., n_D)`` booleans.

        Raises:
            InputError: If the protocol is unknown or does not suit the split.
        """
        check_protocol(protocol)
        if protocol == "rest":
            return ~self.train_mask_of(box)
        if protocol == "odd":
            return self._odd_mask_of(box)
        return torch.full((1, *shape_of(box)), protocol == "all")

    def test_mask(self, protocol: Protocol) -> Tensor:
        """Which samples are scored: ``(S or 1, N_1, ..., N_D)`` booleans.

        Raises:
            InputError: If the protocol is unknown or does not suit the split.
        """
        return self.test_mask_of(protocol, whole(self.grid))

    def _odd_mask_of(self, box: Block) -> Tensor:
        raise InputError("protocol 'odd' needs sampling: {name: grid, stride: 2}; set that, or protocol: rest")


@dataclass(frozen=True, eq=False)
class GridSplit(Split):
    """A sub-grid, the same for all signals.

    Args:
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
        index: Trained positions of each axis, ascending: axis a of shape ``(n_a,)``, int64.
        stride: Distance between them, per axis.
    """

    index: tuple[Tensor, ...]
    stride: tuple[int, ...]

    @property
    def num_train(self) -> int:
        """Number of trained samples of each signal."""
        return math.prod(len(index) for index in self.index)

    @property
    def train_indices(self) -> tuple[Tensor, ...]:
        """The positions of each axis."""
        return self.index

    def take(self, values: Tensor) -> Tensor:
        """The trained sub-grid of ``values``: ``(S, N_1, ..., N_D, C)`` -> ``(S, n_1, ..., n_D, C)``, contiguous."""
        for axis, index in enumerate(self.index):
            values = values.index_select(axis + 1, index)
        return values.contiguous()

    def train_mask_of(self, box: Block) -> Tensor:
        """Which samples of a part of the grid are trained on: ``(1, n_1, ..., n_D)`` booleans."""
        axes = zip(shape_of(box), self.positions_in(box), strict=True)
        return _outer([torch.zeros(n, dtype=torch.bool).index_fill(0, i, True) for n, i in axes])

    def positions_in(self, box: Block) -> tuple[Tensor, ...]:
        """Trained positions within a part of the grid, per axis, counted from its first sample."""
        inside = [_between(index, part.start, part.stop) for part, index in zip(box, self.index, strict=True)]
        return tuple(index - part.start for part, index in zip(box, inside, strict=True))

    def _odd_mask_of(self, box: Block) -> Tensor:
        self._require_odd()
        return _outer([torch.arange(part.start, part.stop) % 2 == 1 for part in box])

    def _require_odd(self) -> None:
        if set(self.stride) == {2} and any(int(index[0]) for index in self.index):
            raise InputError(
                "protocol 'odd' scores the odd samples, but the offset trains on them; set offset: 0, or protocol: rest"
            )
        if set(self.stride) != {2}:
            stride = self.stride[0] if len(set(self.stride)) == 1 else list(self.stride)
            raise InputError(
                f"protocol 'odd' scores the samples midway between those of a grid of stride 2, but the stride is "
                f"{stride}; set sampling: {{name: grid, stride: 2}}, or protocol: rest"
            )


@dataclass(frozen=True, eq=False)
class PointSplit(Split):
    """Scattered samples, each signal's own or shared by all.

    Args:
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
        index: Row-major positions in the grid, ascending: ``(S or 1, P)``, int64.
    """

    index: Tensor

    @property
    def num_train(self) -> int:
        """Number of trained samples of each signal."""
        return self.index.shape[1]

    @property
    def train_indices(self) -> tuple[Tensor, ...]:
        """The row-major positions."""
        return (self.index,)

    def take(self, values: Tensor) -> Tensor:
        """The trained samples of ``values``: ``(S, N_1, ..., N_D, C)`` -> ``(S, P, C)``, contiguous."""
        flat = values.flatten(1, -2)
        index = self.index.expand(len(flat), -1)[..., None].expand(-1, -1, flat.shape[-1])
        return flat.gather(1, index)

    def train_mask_of(self, box: Block) -> Tensor:
        """Which samples of a part of the grid are trained on: ``(S or 1, n_1, ..., n_D)`` booleans."""
        height, row = shape_of(box)[0], math.prod(self.grid[1:])
        rows = torch.zeros(len(self.index), height * row, dtype=torch.bool)
        for own, index in zip(rows, self.index, strict=True):
            own[_between(index, box[0].start * row, box[0].stop * row) - box[0].start * row] = True
        inside = (slice(None), slice(None), *box[1:])
        return rows.view(len(rows), height, *self.grid[1:])[inside].contiguous()


@dataclass(frozen=True, eq=False)
class DrawnSplit(Split):
    """Random samples that all signals share, of a grid too large to list them: drawn anew where they are asked for.

    Args:
        grid: Number of samples per axis, ``(N_1, ..., N_D)``.
        seed: Of the draw.
        count: Number of trained samples.
        limit: The largest key that is drawn (:func:`pe_lightning.data.draws.threshold`).
    """

    seed: int
    count: int
    limit: int

    @property
    def num_train(self) -> int:
        """Number of trained samples of each signal."""
        return self.count

    @property
    def train_indices(self) -> Iterator[Tensor]:
        """The row-major positions, some rows at a time."""
        rows = max(1, ROWS_AT_ONCE * self.grid[0] // math.prod(self.grid))
        for first in range(0, self.grid[0], rows):
            box = (slice(first, min(first + rows, self.grid[0])), *whole(self.grid[1:]))
            yield self.train_mask_of(box).flatten().nonzero()[None, :, 0] + first * math.prod(self.grid[1:])

    def train_mask_of(self, box: Block) -> Tensor:
        """Which samples of a part of the grid are trained on: ``(1, n_1, ..., n_D)`` booleans."""
        return torch.from_numpy(drawn_in(self.seed, 0, self.limit, self.grid, box))[None]


def _between(index: Tensor, start: int, stop: int) -> Tensor:
    """Those of ascending positions ``(P,)`` that are at least ``start`` and below ``stop``: a view."""
    first, last = torch.searchsorted(index, torch.tensor([start, stop])).tolist()
    return index[first:last]


def _outer(masks: list[Tensor]) -> Tensor:
    """``(1, n_1, ..., n_D)``: true where the masks of all axes are."""
    mask = torch.ones(1, *(1 for _ in masks), dtype=torch.bool)
    for axis, along in enumerate(masks):
        mask = mask & along.reshape(-1, *(1 for _ in masks[axis + 1 :]))
    return mask

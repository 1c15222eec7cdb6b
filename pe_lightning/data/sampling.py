"""Which samples of a signal are trained on: samplings, by name, and the splits that they make."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import torch

from pe_lightning.data.draws import draw, threshold
from pe_lightning.data.splits import DrawnSplit, GridSplit, PointSplit, Split
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry

__all__ = ["GridSampling", "RandomSampling", "Sampling", "SamplingLike", "resolve", "samplings"]


class Sampling(ABC):
    """Chooses the samples of a set of signals that are trained on.

    A subclass keeps every constructor argument as an attribute of the same name, with plain values.
    """

    @abstractmethod
    def split(self, grid: Sequence[int], num_signals: int) -> Split:
        """The trained samples of ``num_signals`` signals on a grid of ``(N_1, ..., N_D)`` samples.

        Raises:
            InputError: If the sampling does not suit the grid.
        """

    def stream(self, grid: Sequence[int], num_signals: int) -> Split:
        """As :meth:`split`, for signals that stay in their file: nothing of the size of the grid should be held."""
        return self.split(grid, num_signals)

    @property
    def name(self) -> str:
        """The registered name, or the full class path of an unregistered sampling."""
        return samplings.name_of(type(self))

    def spec(self) -> dict[str, Any]:
        """A plain description with every value in force, which :func:`resolve` turns back into an equal sampling."""
        return {"name": self.name, **{key: getattr(self, key) for key in inspect.signature(type(self)).parameters}}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.spec().items() if key != "name")
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sampling) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash(repr(self))


SamplingLike: TypeAlias = "Sampling | str | Mapping[str, Any]"
"""A sampling, a registered name, or ``{"name": ..., **arguments}``."""

samplings: Registry[Sampling] = Registry("sampling", Sampling)  # type: ignore[type-abstract]


@samplings.register("grid")
class GridSampling(Sampling):
    """Every ``stride``-th sample of each axis: the trained samples are a grid too.

    Args:
        stride: Distance between trained samples, in samples: one number for all axes, or one per axis. 1 trains on
            every sample.
        offset: The first trained sample, less than the stride: one number for all axes, or one per axis.

    Raises:
        InputError: If a stride is less than 1, an offset is no position within it, or (at :meth:`split`) a stride leaves
            fewer than 2 samples on an axis.
    """

    def __init__(self, stride: int | list[int] = 2, offset: int | list[int] = 0) -> None:
        strides = stride if isinstance(stride, (list, tuple)) else [stride]
        if not strides or any(not _is_whole(s) or s < 1 for s in strides):
            raise InputError(f"GridSampling: stride must be an integer >= 1, or a list of one per axis; got {stride!r}")
        # plain numbers, whatever kind was given: they go into metrics.json
        self.stride = [int(s) for s in strides] if isinstance(stride, (list, tuple)) else int(stride)
        offsets = offset if isinstance(offset, (list, tuple)) else [offset]
        pairs = (
            [(o, s) for o in offsets for s in strides]
            if 1 in (len(offsets), len(strides))
            else zip(offsets, strides, strict=False)
        )
        if not offsets or any(not _is_whole(o) or not 0 <= o < s for o, s in pairs):
            raise InputError(
                f"GridSampling: offset is the first trained sample, an integer from 0 to stride - 1, or a list of one per "
                f"axis; got {offset!r} with stride {stride!r}"
            )
        self.offset = [int(o) for o in offsets] if isinstance(offset, (list, tuple)) else int(offset)

    def split(self, grid: Sequence[int], num_signals: int) -> GridSplit:
        """The sub-grid that all signals share."""
        strides = self.stride if isinstance(self.stride, list) else [self.stride] * len(grid)
        if len(strides) != len(grid):
            raise InputError(
                f"GridSampling: stride {self.stride} is for {len(strides)} axes, but the signals have {len(grid)} "
                f"({_by(grid)} samples); give one number or {len(grid)}"
            )
        offsets = self.offset if isinstance(self.offset, list) else [self.offset] * len(grid)
        if len(offsets) != len(grid):
            raise InputError(
                f"GridSampling: offset {self.offset} is for {len(offsets)} axes, but the signals have {len(grid)} "
                f"({_by(grid)} samples); give one number or {len(grid)}"
            )
        if any(first + stride >= size for first, stride, size in zip(offsets, strides, grid, strict=True)):
            raise InputError(
                f"GridSampling: stride {_by(strides)} leaves fewer than 2 trained samples on an axis of the signals, "
                f"which have {_by(grid)} samples; each stride must be smaller than its axis: set at most "
                f"{[max(size - 1, 1) for size in grid]}"
            )
        index = tuple(torch.arange(*along) for along in zip(offsets, grid, strides, strict=True))
        return GridSplit(tuple(grid), index, tuple(strides))


@samplings.register("random")
class RandomSampling(Sampling):
    """A random share of the samples, drawn without replacement: for each signal its own, as in the papers.

    The draw depends on the seed, the signal's position and the grid alone: the same on every process, machine and
    version of NumPy, whatever the global random state. A smaller fraction is a subset of a larger one.

    Args:
        fraction: Share of the samples that is trained on, in (0, 1]; rounded to whole samples, at least one.
        count: How many samples are trained on, instead of a share.
        seed: Of the draw, a non-negative integer.
        shared: Whether all signals are trained on the same samples.

    Raises:
        InputError: If the fraction or the seed is out of range.
    """

    def __init__(self, fraction: float = 0.25, seed: int = 0, shared: bool = False, count: int | None = None) -> None:
        if not _is_number(fraction) or not 0 < fraction <= 1:
            raise InputError(
                f"RandomSampling: fraction is the trained share of the samples, in (0, 1]; got {fraction!r}. "
                "For a quarter of them set fraction: 0.25"
            )
        if not _is_whole(seed) or seed < 0:
            raise InputError(f"RandomSampling: seed must be an integer >= 0, got {seed!r}")
        if not isinstance(shared, bool):
            raise InputError(f"RandomSampling: shared must be true or false, got {shared!r}")
        if count is not None and (not _is_whole(count) or count < 1):
            raise InputError(f"RandomSampling: count must be an integer >= 1, got {count!r}")
        self.fraction = float(fraction)
        self.seed = int(seed)
        self.shared = shared
        self.count = None if count is None else int(count)

    def split(self, grid: Sequence[int], num_signals: int) -> PointSplit:
        """The drawn points, per signal or shared."""
        size, count = self._sizes(grid)
        draws = [draw(self.seed, signal, size, count) for signal in range(1 if self.shared else num_signals)]
        return PointSplit(tuple(grid), torch.from_numpy(np.stack(draws)))

    def stream(self, grid: Sequence[int], num_signals: int) -> DrawnSplit:
        """The same points, found anew wherever they are asked for instead of being listed.

        Raises:
            InputError: If several signals have points of their own.
        """
        if num_signals > 1 and not self.shared:
            raise InputError(
                f"{num_signals} signals that stay in their file are trained on the same points: set "
                "sampling: {name: random, shared: true}, or give one signal"
            )
        size, count = self._sizes(grid)
        return DrawnSplit(tuple(grid), self.seed, count, threshold(self.seed, 0, size, count))

    def _sizes(self, grid: Sequence[int]) -> tuple[int, int]:
        size = math.prod(grid)
        if self.count is None:
            return size, min(max(round(self.fraction * size), 1), size)
        if self.count > size:
            raise InputError(f"RandomSampling: count {self.count} is more than the {size} samples of a signal ({_by(grid)})")
        return size, self.count


def resolve(sampling: SamplingLike) -> Sampling:
    """The sampling that a name or a description stands for; a sampling is returned as it is.

    Accepts ``"grid"``, ``{"name": "grid", "stride": 2}`` and ``{"class_path": ..., "init_args": {...}}``.

    Raises:
        InputError: If the name or an argument is unknown, or a value is refused.
    """
    if isinstance(sampling, Sampling):
        return sampling
    if isinstance(sampling, str):
        return samplings.create(sampling)
    if isinstance(sampling, Mapping):
        arguments = dict(sampling)
        name = arguments.pop("name", None) or arguments.pop("class_path", None)
        arguments.update(arguments.pop("init_args", None) or {})
        if name is not None:
            return samplings.create(name, **arguments)
    raise InputError(
        f"a sampling is a name such as 'grid', a mapping with a 'name' such as {{name: grid, stride: 2}}, or a "
        f"Sampling; got {sampling!r}"
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _by(numbers: Sequence[int]) -> str:
    return "x".join(map(str, numbers))

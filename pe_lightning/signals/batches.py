"""The interface between DataModules and modules: the shape of the signals, and batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pe_lightning.signals.axes import Axis, SampleKind
from pe_lightning.signals.blocks import Block, point_coordinates
from pe_lightning.signals.raw import Media, RawSignals, ValueRange

MAX_MISSING = 0.2
"""Largest share of missing samples with which samples are treated as a grid."""
MAX_SPACING_RATIO = 2.5
"""Largest ratio of the distances of neighbours along an axis; a line that is missing leaves twice the distance."""


@dataclass(frozen=True)
class SignalInfo:
    """Shape and origin of a set of signals; a module is built from it.

    Args:
        names: One name per signal.
        grid: Number of samples per axis, ``(N_1, ..., N_D)``; for scattered samples the numbers of a grid of their density.
        channels: Number of channels ``C``.
        scaling: Range and dtype of the source.
        rate: Samples per second along the first axis, if it is time.
        media: Medium of the signals.
        metric: Name of the registered metric that scores them.
        axes: The axes in the user's units, if they are known.
        num_points: Number of scattered samples; ``None`` for samples on a grid.
        samples: Whether samples are values at ``points``, or means over ``cells`` of a grid.
    """

    names: tuple[str, ...]
    grid: tuple[int, ...]
    channels: int
    scaling: ValueRange = field(default_factory=lambda: ValueRange("float32"))
    rate: float | None = None
    media: Media = "array"
    metric: str = "psnr"
    axes: tuple[Axis, ...] = ()
    num_points: int | None = None
    samples: SampleKind = "points"

    @classmethod
    def from_raw(cls, raw: RawSignals, metric: str = "psnr", samples: SampleKind = "points") -> SignalInfo:
        """Shape and origin of signals as their source describes them."""
        is_grid = raw.points is None
        grid, count = (raw.grid, None) if is_grid else (tuple(axis.size for axis in raw.axes), raw.grid[0])
        shape = (raw.names, grid, raw.channels, raw.scaling)
        return cls(*shape, raw.rate, raw.media, metric, raw.axes, num_points=count, samples=samples)

    @property
    def cells(self) -> tuple[float, ...]:
        """Lengths of the cells that samples are means of, one per axis; none if samples are values at points."""
        return tuple(1 / n for n in self.grid) if self.samples == "cells" else ()

    def shown_range(self, index: int) -> tuple[float, float]:
        """The values in the user's units that 0 and 1 stand for; (0, 1) where they are the range of a dtype."""
        return self.scaling.limits(index) if self.scaling.found_in_data else (0.0, 1.0)

    @property
    def num_signals(self) -> int:
        return len(self.names)

    @property
    def num_axes(self) -> int:
        return len(self.grid)

    def to_dict(self) -> dict[str, Any]:
        plain = {"names": list(self.names), "grid": list(self.grid), "scaling": self.scaling.to_dict()}
        found = {**vars(self), **plain, "axes": [axis.to_dict() for axis in self.axes]}
        optional: dict[str, Any] = {"axes": [], "num_points": None, "samples": "points"}
        return {key: value for key, value in found.items() if key not in optional or value != optional[key]}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> SignalInfo:
        axes = tuple(Axis.from_dict(axis) for axis in plain.get("axes", ()))
        shape = {"names": tuple(plain["names"]), "grid": tuple(plain["grid"]), "axes": axes}
        return cls(**{**plain, **shape, "scaling": ValueRange.from_dict(plain["scaling"])})


@dataclass(kw_only=True)
class SampleBatch:
    """What batches on grids and of points have in common.

    Args:
        mask: In an evaluation batch, true for samples that are scored, else for samples that are known: ``(S or 1,
            *samples)``. ``None``: all.
        train_mask: In an evaluation batch, true for samples that were trained on; same shape.
        total: In a training batch divided among processes, the number of samples per signal over all processes.
    """

    mask: Tensor | None = None
    train_mask: Tensor | None = None
    total: int | None = None
    # not copied by `replace`, but where Lightning makes a batch of another dtype
    repeated: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether a loader gives this batch in every step."""
    device_copies: dict[torch.device, Any] = field(default_factory=dict, init=False, repr=False, compare=False)


@dataclass
class GridBatch(SampleBatch):
    """Values on a separable grid: one coordinate vector per axis; other arguments as of :class:`SampleBatch`.

    Args:
        axes: ``D`` coordinate vectors, axis a of shape ``(n_a,)``, in [0, 1).
        values: ``(S, n_1, ..., n_D, C)``.
        start: Position of the first sample per axis, if this is a block of a larger grid.
    """

    axes: tuple[Tensor, ...]
    values: Tensor
    start: tuple[int, ...] | None = None

    def block(self, block: Block) -> GridBatch:
        """A block of this batch, whose values are a view, with its position in the same grid."""
        index = (slice(None), *block)
        mask, train_mask = (None if mask is None else mask[index] for mask in (self.mask, self.train_mask))
        axes = tuple(x[along] for x, along in zip(self.axes, block, strict=True))
        firsts = zip(self.start or (0,) * len(block), block, strict=True)
        start = tuple(first + along.start for first, along in firsts)
        return GridBatch(axes, self.values[index], start, mask=mask, train_mask=train_mask)

    def take(self, index: Tensor) -> PointBatch:
        """The samples at these row-major positions, ``(P,)``."""
        return PointBatch.of_grid(self.axes, index[None], self.values.flatten(1, -2).index_select(1, index))


@dataclass
class PointBatch(SampleBatch):
    """Values at scattered points; other arguments as of :class:`SampleBatch`.

    Args:
        coords: ``(S or 1, P, D)``: each signal's own points, or points shared by all signals.
        values: ``(S, P, C)``.
        axes: Coordinate vectors of the grid whose samples the points are, or of a grid of the same density, axis a of shape
            ``(N_a,)``. Baselines measure lengths in its samples.
        index: Row-major positions of the points in the grid, ``(S or 1, P)`` integers; ``None``: they lie on no grid.
    """

    coords: Tensor
    values: Tensor
    axes: tuple[Tensor, ...] | None = None
    index: Tensor | None = None

    @classmethod
    def of_grid(cls, axes: Sequence[Tensor], index: Tensor, values: Tensor) -> PointBatch:
        """Samples of a grid, at row-major positions ``(S or 1, P)``."""
        return cls(point_coordinates(axes, index), values, tuple(axes), index)

    def take(self, index: Tensor) -> PointBatch:
        """Some of the points, by their positions ``(P,)`` in this batch."""
        positions = None if self.index is None else self.index.index_select(1, index)
        coords, values = self.coords.index_select(1, index), self.values.index_select(1, index)
        return PointBatch(coords, values, self.axes, positions)


Batch = TypeVar("Batch", bound=GridBatch | PointBatch)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors on a device; the same object if they are there already."""
    if batch.values.device == device:
        return batch

    def move(value: object) -> object:
        if isinstance(value, Tensor):
            return value.to(device)
        return tuple(move(entry) for entry in value) if isinstance(value, tuple) else value

    given = [field.name for field in fields(batch) if field.init]
    return type(batch)(**{name: move(getattr(batch, name)) for name in given})  # type: ignore[arg-type]


def sample_coordinates(batch: GridBatch | PointBatch, points: int) -> Tensor:
    """Coordinates of all samples of a batch, or of ``points`` of them, always the same: ``(S or 1, P, D)``."""
    count = math.prod(batch.values.shape[1:-1])
    chosen = np.arange(count) if count <= points else np.sort(np.random.default_rng(0).choice(count, points, replace=False))
    return batch.take(torch.from_numpy(chosen).to(batch.values.device)).coords


def find_lattice(batch: PointBatch) -> GridBatch | None:
    """The grid that points are, but for a fifth of its samples at most; ``None`` if they are not.

    Values of absent samples are zero, and the mask is false there.
    """
    if batch.index is not None and batch.axes is not None:
        places = torch.unravel_index(batch.index, [len(x) for x in batch.axes])
        along = [torch.unique(place, return_inverse=True) for place in places]
        axes = [x[unique] for x, (unique, _) in zip(batch.axes, along, strict=True)]
        distances = [unique for unique, _ in along]  # an axis of the grid may be uneven itself
    elif len(batch.coords) == 1:
        along = [torch.unique(x, return_inverse=True) for x in batch.coords.unbind(-1)]
        axes = distances = [unique for unique, _ in along]
    else:
        return None
    sizes, count = [len(x) for x in axes], batch.values.shape[1]
    total = math.prod(sizes)
    if min(sizes) < 2 or not total * (1 - MAX_MISSING) <= count <= total or not all(map(_is_even, distances)):
        return None
    index = torch.zeros_like(along[0][1])
    for (_, inverse), size in zip(along, sizes, strict=True):
        index = index * size + inverse
    mask = torch.zeros(len(index), total, dtype=torch.bool, device=index.device).scatter_(1, index, True)
    if int(mask.sum()) < index.numel():  # several values at one place
        return None
    signals, _, channels = batch.values.shape
    values = batch.values.new_zeros(signals, total, channels)
    values.scatter_(1, index.expand(signals, -1)[..., None].expand(-1, -1, channels), batch.values)
    there = None if bool(mask.all()) else mask.reshape(-1, *sizes)
    return GridBatch(tuple(axes), values.reshape(signals, *sizes, channels), mask=there)


def _is_even(x: Tensor) -> bool:
    steps = x.double().diff()
    return bool(steps.max() <= MAX_SPACING_RATIO * steps.min())

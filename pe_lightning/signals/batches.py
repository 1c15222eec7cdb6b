"""The interface between DataModules and modules: the shape of the signals, and batches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lightning.signals.axes import Axis, SampleKind
from pe_lightning.signals.blocks import Block, point_coordinates
from pe_lightning.signals.raw import Media, ValueRange


@dataclass(frozen=True)
class SignalInfo:
    """Shape and origin of a set of signals; a module is built from it.

    Args:
        names: One name per signal.
        grid: Number of samples per axis, ``(N_1, ..., N_D)``; for scattered samples that of a grid of their density.
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

    @property
    def cells(self) -> tuple[float, ...]:
        """Lengths of the cells that samples are means of, one per axis; none if samples are values at points."""
        return tuple(1 / n for n in self.grid) if self.samples == "cells" else ()

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


@dataclass
class GridBatch:
    """Values on a separable grid: one coordinate vector per axis.

    Args:
        axes: ``D`` coordinate vectors, axis a of shape ``(n_a,)``, in [0, 1).
        values: ``(S, n_1, ..., n_D, C)``.
        mask: True for samples that are scored, ``(S or 1, n_1, ..., n_D)``. ``None``: all.
        train_mask: In an evaluation batch, true for samples that were trained on; same shape as ``mask``.
        start: Position of the first sample per axis, if this is a block of a larger grid.
        total: In a training batch divided among processes, the number of samples per signal over all processes.
    """

    axes: tuple[Tensor, ...]
    values: Tensor
    mask: Tensor | None = None
    train_mask: Tensor | None = None
    start: tuple[int, ...] | None = None
    total: int | None = None

    def block(self, block: Block) -> GridBatch:
        """A block of this batch, whose values are a view, with its position in the same grid."""
        index = (slice(None), *block)
        mask, train_mask = (None if mask is None else mask[index] for mask in (self.mask, self.train_mask))
        axes = tuple(x[along] for x, along in zip(self.axes, block, strict=True))
        firsts = zip(self.start or (0,) * len(block), block, strict=True)
        return GridBatch(axes, self.values[index], mask, train_mask, tuple(first + along.start for first, along in firsts))


@dataclass
class PointBatch:
    """Values at scattered points.

    Args:
        coords: ``(S or 1, P, D)``: each signal's own points, or points shared by all signals.
        values: ``(S, P, C)``.
        axes: Coordinate vectors of the grid whose samples the points are, axis a of shape ``(N_a,)``.
        index: Row-major positions of the points in that grid, ``(S or 1, P)`` integers.
        total: In a training batch divided among processes, the number of points per signal over all processes.
        mask: True for points that are scored, ``(S or 1, P)``. ``None``: all.
        train_mask: In an evaluation batch, true for points that were trained on; same shape as ``mask``.
        grid: Of points that are not samples of a grid, the number of samples per axis of a grid of their density, ``(D,)``:
            distances between its samples are the unit of length.
    """

    coords: Tensor
    values: Tensor
    axes: tuple[Tensor, ...] | None = None
    index: Tensor | None = None
    total: int | None = None
    mask: Tensor | None = None
    train_mask: Tensor | None = None
    grid: tuple[int, ...] | None = None


def sample_coordinates(batch: GridBatch | PointBatch, points: int) -> Tensor:
    """Coordinates of all samples of a batch, or of ``points`` of them, always the same: ``(S or 1, P, D)``."""
    count = math.prod(batch.values.shape[1:-1])
    chosen = np.arange(count) if count <= points else np.sort(np.random.default_rng(0).choice(count, points, replace=False))
    index = torch.from_numpy(chosen).to(batch.values.device)
    return batch.coords[:, index] if isinstance(batch, PointBatch) else point_coordinates(batch.axes, index)[None]

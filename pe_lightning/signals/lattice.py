"""Samples that are a grid, or nearly: every sample of some coordinates per axis, but for a few."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lightning.signals.batches import GridBatch, PointBatch

MAX_MISSING = 0.2
"""Largest share of missing samples with which samples are treated as a grid."""
MAX_SPACING_RATIO = 2.5
"""Largest ratio of the distances of neighbours along an axis; a line that is missing leaves twice the distance."""


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

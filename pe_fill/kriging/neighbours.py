"""Neighbourhoods of scattered samples: points that are next to each other share one system of the samples around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from pe_lightning.linalg.threads import side_by_side

Array = np.ndarray[Any, np.dtype[Any]]

POINTS_PER_BLOCK = 128
"""Most points of a group that are predicted at once."""
MAX_NUMBERS = 1 << 18
"""Numbers of the matrices that are held at once: few enough for the cache of a CPU."""


def split_by_medians(places: Array, size: int) -> tuple[Array, Array]:
    """Splits points ``(P, D)`` into cells of at most ``size`` points, at medians along the longest side of each cell.

    Returns:
        The points in the order of the cells, ``(P,)``, and the start of each cell in that order, ``(G,)``.
    """
    order = np.arange(len(places))
    start, cells = np.array([0, len(places)]), np.array([-(-len(places) // size)])
    while cells.max() > 1:
        ordered = places[order]
        extent = np.maximum.reduceat(ordered, start[:-1]) - np.minimum.reduceat(ordered, start[:-1])
        counts = np.diff(start)
        group = np.repeat(np.arange(len(cells)), counts)
        along = np.take_along_axis(ordered, extent.argmax(1)[group][:, None], 1)[:, 0]
        order = order[np.lexsort((along, group))]
        left = cells // 2
        middle = start[:-1] + np.round(counts * left / cells).astype(start.dtype)
        bounds = np.stack([start[:-1], middle], 1).ravel()
        cells = np.stack([left, cells - left], 1).ravel()
        start = np.append(bounds[cells > 0], len(places))
        cells = cells[cells > 0]
    return order, start[:-1]


class Neighbourhoods:
    """Scattered samples ``(P, D)`` in cells of at most ``core``, and the ``count`` samples nearest to each cell."""

    cell: Array
    """Cell of each sample, ``(P,)``."""
    near: Array
    """Samples of each neighbourhood, ``(G, n)``, by decreasing distance from the cell: its own samples are the last."""
    own: Array
    """Which of the last ``core`` samples of each neighbourhood belong to the cell, ``(G, core)`` booleans."""
    spacing: Array
    """Mean distance of the samples of each neighbourhood, ``(G,)``."""

    def __init__(self, places: Array, core: int, count: int) -> None:
        self.places, self.tree = places, cKDTree(places)
        count, axes = min(count, len(places)), places.shape[1]
        self.core = min(core, count)
        order, start = split_by_medians(places, self.core)
        low, high = (extreme.reduceat(places[order], start) for extreme in (np.minimum, np.maximum))
        self.cell = np.empty(len(places), dtype=np.int64)
        self.cell[order] = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(places))))
        size = np.diff(np.append(start, len(places)))
        column = np.arange(self.core)
        members = order[np.minimum(start[:, None] + column, len(places) - 1)]
        searched = min(len(places), round(1.3 * count) + 2)
        distance, found = self.tree.query((low + high) / 2, np.arange(1, searched + 1))
        beyond = np.maximum(np.maximum(low[:, None] - places[found], places[found] - high[:, None]), 0)
        key = np.square(beyond).sum(-1) + 1e-9 * np.square(distance)  # of equally far ones those near the centre
        key[self.cell[found] == np.arange(len(start))[:, None]] = np.inf  # they come from ``members``
        every = np.concatenate([found, members], 1)
        key = np.concatenate([key, np.where(column < size[:, None], -1.0, np.inf)], 1)
        taken = np.argsort(key, 1, kind="stable")[:, :count][:, ::-1]
        self.near = np.take_along_axis(every, taken, 1)
        self.own = np.take_along_axis(key, taken, 1)[:, -self.core :] < 0
        radius, unit_ball = distance[:, count - 1], (2.0, np.pi, 4 / 3 * np.pi)[axes - 1]
        spacing = (count / unit_ball) ** (-1 / axes) * radius
        coinciding = spacing <= 0
        self.spacing = np.where(coinciding, spacing[~coinciding].min() if not coinciding.all() else 1.0, spacing)

    def nearest(self, points: Array) -> tuple[Array, Array]:
        """The nearest sample of points ``(Q, D)`` and its distance, ``(Q,)`` each."""
        distance, sample = self.tree.query(points)
        return sample, distance


class Block(NamedTuple):
    """Points of some groups."""

    groups: Tensor
    """``(B,)``."""
    points: Tensor
    """Numbers of the points of each group, ``(B, Q)``; padded."""
    valid: Tensor
    """Which are not padding, ``(B, Q)`` booleans."""


def blocks_of(group: Tensor, count: int, size: int) -> Iterator[Block]:
    """Points in blocks of up to ``size`` groups, by the group of each, ``(Q,)`` below ``count``.

    Groups with as many points are together.
    """
    order = group.argsort(stable=True)
    counts = group.bincount(minlength=count)
    first = counts.cumsum(0) - counts
    parts = (counts + POINTS_PER_BLOCK - 1) // POINTS_PER_BLOCK
    groups = torch.arange(len(counts), device=group.device).repeat_interleave(parts)
    part = torch.arange(len(groups), device=group.device) - (parts.cumsum(0) - parts)[groups]
    start = first[groups] + part * POINTS_PER_BLOCK
    sizes = (counts[groups] - part * POINTS_PER_BLOCK).clamp_max(POINTS_PER_BLOCK)
    for some in torch.split(sizes.argsort(stable=True), size):
        column = torch.arange(int(sizes[some[-1]]), device=group.device)
        valid = column < sizes[some][:, None]
        yield Block(groups[some], order[(start[some][:, None] + column).clamp_max(len(order) - 1)], valid)


def in_groups(places: Tensor, group: Tensor, size: int, system: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Predictions at places ``(Q, D)`` float64, by groups ``(Q,)`` from zero that share one system: ``(M, Q, C)``.

    Up to ``size`` systems are computed at once: centres ``(B, D)``, places ``(B, q, D)`` -> predictions ``(M, B, q, C)``.
    """
    _, group, counts = torch.unique(group, return_inverse=True, return_counts=True)
    centres = torch.zeros(len(counts), places.shape[1], dtype=places.dtype, device=places.device)
    centres = centres.index_add_(0, group, places.detach()) / counts[:, None]

    return by_blocks(group, len(counts), size, lambda block: system(centres[block.groups], places[block.points]))


def by_blocks(group: Tensor, count: int, size: int, predict: Callable[[Block], Tensor]) -> Tensor:
    """Predictions ``(M, B, q, C)`` at the points of blocks (:func:`blocks_of`), side by side, as ``(M, Q, C)``."""
    blocks = list(blocks_of(group, count, size))
    found = side_by_side(lambda block: predict(block)[:, block.valid], blocks, group.device)
    everything, indices = torch.cat(found, 1), torch.cat([block.points[block.valid] for block in blocks])
    return torch.empty_like(everything).index_copy(1, indices, everything)


def neighbours_around(tree: cKDTree, places: Tensor, centres: Tensor, count: int, searched: int) -> Tensor:
    """As many samples from each octant of directions as there are, the nearest first: centres ``(B, D)`` -> ``(B, count)``.

    They are among the nearest ``searched`` samples of the places ``(P, D)``, which the tree holds.
    """
    axes = centres.shape[1]
    searched = min(searched, len(places))
    if searched <= count:
        return torch.arange(count, device=centres.device).expand(len(centres), -1)
    found = tree.query(centres.cpu().numpy(), np.arange(1, searched + 1))[1]
    near = torch.from_numpy(found).to(centres.device)
    offsets = places[near] - centres[:, None]
    octant = ((offsets > 0) * 2 ** torch.arange(axes, device=centres.device)).sum(-1)
    octants = 2**axes
    if axes == 2:  # the halves of a quadrant
        octant, octants = octant + 4 * (offsets[..., 0].abs() > offsets[..., 1].abs()), 8
    rank = torch.zeros_like(octant)
    for number in range(octants):
        inside = octant == number
        rank = torch.where(inside, inside.cumsum(1), rank)
    key = torch.arange(searched, device=near.device) + searched * (rank > count // octants)
    return near.gather(1, key.argsort(1)[:, :count])


def squared_distances(points: Tensor, offsets: Tensor) -> Tensor:
    """``(B, q, D)`` and ``(B, n, D)`` -> ``(B, q, n)``."""
    along = ((x[:, :, None] - y[:, None]).square() for x, y in zip(points.unbind(-1), offsets.unbind(-1), strict=True))
    total: Tensor = sum(along, start=torch.zeros((), dtype=points.dtype, device=points.device))
    return total

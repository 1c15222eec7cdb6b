"""Scattered samples in cells, with the samples around each cell, so that points of a cell share their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

Array = np.ndarray[Any, np.dtype[Any]]


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

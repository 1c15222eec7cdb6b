"""Sizes of errors in gaps relative to errors in their copies."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from pe_fill.mixture.gaps import Array, Mask, surroundings

DISTANCES, LEAST_TRIPLES = (1, 2, 3, 4, 6, 8, 12, 16), 30
"""Distances at which neighbours predict known samples, and the fewest predictions of a mean error."""
LEAST_CHANGE = 0.01
"""Least change between slabs, relative to the largest one of a signal."""
STEEPER = 0.8
"""Exponent by which errors grow faster at the smallest distances of a lattice, as measured on photographs."""


def slab_changes(values: Tensor, known: Tensor, axis: int) -> Tensor:
    """Mean squared differences of the two known slabs around each one, as ``(N, 1, 1)``; of the nearest close two at an end.

    Squared errors in lost frames and slices are about proportional to them. Of a signal ``(N_1, ..., N_D, C)``.
    """
    places = known.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0]
    if len(places) < 2:
        return torch.ones(1).to(values)
    pairs = zip(places[:-1].tolist(), places[1:].tolist(), strict=True)
    squares = torch.stack([(values.select(axis, a) - values.select(axis, b)).square().mean() for a, b in pairs])
    squares = squares.clamp_min(LEAST_CHANGE * float(squares.max()) + torch.finfo(squares.dtype).tiny)
    close = squares[places.diff() == places.diff().min()]
    number = torch.searchsorted(places, torch.arange(known.shape[axis], device=known.device))
    return torch.cat([close[:1], squares, close[-1:]])[number].reshape(-1, *[1] * (known.ndim - 1 - axis))


def carried_over(values: Tensor, known: Tensor, step: int, error: float, sides: int = 2) -> float:
    """Size of errors in a regular pattern relative to errors in its copy at ``step`` times the spacing, at most 1.

    Of one signal ``(N_1, ..., N_D, C)``. It follows from how errors of the mean of two neighbours grow with their distance:
    along axes whose neighbours are missing from the least distance of known samples on. Below that distance the growth is as
    much steeper as along axes whose neighbours are known; if there is none, by :data:`STEEPER`. A method whose mean squared
    ``error`` in the copy is far below is limited by noise instead, which does not depend on the distance.
    Of samples with known ones on one of the ``sides`` only it follows from errors of the nearest one.
    """
    have, data = known.cpu().numpy(), values.double().cpu().numpy()
    errors = np.array([[_neighbour_error(data, have, axis, k, sides) for k in DISTANCES] for axis in range(have.ndim)])
    near, far = np.isfinite(errors[:, 0]), np.isfinite(errors).any(1) & ~np.isfinite(errors[:, 0])
    middle = float(np.median(surroundings(have)[1][~have])) / 2
    if not far.any():
        return min(1.0, step ** (-_growth(errors[near], middle, step) / 2)) if near.any() else 1.0
    least = min(DISTANCES[int(np.isfinite(row).argmax())] for row in errors[far])
    exponent = _growth(errors[far], least, 2)
    if near.any() and math.isnan(exponent):  # too few samples along an axis: as along others, where errors are as large
        size = float(np.nanmax(errors[far]))
        alike = np.interp(size, np.maximum.accumulate(np.nan_to_num(errors[near]).max(0)), DISTANCES)
        exponent = _growth(errors[near], max(1.0, alike * middle / least), step)
    elif near.any():
        fine, coarse = _growth(errors[near], middle, step), _growth(errors[near], least, 2)
        exponent += (fine - coarse) * (np.clip(2 * exponent / coarse, 0.5, 1) if coarse > 0 else 1)
    elif have.ndim > 1:
        exponent += STEEPER * np.clip(2 * exponent, 0, 1)
    exponent *= np.clip(2 * error / np.nanmean(errors[far, DISTANCES.index(least)]), 0, 1)
    return float(min(1.0, step ** (-np.nan_to_num(exponent) / 2)))


def _growth(errors: Array, distance: float, times: float) -> float:
    """Mean exponent of errors ``(W, K)`` between a distance and a multiple of it; NaN where they are not known there."""
    found = []
    for row in errors:
        at, known = np.log(DISTANCES), np.isfinite(row)
        if DISTANCES[int(np.flatnonzero(known)[-1])] >= times * distance:
            low, high = np.interp(np.log([distance, times * distance]), at[known], np.log(row[known]))
            found.append((high - low) / math.log(times))
    return float(np.mean(found)) if found else math.nan


def _neighbour_error(values: Array, have: Mask, axis: int, distance: int, sides: int) -> float:
    """Mean squared error of the sample at a distance from a known one along an axis, or of the mean of both, if known."""
    have, values = np.moveaxis(have, axis, 0), np.moveaxis(values, axis, 0)
    count = max(0, len(have) - sides * distance)
    here, *around = (slice(start, start + count) for start in (distance, 0, 2 * distance)[: 1 + sides])
    inside = np.logical_and.reduce([have[place] for place in (here, *around)])
    if inside.sum() < LEAST_TRIPLES:
        return math.nan
    mean = np.mean([values[place] for place in around], 0)
    return float(np.square(values[here] - mean)[inside].mean()) + 1e-20

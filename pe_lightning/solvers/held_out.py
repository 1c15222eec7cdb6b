"""Training samples that are held out to compare widths, ridges and encoders.

On a grid every second sample of each axis is held out, and the features are made for the coarser grid: the held-out samples
then lie half a spacing from fitted ones, as the samples that are predicted later. A tenth of scattered points is held out.
Of large grids only windows are used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from pe_lightning.encoders import samples_per_unit
from pe_lightning.signals.blocks import Block

MIN_AXIS_SAMPLES = 8
"""Axes with fewer samples are not subsampled."""
GRID_WINDOW_SAMPLES = {1: 1024, 2: 256, 3: 64}
"""Samples per axis of a window of a grid, by number of axes."""
POINT_WINDOW_SAMPLES = {1: 2048, 2: 128, 3: 32}
"""Samples per axis of a window of a grid of scattered samples, by number of axes."""
LEAVE_ONE_OUT_SAMPLES = {1: 256, 2: 48, 3: 16}
"""Samples per axis of a window of a grid whose samples are left out one at a time, by number of axes."""
MAX_GRID_SIGNALS = 6
"""Most signals on a grid that are used."""
MAX_LEAVE_ONE_OUT_SIGNALS = 2
"""Most signals on a grid whose samples are left out one at a time."""
MIN_WINDOW_SAMPLES = 16
"""Samples per axis of a window of more than three axes."""
MAX_POINT_SIGNALS = 4
"""Most signals at scattered points that are used."""
HELD_OUT_FRACTION = 0.1
"""Share of scattered training points that is held out."""
MIN_HELD_OUT_POINTS = 16
"""Fewest held-out points of a signal."""


# -- grids --------------------------------------------------------------------------------------------------------------


class GridValues(Protocol):
    """Values ``(S, N_1, ..., N_D, C)`` that are indexed by signals and a block: a tensor, or samples in a file."""

    @property
    def shape(self) -> torch.Size: ...

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def __getitem__(self, index: tuple[slice, ...], /) -> Tensor: ...


class GridWindows(NamedTuple):
    """Windows of a grid, each as a small grid over the whole domain."""

    values: Tensor
    """``(W, S', C, n_1, ..., n_D)``."""
    coords: list[Tensor]
    """``(n_a,)`` per axis, float64."""
    enlarged: list[float]
    """Samples of the grid over samples of the window, per axis."""
    known: Tensor | None
    """Mask of the samples that are not missing, ``(W, S' or 1, n_1, ..., n_D)``."""


def grid_windows(
    values: GridValues, axes: Sequence[Tensor], sizes: Sequence[int], side: int, signals: int, mask: Tensor | None = None
) -> GridWindows:
    """Windows of at most ``side`` samples per axis, of some of the ``signals`` of a grid of ``sizes`` samples.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, the grid or a part of it.
        axes: Coordinates, ``(N_a,)`` per axis.
        sizes: Samples per axis of the whole grid.
        side: Most samples per axis of a window.
        signals: Most signals.
        mask: The known samples, ``(S or 1, N_1, ..., N_D)``.
    """
    some, blocks = slice(None, None, -(-values.shape[0] // signals) or 1), window_blocks(values.shape[1:-1], side)
    windows = torch.stack([values[tuple([some, *block])].movedim(-1, 1) for block in blocks])
    windows = windows.to(torch.promote_types(values.dtype, torch.float32))
    known = None
    if mask is not None:
        own = some if len(mask) > 1 else slice(None)
        known = torch.stack([mask[tuple([own, *block])] for block in blocks])
    enlarged = [size / n for size, n in zip(sizes, windows.shape[3:], strict=True)]
    starts = [x[:side].to(torch.float64) for x in axes]
    coords = [(x - x[0]) * ratio + x[0] for x, ratio in zip(starts, enlarged, strict=True)]
    return GridWindows(windows, coords, enlarged, known)


class ThinnedGrid(NamedTuple):
    """Windows of a grid: every second sample of each longer axis is fitted, the rest is held out."""

    values: Tensor
    """``(W, S', C, n_1, ..., n_D)``."""
    coords: list[Tensor]
    """Coordinates of a window as a small grid over the whole domain, ``(n_a,)`` per axis, float64."""
    enlarged: list[float]
    """Samples of the grid over samples of the window, per axis."""
    strides: list[int]
    """2 for axes where every second sample is held out, else 1."""
    axis_weights: list[Tensor]
    """Factors of the weights of the samples per axis, ``(n_a,)`` float64 on the CPU; one at fitted samples."""

    @property
    def fitted(self) -> Tensor:
        """One at the fitted samples, zero elsewhere, ``(n_1, ..., n_D)`` float64."""
        known = [
            (torch.arange(len(w)) % stride == 0).double() for w, stride in zip(self.axis_weights, self.strides, strict=True)
        ]
        return reduce(torch.kron, known).reshape(self.values.shape[3:]).to(self.values.device)

    @property
    def weight(self) -> Tensor:
        """Weights of the held-out samples, zero elsewhere, ``(n_1, ..., n_D)`` float64."""
        every = reduce(torch.kron, self.axis_weights).reshape(self.values.shape[3:])
        return every.to(self.values.device) * (1 - self.fitted)


def thinned_grid(values: GridValues, axes: Sequence[Tensor], sizes: Sequence[int]) -> ThinnedGrid:
    """From values ``(S, N_1, ..., N_D, C)`` at coordinates ``(N_a,)`` per axis, a part of a grid of ``sizes`` samples."""
    side = GRID_WINDOW_SAMPLES.get(len(axes), MIN_WINDOW_SAMPLES)
    windows, coords, enlarged, _ = grid_windows(values, axes, sizes, side, MAX_GRID_SIGNALS)
    lengths = windows.shape[3:]
    strides = [2 if n >= MIN_AXIS_SAMPLES else 1 for n in lengths]
    weights = []
    for n, stride in zip(lengths, strides, strict=True):
        # samples beyond the last fitted one are a larger share of the coarse grid than of the original one
        weights.append(torch.ones(n, dtype=torch.float64))
        weights[-1][-1] = 0.5 if stride == 2 and n % 2 == 0 else 1.0
    return ThinnedGrid(windows, coords, enlarged, strides, weights)


def window_blocks(grid: Sequence[int], side: int) -> list[Block]:
    """Windows of at most ``side`` samples per axis, evenly spread; a longer axis has at least two, which may overlap."""
    along = []
    for n in grid:
        # parts of a sound differ more than parts of a picture
        count, width = 1 if n <= side else min(32 if len(grid) == 1 else 2, max(2, n // side)), min(n, side)
        starts = [(2 * turn + 1) * (n - width) // (2 * count) for turn in range(count)]
        along.append([slice(start, start + width) for start in starts])
    return list(itertools.product(*along))


# -- scattered points ---------------------------------------------------------------------------------------------------


def point_windows(
    values: Tensor, axes: Sequence[Tensor], mask: Tensor | None, index: Tensor | None, distributed: bool
) -> tuple[Tensor, dict[str, Any], list[float]] | None:
    """Windows of a large grid of scattered samples, each a signal, without windows that have hardly any sample.

    The arguments are as for :func:`~pe_lightning.solvers.choose_points`; the mask is ``(S or 1, N_1, ..., N_D)``.

    Returns:
        Values ``(W, n_1, ..., n_D, C)``; the arguments of the solvers that say where samples are, with coordinates spread
        over
        the domain; samples of the grid over samples of the window per axis. ``None`` if no window is smaller, or full
        enough.
    """
    grid, side = [len(x) for x in axes], POINT_WINDOW_SAMPLES.get(len(axes), MIN_WINDOW_SAMPLES)
    if max(grid) <= side:
        return None
    some = slice(0, None, -(-len(values) // MAX_POINT_SIGNALS))
    if mask is None:
        assert index is not None  # checked by point_samples
        places = index.to(values.device).expand(len(values), -1)[some]
        mask = torch.zeros(len(places), math.prod(grid), dtype=torch.bool, device=values.device).scatter_(1, places, True)
        whole = values.new_zeros(*mask.shape, values.shape[-1])
        whole.scatter_(1, places[..., None].expand(-1, -1, values.shape[-1]), values[some])
        values = whole.reshape(len(whole), *grid, -1)
    else:
        mask = mask.to(values.device).expand(len(values), *grid)[some]
        values = values[some]
    mask = mask.reshape(-1, *grid)
    found, where = (
        torch.cat([x[tuple([slice(None), *block])] for block in window_blocks(grid, side)]) for x in (values, mask)
    )
    counts = where.flatten(1).sum(1)
    if distributed:
        torch.distributed.all_reduce(counts)
    enough = counts >= MIN_HELD_OUT_POINTS / HELD_OUT_FRACTION
    if not enough.any():
        return None
    ratios = [n / min(n, side) for n in grid]
    spread = [(x[:side] - x[0]) * ratio + x[0] for x, ratio in zip(axes, ratios, strict=True)]
    return found[enough], {"coords": None, "axes": spread, "mask": where[enough], "index": None}, ratios


def point_density(
    values: Tensor, axes: Sequence[Tensor] | None, mask: Tensor | None, num_axes: int, distributed: bool
) -> list[float]:
    """Samples per unit length of each axis of a grid with as many samples as there are points, mean over signals."""
    own = float(values.shape[1]) if mask is None else mask.float().mean().item() * values[0, ..., 0].numel()
    count = torch.tensor(own, device=values.device)
    if distributed and torch.distributed.is_initialized():
        torch.distributed.all_reduce(count)
    if axes is None:
        return [max(float(count), 1.0) ** (1 / num_axes)] * num_axes
    share = max(float(count), 1.0) / math.prod(len(x) for x in axes)
    return [samples_per_unit(x) * share ** (1 / num_axes) for x in axes]


def draw_fractions(coords: Sequence[Tensor]) -> Tensor:
    """Pseudo-random numbers in [0, 1) from coordinates per axis, the same on every device and process."""
    state = torch.ones_like(coords[0], dtype=torch.int64)
    for x in coords:
        # multiply and fold, as in splitmix64; products wrap around
        state = (state ^ (x.double() * 2**40).long()) * -7046029254386353131
        state = state ^ (state >> 32)
        state = state * -4658895280553007687
        state = state ^ (state >> 29)
    return (state & 0xFFFFFFFF).double() / 2**32

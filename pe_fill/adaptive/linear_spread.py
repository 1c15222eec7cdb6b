"""Standard deviations of the predictions of any exact fit on a grid, and of linear fits, from errors at held-out samples.

Their shape follows from local ordinary kriging, scaled by its local leave-one-out errors
(:meth:`~pe_fill.adaptive.points.AdaptivePoints.std`); their size from the errors of the fit itself, made again to
every second sample of each axis, so that held-out samples lie as the points between samples do, at twice the distance, and
to every fourth, at four times the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.calibration import CalibrationSet
from pe_fill.adaptive.points import MIN_SAMPLES, RIDGE, AdaptivePoints
from pe_lightning.encoders import Encoder
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.resolution import keeps_its_arguments, shrunk_arguments
from pe_lightning.signals import GridBatch, PointBatch, Signals
from pe_lightning.signals.batches import to_device
from pe_lightning.solvers import Solution, solve_grid, solve_points
from pe_lightning.solvers.held_out import MIN_AXIS_SAMPLES


def linear_spread(
    train: Signals, solution: Solution, center: bool, device: torch.device
) -> Callable[[], AdaptivePoints] | None:
    """Makes the standard deviations of a linear fit of one signal in memory; ``None`` if it has too few samples."""
    info = train.info
    if train.split.num_train < MIN_SAMPLES[info.num_axes - 1]:
        return None
    batch, periodic = to_device(train.train_batch(), device), [axis.periodic for axis in info.axes]
    return partial(linear_uncertainty, batch, info.grid, solution.encoders, solution.ridge, center, periodic)


@torch.no_grad()
def linear_uncertainty(
    batch: GridBatch | PointBatch,
    grid: Sequence[int],
    encoders: Sequence[Encoder],
    ridge: float,
    center: bool,
    periodic: Sequence[bool] = (),
) -> AdaptivePoints:
    """Local fits with the standard deviations of a linear fit; ``grid`` are the samples per axis of the whole signal."""
    options: dict[str, Any] = {"ridge": ridge, "center": center}
    if isinstance(batch, PointBatch):
        bank = AnisotropicKernels("laplace", len(grid), 0, ())
        refit = partial(_refit_points, batch, encoders, options)
        return AdaptivePoints(bank, batch.values[0], batch.coords[0], grid, 0.8, RIDGE, False, periodic, refit=refit)
    places = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1).flatten(0, -2)
    return uncertainty_of_grid(batch.values[0], places, grid, partial(_refit_grid, batch, encoders, options), False)


def _refit_points(
    batch: PointBatch, encoders: Sequence[Encoder], options: dict[str, Any], others: Tensor, held: Tensor
) -> Tensor:
    where: dict[str, Any] = {"coords": batch.coords[:, others]}
    if batch.index is not None:
        where |= {"axes": batch.axes, "index": batch.index[:, others]}
    return solve_points(batch.values[:, others], encoders, **options, **where).at(batch.coords[:, held])[0]


def _refit_grid(
    batch: GridBatch, encoders: Sequence[Encoder], options: dict[str, Any], step: Sequence[int], held: Tensor
) -> Tensor:
    """By the fit of every so many samples; features per sample, and widths in units of the sample spacing, stay."""
    fixed = [keeps_its_arguments(encoder) for encoder in encoders]
    axes = [x / s if stays else x for x, s, stays in zip(batch.axes, step, fixed, strict=True)]
    coarse = [
        resized(encoder, 1 / s) if stays else encoder.copy(**shrunk_arguments(encoder, s))
        for encoder, s, stays in zip(encoders, step, fixed, strict=True)
    ]
    every = [slice(None, None, s) for s in step]
    thin = [x[e] for x, e in zip(axes, every, strict=True)]
    found = solve_grid(batch.values[tuple([slice(None), *every])], coarse, thin, **options)
    return found.predict(axes)[0].flatten(0, -2)[held]


def uncertainty_of_grid(
    values: Tensor,
    coords: Tensor,
    grid: Sequence[int],
    refit: Callable[[Sequence[int], Tensor], Tensor],
    keeps_samples: bool,
) -> AdaptivePoints:
    """Local fits whose :meth:`~AdaptivePoints.std` belongs to another fit of samples ``(n_1, ..., n_D, C)`` on a grid.

    ``refit`` predicts held-out samples, given by row-major numbers ``(H,)``, from every so many samples per axis: ``(H,
    C)``.
    """
    sizes, held_out, pool = values.shape[:-1], [], torch.ones(values.shape[:-1], dtype=torch.bool)
    for factor in (2, 4):
        step = tuple(factor if n >= MIN_AXIS_SAMPLES * factor // 2 else max(1, factor // 2) for n in sizes)
        fitted = torch.zeros(*sizes, dtype=torch.bool)
        fitted[tuple(slice(None, None, s) for s in step)] = True
        held, others = ((which.flatten().nonzero()[:, 0]).to(values.device) for which in (pool & ~fitted, fitted))
        held_out.append(CalibrationSet(held, others, partial(refit, step)))
        pool = fitted
        if min(sizes) < 2 * MIN_AXIS_SAMPLES:
            break
    first = held_out[0] if len(held_out) == 1 else held_out[0]._replace(coarser=held_out[1])
    bank = AnisotropicKernels("laplace", len(grid), 0, ())
    return AdaptivePoints(bank, values.flatten(0, -2), coords, grid, 0.8, RIDGE, keeps_samples, held_out=first)

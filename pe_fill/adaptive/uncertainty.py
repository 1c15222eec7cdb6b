"""Standard deviations of the predictions of any exact fit on a grid, from its errors at samples that are held out.

Their shape follows from local ordinary kriging, scaled by its local leave-one-out errors
(:meth:`~pe_fill.adaptive.points.AdaptivePoints.std`); their size from the errors of the fit itself, made again to
every second sample of each axis, so that held-out samples lie as the points between samples do, at twice the distance, and
to every fourth, at four times the distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.calibration import CalibrationSet
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_lightning.solvers.held_out import MIN_AXIS_SAMPLES


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

r"""Grids with a few missing samples, fitted as grids: the missing samples hold the fit itself.

The ridge fit of the known samples is the fit of the whole grid whose missing samples :math:`z` have no residual,
:math:`((I - H) (y, z))_{missing} = 0`. That is a linear system of the size of :math:`z`, solved by conjugate gradients with
the diagonal :math:`1 - h` as preconditioner: a few iterations where missing samples are apart.

Features that do not connect neighbouring samples, as those of shifted functions that are narrower than the distance of the
samples, or random ones, leave a missing sample to the ridge, which says zero. There missing samples keep their
interpolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.linalg import AxisFactor, factor_axes, mode_products
from pe_lightning.solvers.choice import Choice, axis_encoders, choose_grid
from pe_lightning.solvers.features import encode, on_host
from pe_lightning.solvers.leave_one_out import PROBE_PERIOD, ResidualMap
from pe_lightning.solvers.line import is_line, point_problem

INTERPOLATION_RIDGE = 1e-3
ITERATIONS = 300
CHOICE_TOLERANCE = 1e-4
"""Error of missing samples, relative to the known ones, with which choices are made."""


def interpolated(values: Tensor, axes: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Values ``(S, N_1, ..., N_D, C)``; those outside the mask ``(S or 1, N_1, ..., N_D)`` are predicted by ``laplace``."""
    encoders = axis_encoders("laplace", axes, None, values.shape[-1], values.device)
    where: dict[str, Any] = {"coords": None, "axes": axes, "mask": mask, "index": None}
    problem = point_problem(values, encoders, center=True, distributed=False, **where)
    weight = problem.decode([minimum.z for minimum in problem.solve(INTERPOLATION_RIDGE, 50, 1e-4, True)])
    features = [encoder(x.to(values.device)).to(weight.dtype) for encoder, x in zip(encoders, axes, strict=True)]
    mean = problem.mean.to(weight.dtype).reshape(*problem.mean.shape, *[1] * len(axes))
    predicted = (mode_products(weight, features) + mean).movedim(1, -1)
    return torch.where(mask[..., None], values, predicted.to(values.dtype))


def choose_with_holes(
    values: Tensor, axes: Sequence[Tensor], encoders: Sequence[Encoder], mask: Tensor, center: bool, **options: Any
) -> tuple[Choice, Tensor]:
    """:func:`~pe_lightning.solvers.choice.choose_grid` for a grid with missing samples, and the values with these filled.

    Missing samples are interpolated. Where the chosen fit differs from the interpolation by more than its own errors, they
    hold the fit, and the choice is made again.
    """
    filled = interpolated(values, axes, mask)
    choice = choose_grid(filled, axes, encoders, center=center, mask=mask, **options)
    if choice.curve and not is_line(choice.encoders):
        near, places = on_host(choice.encoders, axes, values.device)
        mean = known_mean(filled, mask, center)
        factors = factor_axes(encode(near, places, places[0].device))
        fitted = completed(filled - mean, mask, factors, choice.ridge, CHOICE_TOLERANCE)[0] + mean
        change = (fitted - filled)[(~mask).expand(values.shape[:-1])].double().square().mean()
        if float(change) > 10 ** (-max(score for _, score in choice.curve) / 10):
            choice = choose_grid(fitted, axes, encoders, center=center, mask=mask, **options)
            filled = fitted
    return choice, filled


def known_mean(values: Tensor, mask: Tensor, center: bool) -> Tensor:
    """Means of the known samples of each signal and channel, ``(S, 1, ..., 1, C)``; zeros without ``center``."""
    known, axes = mask[..., None].expand(values.shape), tuple(range(1, values.ndim - 1))
    total = (values * known).sum(axes, keepdim=True, dtype=torch.float64)
    return (total / known.sum(axes, keepdim=True) * center).to(values.dtype)


def completed(
    values: Tensor, mask: Tensor, factors: Sequence[AxisFactor], ridge: float, tolerance: float | None = None
) -> tuple[Tensor, float]:
    """Centred values ``(S, N_1, ..., N_D, C)`` whose missing samples hold the ridge fit of the others.

    Args:
        values: Values with interpolated missing samples.
        mask: The known samples, ``(S or 1, N_1, ..., N_D)``.
        factors: Factors of the features of the axes.
        ridge: Relative ridge.
        tolerance: Error of missing samples at which to stop, relative to the known ones; by default near rounding.

    Returns:
        The values, and the root mean square of the remaining errors of missing samples, relative to the known values.
    """
    residuals = ResidualMap(factors, values.device)
    gain = residuals.gain(torch.tensor(ridge, dtype=torch.float64))
    diagonal = residuals.diagonal(gain).clamp_min(1e-300)
    x, missing = values.movedim(-1, 1).double(), ~mask[:, None]
    if not bool(missing.any()) or not _connects(residuals, gain, diagonal):
        return values, 0.0
    scale = x.square().mean().sqrt()
    count = missing.expand(x.shape).sum()
    tolerance = tolerance or (1e-5 if values.dtype == torch.float32 else 1e-12)

    def apply(v: Tensor) -> Tensor:
        return residuals.residuals(residuals.spectrum(v), gain) * missing

    left = -apply(x)
    step = left / diagonal
    direction, product = step, (left * step).sum()
    error = 1.0
    for _ in range(ITERATIONS):
        error = float(step.square().sum().div(count).sqrt() / scale.clamp_min(1e-300))
        if error <= tolerance:
            break
        image = apply(direction)
        length = product / (direction * image).sum()
        x = x + length * direction
        left = left - length * image
        step = left / diagonal
        product, before = (left * step).sum(), product
        direction = step + product / before * direction
    return x.movedim(1, -1).to(values.dtype), error


def _connects(residuals: ResidualMap, gain: Tensor, diagonal: Tensor) -> bool:
    """Whether fits predict a left-out sample of a slow wave from the others, with less than half of its power as error."""
    waves = [torch.cos(2 * torch.pi / PROBE_PERIOD * torch.arange(n).to(diagonal)) for n in diagonal.shape]
    wave = reduce(torch.kron, waves).reshape(1, *diagonal.shape)
    errors = residuals.residuals(residuals.spectrum(wave), gain) / diagonal
    return bool(errors.square().mean() < wave.square().mean() / 2)

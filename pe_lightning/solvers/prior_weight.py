r"""A fit of a signal alone and a prediction trained on other signals, mixed by one weight from samples that are held out.

Both predict the trained samples from every second, and every second of those from every fourth. The weight ``w`` of the
prediction in ``fit + w (prediction - fit)`` with the least squared error is found at each of these spacings,
:math:`w_2` and :math:`w_4`, and the share :math:`R` of the variance of the held-out samples that the fit explains. The
weight for the samples themselves is

.. math:: 0.8 \, \min(1, w_2 - (1 - R_4) \max(0, w_4 - w_2)),

at least zero: signals that are rough at the larger spacing have a weight that falls towards smaller ones, and is
extrapolated. It is zero where :math:`R_2 < 0.3` or :math:`R_4 < 0`, as of noise and of oscillations that larger spacings do
not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["GridField", "MakeField", "MixedGrid", "held_out_weight"]

MIN_SAMPLES = 16
"""Trained samples per axis below which the weight is zero: too few would be held out."""
MIN_EXPLAINED = {2: 0.3, 4: 0.0}
"""Share of the variance of held-out samples that the fit explains, by spacing, below which the weight is zero."""
SHRINKAGE = 0.8
"""Weights found at larger spacings are too large on average: photographs are smoother at smaller ones."""
TINY = 1e-12


class GridField(Protocol):
    """A signal on a grid as a function of coordinates."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""


MakeField = Callable[[Tensor, Sequence[float]], GridField]
"""Makes a field of samples ``(n_1, ..., n_D, C)`` and their distance per axis; the first is always at the same position."""


@torch.no_grad()
def held_out_weight(
    fit: MakeField,
    prediction: MakeField,
    values: Tensor,
    grid: Sequence[int],
    first: Sequence[float],
    step: Sequence[float],
    spaced: Sequence[int] = (0, 1),
) -> float:
    """The weight of the prediction, in [0, 1].

    Args:
        fit: The fit of the signal alone.
        prediction: What is mixed with it.
        values: The trained samples ``(n_1, ..., n_D, C)``.
        grid: Samples of the whole signal per axis.
        first: Position of the first trained sample of each axis.
        step: Distance of trained samples per axis, in samples.
        spaced: The axes along which samples are held out.
    """
    if min(values.shape[axis] for axis in spaced) < MIN_SAMPLES:
        return 0.0
    axes = [
        (start + distance * torch.arange(n, dtype=torch.float64, device=values.device)) / size
        for start, distance, n, size in zip(first, step, values.shape, grid, strict=False)
    ]

    def every_of(count: int) -> tuple[slice, ...]:
        """Every of so many samples of the spaced axes, and all of the others."""
        return tuple(slice(None, None, count if axis in spaced else 1) for axis in range(len(grid)))

    def at_spacing(every: int) -> tuple[float, float]:
        """The weight and the explained share, at samples of ``every / 2`` spacings from those of ``every``."""
        truth = values[every_of(every // 2)].double()
        known = values[every_of(every)].contiguous()
        wide = [every * distance if axis in spaced else distance for axis, distance in enumerate(step)]
        held_out = torch.ones(truth.shape[:-1], dtype=torch.bool, device=values.device)
        held_out[every_of(2)] = False
        places = [x[some] for x, some in zip(axes, every_of(every // 2), strict=True)]
        own, other = ((make(known, wide).predict(places) - truth)[held_out] for make in (fit, prediction))
        difference = own - other
        weight = float((own * difference).sum() / (difference.square().sum() + TINY))
        return weight, 1 - float(own.square().mean() / (truth.var(correction=0) + TINY))

    weight, explained = at_spacing(2)
    if weight <= 0 or explained < MIN_EXPLAINED[2]:
        return 0.0
    coarse, explained = at_spacing(4)
    if explained < MIN_EXPLAINED[4]:
        return 0.0
    weight -= (1 - explained) * max(0.0, coarse - weight)
    return SHRINKAGE * min(1.0, max(0.0, weight))


class MixedGrid:
    """A fit and a prediction with weights that add up to one.

    Args:
        fit: The fit of the signal alone.
        prediction: What is mixed with it.
        weight: Weight of the prediction.
        values: The trained samples.
    """

    def __init__(self, fit: GridField, prediction: GridField, weight: float, values: Tensor) -> None:
        self.fit, self.prediction, self.weight, self.values = fit, prediction, weight, values

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""
        return torch.lerp(self.fit.at(points), self.prediction.at(points), self.weight)

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""
        return self.fit.predict(axes).lerp_(self.prediction.predict(axes), self.weight)

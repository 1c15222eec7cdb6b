r"""A fit of a signal alone and a prediction trained on other signals, mixed by one weight from samples that are held out.

Both predict the trained samples from every second one, and every second one from every fourth. The weight ``w`` of the
prediction in ``fit + w (prediction - fit)`` with the least squared error is found at each of these spacings,
:math:`w_2` and :math:`w_4`, and the share :math:`R` of the variance of the held-out samples that the fit explains. Signals
that are rough at the larger spacing have a weight that falls towards smaller ones, and is extrapolated,

.. math:: w' = \min(1, w_2 - (1 - R_4) \max(0, w_4 - w_2)).

What both predict at the middles between samples differs by the mean square :math:`E_1`, and at twice the spacing by
:math:`E_2`. Where it falls fast, the fit is about to be exact, and the weight is smaller; between strokes of text it hardly
falls. The weight for the samples themselves is

.. math:: 0.3 + 0.6 w' + 0.25 \log_2 (E_1 / E_2),

in [0, 1]. It is zero where :math:`w' \le 0`, :math:`R_2 < 0.3` or :math:`R_4 < 0`, as of noise and of oscillations that
larger spacings do not show. The three numbers were chosen on pictures that the prior had not seen (docs/prior.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

MIN_SAMPLES = 16
"""Trained samples per axis below which the weight is zero: too few would be held out."""
MIN_EXPLAINED = {2: 0.3, 4: 0.0}
"""Share of the variance of held-out samples that the fit explains, by spacing, below which the weight is zero."""
WEIGHT_OFFSET, WEIGHT_SLOPE, WEIGHT_PER_OCTAVE = 0.3, 0.6, 0.25
"""The weight is linear in the extrapolated weight and in the logarithm of the ratio of mean squared differences."""
TINY = 1e-12


class SignalField(Protocol):
    """One signal as a function of coordinates."""

    def at(self, points: Tensor) -> Tensor:
        """Values at points ``(P, D)`` in [0, 1), differentiable: ``(P, C)``."""

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(N_a,)`` per axis: ``(N_1, ..., N_D, C)``."""


MakeField = Callable[[Tensor, Sequence[float]], SignalField]
"""Makes a field of samples ``(n_1, ..., n_D, C)`` and their distance per axis; the first is always at the same position."""


@torch.no_grad()
def held_out_weight(
    fit: MakeField,
    prediction: MakeField,
    fields: tuple[SignalField, SignalField],
    values: Tensor,
    grid: Sequence[int],
    first: Sequence[float],
    step: Sequence[float],
    spaced: Sequence[int] = (0, 1),
) -> float:
    """The weight of the prediction, in [0, 1].

    ``fields`` are the fit and the prediction of all trained samples ``(n_1, ..., n_D, C)``, from the position ``first`` on
    at the distance ``step`` per axis; samples are held out along the axes ``spaced``.
    """
    if min(values.shape[axis] for axis in spaced) < MIN_SAMPLES:
        return 0.0
    axes = [
        (start + distance * torch.arange(n, dtype=torch.float64, device=values.device)) / size
        for start, distance, n, size in zip(first, step, values.shape, grid, strict=False)
    ]

    def every_of(count: int) -> tuple[slice, ...]:
        """Every ``count``-th sample of the spaced axes, and all samples of the other ones."""
        return tuple(slice(None, None, count if axis in spaced else 1) for axis in range(len(grid)))

    def at_spacing(every: int) -> tuple[float, float, float]:
        """Weight, explained share and squared difference, at every ``every / 2``-th sample, from every ``every``-th."""
        truth = values[every_of(every // 2)].double()
        known = values[every_of(every)].contiguous()
        wide = [every * distance if axis in spaced else distance for axis, distance in enumerate(step)]
        held_out = torch.ones(truth.shape[:-1], dtype=torch.bool, device=values.device)
        held_out[every_of(2)] = False
        places = [x[some] for x, some in zip(axes, every_of(every // 2), strict=True)]
        own, other = ((make(known, wide).predict(places) - truth)[held_out] for make in (fit, prediction))
        difference = own - other
        weight = float((own * difference).sum() / (difference.square().sum() + TINY))
        return weight, 1 - float(own.square().mean() / (truth.var(correction=0) + TINY)), float(difference.square().mean())

    def difference_between_samples() -> float:
        """Squared difference of the fields at the middles of edges and faces of some of the cells."""
        places, between = [], torch.zeros((), dtype=torch.bool, device=values.device)
        for axis, (x, n) in enumerate(zip(axes, values.shape, strict=False)):
            cells = torch.arange(0, n - (axis in spaced), max(1, n // 32) if axis != spaced[-1] else 1)
            halves = torch.tensor([0.0, 0.5] if axis in spaced else [0.0], dtype=x.dtype)
            position = (cells[:, None] + halves).flatten().to(x)
            places.append(x[0] + position * (step[axis] / grid[axis]))
            between = between[..., None] | (position % 1 > 0)
        one, other = (field.predict(places) for field in fields)
        return float((one - other)[between].double().square().mean())

    weight, explained, at_twice = at_spacing(2)
    if weight <= 0 or explained < MIN_EXPLAINED[2]:
        return 0.0
    coarse, explained, _ = at_spacing(4)
    if explained < MIN_EXPLAINED[4]:
        return 0.0
    weight = min(1.0, weight - (1 - explained) * max(0.0, coarse - weight))
    if weight <= 0:
        return 0.0
    octaves = math.log2((difference_between_samples() + TINY) / (at_twice + TINY))
    return min(1.0, max(0.0, WEIGHT_OFFSET + WEIGHT_SLOPE * weight + WEIGHT_PER_OCTAVE * octaves))


class MixedGrid:
    """A fit and a prediction, whose weights add up to one."""

    def __init__(self, fit: SignalField, prediction: SignalField, weight: float) -> None:
        self.fit, self.prediction, self.weight = fit, prediction, weight

    def at(self, points: Tensor) -> Tensor:
        return torch.lerp(self.fit.at(points), self.prediction.at(points), self.weight)

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        return self.fit.predict(axes).lerp_(self.prediction.predict(axes), self.weight)

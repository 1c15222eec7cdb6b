"""Fits between neighbouring samples of a grid, which the samples themselves cannot tell: waves and their aliases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.solvers.samples import ScatteredPoints

PLACES = 512
"""Places between samples, per axis."""
MIN_COORDINATES = 4
"""Fewest coordinates of an axis with such places."""
NYQUIST_RATIO = 0.131
r"""The most that :math:`r / R` of :class:`Between` is for a wave up to the Nyquist frequency; it is 1/30 for slow ones."""


class Between:
    r"""Random places between samples that are neighbours along one axis, for axes of enough coordinates.

    Args:
        encoders: One per axis.
        axes: Ascending coordinates per axis, ``(N_a,)``, of the trained samples.
    """

    def __init__(self, encoders: Sequence[Encoder], axes: Sequence[Tensor]) -> None:
        generator, device = torch.Generator().manual_seed(0), axes[0].device
        axes = [x.cpu().double() for x in axes]
        self.index: list[tuple[int, list[Tensor]]] = []
        """Axis, and per axis the position of the sample before each place, ``(PLACES,)``."""
        points, fractions = [], []
        for axis, x in enumerate(axes):
            if len(x) < MIN_COORDINATES:
                continue
            uniform = torch.rand(len(axes) + 1, PLACES, generator=generator, dtype=torch.float64)
            index = [(u * len(y)).long() for u, y in zip(uniform, axes, strict=False)]
            index[axis] = (uniform[axis] * (len(x) - 3)).long() + 1
            before, here, after = (x[index[axis] + step] for step in (-1, 0, 1))
            rows = torch.stack([y[places] for y, places in zip(axes, index, strict=True)], -1).repeat(4, 1, 1)
            rows[..., axis] = torch.stack([before, here, torch.lerp(here, after, uniform[-1]), after])
            points.append(rows)
            fractions.append(torch.stack([uniform[-1], (here - before) / (after - before)]))
            self.index.append((axis, index))
        self.fractions = torch.stack(fractions, 1).to(device)
        self.samples = ScatteredPoints(encoders, torch.stack(points).reshape(1, -1, len(axes)).to(device))
        """The places, and the sample before, the one before that, and the one after each: ``4 * PLACES`` per axis."""

    def excess(self, predictions: Tensor) -> Tensor:
        r"""The roughness of a fit that frequencies up to the Nyquist frequency cannot have, ``()``.

        With :math:`r` the mean squared deviation of the fit from the straight line between its values at neighbouring
        samples, and :math:`R` the same of a sample from the line between the neighbours on both sides, it is
        :math:`\max(0, r - 0.131 R)`, summed over the axes.

        Args:
            predictions: Values of the fit at :attr:`samples`, ``(S, C, P)``.
        """
        before, here, inside, after = self._stencils(predictions).unbind(3)
        at_place, at_sample = self.fractions
        near = (inside - torch.lerp(here, after, at_place)).square().mean((0, 1, 3))
        far = (here - torch.lerp(before, after, at_sample)).square().mean((0, 1, 3))
        return (near - NYQUIST_RATIO * far).clamp_min(0).sum()

    def deviation(self, predictions: Tensor, values: Tensor) -> float:
        """Mean squared difference at the places from the cubic interpolation of ``values`` ``(S, C, N_1, ..., N_D)``."""
        t = self.fractions[0]
        weights = (  # Keys 1981, a = -1/2
            t * (-1 + t * (2 - t)) / 2,
            1 + t * t * (3 * t - 5) / 2,
            t * (1 + t * (4 - 3 * t)) / 2,
            t * t * (t - 1) / 2,
        )
        expected = torch.zeros_like(self._stencils(predictions)[:, :, :, 0])
        for number, (axis, index) in enumerate(self.index):
            for step, weight in zip((-1, 0, 1, 2), weights, strict=True):
                places = [x + step * (a == axis) for a, x in enumerate(index)]
                every: Any = (slice(None), slice(None), *places)
                expected[:, :, number] += weight[number] * values[every]
        return float((self._stencils(predictions)[:, :, :, 2] - expected).square().mean())

    def _stencils(self, predictions: Tensor) -> Tensor:
        """``(S, C, P)`` -> ``(S, C, axes, 4, PLACES)``."""
        return predictions.reshape(*predictions.shape[:2], len(self.index), 4, PLACES)

"""Held-out scores of ridges at scattered points, by short iterative solves."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.evaluation.scores import psnr
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.leave_one_out import PROBE_PERIOD
from pe_lightning.solvers.line import LineProblem

ITERATIONS, TOLERANCE = 20, 3e-4
"""Of a solve: most iterations, and the relative residual at which it stops."""
PROBE_RIDGE = 1e-3


class PointScorer:
    """Scores ridges in order, each from the weights of the one before.

    Args:
        fitted: The problem of the points that are not held out.
        held: Mask of the held-out points, ``(S or 1, P)``.
        counts: Number of held-out points, ``(S,)``, or ``(1,)`` for one score of all signals.
    """

    def __init__(self, fitted: PointProblem | LineProblem, held: Tensor, counts: Tensor) -> None:
        self.fitted, self.held, self.counts = fitted, held, counts
        self.weights: list[Tensor] | None = None

    def __call__(self, ridges: Sequence[float]) -> list[float]:
        """Held-out PSNR in dB of relative ridges, mean over signals."""
        scores = []
        for ridge in ridges:
            self.weights = [part.z for part in self.fitted.solve(ridge, ITERATIONS, TOLERANCE, True, self.weights)]
            errors = self.fitted.squared_error(self.weights, self.held).reshape(len(self.counts), -1).sum(1)
            scores.append(float(psnr(errors, self.counts * self.fitted.values.shape[1]).mean()))
        return scores

    def predicts_waves(self, density: Sequence[float]) -> bool:
        """Whether the features connect the points: held-out points of a slow wave have less than half of its power as error.

        Args:
            density: Points per unit length of each axis, as many as a grid of their density has.
        """
        coords, values = self.fitted.samples.coordinates().double(), self.fitted.values
        turns = coords * (2 * math.pi / PROBE_PERIOD * torch.tensor(density, dtype=torch.float64, device=coords.device))
        wave = turns.cos().prod(-1)[:, None].expand(len(values), values.shape[1], -1).to(values.dtype)
        problem = self.fitted.with_values(wave)
        weights = [part.z for part in problem.solve(PROBE_RIDGE, ITERATIONS, TOLERANCE, True)]
        power = problem.squared_error([torch.zeros_like(part) for part in weights], self.held)
        return bool(problem.squared_error(weights, self.held).sum() < power.sum() / 2)

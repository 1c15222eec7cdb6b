"""Held-out scores of ridges: on a thinned grid from the coefficients of the fits, at scattered points by short solves.

On a grid a further ridge costs no product of the size of the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.resolution import shrunk
from pe_lightning.evaluation.scores import psnr
from pe_lightning.linalg import factor_axes, mode_products, ridge_response
from pe_lightning.solvers.features import on_host
from pe_lightning.solvers.held_out import ThinnedGrid
from pe_lightning.solvers.iterative import PointProblem, power_of_two
from pe_lightning.solvers.layers import LayerIndex, by_layers, norms
from pe_lightning.solvers.leave_one_out import PROBE_PERIOD
from pe_lightning.solvers.line import LineProblem

MAX_ROUNDING_DB = 0.005
"""Bound of the change of a score by rounding above which all scores are computed in float64."""


class Projections(NamedTuple):
    """Windows of a thinned grid in the bases of the features, in one precision; ``L`` windows of all signals."""

    fitted: Tensor
    """T, the fitted samples in the bases ``U_a``, ``(L, C, r_1, ..., r_D)``."""
    every: Tensor
    """Z, all samples, weighted, in the bases ``O_a``, of the same shape."""
    energy: Tensor
    """Squares of T, summed over windows and channels, ``(S, r_1 ... r_D)`` float64."""
    squares: Tensor
    """Sums of squares of Y and Z, y and T, and the unit of the values, ``(S, 5)`` float64."""
    triangles: list[Tensor]
    """The matrices ``R_a``."""


class GridScorer:
    r"""Scores ridges by the held-out samples of a grid, in the space of the coefficients.

    With features :math:`U_a s_a V_a^T` of the fitted samples y, coefficients are :math:`Q = \frac{s T}{s^2 + \rho}`. All
    samples Y, weighted, are predicted as :math:`Q \times_a B_a`, where :math:`B_a = O_a R_a` by a QR decomposition. The
    squared error at the held-out samples is the one at all samples minus the one at the fitted samples,

    .. math:: \|Q \times_a R_a - Z\|^2 + (\|Y\|^2 - \|Z\|^2) - \|s Q - T\|^2 - (\|y\|^2 - \|T\|^2),

    so that a ridge costs products of coefficients. Rounding changes it by about
    :math:`4 \kappa (\|Y\|^2 + (\|Y\| + \|P\|) \sqrt{E})` at most: :math:`\kappa = u \sqrt n` for inner products of :math:`n`
    numbers with the unit roundoff :math:`u`, :math:`E` is the squared error at all samples, and :math:`\|P\|^2` the sum of
    squares of the contributions of single coefficients to the predictions. Where that is more than
    :data:`MAX_ROUNDING_DB` of an error, as at a high PSNR, everything is computed in float64.

    Args:
        grid: Fitted and held-out samples.
        encoders: One per axis, for the whole grid.
        center: Whether the mean of the fitted samples is subtracted.

    Reference: Higham and Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 2019.
    """

    def __init__(self, grid: ThinnedGrid, encoders: Sequence[Encoder], center: bool = True) -> None:
        self.grid, self.center = grid, center
        encoders, coords = on_host(encoders, grid.coords, grid.values.device)
        parts = zip(encoders, coords, grid.enlarged, grid.strides, strict=True)
        features = [shrunk(resized(encoder, ratio), stride * ratio)(x) for encoder, x, ratio, stride in parts]
        self.factors = factor_axes([f[::stride] for f, stride in zip(features, grid.strides, strict=True)])
        self.left = [factor.left() for factor in self.factors]
        each = zip(features, self.factors, grid.axis_weights, strict=True)
        decomposed = [torch.linalg.qr((f @ factor.right) * weight.sqrt().to(f)[:, None]) for f, factor, weight in each]
        self.bases, self.triangles = ([pair[part] for pair in decomposed] for part in (0, 1))
        # a unit of the values in which their squares are normal numbers
        self.scale = power_of_two(grid.values.abs().amax(), grid.values.dtype)
        self.projections = self._project(grid.values.dtype)
        self._known: dict[float, float] = {}

    def __call__(self, ridges: Sequence[float], ahead: Sequence[float] = ()) -> list[float]:
        """Held-out PSNR in dB of relative ridges, mean over signals.

        An accelerator also scores the ridges that may be asked for next, ``ahead``: a call costs more than a further ridge.
        """
        every = (*ridges, *ahead) if self.grid.values.device.type != "cpu" else ridges
        if new := [r for r in every if r not in self._known]:
            self._known.update(zip(new, self._scores(new), strict=True))
        return [self._known[r] for r in ridges]

    def _scores(self, ridges: Sequence[float]) -> list[float]:
        responses = [ridge_response(self.factors, r, self.grid.values.dtype) for r in ridges]
        singular, response = responses[0][0], torch.stack([of_ridge for _, of_ridge in responses])
        errors, bound, scale = self._errors(singular, response)
        inaccurate = bound > (10 ** (MAX_ROUNDING_DB / 10) - 1) * errors
        if self.projections.fitted.dtype != torch.float64 and bool(inaccurate.any()):
            self.projections = self._project(torch.float64)
            errors, _, scale = self._errors(singular, response)
        windows, _, channels, *sizes = self.grid.values.shape
        fitted = math.prod(-(-n // stride) for n, stride in zip(sizes, self.grid.strides, strict=True))
        count = (math.prod(float(weight.sum()) for weight in self.grid.axis_weights) - fitted) * windows * channels
        scores = psnr(errors.clamp_min(0), torch.full_like(errors, count))
        return [float(score) for score in (scores.clamp(-1000, 120) - 20 * scale.log10()).mean(0)]

    def _project(self, dtype: torch.dtype) -> Projections:
        grid, (windows, signals, channels) = self.grid, self.grid.values.shape[:3]
        layers, scale = grid.values.flatten(0, 1), self.scale.to(dtype)
        left, bases, triangles = (
            [matrix.to(layers.device, dtype) for matrix in every] for every in (self.left, self.bases, self.triangles)
        )
        strided = (slice(None), slice(None), *(slice(None, None, stride) for stride in grid.strides))
        axes = tuple(range(2, len(strided)))

        def projected(index: LayerIndex) -> list[Tensor]:
            x = layers[index].to(dtype).contiguous() / scale
            if self.center:
                x -= x[strided].mean(axes, keepdim=True, dtype=torch.float64).to(dtype)
            known = x[strided].contiguous()
            for axis, weight in enumerate(grid.axis_weights, 2):
                if weight[-1] != 1:
                    x.narrow(axis, -1, 1).mul_(math.sqrt(weight[-1]))
            fitted, every = mode_products(known, [u.T for u in left]), mode_products(x, [o.T for o in bases])
            return [fitted, every, *map(norms, (x, every, known, fitted))]

        fitted, every, *found = by_layers(projected, layers.shape, layers.device)
        energy = fitted.square().reshape(windows, signals, channels, fitted[0, 0].numel()).sum((0, 2), dtype=torch.float64)
        squares = torch.stack(found, 2).square_().reshape(windows, signals, channels, -1).sum((0, 2))
        unit = self.scale.to(squares).expand(signals, 1)
        return Projections(fitted, every, energy, torch.cat([squares, unit], 1), triangles)

    def _errors(self, singular: Tensor, response: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Squared errors at the held-out samples, bounds of their rounding errors, and the unit of the values, on the CPU.

        All are ``(S, ridges)``.
        """
        fitted, every, energy, squares, triangles = self.projections
        reach = reduce(torch.kron, [triangle.square().sum(0) for triangle in self.triangles])
        filters = torch.cat([1 - singular * response, response * reach.sqrt()]).square().to(energy.device)
        factors = response.reshape(len(response), *fitted.shape[2:]).to(fitted)

        def evaluated(index: LayerIndex) -> list[Tensor]:
            change = mode_products(fitted[index].unsqueeze(2) * factors, triangles).sub_(every[index].unsqueeze(2))
            return [change.flatten(3).square_().sum(3)]

        (changes,) = by_layers(evaluated, (*fitted.shape[:2], response.numel()), fitted.device)
        changes = changes.reshape(len(self.grid.values), len(energy), *changes.shape[1:]).sum((0, 2), dtype=torch.float64)
        found = torch.cat([changes, energy @ filters.T, squares], 1).cpu()
        whole, known, contributions = found[:, :-5].chunk(3, 1)
        y, z, fitted_y, t, scale = found[:, -5:, None].unbind(1)
        whole = whole + (y - z).clamp_min(0)
        errors = whole - known - (fitted_y - t).clamp_min(0)
        rounding = torch.finfo(fitted.dtype).eps / 2 * math.sqrt(max(self.grid.values.shape[3:]))
        bound = 4 * rounding * (y + (y.sqrt() + contributions.sqrt()) * whole.sqrt())
        return errors, bound, scale.expand_as(errors)


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

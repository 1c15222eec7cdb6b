r"""The exact fit of one long axis with many local features: a banded Cholesky factorisation of the normal equations.

1. Time and memory grow linearly with the number of samples, as :math:`\Psi^T \Psi + \rho I` has as many diagonals as
   features that overlap.
2. Differs from SciPy's ``solveh_banded``: iterative refinement, with residuals computed through :math:`\Psi`, reduces the
   relative error :math:`\kappa \epsilon` of a solve.
3. With a ridge below :data:`MIN_FACTOR_RIDGE` the refinement is iterated Tikhonov regularisation, which tends to the
   solution of that ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, bandwidth, is_local, local_features
from pe_lightning.errors import InputError
from pe_lightning.linalg import Minimum, RowBanded, optimality
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.samples import FittedSamples, point_samples, summed

MIN_FACTOR_RIDGE = 1e-10
"""Least ridge of the factorisation, relative to the largest diagonal entry, so that the Cholesky factor exists."""
SAMPLES_AT_ONCE = 1 << 16
"""Samples whose features are in memory at once."""


def is_line(encoders: Sequence[Encoder]) -> bool:
    """Whether the solver applies."""
    return len(encoders) == 1 and is_local(encoders[0])


class LineProblem:
    """Ridge least squares of ``S`` signals of one axis; arguments and methods as in :class:`.iterative.PointProblem`."""

    solver: Literal["grid", "line", "points"] = "line"

    def __init__(self, samples: FittedSamples, values: Tensor, center: bool, distributed: bool) -> None:
        self.samples, self.values, self.center, self.distributed = samples, values, center, distributed
        self.summed = partial(summed, distributed=distributed)
        self.bases: tuple[Tensor, ...] = ()

    def with_values(self, values: Tensor) -> LineProblem:
        """The problem of other values ``(S, C, P)`` at the same samples."""
        return LineProblem(self.samples, values, self.center, self.distributed)

    def select(self, signals: slice, mask: Tensor) -> LineProblem:
        return LineProblem(self.samples.select(signals).with_mask(mask), self.values[signals], self.center, self.distributed)

    @cached_property
    def rows(self) -> list[_Row]:
        return [_Row(self, x, y) for x, y in self._under(self.samples.mask)]

    @property
    def mean(self) -> Tensor:
        """``(S, C)`` float64."""
        return torch.cat([row.mean for row in self.rows])

    @property
    def counts(self) -> Tensor:
        """``(S,)`` float64."""
        return torch.cat([row.count.expand(len(row.mean)) for row in self.rows])

    @property
    def unit(self) -> Tensor:
        """The unit of relative ridges, ``(S,)``."""
        return torch.cat([row.unit.expand(len(row.mean)) for row in self.rows])

    def solve(self, ridge: float, *_: object) -> list[Minimum]:
        """The minima per group of signals; the other arguments of the iterative solver are not used."""
        return [row.solve(ridge) for row in self.rows]

    def decode(self, z: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(z)).to(torch.promote_types(self.values.dtype, torch.float32))

    def squared_error(self, z: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Sum of squared errors at other samples, under ``mask`` ``(S or 1, P)``; ``(S,)`` float64."""
        parts = zip(self.rows, z, self._under(mask), strict=True)
        errors = [local_features(row.encoder, x).matvec(w) + row.mean[..., None] - y for row, w, (x, y) in parts]
        return self.summed(torch.cat([error.square().sum((1, 2)) for error in errors]))

    def _under(self, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Coordinates ``(P',)`` and values ``(s, C, P')`` under a mask, per group of signals with equal samples."""
        coords, values = self.samples.coordinates()[..., 0], self.values.double()
        rows = max(len(coords), 1 if mask is None else len(mask))
        for row in range(rows):
            x, y = coords[row % len(coords)], values if rows == 1 else values[row : row + 1]
            there = slice(None) if mask is None else mask[row % len(mask)]
            yield x[there], y[..., there]


class _Row:
    """Signals with equal samples, and the band of their normal equations."""

    def __init__(self, problem: LineProblem, x: Tensor, values: Tensor) -> None:
        (self.encoder,) = problem.samples.encoders
        self.x, self.summed = x, problem.summed
        sums = self.summed(torch.cat([values.sum(2).flatten(), values.new_tensor([float(len(x))])]))
        if not bool(sums.isfinite().all()) or not sums[-1] > 0:
            raise InputError("a signal has no training sample, or values there that are not finite")
        self.count = sums[-1:]
        self.mean = (sums[:-1] / self.count * problem.center).reshape(values.shape[:2])
        self.target = (values - self.mean[..., None]).flatten(0, 1)
        width = bandwidth(self.encoder)
        band = values.new_zeros(width + 1, self.encoder.num_features)
        squares = values.new_zeros(1)
        for features, _ in self._features():
            band += features.gram(width)
            squares += features.squares()
        self.band, self.unit = self.summed(band), self.summed(squares) / self.count

    def _features(self) -> Iterator[tuple[RowBanded, slice]]:
        for start in range(0, len(self.x), SAMPLES_AT_ONCE):
            some = slice(start, start + SAMPLES_AT_ONCE)
            yield local_features(self.encoder, self.x[some]), some

    def solve(self, ridge: float) -> Minimum:
        absolute = ridge * float(self.unit)
        lower = self.band.cpu().numpy().copy()
        lower[0] += max(absolute, MIN_FACTOR_RIDGE * max(float(lower[0].max()), np.finfo(np.float64).tiny ** 0.5))
        factor = scipy.linalg.cholesky_banded(lower, overwrite_ab=True, lower=True)
        weight = self.target.new_zeros(len(self.target), self.encoder.num_features)
        for _ in range(4):  # the first solve and its refinements
            gradient, _ = self._residual(weight)
            change = (gradient - absolute * weight).T.cpu().numpy()
            weight += torch.from_numpy(scipy.linalg.cho_solve_banded((factor, True), change).T).to(weight)
        gradient, errors = self._residual(weight)
        parts = (errors, self.summed(self.target.square().sum(1)), (gradient - absolute * weight).square().sum(1))
        error, target, size, norm = (x.reshape(self.mean.shape).sum(1) for x in (*parts, weight.square().sum(1)))
        reached = optimality(size, float(self.unit * self.count), error + absolute * norm, target)
        none = torch.zeros_like(error)
        return Minimum(weight.reshape(*self.mean.shape, -1), none.long(), none, error, reached)

    def _residual(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`\Psi^T (y - \Psi w)` and the squared errors for weights ``(s C, K)``."""
        both = weight.new_zeros(len(weight), weight.shape[1] + 1)
        for features, some in self._features():
            left = self.target[:, some] - features.matvec(weight)
            both[:, :-1] += features.rmatvec(left)
            both[:, -1] += left.square().sum(1)
        both = self.summed(both)
        return both[:, :-1], both[:, -1]


def point_problem(
    values: Tensor, encoders: Sequence[Encoder], *, center: bool, distributed: bool, **location: Any
) -> PointProblem | LineProblem:
    """The least-squares problem for the arguments of :func:`~pe_lightning.solvers.solve_points`."""
    samples, points, population = point_samples(values, encoders, distributed=distributed, **location)
    if is_line(encoders):
        return LineProblem(samples, points, center, distributed)
    return PointProblem(samples, points, population, center, distributed)

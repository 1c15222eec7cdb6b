r"""The exact fit of one long axis with many local features: a banded Cholesky factorisation of the normal equations.

:math:`\Psi^T \Psi + \rho I` has as many diagonals as features overlap, so that time and memory grow with the number of
samples and not with its square. The factor of a rounded matrix of condition :math:`\kappa` is right to
:math:`\kappa \epsilon`; solving again for what is left over, with residuals through :math:`\Psi`, repairs that, and with a
ridge below :data:`LEAST` it is iterated Tikhonov regularisation, which tends to the solution of that ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, bandwidth, is_local, local_features
from pe_lightning.errors import InputError
from pe_lightning.linalg import Local, Minimum
from pe_lightning.solvers.points import PointProblem, Samples, point_samples

__all__ = ["LineProblem", "is_line", "point_problem"]

LEAST = 1e-10
"""Least ridge of the factorisation, as a share of the largest diagonal entry: the Cholesky factor then exists."""
PASSES = 4
"""Times the factor is used."""
SAMPLES_AT_ONCE = 1 << 16
"""Samples whose features are held at once."""


def is_line(encoders: Sequence[Encoder]) -> bool:
    """Whether this solver applies: one axis of local features, and many of them."""
    return len(encoders) == 1 and is_local(encoders[0])


class LineProblem:
    """Ridge least squares of ``S`` signals of one axis; the methods are those of ``PointProblem``.

    Args:
        samples: Where the samples are, and which of them are trained on.
        values: ``(S, C, P)``; what lies off the mask may be anything.
        center: Whether the mean of each signal and channel over the training samples is taken out.
        distributed: Whether the processes of :mod:`torch.distributed` hold different samples of the same signals.
    """

    solver: Literal["grid", "line", "points"] = "line"

    def __init__(self, samples: Samples, values: Tensor, center: bool, distributed: bool) -> None:
        self.samples, self.values, self.center, self.distributed = samples, values, center, distributed
        self.bases: tuple[Tensor, ...] = ()

    def select(self, signals: slice, mask: Tensor) -> LineProblem:
        """The problem of some signals under another mask, ``(s or 1, P)``."""
        return LineProblem(self.samples.select(signals).with_mask(mask), self.values[signals], self.center, self.distributed)

    def summed(self, x: Tensor) -> Tensor:
        """The sum over the processes that hold other samples of the same signals."""
        if self.distributed:
            x = x.contiguous()
            torch.distributed.all_reduce(x)
        return x

    @cached_property
    def rows(self) -> list[_Row]:
        """The signals, together where they have the same samples."""
        return [_Row(self, x, y) for x, y in self._under(self.samples.mask)]

    @property
    def mean(self) -> Tensor:
        """What was taken out, ``(S, C)`` float64."""
        return torch.cat([row.mean for row in self.rows])

    @property
    def counts(self) -> Tensor:
        """Training samples of each signal, ``(S,)`` float64."""
        return torch.cat([row.count.expand(len(row.mean)) for row in self.rows])

    @property
    def unit(self) -> Tensor:
        """Mean squared norm of the features over the training samples, ``(S,)``: what a relative ridge of 1 stands for."""
        return torch.cat([row.unit.expand(len(row.mean)) for row in self.rows])

    def solve(self, ridge: float, *_: object) -> list[Minimum]:
        """The weights; exact, whatever else the iterative solver is told."""
        return [row.solve(ridge) for row in self.rows]

    def decode(self, z: Sequence[Tensor]) -> Tensor:
        """Weights of all signals, ``(S, C, K)``, in the dtype of the data."""
        return torch.cat(list(z)).to(torch.promote_types(self.values.dtype, torch.float32))

    def squared_error(self, z: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Sum of squared errors at other samples, under ``mask`` ``(S or 1, P)``; ``(S,)`` float64."""
        parts = zip(self.rows, z, self._under(mask), strict=True)
        errors = [local_features(row.encoder, x).mv(w) + row.mean[..., None] - y for row, w, (x, y) in parts]
        return self.summed(torch.cat([error.square().sum((1, 2)) for error in errors]))

    def _under(self, mask: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
        """Coordinates ``(P',)`` and values ``(s, C, P')`` under a mask, of signals with the same samples."""
        coords, values = self.samples.coordinates()[..., 0], self.values.double()
        rows = max(len(coords), 1 if mask is None else len(mask))
        for row in range(rows):
            x, y = coords[row % len(coords)], values if rows == 1 else values[row : row + 1]
            there = slice(None) if mask is None else mask[row % len(mask)]
            yield x[there], y[..., there]


class _Row:
    """Signals with the same samples, and the band of their normal equations."""

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

    def _features(self) -> Iterator[tuple[Local, slice]]:
        for start in range(0, len(self.x), SAMPLES_AT_ONCE):
            some = slice(start, start + SAMPLES_AT_ONCE)
            yield local_features(self.encoder, self.x[some]), some

    def solve(self, ridge: float) -> Minimum:
        absolute = ridge * float(self.unit)
        lower = self.band.cpu().numpy().copy()
        lower[0] += max(absolute, LEAST * max(float(lower[0].max()), np.finfo(np.float64).tiny ** 0.5))
        factor = scipy.linalg.cholesky_banded(lower, overwrite_ab=True, lower=True)
        weight = self.target.new_zeros(len(self.target), self.encoder.num_features)
        for _ in range(PASSES):
            gradient, _ = self._residual(weight)
            change = (gradient - absolute * weight).T.cpu().numpy()
            weight += torch.from_numpy(scipy.linalg.cho_solve_banded((factor, True), change).T).to(weight)
        error = self._residual(weight)[1].reshape(self.mean.shape).sum(1)
        none = torch.zeros_like(error)
        return Minimum(weight.reshape(*self.mean.shape, -1), none.long(), none, error)

    def _residual(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`\Psi^T (y - \Psi w)` and the squared errors, of weights ``(s C, K)``."""
        both = weight.new_zeros(len(weight), weight.shape[1] + 1)
        for features, some in self._features():
            left = self.target[:, some] - features.mv(weight)
            both[:, :-1] += features.rmv(left)
            both[:, -1] += left.square().sum(1)
        both = self.summed(both)
        return both[:, :-1], both[:, -1]


def point_problem(
    values: Tensor,
    encoders: Sequence[Encoder],
    *,
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    mask: Tensor | None,
    index: Tensor | None,
    center: bool,
    distributed: bool,
) -> PointProblem | LineProblem:
    """The problem of :func:`~pe_lightning.solvers.solve_points`, which describes the arguments."""
    samples, points, population = point_samples(values, encoders, coords, axes, mask, index, distributed)
    if is_line(encoders):
        return LineProblem(samples, points, center, distributed)
    return PointProblem(samples, points, population, center, distributed)

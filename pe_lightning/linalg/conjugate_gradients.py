"""Preconditioned conjugate gradients for ridge least squares, batched over signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pe_lightning.linalg.operators import LinearMap


@dataclass(frozen=True)
class LeastSquares:
    r"""The problem :math:`\min_z \|Az - y\|^2 + \rho \|z\|^2` for each of ``s`` signals.

    Args:
        operator: ``A``, which multiplies the last axis of ``(s, C, K)``.
        target: ``y``, ``(s, C, N)``.
        ridge: :math:`\rho`, ``(s,)`` float64.
        scale: Inverse of the preconditioner's diagonal, ``(s or 1, 1, K or 1)``.
        norm: Sum of the squared lengths of the columns of ``A``, each times its ``scale``, ``(s,)`` or a number, or an upper
            bound: it is compared with rounding errors.
        reduce: Sums a tensor over processes that share the rows of ``A``; ``None`` for one process.
        right: The right-hand side of the normal equations, ``(s, C, K)``, for one process; ``None`` for :math:`A^T y`.
    """

    operator: LinearMap
    target: Tensor
    ridge: Tensor
    scale: Tensor
    norm: Tensor | float
    reduce: Callable[[Tensor], Tensor] | None = None
    right: Tensor | None = None

    def normal(self, z: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`(A^T A + \rho) z`, and :math:`z^T (A^T A + \rho) z` per signal, computed as a sum of squares."""
        values = self.operator.matvec(z)
        product, squares = self._reduced(self.operator.rmatvec(values), _dot(values, values))
        return product.add_(z * _wide(self.ridge, z)), squares + self.ridge * _dot(z, z)

    def gradient(self, z: Tensor | None) -> tuple[Tensor, Tensor]:
        r"""Half the negative gradient, :math:`A^T (y - Az) - \rho z`, and the squared error per signal."""
        if self.right is not None:
            return (self.right.clone() if z is None else self.right - self.normal(z)[0]), torch.zeros_like(self.ridge)
        residual = self.target if z is None else self.target - self.operator.matvec(z)
        gradient, error = self._reduced(self.operator.rmatvec(residual), _dot(residual, residual))
        return (gradient if z is None else gradient.sub_(z * _wide(self.ridge, z))), error

    def size(self, gradient: Tensor) -> Tensor:
        """Squared norm of a gradient in the preconditioner's norm, ``(s,)`` float64."""
        return _dot(gradient, gradient * self.scale)

    def _reduced(self, weights: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        if self.reduce is None:
            return weights, scalars
        both = self.reduce(torch.cat([weights.flatten(1), scalars.to(weights.dtype)[:, None]], 1))
        return both[:, :-1].reshape(weights.shape), both[:, -1].double()


@dataclass(frozen=True)
class Minimum:
    """The minimum of a least-squares problem, per signal."""

    z: Tensor
    """``(s, C, K)``."""
    iterations: Tensor
    """``(s,)`` int64."""
    relative_residual: Tensor
    """Norm of the gradient at ``z``, computed from ``z``, relative to the gradient at zero; ``(s,)`` float64."""
    squared_error: Tensor
    """Sum of squared errors without the ridge term, ``(s,)`` float64."""
    optimality: Tensor
    """See :func:`optimality`, ``(s,)`` float64."""
    excess_error: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    """Direct solves: squared error above the least possible one, relative to it, ``(s,)`` float64."""


def optimality(gradient: Tensor, norm: Tensor | float, error: Tensor, target: Tensor) -> Tensor:
    r"""The smaller of :math:`\|A^T r\| / (\|A\|_F \|r\|)` and :math:`\|r\| / \|y\|`; zero at a minimum, ``(s,)`` float64.

    A necessary condition: features that depend on each other hide directions in which the error still decreases. With a
    ridge the gradient and the error include its terms.

    Args:
        gradient: :math:`\|A^T r\|^2`, ``(s,)``; in a preconditioner's norm if ``norm`` is.
        norm: :math:`\|A\|_F^2`.
        error: :math:`\|r\|^2`, ``(s,)``.
        target: :math:`\|y\|^2`, ``(s,)``.

    Reference: Paige & Saunders, *LSQR: an algorithm for sparse linear equations and sparse least squares*, ACM TOMS 1982,
    section 6.
    """
    ratios = torch.minimum(gradient / (norm * error), error / target).sqrt()
    return torch.where((gradient > 0) & (error > 0), ratios, 0.0)


def min_tolerance(dtype: torch.dtype) -> float:
    """The least relative residual that is worth asking for: a few units of rounding."""
    return 8 * torch.finfo(dtype).eps


def conjugate_gradients(problem: LeastSquares, iterations: int, tolerance: float, initial: Tensor | None = None) -> Minimum:
    """Minimises by conjugate gradients on the normal equations, without forming them.

    1. A signal stops when the norm of its gradient, in the preconditioner's norm, is ``tolerance`` times the norm at zero.
    2. Differs from ``scipy.sparse.linalg.cg``: the gradient, updated by recursion, is computed from the weights when all
       signals have stopped; if it is then above the tolerance, the iteration restarts as long as that reduces it.
    3. Weights that are not finite, or worse than at the last restart, are discarded. Where the gradient at zero is of the
       size of rounding errors the weights are zero.

    Args:
        problem: The problem.
        iterations: Most iterations, each one product with ``A`` and one with its transpose.
        tolerance: Relative norm of the gradient; at least :func:`min_tolerance`.
        initial: Weights to start from, ``(s, C, K)``; default zero.
    """
    eps = torch.finfo(problem.target.dtype).eps
    tolerance = max(tolerance, min_tolerance(problem.target.dtype))
    gradient, error = problem.gradient(None)
    target = error
    start = size = problem.size(gradient)  # (s,)
    # the rounding error of the product of y with a column of A is eps times both lengths
    nothing = start <= (4 * eps) ** 2 * problem.norm * error
    start = size = torch.where(nothing, 0.0, start)
    z = torch.zeros_like(gradient)
    if initial is not None:
        z = torch.where(nothing[:, None, None], 0.0, initial)
        gradient, error = problem.gradient(z)
        size = torch.where(nothing, 0.0, problem.size(gradient))
    used, spent, bound = torch.zeros_like(start, dtype=torch.int64), 0, tolerance**2 * start
    while True:
        before, active = size, size > bound
        if spent >= iterations or not bool(active.any()):
            break
        previous, previous_error = z.clone(), error
        spent += _iterate(problem, z, gradient, bound, active, iterations - spent, used)
        gradient, error = problem.gradient(z)
        size = problem.size(gradient)
        worse = ~(size <= before)  # by rounding, or not finite: this signal stops
        z = torch.where(worse[:, None, None], previous, z)
        size, error = torch.where(worse, before, size), torch.where(worse, previous_error, error)
        bound = torch.where(worse, torch.inf, bound)
        if not bool((active & (size < 0.25 * before)).any()):
            break  # limited by rounding: a restart would reduce the gradient by less than a factor of two
    relative = torch.where(start > 0, (size / start).sqrt(), torch.zeros_like(size))
    penalised = error + problem.ridge * _dot(z, z)
    return Minimum(z, used, relative, error, optimality(size, problem.norm, penalised, target))


def _iterate(
    problem: LeastSquares, z: Tensor, gradient: Tensor, bound: Tensor, active: Tensor, limit: int, used: Tensor
) -> int:
    """Iterates in place until every signal has stopped, at most ``limit`` times; returns the number of iterations."""
    preconditioned = gradient * problem.scale
    direction = preconditioned.clone()
    size = _dot(gradient, preconditioned)
    active = active & (size > 0) & size.isfinite()
    for count in range(1, limit + 1):
        product, curvature = problem.normal(direction)
        # zero or non-finite curvature: no step along this direction improves the fit
        active = active & (curvature > 0) & curvature.isfinite()
        step = torch.where(active, size / curvature, 0.0)
        z.addcmul_(direction, _wide(step, z))
        gradient.addcmul_(product, _wide(-step, z))
        used += active
        torch.mul(gradient, problem.scale, out=preconditioned)
        new = _dot(gradient, preconditioned)
        active = active & (new > bound) & new.isfinite()
        if not bool(active.any()):
            return count
        direction.mul_(_wide(torch.where(active, new / size, 0.0), z)).add_(preconditioned)
        size = new
    return limit


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product per signal: ``(s, ...)`` -> ``(s,)`` float64."""
    return torch.bmm(x.reshape(len(x), 1, -1), y.reshape(len(y), -1, 1)).reshape(-1).double()


def _wide(x: Tensor, like: Tensor) -> Tensor:
    """Scalars per signal as ``(s, 1, 1)``, to multiply ``(s, C, K)``."""
    return x.to(like.dtype)[:, None, None].expand(len(like), 1, 1)

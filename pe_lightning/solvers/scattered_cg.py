"""Preconditioned conjugate gradients for ridge least squares, batched over signals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.solvers.scattered_samples import Operator

__all__ = ["Problem", "Reduce", "Result", "conjugate_gradients"]

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over the processes that share the samples."""


@dataclass(frozen=True)
class Problem:
    r"""Ridge least squares: :math:`\min_z \|M(Az - y)\|^2 + \rho \|z\|^2` for each of ``s`` signals.

    Args:
        operator: ``A``.
        mask: ``M``, ``(s or 1, 1, *samples)`` booleans; ``None``: every sample.
        target: ``y``, ``(s, C, *samples)``, zero off the mask.
        ridge: :math:`\rho`, ``(s,)`` float64.
        scale: Inverse of the preconditioner's diagonal, ``(s or 1, 1, *R)``.
        reduce: Sums over processes; ``None``: there is one.
    """

    operator: Operator
    mask: Tensor | None
    target: Tensor
    ridge: Tensor
    scale: Tensor
    reduce: Reduce | None = None

    def forward(self, z: Tensor) -> Tensor:
        """``M A z``."""
        values = self.operator.forward(z)
        return values if self.mask is None else values.mul_(self.mask)

    def normal(self, z: Tensor) -> tuple[Tensor, Tensor]:
        r""":math:`(A^T M A + \rho) z`, and :math:`z^T (A^T M A + \rho) z` per signal, in one reduction.

        The curvature is the sum of two squares, never a difference.
        """
        values = self.forward(z)
        product, squares = self.packed(self.operator.adjoint(values), _dot(values, values))
        return product.add_(z * _wide(self.ridge, z)), squares + self.ridge * _dot(z, z)

    def gradient(self, z: Tensor | None) -> tuple[Tensor, Tensor]:
        r"""Half the negative gradient, :math:`A^T M(y - Az) - \rho z`, and the squared error per signal."""
        residual = self.target if z is None else self.target - self.forward(z)
        gradient, error = self.packed(self.operator.adjoint(residual), _dot(residual, residual))
        return (gradient if z is None else gradient.sub_(z * _wide(self.ridge, z))), error

    def packed(self, weights: Tensor, scalars: Tensor) -> tuple[Tensor, Tensor]:
        """Sums weights ``(s, ...)`` and scalars ``(s,)`` over processes, together."""
        if self.reduce is None:
            return weights, scalars
        both = self.reduce(torch.cat([weights.flatten(1), scalars.to(weights.dtype)[:, None]], 1))
        return both[:, :-1].reshape(weights.shape), both[:, -1].double()


@dataclass
class Result:
    """What :func:`conjugate_gradients` found, per signal.

    Args:
        z: ``(s, C, *R)``.
        iterations: ``(s,)`` int64.
        relative_residual: ``(s,)`` float64, of the true gradient at ``z``.
        squared_error: ``(s,)`` float64, over the training points.
    """

    z: Tensor
    iterations: Tensor
    relative_residual: Tensor
    squared_error: Tensor


def conjugate_gradients(
    problem: Problem,
    iterations: int,
    tolerance: float,
    initial: Tensor | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Result:
    """Solves a problem by conjugate gradients on the normal equations, which are applied and never formed.

    A signal stops when the norm of its gradient, in the preconditioner's norm, has fallen by ``tolerance`` from its value
    at zero; its weights are then left alone while others go on. The gradient is carried along by recursion; when all
    have stopped it is computed anew from the weights, and if rounding has made the recursion too optimistic the iteration
    starts again from there, as long as that helps.

    Args:
        problem: The problem.
        iterations: Most iterations, each one evaluation and one adjoint.
        tolerance: See above. Not less than what the dtype can resolve.
        initial: ``(s, C, *R)`` to start from; zero by default.
        progress: Called with the iteration and the largest relative residual of the signals still running.
    """
    tolerance = max(tolerance, 8 * torch.finfo(problem.target.dtype).eps)
    gradient, error = problem.gradient(None)
    start = _size(gradient, problem.scale)  # per signal; zero where there is nothing to fit
    z = torch.zeros_like(gradient)
    if initial is not None:
        z = initial.clone()
        gradient, error = problem.gradient(z)
    size, used = _size(gradient, problem.scale), torch.zeros_like(start, dtype=torch.int64)
    spent = 0
    while True:
        before = size
        active = size > tolerance**2 * start
        if spent >= iterations or not bool(active.any()):
            break
        spent += _run(problem, z, gradient, start, tolerance, active, iterations - spent, used, spent, progress)
        gradient, error = problem.gradient(z)
        size = _size(gradient, problem.scale)
        if not bool((active & (size < 0.25 * before)).any()):
            break  # rounding is the limit: another start would gain less than a factor of two
    relative = torch.where(start > 0, (size / start).sqrt(), torch.zeros_like(size))
    return Result(z, used, relative, error)


def _run(
    problem: Problem,
    z: Tensor,
    gradient: Tensor,
    start: Tensor,
    tolerance: float,
    active: Tensor,
    most: int,
    used: Tensor,
    offset: int,
    progress: Callable[[int, float], None] | None,
) -> int:
    """Iterates until every signal has stopped or ``most`` is reached; changes ``z``, ``gradient`` and ``used``."""
    preconditioned = gradient * problem.scale
    direction = preconditioned.clone()
    size = _dot(gradient, preconditioned)
    active = active & (size > 0) & size.isfinite()
    for count in range(1, most + 1):
        product, curvature = problem.normal(direction)
        # zero or broken curvature: nothing is left to gain along this direction
        active = active & (curvature > 0) & curvature.isfinite()
        step = torch.where(active, size / curvature, 0.0)
        z.addcmul_(direction, _wide(step, z))
        gradient.addcmul_(product, _wide(-step, z))
        used += active
        torch.mul(gradient, problem.scale, out=preconditioned)
        new = _dot(gradient, preconditioned)
        active = active & (new > tolerance**2 * start) & new.isfinite()
        ratio = torch.where(active, new / size, 0.0)
        size = new
        if progress is not None:
            progress(offset + count, float((size / start).sqrt().nan_to_num(0.0).max()))
        if not bool(active.any()):
            return count
        direction.mul_(_wide(ratio, z)).add_(preconditioned)
    return most


def _size(gradient: Tensor, scale: Tensor) -> Tensor:
    """Squared norm of the gradient in the preconditioner's norm, ``(s,)`` float64."""
    return _dot(gradient, gradient * scale)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Inner product per signal: ``(s, ...)`` -> ``(s,)`` float64."""
    return torch.bmm(x.reshape(len(x), 1, -1), y.reshape(len(y), -1, 1)).reshape(-1).double()


def _wide(x: Tensor, like: Tensor) -> Tensor:
    """Scalars per signal, to be multiplied into ``(s, ...)``."""
    return x.to(like.dtype).reshape(-1, *[1] * (like.ndim - 1))

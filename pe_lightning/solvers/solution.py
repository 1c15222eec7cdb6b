"""The result of the solvers, and its report as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, is_local, local_features
from pe_lightning.errors import InputError
from pe_lightning.linalg import Dense, Operator, as_operator, full_precision, mode_products
from pe_lightning.solvers.choice import Choice
from pe_lightning.solvers.dense import MAX_EXACT_EXCESS
from pe_lightning.solvers.features import encode
from pe_lightning.solvers.layers import by_layers
from pe_lightning.solvers.samples import ScatteredPoints

Solver: TypeAlias = Literal["grid", "line", "dense", "points"]
"""``grid``, ``line`` (one long axis) and ``dense`` (few points, no ridge) are direct, ``points`` iterates."""


@dataclass(frozen=True)
class Solution:
    """Weights of the linear layer on raw features, and a description of the fit."""

    coefficients: Tensor
    """Weights in the bases, ``(S, C, r_1, ..., r_D)``; without bases :attr:`weight`."""
    mean: Tensor
    """The subtracted mean, ``(S, C)``; zero if none was subtracted."""
    squared_error: Tensor
    """Sum of squared training errors per signal, ``(S,)`` float64; its rounding error is ``eps`` of the data's dtype times
    the sum of squares of the signal.
    """
    count: Tensor
    """Number of values in each sum, ``(S,)``."""
    ridge: float
    """The ridge, relative to the mean squared norm of the joint features over the training samples."""
    absolute_ridge: Tensor
    """The ridge as added to the diagonal of the normal equations, ``(S,)``."""
    solver: Solver
    bases: tuple[Operator, ...] = ()
    """Grid: the bases of the features of each axis, ``(K_a, r_a)`` float64."""
    seconds: float = 0.0
    """Wall time of this process, in seconds."""
    encoders: tuple[Encoder, ...] = ()
    """One per axis."""
    choice: Choice | None = None
    """The choice of width and ridge."""
    ranks: tuple[int, ...] = ()
    """Numerical rank of the features of each axis, in float64."""
    joint_rank: int | None = None
    """Grid: number of joint singular values above the truncation."""
    effective_rank: float | None = None
    """Grid: effective degrees of freedom, the sum of ``s^2 / (s^2 + rho)``."""
    methods: tuple[str, ...] = ()
    """Grid: factorisation of each axis, ``svd``, ``gesvd``, ``gram`` or ``identity``."""
    iterations: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    """Points: number of iterations of each signal, ``(S,)``."""
    relative_residual: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    """Points: norm of the gradient relative to the gradient at zero, in the preconditioner's norm, ``(S,)``."""
    converged: Tensor = field(default_factory=lambda: torch.ones(1, dtype=torch.bool))
    """Points: whether the residual is at most the tolerance, or a few units of rounding, ``(S,)``; without a ridge a small
    residual of ill-conditioned features does not mean a least error. Dense: whether :attr:`excess_error` is at most 1e-4.
    """
    optimality: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    """Points, line: see :func:`~pe_lightning.linalg.optimality`, ``(S,)``."""
    excess_error: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))
    """Dense, and grid without a ridge: squared training error above the least possible one, relative to it or, if that is
    more, to 1e-6 of the squared values, ``(S,)``.
    """

    @cached_property
    def weight(self) -> Tensor:
        """Weights for raw features, ``(S, C, K_1, ..., K_D)``; computed from the coefficients when first read."""
        if not self.bases:
            return self.coefficients
        like = self.coefficients
        bases = [basis.to(like.dtype, like.device) for basis in self.bases]
        with full_precision(like.device):
            return by_layers(lambda index: [mode_products(like[index], bases)], like.shape, like.device)[0]

    def with_weight(self, weight: Tensor) -> Solution:
        """The solution with other weights for raw features, ``(S, C, K_1, ..., K_D)``."""
        return replace(self, coefficients=weight, bases=())

    @property
    def exact(self) -> bool:
        """Whether a direct solver found the minimum: at most 1e-4 more error, optimality up to 1e-6."""
        excess, reached = float(self.excess_error.max()), float(self.optimality.max())
        return self.solver != "points" and excess <= MAX_EXACT_EXCESS and reached <= 1e-6

    def evaluate(self, features: Sequence[Tensor | Operator]) -> Tensor:
        """Values on a grid from raw features ``(n_a, K_a)`` per axis, with the mean: ``(S, n_1, ..., n_D, C)``."""
        dtype, device = self.coefficients.dtype, self.coefficients.device
        matrices = [as_operator(matrix) for matrix in features]
        with full_precision(device):
            if self.bases and all(isinstance(matrix, Dense) for matrix in matrices):
                # small products of features and bases, in place of large ones of coefficients and bases
                pairs = zip(matrices, self.bases, strict=True)
                matrices = [Dense(matrix.matvec(basis.to(matrix.dtype, device).dense(), 0)) for matrix, basis in pairs]
                factors = self.coefficients
            else:
                factors = self.weight
            values = mode_products(factors, [matrix.to(dtype) for matrix in matrices])
            return values.add_(self.mean.reshape(*self.mean.shape, *[1] * len(features))).movedim(1, -1)

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(n_a,)`` per axis: ``(S, n_1, ..., n_D, C)``."""
        self._check_axes(len(axes))
        return self.evaluate(encode(self.encoders, axes, self.mean.device))

    def at(self, coords: Tensor) -> Tensor:
        """Values ``(S, P, C)`` at coordinates ``(P, D)``, or at different coordinates per signal, ``(S, P, D)``."""
        self._check_axes(coords.shape[-1])
        coords = (coords[None] if coords.ndim == 2 else coords).to(self.mean.device, torch.float64)
        if coords.ndim != 3 or len(coords) not in (1, len(self.mean)):
            raise InputError(f"coords have the shape (P, D) or ({len(self.mean)}, P, D); got {tuple(coords.shape)}")
        if len(coords) == 1 and len(self.encoders) == 1 and is_local(self.encoders[0]):
            return self.evaluate([local_features(self.encoders[0], coords[0, :, 0], self.weight.dtype)])
        with full_precision(self.weight.device):
            values = ScatteredPoints(self.encoders, coords).to(self.weight.dtype).matvec(self.weight.flatten(2))
            return values.add_(self.mean[..., None]).movedim(1, -1)

    def report(self) -> FitReport:
        """The results without weights and means, as plain values."""
        found: dict[str, Any] = {}
        if self.solver in ("grid", "dense"):
            found["excess_error"] = float(self.excess_error.max())
        else:
            found["optimality"] = float(self.optimality.max())
        if self.solver == "grid":
            found |= {
                "absolute_ridge": float(self.absolute_ridge[0]),
                "ranks": list(self.ranks),
                "joint_rank": self.joint_rank,
                "effective_rank": self.effective_rank,
                "methods": list(self.methods),
            }
        elif self.solver == "points":
            found |= {
                "iterations": self.iterations.tolist(),
                "converged": bool(self.converged.all()),
                "relative_residual": float(self.relative_residual.max()),
            }
        choice = None if self.choice is None else self.choice.report()
        return FitReport(self.solver, self.ridge, self.seconds, exact=self.exact, choice=choice, **found)

    def _check_axes(self, count: int) -> None:
        if count != len(self.encoders):
            raise InputError(f"the solution has encoders of {len(self.encoders)} axes, got coordinates of {count}")


@dataclass(frozen=True)
class FitReport:
    """Results of an exact fit and of a choice; ``None`` for parts that were not done. All are plain values."""

    solver: str | None = None
    """``grid``, ``line``, ``dense``, ``points`` or ``adaptive``; ``None`` if nothing was solved."""
    ridge: float | None = None
    """Relative ridge; ``None`` too if signals have different ones."""
    solve_seconds: float | None = None
    absolute_ridge: float | None = None
    ranks: list[int] | None = None
    joint_rank: int | None = None
    effective_rank: float | None = None
    methods: list[str] | None = None
    iterations: list[int] | None = None
    converged: bool | None = None
    relative_residual: float | None = None
    exact: bool | None = None
    """Whether a direct solver found the minimum, to rounding; ``None`` if that was not checked."""
    excess_error: float | None = None
    """Squared error above the least one, relative to it; the largest of all signals."""
    optimality: float | None = None
    """Relative gradient, see ``Solution.optimality``; the largest of all signals."""
    members: int | None = None
    """Encoders in the bank of the adaptive fit."""
    choice: dict[str, Any] | None = None
    """How width and ridge were chosen: :meth:`pe_lightning.solvers.Choice.report`."""
    learned: list[dict[str, Any]] | None = None
    """How encoders were learned, per signal or once for all: the ridge and :meth:`pe_lightning.solvers.Learned.report`."""
    sparse: dict[str, Any] | None = None
    """Which part of the layer is kept (``num_coefficients``)."""

    @property
    def is_solved(self) -> bool:
        """Whether the weights are an exact solution."""
        return self.solver is not None

    def to_dict(self) -> dict[str, Any]:
        """The results without ``None``; ``ridge`` is included whenever something was solved."""
        plain = {key: value for key, value in vars(self).items() if value is not None}
        return {**plain, "ridge": self.ridge} if self.is_solved else plain

"""What a solver on a grid returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pe_lightning.blocks import tiles
from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import LocalMatrix, Matrix, encode_axis, full_precision, products
from pe_lightning.solvers.choose import Choice
from pe_lightning.solvers.shapes import trailing

__all__ = ["GridSolution", "LowRankWarning"]


class LowRankWarning(UserWarning):
    """The features or the ridge leave so few degrees of freedom that hardly any signal can be represented."""


@dataclass(frozen=True)
class GridSolution:
    """Weights of the linear layer on raw features, and how the fit went."""

    weight: Tensor
    """``(S, C, K_1, ..., K_D)``, in the data's dtype, for raw features."""
    mean: Tensor
    """The mean that was removed, ``(S, C)``; zero if none was."""
    squared_error: Tensor
    """Training residual, the sum of squares per signal, ``(S,)`` float64. Where the features span less than the data it
    is a difference, exact to ``eps`` of the data's dtype times the signal's own sum of squares."""
    count: int
    """Number of values that each of ``squared_error`` sums."""
    ridge: float
    """The ridge, relative to the mean of the diagonal of the joint features' Gram matrix."""
    absolute_ridge: float
    """What is added to the squares of the joint singular values."""
    ranks: tuple[int, ...]
    """Numerical rank of the features of each axis, in float64."""
    joint_rank: int
    """Number of joint singular values that are used."""
    effective_rank: float
    """Degrees of freedom left by the ridge: the sum of ``s^2 / (s^2 + rho)``."""
    methods: tuple[str, ...]
    """How each axis was factorised: ``svd``, ``gesvd`` or ``gram``."""
    seconds: float
    """From features to weights, this process's own time."""
    encoders: tuple[Encoder, ...] = ()
    """One per axis, where the solver was given encoders."""
    choice: Choice | None = None
    """How sigma and ridge were chosen, where they were."""

    def evaluate(self, features: Sequence[Matrix]) -> Tensor:
        """Values on a grid from raw features.

        Args:
            features: ``(n_a, K_a)`` per axis.

        Returns:
            ``(S, n_1, ..., n_D, C)``, the mean included.
        """
        with full_precision(self.weight.device):
            values = products(self.weight, features)
            return values.add_(trailing(self.mean, len(features))).movedim(1, -1)

    def predict(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on the grid of one coordinate vector ``(n_a,)`` per axis: ``(S, n_1, ..., n_D, C)``."""
        return self.evaluate(self.encode(axes))

    def encode(self, axes: Sequence[Tensor]) -> list[Matrix]:
        """Raw features of one coordinate vector ``(n_a,)`` per axis, in the dtype of the weights."""
        if len(axes) != len(self.encoders):
            raise InputError(f"the solution has encoders of {len(self.encoders)} axes, got {len(axes)} coordinate vectors")
        encoded = zip(self.encoders, axes, strict=True)
        return [encode_axis(encoder, x).to(self.weight.dtype) for encoder, x in encoded]

    def render(self, axes: Sequence[Tensor], tile: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """As :meth:`predict`, one tile at a time, so that the whole need not fit in memory.

        Args:
            axes: One coordinate vector ``(n_a,)`` per axis.
            tile: Samples of a tile per axis, at most.

        Yields:
            The first sample of the tile per axis, and its values ``(S, t_1, ..., t_D, C)``.
        """
        features = self.encode(axes)
        for box in tiles([len(x) for x in axes], tile):
            parts = [
                matrix.rows(rows.start, rows.stop) if isinstance(matrix, LocalMatrix) else matrix[rows]
                for matrix, rows in zip(features, box, strict=True)
            ]
            yield tuple(rows.start for rows in box), self.evaluate(parts)

    def report(self) -> dict[str, Any]:
        """Everything but the tensors, as plain JSON values."""
        plain: dict[str, Any] = {
            "ridge": self.ridge,
            "absolute_ridge": self.absolute_ridge,
            "ranks": list(self.ranks),
            "joint_rank": self.joint_rank,
            "effective_rank": self.effective_rank,
            "methods": list(self.methods),
            "solve_seconds": self.seconds,
        }
        return plain if self.choice is None else {**plain, "choice": self.choice.report()}

    def to(self, target: torch.dtype | torch.device) -> GridSolution:
        """The same solution with the tensors in another dtype or on another device."""
        return replace(self, weight=self.weight.to(target), mean=self.mean.to(target))

r"""Ordinary kriging in many small neighbourhoods at once, by one batched Cholesky factorisation.

The factor of a neighbourhood, in which the samples of its cell are last, gives the predictions at points, their variances,
and the leave-one-out errors of the samples of the cell. With :math:`K` the similarities plus the ridge,
:math:`P = K^{-1} - K^{-1} 1 1^T K^{-1} / (1^T K^{-1} 1)`, the error of sample ``i``, predicted from the other samples, is
:math:`(P y)_i / P_{ii}` and its variance is :math:`1 / P_{ii}`.

Reference: Dubrule, *Cross validation of kriging in a unique neighborhood*, Mathematical Geology 15, 1983; Rasmussen and
Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 2.7.
"""

from __future__ import annotations

import torch
from torch import Tensor


class LocalKriging:
    """Ridge fits with a free mean of values ``(B, n, C)``, of every batch entry by every member.

    The similarities of the samples to each other are lower triangles ``(B, M, n, n)``, one on the diagonal, which are
    overwritten; the ridge is added to the diagonal.
    """

    def __init__(self, similarity: Tensor, ridge: float, values: Tensor) -> None:
        self.ridge = ridge
        similarity.diagonal(dim1=-2, dim2=-1).add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(similarity)
        if bool(failed.any()):  # D of a length is not a covariance in the plane for every encoder
            wrong = failed > 0
            factor[wrong] = torch.linalg.cholesky(_positive(similarity[wrong], ridge))
        self.factor = factor
        right = torch.cat([values, torch.ones_like(values[..., :1])], -1)[:, None]
        solved = torch.linalg.solve_triangular(factor, right.expand(-1, similarity.shape[1], -1, -1), upper=False)
        self.ones = solved[..., -1:]
        """``L^-1 1``, ``(B, M, n, 1)``."""
        self.norm = self.ones.mT @ self.ones
        self.mean = self.ones.mT @ solved[..., :-1] / self.norm
        """The free mean, ``(B, M, 1, C)``."""
        self.residual = solved[..., :-1] - self.ones * self.mean
        """``L^-1 (y - mean)``, ``(B, M, n, C)``."""

    def predict(self, similarity: Tensor) -> Tensor:
        """Values at points from their similarities to the samples: ``(B, M, Q, n)`` -> ``(B, M, Q, C)``."""
        coefficients = torch.linalg.solve_triangular(self.factor.mT, self.residual, upper=True)
        values: Tensor = similarity @ coefficients + self.mean
        return values

    def variance(self, similarity: Tensor) -> Tensor:
        """Variance of samples about the predictions, with the ridge: ``(B, M, Q, n)`` -> ``(B, M, Q)``."""
        inner = torch.linalg.solve_triangular(self.factor, similarity.mT, upper=False)
        share = 1 - (inner * self.ones).sum(-2)
        free = (1 - inner.square().sum(-2) + share.square() / self.norm[..., 0]).clamp_min(0)
        variance: Tensor = free + self.ridge
        return variance

    def held_out(self, count: int) -> tuple[Tensor, Tensor]:
        """Leave-one-out errors, value minus prediction, of the last ``count`` samples: ``(B, M, count, C)``.

        The second tensor are the variances of these predictions, with the ridge, ``(B, M, count)``.
        """
        last = self.factor[..., -count:, -count:].contiguous()  # of the inverse, the last block depends on it alone
        eye = torch.eye(count, dtype=last.dtype, device=last.device).expand_as(last)
        inverse = torch.linalg.solve_triangular(last, eye, upper=False)
        right = torch.cat([self.residual[..., -count:, :], self.ones[..., -count:, :]], -1)
        found = inverse.mT @ right
        precision = inverse.square().sum(-2) - found[..., -1].square() / self.norm[..., 0]
        return found[..., :-1] / precision[..., None], 1 / precision


def _positive(matrices: Tensor, ridge: float) -> Tensor:
    """Matrices with eigenvalues below the ridge set to it."""
    values, vectors = torch.linalg.eigh(matrices.double())
    clamped = (vectors * values.clamp_min(ridge)[:, None, :]) @ vectors.mT
    result: Tensor = clamped.to(matrices.dtype)
    return result

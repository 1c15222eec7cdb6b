"""Least squares of few scattered samples without a ridge, by singular values in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lightning.linalg import Minimum, factor_axis

MAX_OPERATIONS, MAX_NUMBERS = 1 << 31, 1 << 24
"""Multiplications and matrix entries up to which a problem is factorised: a second on one core."""
MAX_EXACT_EXCESS = 1e-4
"""Squared error above the least one, relative to it, up to which a direct solution is called exact."""
NEGLIGIBLE_ERROR = 1e-6
"""Squared error relative to the squared values that replaces smaller least ones in :func:`excess_error`: 60 dB."""


def least_norm(matrix: Tensor, target: Tensor, dtype: torch.dtype) -> Minimum:
    """Least squares of least norm of ``(P, K)`` and ``(s, C, P)``, both float64, with weights ``(s, C, K)`` in ``dtype``.

    The weights are rounded from float64. At large condition numbers they are so large that rounding them changes the fitted
    values. Then the smallest ridge is added at which the rounded weights have the least squared error.
    """
    factor = factor_axis(matrix)
    s, left, right = factor.singular_values, factor.left(), factor.right
    projection = target @ left
    norm = target.square().sum((1, 2))
    least = (target - projection @ left.T).square().sum((1, 2))
    rounded_matrix, rounded_target = matrix.to(dtype), target.to(dtype)
    z, error = torch.zeros(*target.shape[:2], matrix.shape[1], dtype=dtype, device=target.device), norm
    excess = excess_error(error, least, norm)
    # square roots of the ridges, relative to the largest singular value
    for cutoff in (0.0, *(4.0**-n for n in range(24, 7, -1))):
        response = s / (s.square() + (cutoff * s[:1]).square())
        rounded = (projection * response @ right.T).to(dtype)
        errors = (rounded_target - rounded @ rounded_matrix.T).square().sum((1, 2), dtype=torch.float64)
        better = (errors < error) & (excess > MAX_EXACT_EXCESS)
        z, error = torch.where(better[:, None, None], rounded, z), torch.where(better, errors, error)
        excess = excess_error(error, least, norm)
        if bool((excess <= MAX_EXACT_EXCESS).all()):
            break
    gradient, start = (
        torch.linalg.vector_norm(part @ matrix, dim=(1, 2)) for part in (target - z.double() @ matrix.T, target)
    )
    relative, none = torch.where(start > 0, gradient / start, 0.0), torch.zeros_like(error)
    return Minimum(z, none.long(), relative, error, none, excess)


def excess_error(error: Tensor, least: Tensor, norm: Tensor) -> Tensor:
    """Squared errors above the least ones, relative to these, or to 1e-6 of the squared values if that is more, ``(S,)``."""
    reference = torch.maximum(least, NEGLIGIBLE_ERROR * norm)
    return torch.where(reference > 0, (error - least).clamp_min(0) / reference, 0.0)

r"""The factorisation of one axis's features, :math:`\Psi = U \operatorname{diag}(s) V^T`, in float64.

Least squares on a grid needs one such factorisation per axis (Zheng et al., ECCV 2022, Eqs. 12 and 42).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg.operators import Banded, Dense, GridOperator, Identity, Operator, as_operator, full_precision

_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


@dataclass(frozen=True)
class AxisFactor:
    r""":math:`\Psi = U \operatorname{diag}(s) V^T` of one axis, without numerically zero singular values.

    Singular values up to ``max(N, K) * eps * s_max`` of float64 count as zero, as in NumPy's ``matrix_rank``.
    """

    singular_values: Tensor
    """``s``, ``(r,)``, descending."""
    basis: Operator
    """``V``, ``(K, r)``."""
    mean_diagonal: float
    r"""Mean squared row norm, the mean of the diagonal of :math:`\Psi \Psi^T`: the unit of relative ridges."""
    shape: tuple[int, int]
    """``(N, K)``."""
    method: str
    """``svd``, ``gesvd`` (LAPACK's second route), ``gram`` (banded matrices of moderate condition), or ``identity``."""
    projector: GridOperator = field(repr=False)
    """The matrix that data are multiplied by: ``U``, ``(N, r)``, or the features ``(N, K)`` where they are banded."""

    @property
    def right(self) -> Tensor:
        """``V``, ``(K, r)``."""
        return self.basis.dense()

    @property
    def rotation(self) -> Tensor | None:
        r""":math:`V s^{-1}`, ``(K, r)``, where the projector is :math:`\Psi`: then :math:`U = \Psi V s^{-1}`."""
        return self.right / self.singular_values if self.method == "gram" else None

    @property
    def rank(self) -> int:
        return len(self.singular_values)

    @property
    def condition(self) -> float:
        s = self.singular_values
        return float(s[0] / s[-1]) if len(s) else 1.0

    def left(self) -> Tensor:
        """``U``, ``(N, r)``."""
        return self.projector.dense() if self.rotation is None else self.projector.matvec(self.rotation, 0)


def factor_axis(features: Tensor | Operator) -> AxisFactor:
    """Factorises the raw features ``(N, K)`` of one axis; banded ones of moderate condition through their Gram matrix."""
    matrix = as_operator(features)
    matrix = matrix.to(torch.float64)
    rows, columns = matrix.shape
    if isinstance(matrix, Identity) and rows == columns:
        ones = torch.ones(rows, dtype=torch.float64, device=matrix.device)
        return AxisFactor(ones, matrix, 1.0, matrix.shape, "identity", matrix)
    with full_precision(matrix.device):
        banded = matrix if isinstance(matrix, Banded) and rows >= columns else None
        gram = None if banded is None else banded.gram()
        squares = float(matrix.dense().square().sum() if gram is None else gram.trace())
        if not math.isfinite(squares):
            raise InputError(
                f"the features of an axis, shape {matrix.shape}, hold NaN or infinite numbers; check the encoder's "
                "hyper-parameters and the coordinates, which lie in [0, 1]"
            )
        if banded is not None and gram is not None:
            eigenvalues, vectors = eigh(gram)
            # condition number up to which a banded matrix is factorised through its Gram matrix, with a relative error of
            # the singular values of ``eps * 1e6 = 2e-10``; by the SVD above it
            if 0 < eigenvalues[-1] <= eigenvalues[0] * 1e3**2:
                s, right = eigenvalues.flip(0).sqrt(), vectors.flip(1)
                return AxisFactor(s, Dense(right), squares / rows, matrix.shape, "gram", banded)
        u, s, vh, method = _svd(matrix.dense())
        rank = int((s > max(matrix.shape) * torch.finfo(s.dtype).eps * s[0]).sum())
        # copies: views would keep U and V in memory
        left = Dense(u[:, :rank].clone())
        return AxisFactor(s[:rank].clone(), Dense(vh[:rank].T.clone()), squares / rows, matrix.shape, method, left)


def factor_axes(features: Sequence[Tensor | Operator]) -> list[AxisFactor]:
    """The factors of all axes; axes with the same features share one."""
    factors: list[AxisFactor] = []
    for matrix in features:
        same = (
            factor
            for other, factor in zip(features, factors, strict=False)
            if other is matrix or (isinstance(other, Tensor) and isinstance(matrix, Tensor) and torch.equal(other, matrix))
        )
        factors.append(next(same, None) or factor_axis(matrix))
    return factors


def ridge_response(factors: Sequence[AxisFactor], ridge: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    r"""Joint singular values, and the factors :math:`s / (s^2 + \rho)` of ridge regression, ``(r_1 ... r_D,)`` float64.

    The factor is zero below the root of the least normal number of ``dtype``, the data's, and without a ridge up to ``eps``
    times the largest axis times the largest singular value: rounding errors of data.
    """
    singular = reduce(torch.kron, [factor.singular_values for factor in factors])
    info = torch.finfo(dtype)
    cutoff = info.tiny**0.5  # keeps weights finite for extremely small features
    if ridge == 0 and singular.numel():
        cutoff = max(cutoff, max(max(factor.shape) for factor in factors) * info.eps * float(singular.amax()))
    absolute = ridge * math.prod(factor.mean_diagonal for factor in factors)
    return singular, torch.where(singular > cutoff, singular / (singular.square() + absolute), 0.0)


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, str]:
    """The economy SVD and its LAPACK route: divide and conquer, or QR iterations where that fails."""
    try:
        if matrix.shape[0] == matrix.shape[1] and torch.equal(matrix, matrix.T):  # shifted functions at their shifts
            eigenvalues, vectors = torch.linalg.eigh(matrix)
            s, order = eigenvalues.abs().sort(descending=True)
            u = vectors[:, order]
            vh = (u * eigenvalues[order].sign()).T
        else:
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        # finds NaN and wrong factors: the product of the factors has to equal the matrix on a few fixed random vectors
        probe = torch.randn(matrix.shape[1], 4, generator=torch.Generator().manual_seed(0), dtype=s.dtype).to(matrix.device)
        error = (matrix @ probe - u @ (s[:, None] * (vh @ probe))).norm()
        if error <= 1e-11 * max(matrix.shape) ** 0.5 * s[0] * probe.norm():
            return u, s, vh, "svd"
    except _LinAlgError:
        pass  # "ill-conditioned or too many repeated singular values": QR iterations converge
    parts = scipy.linalg.svd(matrix.cpu().numpy(), full_matrices=False, lapack_driver="gesvd")
    u, s, vh = (torch.from_numpy(np.ascontiguousarray(part)).to(matrix.device) for part in parts)
    return u, s, vh, "gesvd"


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues, and eigenvectors, of a symmetric matrix; by QR iterations where divide and conquer fails."""
    try:
        eigenvalues, vectors = torch.linalg.eigh(matrix)
    except _LinAlgError:
        plain = scipy.linalg.eigh(matrix.cpu().numpy(), driver="ev")
        eigenvalues, vectors = (torch.from_numpy(part).to(matrix) for part in plain)
    return eigenvalues, vectors


def largest_eigenvalue(features: Tensor) -> float:
    """A lower bound of the largest eigenvalue of the Gram matrix of features ``(N, K)``, by subspace iteration.

    Within 2 % where a tenth of the eigenvalues are as large.
    """
    vectors = torch.randn(features.shape[1], 8, generator=torch.Generator().manual_seed(0)).to(features)
    for _ in range(16):
        vectors = torch.linalg.qr(features.T @ (features @ vectors))[0]
    return float(torch.linalg.matrix_norm(features @ vectors, 2).square())

r"""The factorisation of one axis's features, :math:`\Psi = U \operatorname{diag}(s) V^T`, in float64.

It is all that a least-squares problem on a grid needs of an axis (Zheng et al., ECCV 2022, Eqs. 12 and 42, which are
printed with normal equations; forming those squares the condition number, and the Fourier encoders have none to spare).
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg.local import MAX_DENSITY, MIN_FEATURES, LocalMatrix, Matrix
from pe_lightning.linalg.precision import full_precision

__all__ = ["AxisFactor", "FactorisationError", "clear_cache", "factor_axis"]

GRAM_CONDITION = 1e3
"""A local matrix is factorised through its Gram matrix up to this condition number: the singular values are then still
right to ``eps * 1e6 = 2e-10``. Beyond it, the SVD."""
CACHE_BYTES = 1 << 27


_LinAlgError: type[Exception] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


class FactorisationError(RuntimeError):
    """No route gave a factorisation that reproduces the features."""


@dataclass(frozen=True)
class AxisFactor:
    r""":math:`\Psi = U \operatorname{diag}(s) V^T` of one axis, numerically zero singular values left out.

    Left out are those up to ``max(N, K) * eps * s_max`` of float64, as NumPy's ``matrix_rank`` does.
    """

    singular_values: Tensor
    """``s``, ``(r,)``, descending."""
    right: Tensor
    """``V``, ``(K, r)``."""
    mean_diagonal: float
    r"""Mean squared row norm: the mean of the diagonal of :math:`\Psi \Psi^T`, what a relative ridge is relative to."""
    shape: tuple[int, int]
    """``(N, K)``."""
    method: str
    """``svd``, ``gesvd`` (LAPACK's second route), or ``gram`` (local matrices of moderate condition)."""
    dense_left: Tensor | None = field(default=None, repr=False)
    """``U``, ``(N, r)``, unless it is kept as ``local``."""
    local: LocalMatrix | None = field(default=None, repr=False)
    r"""The features themselves where they are local: then :math:`U^T = s^{-1} V^T \Psi^T`."""

    @property
    def rank(self) -> int:
        """The numerical rank ``r``."""
        return len(self.singular_values)

    @property
    def condition(self) -> float:
        """Largest over smallest kept singular value; 1 for rank 0."""
        s = self.singular_values
        return float(s[0] / s[-1]) if len(s) else 1.0

    def left(self) -> Tensor:
        """``U``, ``(N, r)``."""
        if self.dense_left is not None:
            return self.dense_left
        assert self.local is not None
        return self.local.product(self.right, 0) / self.singular_values

    def nbytes(self) -> int:
        """Memory held."""
        kept = [self.right, self.singular_values, *([] if self.dense_left is None else [self.dense_left])]
        kept += [] if self.local is None else [block.values for block in self.local.blocks]
        return sum(part.numel() * part.element_size() for part in kept)


_cache: OrderedDict[tuple[object, ...], AxisFactor] = OrderedDict()
_lock = threading.Lock()


def clear_cache() -> None:
    """Forgets all factorisations."""
    with _lock:
        _cache.clear()


def factor_axis(features: Matrix, compact: bool = True, reuse: bool = True) -> AxisFactor:
    """Factorises the raw features of one axis, or returns the factorisation of equal features from before.

    Features are equal if their bytes are: the same coordinates and the same encoder. Up to 128 MB are kept.

    Args:
        features: ``(N, K)``; any floating-point dtype, taken to float64.
        compact: Whether a matrix of 512 columns or more may be treated as local.
        reuse: Whether to look for and keep the result.

    Raises:
        InputError: If the features are not a finite matrix.
        FactorisationError: If neither route of LAPACK reproduces the features.
    """
    with full_precision(features.device):
        matrix = _checked(features)
        if isinstance(matrix, Tensor) and compact and matrix.shape[1] >= MIN_FEATURES:
            matrix = LocalMatrix.from_dense(matrix, max_density=MAX_DENSITY) or matrix
        elif isinstance(matrix, LocalMatrix) and not compact:
            matrix = matrix.dense()
        if not reuse:
            return _factor(matrix)
        key = _key(matrix)
        with _lock:
            if key in _cache:
                _cache.move_to_end(key)
                return _cache[key]
        factor = _factor(matrix)
        with _lock:
            _cache[key] = factor
            while sum(kept.nbytes() for kept in _cache.values()) > CACHE_BYTES:
                _cache.popitem(last=False)
        return factor


def _checked(features: Matrix) -> Matrix:
    parts = [block.values for block in features.blocks] if isinstance(features, LocalMatrix) else [features]
    if len(features.shape) != 2 or not parts[0].is_floating_point() or 0 in features.shape:
        raise InputError(
            f"the features of an axis are floating-point numbers of shape (N, K); got {tuple(features.shape)}, "
            f"{features.dtype}"
        )
    if not all(bool(torch.isfinite(part).all()) for part in parts):
        raise InputError(
            f"the features of an axis, shape {tuple(features.shape)}, hold NaN or infinite numbers; check the encoder's "
            "hyper-parameters and the coordinates, which lie in [0, 1]"
        )
    return features.to(torch.float64)


def _key(matrix: Matrix) -> tuple[object, ...]:
    digest = hashlib.blake2b(digest_size=16)
    blocks = matrix.blocks if isinstance(matrix, LocalMatrix) else ()
    for part in [matrix] if isinstance(matrix, Tensor) else [block.values for block in blocks]:
        digest.update(part.contiguous().cpu().numpy().data)
    where = tuple((block.row, block.column) for block in blocks)
    return digest.digest(), tuple(matrix.shape), where, matrix.device


def _factor(matrix: Matrix) -> AxisFactor:
    rows = matrix.shape[0]
    squares = matrix.squares() if isinstance(matrix, LocalMatrix) else matrix.square().sum()
    diagonal = float(squares) / rows
    if isinstance(matrix, LocalMatrix):
        factor = _gram(matrix, diagonal)
        if factor is not None:
            return factor
        matrix = matrix.dense()
    u, s, vh, method = _svd(matrix)
    keep = int((s > max(matrix.shape) * torch.finfo(s.dtype).eps * s[0]).sum())
    shape = (matrix.shape[0], matrix.shape[1])
    # copies: views would keep the whole of U and V alive
    return AxisFactor(s[:keep].clone(), vh[:keep].T.clone(), diagonal, shape, method, dense_left=u[:, :keep].clone())


def _svd(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, str]:
    """The economy SVD, by divide and conquer, else by QR iterations, which converge where the former does not."""
    try:
        u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
        if _reproduces(matrix, u, s, vh):
            return u, s, vh, "svd"
    except _LinAlgError:
        pass  # "ill-conditioned or too many repeated singular values", in float64 too
    try:
        parts = scipy.linalg.svd(matrix.cpu().numpy(), full_matrices=False, lapack_driver="gesvd")
    except np.linalg.LinAlgError as error:
        raise FactorisationError(f"neither gesdd nor gesvd factorised features of shape {tuple(matrix.shape)}") from error
    u, s, vh = (torch.from_numpy(np.ascontiguousarray(part)).to(matrix.device) for part in parts)
    if not _reproduces(matrix, u, s, vh):
        raise FactorisationError(f"no SVD reproduces the features of shape {tuple(matrix.shape)}")
    return u, s, vh, "gesvd"


def _reproduces(matrix: Tensor, u: Tensor, s: Tensor, vh: Tensor) -> bool:
    """Whether the factors give the matrix back, on a few fixed random vectors; NaN does not."""
    probe = torch.randn(matrix.shape[1], 4, generator=torch.Generator().manual_seed(0), dtype=s.dtype).to(matrix.device)
    error = (matrix @ probe - u @ (s[:, None] * (vh @ probe))).norm()
    return bool(error <= 1e-11 * max(matrix.shape) ** 0.5 * s[0] * probe.norm())


def _gram(matrix: LocalMatrix, diagonal: float) -> AxisFactor | None:
    r"""Through the eigenvectors of :math:`\Psi^T\Psi`, if the condition number allows to square it.

    Profiled for gau at N = 4096, K = 2048 on two cores: 2 s, where the SVD takes a minute and LAPACK's banded
    eigensolver 3 s.
    """
    if matrix.shape[0] < matrix.shape[1]:
        return None  # the Gram matrix is singular
    try:
        eigenvalues, vectors = torch.linalg.eigh(matrix.gram())
    except _LinAlgError:
        return None
    if not eigenvalues[0] * GRAM_CONDITION**2 >= eigenvalues[-1]:
        return None
    singular_values = eigenvalues.flip(0).sqrt()
    return AxisFactor(singular_values, vectors.flip(1), diagonal, matrix.shape, "gram", local=matrix)

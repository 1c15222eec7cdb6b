r"""Stable ranks :math:`\|A\|_F^2 / \|A\|_2^2`, of matrices and of the features of encodings.

Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, §4 and Fig. 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder, is_local, local_features
from pe_lightning.encodings.base import Encoding
from pe_lightning.encodings.complex import Complex

MAX_EXACT = 2048
"""Rows and columns up to which all eigenvalues of a Gram matrix are computed."""


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Without gradients and dropout."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def stable_rank(matrix: Tensor) -> Tensor:
    """Stable ranks ``(*batch,)`` float64 of matrices ``(*batch, P, K)``; 0 of zero, NaN where a number is not finite."""
    wide = _double(matrix)
    return _rank_of_gram(wide.mT @ wide if wide.shape[-1] <= wide.shape[-2] else wide @ wide.mT)


@torch.no_grad()
def feature_rank(encoding: Encoding, coords: Tensor, axes: Sequence[Tensor] | None = None) -> Tensor:
    """Stable rank of the encoded coordinates of samples ``(S or 1, P, D)``: ``(S or 1,)``.

    A complex encoding of a grid with ``axes`` ``(N_a,)`` has the product of the axes' ranks over the whole grid.
    """
    if not isinstance(encoding, Complex):
        return stable_rank(encoding(coords))
    if axes is not None:
        ranks = [encoder_rank(encoder, x) for encoder, x in zip(encoding.encoders, axes, strict=True)]
        return torch.tensor([math.prod(ranks)], dtype=torch.float64)
    # the Gram matrix of rows of a Kronecker product is the elementwise product of the factors' Gram matrices
    factors = [_double(encoder(x)) for encoder, x in zip(encoding.encoders, coords.unbind(-1), strict=True)]
    return _rank_of_gram(torch.stack([f @ f.mT for f in factors]).prod(0))


def encoder_rank(encoder: Encoder, x: Tensor) -> float:
    """Stable rank of an encoder's features of the coordinates ``(N,)``, or ``(N, num_axes)``.

    From all eigenvalues of the smaller Gram matrix; of a large one the largest by Lanczos iterations, to a relative error of
    1e-3, and long axes of local features are never dense.
    """
    if is_local(encoder):
        matrix = local_features(encoder, x)
        return _rank_by_lanczos(
            lambda v: matrix.rmatvec(matrix.matvec(v.to(x.device))).cpu(), matrix.shape[1], float(matrix.squares())
        )
    with evaluating(encoder):
        rows = _double(encoder(x)).cpu()
    if min(rows.shape) <= MAX_EXACT or not rows.isfinite().all():
        return stable_rank(rows).item()
    return _rank_by_lanczos(lambda v: rows.mT @ (rows @ v), rows.shape[1], rows.square().sum().item())


def _rank_by_lanczos(gram: Callable[[Tensor], Tensor], size: int, squares: float) -> float:
    """From the sum of squares of a matrix, and its Gram matrix as a product with vectors."""
    from scipy.sparse.linalg import LinearOperator, eigsh  # takes a while to import

    if squares == 0:
        return 0.0
    operator = LinearOperator((size, size), lambda v: gram(torch.from_numpy(v).ravel()).numpy(), dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)  # ones are in the null space of features of mean zero
    largest = eigsh(operator, 1, v0=start, tol=1e-3, return_eigenvectors=False)
    return squares / float(largest[0])


def _rank_of_gram(gram: Tensor) -> Tensor:
    finite = gram.isfinite().flatten(-2).all(-1)
    largest = torch.linalg.eigvalsh(torch.where(finite[..., None, None], gram, 0.0))[..., -1]
    ranks = torch.where(largest > 0, gram.diagonal(dim1=-2, dim2=-1).sum(-1) / largest, 0.0)
    return torch.where(finite, ranks, torch.nan)


def _double(matrix: Tensor) -> Tensor:
    return (matrix.cpu() if matrix.device.type == "mps" else matrix).double()  # MPS has no float64

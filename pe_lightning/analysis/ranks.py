r"""Stable ranks :math:`\|A\|_F^2 / \|A\|_2^2`, of matrices and of the features of encodings.

Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, §4 and Fig. 8.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import point_coordinates
from pe_lightning.encoders import Encoder, is_local, local_features
from pe_lightning.encodings import Complex, Encoding

__all__ = ["feature_rank", "sample_coordinates", "stable_rank"]


def stable_rank(matrix: Tensor) -> Tensor:
    """Stable ranks of matrices, in float64: ``(*batch, P, K)`` -> ``(*batch,)``.

    That of zero is 0; NaN where a number is not finite.
    """
    wide = _double(matrix)
    return _rank_of_gram(wide.mT @ wide if wide.shape[-1] <= wide.shape[-2] else wide @ wide.mT)


def sample_coordinates(batch: GridBatch | PointBatch, points: int) -> Tensor:
    """Coordinates of all samples of a batch, or of ``points`` of them, always the same: ``(S or 1, P, D)``."""
    count = math.prod(batch.values.shape[1:-1])
    chosen = np.arange(count) if count <= points else np.sort(np.random.default_rng(0).choice(count, points, replace=False))
    index = torch.from_numpy(chosen).to(batch.values.device)
    return batch.coords[:, index] if isinstance(batch, PointBatch) else point_coordinates(batch.axes, index)[None]


@torch.no_grad()
def feature_rank(encoding: Encoding, batch: GridBatch | PointBatch, coords: Tensor) -> Tensor:
    """Stable rank of the encoded coordinates, ``(S or 1,)``.

    That of a Kronecker product is the product of those of its factors: of a complex encoding on a training grid it is
    computed over the whole grid, from the axes. At scattered points it is that of the sample.

    Args:
        encoding: A simple or complex encoding.
        batch: All training samples.
        coords: Some of their coordinates, ``(S or 1, P, D)``.
    """
    if not isinstance(encoding, Complex):
        return stable_rank(encoding(coords))
    if isinstance(batch, GridBatch):
        ranks = [_rank_of_axis(encoder, x) for encoder, x in zip(encoding.encoders, batch.axes, strict=True)]
        return torch.stack(ranks).prod(0, keepdim=True)
    # the Gram matrix of rows of a Kronecker product is the elementwise product of those of the factors
    factors = [_double(encoder(x)) for encoder, x in zip(encoding.encoders, coords.unbind(-1), strict=True)]
    return _rank_of_gram(torch.stack([f @ f.mT for f in factors]).prod(0))


def _rank_of_axis(encoder: Encoder, x: Tensor) -> Tensor:
    """Stable rank of the features of an axis; of a long one of local features by Lanczos iterations, ``()``."""
    if not is_local(encoder):
        return stable_rank(encoder(x))
    matrix = local_features(encoder, x)
    gram = LinearOperator(
        (matrix.shape[1],) * 2, lambda v: matrix.rmv(matrix.mv(torch.from_numpy(v).ravel())).numpy(), dtype=np.float64
    )
    largest = eigsh(gram, 1, v0=np.ones(matrix.shape[1]), tol=1e-3, return_eigenvectors=False)
    return matrix.squares() / float(largest[0])


def _rank_of_gram(gram: Tensor) -> Tensor:
    """Trace by largest eigenvalue, ``(*batch, n, n)`` -> ``(*batch,)``."""
    finite = gram.isfinite().flatten(-2).all(-1)
    largest = torch.linalg.eigvalsh(torch.where(finite[..., None, None], gram, 0.0))[..., -1]
    ranks = torch.where(largest > 0, gram.diagonal(dim1=-2, dim2=-1).sum(-1) / largest, 0.0)
    return torch.where(finite, ranks, torch.nan)


def _double(matrix: Tensor) -> Tensor:
    return (matrix.cpu() if matrix.device.type == "mps" else matrix).double()  # MPS has no float64

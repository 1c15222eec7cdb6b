"""Smooth continuations into wide gaps: a member, and what others pass into far from known samples."""

from __future__ import annotations

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import spsolve
from torch import Tensor
from torch.nn import functional as F

from pe_fill.members.fourier import smooth_continuation

COARSE, MAX_COARSE = 4, 1 << 14
"""Least side of the pixels in which pictures are continued far from known samples, and most of them that are unknown."""


def continuation(values: Tensor, known: Tensor, order: int, side: int = COARSE) -> Tensor:
    """Smooth values far from known samples, ``(N_1, ..., N_D, C)``.

    In pictures they solve the Laplace equation (order 1) or the biharmonic one (2) in pixels of at least ``side``.
    """
    if known.ndim != 2:
        return smooth_continuation(values, known)
    share = known.to(values)[None, None]
    while int((F.max_pool2d(share, side, ceil_mode=True) == 0).sum()) > MAX_COARSE:
        side *= 2
    weight = F.avg_pool2d(share, side, ceil_mode=True)
    planes = torch.where(known[..., None], values, 0).movedim(-1, 0)[None]
    coarse = F.avg_pool2d(planes, side, ceil_mode=True) / weight.clamp_min(1e-12)
    unknown = (weight == 0).flatten().cpu().numpy()
    if unknown.any():
        slopes, bends = ([_energy(n, order) for n in weight.shape[2:]] for order in (1, 2))
        operator = sparse.kronsum(slopes[1], slopes[0], "csr")
        if order == 2:  # linear up to the ends of the picture; the slopes decide where known pixels are on a line
            bent = sparse.kronsum(bends[1], bends[0], "csr") + 2 * sparse.kron(slopes[0], slopes[1], "csr")
            operator = bent + 1e-6 * operator
        operator = operator[unknown]
        found = coarse.flatten(2)[0].T.double().cpu().numpy()
        low, high = found[~unknown].min(0), found[~unknown].max(0)
        solved = spsolve(operator[:, unknown].tocsc(), -operator[:, ~unknown] @ found[~unknown])
        found[unknown] = solved.reshape(-1, found.shape[1]).clip(low, high)
        coarse = torch.from_numpy(found.T.reshape(coarse.shape)).to(values)
    size = [n * side for n in weight.shape[2:]]
    fine = F.interpolate(coarse, size, mode="bicubic", align_corners=False)[0].movedim(0, -1)
    return fine[: known.shape[0], : known.shape[1]]


def _energy(size: int, order: int) -> sparse.csr_array:
    """Matrix of the sum of squared differences of an order along an axis; its ends are free."""
    differences = sparse.csr_array(np.diff(np.eye(size), order, axis=0))
    return differences.T @ differences

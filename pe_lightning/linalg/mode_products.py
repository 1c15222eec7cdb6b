r"""Mode products: :math:`W \times_1 \Psi_1 \times_2 \Psi_2 \dots \times_D \Psi_D` without the Kronecker product.

With row-major flattening, ``mode_products(w, [A, B]).flatten() == torch.kron(A, B) @ w.flatten()``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor

from pe_lightning.errors import InputError

__all__ = ["contraction_order", "mode_product", "mode_products", "rowwise_products"]


def mode_product(x: Tensor, matrix: Tensor, axis: int) -> Tensor:
    """Multiplies ``matrix`` into one axis of ``x``.

    Args:
        x: ``(..., K, ...)`` with ``K`` at ``axis``.
        matrix: ``(N, K)``.
        axis: The axis of ``x`` to contract; negative values count from the end.

    Returns:
        ``(..., N, ...)``, the shape of ``x`` with ``N`` at ``axis``.
    """
    axis %= x.ndim
    if x.shape[axis] != matrix.shape[1]:
        raise InputError(
            f"mode_product: axis {axis} of {tuple(x.shape)} has {x.shape[axis]} entries, "
            f"the matrix {tuple(matrix.shape)} needs {matrix.shape[1]}"
        )
    if axis == x.ndim - 1:
        return x @ matrix.T  # one large product: the fastest case
    lead, trail = x.shape[:axis], x.shape[axis + 1 :]
    # (batch, K, rest): a broadcast matrix from the left, no transposed copy of x
    product = matrix @ x.reshape(lead.numel(), x.shape[axis], trail.numel())
    return product.reshape(*lead, matrix.shape[0], *trail)


def contraction_order(sizes_in: Sequence[int], sizes_out: Sequence[int]) -> tuple[int, ...]:
    """The order of the axes in which the mode products take the fewest multiplications.

    Args:
        sizes_in: ``K_a`` per axis.
        sizes_out: ``N_a`` per axis.

    Returns:
        A permutation of the axes; of equally cheap ones, the one that ends with the first axes, since products along the
        last axis are the fastest while it is long.
    """

    def cost(order: tuple[int, ...]) -> int:
        sizes, total = list(sizes_in), 0
        for axis in order:
            volume = 1
            for size in sizes:
                volume *= size
            total += volume * sizes_out[axis]
            sizes[axis] = sizes_out[axis]
        return total

    axes = range(len(sizes_in))
    if len(sizes_in) > 6:  # 720 orders is the last count worth enumerating; shrinking axes first is optimal pairwise
        return tuple(sorted(axes, key=lambda a: sizes_out[a] / sizes_in[a]))
    return min(permutations(reversed(axes)), key=cost)


def mode_products(x: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    r"""Multiplies one matrix into each of the last ``D`` axes of ``x``, in the cheapest order.

    Args:
        x: ``(*batch, K_1, ..., K_D)``.
        matrices: ``D`` matrices, ``(N_a, K_a)``.

    Returns:
        ``(*batch, N_1, ..., N_D)``.
    """
    first = x.ndim - len(matrices)
    if first < 0:
        raise InputError(f"mode_products: {len(matrices)} matrices for a tensor of shape {tuple(x.shape)}")
    for axis in contraction_order(x.shape[first:], [matrix.shape[0] for matrix in matrices]):
        x = mode_product(x, matrices[axis], first + axis)
    return x


def rowwise_products(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    r"""Evaluates :math:`y_p = \sum_{k_1 \dots k_D} w_{k_1 \dots k_D} \prod_a \psi_{a,p,k_a}` for every point ``p``.

    The points share no grid, so each point contracts its own feature vectors: one matrix product for the first axis, then
    a weighted sum per remaining axis.

    Args:
        x: ``(*batch, K_1, ..., K_D)``; the same points for every batch entry.
        factors: ``D`` tensors ``(P, K_a)``, the features of the points per axis.

    Returns:
        ``(*batch, P)``.
    """
    count = len(factors)
    batch = x.shape[: x.ndim - count]
    x = x.reshape(batch.numel(), *x.shape[x.ndim - count :])
    # (B, P, K_2, ..., K_D)
    y = torch.tensordot(x, factors[0], dims=([1], [1])).movedim(-1, 1)
    for factor in factors[1:]:
        y = torch.einsum("bpk...,pk->bp...", y, factor)
    return y.reshape(*batch, factors[0].shape[0])

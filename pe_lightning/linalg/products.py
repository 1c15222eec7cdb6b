r"""Mode products: :math:`W \times_1 \Psi_1 \times_2 \Psi_2 \dots \times_D \Psi_D` without the Kronecker product.

With row-major flattening, ``mode_products(w, [A, B]).flatten() == torch.kron(A, B) @ w.flatten()``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.linalg.operators import Operator

__all__ = ["contraction_order", "full_precision", "mode_product", "mode_products", "rowwise_products"]


def mode_product(x: Tensor, matrix: Tensor | Operator, axis: int) -> Tensor:
    """Multiplies ``matrix`` into one axis of ``x``.

    Args:
        x: ``(..., K, ...)`` with ``K`` at ``axis``.
        matrix: ``(N, K)``.
        axis: The axis of ``x`` to contract; negative values count from the end.

    Returns:
        ``(..., N, ...)``, the shape of ``x`` with ``N`` at ``axis``.
    """
    _check(x, matrix, axis)
    if not isinstance(matrix, Tensor):
        return matrix.mv(x, axis)
    axis %= x.ndim
    if axis == x.ndim - 1:
        return x @ matrix.T  # one large product: the fastest case
    lead, trail = x.shape[:axis], x.shape[axis + 1 :]
    # (batch, K, rest): a broadcast matrix from the left, no transposed copy of x
    product = matrix @ x.reshape(lead.numel(), x.shape[axis], trail.numel())
    return product.reshape(*lead, matrix.shape[0], *trail)


def _check(x: Tensor, matrix: Tensor | Operator, axis: int) -> None:
    if len(matrix.shape) != 2:
        raise InputError(f"a mode product takes a matrix of two axes, got shape {tuple(matrix.shape)}")
    if not -x.ndim <= axis < x.ndim:
        raise InputError(f"mode product: no axis {axis} in a tensor of shape {tuple(x.shape)}")
    if x.shape[axis] != matrix.shape[1]:
        raise InputError(
            f"mode product: axis {axis} of {tuple(x.shape)} has {x.shape[axis]} entries, "
            f"the matrix {tuple(matrix.shape)} needs {matrix.shape[1]}"
        )


def contraction_order(sizes_in: Sequence[int], sizes_out: Sequence[int]) -> tuple[int, ...]:
    """The order of the axes in which the mode products take the fewest multiplications.

    Args:
        sizes_in: ``K_a`` per axis.
        sizes_out: ``N_a`` per axis.

    Returns:
        A permutation of the axes; of equally cheap ones, the one that ends with the first axes, since products along
        the last axis are the fastest while it is long.
    """
    # Of two neighbours in the order, a before b costs V N_a + V (N_a/K_a) N_b and b before a the same with a and b
    # exchanged: a comes first if 1/K_a - 1/N_a < 1/K_b - 1/N_b. V, what came before, is in both, so sorting is optimal.
    # An empty axis (0 in or out) makes everything free.
    keys = [1 / max(k, 1) - 1 / max(n, 1) for k, n in zip(sizes_in, sizes_out, strict=True)]
    return tuple(sorted(reversed(range(len(keys))), key=keys.__getitem__))


def mode_products(x: Tensor, matrices: Sequence[Tensor | Operator]) -> Tensor:
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
    for axis, matrix in enumerate(matrices):  # all of them first: the shape in a message is the one that was given
        _check(x, matrix, first + axis)
    for axis in contraction_order(x.shape[first:], [matrix.shape[0] for matrix in matrices]):
        x = mode_product(x, matrices[axis], first + axis)
    return x


def rowwise_products(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    r"""Evaluates :math:`y_p = \sum_{k_1 \dots k_D} w_{k_1 \dots k_D} \prod_a \psi_{a,p,k_a}` for every point ``p``.

    The points share no grid, so each point contracts its own feature vectors: one matrix product for the first axis,
    then a weighted sum per remaining axis.

    Args:
        x: ``(*batch, K_1, ..., K_D)``; the same points for every batch entry.
        factors: ``D`` tensors ``(P, K_a)``, the features of the points per axis.

    Returns:
        ``(*batch, P)``.
    """
    first = x.ndim - len(factors)
    shapes = [tuple(factor.shape) for factor in factors]
    if not factors or first < 0 or [(len(factors[0]), k) for k in x.shape[first:]] != shapes:
        raise InputError(
            f"rowwise_products: factors of shapes {shapes} for a tensor of shape {tuple(x.shape)}; each of its last "
            "axes of K_a entries needs a factor (P, K_a), all of the same P"
        )
    batch = x.shape[:first]
    x = x.reshape(batch.numel(), *x.shape[first:])
    # (B, P, K_2, ..., K_D)
    y: Tensor = torch.tensordot(x, factors[0], dims=([1], [1])).movedim(-1, 1)
    for factor in factors[1:]:
        y = torch.einsum("bpk...,pk->bp...", y, factor)
    return y.reshape(*batch, factors[0].shape[0])


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, no TF32 or bfloat16 inside float32 products; what was set is restored.

    Args:
        device: Where the products run.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)

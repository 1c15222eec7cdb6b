"""Shapes: outer products, axes of size one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["outer", "trailing"]


def outer(vectors: Sequence[Tensor]) -> Tensor:
    """The outer product of ``D`` vectors ``(n_a,)``: ``(n_1, ..., n_D)``."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = product[..., None] * vector
    return product


def trailing(x: Tensor, count: int) -> Tensor:
    """``x`` with ``count`` more axes of size one at the end."""
    return x.reshape(*x.shape, *[1] * count)

"""Weighted sums of the rows of a table, the heart of a local fit's predictions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_rows(table: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums of rows of a table ``(N, C)``: indices and weights ``(*batch, T)`` -> ``(*batch, C)``.

    Differentiable in the weights, any number of times. Where no gradient is needed it is one operation.
    """
    if torch.is_grad_enabled() and weights.requires_grad:
        return torch.einsum("...t,...tc->...c", weights, table[index])
    rows, shares = index.flatten(0, -2), weights.flatten(0, -2)
    return F.embedding_bag(rows, table, per_sample_weights=shares, mode="sum").reshape(*index.shape[:-1], -1)

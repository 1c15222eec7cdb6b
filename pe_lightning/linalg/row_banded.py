"""Banded matrices of very many rows in any order, such as the features of a long signal.

:class:`~pe_lightning.linalg.Banded` is for grids: it multiplies slices of large arrays without copies.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import scipy.sparse
import torch
from torch import Tensor

from pe_lightning.linalg.operators import Operator


class RowBanded(Operator):
    """A matrix ``(N, K)`` whose rows, in any order, differ from zero in ``w`` consecutive columns each.

    Products are differentiable with respect to the tensor that is multiplied; on CPUs they are SciPy's. ``values`` ``(N,
    w)`` are
    the entries from the column ``first`` ``(N,)`` of each row on.
    """

    def __init__(self, values: Tensor, first: Tensor, columns: int) -> None:
        self.values, self.first = values, first
        self.shape = (len(first), columns)
        self.dtype, self.device = values.dtype, values.device

    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        product: Tensor = _Product.apply(x.to(self.dtype).movedim(axis, 0), self, False)  # type: ignore[no-untyped-call]
        return product.movedim(0, axis)

    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        product: Tensor = _Product.apply(x.to(self.dtype).movedim(axis, 0), self, True)  # type: ignore[no-untyped-call]
        return product.movedim(0, axis)

    def product(self, x: Tensor, transposed: bool) -> Tensor:
        """The matrix, or its transpose, times the first axis: ``(K, *)`` -> ``(N, *)``; not differentiable."""
        rows = x.reshape(len(x), -1)
        if self.device.type == "cpu" and self.dtype in (torch.float32, torch.float64):
            result = torch.from_numpy(self._sparse[transposed] @ rows.numpy())
        elif transposed:
            terms = (self.values[..., None] * rows[:, None]).flatten(0, 1)
            result = rows.new_zeros(self.shape[1], rows.shape[1]).index_add_(0, self._columns().flatten(), terms)
        else:
            result = (self.values[..., None] * rows[self._columns()]).sum(1)
        return result.reshape(-1, *x.shape[1:])

    def gram(self, bandwidth: int) -> Tensor:
        r"""The lower band of :math:`\Psi^T \Psi` in LAPACK's layout, ``(bandwidth + 1, K)``: entry (d, j) is row j + d."""
        width = self.values.shape[1]
        out = self.values.new_zeros(self.shape[1], max(width, bandwidth + 1))
        count = max(1, (1 << 16) // width)  # rows whose products stay in the cache of a CPU
        for first, values in zip(torch.split(self.first, count), torch.split(self.values, count), strict=True):
            for j in range(width):
                out[:, : width - j].index_add_(0, first + j, values[:, j, None] * values[:, j:])
        return out[:, : bandwidth + 1].T.contiguous()

    def squares(self) -> Tensor:
        """The sum of the squares of all entries."""
        return self.values.square().sum()

    def dense(self) -> Tensor:
        return self.matvec(torch.eye(self.shape[1], dtype=self.dtype, device=self.device), 0)

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> RowBanded:
        device = device or self.device
        return RowBanded(self.values.to(device, dtype), self.first.to(device), self.shape[1])

    def _columns(self, dtype: torch.dtype = torch.int64) -> Tensor:
        return self.first.to(dtype)[:, None] + torch.arange(self.values.shape[1], dtype=dtype, device=self.device)

    @cached_property
    def _sparse(self) -> tuple[scipy.sparse.csr_array, scipy.sparse.csc_array]:
        """The matrix and its transpose."""
        count, width = self.values.shape
        dtype = torch.int32 if max(count * width, self.shape[1]) < 1 << 31 else torch.int64
        ends = width * torch.arange(count + 1, dtype=dtype)
        parts = (self.values.flatten().numpy(), self._columns(dtype).flatten().numpy(), ends.numpy())
        matrix = scipy.sparse.csr_array(parts, shape=self.shape)
        return matrix, matrix.T


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: RowBanded, transposed: bool) -> Tensor:
        ctx.matrix, ctx.transposed = matrix, transposed
        return matrix.product(x, transposed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        product: Tensor = _Product.apply(gradient, ctx.matrix, not ctx.transposed)  # type: ignore[no-untyped-call]
        return product, None, None

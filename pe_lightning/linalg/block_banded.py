"""Banded matrices of very many rows in any order, such as the features of a long signal.

:class:`~pe_lightning.linalg.Banded` is for grids: it multiplies slices of large arrays without copies. With its loop over
bands a long axis is several times slower; with the copies of this class a large grid is.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_lightning.linalg.operators import Operator

BLOCK_COLUMNS = 32
"""Range of columns in which the rows of one block have their largest entry."""
BLOCKS_AT_ONCE = 1 << 10
"""Number of blocks that are computed, or multiplied by themselves, at once."""


class BlockBanded(Operator):
    """A banded matrix ``(N, K)`` stored as blocks of neighbouring rows and columns; its rows may be in any order.

    Products are differentiable with respect to the tensor that is multiplied, and are batched over the blocks.

    Args:
        blocks: ``(B, n, w)``; unused rows are zero.
        first: First column of each block, ``(B,)``.
        slots: Position of each row among the ``B n`` rows of the blocks, ``(N,)``.
        columns: ``K``.
    """

    def __init__(self, blocks: Tensor, first: Tensor, slots: Tensor, columns: int) -> None:
        self.blocks, self.first, self.slots = blocks, first, slots
        self.shape = (len(slots), columns)
        self.dtype, self.device = blocks.dtype, blocks.device

    @classmethod
    def build(
        cls, rows: Callable[[Tensor, Tensor, int], Tensor], position: Tensor, reach: int, columns: int, dtype: torch.dtype
    ) -> BlockBanded:
        """Computes the blocks a few at a time.

        Args:
            rows: Returns entries ``(b, n, w)`` from row numbers ``(b, n)``, first columns ``(b,)`` and ``w``.
            position: Column of the largest entry of each row, ``(N,)``; not necessarily an integer.
            reach: Distance in columns beyond which entries are zero.
            columns: ``K``, at least ``w = 32 + 2 * (reach + 1)``.
            dtype: The dtype of the matrix.
        """
        device, width = position.device, BLOCK_COLUMNS + 2 * (reach + 1)
        cell, order = (position / BLOCK_COLUMNS).long().sort(stable=True)
        # all blocks have as many rows as evenly spread rows would need; crowded ones are split
        size = max(1, -(-len(position) * BLOCK_COLUMNS // columns))
        _, counts = torch.unique_consecutive(cell, return_counts=True)
        rank = torch.arange(len(cell), device=device) - (counts.cumsum(0) - counts).repeat_interleave(counts)
        begins = rank % size == 0
        block = begins.cumsum(0) - 1
        first = (cell[begins] * BLOCK_COLUMNS - reach).clamp(0, columns - width)
        slots = torch.empty_like(order).scatter_(0, order, block * size + rank % size)
        table = order.new_full((len(first) * size,), -1).scatter_(0, slots, torch.arange(len(order), device=device))
        blocks = position.new_empty(len(first), size, width, dtype=dtype)
        for some in torch.split(torch.arange(len(first), device=device), BLOCKS_AT_ONCE):
            numbers = table.view(-1, size)[some]
            entries = rows(numbers.clamp_min(0), first[some], width)
            blocks[some] = entries.masked_fill_((numbers < 0)[..., None], 0).to(dtype)
        return cls(blocks, first, slots, columns)

    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        moved = x.to(self.dtype).movedim(axis, 0)
        windows = moved.reshape(self.shape[1], -1).index_select(0, self._columns().flatten())
        products = torch.bmm(self.blocks, windows.view(len(self.first), self.blocks.shape[2], windows.shape[1]))
        rows = products.flatten(0, 1).index_select(0, self.slots)
        return rows.view(self.shape[0], *moved.shape[1:]).movedim(0, axis)

    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        moved = x.to(self.dtype).movedim(axis, 0)
        rows = moved.reshape(self.shape[0], -1)
        filled = rows.new_zeros(self.blocks.shape[0] * self.blocks.shape[1], rows.shape[1]).index_copy(0, self.slots, rows)
        products = torch.bmm(self.blocks.mT, filled.view(*self.blocks.shape[:2], rows.shape[1])).flatten(0, 1)
        out = rows.new_zeros(self.shape[1], rows.shape[1]).index_add(0, self._columns().flatten(), products)
        return out.view(self.shape[1], *moved.shape[1:]).movedim(0, axis)

    def gram(self, bandwidth: int) -> Tensor:
        r"""The lower band of :math:`\Psi^T \Psi` in LAPACK's layout, ``(bandwidth + 1, K)``: entry (d, j) is row j + d."""
        out = self.blocks.new_zeros(bandwidth + 1, self.shape[1])
        columns = self._columns()
        for some in torch.split(torch.arange(len(self.first), device=self.device), BLOCKS_AT_ONCE):
            products = self.blocks[some].mT @ self.blocks[some]
            for d in range(min(bandwidth + 1, products.shape[1])):
                below = products.diagonal(-d, 1, 2)
                out[d].index_add_(0, columns[some, : below.shape[1]].flatten(), below.flatten())
        return out

    def squares(self) -> Tensor:
        """The sum of the squares of all entries, ``()``."""
        return self.blocks.square().sum()

    def dense(self) -> Tensor:
        return self.matvec(torch.eye(self.shape[1], dtype=self.dtype, device=self.device), 0)

    def to(self, dtype: torch.dtype) -> BlockBanded:
        return BlockBanded(self.blocks.to(dtype), self.first, self.slots, self.shape[1])

    def _columns(self) -> Tensor:
        return self.first[:, None] + torch.arange(self.blocks.shape[2], device=self.device)

"""Feature matrices whose rows differ from zero over a few neighbouring columns: products in small dense blocks.

Rows of neighbouring coordinates see neighbouring shifts, so a block of rows needs one short range of columns. Each block
is an ordinary dense product: no sparse format, so every device, every dtype and the tuned matrix product are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg.mode_products import contraction_order, mode_product

__all__ = ["LOCAL_TOLERANCE", "LocalMatrix", "Matrix", "encode_axis", "products"]

LOCAL_TOLERANCE = 2.0**-30
"""Entries below this share of the largest of their block are left out: 1e-9, far below float32's 6e-8. ``tri``, ``rect``,
``keys``, ``bspline`` and ``impulse`` lose nothing by it, ``gau`` what lies beyond 6.4 sigma."""
MIN_FEATURES = 512
"""Below this the dense routes are as fast: an SVD of 256 columns takes 40 ms on two cores, of 2048 a minute."""
MAX_DENSITY = 0.25
"""A matrix that keeps more of its entries is treated as dense."""


@dataclass(frozen=True)
class Block:
    """The entries ``values`` of the rows and columns from ``row`` and ``column`` on; zero in the other columns."""

    row: int
    column: int
    values: Tensor

    @property
    def rows(self) -> slice:
        """The rows of the block."""
        return slice(self.row, self.row + self.values.shape[0])

    @property
    def columns(self) -> slice:
        """The columns of the block."""
        return slice(self.column, self.column + self.values.shape[1])


class LocalMatrix:
    """A matrix ``(N, K)`` kept as blocks of rows, each with the range of columns where it differs from zero.

    Args:
        blocks: The blocks; together they hold every row once, in order. A block without columns is a block of zeros.
        shape: ``(N, K)``.
    """

    def __init__(self, blocks: Sequence[Block], shape: tuple[int, int]) -> None:
        self.blocks = tuple(blocks)
        self.shape = shape

    @classmethod
    def build(
        cls,
        rows: Callable[[int, int], Tensor],
        shape: tuple[int, int],
        tolerance: float = LOCAL_TOLERANCE,
        max_density: float = 1.0,
        width: int = 64,
    ) -> LocalMatrix | None:
        """Asks for one block of rows after another, so that the dense matrix never exists.

        Args:
            rows: The dense rows from one number to before another, ``(n, K)``.
            shape: ``(N, K)``.
            tolerance: Entries below this share of the largest of their block are left out.
            max_density: Share of the entries above which there is no point in going on.
            width: Shifts that the rows of one block are about apart.

        Returns:
            The matrix, or ``None`` if it keeps more than ``max_density`` of its entries.
        """
        size, features = shape
        step = min(max(32, width * size // max(features, 1)), 512)
        blocks, kept = [], 0
        for start in range(0, size, step):
            dense = rows(start, min(start + step, size))
            magnitude = dense.abs().amax(0)
            # what is not finite is kept, to be refused by whoever factorises
            used = torch.nonzero((magnitude > tolerance * magnitude.amax()) | ~magnitude.isfinite())
            first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            blocks.append(Block(start, first, dense[:, first:last].contiguous()))
            kept += blocks[-1].values.numel()
            if kept > max_density * size * features:
                return None
        return cls(blocks, shape)

    @classmethod
    def from_dense(
        cls, matrix: Tensor, tolerance: float = LOCAL_TOLERANCE, max_density: float = 1.0, width: int = 64
    ) -> LocalMatrix | None:
        """As :meth:`build`, from a matrix ``(N, K)``."""
        return cls.build(lambda i, j: matrix[i:j], (matrix.shape[0], matrix.shape[1]), tolerance, max_density, width)

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
        return self.blocks[0].values.dtype

    @property
    def device(self) -> torch.device:
        """Of the values."""
        return self.blocks[0].values.device

    @property
    def density(self) -> float:
        """Share of the entries that are kept."""
        return sum(block.values.numel() for block in self.blocks) / max(self.shape[0] * self.shape[1], 1)

    def to(self, target: torch.dtype | torch.device) -> LocalMatrix:
        """The same matrix in another dtype or on another device."""
        return LocalMatrix([Block(b.row, b.column, b.values.to(target)) for b in self.blocks], self.shape)

    def rows(self, start: int, stop: int) -> LocalMatrix:
        """The rows from ``start`` to before ``stop``, sharing memory."""
        parts = []
        for block in self.blocks:
            first, last = max(start, block.row), min(stop, block.row + len(block.values))
            if first < last:
                values = block.values[first - block.row : last - block.row]
                parts.append(Block(first - start, block.column, values))
        return LocalMatrix(parts or [Block(0, 0, self.blocks[0].values[:0, :0])], (stop - start, self.shape[1]))

    def trimmed(self) -> tuple[int, LocalMatrix]:
        """Without the columns before the first and after the last used one: the number of the former, and the rest."""
        used = [block for block in self.blocks if block.values.shape[1]]
        first = min((block.column for block in used), default=0)
        last = max((block.columns.stop for block in used), default=0)
        blocks = [Block(b.row, b.column - first if b.values.shape[1] else 0, b.values) for b in self.blocks]
        return first, LocalMatrix(blocks, (self.shape[0], last - first))

    def dense(self) -> Tensor:
        """The whole matrix ``(N, K)``."""
        matrix = self.blocks[0].values.new_zeros(self.shape)
        for block in self.blocks:
            matrix[block.rows, block.columns] = block.values
        return matrix

    def gram(self) -> Tensor:
        r""":math:`\Psi^T \Psi`, ``(K, K)``."""
        gram = self.blocks[0].values.new_zeros(self.shape[1], self.shape[1])
        for block in self.blocks:
            gram[block.columns, block.columns].addmm_(block.values.T, block.values)
        return gram

    def squares(self) -> Tensor:
        """The sum of squares of all entries."""
        return torch.stack([block.values.square().sum() for block in self.blocks]).sum()

    def product(self, x: Tensor, axis: int) -> Tensor:
        """Multiplies the matrix into one axis of ``x``: ``(..., K, ...)`` -> ``(..., N, ...)``, in the matrix's dtype.

        Not differentiable: each block is written to its place in the result.
        """
        axis = self._checked(x, axis, self.shape[1])
        lead, trail = x.shape[:axis], x.shape[axis + 1 :]
        out = x.new_empty((*lead, self.shape[0], *trail), dtype=self.dtype)
        if axis == x.ndim - 1:
            rows, made = x.reshape(-1, self.shape[1]), out.view(-1, self.shape[0])
            for block in self.blocks:
                torch.mm(rows[:, block.columns].to(self.dtype), block.values.T, out=made[:, block.rows])
            return out
        flat = x.reshape(lead.numel(), self.shape[1], trail.numel())
        made = out.view(lead.numel(), self.shape[0], trail.numel())
        for block in self.blocks:
            values = block.values.expand(len(flat), -1, -1)
            torch.bmm(values, flat[:, block.columns].to(self.dtype), out=made[:, block.rows])
        return out

    def transposed_product(self, x: Tensor, axis: int) -> Tensor:
        """Multiplies the transposed matrix into one axis: ``(..., N, ...)`` -> ``(..., K, ...)``."""
        axis = self._checked(x, axis, self.shape[0])
        out = x.new_zeros((*x.shape[:axis], self.shape[1], *x.shape[axis + 1 :]), dtype=self.dtype)
        for block in self.blocks:
            part = x.narrow(axis, block.row, len(block.values)).to(self.dtype)
            out.narrow(axis, block.column, block.values.shape[1]).add_(mode_product(part, block.values.T, axis))
        return out

    def _checked(self, x: Tensor, axis: int, size: int) -> int:
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != size:
            raise InputError(f"a local matrix {self.shape} needs {size} entries in axis {axis} of {tuple(x.shape)}")
        return axis % x.ndim


Matrix = Tensor | LocalMatrix
"""The features of one axis, ``(N, K)``."""


def encode_axis(encode: Callable[[Tensor], Tensor], x: Tensor, compact: bool = True) -> Matrix:
    """The raw features of one axis in float64, as a local matrix where that is the faster form.

    Args:
        encode: An encoder of one axis, ``(n,)`` -> ``(n, K)``.
        x: Coordinates, ``(N,)``.
        compact: Whether to look for a local matrix at all; the alternative is always dense.

    Returns:
        ``(N, K)``, float64.
    """
    with torch.no_grad():
        x = x.to(torch.float64)
        shape = len(x), encode(x[:1]).shape[-1]
        local = None
        if compact and shape[1] >= MIN_FEATURES:
            local = LocalMatrix.build(lambda i, j: encode(x[i:j]), shape, max_density=MAX_DENSITY)
        return encode(x) if local is None else local


def products(x: Tensor, matrices: Sequence[Matrix]) -> Tensor:
    """:func:`~pe_lightning.linalg.mode_products` for matrices that may be local, in the dtype of ``x``.

    Args:
        x: ``(*batch, K_1, ..., K_D)``.
        matrices: ``D`` matrices, ``(N_a, K_a)``.

    Returns:
        ``(*batch, N_1, ..., N_D)``.
    """
    first = x.ndim - len(matrices)
    if first < 0:
        raise InputError(f"products: {len(matrices)} matrices for a tensor of shape {tuple(x.shape)}")
    for axis in contraction_order(x.shape[first:], [matrix.shape[0] for matrix in matrices]):
        matrix = matrices[axis].to(x.dtype)
        place = first + axis
        x = matrix.product(x, place) if isinstance(matrix, LocalMatrix) else mode_product(x, matrix, place)
    return x

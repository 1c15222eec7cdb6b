"""Matrices that multiply one axis of a tensor: dense ones, and banded ones stored as small dense blocks.

Rows of neighbouring coordinates see neighbouring shifts, so a few rows of local features need one short range of columns.
Each band is an ordinary dense product: no sparse format, so every device, every dtype and the tuned matrix product serve.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg.products import mode_product

__all__ = ["Band", "Banded", "Dense", "Operator", "as_operator", "encode_axis"]

TOLERANCE = 2.0**-30
"""Entries below this share of the largest of their band are left out: 1e-9, far below float32's 6e-8. ``tri``, ``rect``,
``keys``, ``bspline`` and ``impulse`` lose nothing by it, ``gau`` what lies beyond 6.4 sigma."""
MIN_FEATURES = 512
"""Below this the dense routes are as fast: an SVD of 256 columns takes 40 ms on two cores, of 2048 a minute."""
MAX_DENSITY = 0.25
"""A matrix that stores more of its entries is treated as dense."""


class Operator(ABC):
    """A matrix ``(N, K)``, however it is stored."""

    shape: tuple[int, int]
    """``(N, K)``."""

    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def mv(self, x: Tensor, axis: int = -1) -> Tensor:
        """Multiplies the matrix into one axis of ``x``: ``(..., K, ...)`` -> ``(..., N, ...)``, in the matrix's dtype."""

    @abstractmethod
    def rmv(self, x: Tensor, axis: int = -1) -> Tensor:
        """Multiplies the transposed matrix into one axis: ``(..., N, ...)`` -> ``(..., K, ...)``."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The whole matrix, ``(N, K)``."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Operator:
        """The rows from ``start`` to before ``stop``, sharing memory."""

    @abstractmethod
    def to(self, target: torch.dtype | torch.device) -> Operator:
        """The same matrix in another dtype or on another device."""

    def squares(self) -> Tensor:
        """The sum of squares of all entries, ``()``."""
        return self.dense().square().sum()

    def trimmed(self) -> tuple[int, Operator]:
        """Without the columns before the first and after the last stored one: the number of the former, and the rest."""
        return 0, self


class Dense(Operator):
    """A matrix stored as a tensor.

    Args:
        values: ``(N, K)``.
    """

    def __init__(self, values: Tensor) -> None:
        if values.ndim != 2:
            raise InputError(f"a matrix has the shape (N, K); got {tuple(values.shape)}, {values.dtype}")
        self.values = values
        self.shape = (values.shape[0], values.shape[1])
        self.dtype, self.device = values.dtype, values.device

    def mv(self, x: Tensor, axis: int = -1) -> Tensor:
        """One product."""
        return mode_product(x.to(self.dtype), self.values, axis)

    def rmv(self, x: Tensor, axis: int = -1) -> Tensor:
        """One product."""
        return mode_product(x.to(self.dtype), self.values.T, axis)

    def dense(self) -> Tensor:
        """The tensor itself."""
        return self.values

    def rows(self, start: int, stop: int) -> Dense:
        """A view."""
        return Dense(self.values[start:stop])

    def to(self, target: torch.dtype | torch.device) -> Dense:
        """Itself, where nothing changes."""
        values = self.values.to(target)
        return self if values is self.values else Dense(values)


class Band(NamedTuple):
    """The entries ``values`` of the rows and columns from ``row`` and ``column`` on; zero in the other columns."""

    row: int
    column: int
    values: Tensor

    @property
    def rows(self) -> slice:
        """The rows of the band."""
        return slice(self.row, self.row + self.values.shape[0])

    @property
    def columns(self) -> slice:
        """The columns that are stored."""
        return slice(self.column, self.column + self.values.shape[1])


class Banded(Operator):
    """A matrix stored as bands of rows, each with the range of columns where it differs from zero.

    Args:
        bands: Together they hold every row once, in order. A band without columns is a band of zeros.
        shape: ``(N, K)``.
    """

    def __init__(self, bands: Sequence[Band], shape: tuple[int, int]) -> None:
        self.bands = tuple(bands)
        self.shape = shape
        self.dtype, self.device = bands[0].values.dtype, bands[0].values.device

    @classmethod
    def build(
        cls,
        rows: Callable[[int, int], Tensor],
        shape: tuple[int, int],
        tolerance: float = TOLERANCE,
        max_density: float = 1.0,
        width: int = 64,
    ) -> Banded | None:
        """Asks for one band of rows after another, so that the dense matrix never exists.

        Args:
            rows: The dense rows from one number to before another, ``(n, K)``.
            shape: ``(N, K)``.
            tolerance: Entries below this share of the largest of their band are left out.
            max_density: Share of the entries above which there is no point in going on.
            width: Shifts that the rows of one band are about apart.

        Returns:
            The matrix, or ``None`` if it would store more than ``max_density`` of its entries.
        """
        size, features = shape
        step = min(max(32, width * size // max(features, 1)), 512)
        bands, stored = [], 0
        for start in range(0, size, step):
            dense = rows(start, min(start + step, size))
            magnitude = dense.abs().amax(0)
            # what is not finite is stored, to be refused by the factorisation
            used = torch.nonzero((magnitude > tolerance * magnitude.amax()) | ~magnitude.isfinite())
            first, last = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            bands.append(Band(start, first, dense[:, first:last].contiguous()))
            stored += bands[-1].values.numel()
            if stored > max_density * size * features:
                return None
        return cls(bands, shape)

    @classmethod
    def from_dense(
        cls, matrix: Tensor, tolerance: float = TOLERANCE, max_density: float = 1.0, width: int = 64
    ) -> Banded | None:
        """As :meth:`build`, from a matrix ``(N, K)``."""
        return cls.build(lambda i, j: matrix[i:j], (matrix.shape[0], matrix.shape[1]), tolerance, max_density, width)

    @property
    def density(self) -> float:
        """Share of the entries that are stored."""
        return sum(band.values.numel() for band in self.bands) / max(self.shape[0] * self.shape[1], 1)

    def mv(self, x: Tensor, axis: int = -1) -> Tensor:
        """One product per band. Not differentiable: each is written to its place in the result."""
        axis = self._checked(x, axis, self.shape[1])
        lead, trail = x.shape[:axis], x.shape[axis + 1 :]
        out = x.new_empty((*lead, self.shape[0], *trail), dtype=self.dtype)
        if axis == x.ndim - 1:
            rows, made = x.reshape(-1, self.shape[1]), out.view(-1, self.shape[0])
            for band in self.bands:
                torch.mm(rows[:, band.columns].to(self.dtype), band.values.T, out=made[:, band.rows])
            return out
        flat = x.reshape(lead.numel(), self.shape[1], trail.numel())
        made = out.view(lead.numel(), self.shape[0], trail.numel())
        for band in self.bands:
            values = band.values.expand(len(flat), -1, -1)
            torch.bmm(values, flat[:, band.columns].to(self.dtype), out=made[:, band.rows])
        return out

    def rmv(self, x: Tensor, axis: int = -1) -> Tensor:
        """One product per band, added to the columns of the band."""
        axis = self._checked(x, axis, self.shape[0])
        out = x.new_zeros((*x.shape[:axis], self.shape[1], *x.shape[axis + 1 :]), dtype=self.dtype)
        for band in self.bands:
            part = x.narrow(axis, band.row, len(band.values)).to(self.dtype)
            out.narrow(axis, band.column, band.values.shape[1]).add_(mode_product(part, band.values.T, axis))
        return out

    def dense(self) -> Tensor:
        """With zeros where nothing is stored."""
        matrix = self.bands[0].values.new_zeros(self.shape)
        for band in self.bands:
            matrix[band.rows, band.columns] = band.values
        return matrix

    def gram(self) -> Tensor:
        r""":math:`\Psi^T \Psi`, ``(K, K)``."""
        gram = self.bands[0].values.new_zeros(self.shape[1], self.shape[1])
        for band in self.bands:
            gram[band.columns, band.columns].addmm_(band.values.T, band.values)
        return gram

    def squares(self) -> Tensor:
        """From the stored entries."""
        return torch.stack([band.values.square().sum() for band in self.bands]).sum()

    def rows(self, start: int, stop: int) -> Banded:
        """Parts of the bands."""
        parts = []
        for band in self.bands:
            first, last = max(start, band.row), min(stop, band.row + len(band.values))
            if first < last:
                parts.append(Band(first - start, band.column, band.values[first - band.row : last - band.row]))
        return Banded(parts or [Band(0, 0, self.bands[0].values[:0, :0])], (stop - start, self.shape[1]))

    def to(self, target: torch.dtype | torch.device) -> Banded:
        """Band by band."""
        return Banded([Band(row, column, values.to(target)) for row, column, values in self.bands], self.shape)

    def trimmed(self) -> tuple[int, Banded]:
        """Without the columns that no band stores at both ends."""
        used = [band.columns for band in self.bands if band.values.shape[1]]
        first = min((columns.start for columns in used), default=0)
        last = max((columns.stop for columns in used), default=0)
        bands = [Band(b.row, b.column - first if b.values.shape[1] else 0, b.values) for b in self.bands]
        return first, Banded(bands, (self.shape[0], last - first))

    def _checked(self, x: Tensor, axis: int, size: int) -> int:
        if not -x.ndim <= axis < x.ndim or x.shape[axis] != size:
            raise InputError(f"a banded matrix {self.shape} needs {size} entries in axis {axis} of {tuple(x.shape)}")
        return axis % x.ndim


def as_operator(matrix: Tensor | Operator) -> Operator:
    """``matrix`` itself, or the operator of a tensor ``(N, K)``."""
    return Dense(matrix) if isinstance(matrix, Tensor) else matrix


def encode_axis(encode: Callable[[Tensor], Tensor], x: Tensor, compact: bool = True) -> Operator:
    """The raw features of one axis in float64, banded where that is the faster form.

    Args:
        encode: An encoder of one axis, ``(n,)`` -> ``(n, K)``.
        x: Coordinates, ``(N,)``.
        compact: Whether to look for a banded matrix at all; the alternative is always dense.

    Returns:
        ``(N, K)``, float64.
    """
    with torch.no_grad():
        x = x.to(torch.float64)
        shape = len(x), encode(x[:1]).shape[-1]
        if compact and shape[1] >= MIN_FEATURES:
            banded = Banded.build(lambda i, j: encode(x[i:j]), shape, max_density=MAX_DENSITY)
            if banded is not None:
                return banded
        return Dense(encode(x))

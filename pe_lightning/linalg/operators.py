r"""Matrices that multiply one axis of a tensor, dense or banded, and products along several axes.

With row-major flattening, ``mode_products(w, [A, B]).flatten() == torch.kron(A, B) @ w.flatten()``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from typing_extensions import Self

Call: TypeAlias = tuple[Callable[..., Tensor], tuple[Tensor, ...], Tensor]
"""A function of PyTorch, its inputs, and the tensor for its ``out``."""

TOLERANCE = 2.0**-30
"""Entries below this share of the largest entry of their band are not stored; the rounding of float32 is 2**-24."""
MIN_FEATURES = 512
"""Fewest features of a banded matrix; dense ones are as fast below."""
MAX_DENSITY = 0.25
"""Largest share of stored entries of a banded matrix; a dense matrix is as fast above."""


class LinearMap(Protocol):
    """Multiplies the last axis of tensors by a matrix ``(N, K)``, or by one per signal."""

    def matvec(self, x: Tensor) -> Tensor:
        """``(..., K)`` -> ``(..., N)``."""

    def rmatvec(self, x: Tensor) -> Tensor:
        """By the transposed matrix: ``(..., N)`` -> ``(..., K)``."""


class Operator(ABC):
    """A matrix ``(N, K)`` that multiplies one axis of a tensor."""

    shape: tuple[int, int]
    dtype: torch.dtype
    device: torch.device

    @abstractmethod
    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        """The matrix times one axis of ``x``: ``(..., K, ...)`` -> ``(..., N, ...)``, in the matrix's dtype."""

    @abstractmethod
    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        """The transposed matrix times one axis: ``(..., N, ...)`` -> ``(..., K, ...)``."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The whole matrix, ``(N, K)``."""

    @abstractmethod
    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> Self:
        """The same matrix in another dtype, and on another device if one is given."""


class GridOperator(Operator):
    """A matrix with one row per sample of a grid, in order: a block of the grid uses a range of rows."""

    @abstractmethod
    def rows(self, start: int, stop: int) -> Self:
        """The rows from ``start`` to before ``stop``, sharing memory."""

    def trimmed(self) -> tuple[int, Self]:
        """The first stored column, and the matrix without the columns at both ends that are not stored."""
        return 0, self


class Dense(GridOperator):
    """A matrix stored as a tensor ``(N, K)``."""

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self.shape = (values.shape[0], values.shape[1])
        self.dtype, self.device = values.dtype, values.device

    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        return mode_product(x.to(self.dtype), self.values, axis)

    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        return mode_product(x.to(self.dtype), self.values.T, axis)

    def dense(self) -> Tensor:
        return self.values

    def rows(self, start: int, stop: int) -> Dense:
        return Dense(self.values[start:stop])

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> Dense:
        return Dense(self.values.to(device or self.device, dtype))


class Identity(GridOperator):
    """The rows of the identity matrix from ``start`` on, ``(N, K)``: weights that are the samples themselves."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, device: torch.device, start: int = 0) -> None:
        self.shape, self.dtype, self.device, self.start = shape, dtype, device, start

    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        return x.narrow(axis, self.start, self.shape[0]).to(self.dtype, copy=True)

    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        if self.shape[0] == self.shape[1]:
            return x.to(self.dtype, copy=True)
        axis %= x.ndim
        out = x.new_zeros((*x.shape[:axis], self.shape[1], *x.shape[axis + 1 :]), dtype=self.dtype)
        out.narrow(axis, self.start, self.shape[0]).copy_(x)
        return out

    def dense(self) -> Tensor:
        return torch.eye(self.shape[1], dtype=self.dtype, device=self.device)[self.start : self.start + self.shape[0]]

    def rows(self, start: int, stop: int) -> Identity:
        return Identity((stop - start, self.shape[1]), self.dtype, self.device, self.start + start)

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> Identity:
        return Identity(self.shape, dtype, device or self.device, self.start)

    def trimmed(self) -> tuple[int, Identity]:
        return self.start, Identity((self.shape[0], self.shape[0]), self.dtype, self.device)


class Band(NamedTuple):
    """Entries of consecutive rows, from ``row`` and ``column`` on; other entries are zero."""

    row: int
    column: int
    values: Tensor

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.values.shape[0])

    @property
    def columns(self) -> slice:
        return slice(self.column, self.column + self.values.shape[1])


class Banded(GridOperator):
    """A matrix ``(N, K)`` stored as bands of consecutive rows, each with the range of columns where it differs from zero.

    The bands have all rows, each once and in order; a band without columns is zero.
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
        """Builds the matrix one band after another; the dense matrix is never in memory.

        ``rows`` returns the dense rows from a first to before a last number, and ``width`` is about how many columns the
        rows of a
        band span. Entries below ``tolerance`` times the largest of their band are not stored. ``None`` if more than a share
        ``max_density`` of the entries would be stored.
        """
        size, features = shape
        step = min(max(min(width, 32), width * size // max(features, 1)), 512)
        bands, stored = [], 0
        for start in range(0, size, step):
            dense = rows(start, min(start + step, size))
            magnitude = dense.abs().amax(0)
            # entries that are not finite are stored: the factorisation refuses them
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
        """:meth:`build` from a dense matrix ``(N, K)``."""
        return cls.build(lambda i, j: matrix[i:j], (matrix.shape[0], matrix.shape[1]), tolerance, max_density, width)

    def matvec(self, x: Tensor, axis: int = -1) -> Tensor:
        """As in the base class, one product per band; not differentiable."""
        axis %= x.ndim
        out = x.new_empty((*x.shape[:axis], self.shape[0], *x.shape[axis + 1 :]), dtype=self.dtype)
        for function, inputs, result in mode_product_calls(x.to(self.dtype).contiguous(), self, axis, out):
            function(*inputs, out=result)
        return out

    def rmatvec(self, x: Tensor, axis: int = -1) -> Tensor:
        axis %= x.ndim
        out = x.new_zeros((*x.shape[:axis], self.shape[1], *x.shape[axis + 1 :]), dtype=self.dtype)
        for band in self.bands:
            part = x.narrow(axis, band.row, len(band.values)).to(self.dtype)
            out.narrow(axis, band.column, band.values.shape[1]).add_(mode_product(part, band.values.T, axis))
        return out

    def dense(self) -> Tensor:
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

    def rows(self, start: int, stop: int) -> Banded:
        parts = []
        for band in self.bands:
            first, last = max(start, band.row), min(stop, band.row + len(band.values))
            if first < last:
                parts.append(Band(first - start, band.column, band.values[first - band.row : last - band.row]))
        return Banded(parts or [Band(0, 0, self.bands[0].values[:0, :0])], (stop - start, self.shape[1]))

    def to(self, dtype: torch.dtype, device: torch.device | None = None) -> Banded:
        bands = [Band(row, column, values.to(device or self.device, dtype)) for row, column, values in self.bands]
        return Banded(bands, self.shape)

    def trimmed(self) -> tuple[int, Banded]:
        used = [band.columns for band in self.bands if band.values.shape[1]]
        first = min((columns.start for columns in used), default=0)
        last = max((columns.stop for columns in used), default=0)
        bands = [Band(b.row, b.column - first if b.values.shape[1] else 0, b.values) for b in self.bands]
        return first, Banded(bands, (self.shape[0], last - first))


def as_operator(matrix: Tensor | Operator) -> Operator:
    """:class:`Dense` of a tensor ``(N, K)``."""
    return Dense(matrix) if isinstance(matrix, Tensor) else matrix


def encode_axis(encode: Callable[[Tensor], Tensor], x: Tensor, compact: bool = True) -> Operator:
    """The raw features ``(N, K)`` of one axis in float64, banded where that is the faster form, or the identity.

    Kernels that interpolate, such as ``tri`` and ``keys``, with shifts at the samples have the identity matrix, to the
    rounding of the coordinates ``(N,)``. Without ``compact`` the features are dense.
    """
    with torch.no_grad():
        rounding, x = torch.finfo(x.dtype).eps, x.to(torch.float64)
        shape = len(x), encode(x[:1]).shape[-1]
        matrix: GridOperator | None = None
        if compact and shape[1] >= MIN_FEATURES:
            matrix = Banded.build(lambda i, j: encode(x[i:j]), shape, max_density=MAX_DENSITY)
        matrix = matrix or Dense(encode(x))
        if compact and shape[0] == shape[1]:
            probe = torch.rand(len(x), generator=torch.Generator().manual_seed(0), dtype=x.dtype).to(x.device)
            tolerance = max(TOLERANCE, 2 * shape[1] * rounding)  # coordinates in units of the spacing have that error
            if bool(((matrix.matvec(probe) - probe).abs() <= tolerance).all()):
                return Identity(shape, x.dtype, x.device)
        return matrix


def mode_product(x: Tensor, matrix: Tensor | Operator, axis: int) -> Tensor:
    """Multiplies ``matrix``, ``(N, K)``, into one axis of ``x``: ``(..., K, ...)`` -> ``(..., N, ...)``."""
    if not isinstance(matrix, Tensor):
        return matrix.matvec(x, axis)
    axis %= x.ndim
    if axis == x.ndim - 1:
        return x @ matrix.T
    lead, trail = x.shape[:axis], x.shape[axis + 1 :]
    # a batched product of (batch, K, rest) needs no transposed copy of x
    product = matrix @ x.reshape(lead.numel(), x.shape[axis], trail.numel())
    return product.reshape(*lead, matrix.shape[0], *trail)


def mode_product_calls(x: Tensor, matrix: Tensor | Banded, axis: int, out: Tensor) -> list[Call]:
    """The calls that write the product of a matrix and an axis of ``x`` to ``out``, both contiguous.

    Repeated calls allocate nothing and read what is then in ``x``. A tensor is the matrix ``(N, K)``, or its diagonal
    ``(K,)``.
    """
    trailing = (1,) * (x.ndim - 1 - axis)
    if isinstance(matrix, Tensor) and matrix.ndim == 1:
        return [(torch.mul, (x, matrix.reshape(-1, *trailing)), out)]
    bands = matrix.bands if isinstance(matrix, Banded) else (Band(0, 0, matrix),)
    lead, trail = x.shape[:axis].numel(), x.shape[axis + 1 :].numel()
    if axis == x.ndim - 1:
        rows, result = x.view(lead, x.shape[axis]), out.view(lead, out.shape[axis])
        return [(torch.mm, (rows[:, band.columns], band.values.T), result[:, band.rows]) for band in bands]
    # a batched product of (batch, K, rest) needs no transposed copy of x
    rows, result = (tensor.view(lead, tensor.shape[axis], trail) for tensor in (x, out))
    return [(torch.bmm, (band.values.expand(lead, -1, -1), rows[:, band.columns]), result[:, band.rows]) for band in bands]


def contraction_order(sizes_in: Sequence[int], sizes_out: Sequence[int]) -> tuple[int, ...]:
    """The order of the axes in which mode products from ``K_a`` to ``N_a`` entries take the fewest multiplications.

    Of equally cheap orders, the one with the last axes first: products along the last axis need no copies.
    """
    # with V entries, axis a before axis b costs V N_a + V (N_a/K_a) N_b: a comes first if 1/K_a - 1/N_a < 1/K_b - 1/N_b
    keys = [1 / max(k, 1) - 1 / max(n, 1) for k, n in zip(sizes_in, sizes_out, strict=True)]
    return tuple(sorted(reversed(range(len(keys))), key=keys.__getitem__))


def mode_products(x: Tensor, matrices: Sequence[Tensor | Operator]) -> Tensor:
    """Multiplies matrices ``(N_a, K_a)`` into the last ``D`` axes of ``x`` in the cheapest order.

    ``(*batch, K_1, ..., K_D)`` -> ``(*batch, N_1, ..., N_D)``.
    """
    first = x.ndim - len(matrices)
    for axis in contraction_order(x.shape[first:], [matrix.shape[0] for matrix in matrices]):
        x = mode_product(x, matrices[axis], first + axis)
    return x


def rowwise_products(x: Tensor, factors: Sequence[Tensor]) -> Tensor:
    r"""Evaluates :math:`y_p = \sum_{k_1 \dots k_D} w_{k_1 \dots k_D} \prod_a \psi_{a,p,k_a}` for every point ``p``.

    From ``(*batch, K_1, ..., K_D)`` and factors ``(P, K_a)`` to ``(*batch, P)``: one matrix product for the first axis,
    then a
    weighted sum per remaining axis.
    """
    first = x.ndim - len(factors)
    batch = x.shape[:first]
    x = x.reshape(batch.numel(), *x.shape[first:])
    # (B, P, K_2, ..., K_D)
    y: Tensor = torch.tensordot(x, factors[0], dims=([1], [1])).movedim(-1, 1)
    for factor in factors[1:]:
        y = torch.einsum("bpk...,pk->bp...", y, factor)
    return y.reshape(*batch, factors[0].shape[0])


def without_autocast(device: torch.device) -> AbstractContextManager[None]:
    """Disables autocast; where it is off, entering and leaving cost nothing."""
    # before PyTorch 2.12 a program cannot be compiled that asks whether there is autocast
    available = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device.type)
    enabled = available and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Disables gradients, autocast, and reduced precision (TF32, bfloat16) of float32 products."""
    if torch.get_float32_matmul_precision() == "highest" and isinstance(without_autocast(device), nullcontext):
        return torch.no_grad()  # entering the other modes takes longer than a small product
    return _full_precision(device)


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), without_autocast(device):
            yield
    finally:
        torch.set_float32_matmul_precision(before)

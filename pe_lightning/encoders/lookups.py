"""Weighted sums of rows of a trained table: gathered, or as products with sparse matrices that are made once.

An encoder of one's own is trained as fast as ``hash`` if it is a :class:`TableEncoder`:

>>> import torch
>>> from pe_lightning.encoders import TableEncoder
>>> class Nearest(TableEncoder):
...     def __init__(self, num_features: int = 4, num_rows: int = 8) -> None:
...         super().__init__(num_features)
...         self.table = torch.nn.Parameter(torch.zeros(num_rows, num_features))
...     def lookup(self, x: torch.Tensor) -> list[Lookup]:
...         rows = (x * len(self.table)).long().clamp(0, len(self.table) - 1)[None, ..., None]  # one term, one lookup
...         return [Lookup(rows, torch.ones_like(rows, dtype=x.dtype), (len(self.table),))]
...     def from_lookup(self, lookups) -> torch.Tensor:
...         return lookups[0].sums(self.table).squeeze(-2)
>>> Nearest()(torch.rand(5)).shape
torch.Size([5, 4])
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pe_lightning.encoders.base import Encoder
from pe_lightning.linalg import without_autocast

MAX_VALUES_AT_ONCE = 1 << 20
"""Numbers that a CPU gathers by one operation; more are gathered term by term, so that they stay in its cache.

Measured with ``hash``, where it is 8,192 points in two dimensions and 4,096 in three: half of it takes 0.75 of the time of
single terms, four times as much takes 1.2 to 1.4 times as long. A GPU gathers all at once: it is limited by launches.
"""

POINTS_AT_ONCE = 1 << 14
"""Points whose lookups are found at a time, before they are packed."""


def at_once(count: int, device: torch.device) -> bool:
    """Whether so many numbers are gathered by one operation; a compiled program, which takes any number, always does."""
    return device.type != "cpu" or torch.compiler.is_compiling() or count <= MAX_VALUES_AT_ONCE


class Lookup(NamedTuple):
    """Rows of a table and their shares, both ``(terms, *batch, lookups)``; depends on coordinates alone."""

    rows: Tensor
    """Row of each term, int64."""
    shares: Tensor
    """Factor of each term, in the dtype of the result."""
    sizes: tuple[int, ...]
    """Number of rows for each of the lookups, one after another; together the table."""

    def sums(self, table: Tensor) -> Tensor:
        """The sums of the terms, ``(rows, F)`` -> ``(*batch, lookups, F)``; differentiable with respect to coordinates."""
        table = table.to(self.shares.dtype)

        def terms(rows: Tensor, shares: Tensor) -> Tensor:
            # index_select has a faster backward pass than table[rows]
            return shares[..., None] * table.index_select(0, rows.flatten()).reshape(*rows.shape, table.shape[-1])

        if at_once(self.rows.numel() * table.shape[-1], table.device):
            return terms(self.rows, self.shares).sum(0)
        sums, *others = map(terms, self.rows.unbind(), self.shares.unbind())
        for term in others:
            sums = sums + term
        return sums

    def each(self, table: Tensor) -> Sequence[Tensor]:
        """As :meth:`sums`, one tensor ``(*batch, F)`` for each lookup."""
        if at_once(self.rows.numel() * table.shape[-1], table.device):
            return self.sums(table).unbind(-2)
        # of its own rows alone, as the gradient of a gather is as large as the table
        first = [sum(self.sizes[:number]) for number in range(len(self.sizes))]
        every = zip(
            self.rows.unbind(-1),
            first,
            self.shares.unbind(-1),
            self.sizes,
            torch.split(table, list(self.sizes)),
            strict=True,
        )
        return [Lookup(rows - start, shares, (size,)).sums(own) for rows, start, shares, size, own in every]


class SparseMatrix(NamedTuple):
    """A sparse matrix by rows (CSR), whose rows may have a column twice; one array of a stack per signal."""

    starts: Tensor
    """Position of the first entry of each row, and the number of entries, ``(rows + 1,)`` int32."""
    columns: Tensor
    """Column of each entry, ``(entries,)`` int32."""
    values: Tensor
    """Entries, ``(*batch, entries per row)`` if these are as many in each row."""

    def times(self, dense: Tensor) -> Tensor:
        """The product with a matrix ``(columns, F)``: ``(rows, F)``."""
        shape = len(self.starts) - 1, len(dense)
        parts = self.starts, self.columns, self.values.flatten()
        # half precision would round shares, and has no such product on CPUs
        with without_autocast(dense.device):
            return torch.mm(torch.sparse_csr_tensor(*parts, shape, check_invariants=False), dense)


class SparseLookup(NamedTuple):
    """A :class:`Lookup` of points as a sparse matrix, for many steps at the same coordinates.

    Equals :meth:`Lookup.sums` to a few units of rounding: some processors fuse multiplications with additions. The gradient
    of the table is a product with the transposed matrix, without atomic additions. There is no gradient with respect to
    coordinates, and no second derivative.
    """

    matrix: SparseMatrix
    transposed: SparseMatrix

    @classmethod
    def join(cls, parts: Sequence[Lookup]) -> SparseLookup:
        """The lookup of the points of several, whose last axis is that of the terms: ``(points, ..., lookups, terms)``."""
        rows, shares = torch.cat([part.rows for part in parts]), torch.cat([part.shares for part in parts])
        terms, device = shares.shape[-1], shares.device
        starts = torch.arange(0, shares.numel() + 1, terms, dtype=torch.int32, device=device)
        ordered, order = rows.flatten().sort(stable=True)
        row_starts = torch.searchsorted(ordered, torch.arange(sum(parts[0].sizes) + 1, device=device).int(), out_int32=True)
        transposed = SparseMatrix(row_starts, (order // terms).int(), shares.flatten()[order])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # said once, by the first product
            transposed.times(shares.new_zeros(len(starts) - 1, 1))
        return cls(SparseMatrix(starts, rows.flatten(), shares), transposed)

    def sums(self, table: Tensor) -> Tensor:
        """As :meth:`Lookup.sums`."""
        sums: Tensor = _Product.apply(table.to(self.matrix.values.dtype), *self.matrix, *self.transposed)  # type: ignore[no-untyped-call]
        return sums

    def each(self, table: Tensor) -> Sequence[Tensor]:
        """As :meth:`Lookup.each`."""
        return self.sums(table).unbind(-2)


class TableEncoder(Encoder):
    """Base of encoders whose features follow from rows of a trained table.

    The rows depend on coordinates alone: a fit looks them up once where it has the same samples in every step.
    """

    @abstractmethod
    def lookup(self, x: Tensor) -> Sequence[Lookup]:
        """Rows of the table that the features at coordinates follow from."""

    @abstractmethod
    def from_lookup(self, lookups: Sequence[Lookup | SparseLookup]) -> Tensor:
        """The features ``(*batch, num_features)`` from what :meth:`lookup` returned."""

    def forward(self, x: Tensor) -> Tensor:
        return self.from_lookup(self.lookup(x)).to(x.dtype)

    def register_constants(self, **constants: Tensor) -> None:
        """Registers integers that follow from the arguments as buffers, which all signals share and no checkpoint holds."""
        for name, tensor in constants.items():
            self.register_buffer(name, tensor, persistent=False)


@torch.no_grad()
def sparse_lookups(lookups: Callable[[Tensor], Sequence[Sequence[Lookup]]], points: Tensor) -> list[list[SparseLookup]]:
    """The lookups of many points ``(P, D)``, found for some of them at a time, as matrices."""
    parts = [[list(map(_packed, some)) for some in lookups(block)] for block in torch.split(points, POINTS_AT_ONCE)]
    return [[SparseLookup.join(same) for same in zip(*some, strict=True)] for some in zip(*parts, strict=True)]


def _packed(lookup: Lookup) -> Lookup:
    """The same with adjacent terms, in less memory."""
    return Lookup(lookup.rows.movedim(0, -1).int(), lookup.shares.movedim(0, -1).contiguous(), lookup.sizes)


class _Product(torch.autograd.Function):
    """Rows of ``matrix @ table`` in the shape of the points; under vmap one product for all tables that share the matrix."""

    @staticmethod
    def forward(table: Tensor, *parts: Tensor) -> Tensor:
        matrix = SparseMatrix(*parts[:3])
        return matrix.times(table).reshape(*matrix.values.shape[:-1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[4:])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return SparseMatrix(*ctx.saved_tensors).times(gradient.flatten(0, -2)), *[None] * 6

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], table: Tensor, *parts: Tensor) -> tuple[Tensor, int]:
        if all(dim is None for dim in in_dims[1:]):
            wide = table.movedim(in_dims[0] or 0, 1)  # (rows, S, F)
            sums = _Product.apply(wide.flatten(1), *parts)  # type: ignore[no-untyped-call]
            return sums.unflatten(-1, wide.shape[1:]), sums.ndim - 1
        each = [
            [x if dim is None else x.select(dim, signal) for x, dim in zip((table, *parts), in_dims, strict=True)]
            for signal in range(info.batch_size)
        ]
        return torch.stack([_Product.apply(*some) for some in each]), 0  # type: ignore[no-untyped-call]

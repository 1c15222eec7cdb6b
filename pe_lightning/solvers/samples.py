"""The joint features at scattered training samples as operators on weights; exact, and no Kronecker product is formed."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import Operator, mode_products, rowwise_products

__all__ = ["MaskedGrid", "Samples", "ScatteredPoints"]

CACHE_BYTES = 1 << 30
"""Per-axis features of points are stored between iterations up to this size, and computed again beyond it."""
CHUNK_NUMBERS = 1 << 22
"""Intermediate numbers that an evaluation at points holds at once."""


class Samples(Operator):
    r"""The joint features at ``P`` samples, ``(P, K)`` with ``K = K_1 ... K_D``; one such matrix per signal where needed.

    Multiplies the last axis of weights ``(S, C, K)``. Values at samples that are not trained on are zero.

    Args:
        encoders: One per axis.
        mask: Which samples are trained on, ``(S or 1, P)`` booleans; ``None``: all of them.
        dtype: Of the features. They are encoded in the dtype of the coordinates, then widened to float64.
        device: Of the coordinates.
    """

    shared = True
    """Whether all signals have the same samples, whatever their masks."""

    bases: Sequence[Tensor] | None = None
    """Per axis ``(K_a, R_a)`` float64, multiplied into the features; ``K_a`` is then ``R_a``."""

    def __init__(self, encoders: Sequence[Encoder], mask: Tensor | None, dtype: torch.dtype, device: torch.device) -> None:
        self.encoders = encoders
        self.mask = mask
        self.dtype, self.device = dtype, device

    @abstractmethod
    def coordinates(self) -> Tensor:
        """``(S or 1, P, D)``."""

    @abstractmethod
    def moments(self) -> tuple[list[Tensor], Tensor]:
        r"""Sums over the training points, float64.

        Per axis :math:`\sum_p \psi_p \psi_p^T` of all signals, ``(K_a, K_a)``, and the sum of the joint diagonal
        :math:`\prod_a |\psi_{a,p}|^2` of each, ``(S or 1,)``.
        """

    @abstractmethod
    def _evaluate(self, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, values: Tensor) -> Tensor: ...

    @property
    def widths(self) -> tuple[int, ...]:
        """``K_a`` per axis."""
        return tuple(e.num_features for e in self.encoders) if self.bases is None else tuple(b.shape[1] for b in self.bases)

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        """``(P, K)``."""
        return self.coordinates().shape[1], math.prod(self.widths)

    def mv(self, x: Tensor, axis: int = -1) -> Tensor:
        """``(s, C, K)`` -> ``(s, C, P)``, zero off the mask."""
        values = self._evaluate(_last(x, axis))
        return values if self.mask is None else values.mul_(self.mask[:, None])

    def rmv(self, x: Tensor, axis: int = -1) -> Tensor:
        """``(s, C, P)`` -> ``(s, C, K)``; what lies off the mask does not count."""
        return self._adjoint(_last(x, axis) if self.mask is None else _last(x, axis) * self.mask[:, None])

    def dense(self) -> Tensor:
        """The matrix of each signal, ``(S or 1, P, K)``; for small sizes."""
        count = max(len(self.coordinates()), 1 if self.mask is None else len(self.mask))
        unit = torch.eye(self.shape[1], dtype=self.dtype, device=self.device)
        return self.mv(unit.expand(count, -1, -1)).transpose(1, 2)

    def rows(self, start: int, stop: int) -> ScatteredPoints:
        """Some of the samples, point by point."""
        mask = None if self.mask is None else self.mask[:, start:stop]
        return ScatteredPoints(self.encoders, self.coordinates()[:, start:stop], mask).to(self.dtype, self.bases)

    def to(self, dtype: torch.dtype, bases: Sequence[Tensor] | None = None) -> Self:
        """In another dtype, and in other bases: for weights ``w = (B_1 x ... x B_D) z`` the operator on ``z``."""
        other = copy.copy(self)
        other.__dict__.pop("features", None)  # they are computed again
        other.dtype = dtype
        other.bases = self.bases if bases is None else bases
        return other

    def with_mask(self, mask: Tensor) -> Self:
        """The same samples under another mask, ``(S or 1, P)``."""
        other = copy.copy(self)
        other.mask = mask
        return other

    def select(self, signals: slice) -> Self:
        """The samples of some signals."""
        return self if self.mask is None or len(self.mask) == 1 else self.with_mask(self.mask[signals])

    def _encode(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """Features of coordinates ``(p,)`` per axis, ``(p, K_a)``."""
        features = [encoder(x).double() for encoder, x in zip(self.encoders, coords, strict=True)]
        if self.bases is not None:
            features = [f @ basis for f, basis in zip(features, self.bases, strict=True)]
        return [f.to(self.dtype) for f in features]


class MaskedGrid(Samples):
    """Samples of a separable grid in row-major order, evaluated by mode products of the whole grid.

    Args:
        encoders: One per axis.
        axes: Coordinates, axis a of shape ``(N_a,)``.
        mask: As for :class:`Samples`.
        dtype: As for :class:`Samples`.
    """

    def __init__(
        self,
        encoders: Sequence[Encoder],
        axes: Sequence[Tensor],
        mask: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(encoders, mask, dtype, axes[0].device)
        self.axes = axes
        self.grid = tuple(len(x) for x in axes)

    def coordinates(self) -> Tensor:
        """Of the whole grid, ``(1, P, D)``."""
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), -1).reshape(1, -1, len(self.grid))

    @cached_property
    def features(self) -> tuple[list[Tensor], list[Tensor]]:
        """Of each axis, ``(N_a, K_a)``, and transposed."""
        features = self._encode(self.axes)
        return features, [f.T.contiguous() for f in features]

    def moments(self) -> tuple[list[Tensor], Tensor]:
        """From the numbers of training points at each position of an axis."""
        mask = torch.ones(1, *self.grid, device=self.device) if self.mask is None else self.mask.reshape(-1, *self.grid)
        norms = [f.square().sum(1)[None] for f in self.features[0]]
        diagonal = torch.stack([mode_products(part.double(), norms).reshape(()) for part in mask])
        moments, density = [], mask.sum(0, dtype=torch.float64)
        for axis, f in enumerate(self.features[0]):
            along = density.movedim(axis, 0).reshape(len(f), -1).sum(1)
            moments.append(f.T @ (along[:, None] * f))
        return moments, diagonal

    def _evaluate(self, weight: Tensor) -> Tensor:
        return mode_products(weight.reshape(*weight.shape[:2], *self.widths), self.features[0]).flatten(2)

    def _adjoint(self, values: Tensor) -> Tensor:
        return mode_products(values.reshape(*values.shape[:2], *self.grid), self.features[1]).flatten(2)


class ScatteredPoints(Samples):
    """Samples at any coordinates, whose own features are contracted in chunks of points.

    Args:
        encoders: One per axis.
        coords: ``(S or 1, P, D)``.
        mask: As for :class:`Samples`.
        dtype: As for :class:`Samples`.
    """

    def __init__(
        self,
        encoders: Sequence[Encoder],
        coords: Tensor,
        mask: Tensor | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(encoders, mask, dtype, coords.device)
        self.coords = coords
        self.shared = len(coords) == 1

    def coordinates(self) -> Tensor:
        """As given."""
        return self.coords

    def select(self, signals: slice) -> Self:
        """The samples of some signals."""
        other = super().select(signals)
        if not self.shared:
            other = other.to(self.dtype)
            other.coords = self.coords[signals]
        return other

    @cached_property
    def features(self) -> list[list[Tensor]] | None:
        """In a basis: of each row of coordinates and axis, ``(P, K_a)``; ``None`` if they take too much memory."""
        size = self.coords.shape[0] * self.coords.shape[1] * sum(self.widths) * self.dtype.itemsize
        if self.bases is None or size > CACHE_BYTES:
            return None
        step = max(1, CHUNK_NUMBERS // max(encoder.num_features for encoder in self.encoders))
        parts = [[self._encode(part.unbind(-1)) for part in row.split(step)] for row in self.coords]
        return [[torch.cat(axis) for axis in zip(*row, strict=True)] for row in parts]

    def moments(self) -> tuple[list[Tensor], Tensor]:
        """Sums over chunks of points."""
        signals = max(len(self.coords), 1 if self.mask is None else len(self.mask))
        moments = [self.coords.new_zeros(k, k, dtype=torch.float64) for k in self.widths]
        diagonal = self.coords.new_zeros(signals, dtype=torch.float64)
        for signal in range(signals):
            for where, features in self._chunks(0 if self.shared else signal, max(self.widths)):
                norms = torch.stack([f.square().sum(1) for f in features]).prod(0)
                trained = torch.ones_like(norms) if self.mask is None else self.mask[signal % len(self.mask), where]
                diagonal[signal] += (norms * trained).sum()
                for total, f in zip(moments, features, strict=True):
                    total.addmm_(f.T, trained[:, None] * f)
        return moments, diagonal

    def _evaluate(self, weight: Tensor) -> Tensor:
        values = weight.new_empty(*weight.shape[:2], self.coords.shape[1])
        for row, signals in self._rows(len(weight)):
            part = weight[signals].reshape(-1, weight.shape[1], *self.widths)
            for where, features in self._chunks(row, part.numel() // self.widths[0]):
                values[signals, :, where] = rowwise_products(part, features)
        return values

    def _adjoint(self, values: Tensor) -> Tensor:
        first, *others = self.widths
        weight = values.new_zeros(*values.shape[:2], first * math.prod(others))
        for row, signals in self._rows(len(values)):
            part = values[signals]
            layers = part.shape[:2]
            for where, features in self._chunks(row, layers.numel() * math.prod(others)):
                # (s, C, p) -> (p, s C), then one factor (p, K_a) after another joins on the right, the first one last
                product = part[:, :, where].flatten(0, 1).T
                for f in features[1:]:
                    product = (product[..., None] * f[:, None, :]).flatten(1)
                summed = features[0].T @ product  # (K_1, s C K_2 ... K_D)
                weight[signals] += summed.reshape(first, *layers, math.prod(others)).movedim(0, 2).flatten(2)
        return weight

    def _rows(self, signals: int) -> Iterator[tuple[int, slice]]:
        """Each row of coordinates with the signals that it belongs to."""
        yield from [(0, slice(None))] if self.shared else [(row, slice(row, row + 1)) for row in range(signals)]

    def _chunks(self, row: int, numbers: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Points of one row of coordinates in turns, few enough for ``numbers`` intermediate numbers per point."""
        size, count, stored = max(1, CHUNK_NUMBERS // max(1, numbers)), self.coords.shape[1], self.features
        for start in range(0, count, size):
            where = slice(start, min(start + size, count))
            coords = self.coords[row, where].unbind(-1)
            yield where, self._encode(coords) if stored is None else [f[where] for f in stored[row]]


def _last(x: Tensor, axis: int) -> Tensor:
    if x.ndim != 3 or axis not in (-1, 2):
        raise InputError(f"samples multiply the last axis of (S, C, ...); got {tuple(x.shape)} and axis {axis}")
    return x

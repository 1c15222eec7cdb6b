"""The samples of a fit at scattered points: their joint features as linear maps."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, reduce

import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import mode_products, rowwise_products

CACHE_BYTES = 1 << 30
"""Size up to which features of points are stored between iterations; larger ones are computed in every iteration."""
CHUNK_NUMBERS = 1 << 22
"""Intermediate numbers of an evaluation at points that are held at once."""


def summed(x: Tensor, distributed: bool) -> Tensor:
    """The sum over the processes that hold other samples of the same signals."""
    if distributed:
        x = x.contiguous()
        torch.distributed.all_reduce(x)
    return x


class FittedSamples(ABC):
    """The joint features at ``P`` samples as a linear map ``(P, K)``, ``K = K_1 ... K_D``; one per signal if they differ.

    Multiplies the last axis of weights ``(S, C, K)``. Values outside the mask are zero.

    Args:
        encoders: One per axis. Coordinates are encoded in their own dtype; features are float64 before :meth:`to`.
        mask: Training samples, ``(S or 1, P)`` booleans; ``None`` for all of them.
        device: Device of the coordinates.
    """

    shared = True
    """Whether all signals have the same coordinates; masks may differ."""

    bases: Sequence[Tensor] | None = None
    """Matrices ``(K_a, R_a)`` float64 per axis that multiply the features from the right; ``R_a`` then replaces ``K_a``."""

    def __init__(self, encoders: Sequence[Encoder], mask: Tensor | None, device: torch.device) -> None:
        self.encoders = encoders
        self.mask = mask
        self.dtype, self.device = torch.float64, device

    @abstractmethod
    def coordinates(self) -> Tensor:
        """``(S or 1, P, D)``."""

    @abstractmethod
    def moments(self) -> tuple[list[Tensor], Tensor]:
        r"""Second moments of the features over the training samples, float64.

        Per axis :math:`\sum_p \psi_p \psi_p^T`, summed over signals, ``(K_a, K_a)``; and the sum of the joint diagonal
        :math:`\prod_a |\psi_{a,p}|^2` of each signal, ``(S or 1,)``.
        """

    @abstractmethod
    def blocks(self, numbers: int) -> Iterator[tuple[slice, slice, list[Tensor]]]:
        """Ranges of signals and samples, and the features of each axis: a whole grid, or chunks of points.

        A chunk has :data:`CHUNK_NUMBERS` intermediate numbers at most, for ``numbers`` of them per point.
        """

    @abstractmethod
    def product(self, weight: Tensor, features: Sequence[Tensor]) -> Tensor:
        """Weights ``(s, C, K_1, ..., K_D)`` times the joint features of a block, ``(s, C, p)``."""

    @abstractmethod
    def squared_norms(self, features: Sequence[Tensor]) -> Tensor:
        """Squared norms of the joint features of a block, ``(p,)``."""

    @abstractmethod
    def _evaluate(self, weight: Tensor) -> Tensor: ...

    @abstractmethod
    def _adjoint(self, values: Tensor) -> Tensor: ...

    @property
    def widths(self) -> tuple[int, ...]:
        """``K_a`` per axis."""
        return tuple(e.num_features for e in self.encoders) if self.bases is None else tuple(b.shape[1] for b in self.bases)

    def matvec(self, x: Tensor) -> Tensor:
        """Values at the samples from weights: ``(s, C, K)`` -> ``(s, C, P)``."""
        values = self._evaluate(x)
        return values if self.mask is None else values.mul_(self.mask[:, None])

    def rmatvec(self, x: Tensor) -> Tensor:
        """The adjoint: ``(s, C, P)`` -> ``(s, C, K)``."""
        return self._adjoint(x if self.mask is None else x * self.mask[:, None])

    def dense(self) -> Tensor:
        """The matrix of each signal, ``(S or 1, P, K)``; for small sizes."""
        rows = []
        for coords in self.coordinates():
            joint, *others = self._encode(coords.unbind(-1))
            for features in others:
                joint = (joint[:, :, None] * features[:, None, :]).flatten(1)
            rows.append(joint)
        matrices = torch.stack(rows)
        return matrices if self.mask is None else matrices * self.mask[..., None]

    def to(self, dtype: torch.dtype, bases: Sequence[Tensor] | None = None) -> Self:
        """The map in another dtype and in other bases: on ``z``, for weights ``w = (B_1 x ... x B_D) z``."""
        other = copy.copy(self)
        other.__dict__.pop("features", None)  # cached in the old dtype and bases
        other.dtype = dtype
        other.bases = self.bases if bases is None else bases
        return other

    def with_mask(self, mask: Tensor) -> Self:
        other = copy.copy(self)
        other.mask = mask
        return other

    def select(self, signals: slice) -> Self:
        return self if self.mask is None or len(self.mask) == 1 else self.with_mask(self.mask[signals])

    def _encode(self, coords: Sequence[Tensor]) -> list[Tensor]:
        features = [encoder(x).double() for encoder, x in zip(self.encoders, coords, strict=True)]
        if self.bases is not None:
            features = [f @ basis for f, basis in zip(features, self.bases, strict=True)]
        return [f.to(self.dtype) for f in features]


class MaskedGrid(FittedSamples):
    """Samples of a separable grid ``(N_a,)`` per axis in row-major order, evaluated by mode products of the whole grid."""

    def __init__(self, encoders: Sequence[Encoder], axes: Sequence[Tensor], mask: Tensor | None = None) -> None:
        super().__init__(encoders, mask, axes[0].device)
        self.axes = axes
        self.grid = tuple(len(x) for x in axes)

    def coordinates(self) -> Tensor:
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), -1).reshape(1, -1, len(self.grid))

    @cached_property
    def features(self) -> tuple[list[Tensor], list[Tensor]]:
        """Features of each axis, ``(N_a, K_a)``, and their transposes."""
        features = self._encode(self.axes)
        return features, [f.T.contiguous() for f in features]

    def moments(self) -> tuple[list[Tensor], Tensor]:
        mask = torch.ones(1, *self.grid, device=self.device) if self.mask is None else self.mask.reshape(-1, *self.grid)
        diagonal = mask.double().flatten(1) @ self.squared_norms(self.features[0])
        moments, density = [], mask.sum(0, dtype=torch.float64)
        for axis, f in enumerate(self.features[0]):
            along = density.movedim(axis, 0).reshape(len(f), -1).sum(1)
            moments.append(f.T @ (along[:, None] * f))
        return moments, diagonal

    def blocks(self, numbers: int) -> Iterator[tuple[slice, slice, list[Tensor]]]:
        yield slice(None), slice(None), self._encode(self.axes)

    def product(self, weight: Tensor, features: Sequence[Tensor]) -> Tensor:
        return mode_products(weight, features).flatten(2)

    def squared_norms(self, features: Sequence[Tensor]) -> Tensor:
        return reduce(torch.kron, [f.square().sum(1) for f in features])

    def _evaluate(self, weight: Tensor) -> Tensor:
        return self.product(weight.reshape(*weight.shape[:2], *self.widths), self.features[0])

    def _adjoint(self, values: Tensor) -> Tensor:
        return mode_products(values.reshape(*values.shape[:2], *self.grid), self.features[1]).flatten(2)


class ScatteredPoints(FittedSamples):
    """Samples at any coordinates ``(S or 1, P, D)``, evaluated in chunks of points."""

    def __init__(self, encoders: Sequence[Encoder], coords: Tensor, mask: Tensor | None = None) -> None:
        super().__init__(encoders, mask, coords.device)
        self.coords = coords
        self.shared = len(coords) == 1

    def coordinates(self) -> Tensor:
        return self.coords

    def select(self, signals: slice) -> Self:
        other = super().select(signals)
        if not self.shared:
            other = other.to(self.dtype)
            other.coords = self.coords[signals]
        return other

    @cached_property
    def features(self) -> list[list[Tensor]] | None:
        """Features ``(P, K_a)`` per row of coordinates and axis, in the bases; ``None`` without bases or if too large."""
        size = self.coords.shape[0] * self.coords.shape[1] * sum(self.widths) * self.dtype.itemsize
        if self.bases is None or size > CACHE_BYTES:
            return None
        step = max(1, CHUNK_NUMBERS // max(encoder.num_features for encoder in self.encoders))
        parts = [[self._encode(part.unbind(-1)) for part in row.split(step)] for row in self.coords]
        return [[torch.cat(axis) for axis in zip(*row, strict=True)] for row in parts]

    def moments(self) -> tuple[list[Tensor], Tensor]:
        signals = max(len(self.coords), 1 if self.mask is None else len(self.mask))
        moments = [self.coords.new_zeros(k, k, dtype=torch.float64) for k in self.widths]
        diagonal = self.coords.new_zeros(signals, dtype=torch.float64)
        for signal in range(signals):
            for where, features in self._chunks(0 if self.shared else signal, max(self.widths)):
                norms = self.squared_norms(features)
                trained = torch.ones_like(norms) if self.mask is None else self.mask[signal % len(self.mask), where]
                diagonal[signal] += (norms * trained).sum()
                for total, f in zip(moments, features, strict=True):
                    total.addmm_(f.T, trained[:, None] * f)
        return moments, diagonal

    def blocks(self, numbers: int) -> Iterator[tuple[slice, slice, list[Tensor]]]:
        for row in range(len(self.coords)):
            signals = slice(None) if self.shared else slice(row, row + 1)
            yield from ((signals, where, features) for where, features in self._chunks(row, numbers))

    def product(self, weight: Tensor, features: Sequence[Tensor]) -> Tensor:
        return rowwise_products(weight, features)

    def squared_norms(self, features: Sequence[Tensor]) -> Tensor:
        return torch.stack([f.square().sum(1) for f in features]).prod(0)

    def _evaluate(self, weight: Tensor) -> Tensor:
        signals, channels = weight.shape[:2]
        values = weight.new_empty(signals, channels, self.coords.shape[1])
        layers = channels * (signals if self.shared else 1)
        weight = weight.reshape(signals, channels, *self.widths)
        for some, where, features in self.blocks(layers * math.prod(self.widths[1:])):
            values[some, :, where] = self.product(weight[some], features)
        return values

    def _adjoint(self, values: Tensor) -> Tensor:
        first, *others = self.widths
        (signals, channels), rest = values.shape[:2], math.prod(others)
        weight = values.new_zeros(signals, channels, first * rest)
        layers = channels * (signals if self.shared else 1)
        for some, where, features in self.blocks(layers * rest):
            # (s, C, p) -> (p, s C); the factors (p, K_a) are multiplied from the second on, the first one by a product
            product = values[some, :, where].flatten(0, 1).T
            for f in features[1:]:
                product = (product[..., None] * f[:, None, :]).flatten(1)
            summed = features[0].T @ product  # (K_1, s C K_2 ... K_D)
            weight[some] += summed.reshape(first, -1, channels, rest).movedim(0, 2).flatten(2)
        return weight

    def _chunks(self, row: int, numbers: int) -> Iterator[tuple[slice, list[Tensor]]]:
        size, count, stored = max(1, CHUNK_NUMBERS // max(1, numbers)), self.coords.shape[1], self.features
        for start in range(0, count, size):
            where = slice(start, min(start + size, count))
            coords = self.coords[row, where].unbind(-1)
            yield where, self._encode(coords) if stored is None else [f[where] for f in stored[row]]


def point_samples(
    values: Tensor,
    encoders: Sequence[Encoder],
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    mask: Tensor | None,
    index: Tensor | None,
    distributed: bool,
) -> tuple[FittedSamples, Tensor, float]:
    """The samples as a linear map, their values ``(S, C, P)``, and the number of samples of their grid, or infinity."""
    if not values.is_floating_point():
        raise InputError(f"values are floating-point numbers, computed in float32 or float64; got {values.dtype}")
    if distributed and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise InputError("distributed=True needs torch.distributed to be initialised; leave it out for one process")
    device = values.device
    # features of float64 fits are float64: weights of dependent features enlarge the rounding errors of features
    axes = None if axes is None else [x.to(device, torch.promote_types(x.dtype, values.dtype)) for x in axes]
    coords = None if coords is None else coords.to(device, torch.promote_types(coords.dtype, values.dtype))
    grid = () if axes is None else tuple(len(x) for x in axes)
    if axes is not None and mask is not None:
        mask = (mask[None] if mask.ndim == len(grid) else mask).to(device)
        fits = values.shape[1:-1] == grid == mask.shape[1:] and len(mask) in (1, len(values))
        if not fits or mask.dtype != torch.bool:
            raise InputError(
                f"with axes of {grid} samples, values have the shape (S, *grid, C), the mask is boolean, (S or 1, *grid); "
                f"got {tuple(values.shape)} and {tuple(mask.shape)}, {mask.dtype}"
            )
        samples = MaskedGrid(encoders, axes, mask.flatten(1))
        return samples, values.flatten(1, -2).movedim(-1, 1), math.prod(grid)
    if values.ndim != 3:
        raise InputError(
            f"values at points have the shape (S, P, C), got {tuple(values.shape)}; for a whole grid pass axes and mask"
        )
    values, population = values.movedim(-1, 1), math.inf
    if axes is not None and index is not None:
        index = _rows("index", index, values, 2)
        population = count = math.prod(grid)
        if index.is_floating_point() or (index.numel() and not 0 <= int(index.min()) <= int(index.max()) < population):
            raise InputError(f"index holds row-major positions in a grid of {grid}: whole numbers below {population}")
        mask = torch.zeros(len(index), count, dtype=torch.bool, device=device).scatter_(1, index, True)
        distinct = int(mask.sum()) == index.numel()
        # multiplications for the whole grid, and for the points one by one
        tails = [math.prod(encoder.num_features for encoder in encoders[a:]) for a in range(len(grid))]
        every = sum(math.prod(grid[: a + 1]) * tail for a, tail in enumerate(tails))
        if distinct and every <= index.shape[1] * sum(tails):
            whole = values.new_zeros(*values.shape[:2], count)
            whole.scatter_(2, index[:, None].expand(*values.shape[:2], -1), values)
            return MaskedGrid(encoders, axes, mask), whole, population
        places = torch.unravel_index(index, grid)
        coords = torch.stack([x[place] for x, place in zip(axes, places, strict=True)], -1)
    if coords is None:
        raise InputError("the location of the points is missing: give coords, or axes with a mask or an index")
    return ScatteredPoints(encoders, _rows("coords", coords, values, 3)), values, population


def _rows(name: str, rows: Tensor, values: Tensor, ndim: int) -> Tensor:
    rows = (rows[None] if rows.ndim == ndim - 1 else rows).to(values.device)
    signals, _, points = values.shape
    if rows.ndim != ndim or rows.shape[1] != points or len(rows) not in (1, signals):
        raise InputError(f"{name} hold {points} points of {signals} signals, or of all; got shape {tuple(rows.shape)}")
    return rows

"""Samples at any coordinates, evaluated exactly, point by point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encoders import Encoder
from pe_lightning.linalg import rowwise_products
from pe_lightning.solvers.scattered_samples import Operator, Samples, position_hash

__all__ = ["FreeSamples"]

CACHE_BYTES = 1 << 30
"""Per-axis features of the points are kept between iterations up to this size, and recomputed beyond it."""
CHUNK_NUMBERS = 1 << 22
"""Intermediate numbers that an evaluation holds at once."""


class FreeSamples(Samples):
    """Samples at any coordinates.

    Args:
        encoders: One per axis.
        coords: ``(S or 1, P, D)``.
        mask: ``(S or 1, P)`` booleans; ``None``: every sample.
    """

    def __init__(self, encoders: Sequence[Encoder], coords: Tensor, mask: Tensor | None = None) -> None:
        super().__init__(mask, (coords.shape[1],), tuple(encoder.num_features for encoder in encoders))
        self.encoders = encoders
        self.coords = coords

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self.coords.device

    @property
    def common(self) -> bool:
        """Whether the coordinates are shared."""
        return len(self.coords) == 1

    def _chunks(self) -> Iterator[tuple[int, list[Tensor], Tensor | None]]:
        """Signal, features per axis ``(p, K_a)`` float64 and mask ``(p,)`` of the points, in turns."""
        size = max(1, CHUNK_NUMBERS // max(self.num_features))
        for signal in range(max(len(self.coords), 1 if self.mask is None else len(self.mask))):
            mask = None if self.mask is None else self.mask[min(signal, len(self.mask) - 1)]
            coords = self.coords[min(signal, len(self.coords) - 1)]
            for start in range(0, len(coords), size):
                part = coords[start : start + size]
                yield signal, self._encode(part), None if mask is None else mask[start : start + size]

    def _encode(self, coords: Tensor) -> list[Tensor]:
        return [encoder(x).double() for encoder, x in zip(self.encoders, coords.unbind(-1), strict=True)]

    def moments(self) -> list[Tensor]:
        """Sums over the points."""
        sums = [torch.zeros(k, k, dtype=torch.float64, device=self.device) for k in self.num_features]
        for _, features, mask in self._chunks():
            for total, f in zip(sums, features, strict=True):
                total.addmm_(f.T, f if mask is None else mask[:, None] * f)
        return sums

    def diagonal(self) -> Tensor:
        """Sums over the points."""
        signals = max(len(self.coords), 1 if self.mask is None else len(self.mask))
        sums = torch.zeros(signals, dtype=torch.float64, device=self.device)
        for signal, features, mask in self._chunks():
            joint = torch.stack([f.square().sum(1) for f in features]).prod(0)
            sums[signal] += (joint if mask is None else joint * mask).sum()
        return sums

    def operator(self, signals: slice, bases: Sequence[Tensor], dtype: torch.dtype) -> Operator:
        """Products of each point's own features."""
        coords = self.coords if len(self.coords) == 1 else self.coords[signals]
        return _FreeOperator(self, coords, bases, dtype)

    def hash(self, seed: int) -> Tensor:
        """From the coordinates."""
        return position_hash(self.coords.unbind(-1), seed)

    def select(self, signals: Sequence[int]) -> Self:
        """The samples of some signals."""
        other = super().select(signals)
        if len(self.coords) > 1:
            other.coords = self.coords[list(signals)]
        return other


class _FreeOperator(Operator):
    """Features per axis in chunks of points: ``p x R_a`` numbers, never ``p x R_1 ... R_D`` times the number of points."""

    def __init__(self, samples: FreeSamples, coords: Tensor, bases: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.samples = samples
        self.coords = coords
        self.bases = bases
        self.dtype = dtype
        width = sum(basis.shape[1] for basis in bases)
        kept = coords.shape[0] * coords.shape[1] * width * dtype.itemsize <= CACHE_BYTES
        self._cache: list[list[Tensor]] | None = None
        self._cache = [self._features(part) for part in coords] if kept else None

    def _features(self, coords: Tensor) -> list[Tensor]:
        """Features in the basis, ``(p, R_a)`` per axis."""
        size = max(1, CHUNK_NUMBERS // max(self.samples.num_features))
        parts = [
            [(f @ b).to(self.dtype) for f, b in zip(self.samples._encode(part), self.bases, strict=True)]
            for part in torch.split(coords, size)
        ]
        return [torch.cat(axis) for axis in zip(*parts, strict=True)]

    def _turns(self, row: int, numbers: int) -> Iterator[tuple[slice, list[Tensor]]]:
        """Chunks of points of one row of coordinates, few enough for ``numbers`` intermediate numbers per point."""
        count = self.coords.shape[1]
        size = max(1, CHUNK_NUMBERS // numbers)
        for start in range(0, count, size):
            where = slice(start, min(start + size, count))
            if self._cache is not None:
                yield where, [f[where] for f in self._cache[row]]
            else:
                yield where, self._features(self.coords[row, where])

    def forward(self, weight: Tensor) -> Tensor:
        values = weight.new_empty(*weight.shape[:2], self.coords.shape[1])
        for row, part in self._rows(weight):
            numbers = max(1, weight[part].numel() // weight.shape[2])
            for where, features in self._turns(row, numbers):
                values[part, :, where] = rowwise_products(weight[part], features)
        return values

    def adjoint(self, values: Tensor) -> Tensor:
        ranks = [basis.shape[1] for basis in self.bases]
        weight = values.new_zeros(*values.shape[:2], *ranks)
        for row, part in self._rows(values):
            signals, channels = values[part].shape[:2]
            numbers = max(1, signals * channels * math.prod(ranks[1:]))
            for where, features in self._turns(row, numbers):
                # (s, C, p) -> (p, s C), then one factor (p, R_a) after another joins on the right, the first one last
                product = values[part, :, where].flatten(0, 1).T
                for f in features[1:]:
                    product = (product[..., None] * f[:, None, :]).flatten(1)
                summed = features[0].T @ product  # (R_1, s C R_2 ... R_D)
                weight[part] += summed.reshape(ranks[0], signals, channels, *ranks[1:]).movedim(0, 2)
        return weight

    def _rows(self, of_signals: Tensor) -> Iterator[tuple[int, slice]]:
        """Each row of coordinates with the signals that it serves."""
        if len(self.coords) == 1:
            yield 0, slice(None)
        else:
            for row in range(len(of_signals)):
                yield row, slice(row, row + 1)

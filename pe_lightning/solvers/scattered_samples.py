r"""Where scattered training data lies, as a linear operator: weights in, values at the samples out, and back.

Three kinds of samples share one interface. All of them evaluate
:math:`y = (\Phi_1 \otimes \dots \otimes \Phi_D) w` at the training points without forming the Kronecker product:

- :class:`GridSamples`: a mask over a grid. The whole grid by mode products, then the mask: exact.
- :class:`~pe_lightning.solvers.scattered_free.FreeSamples`: any coordinates. Each point contracts its own features: exact.
- :class:`~pe_lightning.solvers.scattered_blended.BlendedSamples`: the papers' approximation, from a virtual grid.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encoders import Encoder
from pe_lightning.linalg import mode_products

__all__ = ["GridOperator", "GridSamples", "Operator", "Samples", "position_hash"]


class Operator(ABC):
    """Weights of a group of signals to values at all samples, trained or not, and the adjoint."""

    @abstractmethod
    def forward(self, weight: Tensor) -> Tensor:
        """``(s, C, *R)`` -> ``(s, C, *samples)``."""

    @abstractmethod
    def adjoint(self, values: Tensor) -> Tensor:
        """``(s, C, *samples)`` -> ``(s, C, *R)``."""


class Samples(ABC):
    """Samples of a set of signals, some of which are trained on.

    Args:
        mask: Which samples are trained on, ``(S or 1, *samples)`` booleans; ``None``: all of them.
        shape: Shape ``*samples`` of the samples of one signal.
        num_features: ``K_a`` per axis.
    """

    def __init__(self, mask: Tensor | None, shape: tuple[int, ...], num_features: tuple[int, ...]) -> None:
        self.mask = mask
        self.shape = shape
        self.num_features = num_features
        self.population = math.inf
        """Number of points there could be: those of the grid that the samples belong to, or no end of them."""

    @property
    @abstractmethod
    def common(self) -> bool:
        """Whether one operator serves every signal."""

    def counts(self) -> Tensor:
        """Number of training points, ``(S or 1,)`` float64."""
        if self.mask is None:
            return torch.full((1,), float(math.prod(self.shape)), dtype=torch.float64, device=self.device)
        return self.mask.flatten(1).sum(1, dtype=torch.float64)

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the samples are."""

    @abstractmethod
    def moments(self) -> list[Tensor]:
        r"""Per axis :math:`\sum_p \psi_p \psi_p^T` over the training points of all signals, ``(K_a, K_a)`` float64."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        r"""Sum over the training points of :math:`\prod_a |\psi_a|^2`, the joint diagonal, ``(S or 1,)`` float64."""

    @abstractmethod
    def operator(self, signals: slice, bases: Sequence[Tensor], dtype: torch.dtype) -> Operator:
        """The operator of some signals on weights in another basis.

        Args:
            signals: Which signals.
            bases: Per axis ``(K_a, R_a)`` float64; weights are ``w = (B_1 x ... x B_D) z``.
            dtype: Of the values.
        """

    def mask_of(self, signals: slice) -> Tensor | None:
        """The mask of some signals, ``(s or 1, 1, *samples)``."""
        if self.mask is None:
            return None
        return (self.mask if len(self.mask) == 1 else self.mask[signals]).unsqueeze(1)

    def with_mask(self, mask: Tensor) -> Self:
        """The same samples under another mask, ``(S or 1, *samples)``."""
        other = copy.copy(self)
        other.mask = mask
        return other

    def select(self, signals: Sequence[int]) -> Self:
        """The samples of some signals."""
        other = copy.copy(self)
        if self.mask is not None and len(self.mask) > 1:
            other.mask = self.mask[list(signals)]
        return other

    @abstractmethod
    def hash(self, seed: int) -> Tensor:
        """A number in [0, 1) per sample that looks random but depends only on where it is, ``(S or 1, *samples)``."""


class GridSamples(Samples):
    """Samples of a separable grid under a mask.

    Args:
        encoders: One per axis.
        axes: Coordinate vectors, axis a of shape ``(N_a,)``.
        mask: ``(S or 1, N_1, ..., N_D)`` booleans; ``None``: every sample.
    """

    def __init__(self, encoders: Sequence[Encoder], axes: Sequence[Tensor], mask: Tensor | None) -> None:
        shape = tuple(len(x) for x in axes)
        super().__init__(mask, shape, tuple(encoder.num_features for encoder in encoders))
        self.population = math.prod(shape)
        self._axes = axes
        # encoded as given, then widened: exactly the features that a module evaluates at these coordinates
        self._features = [encoder(x).double() for encoder, x in zip(encoders, axes, strict=True)]

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        device: torch.device = self._features[0].device
        return device

    @property
    def common(self) -> bool:
        """Masks differ, the grid does not."""
        return True

    def moments(self) -> list[Tensor]:
        """From the numbers of training points on each position of an axis."""
        if self.mask is None:
            density = torch.ones(self.shape, dtype=torch.float64, device=self.device)
        else:
            density = self.mask.sum(0, dtype=torch.float64)
        others = [[b for b in range(density.ndim) if b != a] for a in range(density.ndim)]
        along = [density.sum(dim=rest) if rest else density for rest in others]
        return [f.T @ (weight[:, None] * f) for f, weight in zip(self._features, along, strict=True)]

    def diagonal(self) -> Tensor:
        """Mode products of the mask with the squared row norms."""
        norms = [f.square().sum(1)[None] for f in self._features]
        if self.mask is None:
            return torch.stack([norm.sum() for norm in norms]).prod()[None]
        sums = [mode_products(mask.double(), norms).reshape(()) for mask in self.mask]
        return torch.stack(sums)

    def operator(self, signals: slice, bases: Sequence[Tensor], dtype: torch.dtype) -> Operator:
        """Mode products of the whole grid."""
        return GridOperator([(f @ basis).to(dtype) for f, basis in zip(self._features, bases, strict=True)])

    def hash(self, seed: int) -> Tensor:
        """From the coordinates."""
        return position_hash(torch.meshgrid(*self._axes, indexing="ij"), seed)[None]


class GridOperator(Operator):
    """Mode products of a whole grid.

    Args:
        factors: Per axis ``(N_a, R_a)``.
    """

    def __init__(self, factors: Sequence[Tensor]) -> None:
        self.factors = factors
        self.transposed = [factor.T.contiguous() for factor in factors]

    def forward(self, weight: Tensor) -> Tensor:
        """One product per axis."""
        return mode_products(weight, self.factors)

    def adjoint(self, values: Tensor) -> Tensor:
        """The transposed products."""
        return mode_products(values, self.transposed)


def position_hash(coords: Sequence[Tensor], seed: int) -> Tensor:
    """A fraction in [0, 1) that looks random, from coordinates per axis; the same on every device and process."""
    state = torch.full_like(coords[0], seed * 2 + 1, dtype=torch.int64)
    for x in coords:
        # multiply and fold, as in splitmix64; products wrap around
        state = (state ^ (x.double() * 2**40).long()) * -7046029254386353131
        state = state ^ (state >> 32)
        state = state * -4658895280553007687
        state = state ^ (state >> 29)
    return (state & 0xFFFFFFFF).double() / 2**32

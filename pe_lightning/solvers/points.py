"""Least squares of a set of signals at scattered samples: joint features as linear maps, and the solution."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import (
    LeastSquares,
    Minimum,
    conjugate_gradients,
    eigh,
    factor_axis,
    mode_products,
    rowwise_products,
)

CACHE_BYTES = 1 << 30
"""Size up to which features of points are stored between iterations; larger ones are computed in every iteration."""
CHUNK_NUMBERS = 1 << 22
"""Intermediate numbers of an evaluation at points that are held at once."""
MAX_DIRECT_OPERATIONS, MAX_DIRECT_NUMBERS = 1 << 31, 1 << 24
"""Multiplications and matrix entries up to which a problem without a ridge is factorised: a second on one core."""
GROUP_NUMBERS = 1 << 22
"""Largest size of a vector of the iteration on a CPU: signals are solved in groups, whose vectors fit in its cache."""
MAX_EXACT_EXCESS = 1e-4
"""Squared error above the least one, relative to it, up to which a direct solution is called exact."""
NEGLIGIBLE_ERROR = 1e-6
"""Squared error relative to the squared values that replaces smaller least ones in :func:`excess_error`: 60 dB."""


class FittedSamples(ABC):
    r"""The joint features at ``P`` samples as a linear map ``(P, K)``, ``K = K_1 ... K_D``; one per signal if they differ.

    Multiplies the last axis of weights ``(S, C, K)``. Values outside the mask are zero.

    Args:
        encoders: One per axis. Coordinates are encoded in their own dtype; features are then float64, or that of :meth:`to`.
        mask: Training samples, ``(S or 1, P)`` booleans; ``None`` for all of them.
        device: Device of the coordinates.
    """

    shared = True
    """Whether all signals have the same samples; masks may differ."""

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
        r"""Second moments of the features over the training points, float64.

        Per axis :math:`\sum_p \psi_p \psi_p^T`, summed over signals, ``(K_a, K_a)``; and the sum of the joint
        diagonal :math:`\prod_a |\psi_{a,p}|^2` of each signal, ``(S or 1,)``.
        """

    @abstractmethod
    def blocks(self, numbers: int) -> Iterator[tuple[slice, slice, list[Tensor]]]:
        """Ranges of signals and samples, and the features of each axis: a whole grid, or chunks of points.

        Args:
            numbers: Intermediate numbers per point, of which a chunk has :data:`CHUNK_NUMBERS` at most.
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
        """Values at the samples from weights: ``(s, C, K)`` -> ``(s, C, P)``; zero outside the mask."""
        values = self._evaluate(x)
        return values if self.mask is None else values.mul_(self.mask[:, None])

    def rmatvec(self, x: Tensor) -> Tensor:
        """The adjoint: ``(s, C, P)`` -> ``(s, C, K)``; values outside the mask are ignored."""
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
        """The same samples under another mask, ``(S or 1, P)``."""
        other = copy.copy(self)
        other.mask = mask
        return other

    def select(self, signals: slice) -> Self:
        """The samples of some signals."""
        return self if self.mask is None or len(self.mask) == 1 else self.with_mask(self.mask[signals])

    def _encode(self, coords: Sequence[Tensor]) -> list[Tensor]:
        """Features ``(p, K_a)`` per axis from coordinates ``(p,)`` per axis."""
        features = [encoder(x).double() for encoder, x in zip(self.encoders, coords, strict=True)]
        if self.bases is not None:
            features = [f @ basis for f, basis in zip(features, self.bases, strict=True)]
        return [f.to(self.dtype) for f in features]


class MaskedGrid(FittedSamples):
    """Samples of a separable grid in row-major order, evaluated by mode products of the whole grid.

    ``axes`` are coordinates, axis a of shape ``(N_a,)``; the other arguments are those of :class:`FittedSamples`.
    """

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
        """Features ``(P, K_a)`` per row of coordinates and axis, in the bases; ``None`` without bases or above the limit."""
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
        """Chunks of points of one row of coordinates, for ``numbers`` intermediate numbers per point."""
        size, count, stored = max(1, CHUNK_NUMBERS // max(1, numbers)), self.coords.shape[1], self.features
        for start in range(0, count, size):
            where = slice(start, min(start + size, count))
            coords = self.coords[row, where].unbind(-1)
            yield where, self._encode(coords) if stored is None else [f[where] for f in stored[row]]


def _least_norm(matrix: Tensor, target: Tensor, dtype: torch.dtype) -> DirectSolution:
    """Least squares of least norm of ``(P, K)`` and ``(s, C, P)``, both float64, with weights ``(s, C, K)`` in ``dtype``.

    The weights are those of float64, rounded. At large condition numbers they are so large that rounding them changes the
    fitted values. Then the smallest ridge is added at which the rounded weights have the least squared error.
    """
    factor = factor_axis(matrix)
    s, left, right = factor.singular_values, factor.left(), factor.right
    projection = target @ left
    norm = target.square().sum((1, 2))
    least = (target - projection @ left.T).square().sum((1, 2))
    rounded_matrix, rounded_target = matrix.to(dtype), target.to(dtype)
    z, error = torch.zeros(*target.shape[:2], matrix.shape[1], dtype=dtype, device=target.device), norm
    excess = excess_error(error, least, norm)
    # square roots of the ridges, relative to the largest singular value
    for cutoff in (0.0, *(4.0**-n for n in range(24, 7, -1))):
        response = s / (s.square() + (cutoff * s[:1]).square())
        rounded = (projection * response @ right.T).to(dtype)
        errors = (rounded_target - rounded @ rounded_matrix.T).square().sum((1, 2), dtype=torch.float64)
        better = (errors < error) & (excess > MAX_EXACT_EXCESS)
        z, error = torch.where(better[:, None, None], rounded, z), torch.where(better, errors, error)
        excess = excess_error(error, least, norm)
        if bool((excess <= MAX_EXACT_EXCESS).all()):
            break
    gradient, start = (
        torch.linalg.vector_norm(part @ matrix, dim=(1, 2)) for part in (target - z.double() @ matrix.T, target)
    )
    return DirectSolution(z, torch.where(start > 0, gradient / start, 0.0), error, excess)


def excess_error(error: Tensor, least: Tensor, norm: Tensor) -> Tensor:
    """Squared errors above the least ones, relative to these, or to 1e-6 of the squared values if that is more; ``(S,)``.

    Args:
        error: Squared errors, ``(S,)`` float64.
        least: Least squared errors.
        norm: Sums of squares of the values.
    """
    reference = torch.maximum(least, NEGLIGIBLE_ERROR * norm)
    return torch.where(reference > 0, (error - least).clamp_min(0) / reference, 0.0)


def power_of_two(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The power of two nearest to positive numbers, one for others: dividing by it is exact, and squares are then normal.

    It and its inverse are normal numbers of ``dtype``.
    """
    largest = {torch.float32: 100, torch.float64: 900}[dtype]
    exponent = torch.frexp(x).exponent.clamp(-largest, largest)
    return torch.ldexp(torch.ones_like(x), torch.where(x > 0, exponent, 0))


class DirectSolution(NamedTuple):
    """A solution at scattered points by singular values."""

    weight: Tensor
    """``(S, C, K_1, ..., K_D)``, or ``(S, C, K)``."""
    relative_residual: Tensor
    """Norm of the gradient relative to that at zero, ``(S,)`` float64."""
    squared_error: Tensor
    """``(S,)`` float64."""
    excess_error: Tensor
    """See :func:`excess_error`, ``(S,)`` float64."""


class PointProblem:
    r"""Ridge least squares of ``S`` signals at scattered points, in the eigenbases of the axes.

    With :math:`\lambda_a, V_a` the eigenvalues and vectors of the mean of :math:`\psi_a \psi_a^T` over the training
    points, weights are :math:`w = (V_1 \otimes \dots \otimes V_D) z`. For points on a full grid the normal equations of
    ``z`` are diagonal, :math:`P \prod_a \lambda_a + \rho`; that diagonal, damped, is the preconditioner. Eigenvectors with
    eigenvalues below 1e-14 of the largest are dropped: their weights are zero.

    Values and features are divided by powers of two, which is exact, so that their squares are normal numbers.

    Args:
        samples: Coordinates of the samples, and the mask of training samples.
        values: ``(S, C, P)``; values outside the mask are ignored.
        population: Number of samples of the grid that the points belong to, or infinite if they are not on a grid.
        center: Whether the mean of each signal and channel over the training points is subtracted.
        distributed: Whether the processes of :mod:`torch.distributed` hold different samples of the same signals.
    """

    solver: Literal["grid", "line", "points"] = "points"

    def __init__(self, samples: FittedSamples, values: Tensor, population: float, center: bool, distributed: bool) -> None:
        self.samples = samples
        self.values = values
        self.population = population
        self.center = center
        self.distributed = distributed
        self.dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
        moments, diagonal = samples.moments()
        parts = [self._masked(part, values[part]) for part in self._slices(1)]
        sums = torch.cat([part.sum(2, dtype=torch.float64) for part in parts])
        magnitude = torch.cat([torch.linalg.vector_norm(part, 1, (1, 2), dtype=torch.float64) for part in parts])
        ones = torch.full((1,), float(values.shape[2]), dtype=torch.float64, device=values.device)
        counts = ones if samples.mask is None else samples.mask.sum(1, dtype=torch.float64)
        total = self.summed(
            torch.cat([sums, *(row.expand(len(values))[:, None] for row in (counts, diagonal, magnitude))], 1)
        )
        total, magnitude = total[:, :-1], total[:, -1]
        self.counts = total[:, -2]
        bad = ((self.counts == 0) | ~total.isfinite().all(1)).nonzero().flatten().tolist()
        if bad:
            raise InputError(f"signals {bad} have no training point, or values or coordinates there that are not finite")
        self.mean = total[:, :-2] / self.counts[:, None] if center else torch.zeros_like(sums)
        self.unit = total[:, -1] / self.counts
        """Mean of the joint diagonal over the training points, ``(S,)``: the unit of relative ridges."""
        self.value_scale = power_of_two(magnitude / (self.counts * values.shape[1]), self.dtype)
        """Power of two that values are divided by, ``(S,)``."""
        self.feature_scale = float(power_of_two(self.unit.mean().sqrt(), self.dtype))
        """Power of two that joint features are divided by."""
        self.bases, self.spectrum = self._factor(moments)
        self._shared: FittedSamples | None = None

    def select(self, signals: slice, mask: Tensor) -> PointProblem:
        """The problem of some signals under another mask, ``(s or 1, P)``."""
        samples = self.samples.select(signals).with_mask(mask)
        return PointProblem(samples, self.values[signals], self.population, self.center, self.distributed)

    def summed(self, x: Tensor) -> Tensor:
        """The sum over the processes that hold other samples of the same signals."""
        if self.distributed:
            x = x.contiguous()
            torch.distributed.all_reduce(x)
        return x

    def solve(
        self,
        ridge: float,
        iterations: int,
        tolerance: float,
        precondition: bool,
        initial: Sequence[Tensor] | None = None,
        right: tuple[Tensor, Tensor] | None = None,
    ) -> list[Minimum]:
        """Minimises by conjugate gradients, one group of signals after another.

        Args:
            ridge: Relative ridge.
            iterations: Most iterations.
            tolerance: Relative residual at which a signal stops.
            precondition: Whether to use the preconditioner.
            initial: ``z`` per group to start from; default zero.
            right: Numbers ``(S, C, P)`` at samples and their mask ``(S, P)``; the right-hand side of the normal equations
                is then the adjoint of these, in place of that of the values.

        Returns:
            The minima per group, of which :meth:`decode` makes weights.
        """
        found, reduce = [], self.summed if self.distributed else None
        for number, signals in enumerate(self._groups()):
            target = self._masked(signals, self._centered(signals)).contiguous()
            scale = self._scale(signals, ridge) if precondition else target.new_ones(1, 1, 1)
            operator, sums, unit = self._operator(signals), None, self._scaled_unit[signals]
            if right is not None:
                scaled = self._divided(right[0][signals], signals).to(self.dtype)
                sums = operator.with_mask(right[1][signals]).rmatvec(scaled)
            # the length of preconditioned columns is about one
            norm = scale.shape[-1] if precondition else unit * self.counts[signals]
            problem = LeastSquares(operator, target, ridge * unit, scale, norm, reduce, sums)
            minimum = conjugate_gradients(problem, iterations, tolerance, initial[number] if initial else None)
            found.append(replace(minimum, squared_error=minimum.squared_error * self.value_scale[signals].square()))
        return found

    def solve_directly(self) -> DirectSolution | None:
        """The solution of least norm without a ridge, from singular values in float64; ``None`` if that takes too long.

        Weights are those of float64, rounded to the data's dtype. Where rounding raises the squared error, weights of a
        small ridge are taken: of the ridge that gives rounded weights the least error.
        """
        signals, channels, points = self.values.shape
        columns = math.prod(encoder.num_features for encoder in self.samples.encoders)
        alone = not self.samples.shared or (self.samples.mask is not None and len(self.samples.mask) > 1)
        numbers = points * columns * (signals if alone else 1)
        if self.distributed or numbers > MAX_DIRECT_NUMBERS or numbers * min(points, columns) > MAX_DIRECT_OPERATIONS:
            return None
        matrices = self.samples.dense() / self.feature_scale
        every = slice(0, signals)
        target = self._masked(every, self._centered(every)).double()
        solved = []
        for n, matrix in enumerate(matrices):
            trained = slice(None) if self.samples.mask is None else self.samples.mask[n % len(self.samples.mask)]
            part = target[n : n + 1] if alone else target
            solved.append(_least_norm(matrix[trained], part[..., trained], self.dtype))
        weight, relative, error, excess = (torch.cat(column) for column in zip(*solved, strict=True))
        weight = weight.double() * (self.value_scale / self.feature_scale)[:, None, None]
        shape = (signals, channels, *(encoder.num_features for encoder in self.samples.encoders))
        return DirectSolution(weight.to(self.dtype).reshape(shape), relative, error * self.value_scale.square(), excess)

    def decode(self, z: Sequence[Tensor]) -> Tensor:
        """Weights ``(S, C, K_1, ..., K_D)`` from ``z`` per group."""
        ranks, bases = [basis.shape[1] for basis in self.bases], [basis.to(self.dtype) for basis in self.bases]
        weight = torch.cat([mode_products(part.reshape(*part.shape[:2], *ranks), bases) for part in z])
        return weight.mul_(self.value_scale.to(self.dtype).reshape(-1, *[1] * (weight.ndim - 1)))

    def squared_error(self, z: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Sum of squared errors at the samples of another mask ``(S or 1, P)``: ``(S,)`` float64."""
        errors = []
        for part, signals in zip(z, self._groups(), strict=True):
            where = mask if len(mask) == 1 else mask[signals]
            values = torch.where(where[:, None], self._centered(signals), 0.0)
            error = self._operator(signals).with_mask(where).matvec(part) - values
            squares = error.square().flatten(1).sum(1, dtype=torch.float64)
            errors.append(squares * self.value_scale[signals].square())
        return self.summed(torch.cat(errors))

    def _factor(self, moments: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Per axis ``(K_a, R_a)`` eigenvectors, and the joint products of the eigenvalues, ``(R_1 ... R_D,)``; float64."""
        parts = torch.split(self.summed(torch.cat([m.flatten() for m in moments])), [m.numel() for m in moments])
        bases, spectrum = [], torch.ones(1, dtype=torch.float64, device=self.values.device)
        for moment in [part.reshape(m.shape) for part, m in zip(parts, moments, strict=True)]:
            eigenvalues, vectors = eigh(moment)
            rank = max(1, int((eigenvalues > 1e-14 * eigenvalues[-1]).sum()))
            basis = vectors[:, -rank:].contiguous()
            if self.distributed:  # eigenvectors differ between machines
                torch.distributed.broadcast(basis, 0)
            bases.append(basis)
            trace = moment.diagonal().sum().clamp_min(torch.finfo(torch.float64).tiny)
            spectrum = torch.outer(spectrum, eigenvalues[-rank:].clamp_min(0) / trace).flatten()
        bases[0] = bases[0] / self.feature_scale
        # the trace of the true matrix differs from the product of the axes' traces where the axes are correlated
        return bases, spectrum * float(self._scaled_unit.mean())

    @property
    def _scaled_unit(self) -> Tensor:
        """:attr:`unit` of the divided features."""
        return self.unit / self.feature_scale**2

    def _masked(self, signals: slice, values: Tensor) -> Tensor:
        """Values of some signals, zero outside the mask."""
        mask = self.samples.select(signals).mask
        return values if mask is None else torch.where(mask[:, None], values, 0.0)

    def _centered(self, signals: slice) -> Tensor:
        """Values of some signals without their means, divided by their scale, ``(s, C, P)`` in the computation's dtype."""
        mean = self._divided(self.mean[signals, :, None], signals)
        return self._divided(self.values[signals].to(self.dtype), signals) - mean.to(self.dtype)

    def _divided(self, x: Tensor, signals: slice) -> Tensor:
        """``(s, C, P)`` divided by the scales of the values of some signals."""
        scale = self.value_scale[signals]
        return x if bool((scale == 1).all()) else x * (1 / scale[:, None, None]).to(x.dtype)

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, start + size) for start in range(0, len(self.values), size)]

    def _groups(self) -> list[slice]:
        """Ranges of signals that are solved together."""
        # from numbers that are equal in all processes
        samples = min(self.population, float(self.counts.max())) if self.distributed else self.values.shape[2]
        numbers = self.values.shape[1] * max(int(samples), self.spectrum.numel())
        return self._slices(max(1, (GROUP_NUMBERS if self.values.device.type == "cpu" else 1 << 28) // numbers))

    def _operator(self, signals: slice) -> FittedSamples:
        """The linear map of some signals in the bases; cached if all signals share it."""
        if not self.samples.shared:
            return self.samples.select(signals).to(self.dtype, self.bases)
        self._shared = self._shared or self.samples.to(self.dtype, self.bases)
        return self._shared.select(signals)

    def _scale(self, signals: slice, ridge: float) -> Tensor:
        """The inverse of the preconditioner's diagonal, ``(s, 1, K)``."""
        effective, absolute = self.counts[signals] * self._damping(ridge), ridge * self._scaled_unit[signals]
        scale = 1 / (effective[:, None, None] * self.spectrum + absolute[:, None, None])
        return scale.nan_to_num(0.0, posinf=0.0).to(self.dtype)

    def _damping(self, ridge: float) -> float:
        r"""The effective share of the training points in the preconditioner.

        For random points the normal equations have about the eigenvalue :math:`P' \lambda`, not :math:`P \lambda`, with
        :math:`P' = P - \sum_i P' \lambda_i / (P' \lambda_i + \rho)`, a fixed point of random-matrix theory, found by
        bisection. On a full grid the share is one; on a part of a grid it is between the two.
        """
        count, rho = float(self.counts.mean()), ridge * float(self._scaled_unit.mean())
        share = count / self.population
        low, high = math.log(1e-3), 0.0
        if share >= 1:
            return 1.0
        for _ in range(8):  # to 3 %, which is accurate enough for the number of iterations
            middle = (low + high) / 2
            used = self.spectrum * (count * math.exp(middle))
            degrees = float((used / (used + rho)).nan_to_num(0.0).sum()) / count  # per training point
            # for a finite population: (f - h) / (1 - h) with h = f degrees, divided by f
            left = (1 - degrees) / (1 - share * degrees) if degrees < 1 else 0.0
            low, high = (middle, high) if math.exp(middle) < left else (low, middle)
        return math.exp(low)


def point_samples(
    values: Tensor,
    encoders: Sequence[Encoder],
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    mask: Tensor | None,
    index: Tensor | None,
    distributed: bool,
) -> tuple[FittedSamples, Tensor, float]:
    """The samples as a linear map, their values ``(S, C, P)``, and the number of samples of the grid (see PointProblem)."""
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
    """``rows`` with an axis of signals, on the device of the values ``(S, C, P)``."""
    rows = (rows[None] if rows.ndim == ndim - 1 else rows).to(values.device)
    signals, _, points = values.shape
    if rows.ndim != ndim or rows.shape[1] != points or len(rows) not in (1, signals):
        raise InputError(f"{name} hold {points} points of {signals} signals, or of all; got shape {tuple(rows.shape)}")
    return rows

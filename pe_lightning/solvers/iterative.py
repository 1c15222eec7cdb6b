"""Ridge least squares at scattered samples by preconditioned conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg import LeastSquares, Minimum, conjugate_gradients, eigh, mode_products
from pe_lightning.solvers import dense
from pe_lightning.solvers.samples import FittedSamples, summed

GROUP_NUMBERS = 1 << 22
"""Largest size of a vector of the iteration on a CPU: signals are solved in groups, whose vectors fit in its cache."""


def power_of_two(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The power of two nearest to positive numbers, one for others: dividing by it is exact, and squares are then normal."""
    largest = {torch.float32: 100, torch.float64: 900}[dtype]
    exponent = torch.frexp(x).exponent.clamp(-largest, largest)
    return torch.ldexp(torch.ones_like(x), torch.where(x > 0, exponent, 0))


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
        self.samples, self.values, self.population = samples, values, population
        self.center, self.distributed = center, distributed
        self.summed = partial(summed, distributed=distributed)
        self.dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
        moments, diagonal = samples.moments()
        parts = [self._masked(part, values[part]) for part in self._slices(1)]
        sums = torch.cat([part.sum(2, dtype=torch.float64) for part in parts])
        magnitude = torch.cat([torch.linalg.vector_norm(part, 1, (1, 2), dtype=torch.float64) for part in parts])
        ones = torch.full((1,), float(values.shape[2]), dtype=torch.float64, device=values.device)
        counts = ones if samples.mask is None else samples.mask.sum(1, dtype=torch.float64)
        rows = [row.expand(len(values))[:, None] for row in (counts, diagonal, magnitude)]
        total = self.summed(torch.cat([sums, *rows], 1))
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

    def with_values(self, values: Tensor) -> PointProblem:
        """The problem of other values ``(S, C, P)`` at the same samples."""
        return PointProblem(self.samples, values, self.population, self.center, self.distributed)

    def select(self, signals: slice, mask: Tensor) -> PointProblem:
        """The problem of some signals under another mask, ``(s or 1, P)``."""
        samples = self.samples.select(signals).with_mask(mask)
        return PointProblem(samples, self.values[signals], self.population, self.center, self.distributed)

    def solve(
        self,
        ridge: float,
        iterations: int,
        tolerance: float,
        precondition: bool,
        initial: Sequence[Tensor] | None = None,
        right: Sequence[tuple[FittedSamples, Tensor]] | None = None,
    ) -> list[Minimum]:
        """Minimises by conjugate gradients, one group of signals after another; :meth:`decode` makes weights of the minima.

        Args:
            ridge: Relative ridge.
            iterations: Most iterations.
            tolerance: Relative residual at which a signal stops.
            precondition: Whether to use the preconditioner.
            initial: ``z`` per group to start from; default zero.
            right: Samples with the same encoders, and numbers ``(S, C, P)`` there; the sum of their adjoints replaces the
                values' adjoint.
        """
        found, reduce = [], self.summed if self.distributed else None
        for number, signals in enumerate(self._groups()):
            target = self._masked(signals, self._centered(signals)).contiguous()
            scale = self._scale(signals, ridge) if precondition else target.new_ones(1, 1, 1)
            operator, sums, unit = self._operator(signals), None, self._scaled_unit[signals]
            for samples, numbers in right or ():
                scaled = self._divided(numbers[signals], signals).to(self.dtype)
                adjoint = samples.to(self.dtype, self.bases).select(signals).rmatvec(scaled)
                sums = adjoint if sums is None else sums + adjoint
            # the length of preconditioned columns is about one
            norm = scale.shape[-1] if precondition else unit * self.counts[signals]
            problem = LeastSquares(operator, target, ridge * unit, scale, norm, reduce, sums)
            minimum = conjugate_gradients(problem, iterations, tolerance, initial[number] if initial else None)
            found.append(replace(minimum, squared_error=minimum.squared_error * self.value_scale[signals].square()))
        return found

    def solve_directly(self) -> list[Minimum] | None:
        """The minima of least norm without a ridge, with weights as ``z``; ``None`` if that takes too long."""
        signals, channels, points = self.values.shape
        columns = math.prod(encoder.num_features for encoder in self.samples.encoders)
        alone = not self.samples.shared or (self.samples.mask is not None and len(self.samples.mask) > 1)
        numbers = points * columns * (signals if alone else 1)
        operations = numbers * min(points, columns)
        if self.distributed or numbers > dense.MAX_NUMBERS or operations > dense.MAX_OPERATIONS:
            return None
        matrices = self.samples.dense() / self.feature_scale
        every = slice(0, signals)
        target = self._masked(every, self._centered(every)).double()
        solved = []
        for n, matrix in enumerate(matrices):
            trained = slice(None) if self.samples.mask is None else self.samples.mask[n % len(self.samples.mask)]
            part = target[n : n + 1] if alone else target
            found = dense.least_norm(matrix[trained], part[..., trained], self.dtype)
            scale = self.value_scale[n : n + 1] if alone else self.value_scale
            weight = (found.z.double() * (scale / self.feature_scale)[:, None, None]).to(self.dtype)
            weight = weight.reshape(-1, channels, *(encoder.num_features for encoder in self.samples.encoders))
            solved.append(replace(found, z=weight, squared_error=found.squared_error * scale.square()))
        return solved

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
        return self.unit / self.feature_scale**2

    def _masked(self, signals: slice, values: Tensor) -> Tensor:
        mask = self.samples.select(signals).mask
        return values if mask is None else torch.where(mask[:, None], values, 0.0)

    def _centered(self, signals: slice) -> Tensor:
        """Values without their means, divided by their scale, ``(s, C, P)`` in the computation's dtype."""
        mean = self._divided(self.mean[signals, :, None], signals)
        return self._divided(self.values[signals].to(self.dtype), signals) - mean.to(self.dtype)

    def _divided(self, x: Tensor, signals: slice) -> Tensor:
        scale = self.value_scale[signals]
        return x if bool((scale == 1).all()) else x * (1 / scale[:, None, None]).to(x.dtype)

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, start + size) for start in range(0, len(self.values), size)]

    def _groups(self) -> list[slice]:
        # from numbers that are equal in all processes
        samples = min(self.population, float(self.counts.max())) if self.distributed else self.values.shape[2]
        numbers = self.values.shape[1] * max(int(samples), self.spectrum.numel())
        return self._slices(max(1, (GROUP_NUMBERS if self.values.device.type == "cpu" else 1 << 28) // numbers))

    def _operator(self, signals: slice) -> FittedSamples:
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

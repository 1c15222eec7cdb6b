"""The scattered least-squares problem of a set of signals: data, means, axis bases, preconditioner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg import mode_products
from pe_lightning.solvers.scattered_cg import Problem, Reduce, Result, conjugate_gradients
from pe_lightning.solvers.scattered_samples import Operator, Samples

__all__ = ["ScatteredProgress", "System", "all_reduce"]

GROUP_NUMBERS = {"cpu": 1 << 22}
"""Numbers of one vector of the iteration: signals are solved in groups of that size, which on a CPU stay in its cache."""
GROUP_NUMBERS_DEFAULT = 1 << 28


@dataclass(frozen=True)
class ScatteredProgress:
    """Where a solve is.

    Args:
        signals: Signals whose weights are final.
        num_signals: All signals.
        iteration: Iteration of the group at work.
        relative_residual: The largest of the group's signals.
    """

    signals: int
    num_signals: int
    iteration: int
    relative_residual: float


def all_reduce(x: Tensor) -> Tensor:
    """The sum over the processes of the default group."""
    x = x.contiguous()
    torch.distributed.all_reduce(x)
    return x


class System:
    r"""Ridge least squares of ``S`` signals at scattered points, in the eigenbases of the axes.

    With :math:`\lambda_a, V_a` the eigenvalues and vectors of the mean of :math:`\psi_a \psi_a^T` over the training
    points, weights are :math:`w = (V_1 \otimes \dots \otimes V_D) z`. Were the points a full grid, the normal equations of
    ``z`` would be diagonal, :math:`P \prod_a \lambda_a + \rho`; that diagonal, damped, is the preconditioner. Directions
    that the points do not see, below 1e-14 of the largest eigenvalue, are left out: their weights are zero.

    Args:
        samples: Where the samples are, and which of them are trained on.
        values: ``(S, C, *samples)``; what lies off the mask may be anything, NaN included.
        dtype: To compute in.
        center: Whether the mean of each signal and channel over the training points is taken out.
        reduce: Sums over processes that hold different samples of the same signals; ``None``: there is one.
    """

    def __init__(
        self, samples: Samples, values: Tensor, dtype: torch.dtype, center: bool = True, reduce: Reduce | None = None
    ) -> None:
        self.samples = samples
        self.values = values
        self.dtype = dtype
        self.center = center
        self.reduce = reduce
        self.num_signals = len(values)
        diagonal = samples.diagonal().expand(self.num_signals)
        sums = [self._masked(group).sum(dim=tuple(range(2, values.ndim)), dtype=torch.float64) for group in self._slices(1)]
        total = torch.cat([torch.cat(sums), samples.counts().expand(self.num_signals)[:, None], diagonal[:, None]], 1)
        total = total if reduce is None else reduce(total)
        self.counts = total[:, -2]
        _check(self.counts, total)
        self.mean = total[:, :-2] / self.counts[:, None]
        if not center:
            self.mean = torch.zeros_like(self.mean)
        self.unit = total[:, -1] / self.counts
        """Mean of the joint diagonal over the training points, ``(S,)``: what a relative ridge of 1 stands for."""
        self.bases, self.spectrum = self._factor()
        self._common: Operator | None = None

    # -- preparation --------------------------------------------------------------------------------------------------

    def _factor(self) -> tuple[list[Tensor], Tensor]:
        """Per axis ``(K_a, R_a)`` eigenvectors, and the products of the eigenvalues, ``(R_1, ..., R_D)``; float64."""
        moments = self.samples.moments()
        if self.reduce is not None:
            together = self.reduce(torch.cat([m.flatten() for m in moments]))
            parts = torch.split(together, [m.numel() for m in moments])
            moments = [part.reshape(m.shape) for part, m in zip(parts, moments, strict=True)]
        bases, spectrum = [], torch.ones((), dtype=torch.float64, device=self.values.device)
        for moment in moments:
            eigenvalues, vectors = _eigh(moment)
            kept = max(1, int((eigenvalues > 1e-14 * eigenvalues[-1]).sum()))
            basis = vectors[:, -kept:].contiguous()
            if self.reduce is not None:  # one basis everywhere, whatever the machines' LAPACKs make of it
                torch.distributed.broadcast(basis, 0)
            bases.append(basis)
            trace = moment.diagonal().sum().clamp_min(torch.finfo(torch.float64).tiny)
            spectrum = spectrum[..., None] * (eigenvalues[-kept:].clamp_min(0) / trace)
        # each axis to trace one, and the whole to the trace of the true matrix, which axes that go together may change
        return bases, spectrum * float(self.unit.mean())

    def _masked(self, signals: slice) -> Tensor:
        """Values of some signals, zero off the mask."""
        mask, values = self.samples.mask_of(signals), self.values[signals]
        return values if mask is None else torch.where(mask, values, 0.0)

    def _target(self, signals: slice) -> Tensor:
        """As :meth:`_masked`, mean taken out, contiguous and in the dtype of the computation."""
        mask, values = self.samples.mask_of(signals), self.values[signals].to(self.dtype)
        mean = self.mean[signals].reshape(*values.shape[:2], *[1] * (values.ndim - 2)).to(self.dtype)
        return (values - mean if mask is None else torch.where(mask, values - mean, 0.0)).contiguous()

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, min(start + size, self.num_signals)) for start in range(0, self.num_signals, size)]

    def groups(self) -> list[slice]:
        """Signals that are solved together."""
        # numbers that all processes agree on, however many of the samples are their own
        samples = min(self.samples.population, float(self.counts.max())) if self.reduce else math.prod(self.samples.shape)
        numbers = self.values.shape[1] * max(int(samples), self.spectrum.numel())
        budget = GROUP_NUMBERS.get(self.values.device.type, GROUP_NUMBERS_DEFAULT)
        return self._slices(max(1, budget // numbers))

    # -- solving ------------------------------------------------------------------------------------------------------

    def operator(self, signals: slice) -> Operator:
        """The operator of some signals, in the bases; made once where all signals share it."""
        if not self.samples.common:
            return self.samples.operator(signals, self.bases, self.dtype)
        if self._common is None:
            self._common = self.samples.operator(slice(None), self.bases, self.dtype)
        return self._common

    def problem(self, signals: slice, ridge: float, precondition: bool) -> Problem:
        """The least-squares problem of some signals at a relative ridge."""
        absolute = ridge * self.unit[signals]
        if precondition:
            effective = self.counts[signals] * self._damping(ridge)
            shape = (-1, 1, *[1] * self.spectrum.ndim)
            scale = 1 / (effective.reshape(shape) * self.spectrum + absolute.reshape(shape))
            scale = scale.nan_to_num(0.0, posinf=0.0).to(self.dtype)
        else:
            scale = torch.ones([1] * (2 + self.spectrum.ndim), dtype=self.dtype, device=self.values.device)
        operator = self.operator(signals)
        mask = self.samples.mask_of(signals)
        return Problem(operator, mask, self._target(signals), absolute, scale, self.reduce)

    def _damping(self, ridge: float) -> float:
        r"""The share of the training points that is not used up by the degrees of freedom of the fit.

        Random points see a direction of eigenvalue :math:`\lambda` as :math:`P' \lambda`, :math:`P' = P - \sum_i P'
        \lambda_i / (P' \lambda_i + \rho)`, the fixed point of random-matrix theory: the directions already fitted are
        noise to the others. Found by bisection. On a full grid nothing is random and the share is one; on a share ``f`` of
        a grid it is between the two.
        """
        share = float(self.counts.mean()) / self.samples.population
        floor = 1e-3
        low, high = math.log(floor), 0.0
        if share >= 1:
            return 1.0
        count, rho = float(self.counts.mean()), ridge * float(self.unit.mean())
        for _ in range(8):  # to 3 %: the number of iterations hardly depends on it
            middle = (low + high) / 2
            used = self.spectrum * (count * math.exp(middle))
            degrees = float((used / (used + rho)).nan_to_num(0.0).sum()) / count  # per training point
            # of the whole population: (f - h) / (1 - h) with h = f degrees, divided by f
            left = (1 - degrees) / (1 - share * degrees) if degrees < 1 else 0.0
            low, high = (middle, high) if math.exp(middle) < left else (low, middle)
        return math.exp(low)

    def solve(
        self,
        ridge: float,
        iterations: int,
        tolerance: float,
        precondition: bool,
        initial: Sequence[Tensor] | None = None,
        progress: Callable[[ScatteredProgress], None] | None = None,
    ) -> list[Result]:
        """One result per group of :meth:`groups`; ``initial`` has one ``z`` per group."""
        results = []
        for number, signals in enumerate(self.groups()):
            done = signals.start

            def report(iteration: int, residual: float, done: int = done) -> None:
                if progress is not None:
                    progress(ScatteredProgress(done, self.num_signals, iteration, residual))

            problem = self.problem(signals, ridge, precondition)
            first = None if initial is None else initial[number]
            results.append(
                conjugate_gradients(problem, iterations, tolerance, first, report if progress is not None else None)
            )
        return results

    def encode(self, weight: Tensor) -> list[Tensor]:
        """Weights ``(S, C, K_1, ..., K_D)`` to ``z`` per group; what the points do not see is dropped."""
        bases = [basis.T.to(self.dtype) for basis in self.bases]
        return [mode_products(weight[signals].to(self.dtype), bases) for signals in self.groups()]

    def decode(self, z: Sequence[Tensor]) -> Tensor:
        """``z`` per group to weights ``(S, C, K_1, ..., K_D)``."""
        bases = [basis.to(self.dtype) for basis in self.bases]
        return torch.cat([mode_products(part, bases) for part in z])

    def squared_error(self, z: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Sum of squared errors at other samples, under ``mask`` ``(S or 1, *samples)``; ``(S,)`` float64."""
        other = self.samples.with_mask(mask)
        errors = []
        for part, signals in zip(z, self.groups(), strict=True):
            where = other.mask_of(signals)
            assert where is not None
            values = self.values[signals].to(self.dtype)
            mean = self.mean[signals].reshape(*values.shape[:2], *[1] * (values.ndim - 2)).to(self.dtype)
            prediction = self.operator(signals).forward(part) + mean
            errors.append(torch.where(where, prediction - values, 0.0).square().flatten(1).sum(1, dtype=torch.float64))
        total = torch.cat(errors)
        return total if self.reduce is None else self.reduce(total)


def _eigh(moment: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and vectors of a symmetric matrix; with a second route where LAPACK's first fails."""
    try:
        eigenvalues, vectors = torch.linalg.eigh(moment)
    except RuntimeError:  # torch.linalg.LinAlgError is one
        # divide and conquer can fail on many repeated eigenvalues; QR iterations are slower and do not
        plain = scipy.linalg.eigh(moment.cpu().numpy(), driver="ev")
        eigenvalues, vectors = (torch.from_numpy(part).to(moment) for part in plain)
    return eigenvalues, vectors


def _check(counts: Tensor, total: Tensor) -> None:
    if bool((counts == 0).any()):
        empty = (counts == 0).nonzero().flatten().tolist()
        raise InputError(f"a signal needs at least one training point; signals {empty} have none: see the mask")
    if not bool(total.isfinite().all()):
        wrong = (~total.isfinite()).any(1).nonzero().flatten().tolist()
        raise InputError(f"values or coordinates at training points are not finite, in signals {wrong}; repair or mask them")

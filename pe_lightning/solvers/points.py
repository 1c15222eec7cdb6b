"""The scattered least-squares problem of a set of signals: data, means, axis bases, preconditioner, solution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.errors import InputError
from pe_lightning.linalg import LeastSquares, Minimum, conjugate_gradients, eigh, mode_products
from pe_lightning.solvers.samples import MaskedGrid, Samples, ScatteredPoints

__all__ = ["PointProblem", "point_problem"]

GROUP_NUMBERS = {"cpu": 1 << 22}
"""Numbers of one vector of the iteration: signals are solved in groups of that size, which on a CPU stay in its cache."""
GROUP_NUMBERS_DEFAULT = 1 << 28


class PointProblem:
    r"""Ridge least squares of ``S`` signals at scattered points, in the eigenbases of the axes.

    With :math:`\lambda_a, V_a` the eigenvalues and vectors of the mean of :math:`\psi_a \psi_a^T` over the training
    points, weights are :math:`w = (V_1 \otimes \dots \otimes V_D) z`. Were the points a full grid, the normal equations of
    ``z`` would be diagonal, :math:`P \prod_a \lambda_a + \rho`; that diagonal, damped, is the preconditioner. Directions
    that the points do not see, below 1e-14 of the largest eigenvalue, are left out: their weights are zero.

    Args:
        samples: Where the samples are, and which of them are trained on.
        values: ``(S, C, P)``; what lies off the mask may be anything, NaN included.
        population: Number of points there could be: those of the grid that the samples belong to, or no end of them.
        center: Whether the mean of each signal and channel over the training points is taken out.
        distributed: Whether the processes of :mod:`torch.distributed` hold different samples of the same signals.
    """

    def __init__(self, samples: Samples, values: Tensor, population: float, center: bool, distributed: bool) -> None:
        self.samples = samples
        self.values = values
        self.population = population
        self.center = center
        self.distributed = distributed
        self.dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
        moments, diagonal = samples.moments()
        sums = torch.cat([self._masked(part, values[part]).sum(2, dtype=torch.float64) for part in self._slices(1)])
        ones = torch.full((1,), float(values.shape[2]), dtype=torch.float64, device=values.device)
        counts = ones if samples.mask is None else samples.mask.sum(1, dtype=torch.float64)
        total = self.summed(torch.cat([sums, *(row.expand(len(values))[:, None] for row in (counts, diagonal))], 1))
        self.counts = total[:, -2]
        bad = ((self.counts == 0) | ~total.isfinite().all(1)).nonzero().flatten().tolist()
        if bad:
            raise InputError(f"signals {bad} have no training point, or values or coordinates there that are not finite")
        self.mean = total[:, :-2] / self.counts[:, None] if center else torch.zeros_like(sums)
        self.unit = total[:, -1] / self.counts
        """Mean of the joint diagonal over the training points, ``(S,)``: what a relative ridge of 1 stands for."""
        self.bases, self.spectrum = self._factor(moments)
        self._shared: Samples | None = None

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
        self, ridge: float, iterations: int, tolerance: float, precondition: bool, initial: Sequence[Tensor] | None = None
    ) -> list[Minimum]:
        """Minimises from ``initial`` on, one group of signals after another; :meth:`decode` makes weights of the minima."""
        found, reduce = [], self.summed if self.distributed else None
        for number, signals in enumerate(self._groups()):
            target = self._masked(signals, self._centered(signals)).contiguous()
            scale = self._scale(signals, ridge) if precondition else target.new_ones(1, 1, 1)
            problem = LeastSquares(self._operator(signals), target, ridge * self.unit[signals], scale, reduce)
            found.append(conjugate_gradients(problem, iterations, tolerance, initial[number] if initial else None))
        return found

    def decode(self, z: Sequence[Tensor]) -> Tensor:
        """``z`` per group to weights ``(S, C, K_1, ..., K_D)``."""
        ranks, bases = [basis.shape[1] for basis in self.bases], [basis.to(self.dtype) for basis in self.bases]
        return torch.cat([mode_products(part.reshape(*part.shape[:2], *ranks), bases) for part in z])

    def squared_error(self, z: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Sum of squared errors at other samples, under ``mask`` ``(S or 1, P)``; ``(S,)`` float64."""
        errors = []
        for part, signals in zip(z, self._groups(), strict=True):
            where = mask if len(mask) == 1 else mask[signals]
            values = torch.where(where[:, None], self._centered(signals), 0.0)
            error = self._operator(signals).with_mask(where).mv(part) - values
            errors.append(error.square().flatten(1).sum(1, dtype=torch.float64))
        return self.summed(torch.cat(errors))

    def _factor(self, moments: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Per axis ``(K_a, R_a)`` eigenvectors, and the joint products of the eigenvalues, ``(R_1 ... R_D,)``; float64."""
        parts = torch.split(self.summed(torch.cat([m.flatten() for m in moments])), [m.numel() for m in moments])
        bases, spectrum = [], torch.ones(1, dtype=torch.float64, device=self.values.device)
        for moment in [part.reshape(m.shape) for part, m in zip(parts, moments, strict=True)]:
            eigenvalues, vectors = eigh(moment)
            rank = max(1, int((eigenvalues > 1e-14 * eigenvalues[-1]).sum()))
            basis = vectors[:, -rank:].contiguous()
            if self.distributed:  # one basis everywhere, whatever the machines' LAPACKs make of it
                torch.distributed.broadcast(basis, 0)
            bases.append(basis)
            trace = moment.diagonal().sum().clamp_min(torch.finfo(torch.float64).tiny)
            spectrum = torch.outer(spectrum, eigenvalues[-rank:].clamp_min(0) / trace).flatten()
        # each axis to trace one, and the whole to the trace of the true matrix, which axes that go together may change
        return bases, spectrum * float(self.unit.mean())

    def _masked(self, signals: slice, values: Tensor) -> Tensor:
        """Values of some signals, zero off the mask."""
        mask = self.samples.select(signals).mask
        return values if mask is None else torch.where(mask[:, None], values, 0.0)

    def _centered(self, signals: slice) -> Tensor:
        """Values of some signals without their means, ``(s, C, P)`` in the dtype of the computation."""
        return self.values[signals].to(self.dtype) - self.mean[signals, :, None].to(self.dtype)

    def _slices(self, size: int) -> list[slice]:
        return [slice(start, start + size) for start in range(0, len(self.values), size)]

    def _groups(self) -> list[slice]:
        """Signals that are solved together."""
        # numbers that all processes agree on, however many of the samples are their own
        samples = min(self.population, float(self.counts.max())) if self.distributed else self.values.shape[2]
        numbers = self.values.shape[1] * max(int(samples), self.spectrum.numel())
        return self._slices(max(1, GROUP_NUMBERS.get(self.values.device.type, GROUP_NUMBERS_DEFAULT) // numbers))

    def _operator(self, signals: slice) -> Samples:
        """The operator of some signals, in the bases; made once where all signals share it."""
        if not self.samples.shared:
            return self.samples.select(signals).to(self.dtype, self.bases)
        self._shared = self._shared or self.samples.to(self.dtype, self.bases)
        return self._shared.select(signals)

    def _scale(self, signals: slice, ridge: float) -> Tensor:
        """The inverse of the preconditioner's diagonal, ``(s, 1, K)``."""
        effective, absolute = self.counts[signals] * self._damping(ridge), ridge * self.unit[signals]
        scale = 1 / (effective[:, None, None] * self.spectrum + absolute[:, None, None])
        return scale.nan_to_num(0.0, posinf=0.0).to(self.dtype)

    def _damping(self, ridge: float) -> float:
        r"""The share of the training points that is not used up by the degrees of freedom of the fit.

        Random points see a direction of eigenvalue :math:`\lambda` as :math:`P' \lambda`, :math:`P' = P - \sum_i P'
        \lambda_i / (P' \lambda_i + \rho)`, the fixed point of random-matrix theory, found by bisection. On a full grid
        nothing is random and the share is one; on a part of a grid it is between the two.
        """
        count, rho = float(self.counts.mean()), ridge * float(self.unit.mean())
        share = count / self.population
        low, high = math.log(1e-3), 0.0
        if share >= 1:
            return 1.0
        for _ in range(8):  # to 3 %: the number of iterations hardly depends on it
            middle = (low + high) / 2
            used = self.spectrum * (count * math.exp(middle))
            degrees = float((used / (used + rho)).nan_to_num(0.0).sum()) / count  # per training point
            # of the whole population: (f - h) / (1 - h) with h = f degrees, divided by f
            left = (1 - degrees) / (1 - share * degrees) if degrees < 1 else 0.0
            low, high = (middle, high) if math.exp(middle) < left else (low, middle)
        return math.exp(low)


def point_problem(
    values: Tensor,
    encoders: Sequence[Encoder],
    *,
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    mask: Tensor | None,
    index: Tensor | None,
    center: bool,
    distributed: bool,
) -> PointProblem:
    """The problem of :func:`~pe_lightning.solvers.solve_points`, which describes the arguments."""
    if not values.is_floating_point():
        raise InputError(f"values are floating-point numbers, computed in float32 or float64; got {values.dtype}")
    if distributed and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise InputError("distributed=True needs torch.distributed to be initialised; leave it out for one process")
    device = values.device
    axes = None if axes is None else [x.to(device) for x in axes]
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
        return PointProblem(samples, values.flatten(1, -2).movedim(-1, 1), math.prod(grid), center, distributed)
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
        if distinct and _grid_is_cheaper(grid, [encoder.num_features for encoder in encoders], index.shape[1]):
            whole = values.new_zeros(*values.shape[:2], count)
            whole.scatter_(2, index[:, None].expand(*values.shape[:2], -1), values)
            return PointProblem(MaskedGrid(encoders, axes, mask), whole, population, center, distributed)
        places = torch.unravel_index(index, grid)
        coords = torch.stack([x[place] for x, place in zip(axes, places, strict=True)], -1)
    if coords is None:
        raise InputError("say where the points are: coords, or axes with a mask or an index")
    points = ScatteredPoints(encoders, _rows("coords", coords, values, 3))
    return PointProblem(points, values, population, center, distributed)


def _rows(name: str, rows: Tensor, values: Tensor, ndim: int) -> Tensor:
    """``rows`` with an axis of signals, on the device of the values ``(S, C, P)``."""
    rows = (rows[None] if rows.ndim == ndim - 1 else rows).to(values.device)
    signals, _, points = values.shape
    if rows.ndim != ndim or rows.shape[1] != points or len(rows) not in (1, signals):
        raise InputError(f"{name} hold {points} points of {signals} signals, or of all; got shape {tuple(rows.shape)}")
    return rows


def _grid_is_cheaper(grid: Sequence[int], features: Sequence[int], points: int) -> bool:
    """Whether evaluating the whole grid takes fewer multiplications than evaluating the points one by one."""
    whole = sum(math.prod(grid[: a + 1]) * math.prod(features[a:]) for a in range(len(grid)))
    return whole <= points * sum(math.prod(features[a:]) for a in range(len(grid)))

"""Exact ridge regression of the complex encoding's linear layer on a grid, from sums over blocks of the data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg import (
    Banded,
    GridOperator,
    Identity,
    Operator,
    contraction_order,
    factor_axes,
    full_precision,
    mode_product,
    ridge_response,
)
from pe_lightning.signals import validation
from pe_lightning.solvers.choice import used_ridge
from pe_lightning.solvers.dense import excess_error
from pe_lightning.solvers.layers import LayerIndex, by_layers, norms, sums
from pe_lightning.solvers.solution import Solution


class LowRankWarning(UserWarning):
    """The features or the ridge leave too few degrees of freedom to represent most signals."""


class GridSolver:
    r"""Solves :math:`\min_W \|S - \bar S - W \times_1 \Psi_1 \dots \times_D \Psi_D\|^2 + \rho \|W\|^2`.

    With :math:`\Psi_a = U_a s_a V_a^T` per axis and :math:`s = s_1 \otimes \dots \otimes s_D`,
    :math:`W = \frac{s\,T}{s^2 + \rho} \times_1 V_1 \dots \times_D V_D`. The data are in
    :math:`T = (S - \bar S) \times_1 U_1^T \dots \times_D U_D^T` alone, a sum over blocks of :math:`S` that need not fit in
    memory
    together. :math:`\rho` is the ridge times the mean of the diagonal of the joint :math:`\Psi \Psi^T`, and :math:`\bar S`
    the mean of
    each signal and channel.

    The factors are float64. Products of the size of the data are computed in the data's dtype, float32 or float64 (half
    precision is converted to float32), and for banded features in float64.

    Args:
        features: The raw features of each axis at the training coordinates, ``(N_a, K_a)``, any ratio of the two.
        center: Whether the mean of each signal and channel is subtracted first, and returned.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 12, 42.
    The mean, the ridge and the truncation of the rank are additions.
    """

    def __init__(self, features: Sequence[Tensor | Operator], *, center: bool = True) -> None:
        self.factors = tuple(factor_axes(features))
        self.grid = tuple(factor.shape[0] for factor in self.factors)
        self.center = center
        self._banded = any(isinstance(factor.projector, Banded) for factor in self.factors)
        self._projectors: dict[int, GridOperator] = {}
        self._final = False
        self._count = 0
        # set by the first block: dtype of the data; sum and sum of squares per signal and channel, (2, S, C); sums in the
        # bases, (S, C, *m) with m the columns of each axis's projector
        self._dtype: torch.dtype | None = None
        self._sums: Tensor | None = None
        self._projection: Tensor
        self._spectrum: Tensor | None = None
        self._subtracted: Tensor | None = None

    @classmethod
    def of_grid(cls, features: Sequence[Tensor | Operator], values: Tensor, *, center: bool = True) -> GridSolver:
        """The solver of all values ``(S, N_1, ..., N_D, C)``.

        Means are subtracted before the projection, which is more accurate in float32.
        """
        solver = cls(features, center=center)
        solver._add(values, [0] * len(solver.grid), center)
        return solver

    def accumulate(self, block: Tensor, start: Sequence[int] | None = None) -> None:
        """Adds a block of the data. The blocks of all calls and processes cover the grid exactly once, in any order.

        A process without data adds one empty block, which has the number of signals and channels.

        Args:
            block: ``(S, n_1, ..., n_D, C)``.
            start: First sample of the block per axis, ``(D,)``; default zeros.
        """
        origin = [0] * len(self.grid) if start is None else [int(first) for first in start]
        if self._final:
            raise InputError("GridSolver: the sums are final after reduce() or solve(); make a new solver for more data")
        if any(first < 0 or first + n > size for first, n, size in zip(origin, block.shape[1:-1], self.grid, strict=True)):
            raise InputError(f"the block at {origin} of shape {tuple(block.shape)} is outside the grid of {list(self.grid)}")
        self._add(block, origin, subtract_mean=False)

    def _add(self, block: Tensor, origin: list[int], subtract_mean: bool) -> None:
        with full_precision(block.device):
            dtype = self._dtype = torch.promote_types(block.dtype, torch.float32)
            layers = block.movedim(-1, 1)
            numbers = math.prod(layers.shape[2:])
            projectors, corner = self._rows(origin, layers.shape[2:], torch.float64 if self._banded else dtype, block.device)

            def projected(index: LayerIndex) -> list[Tensor]:
                x = layers[index].to(dtype)
                if not self._banded or subtract_mean:
                    x = x.contiguous()  # products with banded features copy slices instead
                total = sums(x)
                mean = (total / numbers).to(dtype)
                if subtract_mean:
                    x = x - mean.reshape(*mean.shape, *[1] * len(self.grid))
                norm, projection = norms(x), x if projectors or subtract_mean else x.clone()
                for axis, rows in projectors:
                    projection = rows.rmatvec(projection, 2 + axis)
                return [total, norm, mean, projection]

            total, norm, mean, x = by_layers(projected, layers.shape, block.device)
            found = torch.stack([total, norm.square()])
            if not torch.isfinite(found.cpu()).all():
                raise InputError(f"the block at {origin} holds values that are NaN, infinite or too large to be squared")
            shape = (*x.shape[:2], *(factor.projector.shape[1] for factor in self.factors))
            if self._sums is None:
                self._sums = found
                self._projection = x if x.shape == shape else x.new_zeros(shape)
            else:
                self._sums += found
            if self._projection is not x:
                part = self._projection
                for axis, first in enumerate(corner):
                    part = part.narrow(2 + axis, first, x.shape[2 + axis])
                part += x
            self._count += numbers
            self._subtracted = mean if subtract_mean else None

    def _rows(
        self, origin: list[int], sizes: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> tuple[list[tuple[int, GridOperator]], list[int]]:
        """The matrices that multiply a block, with their axes, in their order, and the first column of each axis."""
        found, corner = [], [0] * len(self.grid)
        for axis in contraction_order(sizes, [factor.projector.shape[1] for factor in self.factors]):
            projector = self.factors[axis].projector
            if isinstance(projector, Identity) and sizes[axis] == self.grid[axis]:
                continue
            projector = self._projectors.setdefault(id(projector), projector.to(dtype, device))
            corner[axis], rows = projector.rows(origin[axis], origin[axis] + sizes[axis]).trimmed()
            found.append((axis, rows))
        return found, corner

    def reduce(self) -> None:
        """Adds the sums of all processes, once."""
        if self._final or not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
            return
        if self._sums is None:
            raise InputError("GridSolver: a process without data must still accumulate an empty block (S, 0, ..., C)")
        self._projection = self._projection.contiguous()
        count = torch.tensor(self._count, device=self._sums.device)
        for part in (self._projection, self._sums, count):
            dist.all_reduce(part)
        self._count = int(count)
        self._final = True

    def solve(self, ridge: float = 0.0) -> Solution:
        """The weights for one ridge. Further ridges only repeat the back-substitution.

        Zero, or a ridge below rounding (:func:`~pe_lightning.solvers.choice.used_ridge`), is the pseudo-inverse without
        joint
        singular values below ``eps`` of the data's dtype, times the largest axis, times the largest singular value.

        Warns:
            LowRankWarning: If the features or the ridge leave too few degrees of freedom to represent most signals.
        """
        validation.number("ridge", ridge, "[0, inf)", hint=" (1e-3 is moderate, 0 plain least squares)")
        samples = math.prod(self.grid)
        covered = 0 if self._sums is None or not self._sums.numel() else self._count
        if covered != samples:
            raise InputError(
                f"the blocks cover {covered} of the grid's {samples} samples; accumulate each sample once, and call "
                "reduce() where several processes hold parts"
            )
        assert self._sums is not None
        assert self._dtype is not None
        ridge = used_ridge(ridge, self._dtype)
        with full_precision(self._sums.device):
            total, centred = self._sums
            mean = self._subtracted
            if mean is None:  # rounded once: the same mean is subtracted and returned
                mean = total.div(samples).mul(self.center).to(self._dtype)
                centred = (centred - mean.double() * (2 * total - samples * mean.double())).clamp_min(0)
            if self._spectrum is None:
                self._spectrum, self._final = self._rotated(mean), True
            absolute = ridge * math.prod(factor.mean_diagonal for factor in self.factors)
            bases: tuple[Operator, ...] = ()
            if all(factor.method == "identity" for factor in self.factors):  # the centred samples, over one plus the ridge
                coefficients = self._spectrum.div(1 + ridge).reshape(*self._spectrum.shape[:2], *self.grid)
                residual = (centred * (ridge / (1 + ridge)) ** 2).sum(1)
                excess = torch.zeros_like(residual)
                joint_rank, effective = samples, samples / (1 + ridge)
            else:
                coefficients, residual, excess, joint_rank, effective = self._filtered(ridge, centred)
                bases = tuple(factor.basis for factor in self.factors)
        full, ranks = math.prod(min(factor.shape) for factor in self.factors), tuple(factor.rank for factor in self.factors)
        if (effective / full) ** (1 / len(self.factors)) < 0.1:
            warnings.warn(
                f"the fit has {effective:.3g} degrees of freedom of {full}: the features have ranks {list(ranks)}, "
                f"the ridge is {ridge:g}. The fit will be very smooth; choose a narrower encoder or a smaller ridge",
                LowRankWarning,
                stacklevel=2,
            )
        return Solution(
            coefficients=coefficients,
            bases=bases,
            mean=mean,
            squared_error=residual,
            count=torch.full((len(mean),), samples * mean.shape[1]),
            ridge=float(ridge),
            absolute_ridge=torch.full((len(mean),), absolute, dtype=torch.float64),
            solver="grid",
            ranks=ranks,
            joint_rank=joint_rank,
            effective_rank=effective,
            excess_error=excess,
            methods=tuple(factor.method for factor in self.factors),
        )

    def _filtered(self, ridge: float, centred: Tensor) -> tuple[Tensor, Tensor, Tensor, int, float]:
        """Coefficients by joint singular values; squared errors, their excess over the least ones, ``(S,)``; both ranks."""
        assert self._spectrum is not None
        spectrum, ranks = self._spectrum, [factor.rank for factor in self.factors]
        singular, response = ridge_response(self.factors, ridge, spectrum.dtype)
        joint_rank, effective = int((response > 0).sum()), float((singular * response).sum())
        left, factors = (x.to(spectrum) for x in (1 - singular * response, response))
        deficient = any(factor.rank < n for factor, n in zip(self.factors, self.grid, strict=True))
        coefficients = torch.empty_like(spectrum)

        def filtered(index: LayerIndex) -> list[Tensor]:
            some, changed = spectrum[index], coefficients[index]
            torch.mul(some, left, out=changed)
            found = [norms(changed), *([norms(some)] if deficient or ridge == 0 else [])]
            torch.mul(some, factors, out=changed)
            return [*found, *([norms(changed)] if ridge == 0 else [])]

        residual, *more = (norm.square() for norm in by_layers(filtered, spectrum.shape, spectrum.device))
        truncated = residual.sum(1)
        if deficient:
            # the part of the data outside the range of the features; exactly zero where they have full rank
            residual = residual + (centred - more[0]).clamp_min(0)
        error = residual.sum(1)
        excess = torch.zeros_like(error)
        if ridge == 0 and singular.numel():
            inside, squares = more
            # change of fitted values by rounding of factors and weights, and its inner product with the errors, as far as
            # vectors of random directions have one
            change = torch.finfo(spectrum.dtype).eps * float(singular.amax()) * squares.sum(1).sqrt()
            raised = error + change.square() + 2 * change * (error / centred[0].numel() / math.prod(self.grid)).sqrt()
            excess = excess_error(raised, error - truncated, inside.sum(1) + error - truncated)
        return coefficients.reshape(*spectrum.shape[:2], *ranks), error, excess, joint_rank, effective

    def _rotated(self, mean: Tensor) -> Tensor:
        """T of the centred data, ``(S, C, r_1 ... r_D)``; consumes the accumulated sums."""
        spectrum = self._projection
        self._projection = spectrum.new_empty(0)
        rotated = [(axis, f.rotation, f.condition) for axis, f in enumerate(self.factors) if f.rotation is not None]
        # in float32 the error would be 1e-7 times the joint condition number
        precise = math.prod(condition for _, _, condition in rotated) > 100
        dtype = spectrum.dtype if precise else self._dtype
        joint = None
        if self.center and self._subtracted is None:
            ones = [f.projector.rmatvec(f.singular_values.new_ones(f.shape[0])) for f in self.factors]
            joint = reduce(torch.kron, ones).to(spectrum).reshape(spectrum.shape[2:])

        def rotate(index: LayerIndex) -> list[Tensor]:
            some = spectrum[index]
            if joint is not None:
                some.addcmul_(joint, mean[index].to(some).reshape(*some.shape[:2], *[1] * joint.ndim), value=-1)
            some = some.to(dtype)
            for axis, rotation, _ in rotated:
                some = mode_product(some, rotation.T.to(spectrum.device, dtype), 2 + axis)
            return [some.to(self._dtype).flatten(2)]

        return by_layers(rotate, spectrum.shape, spectrum.device)[0] if rotated or joint is not None else spectrum.flatten(2)

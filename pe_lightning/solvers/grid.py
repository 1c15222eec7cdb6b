r"""Exact ridge regression of the complex encoding's linear layer on a grid, from sums over blocks of the data.

With :math:`\Psi_a = U_a s_a V_a^T` per axis the data enter through :math:`T = S \times_1 U_1^T \dots \times_D U_D^T` alone,
a sum over blocks of :math:`S`: a whole image, tiles that never fit in memory together, row blocks on several devices.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.linalg import AxisFactor, Matrix, contraction_order, factor_axis, full_precision
from pe_lightning.linalg.mode_products import mode_product, mode_products
from pe_lightning.solvers.shapes import outer, trailing
from pe_lightning.solvers.solution import GridSolution, LowRankWarning

__all__ = ["GridSolver"]

LOW_RANK = 0.1
"""Share of each axis's rank, in the geometric mean over the axes, below which :class:`LowRankWarning` is given. The
papers' encoders at their settings lie between 0.4 and 1; ``sine`` at K = 256 at 0.008."""
ROTATION_CONDITION = 100.0
"""Joint condition number up to which sums over local features are rotated in float32: the error is 1e-7 times it."""


class GridSolver:
    r"""Solves :math:`\min_W \|S - \bar S - W \times_1 \Psi_1 \dots \times_D \Psi_D\|^2 + \rho \|W\|^2`.

    For all signals and channels at once, with :math:`\rho` = ridge times the mean of the diagonal of the joint
    :math:`\Psi \Psi^T`, and :math:`\bar S` the mean of each signal and channel. In the joint eigenbasis, with
    :math:`s = s_1 \otimes \dots \otimes s_D`: :math:`W = \frac{s\,T}{s^2 + \rho} \times_1 V_1 \dots \times_D V_D`.

    The factors are float64; the products of the size of the data are in the data's dtype, float32 or float64 (the half
    precisions are widened), and for local features in float64, where they cost least.

    Args:
        features: The raw features of each axis at the training coordinates, ``(N_a, K_a)``, any ratio of the two.
        center: Whether the mean of each signal and channel is removed first, and returned.
        shift: Subtracted from all values before anything is summed, ``(S, C)``, and added to the mean again. Changes the
            result by rounding alone: with the mean itself, where it is known beforehand, float32 loses least.
        compact: Whether features of 512 or more columns may be treated as local (see :mod:`pe_lightning.linalg.local`).
        reuse: Whether to reuse factorisations of equal features (see :func:`pe_lightning.linalg.factor_axis`).

    Raises:
        InputError: If the features are not finite matrices.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 12, 42.
    The mean, the ridge and the rank decision are additions: on the papers' images they turn the 18.05 dB of rff into
    25.26, and the "-" of logf into 24.19.
    """

    def __init__(
        self,
        features: Sequence[Matrix],
        *,
        center: bool = True,
        shift: Tensor | None = None,
        compact: bool = True,
        reuse: bool = True,
    ) -> None:
        began = time.perf_counter()
        if not features:
            raise InputError("GridSolver: no axis was given; give the features (N_a, K_a) of each axis")
        known: dict[int, AxisFactor] = {}
        for matrix in features:  # axes that share their features share the factor, whatever the cache does
            if id(matrix) not in known:
                known[id(matrix)] = factor_axis(matrix, compact, reuse)
        self.factors = tuple(known[id(matrix)] for matrix in features)
        self.grid = tuple(factor.shape[0] for factor in self.factors)
        self.center = center
        self.shift = None if shift is None else shift.to(torch.float64)
        self._boxes: list[tuple[list[int], list[int]]] = []
        self._reduced = False
        self._spectrum: Tensor | None = None
        self._left: dict[int, Tensor] = {}
        self._seconds = time.perf_counter() - began
        # set by the first block
        self._dtype: torch.dtype | None = None
        self._sums: Tensor
        self._projection: Tensor

    # -- data in --------------------------------------------------------------------------------------------------------

    def accumulate(self, block: Tensor, start: Sequence[int] | None = None) -> None:
        """Adds a block of the data. The blocks of all calls and processes cover the grid exactly once, in any order.

        A process without data adds one empty block, for the shapes.

        Args:
            block: ``(S, n_1, ..., n_D, C)``.
            start: The block's first sample per axis, ``(D,)``; default the first of the grid.

        Raises:
            InputError: If the block has another shape or dtype than the first one, lies outside the grid, covers a
                sample again, or holds NaN or infinite values.
        """
        began = time.perf_counter()
        origin = [0] * len(self.grid) if start is None else [int(first) for first in start]
        self._check(block, origin)
        with full_precision(block.device):
            dtype = self._dtype = torch.promote_types(block.dtype, torch.float32)
            x = block.movedim(-1, 1).to(dtype)
            if not any(factor.local is not None for factor in self.factors):
                x = x.contiguous()  # products with local features copy what they need, a part at a time
            if self.shift is not None:
                x = x - trailing(self.shift.to(dtype), len(self.grid))
            sums = self._sums_of(x)
            if not torch.isfinite(sums).all():
                raise InputError(f"the block at {origin} holds values that are NaN, infinite or too large to be squared")
            x, corner = self._project(x, origin)
            if not self._boxes:
                self._sums = sums
                shape = (*x.shape[:2], *(self._width(factor) for factor in self.factors))
                self._projection = x if x.shape == shape else x.new_zeros(shape)
                if x.shape != shape:
                    self._at(corner, x.shape).copy_(x)
            else:
                self._sums += sums
                self._at(corner, x.shape).add_(x)
        self._boxes.append((origin, list(block.shape[1:-1])))
        self._seconds += time.perf_counter() - began

    def _check(self, block: Tensor, origin: list[int]) -> None:
        axes = len(self.grid)
        if block.ndim != axes + 2 or len(origin) != axes or not block.is_floating_point():
            raise InputError(
                f"a block has the shape (S, {', '.join(f'n_{a + 1}' for a in range(axes))}, C), floating-point values, "
                f"and a start of {axes} numbers; got {tuple(block.shape)}, {block.dtype}, start {origin}"
            )
        sizes = list(block.shape[1:-1])
        ends = [first + n for first, n in zip(origin, sizes, strict=True)]
        if any(first < 0 or end > n for first, end, n in zip(origin, ends, self.grid, strict=True)):
            raise InputError(f"the block at {origin} of {sizes} samples lies outside the grid of {list(self.grid)}")
        if self._reduced or self._spectrum is not None:
            raise InputError("GridSolver: the sums are final after reduce() or solve(); make a new solver for more data")
        if self._boxes:
            same = (block.shape[0], block.shape[-1]) == tuple(self._projection.shape[:2])
            if not same or torch.promote_types(block.dtype, torch.float32) != self._dtype:
                raise InputError(
                    f"blocks have the same numbers of signals and channels and the same dtype: {self._dtype}, "
                    f"{tuple(self._projection.shape[:2])}; got {block.dtype}, {(block.shape[0], block.shape[-1])}"
                )
        if self.shift is not None and tuple(self.shift.shape) != (block.shape[0], block.shape[-1]):
            raise InputError(f"a shift has the shape (S, C) = {(block.shape[0], block.shape[-1])}; got {self.shift.shape}")
        for other, extent in self._boxes:
            # an empty block meets none
            if all(
                max(first, low) < min(end, low + n) for first, end, low, n in zip(origin, ends, other, extent, strict=True)
            ):
                raise InputError(f"the block at {origin} of {sizes} samples overlaps the one at {other} of {extent}")

    def _sums_of(self, x: Tensor) -> Tensor:
        """Sum and sum of squares of each signal and channel, ``(2, S, C)``, and the number of samples in a third row."""
        flat = x.flatten(2)
        squares = torch.linalg.vector_norm(flat, dim=2, dtype=torch.float64).square()
        return torch.stack([flat.sum(2, dtype=torch.float64), squares, torch.full_like(squares, flat.shape[2])])

    def _width(self, factor: AxisFactor) -> int:
        return factor.shape[1] if factor.local is not None else factor.rank

    def _project(self, x: Tensor, origin: list[int]) -> tuple[Tensor, list[int]]:
        """The sums of one block, and where they belong: columns that no sample of the block sees are left out."""
        corner, dtype = [0] * len(self.grid), x.dtype
        if any(factor.local is not None for factor in self.factors):
            dtype = torch.float64
        widths = [self._width(factor) for factor in self.factors]
        for axis in contraction_order(x.shape[2:], widths):
            factor, first, size = self.factors[axis], origin[axis], x.shape[2 + axis]
            if factor.local is not None:
                corner[axis], rows = factor.local.rows(first, first + size).trimmed()
                x = rows.transposed_product(x, 2 + axis)
            else:
                left = self._dense_left(axis, dtype)[first : first + size]
                x = mode_product(x.to(dtype), left.T, 2 + axis)
        return x, corner

    def _dense_left(self, axis: int, dtype: torch.dtype) -> Tensor:
        key = id(self.factors[axis])
        if key not in self._left:
            self._left[key] = self.factors[axis].left().to(dtype)
        return self._left[key]

    def _at(self, corner: list[int], shape: Sequence[int]) -> Tensor:
        """The part of the sums that starts at ``corner``."""
        part = self._projection
        for a, first in enumerate(corner):
            part = part.narrow(2 + a, first, shape[2 + a])
        return part

    def reduce(self, group: dist.ProcessGroup | None = None) -> None:
        """Adds the sums of all processes of ``group``, once; without :mod:`torch.distributed` there is nothing to do."""
        if self._reduced or not (dist.is_available() and dist.is_initialized()) or dist.get_world_size(group) == 1:
            return
        began = time.perf_counter()
        if not self._boxes:
            raise InputError("GridSolver: a process without data must still accumulate an empty block (S, 0, ..., C)")
        self._projection = self._projection.contiguous()
        dist.all_reduce(self._projection, group=group)
        dist.all_reduce(self._sums, group=group)
        self._reduced = True
        self._seconds += time.perf_counter() - began

    # -- weights out ----------------------------------------------------------------------------------------------------

    def solve(self, ridge: float = 0.0) -> GridSolution:
        """The weights for one ridge. Further ridges cost the back-substitution alone.

        Args:
            ridge: Relative ridge, >= 0. Zero is the pseudo-inverse, truncated where the joint singular values are below
                ``eps`` of the data's dtype, times the largest axis, of the largest one.

        Raises:
            InputError: If the ridge is negative or the blocks do not cover the grid exactly once.

        Warns:
            LowRankWarning: If the encoders' features, or the ridge, leave so few degrees of freedom that hardly any
                signal can be represented.
        """
        if not ridge >= 0 or not math.isfinite(ridge):
            raise InputError(f"ridge must be a number >= 0, got {ridge!r}; 1e-3 is moderate, 0 is plain least squares")
        began = time.perf_counter()
        samples = math.prod(self.grid)
        covered = int(self._sums[2, 0, 0]) if self._boxes and self._sums.numel() else 0
        if covered != samples:
            raise InputError(
                f"the blocks cover {covered} of the grid's {samples} samples; accumulate each sample once, and call "
                "reduce() where several processes hold parts"
            )
        assert self._dtype is not None
        with full_precision(self._sums.device):
            mean, offset = self._means(samples)
            if self._spectrum is None:
                self._spectrum = self._rotated(offset)
            singular = outer([factor.singular_values for factor in self.factors])
            absolute = ridge * math.prod(factor.mean_diagonal for factor in self.factors)
            response, kept = self._filter(singular, ridge, absolute)
            coefficients = torch.empty_like(self._spectrum, dtype=self._dtype)
            residual = torch.empty_like(self._sums[0])
            inside = torch.empty_like(residual)
            for s, c in itertools.product(range(residual.shape[0]), range(residual.shape[1])):
                t = self._spectrum[s, c].double()  # one channel at a time: float64 is twice the memory
                coefficients[s, c] = t * response
                inside[s, c] = t.square().sum()
                residual[s, c] = (t * (1 - singular * response)).square().sum()
            if any(factor.rank < n for factor, n in zip(self.factors, self.grid, strict=True)):
                # what no weights can reach; zero, and not a difference of large numbers, where there is nothing
                residual += (self._sums[1] - offset * (2 * self._sums[0] - samples * offset) - inside).clamp_min(0)
            weight = mode_products(coefficients, [factor.right.to(self._dtype) for factor in self.factors])
        effective = float((singular * response).sum())
        self._warn(effective, ridge)
        self._seconds += time.perf_counter() - began
        return GridSolution(
            weight=weight,
            mean=mean,
            squared_error=residual.sum(1),
            count=samples * residual.shape[1],
            ridge=float(ridge),
            absolute_ridge=absolute,
            ranks=tuple(factor.rank for factor in self.factors),
            joint_rank=int(kept.sum()),
            effective_rank=effective,
            methods=tuple(factor.method for factor in self.factors),
            seconds=self._seconds,
        )

    def _means(self, samples: int) -> tuple[Tensor, Tensor]:
        """The mean that is returned and what it is above the shift, both ``(S, C)``; rounded once, the same in both."""
        assert self._dtype is not None
        shift = torch.zeros_like(self._sums[0]) if self.shift is None else self.shift
        if not self.center:
            return torch.zeros_like(shift, dtype=self._dtype), -shift
        mean = (self._sums[0] / samples + shift).to(self._dtype)
        return mean, mean - shift

    def _rotated(self, offset: Tensor) -> Tensor:
        """T of the centred data, ``(S, C, r_1, ..., r_D)``: the projection of a constant is subtracted, exactly.

        Takes the sums, which are final.
        """
        spectrum, ones, condition = self._projection, [], 1.0
        self._projection = spectrum.new_empty(0)
        for axis, factor in enumerate(self.factors):
            constant = spectrum.new_ones(self.grid[axis], dtype=torch.float64)
            if factor.local is not None:
                condition *= factor.condition
                constant = factor.local.transposed_product(constant, 0)
            else:
                constant = factor.left().T @ constant
            ones.append(constant)
        joint = outer(ones).to(spectrum.dtype)
        for s, c in itertools.product(range(spectrum.shape[0]), range(spectrum.shape[1])):
            spectrum[s, c].sub_(joint, alpha=float(offset[s, c]))
        if condition <= ROTATION_CONDITION:
            spectrum = spectrum.to(self._dtype)
        for axis, factor in enumerate(self.factors):
            if factor.local is not None:
                basis = factor.right / factor.singular_values
                spectrum = mode_product(spectrum, basis.T.to(spectrum.dtype), 2 + axis)
        return spectrum.to(self._dtype)

    def _filter(self, singular: Tensor, ridge: float, absolute: float) -> tuple[Tensor, Tensor]:
        """The factor ``s / (s^2 + rho)`` of each joint singular value, zero where it is not kept, and which are kept."""
        assert self._dtype is not None
        info = torch.finfo(self._dtype)
        # the second bound keeps weights finite when all features are far below anything sensible
        cutoff = info.tiny**0.5
        if ridge == 0 and singular.numel():
            cutoff = max(cutoff, max(max(factor.shape) for factor in self.factors) * info.eps * float(singular.amax()))
        kept = singular > cutoff
        return torch.where(kept, singular / (singular.square() + absolute), 0.0), kept

    def _warn(self, effective: float, ridge: float) -> None:
        full = math.prod(min(factor.shape) for factor in self.factors)
        if (effective / full) ** (1 / len(self.factors)) < LOW_RANK:
            ranks = " x ".join(str(factor.rank) for factor in self.factors)
            sizes = " x ".join(str(min(factor.shape)) for factor in self.factors)
            warnings.warn(
                f"the fit has {effective:.3g} degrees of freedom of {full}: the features have rank {ranks} of {sizes} and "
                f"the ridge is {ridge:g}. It will be very smooth; choose a narrower encoder or a smaller ridge",
                LowRankWarning,
                stacklevel=3,
            )

"""Exact fits of signals on grids, in blocks and at scattered points."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike, interpolates, per_axis
from pe_lightning.errors import InputError
from pe_lightning.linalg import Minimum, Operator, full_precision, min_tolerance
from pe_lightning.linalg.threads import sized_threads, solve_operations, threads_for_values
from pe_lightning.signals import validation
from pe_lightning.solvers.choice import axis_encoders, choose_grid, choose_points
from pe_lightning.solvers.dense import MAX_EXACT_EXCESS
from pe_lightning.solvers.features import encode, on_host
from pe_lightning.solvers.grid import GridSolver
from pe_lightning.solvers.holes import choose_with_holes, completed, known_mean
from pe_lightning.solvers.iterative import PointProblem
from pe_lightning.solvers.line import LineProblem, is_line, point_problem
from pe_lightning.solvers.samples import ScatteredPoints
from pe_lightning.solvers.solution import Solution, Solver

MAX_HOLE_ERROR = 1e-3
"""Largest error of the fit at missing samples, relative to the values, without a warning."""


class ConvergenceWarning(UserWarning):
    """A solve stopped at a large residual."""


@threads_for_values(passes=6)
def solve_grid(
    values: Tensor,
    encoder: EncoderLike | Sequence[EncoderLike],
    axes: Sequence[Tensor] | None = None,
    *,
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    center: bool = True,
    mask: Tensor | None = None,
) -> Solution:
    """Fits signals on a grid exactly, by ridge regression on the complex encoding of its coordinates.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, in [0, 1]. float64 is solved in float64, all else in float32.
        encoder: The encoder, by name, description or instance: one for all axes or one per axis.
        axes: One coordinate vector ``(N_a,)`` per axis, in [0, 1); default ``i / N_a``.
        ridge: Relative ridge, or ``auto``: chosen by held-out prediction (:func:`~pe_lightning.solvers.choose_grid`).
        sigma: ``auto`` to choose the width of the features too, ``given`` to keep the encoder.
        center: Whether the mean of each signal and channel is subtracted first.
        mask: The known samples of a grid with a few missing ones, ``(N_1, ..., N_D)`` or ``(S or 1, N_1, ..., N_D)``
            booleans; values elsewhere are ignored. Fits of many missing samples are by :func:`solve_points`.

    Warns:
        ConvergenceWarning: If the fit at missing samples is not reached.

    Example:
        >>> import torch
        >>> from pe_lightning.solvers import solve_grid
        >>> x = torch.arange(32) / 32
        >>> row = torch.sin(6 * x)[None, :, None]
        >>> solution = solve_grid(row[:, ::2], {"name": "gau", "num_features": 16}, [x[::2]], ridge=1e-3)
        >>> bool((solution.predict([x]) - row)[:, 2:-4].abs().max() < 0.02)
        True
    """
    if values.ndim < 3 or not values.is_floating_point():
        raise InputError(
            f"values have the shape (S, N_1, ..., N_D, C) and are floats; got {tuple(values.shape)}, {values.dtype}"
        )
    sizes = values.shape[1:-1]
    if axes is None:
        axes = [torch.arange(n, dtype=torch.float64) / n for n in sizes]
    shapes = [tuple(x.shape) for x in axes]
    if shapes != [(n,) for n in sizes]:
        raise InputError(f"axes are one coordinate vector per axis of the values, of {list(sizes)} entries; got {shapes}")
    began = time.perf_counter()
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if mask is not None:
        mask = (mask[None] if mask.ndim == len(sizes) else mask).to(values.device)
        if mask.dtype != torch.bool or mask.shape[1:] != sizes or len(mask) not in (1, len(values)):
            given = f"{tuple(mask.shape)}, {mask.dtype}"
            raise InputError(f"the mask of values {tuple(values.shape)} is boolean, (S or 1, *grid); got {given}")
    encoders = per_axis(encoder, len(axes))
    if mask is None:
        choice = choose_grid(values, axes, encoders, ridge, sigma, center=center)
    else:
        choice, values = choose_with_holes(values, axes, encoders, mask, center, ridge=ridge, sigma=sigma)
    if is_line(choice.encoders) and not interpolates(choice.encoders[0], axes[0]):
        solution = _solve_line(choice.encoders, axes[0].to(values.device), values, choice.ridge, center, False, mask)
        return replace(solution, choice=choice, seconds=time.perf_counter() - began)
    near, places = on_host(choice.encoders, axes, values.device)
    features = encode(near, places, places[0].device)
    if mask is None:
        solution = GridSolver.of_grid(features, values, center=center).solve(choice.ridge)
    else:
        solution = _solve_with_holes(features, values, mask, choice.ridge, center)
    return replace(solution, encoders=choice.encoders, choice=choice, seconds=time.perf_counter() - began)


def _solve_with_holes(features: Sequence[Operator], values: Tensor, mask: Tensor, ridge: float, center: bool) -> Solution:
    """The fit of the known samples, from values whose missing samples are interpolated."""
    mean = known_mean(values, mask, center)
    solver = GridSolver(features, center=False)
    with full_precision(values.device):
        filled, error = completed(values - mean, mask, solver.factors, ridge)
    if error > MAX_HOLE_ERROR:
        warnings.warn(
            f"the fit at the missing samples of a grid is reached to {error:.2g} of the values; raise the ridge (now "
            f"{ridge:.3g}, relative)",
            ConvergenceWarning,
            stacklevel=3,
        )
    solver.accumulate(filled)
    found = solver.solve(ridge)
    count = mask.flatten(1).sum(1).expand(len(values)) * values.shape[-1]
    return replace(found, mean=mean.flatten(1), count=count)


def solve_blocks(
    blocks: Iterable[tuple[Sequence[int], Tensor]],
    encoder: EncoderLike | Sequence[EncoderLike],
    axes: Sequence[Tensor],
    *,
    ridge: float = 1e-3,
    center: bool = True,
) -> Solution:
    """Fits signals on a grid as :func:`solve_grid`, from blocks: of an HDF5 file, a generator, or several processes.

    Under :mod:`torch.distributed` each process passes its own blocks; together they cover the grid once.

    Args:
        blocks: Pairs of the first sample of a block per axis, and its values ``(S, n_1, ..., n_D, C)``.
        encoder: As for :func:`solve_grid`.
        axes: Coordinates of the whole grid, ``(N_a,)`` per axis.
        ridge: Relative ridge; :func:`~pe_lightning.solvers.choose_grid` finds one from a part of the data.
        center: Whether the mean of each signal and channel is subtracted.
    """
    began = time.perf_counter()
    solver: GridSolver | None = None
    encoders: list[Encoder] = []
    line: list[tuple[Tensor, Tensor]] = []
    with sized_threads(solve_operations((1, *(len(x) for x in axes), 1), passes=6)):
        for start, block in blocks:
            if not encoders:
                encoders = axis_encoders(encoder, axes, None, block.shape[-1], block.device)
            if is_line(encoders):  # the weights are of the size of the data, so that collecting the blocks is affordable
                line.append((axes[0][start[0] : start[0] + block.shape[1]].to(block.device), block))
                continue
            if solver is None:
                near, places = on_host(encoders, axes, block.device)
                solver = GridSolver(encode(near, places, places[0].device), center=center)
            solver.accumulate(block, start)
        if line:
            x, values = (torch.cat(parts, axis) for axis, parts in enumerate(zip(*line, strict=True)))
            together = torch.distributed.is_available() and torch.distributed.is_initialized()
            found = _solve_line(encoders, x, values, ridge, center, together)
        elif solver is not None:
            solver.reduce()
            found = solver.solve(ridge)
        else:
            raise InputError("solve_blocks: there is no block; a process without data passes one empty block (S, 0, ..., C)")
    return replace(found, encoders=tuple(encoders), seconds=time.perf_counter() - began)


@threads_for_values(passes=100)
def solve_points(
    values: Tensor,
    encoder: EncoderLike | Sequence[EncoderLike],
    *,
    coords: Tensor | None = None,
    axes: Sequence[Tensor] | None = None,
    mask: Tensor | None = None,
    index: Tensor | None = None,
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    iterations: int = 100,
    tolerance: float = 1e-4,
    center: bool = True,
    distributed: bool = False,
) -> Solution:
    r"""Fits the linear layer of a complex encoding to scattered points, exactly, all signals in one call.

    Minimises :math:`\sum_p (y_p - w \cdot (\psi_1(x_{p1}) \otimes \dots \otimes \psi_D(x_{pD})))^2 + \rho |w|^2` per
    signal and channel. Three ways, each in a file of its own:

    1. One long axis of local features: banded Cholesky (:mod:`~pe_lightning.solvers.line`).
    2. Small problems without a ridge: singular values in float64, as the pseudo-inverse, with weights rounded to the data's
       dtype (:mod:`~pe_lightning.solvers.dense`; :attr:`Solution.excess_error` is the price of the rounding).
    3. All others: conjugate gradients, preconditioned where the ridge is positive (:mod:`~pe_lightning.solvers.iterative`).

    Points are samples of a grid by ``axes`` and ``mask``, or by ``axes`` and ``index``; any others by ``coords``.

    Args:
        values: ``(S, N_1, ..., N_D, C)`` with a mask, otherwise ``(S, P, C)``. Values outside the mask are ignored.
            float64 is computed in float64, other dtypes in float32.
        encoder: As for :func:`solve_grid`.
        coords: ``(P, D)`` or ``(S or 1, P, D)``. Ignored if ``axes`` and ``index`` are given.
        axes: Coordinate vectors of the grid, axis a of shape ``(N_a,)``.
        mask: ``(N_1, ..., N_D)`` or ``(S or 1, N_1, ..., N_D)`` booleans.
        index: Row-major positions in the grid, ``(P,)`` or ``(S or 1, P)``.
        ridge: :math:`\rho` relative to the mean over a signal's training points of the joint diagonal
            :math:`\prod_a |\psi_a|^2`; or ``auto``, chosen by :func:`~pe_lightning.solvers.choose_points`.
        sigma: ``auto`` to choose the width of the features too.
        iterations: Most iterations, each one evaluation and one adjoint.
        tolerance: Relative residual of the normal equations at which to stop, in the preconditioner's norm.
        center: Whether to subtract each signal's mean per channel over its training points first.
        distributed: Whether every process of :mod:`torch.distributed` calls this function with its own share of the points
            of the same signals, possibly none. All processes return the same weights.

    Warns:
        ConvergenceWarning: If the solver stops at a relative residual above 0.05, or, without a ridge, if weights in the
            dtype of the data cannot reach the least squared error to 5 %.
    """
    validation.integer("iterations", iterations)
    validation.number("tolerance", tolerance, "[0, 1)")
    began = time.perf_counter()
    options: dict[str, Any] = {"coords": coords, "axes": axes, "mask": mask, "index": index}
    options.update(center=center, distributed=distributed)
    choice = choose_points(values, encoder, ridge=ridge, sigma=sigma, **options)
    with full_precision(values.device):
        problem = point_problem(values, choice.encoders, **options)
        if choice.ridge == 0 and isinstance(problem, PointProblem) and (direct := problem.solve_directly()):
            found = _solution(problem, torch.cat([minimum.z for minimum in direct]), direct, choice.ridge, "dense")
            if (excess := float(found.excess_error.max())) > 0.05:
                dtype = str(found.weight.dtype).removeprefix("torch.")
                warnings.warn(
                    f"weights in {dtype} reach {1 + excess:.3g} times the least squared error, as the features depend "
                    "on each other; set a ridge of 1e-6 or more, or compute in float64",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            converged, seconds = found.excess_error <= MAX_EXACT_EXCESS, time.perf_counter() - began
            return replace(found, encoders=choice.encoders, choice=choice, converged=converged, seconds=seconds)
        results = problem.solve(choice.ridge, iterations, tolerance, choice.ridge > 0)
        weight = problem.decode([result.z for result in results])
        found = _solution(problem, weight, results, choice.ridge, problem.solver)
    residual, used = found.relative_residual, found.iterations
    converged = residual <= max(tolerance, min_tolerance(found.weight.dtype))
    worst = float(residual.max())
    if worst > 0.05 and not bool(converged.all()):
        warnings.warn(
            f"the solver stopped after {int(used.max())} iterations at a relative residual of {worst:.2g}; raise "
            f"iterations, or the ridge (now {choice.ridge:.3g}, relative)",
            ConvergenceWarning,
            stacklevel=2,
        )
    seconds = time.perf_counter() - began
    return replace(found, encoders=choice.encoders, choice=choice, converged=converged, seconds=seconds)


def _solution(
    problem: PointProblem | LineProblem, weight: Tensor, results: Sequence[Minimum], ridge: float, solver: Solver
) -> Solution:
    """The solution of a problem at points, without encoders and choice."""
    names = ("squared_error", "iterations", "relative_residual", "optimality", "excess_error")
    reached: dict[str, Any] = {name: torch.cat([getattr(result, name) for result in results]) for name in names}
    return Solution(
        coefficients=weight,
        mean=problem.mean.to(weight.dtype),
        count=(problem.counts * problem.values.shape[1]).long(),
        ridge=float(ridge),
        absolute_ridge=ridge * problem.unit,
        solver=solver,
        ranks=tuple(basis.shape[1] for basis in problem.bases),
        **reached,
    )


def _solve_line(
    encoders: Sequence[Encoder],
    x: Tensor,
    values: Tensor,
    ridge: float,
    center: bool,
    distributed: bool,
    mask: Tensor | None = None,
) -> Solution:
    problem = LineProblem(ScatteredPoints(encoders, x[None, :, None], mask), values.movedim(-1, 1), center, distributed)
    with full_precision(values.device):
        results = problem.solve(ridge)
        found = _solution(problem, problem.decode([result.z for result in results]), results, ridge, "line")
    return replace(found, encoders=tuple(encoders))

"""The documented functions for exact fits on grids, without Lightning."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encodings.complex import per_axis
from pe_lightning.errors import InputError
from pe_lightning.linalg import Matrix, encode_axis
from pe_lightning.solvers.choose import choose_grid
from pe_lightning.solvers.grid import GridSolver
from pe_lightning.solvers.solution import GridSolution

__all__ = ["solve_blocks", "solve_grid"]


def solve_grid(
    values: Tensor,
    encoder: EncoderLike | Sequence[EncoderLike],
    axes: Sequence[Tensor] | None = None,
    *,
    ridge: float | Literal["auto"] = "auto",
    sigma: Literal["given", "auto"] = "given",
    center: bool = True,
    compact: bool = True,
) -> GridSolution:
    """Fits signals on a grid exactly, by ridge regression on the complex encoding of its coordinates.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, in [0, 1]. float64 is solved in float64, all else in float32.
        encoder: The encoder, by name, description or instance: one for all axes or one per axis.
        axes: One coordinate vector ``(N_a,)`` per axis, in [0, 1); default ``i / N_a``.
        ridge: Relative ridge, or ``auto``: chosen by held-out prediction (:mod:`pe_lightning.solvers.choose`).
        sigma: ``auto`` to choose the width of the features too, ``given`` to leave the encoder as it is.
        center: Whether the mean of each signal and channel is taken out first.
        compact: Whether features of 512 or more columns are treated as local where they are.

    Returns:
        The solution, with ``encoders`` and ``choice``.

    Raises:
        InputError: If shapes do not fit, or values are not finite.

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
            f"values have the shape (S, N_1, ..., N_D, C) and are floating-point numbers; got {tuple(values.shape)}, "
            f"{values.dtype}"
        )
    sizes = values.shape[1:-1]
    coords = _axes(axes, sizes)
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    choice = choose_grid(values, coords, per_axis(encoder, len(sizes)), ridge, sigma)
    features = _encode(choice.encoders, coords, values.device, compact)
    shift = None
    if center:
        shift = values.flatten(1, -2).mean(1, dtype=torch.float64)
    solver = GridSolver(features, center=center, shift=shift, compact=compact)
    solver.accumulate(values)
    return dataclasses.replace(solver.solve(choice.ridge), encoders=choice.encoders, choice=choice)


def solve_blocks(
    blocks: Iterable[tuple[Sequence[int], Tensor]],
    encoder: EncoderLike | Sequence[EncoderLike],
    axes: Sequence[Tensor],
    *,
    ridge: float = 1e-3,
    center: bool = True,
    compact: bool = True,
) -> GridSolution:
    """As :func:`solve_grid`, for data that arrives in blocks: from HDF5, from a generator, or shared among processes.

    Under :mod:`torch.distributed` each process passes its own blocks; together they cover the grid once.

    Args:
        blocks: The first sample of a block per axis, and its values ``(S, n_1, ..., n_D, C)``.
        encoder: As for :func:`solve_grid`.
        axes: Coordinates of the whole grid, ``(N_a,)`` per axis.
        ridge: Relative ridge; :func:`~pe_lightning.solvers.choose.choose_grid` finds one from a part of the data.
        center: Whether the mean of each signal and channel is taken out.
        compact: Whether features of 512 or more columns are treated as local where they are.

    Raises:
        InputError: If the blocks do not cover the grid exactly once, or do not fit each other.
    """
    encoders = tuple(per_axis(encoder, len(axes)))
    solver: GridSolver | None = None
    for start, block in blocks:
        if solver is None:
            solver = GridSolver(_encode(encoders, axes, block.device, compact), center=center, compact=compact)
        solver.accumulate(block, start)
    if solver is None:
        raise InputError("solve_blocks: no block came; a process without data passes one empty block (S, 0, ..., C)")
    solver.reduce()
    return dataclasses.replace(solver.solve(ridge), encoders=encoders)


def _axes(axes: Sequence[Tensor] | None, sizes: Sequence[int]) -> list[Tensor]:
    if axes is None:
        return [torch.arange(n, dtype=torch.float64) / n for n in sizes]
    if [tuple(x.shape) for x in axes] != [(n,) for n in sizes]:
        raise InputError(
            f"axes are one coordinate vector per axis of the values, of {list(sizes)} entries; "
            f"got shapes {[tuple(x.shape) for x in axes]}"
        )
    return list(axes)


def _encode(encoders: Sequence[Encoder], axes: Sequence[Tensor], device: torch.device, compact: bool) -> list[Matrix]:
    """Features per axis; axes of one encoder and the same coordinates share them."""
    features: list[Matrix] = []
    for a, (encoder, x) in enumerate(zip(encoders, axes, strict=True)):
        same = (b for b in range(a) if encoders[b] is encoder and torch.equal(axes[b], x))
        b = next(same, None)
        features.append(encode_axis(encoder, x.to(device), compact) if b is None else features[b])
    return features

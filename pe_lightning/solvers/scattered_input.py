"""From what users hold, tensors in one of three layouts, to the system that is solved."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from numbers import Real
from typing import TypeAlias

import torch
from torch import Tensor

from pe_lightning.data.coordinates import point_coordinates
from pe_lightning.encoders import Encoder, EncoderLike
from pe_lightning.encodings.blending import Blended
from pe_lightning.encodings.complex import Complex, per_axis
from pe_lightning.errors import InputError
from pe_lightning.solvers.scattered_blended import BlendedSamples
from pe_lightning.solvers.scattered_free import FreeSamples
from pe_lightning.solvers.scattered_samples import GridSamples, Samples
from pe_lightning.solvers.scattered_system import System, all_reduce

__all__ = ["check_ridge", "make_system"]

Encoders: TypeAlias = "EncoderLike | Sequence[EncoderLike] | Complex"
"""One encoder, one per axis, or a complex encoding."""


def make_system(
    values: Tensor,
    encoder: Encoders,
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    mask: Tensor | None,
    index: Tensor | None,
    blending: bool = False,
    center: bool = True,
    dtype: torch.dtype | None = None,
    distributed: bool = False,
) -> System:
    """The least-squares problem of :func:`~pe_lightning.solvers.scattered.solve_points`, which describes the arguments.

    Raises:
        InputError: If shapes do not fit, values are not finite, or a signal has no training point.
    """
    if dtype is None:
        dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    if dtype not in (torch.float32, torch.float64) or not values.is_floating_point():
        raise InputError(f"the solver computes in float32 or float64; got dtype={dtype} and values of {values.dtype}")
    if distributed and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise InputError("distributed=True needs torch.distributed to be initialised; leave it out for one process")
    if mask is not None and axes is not None:
        samples, values = _masked(values, encoder, axes, mask, blending)
    else:
        samples, values = _listed(values, encoder, coords, axes, index, blending)
    return System(samples, values, dtype, center, all_reduce if distributed else None)


def check_ridge(ridge: object) -> float:
    """``ridge`` as a number, or an :class:`InputError`."""
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < math.inf:
        raise InputError(f"ridge is a number >= 0, relative to the mean joint diagonal, or 'auto'; got {ridge!r}")
    return float(ridge)


def _masked(
    values: Tensor, encoder: Encoders, axes: Sequence[Tensor], mask: Tensor, blending: bool
) -> tuple[Samples, Tensor]:
    """A mask over a grid whose values are all given."""
    grid = tuple(len(x) for x in axes)
    if mask.ndim == len(grid):
        mask = mask[None]
    fits = values.shape[1:-1] == grid == mask.shape[1:] and len(mask) in (1, len(values))
    if not fits or mask.dtype != torch.bool:
        sizes = ", ".join(map(str, grid))
        raise InputError(
            f"with axes of {grid} samples, values have the shape (S, {sizes}, C) and the mask is boolean, (S or 1, "
            f"{sizes}); got {tuple(values.shape)} and {tuple(mask.shape)}, {mask.dtype}"
        )
    if blending:
        coords = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, len(grid)).to(values.device)
        flat, where = values.flatten(1, -2).movedim(-1, 1), mask.flatten(1).to(values.device)
        blended = BlendedSamples(_blended(encoder, len(grid), values.device), coords, where)
        blended.population = math.prod(grid)
        return blended, flat
    encoders = _encoders(encoder, len(grid), values.device)
    samples = GridSamples(encoders, [x.to(values.device) for x in axes], mask.to(values.device))
    return samples, values.movedim(-1, 1)


def _listed(
    values: Tensor,
    encoder: Encoders,
    coords: Tensor | None,
    axes: Sequence[Tensor] | None,
    index: Tensor | None,
    blending: bool,
) -> tuple[Samples, Tensor]:
    """Training points one by one, by coordinates or by their positions in a grid."""
    if values.ndim != 3:
        raise InputError(
            f"values at points have the shape (S, P, C), got {tuple(values.shape)}; for a whole grid pass axes and mask"
        )
    population = math.inf
    if index is not None and axes is not None:
        index = (index[None] if index.ndim == 1 else index).to(values.device)
        axes = [x.to(values.device) for x in axes]
        grid = tuple(len(x) for x in axes)
        _check_rows("index", index, values, 2)
        if index.is_floating_point() or (index.numel() and not 0 <= int(index.min()) <= int(index.max()) < math.prod(grid)):
            raise InputError(f"index holds row-major positions in a grid of {grid}: whole numbers below {math.prod(grid)}")
        encoders = _encoders(encoder, len(grid), values.device)
        mask = torch.zeros(len(index), math.prod(grid), dtype=torch.bool, device=values.device).scatter_(1, index, True)
        distinct = int(mask.sum()) == index.numel()
        if distinct and not blending and _grid_is_cheaper(grid, encoders, index.shape[1]):
            whole = values.new_zeros(len(values), values.shape[2], math.prod(grid))
            whole.scatter_(2, index[:, None].expand(len(values), values.shape[2], -1), values.movedim(2, 1))
            return GridSamples(encoders, axes, mask.reshape(-1, *grid)), whole.reshape(*whole.shape[:2], *grid)
        coords, population = point_coordinates(axes, index), math.prod(grid)
    if coords is None:
        raise InputError("say where the points are: coords, or axes with a mask or an index")
    coords = (coords[None] if coords.ndim == 2 else coords).to(values.device)
    _check_rows("coords", coords, values, 3)
    flat = values.movedim(2, 1)
    samples: FreeSamples
    if blending:
        samples = BlendedSamples(_blended(encoder, coords.shape[-1], values.device), coords)
    else:
        samples = FreeSamples(_encoders(encoder, coords.shape[-1], values.device), coords)
    samples.population = population
    return samples, flat


def _check_rows(name: str, rows: Tensor, values: Tensor, ndim: int) -> None:
    if rows.ndim != ndim or rows.shape[1] != values.shape[1] or len(rows) not in (1, len(values)):
        signals, points = values.shape[:2]
        shape = f"({signals} or 1, {points}{', D' if ndim == 3 else ''})"
        raise InputError(f"values of shape {tuple(values.shape)} need {name} of shape {shape}; got {tuple(rows.shape)}")


def _grid_is_cheaper(grid: Sequence[int], encoders: Sequence[Encoder], points: int) -> bool:
    """Whether evaluating the whole grid takes fewer multiplications than evaluating the points one by one."""
    features = [encoder.num_features for encoder in encoders]
    whole = sum(math.prod(grid[: a + 1]) * math.prod(features[a:]) for a in range(len(grid)))
    single = sum(math.prod(features[a:]) for a in range(len(grid)))
    return whole <= points * single


def _encoders(encoder: Encoders, num_axes: int, device: torch.device) -> list[Encoder]:
    """One encoder per axis on a device; the caller's own are not moved."""
    if isinstance(encoder, Complex):
        if encoder.num_axes != num_axes:
            raise InputError(f"the encoding has {encoder.num_axes} axes, the points have {num_axes}")
        encoder = list(encoder.encoders)
    encoders = per_axis(encoder, num_axes)
    for axis, entry in enumerate(encoders):
        if entry.num_axes != 1:
            raise InputError(
                f"axis {axis}: complex encoding takes encoders of one axis, {entry.name!r} has {entry.num_axes}"
            )
    return [copy.deepcopy(entry).to(device) for entry in encoders]


def _blended(encoder: Encoders, num_axes: int, device: torch.device) -> Blended:
    encoding = Complex(_encoders(encoder, num_axes, device), num_axes, normalize=False)
    return Blended(encoding.to(device))

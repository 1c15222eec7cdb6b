r"""Noise taken out of samples on a grid, by shrinking their coefficients in a multi-resolution basis.

White noise of standard deviation :math:`\sigma` adds to every coefficient noise of :math:`\sigma` times the norm of its row
of the transform; divided by that norm, all coefficients have the same noise.

- Channels are rotated into the eigenvectors of their covariance, each then has a noise level of its own.
- The noise level is the median magnitude of the finest details along all axes, divided by 0.6745 (Donoho and Johnstone).
- Each band of details, of one level per axis, is soft-thresholded at :math:`\sigma^2 / \sqrt{\max(v - \sigma^2, 0)}`, ``v``
  its mean square: BayesShrink.
- The result is averaged over shifts of the samples, since a basis treats different positions differently: cycle spinning.

Reference: Chang, Yu, Vetterli, *Adaptive wavelet thresholding for image denoising and compression*, IEEE Trans. Image
Processing 9, 2000. Donoho, Johnstone, *Ideal spatial adaptation by wavelet shrinkage*, Biometrika 81, 1994. Coifman, Donoho,
*Translation-invariant de-noising*, 1995.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_fill.sparse.lifting import Lifting, LiftingName, channel_rotation, lifting, rotated

SHIFTS = {1: 16, 2: 4, 3: 2}
"""Shifts per axis that are averaged, by number of axes; more axes have one."""


@dataclass(frozen=True)
class Denoised:
    """Samples ``(C, n_1, ..., n_D)`` without their noise, whose standard deviation is the root mean square over channels.

    ``count`` coefficients are left by the shrinkage without shifts.
    """

    values: Tensor
    noise: float
    count: int


def denoise(values: Tensor, transform: LiftingName = "9/7", level: float | None = None) -> Denoised:
    """Shrinks the noise of one signal's samples ``(C, n_1, ..., n_D)``, float32 or float64, in a basis of every axis.

    ``level`` is the standard deviation of the noise of every channel, where it is known.
    """
    basis, sizes = lifting(transform), values.shape[1:]
    mean = values.flatten(1).mean(1).reshape(-1, *[1] * len(sizes))
    rotation = channel_rotation(values - mean)
    centred = rotated(values - mean, rotation.T)
    axes = range(1, values.ndim)
    whole = _normalised(basis, centred)
    inside = (slice(None), *(basis.levels(size)[-1] for size in sizes))
    finest = whole[inside]
    noise = finest.abs().flatten(1).median(1).values / 0.6745  # as for a normal variable
    noise = noise if level is None else torch.full_like(noise, level)
    count = int(torch.count_nonzero(_shrink(basis, whole, noise)))
    total = torch.zeros_like(centred)
    per_axis = SHIFTS.get(len(sizes), 1)
    shifts = list(itertools.product(*[range(per_axis if size > 2 * per_axis else 1) for size in sizes]))
    for shift in shifts:
        shifted = whole if not any(shift) else _normalised(basis, _mirrored(centred, shift))
        shrunk = _scaled(basis, _shrink(basis, shifted, noise), inverse=False)
        inside = (slice(None), *(slice(first, None) for first in shift))
        total += basis.inverse_all(shrunk, axes)[inside]
    result = rotated(total.div_(len(shifts)), rotation) + mean
    return Denoised(result, float(noise.square().mean().sqrt()), count)


def _mirrored(x: Tensor, shift: Sequence[int]) -> Tensor:
    """Samples added before the first ones, mirrored about them: ``shift`` of each axis."""
    for axis, count in enumerate(shift):
        x = torch.cat([x.narrow(axis + 1, 1, count).flip(axis + 1), x], axis + 1)
    return x


def _scaled(basis: Lifting, x: Tensor, inverse: bool) -> Tensor:
    """Coefficients times the norms of the rows of the transforms, or divided by them, in place."""
    for axis, size in enumerate(x.shape[1:]):
        norms = basis.analysis_norms(size).to(x).reshape(-1, *[1] * (x.ndim - 2 - axis))
        x = x.div_(norms) if inverse else x.mul_(norms)
    return x


def _normalised(basis: Lifting, x: Tensor) -> Tensor:
    """Coefficients that all have the noise of a sample."""
    return _scaled(basis, basis.forward_all(x, range(1, x.ndim)), inverse=True)


def _shrink(basis: Lifting, coefficients: Tensor, noise: Tensor) -> Tensor:
    """BayesShrink of every band but the coarsest; ``noise`` of each channel, ``(C,)``."""
    out = coefficients.clone()
    levels = [basis.levels(size) for size in coefficients.shape[1:]]
    for number, band in enumerate(itertools.product(*levels)):
        if number == 0:
            continue
        inside = (slice(None), *band)
        some = out[inside]
        signal = (some.square().flatten(1).mean(1) - noise.square()).clamp_min(0).sqrt()
        # where there is no more than noise, nothing is left
        threshold = torch.where(noise > 0, noise.square() / signal, torch.zeros_like(noise))
        least = threshold.reshape(-1, *[1] * len(levels))
        some.copy_(torch.where(some.abs() > least, some - some.sign() * least, 0.0))
    return out

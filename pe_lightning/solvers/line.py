r"""The exact fit of one long axis with many local features: a banded Cholesky factorisation of the normal equations.

:math:`\Psi^T \Psi + \rho I` has as many diagonals as features overlap, so that time and memory grow with the number of
samples and not with its square. The factor of a rounded matrix of condition :math:`\kappa` is right to
:math:`\kappa \epsilon`; solving again for what is left over, with residuals through :math:`\Psi`, repairs that, and with a
ridge below :data:`LEAST` it is iterated Tikhonov regularisation, which tends to the solution of that ridge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, bandwidth, is_local, local_features
from pe_lightning.errors import InputError
from pe_lightning.linalg import Local
from pe_lightning.solvers.points import Samples
from pe_lightning.solvers.solution import Solution

__all__ = ["is_line", "solve_line"]

LEAST = 1e-10
"""Least ridge of the factorisation, as a share of the largest diagonal entry: the Cholesky factor then exists."""
PASSES = 4
"""Times the factor is used."""
SAMPLES_AT_ONCE = 1 << 16
"""Samples whose features are held at once."""


def is_line(encoders: Sequence[Encoder]) -> bool:
    """Whether this solver applies: one axis of local features, and many of them."""
    return len(encoders) == 1 and is_local(encoders[0])


def solve_line(samples: Samples, values: Tensor, ridge: float, center: bool, distributed: bool) -> Solution:
    """The weights of signals of one axis; signals with samples of their own one after another.

    Args:
        samples: Where the samples are, and which of them are trained on.
        values: ``(S, C, P)``.
        ridge: Relative ridge.
        center: Whether the mean of each signal and channel is taken out.
        distributed: Whether the processes of :mod:`torch.distributed` hold different samples of the same signals.

    Raises:
        InputError: If a signal has no training sample, or values there that are not finite.
    """
    coords, mask, (encoder,) = samples.coordinates()[..., 0], samples.mask, samples.encoders
    rows = max(len(coords), 1 if mask is None else len(mask))
    found = []
    for row in range(rows):
        x, y = coords[row % len(coords)], values if rows == 1 else values[row : row + 1]
        if mask is not None:
            x, y = x[mask[row % len(mask)]], y[..., mask[row % len(mask)]]
        found.append(_solve(encoder, x, y, ridge, center, distributed))
    weight, mean, error, count, absolute = (torch.cat(parts) for parts in zip(*found, strict=True))
    dtype = torch.promote_types(values.dtype, torch.float32)
    return Solution(
        weight=weight.to(dtype),
        mean=mean.to(dtype),
        squared_error=error,
        count=count,
        ridge=float(ridge),
        absolute_ridge=absolute,
        solver="line",
    )


def _solve(
    encoder: Encoder, x: Tensor, values: Tensor, ridge: float, center: bool, distributed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Weights ``(s, C, K)``, mean ``(s, C)``, squared error, count of values and absolute ridge ``(s,)``, in float64."""

    def summed(part: Tensor) -> Tensor:
        if distributed:
            torch.distributed.all_reduce(part)
        return part

    def parts() -> Iterator[tuple[Local, slice]]:
        for start in range(0, len(x), SAMPLES_AT_ONCE):
            some = slice(start, start + SAMPLES_AT_ONCE)
            yield local_features(encoder, x[some]), some

    signals, channels = values.shape[:2]
    target = values.double()
    sums = summed(torch.cat([target.sum(2).flatten(), target.new_tensor([float(len(x))])]))
    if not bool(sums.isfinite().all()) or not sums[-1] > 0:
        raise InputError("a signal has no training sample, or values there that are not finite")
    mean = (sums[:-1] / sums[-1] * center).reshape(signals, channels)
    target = (target - mean[..., None]).flatten(0, 1)
    # the last row of the band has no entry but the sum of all squares
    band = target.new_zeros(bandwidth(encoder) + 2, encoder.num_features)
    for features, _ in parts():
        band[:-1] += features.gram(len(band) - 2)
        band[-1, 0] += features.squares()
    band = summed(band)
    absolute = float(band[-1, 0] / sums[-1]) * ridge
    lower = band[:-1].cpu().numpy()
    lower[0] += max(absolute, LEAST * max(float(lower[0].max()), np.finfo(np.float64).tiny ** 0.5))
    factor = scipy.linalg.cholesky_banded(lower, overwrite_ab=True, lower=True)
    weight = target.new_zeros(len(target), encoder.num_features)
    for number in range(PASSES + 1):
        change, error = -absolute * weight, target.new_zeros(len(target))
        own = torch.zeros_like(weight)
        for features, some in parts():
            residual = target[:, some] - features.mv(weight)
            own += features.rmv(residual)
            error += residual.square().sum(1)
        both = summed(torch.cat([own, error[:, None]], 1))
        if number < PASSES:
            change += both[:, :-1]
            solved = scipy.linalg.cho_solve_banded((factor, True), change.T.cpu().numpy())
            weight += torch.from_numpy(solved.T).to(weight)
    squared = both[:, -1].reshape(signals, channels).sum(1)
    count = torch.full_like(squared, float(sums[-1]) * channels).long()
    return weight.reshape(signals, channels, -1), mean, squared, count, torch.full_like(squared, absolute)

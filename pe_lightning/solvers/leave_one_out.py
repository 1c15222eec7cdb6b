r"""Leave-one-out errors of ridge regression on a grid, of every sample at once, and the evidence.

With features :math:`U_a s_a V_a^T` per axis, the residuals of the fit are :math:`r = (I - H) y` with
:math:`I - H = U \frac{\rho}{s^2 + \rho} U^T`, and a sample that is left out is missed by :math:`r_i / (1 - h_i)`. The
leverages :math:`h` are a product of the squares of the matrices :math:`U_a`: a ridge costs two products of the size of the
data.

Reference: Allen, *The relationship between variable selection and data augmentation and a method for prediction*,
Technometrics 1974.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder
from pe_lightning.encoders.cells import resized
from pe_lightning.encoders.resolution import shrunk
from pe_lightning.evaluation.scores import psnr
from pe_lightning.linalg import AxisFactor, factor_axes, mode_products
from pe_lightning.solvers.features import on_host
from pe_lightning.solvers.held_out import GridWindows

MAX_PSNR = 140.0
"""Rounding of float32 samples."""
PROBE_PERIOD = 16
"""Samples in a period of the wave by which features are tested: whether a left-out sample follows from its neighbours."""


class ResidualMap:
    """The map :math:`I - H` from samples ``(..., n_1, ..., n_D)`` to residuals of their fit, for one factorisation.

    Args:
        factors: The factors of the axes.
        device: Device of the samples; computed in float64.
    """

    def __init__(self, factors: Sequence[AxisFactor], device: torch.device) -> None:
        self.left = [factor.left().to(device, torch.float64) for factor in factors]
        self.transposed = [u.T.contiguous() for u in self.left]
        self.squares = [u.square() for u in self.left]
        joint = reduce(torch.kron, [factor.singular_values for factor in factors]).to(device, torch.float64)
        self.power = joint.square().reshape([factor.rank for factor in factors])
        self.unit = math.prod(factor.mean_diagonal for factor in factors)
        self.least = 1e-28 * math.prod(float(factor.singular_values[0]) ** 2 if factor.rank else 0.0 for factor in factors)
        self.is_full = all(factor.rank == factor.shape[0] for factor in factors)

    def gain(self, ridges: Tensor) -> Tensor:
        r""":math:`\rho / (s^2 + \rho)`, ``(*ridges, r_1, ..., r_D)``; of a zero ridge the limit from above."""
        absolute = (ridges.to(self.power) * self.unit).clamp_min(self.least).reshape(*ridges.shape, *[1] * self.power.ndim)
        return absolute / (self.power + absolute)

    def spectrum(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Samples in the bases, and what is outside their range, ``None`` if nothing is."""
        inside = mode_products(x, self.transposed)
        return inside, None if self.is_full else x - mode_products(inside, self.left)

    def residuals(self, spectrum: tuple[Tensor, Tensor | None], gain: Tensor) -> Tensor:
        inside, outside = spectrum
        found = mode_products(inside * gain, self.left)
        return found if outside is None else found.add_(outside)

    def diagonal(self, gain: Tensor) -> Tensor:
        """The diagonal of a map with these gains inside the range, and one outside, ``(*ridges, n_1, ..., n_D)``."""
        found = mode_products(gain, self.squares)
        return found if self.is_full else found + (1 - mode_products(torch.ones_like(self.power), self.squares)).clamp_min(0)


class WindowFits:
    """Fits of windows of a grid by all ridges; encoders are those of the whole grid."""

    def __init__(self, windows: GridWindows, encoders: Sequence[Encoder], center: bool) -> None:
        near, coords = on_host(encoders, windows.coords, windows.values.device)
        parts = zip(near, coords, windows.enlarged, strict=True)
        features = [shrunk(resized(encoder, ratio), ratio)(x) for encoder, x, ratio in parts]
        self.map = ResidualMap(factor_axes(features), windows.values.device)
        values, known = windows.values.double(), windows.known
        axes = tuple(range(3, values.ndim))
        weight = torch.ones_like(values[:1, :1, :1]) if known is None else known.unsqueeze(2).double()
        mean = (values * weight).sum(axes, keepdim=True) / weight.sum(axes, keepdim=True).clamp_min(1) * center
        self.weight, self.grid = weight, values.shape[3:]
        self.counted = values.shape[2] * (values.shape[0] if known is None else 1)
        self.spectrum = self.map.spectrum(values - mean)


class LeaveOneOut(WindowFits):
    """Scores ridges by leave-one-out errors."""

    def __call__(self, ridges: Sequence[float], ahead: Sequence[float] = ()) -> list[float]:
        """Leave-one-out PSNR in dB of relative ridges, mean over signals."""
        gain = self.map.gain(torch.tensor(list(ridges), dtype=torch.float64))  # (ridges, r_1, ..., r_D)
        inside, outside = self.spectrum
        left = self.map.residuals((inside.unsqueeze(3), None if outside is None else outside.unsqueeze(3)), gain)
        errors = left / self.map.diagonal(gain).clamp_min(1e-300)
        weight = self.weight.unsqueeze(3)
        squared = (errors.square() * weight).flatten(4).sum((0, 2, 4))
        counts = (weight.flatten(4).sum((0, 2, 4)) * self.counted).expand_as(squared)
        return psnr(squared, counts).clamp(-1000, MAX_PSNR).mean(0).tolist()


class Evidence(WindowFits):
    r"""Scores ridges by the marginal likelihood of Gaussian weights, whose variance is the best one of each signal.

    Per sample, :math:`-\log (y^T (\Psi \Psi^T + \rho)^{-1} y / n) - \log\det(\Psi \Psi^T + \rho) / n`, in dB. Missing
    samples count as they are interpolated.

    Reference: MacKay, *Bayesian interpolation*, Neural Computation 1992.
    """

    def __call__(self, ridges: Sequence[float], ahead: Sequence[float] = ()) -> list[float]:
        """The evidence of relative ridges in dB, mean over signals."""
        inside, outside = self.spectrum
        power, count = self.map.power, math.prod(self.grid)
        scores = []
        for ridge in ridges:
            absolute = max(ridge * self.map.unit, self.map.least)
            quadratic = (inside.square() / (power + absolute)).flatten(3).sum(3)
            volume = float((power + absolute).log().sum()) + (count - power.numel()) * math.log(max(absolute, 1e-300))
            if outside is not None:
                quadratic = quadratic + outside.square().flatten(3).sum(3) / absolute
            nats = -quadratic.mean((0, 2)).div(count).clamp_min(1e-300).log() - volume / count
            scores.append(float(nats.mean()) * 10 / math.log(10))
        return scores

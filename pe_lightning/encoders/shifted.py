"""Shifted encoders: one bump, repeated at every shift t_i = i/K."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders.base import NEGLIGIBLE, Encoder, Width, WidthLike, check_count, exact_dtype, registry

__all__ = ["Gaussian", "Laplace", "Shifted", "Triangle"]


class Shifted(Encoder):
    r"""Base of the shifted encoders: :math:`\psi_i(x) = \kappa(x - t_i)`, :math:`t_i = i/K`.

    A subclass defines :meth:`kernel`, or :meth:`forward` where there is a faster or more exact way.

    Args:
        num_features: Number of shifts ``K`` in [0, 1); the spacing is ``1/K``.
        padding: Number of further shifts past each end. The shifts end at ``(K - 1)/K``, so the far border is badly
            covered without: two or three repair it. The output then has ``K + 2 * padding`` features.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.
    """

    directional = True
    reach: ClassVar[float | None] = None
    """The :attr:`support` in units of the width, or of the spacing where the encoder has no width."""

    resolution: int
    """The number ``K`` of shifts per unit length: the argument ``num_features``, without the padding."""
    padding: int

    def __init__(self, num_features: int = 256, padding: int = 0) -> None:
        resolution = check_count(self, "num_features", num_features)
        outside = check_count(self, "padding", padding, minimum=0)
        super().__init__(resolution + 2 * outside)
        self.resolution = resolution
        self.padding = outside

    def indices(self, x: Tensor) -> Tensor:
        """The numbers ``i`` of the shifts, from ``-padding`` to ``K - 1 + padding``, as floats ``(num_features,)``."""
        return torch.arange(-self.padding, self.resolution + self.padding, dtype=exact_dtype(x), device=x.device)

    def offsets(self, x: Tensor) -> Tensor:
        """The offsets ``x - t_i``, a new tensor ``(*batch, num_features)``."""
        return x.to(exact_dtype(x))[..., None] - self.indices(x) / self.resolution

    def kernel(self, offsets: Tensor) -> Tensor:
        """The bump at ``offsets``, which it may overwrite."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """The bump at every shift."""
        return self.kernel(self.offsets(x)).to(x.dtype)

    @property
    def support(self) -> float | None:
        """Distance from its shift beyond which a feature is negligible."""
        if self.reach is None:
            return None
        return self.reach * (1 / self.resolution if self.width is None else self.resolved()[self.width.argument])

    def resolved(self) -> dict[str, Any]:
        """Every constructor argument with the value in force; ``num_features`` is ``K``, without the padding."""
        return {**super().resolved(), "num_features": self.resolution}

    def _bounded_rank(self, rank: float, num_samples: int) -> float:
        """A stable rank is at least one, and at most the number of rows and of columns that are not zero."""
        return max(1.0, min(rank, num_samples, self.resolution))


@registry.register("gau")
class Gaussian(Shifted):
    r"""Shifted Gaussians: :math:`\psi_i(x) = \exp(-(x - t_i)^2 / 2\sigma^2)`, :math:`t_i = i/K`.

    The best of the papers' encoders as a linear model (26.63 dB on their images, 27.14 with the mean removed and a
    ridge); too small a ``sigma`` memorises and leaves holes between samples, too large a one blurs.
    (The paper's Eq. 54 lost the square in print.)

    Args:
        num_features: Number of shifts ``K``.
        sigma: Standard deviation, in units of the [0, 1] domain. Default ``0.64/K``. Larger is smoother.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 54;
    *Rethinking Positional Encoding*, Prop. 2.
    """

    formula = "exp(-(x - t_i)² / 2σ²), t_i = i/K"
    width = Width("sigma", "length", lambda k: 0.64 / k, "0.64/K")
    reach = math.sqrt(-2 * math.log(NEGLIGIBLE))
    fallback_ridge = 0.05

    def __init__(self, num_features: int = 256, sigma: WidthLike = None, padding: int = 0) -> None:
        super().__init__(num_features, padding)
        self.sigma = self.width_value(sigma, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The Gaussian."""
        return exponential(offsets.pow_(2), -0.5 / self.sigma**2)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \sqrt\pi \sigma \exp(-\Delta^2 / 4\sigma^2)`."""
        return math.sqrt(math.pi) * self.sigma * torch.exp(-((delta / (2 * self.sigma)) ** 2))

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1 / 2\sqrt\pi \sigma)`, to 3 % with enough features and samples."""
        return self._bounded_rank(1 / (2 * math.sqrt(math.pi) * self.sigma), num_samples)


@registry.register("tri")
class Triangle(Shifted):
    r"""Shifted triangles: :math:`\psi_i(x) = \max(1 - |x - t_i|/d, 0)`, :math:`t_i = i/K`.

    With ``d = 1/K`` a linear model of it is linear interpolation between the shifts: well conditioned, and on the
    papers' images 26.36 dB, second to ``gau``. Its kinks show where a signal is smooth.

    Args:
        num_features: Number of shifts ``K``.
        half_width: Half of the support, ``d``, in units of the [0, 1] domain. Default ``1/K``. (The paper's Prop. 5
            writes the full width ``2 d``.)
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 53.
    """

    formula = "max(1 - |x - t_i|/d, 0), t_i = i/K"
    width = Width("half_width", "length", lambda k: 1 / k, "1/K")
    reach = 1.0
    fallback_ridge = 1e-4

    def __init__(self, num_features: int = 256, half_width: WidthLike = None, padding: int = 0) -> None:
        super().__init__(num_features, padding)
        self.half_width = self.width_value(half_width, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The triangle."""
        return multiply(offsets.abs_(), -1 / self.half_width).add_(1).relu_()

    def distance(self, delta: Tensor) -> Tensor:
        r"""With :math:`u = |\Delta|/d`: :math:`d(2/3 - u^2 + u^3/2)` up to 1, :math:`d(2 - u)^3/6` up to 2, else 0.

        The paper prints :math:`d^2 \max(1 - u/2, 0)^2`, 17 % off in shape and by the factor :math:`2/(3d)` in size.
        """
        u = delta.abs() / self.half_width
        return self.half_width * torch.where(u <= 1, 2 / 3 - u**2 + u**3 / 2, (2 - u).clamp_min(0) ** 3 / 6)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 4 / (3 \cdot 2d))`, to 3 % with enough features and samples."""
        return self._bounded_rank(2 / (3 * self.half_width), num_samples)


@registry.register("laplace")
class Laplace(Shifted):
    r"""Shifted exponentials: :math:`\psi_i(x) = \exp(-|x - t_i|/\ell)`, :math:`t_i = i/K`.

    Heavy-tailed, so that it bridges gaps: the best of the encoders tried on scattered points (24.74 dB from 25 % of the
    pixels of 8 photographs, ``K = 512`` and ``scale = 0.004``; linear interpolation 24.22). On grids of samples there
    are no gaps to bridge, and ``gau`` and ``keys`` are smoother. Its ``D`` is the Matérn-3/2 kernel of length
    :math:`\sqrt3 \ell`.

    Args:
        num_features: Number of shifts ``K``.
        scale: Length ``ℓ`` over which a feature falls by the factor e, in units of the [0, 1] domain. Default
            ``1.5/K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 4.2.
    """

    formula = "exp(-|x - t_i|/ℓ), t_i = i/K"
    width = Width("scale", "length", lambda k: 1.5 / k, "1.5/K")
    reach = -math.log(NEGLIGIBLE)

    def __init__(self, num_features: int = 256, scale: WidthLike = None, padding: int = 0) -> None:
        super().__init__(num_features, padding)
        self.scale = self.width_value(scale, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The two-sided exponential."""
        return exponential(offsets.abs_(), -1 / self.scale)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \ell (1 + |\Delta|/\ell) \exp(-|\Delta|/\ell)`."""
        u = delta.abs() / self.scale
        return self.scale * (1 + u) * torch.exp(-u)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1 / 4\ell)`, with enough features and samples."""
        return self._bounded_rank(1 / (4 * self.scale), num_samples)


def multiply(x: Tensor, factor: float | Tensor) -> Tensor:
    """``factor * x``, overwriting ``x`` where the factor is a number; a learned one may differ between signals."""
    return x * factor if isinstance(factor, Tensor) else x.mul_(factor)


def exponential(x: Tensor, factor: float | Tensor) -> Tensor:
    """``exp(factor * x)``, overwriting ``x`` where the factor is a number."""
    # exp2, since torch's exp on the CPU is four times slower wherever its result underflows, as most features' does
    return multiply(x, factor / math.log(2)).exp2_()

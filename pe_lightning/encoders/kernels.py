"""The table of kernels: functions of the offset ``u`` from a shift, in units of the kernel's width."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import threshold

NEGLIGIBLE = 2.0**-30
"""Features below this share of the largest are negligible: far below the rounding of float32."""
MIN_EXPONENT = {torch.float32: math.log2(NEGLIGIBLE), torch.float64: -100.0}
"""Exponentials below 2 to this power are zero: subnormal numbers, which squares and products of them would be, are slow on
a CPU.
"""


@dataclass(frozen=True)
class Kernel:
    r"""A kernel :math:`\kappa(u)`, and what follows from it in closed form.

    Args:
        value: :math:`\kappa(d/w)` of offsets ``d``, which it may overwrite, and the width ``w``: scaled in as few passes as
            the kernel allows.
        reach: Largest ``|u|`` at which the kernel is not negligible; ``None`` if there is none.
        similarity: :math:`\int \kappa(v)\,\kappa(v + u)\,dv`; over one period, divided by it, if the kernel is periodic.
        integral: :math:`\int_0^u \kappa(v)\,dv`; defined at infinity unless the kernel is periodic.
    """

    value: Callable[[Tensor, float | Tensor], Tensor]
    reach: float | None = None
    similarity: Callable[[Tensor], Tensor] | None = None
    integral: Callable[[Tensor], Tensor] | None = None


def multiply(x: Tensor, factor: float | Tensor) -> Tensor:
    """``factor * x``; in place if the factor is a number."""
    return x * factor if isinstance(factor, Tensor) else x.mul_(factor)


def exponential(x: Tensor, factor: float | Tensor) -> Tensor:
    """``exp(factor * x)``, zero where negligible; in place if the factor is a number."""
    exponent = multiply(x, factor / math.log(2))
    return threshold(exponent, MIN_EXPONENT[exponent.dtype], -math.inf, inplace=True).exp2_()


def _falling(u: Tensor, *knots: float) -> list[Tensor]:
    """``max(knot - |u|, 0)`` for each knot: cubic kernels are polynomials of these, without a branch."""
    distance = u.abs()
    return [(knot - distance).clamp_min(0) for knot in knots]


def _odd(u: Tensor, half: Callable[[Tensor], Tensor]) -> Tensor:
    """The odd function that is ``half`` for ``u >= 0``, with its derivative at zero, where ``|u|`` has none."""
    negative = u < 0
    values = half(torch.where(negative, -u, u))
    return torch.where(negative, -values, values)


def _keys(u: Tensor) -> Tensor:
    r, q = _falling(u, 2, 1)
    return r * r * (r - 1) / 2 + q * q * (1 - 2 * q)


def _keys_integral(u: Tensor) -> Tensor:
    r, q = (2 - u).clamp_min(0), (1 - u).clamp_min(0)
    return 0.5 - r**3 * (r / 8 - 1 / 6) - q**3 * (1 / 3 - q / 2)


def _bspline(u: Tensor) -> Tensor:
    r, q = _falling(u, 2, 1)
    return (r**3 - 4 * q**3) / 6


def _bspline_integral(u: Tensor) -> Tensor:
    r, q = (2 - u).clamp_min(0), (1 - u).clamp_min(0)
    return 0.5 - (r**4 - 4 * q**4) / 24


def _bspline_similarity(u: Tensor) -> Tensor:
    """The B-spline of degree 7, as the eighth difference of truncated powers."""
    a, b, c, d = _falling(u, 4, 3, 2, 1)
    return (a**7 - 8 * b**7 + 28 * c**7 - 56 * d**7) / 5040


KERNELS: dict[str, Kernel] = {
    "gau": Kernel(
        lambda d, w: exponential(d.pow_(2), -0.5 / w**2),
        reach=math.sqrt(-2 * math.log(NEGLIGIBLE)),
        similarity=lambda u: math.sqrt(math.pi) * torch.exp(-u.square() / 4),
        integral=lambda u: math.sqrt(math.pi / 2) * torch.erf(u / math.sqrt(2)),
    ),
    "tri": Kernel(
        lambda d, w: multiply(d.abs_(), -1 / w).add_(1).relu_(),
        reach=1.0,
        # (the paper prints max(1 - |u|/2, 0)^2, 17 % off in shape)
        similarity=_bspline,
        integral=lambda u: _odd(u, lambda s: (1 - (1 - s).clamp_min(0).square()) / 2),
    ),
    "laplace": Kernel(
        lambda d, w: exponential(d.abs_(), -1 / w),
        reach=-math.log(NEGLIGIBLE),
        similarity=lambda u: (1 + u.abs()) * torch.exp(-u.abs()),
        integral=lambda u: _odd(u, lambda s: -torch.expm1(-s)),
    ),
    "rect": Kernel(
        lambda d, w: ((d >= -w / 2) & (d < w / 2)).to(d.dtype),
        reach=0.5,
        similarity=lambda u: (1 - u.abs()).clamp_min(0),
        integral=lambda u: u.clamp(-0.5, 0.5),
    ),
    "keys": Kernel(lambda d, w: _keys(d / w), reach=2.0, integral=lambda u: _odd(u, _keys_integral)),
    "bspline": Kernel(
        lambda d, w: _bspline(d / w),
        reach=2.0,
        similarity=_bspline_similarity,
        integral=lambda u: _odd(u, _bspline_integral),
    ),
    "sine": Kernel(
        lambda d, w: multiply(d, -2 * math.pi / w).sin_(),
        similarity=lambda u: torch.cos(2 * math.pi * u) / 2,
        integral=lambda u: (torch.cos(2 * math.pi * u) - 1) / (2 * math.pi),
    ),
    "square": Kernel(
        lambda d, w: -torch.sgn(torch.sin(2 * math.pi / w * d)),
        # (the paper prints 1 - 2|delta|, which is this for a frequency of 1/2)
        similarity=lambda u: (4 * u.abs().remainder(1) - 2).abs() - 1,
        integral=lambda u: (u.remainder(1) - 0.5).abs() - 0.5,
    ),
}

"""Shifted encoders: one kernel of the table :data:`~pe_lightning.encoders.kernels.KERNELS` at every shift t_i = i/K."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from pe_lightning.encoders.arguments import (
    CountLike,
    NonNegativeInt,
    PositiveParameter,
    Width,
    WidthLike,
    count_value,
    set_width,
)
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import clamped, exact_dtype
from pe_lightning.encoders.kernels import KERNELS, Kernel
from pe_lightning.errors import InputError

PaddingLike: TypeAlias = NonNegativeInt | Literal["edge", "wrap", "auto"]
"""Shifts past each end, or how coordinates past them are treated (:class:`Shifted`)."""
Spacing: TypeAlias = Annotated[float, "[1e-12, 1]"] | None
"""Distance of neighbouring shifts, in units of the [0, 1] domain; ``None`` for 1 over their number."""


class Shifted(Encoder):
    r"""Base of the shifted encoders: :math:`\psi_i(x) = \kappa((x - t_i)/w)`, :math:`t_i = i/K`.

    A subclass names its :attr:`kernel`. The width ``w`` is the argument that :attr:`width` declares, or else the spacing.

    Args:
        num_features: Number of shifts ``K``, the first at 0; ``auto``: as many as trained samples.
        padding: Number of further shifts past each end: the output has ``K + 2 * padding`` features. The shifts end at
            ``(K - 1)/K``, so that few features cover the far border without padding; two or three suffice. ``edge``:
            coordinates beyond the first and the last shift get its features. ``wrap``: the axis is periodic. ``auto`` is
            ``edge`` if the shifts are at the samples (``num_features: auto``), else 0.
        spacing: Distance between neighbouring shifts, in units of the [0, 1] domain. Default ``1/K``. Shifts at the samples
            need another spacing if their number is not 1 over their distance: 171 samples of 512 with stride 3 are 3/512
            apart.
    """

    directional = True
    kernel: ClassVar[Kernel]

    def __init__(self, num_features: CountLike = "auto", padding: PaddingLike = "auto", spacing: Spacing = None) -> None:
        self.num_shifts = count_value(type(self).__name__, num_features)  # without the padding
        self.outside = 0 if isinstance(padding, str) else padding
        self.padding: PaddingLike = 0 if padding == "auto" else padding
        super().__init__(self.num_shifts + 2 * self.outside)
        self.spacing = 1 / self.num_shifts if spacing is None else spacing
        # features per unit length; not 1 / (1 / K), which is not always K
        self.resolution: float = float(self.num_shifts) if spacing is None else 1 / self.spacing
        if padding == "wrap" and abs(self.spacing * self.num_shifts - 1) > 1e-9:
            raise InputError(f"{type(self).__name__}: padding: wrap needs a spacing of 1/{self.num_shifts}; leave it out")

    @property
    def unit(self) -> float | Tensor:
        """The width of the kernel."""
        unit: float | Tensor = self.spacing if self.width is None else getattr(self, self.width.argument)
        return unit

    def indices(self, x: Tensor) -> Tensor:
        """Indices ``i`` of the shifts, from ``-padding`` to ``K - 1 + padding``, as floats ``(num_features,)``."""
        return torch.arange(-self.outside, self.num_shifts + self.outside, dtype=x.dtype, device=x.device)

    def clamped(self, x: Tensor) -> Tensor:
        """Coordinates after the treatment of the edges, in the dtype of the computation."""
        x = x.to(exact_dtype(x))
        return clamped(x, 0, (self.num_shifts - 1) / self.resolution) if self.padding == "edge" else x

    def offsets(self, x: Tensor) -> Tensor:
        """The offsets ``x - t_i``, a new tensor ``(*batch, num_features)``."""
        # subtract before scaling: near its shift x - t_i is exact in floating point, K x - i is not
        offsets = (x := self.clamped(x))[..., None] - self.indices(x) / self.resolution
        return offsets - offsets.detach().round() if self.padding == "wrap" else offsets

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel.value(self.offsets(x), self.unit).to(x.dtype)

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        if self.kernel.integral is None:
            return super().cell(x, size)
        exact_dtype(x)
        # the difference of two integrals loses digits
        dtype = torch.float32 if x.device.type == "mps" else torch.float64
        half = torch.as_tensor(size, dtype=dtype, device=x.device) / 2
        upper, lower = (self.antiderivative(x.to(dtype) + edge) for edge in (half, -half))
        return ((upper - lower) / (2 * half)[..., None]).to(x.dtype)

    def antiderivative(self, x: Tensor) -> Tensor:
        """The integral of every feature, up to a constant: ``(*batch,)`` -> ``(*batch, num_features)``."""
        assert self.kernel.integral is not None
        inside, unit = self.clamped(x), self.unit
        offsets = inside[..., None] - self.indices(x) / self.resolution
        if self.padding == "wrap":
            turns, half = offsets.detach().round(), torch.as_tensor(0.5 / unit, dtype=x.dtype, device=x.device)
            period = self.kernel.integral(half) - self.kernel.integral(-half)
            return unit * (self.kernel.integral((offsets - turns) / unit) + turns * period)
        integral = unit * self.kernel.integral(offsets / unit)
        # beyond the edges features are constant
        return integral + (x - inside)[..., None] * self.forward(inside) if self.padding == "edge" else integral

    def position(self, x: Tensor) -> Tensor:
        """Index of the feature that is largest at coordinates."""
        return self.clamped(x) * self.resolution + self.outside

    def periodic(self) -> Shifted:
        return self.copy(padding="wrap", spacing=None)

    def leading(self, count: int) -> Shifted:
        """An encoder of the first ``count`` features."""
        encoder = copy.copy(self)
        encoder.num_features, encoder.num_shifts = count, count - 2 * self.outside
        return encoder

    @property
    def support(self) -> float | None:
        if self.kernel.reach is None or self.padding == "wrap":
            return None
        width = torch.as_tensor(self.unit, dtype=torch.float64).max().item()
        return self.kernel.reach * width + (self.spacing if self.padding == "edge" else 0.0) + (self.cell_size or 0.0) / 2

    def resolved(self) -> dict[str, Any]:
        """As in the base class; ``num_features`` without the padding."""
        return {**super().resolved(), "num_features": self.num_shifts}

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = w \int \kappa(v)\,\kappa(v + \Delta/w)\,dv`."""
        if self.kernel.similarity is None:
            return super().distance(delta)
        return self.unit * self.kernel.similarity(delta / self.unit)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\int\kappa^2 / (w (\int\kappa)^2)`, to 3 % with enough features and samples, at most ``N`` and ``K``."""
        if self.kernel.similarity is None or self.kernel.integral is None:
            return super().stable_rank(num_samples)
        mass = 2 * self.kernel.integral(torch.tensor(math.inf, dtype=torch.float64))
        squared = self.kernel.similarity(torch.zeros((), dtype=torch.float64))
        return self._bounded(squared / (mass**2 * self.unit), num_samples)

    def _bounded(self, rank: float | Tensor, num_samples: int) -> float:
        return max(1.0, min(torch.as_tensor(rank, dtype=torch.float64).item(), num_samples, self.num_shifts))


@registry.register("gau")
class Gaussian(Shifted):
    r"""Shifted Gaussians: :math:`\psi_i(x) = \exp(-(x - t_i)^2 / 2\sigma^2)`, :math:`t_i = i/K`.

    The similarity is :math:`D(\Delta) = \sqrt\pi \sigma \exp(-\Delta^2 / 4\sigma^2)`, the stable rank :math:`1 / 2\sqrt\pi
    \sigma`.

    When to use:
        Works as a linear model on grids, where it is the best of the papers' encoders. With too small a ``sigma`` the
        features do not overlap between samples, too large a one blurs. On scattered samples ``laplace`` is better.

    Args:
        sigma: Standard deviation, in units of the [0, 1] domain. Default ``0.64/K``. Larger is smoother.
        trainable: Whether the width is trained; it stays positive, and the given value is the initial one.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 54;
    *Rethinking Positional Encoding*, Prop. 2.
    """

    formula = "exp(-(x - t_i)² / 2σ²), t_i = i/K"
    width = Width("sigma", "length", lambda k: 0.64 / k, "0.64/K")
    fallback_ridge = 0.1
    kernel = KERNELS["gau"]
    sigma = PositiveParameter()

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: Spacing = None,
        trainable: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_width(self, sigma, self.resolution, trainable)


@registry.register("tri")
class Triangle(Shifted):
    r"""Shifted triangles: :math:`\psi_i(x) = \max(1 - |x - t_i|/d, 0)`, :math:`t_i = i/K`.

    With :math:`u = |\Delta|/d`, :math:`D(\Delta) = d(2/3 - u^2 + u^3/2)` up to 1, :math:`d(2 - u)^3/6` up to 2, else 0;
    the stable rank is :math:`4 / (3 \cdot 2d)`.

    When to use:
        Works as a linear model at any ridge: with ``d = 1/K`` that is linear interpolation between the shifts. Fails where
        smoothness matters: its slope jumps at every shift.

    Args:
        half_width: Half of the support, ``d``, in units of the [0, 1] domain. Default ``1/K``. (The paper's Prop. 5
            writes the full width ``2 d``.)
        trainable: Whether the width is trained; it stays positive, and the given value is the initial one.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 53.
    """

    formula = "max(1 - |x - t_i|/d, 0), t_i = i/K"
    width = Width("half_width", "length", lambda k: 1 / k, "1/K")
    kernel = KERNELS["tri"]
    half_width = PositiveParameter()

    def __init__(
        self,
        num_features: CountLike = "auto",
        half_width: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: Spacing = None,
        trainable: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_width(self, half_width, self.resolution, trainable)


@registry.register("laplace")
class Laplace(Shifted):
    r"""Shifted exponentials: :math:`\psi_i(x) = \exp(-|x - t_i|/\ell)`, :math:`t_i = i/K`.

    The similarity :math:`D(\Delta) = \ell (1 + |\Delta|/\ell) \exp(-|\Delta|/\ell)` is the Matérn-3/2 kernel of length
    :math:`\sqrt3 \ell`; the stable rank is :math:`1 / 4\ell`.

    When to use:
        Works on scattered samples, where it is the best of the shifted encoders, since its heavy tail spans gaps. It is the
        encoder of ``Adaptive``. On grids ``gau``, ``keys`` and ``bspline`` are better linear models of photographs.

    Args:
        scale: Length ``ℓ`` over which a feature falls by the factor e, in units of the [0, 1] domain. Default ``1.5/K``.
        trainable: Whether the width is trained; it stays positive, and the given value is the initial one.

    Reference: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 4.2.
    """

    formula = "exp(-|x - t_i|/ℓ), t_i = i/K"
    width = Width("scale", "length", lambda k: 1.5 / k, "1.5/K")
    fallback_ridge = 1e-2
    kernel = KERNELS["laplace"]
    scale = PositiveParameter()

    def __init__(
        self,
        num_features: CountLike = "auto",
        scale: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: Spacing = None,
        trainable: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_width(self, scale, self.resolution, trainable)


@registry.register("rect")
class Rectangle(Shifted):
    r"""Shifted boxes: :math:`\psi_i(x) = 1` if :math:`-\sigma/2 \le x - t_i < \sigma/2`, else 0; :math:`t_i = i/K`.

    The last half cell ``x >= 1 - 1/(2K)`` has no feature without ``padding``. Piecewise constant: no gradient with respect
    to
    ``x``. :math:`D(\Delta) = \sigma \max(1 - |\Delta|/\sigma, 0)`; the stable rank is :math:`1/\sigma`.

    When to use:
        A baseline: at ``sigma = 1/K`` a linear model of it is nearest-neighbour interpolation. Fails where derivatives are
        needed, and on samples that are further apart than ``sigma``.

    Args:
        sigma: Full width, in units of the [0, 1] domain. Default ``1/K``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Prop. 4.
    """

    formula = "1 if -σ/2 <= x - t_i < σ/2 else 0, t_i = i/K"
    width: ClassVar[Width | None] = Width("sigma", "length", lambda k: 1 / k, "1/K")
    kernel = KERNELS["rect"]
    sigma = PositiveParameter()

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: Spacing = None,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_width(self, sigma, self.resolution)

    def forward(self, x: Tensor) -> Tensor:
        """One where the coordinate is inside the box, with rounding towards its borders, where samples often are."""
        dtype, x = x.dtype, self.clamped(x)
        cells = float(self.unit) * self.resolution
        # (1/49) * 49 is not 1: rounding must not leave borders without a feature
        whole = abs(cells - round(cells)) < 1e-9 * cells
        cells = round(cells) if whole else cells
        # boxes of the shifts lo < i <= hi contain x; hi - lo is the same for every x if the width is whole
        hi = self.upper(x, cells)[..., None]
        lo = hi - cells if whole else cell(x, self.resolution, -cells / 2)[..., None]
        below = hi - self.indices(x)
        below = below.remainder_(self.num_shifts) if self.padding == "wrap" else below
        inside = (below >= 0).bitwise_and_(below < hi - lo).to(dtype)
        return inside.add_(0 * hi)  # NaN at NaN

    def upper(self, x: Tensor, cells: float) -> Tensor:
        """The last shift whose box contains ``x``."""
        return cell(x, self.resolution, cells / 2)


@registry.register("impulse")
class Impulse(Rectangle):
    r"""One-hot: :math:`\psi_i(x) = 1` for the shift :math:`t_i = i/K` nearest to ``x``, else 0.

    Halfway between two shifts the upper one is taken; beyond the last shift, the last. Piecewise constant: no gradient
    with respect to ``x``. The stable rank is ``N``, up to the number of shifts.

    When to use:
        A control: full rank and no similarity between neighbours. It fits every trained sample and predicts nothing for
        coordinates that are nearer to another shift.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Sec. 4;
    *Rethinking Positional Encoding*, Sec. 4.
    """

    formula = "1 at the shift t_i = i/K nearest to x, else 0"
    width = None
    # coordinates past the last shift are nearest to it, up to a spacing away
    kernel = replace(KERNELS["rect"], reach=1.0, similarity=None)

    def __init__(self, num_features: CountLike = "auto", padding: PaddingLike = "auto", spacing: Spacing = None) -> None:
        Shifted.__init__(self, num_features, padding, spacing)

    def upper(self, x: Tensor, cells: float) -> Tensor:
        nearest = super().upper(x, cells)
        return nearest if self.padding == "wrap" else nearest.clamp(-self.outside, self.num_shifts - 1 + self.outside)

    def antiderivative(self, x: Tensor) -> Tensor:
        """The first and the last feature are one beyond the ends."""
        integral = super().antiderivative(x)
        if self.padding not in ("edge", "wrap"):
            first, last = -self.outside - 0.5, self.num_shifts + self.outside - 0.5
            integral[..., 0] += (x - first / self.resolution).clamp_max(0)
            integral[..., -1] += (x - last / self.resolution).clamp_min(0)
        return integral

    def stable_rank(self, num_samples: int) -> float:
        return self._bounded(num_samples, num_samples)


@registry.register("keys")
class Keys(Shifted):
    r"""Keys' cubic convolution kernel, :math:`a = -1/2`, at :math:`s = |K x - i|`.

    It is :math:`1 - 5s^2/2 + 3s^3/2` up to 1, :math:`2 - 4s + 5s^2/2 - s^3/2` up to 2, else 0.

    When to use:
        Works as a linear model on grids: with samples at the shifts that is bicubic interpolation. The far border needs
        ``padding``. It has no width to adapt: on scattered samples prefer ``laplace``.

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981.
    """

    formula = "cubic convolution (a = -1/2) of K x - i"
    kernel = KERNELS["keys"]


@registry.register("bspline")
class BSpline(Shifted):
    r"""The cubic B-spline at :math:`s = |K x - i|`.

    It is :math:`2/3 - s^2 + s^3/2` up to 1, :math:`(2 - s)^3/6` up to 2, else 0. The similarity :math:`D(\Delta)` is the
    B-spline of degree 7 at :math:`K\Delta`, divided by ``K``.

    When to use:
        Works as a linear model on grids, where it is a cubic spline, and where all samples of a picture are to be stored in
        few parameters. Without ``padding`` few features cover the borders.

    Reference: Unser, *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999.
    """

    formula = "cubic B-spline of K x - i"
    fallback_ridge = 0.1
    kernel = KERNELS["bspline"]


def cell(x: Tensor, count: float, shift: float = 0.0) -> Tensor:
    """The cell ``floor(x * count + shift)``, as a float.

    A coordinate within four rounding errors below a border counts as on it, so that samples on borders are treated alike.
    """
    dtype = exact_dtype(x)
    with torch.no_grad():
        return (x.to(dtype) * count).add_(shift + 4 * count * torch.finfo(dtype).eps).floor_()

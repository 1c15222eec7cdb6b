"""Shifted encoders: one kernel at every shift t_i = i/K. Gaussians, triangles, boxes and cubic interpolation kernels."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import threshold

from pe_lightning.encoders.base import (
    CountLike,
    Encoder,
    Trained,
    Width,
    WidthLike,
    check_count,
    check_positive,
    exact_dtype,
    plain,
    registry,
    set_trainable,
)
from pe_lightning.errors import InputError

__all__ = ["BSpline", "CubicKernel", "Gaussian", "Impulse", "Keys", "Laplace", "Rectangle", "Shifted", "Triangle"]


PaddingLike: TypeAlias = int | Literal["edge", "wrap", "auto"]
"""Shifts past each end, or how coordinates past them are treated (:class:`Shifted`)."""

NEGLIGIBLE = 2.0**-30
"""Features below this share of the largest are negligible: it is far below the rounding of float32."""
MIN_EXPONENT = {torch.float32: math.log2(NEGLIGIBLE), torch.float64: -100.0}
"""Exponentials below 2 to this power are set to zero, so that neither they nor squares of products of several axes are
subnormal numbers, which are slow on a CPU."""


class Shifted(Encoder):
    r"""Base of the shifted encoders: :math:`\psi_i(x) = \kappa(x - t_i)`, :math:`t_i = i/K`.

    A subclass defines :meth:`kernel`, or :meth:`forward` where that is faster or more exact.

    Args:
        num_features: Number of shifts ``K``, the first at 0.
        padding: Number of further shifts past each end; the output then has ``K + 2 * padding`` features. The shifts end
            at ``(K - 1)/K``, so few features cover the far border without padding; two or three further shifts suffice.
            ``edge``: coordinates past the last shift get its features. ``wrap``: the axis is periodic (circular shifts).
            ``auto`` is ``edge`` if the shifts are at the samples (``num_features: auto``), else 0.
        spacing: Distance between neighbouring shifts, in units of the [0, 1] domain. Default ``1/K``. Shifts at the samples
            need another spacing if their number is not 1 over their distance: 171 samples of 512 with stride 3 are 3/512
            apart.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.
    """

    directional = True
    reach: ClassVar[float | None] = None
    """The :attr:`support` in units of the width, or of the spacing where the encoder has no width."""

    def __init__(
        self, num_features: CountLike = "auto", padding: PaddingLike = "auto", spacing: float | None = None
    ) -> None:
        self.num_shifts = self.count_value(num_features)  # without the padding
        if isinstance(padding, str) and padding not in ("edge", "wrap", "auto"):
            raise InputError(
                f"{type(self).__name__}: padding must be an integer >= 0, 'edge', 'wrap' or 'auto', got {padding!r}"
            )
        self.outside = 0 if isinstance(padding, str) else check_count(self, "padding", padding, minimum=0)
        self.padding: PaddingLike = 0 if padding == "auto" else padding
        super().__init__(self.num_shifts + 2 * self.outside)
        self.spacing = 1 / self.num_shifts if spacing is None else check_positive(self, "spacing", spacing, 1.0)
        # not 1 / (1 / K), which is not always K
        self.resolution: float = float(self.num_shifts) if spacing is None else 1 / self.spacing
        if padding == "wrap" and abs(self.spacing * self.num_shifts - 1) > 1e-9:
            raise InputError(f"{type(self).__name__}: padding: wrap needs a spacing of 1/{self.num_shifts}; leave it out")

    def indices(self, x: Tensor) -> Tensor:
        """Indices ``i`` of the shifts, from ``-padding`` to ``K - 1 + padding``, as floats ``(num_features,)``."""
        return torch.arange(-self.outside, self.num_shifts + self.outside, dtype=exact_dtype(x), device=x.device)

    def position(self, x: Tensor) -> Tensor:
        """Fractional index of the largest feature at coordinates."""
        return self.placed(x) * self.resolution + self.outside

    def periodic(self) -> Shifted:
        """The encoder with circular shifts."""
        return self.copy(padding="wrap", spacing=None)

    def leading(self, count: int) -> Shifted:
        """The encoder of the first ``count`` features."""
        made = copy.copy(self)
        made.num_features, made.num_shifts = count, count - 2 * self.outside
        return made

    def offsets(self, x: Tensor) -> Tensor:
        """The offsets ``x - t_i``, a new tensor ``(*batch, num_features)``."""
        offsets = self.placed(x)[..., None] - self.indices(x) / self.resolution
        return offsets - offsets.detach().round() if self.padding == "wrap" else offsets

    def placed(self, x: Tensor) -> Tensor:
        """Coordinates after the treatment of the edges, in the dtype of the computation."""
        x = x.to(exact_dtype(x))
        return x.clamp(max=(self.num_shifts - 1) / self.resolution) if self.padding == "edge" else x

    def wrapped(self, index: Tensor) -> Tensor:
        """Indices of shifts, or their differences, modulo ``K`` where the axis is periodic; overwrites them."""
        return index.remainder_(self.num_shifts) if self.padding == "wrap" else index

    def kernel(self, offsets: Tensor) -> Tensor:
        """The kernel at ``offsets``; may overwrite them."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """The kernel at every shift."""
        return self.kernel(self.offsets(x)).to(x.dtype)

    @property
    def support(self) -> float | None:
        """Distance from its shift beyond which a feature is negligible; ``None`` if there is none, or features wrap."""
        if self.reach is None or self.padding == "wrap":
            return None
        width = self.spacing if self.width is None else torch.as_tensor(getattr(self, self.width.argument)).max().item()
        return self.reach * width + (self.spacing if self.padding == "edge" else 0.0)

    @property
    def features_per_unit(self) -> float:
        """Shifts per unit length."""
        return self.resolution

    def resolved(self) -> dict[str, Any]:
        """All constructor arguments with the values in use; ``num_features`` is ``K``, without the padding.

        Widths per feature are replaced by their geometric mean.
        """
        found = {**super().resolved(), "num_features": self.num_shifts}
        if self.per_feature and self.width is not None:
            logarithms: Tensor = getattr(self, f"log_{self.width.argument}")
            found[self.width.argument] = plain(logarithms.mean(-1).exp())
        return found

    def common_width(self) -> float | Tensor:
        """The width, if all features share it.

        Raises:
            NotImplementedError: If there is a width per feature, for which there is no closed form.
        """
        if self.width is None or self.per_feature:
            raise NotImplementedError(f"{type(self).__name__} has no closed form with a width per feature")
        width: float | Tensor = getattr(self, self.width.argument)
        return width

    def _bounded_rank(self, rank: float | Tensor, num_samples: int) -> float:
        """Clamps a stable rank between one and the numbers of rows and columns."""
        return max(1.0, min(torch.as_tensor(rank).item(), num_samples, self.num_shifts))


@registry.register("gau")
class Gaussian(Shifted):
    r"""Shifted Gaussians: :math:`\psi_i(x) = \exp(-(x - t_i)^2 / 2\sigma^2)`, :math:`t_i = i/K`.

    When to use:
        Works as a linear model on grids, where it is the best of the papers' encoders. With too small a ``sigma`` the
        features do not overlap between samples, too large a one blurs. On scattered samples ``laplace`` is better.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        sigma: Standard deviation, in units of the [0, 1] domain. Default ``0.64/K``. Larger is smoother.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.
        trainable: Whether ``sigma`` is trained; it stays positive, and the given value is the initial one.
        per_feature: Whether each feature trains a width of its own; needs ``trainable``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 54;
    *Rethinking Positional Encoding*, Prop. 2.
    """

    formula = "exp(-(x - t_i)² / 2σ²), t_i = i/K"
    width = Width("sigma", "length", lambda k: 0.64 / k, "0.64/K")
    reach = math.sqrt(-2 * math.log(NEGLIGIBLE))
    fallback_ridge = 0.05

    learned: ClassVar = {"log_sigma": ("sigma",)}

    sigma = Trained(each=True)

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: float | None = None,
        trainable: bool = False,
        per_feature: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_trainable(self, trainable, per_feature)
        self.sigma = self.width_value(sigma, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The Gaussian."""
        return exponential(offsets.pow_(2), -0.5 / self.sigma**2)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \sqrt\pi \sigma \exp(-\Delta^2 / 4\sigma^2)`."""
        return math.sqrt(math.pi) * self.common_width() * torch.exp(-((delta / (2 * self.common_width())) ** 2))

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1 / 2\sqrt\pi \sigma)`, to 3 % with enough features and samples."""
        return self._bounded_rank(1 / (2 * math.sqrt(math.pi) * self.common_width()), num_samples)


@registry.register("tri")
class Triangle(Shifted):
    r"""Shifted triangles: :math:`\psi_i(x) = \max(1 - |x - t_i|/d, 0)`, :math:`t_i = i/K`.

    When to use:
        Works as a linear model at any ridge: with ``d = 1/K`` that is linear interpolation between the shifts. Fails where
        smoothness matters: its slope jumps at every shift.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        half_width: Half of the support, ``d``, in units of the [0, 1] domain. Default ``1/K``. (The paper's Prop. 5
            writes the full width ``2 d``.)
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.
        trainable: Whether ``half_width`` is trained; it stays positive, and the given value is the initial one.
        per_feature: Whether each feature trains a width of its own; needs ``trainable``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 53.
    """

    formula = "max(1 - |x - t_i|/d, 0), t_i = i/K"
    width = Width("half_width", "length", lambda k: 1 / k, "1/K")
    reach = 1.0
    fallback_ridge = 1e-4

    learned: ClassVar = {"log_half_width": ("half_width",)}

    half_width = Trained(each=True)

    def __init__(
        self,
        num_features: CountLike = "auto",
        half_width: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: float | None = None,
        trainable: bool = False,
        per_feature: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_trainable(self, trainable, per_feature)
        self.half_width = self.width_value(half_width, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The triangle."""
        return multiply(offsets.abs_(), -1 / self.half_width).add_(1).relu_()

    def distance(self, delta: Tensor) -> Tensor:
        r"""With :math:`u = |\Delta|/d`: :math:`d(2/3 - u^2 + u^3/2)` up to 1, :math:`d(2 - u)^3/6` up to 2, else 0.

        (The paper prints :math:`d^2 \max(1 - u/2, 0)^2`, 17 % off in shape.)
        """
        u = delta.abs() / self.common_width()
        return self.common_width() * torch.where(u <= 1, 2 / 3 - u**2 + u**3 / 2, (2 - u).clamp_min(0) ** 3 / 6)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 4 / (3 \cdot 2d))`, to 3 % with enough features and samples."""
        return self._bounded_rank(2 / (3 * self.common_width()), num_samples)


@registry.register("laplace")
class Laplace(Shifted):
    r"""Shifted exponentials: :math:`\psi_i(x) = \exp(-|x - t_i|/\ell)`, :math:`t_i = i/K`.

    Its similarity ``D`` is the Matérn-3/2 kernel of length :math:`\sqrt3 \ell`.

    When to use:
        Works on scattered samples, where it is the best of the shifted encoders, since its heavy tail spans gaps. It is the
        encoder of ``Adaptive``. On grids ``gau``, ``keys`` and ``bspline`` are better linear models of photographs.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        scale: Length ``ℓ`` over which a feature falls by the factor e, in units of the [0, 1] domain. Default
            ``1.5/K``.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.
        trainable: Whether ``scale`` is trained; it stays positive, and the given value is the initial one.
        per_feature: Whether each feature trains a width of its own; needs ``trainable``.

    Reference: Rasmussen and Williams, *Gaussian Processes for Machine Learning*, MIT Press 2006, Sec. 4.2.
    """

    formula = "exp(-|x - t_i|/ℓ), t_i = i/K"
    width = Width("scale", "length", lambda k: 1.5 / k, "1.5/K")
    reach = -math.log(NEGLIGIBLE)

    learned: ClassVar = {"log_scale": ("scale",)}

    scale = Trained(each=True)

    def __init__(
        self,
        num_features: CountLike = "auto",
        scale: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: float | None = None,
        trainable: bool = False,
        per_feature: bool = False,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        set_trainable(self, trainable, per_feature)
        self.scale = self.width_value(scale, self.resolution)

    def kernel(self, offsets: Tensor) -> Tensor:
        """The two-sided exponential."""
        return exponential(offsets.abs_(), -1 / self.scale)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \ell (1 + |\Delta|/\ell) \exp(-|\Delta|/\ell)`."""
        u = delta.abs() / self.common_width()
        return self.common_width() * (1 + u) * torch.exp(-u)

    def correlation(self, squared: Tensor, unit: float = 1.0) -> Tensor:
        r""":math:`(1 + u) \exp(-u)`, :math:`u = |\Delta|/\ell`; in few passes where no gradient is needed."""
        scale = self.common_width()
        if torch.is_grad_enabled() and (squared.requires_grad or isinstance(scale, Tensor)):
            return super().correlation(squared, unit)
        u = (squared * (scale * unit) ** -2).clamp_min_(0).sqrt_()
        falling = torch.neg(u).exp_()
        return u.add_(1).mul_(falling)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1 / 4\ell)`, with enough features and samples."""
        return self._bounded_rank(1 / (4 * self.common_width()), num_samples)


@registry.register("rect")
class Rectangle(Shifted):
    r"""Shifted boxes: :math:`\psi_i(x) = 1` if :math:`-\sigma/2 \le x - t_i < \sigma/2`, else 0; :math:`t_i = i/K`.

    The last half cell ``x >= 1 - 1/(2K)`` has no feature without ``padding``. Piecewise constant: the gradient with respect
    to ``x`` is zero.

    When to use:
        A baseline: at ``sigma = 1/K`` a linear model of it is nearest-neighbour interpolation. Fails where derivatives are
        needed, and on samples that are further apart than ``sigma``.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        sigma: Full width, in units of the [0, 1] domain. Default ``1/K``.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Prop. 4.
    """

    formula = "1 if -σ/2 <= x - t_i < σ/2 else 0, t_i = i/K"
    width = Width("sigma", "length", lambda k: 1 / k, "1/K")
    reach = 0.5

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: WidthLike = None,
        padding: PaddingLike = "auto",
        spacing: float | None = None,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        self.sigma = self.width_value(sigma, self.resolution)
        cells = self.sigma * self.resolution
        # (1/49) * 49 is not 1: rounding must not leave borders without a feature
        self._cells = float(round(cells)) if abs(cells - round(cells)) < 1e-9 * cells else cells

    def forward(self, x: Tensor) -> Tensor:
        """One where the coordinate is inside the box."""
        dtype, x = x.dtype, self.placed(x)
        # boxes of the shifts lo < i <= hi contain x
        hi = cell(x, self.resolution, self._cells / 2)[..., None]
        whole = self._cells.is_integer()  # then hi - lo is the same for every x, whatever its rounding
        lo = hi - self._cells if whole else cell(x, self.resolution, -self._cells / 2)[..., None]
        below = self.wrapped(hi - self.indices(x))
        return (below >= 0).bitwise_and_(below < hi - lo).to(dtype)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \sigma \max(1 - |\Delta|/\sigma, 0)`."""
        return (self.sigma - delta.abs()).clamp_min(0)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1/\sigma)`, to 3 % with enough features and samples."""
        return self._bounded_rank(1 / self.sigma, num_samples)


@registry.register("impulse")
class Impulse(Shifted):
    r"""One-hot: :math:`\psi_i(x) = 1` for the shift :math:`t_i = i/K` nearest to ``x``, else 0.

    Halfway between two shifts the upper one is taken; beyond the last shift, the last. Piecewise constant: no gradient
    with respect to ``x``.

    When to use:
        A control: full rank and no similarity between neighbours. It fits every trained sample and predicts nothing for
        coordinates that are nearer to another shift.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Sec. 4;
    *Rethinking Positional Encoding*, Sec. 4.
    """

    formula = "1 at the shift t_i = i/K nearest to x, else 0"
    reach = 1.0  # coordinates past the last shift are nearest to it, up to a spacing away

    def forward(self, x: Tensor) -> Tensor:
        """One at the nearest shift."""
        column = self.wrapped(cell(self.placed(x), self.resolution, 0.5)).add_(self.outside)
        column = column.clamp(0, self.num_features - 1).long()
        features = x.new_zeros(*x.shape, self.num_features)
        return features.scatter_add_(-1, column[..., None], features.new_ones(*x.shape, 1))

    def stable_rank(self, num_samples: int) -> float:
        """``N``, up to the number of shifts."""
        return self._bounded_rank(num_samples, num_samples)


class CubicKernel(Shifted):
    r"""Base of the cubic kernels of support ``4/K``: :math:`\psi_i(x) = \kappa(K x - i)`.

    Only the four features around a coordinate differ from zero. A subclass defines their :meth:`weights`.
    """

    reach = 2.0

    @abstractmethod
    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The kernel at ``u + 1, u, u - 1, u - 2`` for ``u`` in [0, 1], in units of the spacing."""

    def forward(self, x: Tensor) -> Tensor:
        """The kernel at every shift."""
        coords = self.placed(x)
        left = (coords.detach() * self.resolution).floor_()  # the shift to the left of the coordinate
        # subtract first: near its shift, x - t_i is exact in floating point, K x - i is not
        values = torch.stack(self.weights((coords - left / self.resolution) * self.resolution), -1)
        columns = self.wrapped(left[..., None] + torch.arange(-1, 3, dtype=left.dtype, device=left.device)).add_(
            self.outside
        )
        inside = (columns >= 0).bitwise_and_(columns < self.num_features)
        columns = columns.clamp(0, self.num_features - 1).long()
        features = values.new_zeros(*x.shape, self.num_features)
        return features.scatter_add_(-1, columns, values.masked_fill(~inside, 0)).to(x.dtype)


@registry.register("keys")
class Keys(CubicKernel):
    r"""Keys' cubic convolution kernel, :math:`a = -1/2`, at :math:`s = |K x - i|`.

    :math:`1 - 5s^2/2 + 3s^3/2` up to 1, :math:`2 - 4s + 5s^2/2 - s^3/2` up to 2, else 0.

    When to use:
        Works as a linear model on grids: with samples at the shifts that is bicubic interpolation. The far border needs
        ``padding``. It has no width to adapt: on scattered samples prefer ``laplace``.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981.
    """

    formula = "cubic convolution (a = -1/2) of K x - i"

    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Catmull-Rom weights of the two samples on either side."""
        v = 1 - u
        return -u * v * v / 2, 1 + u * u * (3 * u - 5) / 2, 1 + v * v * (3 * v - 5) / 2, -v * u * u / 2


@registry.register("bspline")
class BSpline(CubicKernel):
    r"""The cubic B-spline at :math:`s = |K x - i|`.

    :math:`2/3 - s^2 + s^3/2` up to 1, :math:`(2 - s)^3/6` up to 2, else 0.

    When to use:
        Works as a linear model on grids, where it is a cubic spline, and where all samples of a picture are to be stored in
        few parameters. Without ``padding`` few features cover the borders.

    Args:
        num_features: Number of shifts ``K``; ``auto``: as many as trained samples.
        padding: Number of further shifts past each end, ``edge`` or ``wrap`` (:class:`Shifted`).
        spacing: Distance between neighbouring shifts; default ``1/K``.

    Reference: Unser, *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999.
    """

    formula = "cubic B-spline of K x - i"

    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of the two coefficients on either side."""
        v = 1 - u
        return v**3 / 6, 2 / 3 - u * u + u**3 / 2, 2 / 3 - v * v + v**3 / 2, u**3 / 6

    def distance(self, delta: Tensor) -> Tensor:
        r"""The B-spline of degree 7, of a feature with itself, at :math:`K \Delta`, divided by ``K``."""
        u = 4 - (delta * self.resolution).abs()  # distance from the end of the support
        powers = [(-1) ** k * math.comb(8, k) * (u - k).clamp_min(0) ** 7 for k in range(5)]
        return torch.stack(powers).sum(0) / (math.factorial(7) * self.resolution)


def multiply(x: Tensor, factor: float | Tensor) -> Tensor:
    """``factor * x``; in place if the factor is a number."""
    return x * factor if isinstance(factor, Tensor) else x.mul_(factor)


def exponential(x: Tensor, factor: float | Tensor) -> Tensor:
    """``exp(factor * x)``, zero where negligible; in place if the factor is a number."""
    exponent = multiply(x, factor / math.log(2))
    return threshold(exponent, MIN_EXPONENT[exponent.dtype], -math.inf, inplace=True).exp2_()


def cell(x: Tensor, count: float, shift: float = 0.0) -> Tensor:
    """The cell ``floor(x * count + shift)``, as a float.

    A coordinate within four rounding errors below a border counts as on it, so that samples on borders are treated alike.
    """
    dtype = exact_dtype(x)
    with torch.no_grad():
        return (x.to(dtype) * count).add_(shift + 4 * count * torch.finfo(dtype).eps).floor_()

"""Encoders of local support on the spacing of the shifts: cells, and the interpolation kernels.

``rect`` and ``impulse`` only ask which cell a coordinate is in; they are piecewise constant, and exact at the borders of
the cells. ``keys`` and ``bspline`` are cubic, four features at a time.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from pe_lightning.encoders.base import Width, WidthLike, exact_dtype, registry
from pe_lightning.encoders.shifted import Shifted

__all__ = ["BSpline", "CubicKernel", "Impulse", "Keys", "Rectangle", "cell"]


def cell(x: Tensor, count: int, shift: float = 0.0) -> Tensor:
    """The cell ``floor(x * count + shift)``, as a float.

    Samples of a signal often lie exactly on borders of cells, and in floating point ``i / N`` is off by a rounding. A
    coordinate within four roundings below a border is on it, so that every sample on a border goes the same way.
    """
    dtype = exact_dtype(x)
    with torch.no_grad():
        return (x.to(dtype) * count).add_(shift + 4 * count * torch.finfo(dtype).eps).floor_()


@registry.register("rect")
class Rectangle(Shifted):
    r"""Shifted boxes: :math:`\psi_i(x) = 1` if :math:`-\sigma/2 \le x - t_i < \sigma/2`, else 0; :math:`t_i = i/K`.

    A linear model of it is constant between the borders: nearest-neighbour interpolation at ``sigma = 1/K``. The half
    open box gives every coordinate there exactly one feature, but for the last half cell ``x >= 1 - 1/(2K)``, which has
    none without ``padding``. Piecewise constant: no gradient with respect to ``x``.

    Args:
        num_features: Number of shifts ``K``.
        sigma: Full width, in units of the [0, 1] domain. Default ``1/K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Prop. 4.
    """

    formula = "1 if -σ/2 <= x - t_i < σ/2 else 0, t_i = i/K"
    width = Width("sigma", "length", lambda k: 1 / k, "1/K")
    reach = 0.5

    def __init__(self, num_features: int = 256, sigma: WidthLike = None, padding: int = 0) -> None:
        super().__init__(num_features, padding)
        self.sigma = self.width_value(sigma, self.resolution)
        cells = self.sigma * self.resolution
        # (1/49) * 49 is not 1: a width meant as a whole number of cells must be one, or borders belong to no feature
        self._cells = float(round(cells)) if abs(cells - round(cells)) < 1e-9 * cells else cells

    def forward(self, x: Tensor) -> Tensor:
        """One where the coordinate is inside the box."""
        # the shifts whose box holds x are lo < i <= hi, whole numbers
        hi = cell(x, self.resolution, self._cells / 2)[..., None]
        whole = self._cells.is_integer()  # then hi - lo is the same for every x, whatever its rounding
        lo = hi - self._cells if whole else cell(x, self.resolution, -self._cells / 2)[..., None]
        indices = self.indices(x)
        return (indices <= hi).bitwise_and_(indices > lo).to(x.dtype)

    def distance(self, delta: Tensor) -> Tensor:
        r""":math:`D(\Delta) = \sigma \max(1 - |\Delta|/\sigma, 0)`."""
        return (self.sigma - delta.abs()).clamp_min(0)

    def stable_rank(self, num_samples: int) -> float:
        r""":math:`\min(N, 1/\sigma)`, to 3 % with enough features and samples."""
        return self._bounded_rank(1 / self.sigma, num_samples)


@registry.register("impulse")
class Impulse(Shifted):
    r"""One-hot: :math:`\psi_i(x) = 1` for the shift :math:`t_i = i/K` nearest to ``x``, else 0.

    Unbounded rank and no similarity between neighbours: memorises every training point and knows nothing between them.
    Halfway between two shifts the upper one is taken; beyond the last shift, the last. Piecewise constant: no gradient
    with respect to ``x``.

    Args:
        num_features: Number of shifts ``K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Sec. 4;
    *Rethinking Positional Encoding*, Sec. 4.
    """

    formula = "1 at the shift t_i = i/K nearest to x, else 0"
    reach = 1.0  # coordinates past the last shift are nearest to it, up to a spacing away

    def forward(self, x: Tensor) -> Tensor:
        """One at the nearest shift."""
        column = cell(x, self.resolution, 0.5).add_(self.padding).clamp(0, self.num_features - 1).long()
        features = x.new_zeros(*x.shape, self.num_features)
        return features.scatter_add_(-1, column[..., None], features.new_ones(*x.shape, 1))

    def stable_rank(self, num_samples: int) -> float:
        """``N``, up to the number of shifts."""
        return self._bounded_rank(num_samples, num_samples)


class CubicKernel(Shifted):
    r"""Base of the kernels of support ``4/K``: :math:`\psi_i(x) = \kappa(K x - i)`, :math:`\kappa` cubic in each cell.

    Only the four features around a coordinate differ from zero. They are computed and put in place, which is many times
    faster than evaluating the kernel everywhere. A subclass defines :meth:`weights`.
    """

    reach = 2.0

    @abstractmethod
    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The kernel at ``u + 1, u, u - 1, u - 2`` for ``u`` in [0, 1], in units of the spacing."""

    def forward(self, x: Tensor) -> Tensor:
        """The kernel at every shift."""
        coords = x.to(exact_dtype(x))
        left = (coords.detach() * self.resolution).floor_()  # the shift to the left of the coordinate
        # subtract first: near its shift, x - t_i is exact in floating point, K x - i is not
        values = torch.stack(self.weights((coords - left / self.resolution) * self.resolution), -1)
        columns = left[..., None] + (self.padding + torch.arange(-1, 3, dtype=left.dtype, device=left.device))
        inside = (columns >= 0).bitwise_and_(columns < self.num_features)
        columns = columns.clamp(0, self.num_features - 1).long()
        features = values.new_zeros(*x.shape, self.num_features)
        return features.scatter_add_(-1, columns, values.masked_fill(~inside, 0)).to(x.dtype)


@registry.register("keys")
class Keys(CubicKernel):
    r"""Keys' cubic convolution kernel, :math:`a = -1/2`, at :math:`s = |K x - i|`.

    :math:`1 - 5s^2/2 + 3s^3/2` up to 1, :math:`2 - 4s + 5s^2/2 - s^3/2` up to 2, else 0.

    A linear model of it, on samples at the shifts, is bicubic interpolation: 27.27 dB on the papers' images, more than
    any encoder of the papers, and no width to tune. The far border needs ``padding``.

    Args:
        num_features: Number of shifts ``K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

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

    A linear model of it is a cubic spline, twice continuously differentiable, which ``keys`` is not. Its weights are
    not the samples, so they have to be solved for; without ``padding`` both borders are badly covered.

    Args:
        num_features: Number of shifts ``K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Reference: Unser, *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999.
    """

    formula = "cubic B-spline of K x - i"

    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of the two coefficients on either side."""
        v = 1 - u
        return v**3 / 6, 2 / 3 - u * u + u**3 / 2, 2 / 3 - v * v + v**3 / 2, u**3 / 6

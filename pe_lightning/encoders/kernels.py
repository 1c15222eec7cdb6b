"""Interpolation kernels: cubic pieces on the spacing of the shifts, four features at a time."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from pe_lightning.encoders.base import exact_dtype, registry
from pe_lightning.encoders.shifted import Shifted

__all__ = ["BSpline", "CubicKernel", "Keys"]


class CubicKernel(Shifted):
    r"""Base of the kernels of support ``4/K``: :math:`\psi_i(x) = \kappa(K x - i)`, :math:`\kappa` cubic in each cell.

    Only the four features around a coordinate differ from zero. They are computed and put in place, which is many times
    faster than evaluating the pieces everywhere.

    Args:
        num_features: Number of shifts ``K``.
        padding: Number of further shifts past each end; the output has ``K + 2 * padding`` features.

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.
    """

    @property
    def support(self) -> float:
        """Two spacings."""
        return 2 / self.resolution

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
        columns = columns.clamp_(0, self.num_features - 1).long()
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

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.

    Raises:
        InputError: If ``padding`` is negative.

    Reference: Keys, *Cubic Convolution Interpolation for Digital Image Processing*, IEEE Trans. ASSP 29, 1981.
    """

    formula = "cubic convolution (a = -1/2) of K x - i"
    reference = "Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981"

    def __init__(self, num_features: int = 256, padding: int = 0) -> None:
        super().__init__(num_features, padding)

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

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.

    Raises:
        InputError: If ``padding`` is negative.

    Reference: Unser, *Splines: A Perfect Fit for Signal and Image Processing*, IEEE Signal Processing Magazine, 1999.
    """

    formula = "cubic B-spline of K x - i"
    reference = "Unser, Splines: A Perfect Fit for Signal and Image Processing, 1999"

    def __init__(self, num_features: int = 256, padding: int = 0) -> None:
        super().__init__(num_features, padding)

    def weights(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights of the two coefficients on either side."""
        v = 1 - u
        return v**3 / 6, 2 / 3 - u * u + u**3 / 2, 2 / 3 - v * v + v**3 / 2, u**3 / 6

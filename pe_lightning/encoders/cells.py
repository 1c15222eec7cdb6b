"""Encoders that only ask which cell a coordinate is in: piecewise constant, and exact at the borders of the cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders.base import Width, WidthLike, exact_dtype, registry
from pe_lightning.encoders.fourier import RETHINKING, TRADING
from pe_lightning.encoders.shifted import Shifted

__all__ = ["Impulse", "Rectangle", "cell"]


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

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.

    Raises:
        InputError: If ``sigma`` is not positive or ``padding`` is negative.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Prop. 4.
    """

    formula = "1 if -σ/2 <= x - t_i < σ/2 else 0, t_i = i/K"
    reference = f"{TRADING}, Prop. 4"
    default_rules: ClassVar[Mapping[str, str]] = {"sigma": "1/K"}
    width = Width("sigma", "length", lambda k: 1 / k, "1/K")

    def __init__(self, num_features: int = 256, sigma: WidthLike = None, padding: int = 0) -> None:
        super().__init__(num_features, padding)
        self.sigma = self.width_value(sigma, self.resolution)
        cells = self.sigma * self.resolution
        # (1/49) * 49 is not 1: a width meant as a whole number of cells must be one, or borders belong to no feature
        self._cells = float(round(cells)) if abs(cells - round(cells)) < 1e-9 * cells else cells

    @property
    def support(self) -> float:
        """Half of the box."""
        return self.sigma / 2

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

    Shape:
        ``(*batch,)`` in [0, 1] -> ``(*batch, num_features + 2 * padding)``.

    Raises:
        InputError: If ``padding`` is negative.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Sec. 4;
    *Rethinking Positional Encoding*, Sec. 4.
    """

    formula = "1 at the shift t_i = i/K nearest to x, else 0"
    reference = f"{TRADING}, Sec. 4; {RETHINKING}, Sec. 4"

    def __init__(self, num_features: int = 256, padding: int = 0) -> None:
        super().__init__(num_features, padding)

    @property
    def support(self) -> float:
        """One spacing: the coordinates beyond the last shift are nearest to it."""
        return 1 / self.resolution

    def forward(self, x: Tensor) -> Tensor:
        """One at the nearest shift."""
        column = cell(x, self.resolution, 0.5).add_(self.padding).clamp_(0, self.num_features - 1).long()
        features = x.new_zeros(*x.shape, self.num_features)
        return features.scatter_(-1, column[..., None], 1.0)

    def stable_rank(self, num_samples: int) -> float:
        """``N``, up to the number of shifts."""
        return self._bounded_rank(num_samples, num_samples)

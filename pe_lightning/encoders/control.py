"""Controls of the papers' experiments: no encoding, an encoding without structure, and encodings of low rank."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from pe_lightning.encoders.arguments import CountLike, NonNegativeFloat, PositiveFloat, PositiveInt, SeedLike, seeded
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import exact_dtype
from pe_lightning.encoders.kernels import KERNELS
from pe_lightning.encoders.shifted import PaddingLike, Shifted, Spacing, cell


@registry.register("identity")
class Identity(Encoder):
    r"""No encoding: :math:`\psi(x) = 2x - 1`, the coordinate in [-1, 1]. Never scaled.

    When to use:
        Works below SIREN and similar networks (``activation: sine``), whose activations are periodic. Otherwise a baseline:
        a ReLU network above it learns hardly any detail, and a linear model is a plane.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 5.3.
    """

    formula = "2x - 1"
    cell_nodes = 1
    normalizable = False

    def __init__(self) -> None:
        super().__init__(num_features=1)

    def forward(self, x: Tensor) -> Tensor:
        return (2 * x.to(exact_dtype(x))[..., None] - 1).to(x.dtype)


@registry.register("noise")
class Noise(Encoder):
    r"""A fixed random vector per position: row :math:`\lfloor x P \rfloor` of a table of standard normal numbers.

    Piecewise constant: no gradient with respect to ``x``. Coordinates outside [0, 1] take the nearest end's vector.

    When to use:
        The control experiment: full rank and no similarity between neighbours. It fits every trained sample and predicts
        nothing between them.

    Args:
        num_features: Number of features ``K``; ``auto``: as many as trained samples.
        seed: Seed of the table; ``None``: of the run.
        num_positions: Number ``P`` of positions that [0, 1] is divided into.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 5.2.
    """

    formula = "row floor(x P) of a fixed random table"
    table: Tensor

    def __init__(self, num_features: CountLike = "auto", seed: SeedLike = None, num_positions: PositiveInt = 4096) -> None:
        super().__init__(num_features)
        self.num_positions = num_positions
        generator = seeded(seed)
        table = torch.randn(self.num_positions, self.num_features, generator=generator, dtype=torch.float32, device="cpu")
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        row, index = self._rows(x)
        return self.table[index].to(x.dtype).add_(0 * row[..., None])  # NaN at NaN

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        table = self.table.to(torch.promote_types(exact_dtype(x), self.table.dtype))
        sums = torch.cat([table.new_zeros(1, self.num_features), table.cumsum(0)])
        half = torch.as_tensor(size, dtype=table.dtype, device=x.device) / 2

        def antiderivative(x: Tensor) -> Tensor:
            row, index = self._rows(x)
            return sums[index] / self.num_positions + (x - row / self.num_positions)[..., None] * table[index]

        upper, lower = (antiderivative(x.to(table.dtype) + edge) for edge in (half, -half))
        return ((upper - lower) / (2 * half)[..., None]).to(x.dtype)

    def _rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the table as floats, NaN at NaN, and as indices."""
        row = cell(x, self.num_positions).clamp(0, self.num_positions - 1)
        return row, row.long().clamp_(0, self.num_positions - 1)


class _Wave(Shifted):
    """Base of shifted waves: the width of the kernel is a period.

    Args:
        frequency: Frequency ``f``, in periods per unit length.
        offset: Constant ``c`` >= 0 that is added to every feature; the rank is then greater by up to 1.
    """

    fundamental: ClassVar[float]
    """Squared singular value of the sine, and of the cosine, of the fundamental frequency, relative to ``K``."""

    def __init__(
        self,
        num_features: CountLike = "auto",
        frequency: PositiveFloat = 1.0,
        padding: PaddingLike = "auto",
        spacing: Spacing = None,
        offset: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__(num_features, padding, spacing)
        self.frequency = frequency
        self.offset = offset

    @property
    def unit(self) -> float:
        return 1 / self.frequency

    def wave(self, x: Tensor) -> Tensor:
        """The features without the offset."""
        return super().forward(x)

    def forward(self, x: Tensor) -> Tensor:
        return (self.wave(x.to(exact_dtype(x))) + self.offset).to(x.dtype)

    def antiderivative(self, x: Tensor) -> Tensor:
        return super().antiderivative(x) + self.offset * self.clamped(x)[..., None]

    def distance(self, delta: Tensor) -> Tensor:
        """The mean over a period, to which the integral over the shifts is equal if ``2f`` is a whole number."""
        assert self.kernel.similarity is not None
        return self.kernel.similarity(delta * self.frequency) + self.offset**2

    def stable_rank(self, num_samples: int) -> float:
        """The sum of all squared singular values over the largest, where samples and shifts cover whole periods."""
        total = self.kernel.similarity(torch.zeros(())).item() + self.offset**2  # type: ignore[misc]
        return self._bounded(total / max(self.fundamental, self.offset**2), num_samples)


@registry.register("sine")
class Sine(_Wave):
    r"""Shifted sines: :math:`\psi_i(x) = \sin(2\pi f (t_i - x))`, :math:`t_i = i/K`.

    The similarity is :math:`D(\Delta) = \frac12 \cos(2\pi f \Delta) + c^2`, if ``2f`` is a whole number (``f``, with ``c``).
    The authors' figure of similarities has ``offset: 0.7``.

    When to use:
        A control: the rank is at most 2, however many features there are. Represents a single wave only.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 4.
    """

    formula = "sin(2π f (t_i - x)) + c, t_i = i/K"
    kernel = KERNELS["sine"]
    fundamental = 1 / 4


@registry.register("square")
class Square(_Wave):
    r"""Shifted square waves: :math:`\psi_i(x) = \operatorname{sgn} \sin(2\pi f (t_i - x))`, :math:`t_i = i/K`.

    Piecewise constant: no gradient with respect to ``x``. :math:`D(\Delta) = 1 - 4f|\Delta|` for :math:`|\Delta| \le
    1/2f`, of period ``1/f``, if ``2f`` is whole. (The paper prints :math:`1 - 2|\Delta|`, which has ``f = 1/2``.)
    With an ``offset`` of 1 the levels are 0 and 2.

    When to use:
        A control: distances are preserved linearly up to half a period, at a stable rank near the rank of ``sine``.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 4.
    """

    formula = "sgn sin(2π f (t_i - x)) + c, t_i = i/K"
    kernel = KERNELS["square"]
    fundamental = 4 / math.pi**2

    def wave(self, x: Tensor) -> Tensor:
        """The sign of the half period of the offset; 0 within rounding of a jump, where samples often are."""
        with torch.no_grad():
            half_periods = self.offsets(x).mul_(-2 * self.frequency)
            rounding = 4 * torch.finfo(half_periods.dtype).eps * max(1.0, 2 * self.frequency)
            on_a_jump = (half_periods - half_periods.round()).abs_() <= rounding
            sign = half_periods.floor_().remainder(2).mul_(-2).add_(1)
            return sign.masked_fill_(on_a_jump, 0).to(x.dtype)

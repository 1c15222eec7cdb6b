"""Fourier encoders: a cosine and a sine of each of K/2 frequencies."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Literal, TypeAlias

import torch
from torch import Tensor, nn

from pe_lightning.encoders.arguments import (
    CountLike,
    PositiveInt,
    PositiveParameter,
    SeedLike,
    Width,
    WidthLike,
    seeded,
    set_width,
)
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import boxes, points
from pe_lightning.errors import InputError


class Fourier(Encoder):
    r"""Base of the Fourier encoders: :math:`\cos(2\pi f_j x)` for all frequencies, then :math:`\sin(2\pi f_j x)`.

    A subclass defines :meth:`frequencies_like`.

    Args:
        num_features: Number of features ``K``, even; ``K/2`` frequencies. ``auto``: as many as trained samples.
    """

    multiple = 2

    def __init__(self, num_features: CountLike, num_axes: PositiveInt = 1) -> None:
        super().__init__(num_features, num_axes)
        if self.num_features % 2:
            nearest = " or ".join(str(k) for k in (self.num_features - 1, self.num_features + 1) if k > 0)
            raise InputError(
                f"{type(self).__name__}: num_features must be even, a cosine and a sine per frequency, got "
                f"{self.num_features}; use {nearest}"
            )

    @abstractmethod
    def frequencies_like(self, x: Tensor) -> Tensor:
        """The frequencies in periods per unit length, ``(num_features / 2, num_axes)``, on the device of ``x``."""

    def forward(self, x: Tensor) -> Tensor:
        coords = points(self, x)
        return waves(coords, 2 * math.pi * self.frequencies_like(coords)).to(x.dtype)

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        """In closed form: a wave times the sinc of its frequency, on all axes."""
        coords, sizes = boxes(self, x, size)
        return waves(coords, 2 * math.pi * self.frequencies_like(coords), sizes).to(x.dtype)

    def distance(self, delta: Tensor) -> Tensor:
        r"""Normalised to one at zero: :math:`D(\Delta) = \frac{2}{K} \sum_j \cos 2\pi f_j \Delta`."""
        return self.forward(delta)[..., : self.num_features // 2].mean(-1)


Octaves: TypeAlias = Annotated[float, "[1e-12, 64]"] | Literal["auto"] | None
"""The exponent of a highest frequency; otherwise as :data:`~pe_lightning.encoders.arguments.WidthLike`."""


class _Octaves(Fourier):
    """Base of the encoders with frequencies from 2^0 to 2^sigma; a subclass defines their spacing.

    Args:
        trainable: Whether ``sigma`` is trained; it stays positive, and the given value is the initial one.
        per_feature: Whether a factor of each frequency is trained too; needs ``trainable``.
    """

    sigma = PositiveParameter()

    def __init__(
        self, num_features: CountLike = "auto", sigma: Octaves = None, trainable: bool = False, per_feature: bool = False
    ) -> None:
        super().__init__(num_features)
        set_width(self, sigma, self.num_features, trainable, per_feature)
        self.per_feature = per_feature
        if per_feature:
            self.log_factors = nn.Parameter(torch.zeros(self.num_features // 2, dtype=torch.float32, device="cpu"))

    @abstractmethod
    def spaced(self, steps: Tensor) -> Tensor:
        """The frequencies at ``steps`` from 0 to 1."""

    def frequencies_like(self, x: Tensor) -> Tensor:
        # float64 where the device supports it: the frequencies of all dtypes are then the same numbers, rounded
        dtype = torch.float32 if x.device.type == "mps" else torch.float64
        frequencies = self.spaced(torch.linspace(0, 1, self.num_features // 2, dtype=dtype, device=x.device))
        return (frequencies * self.log_factors.exp() if self.per_feature else frequencies)[:, None]


@registry.register("linf")
class LinearFourier(_Octaves):
    r"""Frequencies linear from :math:`2^0` to :math:`2^\sigma`: :math:`\cos(2\pi f_j x), \sin(2\pi f_j x)`.

    When to use:
        Works below an MLP. Fails as a linear model without a ridge, since frequencies less than one period apart are nearly
        dependent on [0, 1]. No ridge helps against frequencies above the Nyquist frequency of the samples.

    Args:
        sigma: Exponent of the highest frequency, which is ``2**sigma`` periods per unit length. Default
            ``log2 K - 2``, at least 1; below :class:`SimpleMLP` ``log2 n - 3`` for ``n`` trained samples per axis.
        whole: Whether frequencies are rounded to whole numbers, so that features have period 1, for a periodic axis.
            ``sigma`` is then at least ``log2(K/2)``, by default equal to it, so that no two are the same.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 50.
    """

    formula = "cos, sin(2π f x), f linear from 2^0 to 2^σ"
    # the rule gives <= 0 for K < 8, where an exponent of 1 still spans two different frequencies
    width = Width("sigma", "octaves", lambda k: max(math.log2(k) - 2, 1.0), "log2 K - 2", lambda n: max(math.log2(n) - 3, 1))

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: Octaves = None,
        trainable: bool = False,
        per_feature: bool = False,
        whole: bool = False,
    ) -> None:
        super().__init__(num_features, sigma, trainable, per_feature)
        self.whole = whole
        if whole and trainable:
            raise InputError("LinearFourier: whole frequencies cannot be trained; leave out trainable")
        if whole:
            self.sigma = max(math.log2(self.num_features // 2), float(sigma) if isinstance(sigma, (int, float)) else 0.0)

    def spaced(self, steps: Tensor) -> Tensor:
        frequencies = 1 + (2**self.sigma - 1) * steps
        return frequencies.round() if self.whole else frequencies

    def periodic(self) -> LinearFourier:
        return self.copy(whole=True)


@registry.register("logf")
class LogFourier(_Octaves):
    r"""Frequencies log-linear from :math:`2^0` to :math:`2^\sigma`: :math:`\cos(2\pi f_j x), \sin(2\pi f_j x)`.

    When to use:
        Works below an MLP: the usual choice of coordinate networks. Fails as a linear model without a ridge, since half of
        the frequencies lie below the square root of the highest one and are nearly dependent on [0, 1].

    Args:
        sigma: Exponent of the highest frequency, which is ``2**sigma`` periods per unit length. Default
            ``log2 K - 1.5``, at least 1; below :class:`SimpleMLP` ``log2 n - 2.5`` for ``n`` trained samples per axis.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 51.
    """

    formula = "cos, sin(2π f x), f log-linear from 2^0 to 2^σ"
    width = Width(
        "sigma", "octaves", lambda k: max(math.log2(k) - 1.5, 1.0), "log2 K - 1.5", lambda n: max(math.log2(n) - 2.5, 1.0)
    )
    fallback_ridge = 1e-5

    def spaced(self, steps: Tensor) -> Tensor:
        return torch.exp2(self.sigma * steps)


@registry.register("rff")
class RandomFourier(Fourier):
    r"""Random Fourier features: :math:`\cos, \sin(2\pi\, b_j \cdot x)`, :math:`b_j \sim \mathcal{N}(0, \sigma^2 I)`.

    Approximates Gaussians of :math:`\sigma_g = 1/(2\sqrt2 \pi \sigma)`. The frequencies are part of the ``state_dict``.

    When to use:
        Works below an MLP, where it is the best of the papers' encoders on images, and with one joint frequency vector per
        feature for several axes. Needs a ridge as a linear model. Results vary with the draw.

    Args:
        sigma: Standard deviation of the frequencies, in periods per unit length. Default ``K/6``; below :class:`SimpleMLP`
            ``n/19`` for ``n`` trained samples per axis. Larger is rougher.
        seed: Seed of the draw; ``None``: of the run.
        num_axes: Number of coordinates of a point; with more than one, the encoder is joint over the axes.
        trainable: Whether ``sigma`` is trained; it stays positive, and the given value is the initial one. The
            ``state_dict`` then holds the frequencies for ``sigma = 1``.
        per_feature: Whether each frequency is trained too; needs ``trainable``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eq. 52;
    *Rethinking Positional Encoding*, Sec. 4.1.
    """

    formula = "cos, sin(2π f·x), f ~ N(0, σ²)"
    width = Width("sigma", "frequency", lambda k: k / 6, "K/6", lambda n: n / 19)
    fallback_ridge = 1e-2
    joint = True
    drawn = True
    frequencies: Tensor

    sigma = PositiveParameter()

    def __init__(
        self,
        num_features: CountLike = "auto",
        sigma: WidthLike = None,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
        trainable: bool = False,
        per_feature: bool = False,
    ) -> None:
        super().__init__(num_features, num_axes)
        set_width(self, sigma, self.num_features, trainable, per_feature)
        self.per_feature = per_feature
        self.trainable = trainable
        generator = seeded(seed)
        # float32 whatever the default dtype, so that every draw is the same
        normal = torch.randn(self.num_features // 2, self.num_axes, generator=generator, dtype=torch.float32, device="cpu")
        if per_feature:
            self.frequencies = nn.Parameter(normal)
        else:
            self.register_buffer("frequencies", normal if trainable else self.sigma * normal)

    def frequencies_like(self, x: Tensor) -> Tensor:
        frequencies = self.frequencies.to(x.dtype)
        return frequencies * self.sigma if self.trainable else frequencies

    def distance(self, delta: Tensor) -> Tensor:
        r"""The mean over draws, :math:`\exp(-2\pi^2\sigma^2 |\Delta|^2)`; with ``per_feature`` the sum over frequencies."""
        if self.per_feature:
            return super().distance(delta)
        squared = delta.square() if self.num_axes == 1 else delta.square().sum(-1)
        return (-2 * (math.pi * self.sigma) ** 2 * squared).exp()

    def stable_rank(self, num_samples: int) -> float:
        r"""Asymptotically :math:`\min(N, \sqrt{2\pi}\sigma)`; 750 frequencies stay 10 to 45 % below it. One axis only."""
        if self.num_axes > 1 or self.per_feature:
            return super().stable_rank(num_samples)
        return max(1.0, min(num_samples, self.num_features, math.sqrt(2 * math.pi) * torch.as_tensor(self.sigma).item()))


@registry.register("basic")
class Basic(Fourier):
    r"""One period of a circle: :math:`\cos(2\pi x), \sin(2\pi x)`.

    When to use:
        A baseline of experiments on why rank matters: its rank is 2, and it resolves nothing finer than the whole domain.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Sec. 5.3.
    """

    formula = "cos, sin(2πx)"

    def __init__(self) -> None:
        super().__init__(num_features=2)

    def frequencies_like(self, x: Tensor) -> Tensor:
        return torch.ones(1, 1, dtype=x.dtype, device=x.device)


def waves(coords: Tensor, angular: Tensor, sizes: Tensor | None = None) -> Tensor:
    r"""Cosines, then sines, of :math:`w_j \cdot x`; of cells times :math:`\prod_a \mathrm{sinc}(w_{ja} h_a / 2\pi)`.

    Points ``(*batch, M)``, angular frequencies ``(J, M)`` and sizes ``(*batch, M)`` -> ``(*batch, 2 J)``, in the dtype of
    the
    points.
    """
    count, num_axes = angular.shape
    angular = angular.to(coords.dtype).repeat(2, 1)
    # cos(a) = sin(a + pi/2) is faster than concatenating cosines and sines. No matrix product: autocast or TF32 would round
    # the phases to 8-11 bits.
    phase = angular.new_zeros(2 * count)
    phase[:count] = math.pi / 2
    for axis in range(num_axes):
        phase = torch.addcmul(phase, coords[..., axis, None], angular[:, axis])
    if sizes is None:
        return phase.sin_()
    return phase.sin() * torch.sinc(sizes[..., None, :] * angular / (2 * math.pi)).prod(-1)

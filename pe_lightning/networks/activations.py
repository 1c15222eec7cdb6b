"""Activations of perceptrons, with formula, initialisation and default learning rate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.encoders.coordinates import exact_dtype
from pe_lightning.encoders.kernels import exponential
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.signals import validation


class Activation(nn.Module, ABC):
    """An activation, and the initialisation of the linear layers around it.

    Options are buffers, so that checkpoints hold them. A subclass has an option if its default is not ``None``.

    Args:
        omega: Angular frequency; ``None`` for the default.
        scale: Second option, see :attr:`scale_text`; ``None`` for the default.
        first: Whether it follows the first layer, whose inputs are coordinates or features of them.
    """

    formula: ClassVar[str]
    reference: ClassVar[str] = ""
    rate: ClassVar[float] = 5e-3
    """Default learning rate of Adam."""
    weight_decay: ClassVar[float] = 0.0
    scales_targets: ClassVar[bool] = False
    """Whether networks are trained on values scaled to [-1, 1], as in the programs of the authors."""
    default_omega: ClassVar[float | None] = None
    default_scale: ClassVar[float | None] = None
    scale_text: ClassVar[str] = ""
    """Meaning of ``scale`` in the formula."""
    carries_identity: ClassVar[bool] = False
    """Whether f(z) - f(-z) = z, so that a pair of units can pass a value on unchanged."""
    omega: Tensor
    scale: Tensor

    def __init__(self, omega: float | None = None, scale: float | None = None, first: bool = False) -> None:
        super().__init__()
        self.first = first
        options = (("omega", omega, self.default_omega), ("scale", scale, self.default_scale))
        for name, given, default in options:
            if default is not None:
                self.register_buffer(name, torch.tensor(float(default if given is None else given)))

    @classmethod
    def has_options(cls) -> bool:
        """Whether the activation has an ``omega`` or a ``scale``."""
        return cls.default_omega is not None or cls.default_scale is not None

    @classmethod
    def largest_omega(cls, scale: float | None) -> float:
        """The largest ``omega`` at which values do not overflow, for a ``scale``."""
        return math.inf

    def size(self, width: int) -> int:
        """Number of outputs of a layer of ``width`` units."""
        return width

    def layer(self, inputs: int, width: int) -> nn.Module:
        """The linear layer before the activation, initialised."""
        return nn.Linear(inputs, width)

    def last(self, inputs: int, outputs: int) -> nn.Module:
        """The linear layer after the last activation, initialised."""
        return nn.Linear(inputs, outputs)

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """The formula."""


activations: Registry[Activation] = Registry("activation", Activation, "pe_lightning.activations")  # type: ignore[type-abstract]


class _Elementwise(Activation):
    function: Callable[[Tensor], Tensor]
    weight_decay = 1e-8

    def forward(self, z: Tensor) -> Tensor:
        return self.function(z)


@activations.register("relu")
class ReLU(_Elementwise):
    """The papers' activation."""

    formula = "max(z, 0)"
    carries_identity = True
    reference = "Zheng et al., Trading Positional Complexity vs. Deepness in Coordinate Networks, ECCV 2022"
    function = staticmethod(F.relu)


@activations.register("gelu")
class GELU(_Elementwise):
    """ReLU with a smooth corner."""

    formula = "z Φ(z)"
    carries_identity = True
    reference = "Hendrycks and Gimpel, Gaussian Error Linear Units, 2016"
    function = staticmethod(F.gelu)


@activations.register("silu")
class SiLU(_Elementwise):
    """ReLU with a smooth corner."""

    formula = "z / (1 + exp(-z))"
    carries_identity = True
    reference = "Elfwing et al., Sigmoid-Weighted Linear Units, Neural Networks 107, 2018"
    function = staticmethod(F.silu)


@activations.register("tanh")
class Tanh(_Elementwise):
    """Smooth and bounded."""

    formula = "tanh(z)"
    function = staticmethod(torch.tanh)


@activations.register("sine")
class Sine(Activation):
    r"""SIREN: :math:`\sin(\omega z)`, initialised so that :math:`z` has the same distribution in all layers.

    Weights of the first layer are :math:`U(\pm 1/n)` for ``n`` inputs, of other layers :math:`U(\pm \sqrt{6/n} / \omega)`.
    """

    formula = "sin(ω z)"
    reference = "Sitzmann et al., Implicit Neural Representations with Periodic Activation Functions, NeurIPS 2020"
    rate = 5e-4
    scales_targets = True
    default_omega = 30.0

    def layer(self, inputs: int, width: int) -> nn.Linear:
        layer = nn.Linear(inputs, width)
        bound = 1 / inputs if self.first else math.sqrt(6 / inputs) / float(self.omega)
        nn.init.uniform_(layer.weight, -bound, bound)
        return layer

    def last(self, inputs: int, outputs: int) -> nn.Linear:
        return Sine(float(self.omega)).layer(inputs, outputs)

    def forward(self, z: Tensor) -> Tensor:
        return torch.sin(self.omega * z)


@activations.register("finer")
class Finer(Sine):
    r"""FINER: :math:`\sin(\omega (|z| + 1) z)`, whose frequency rises with the distance of ``z`` from zero.

    Training treats the factor :math:`|z| + 1` as a constant, as the authors' program does; evaluation mode does not.
    """

    formula = "sin(ω (|z| + 1) z)"
    reference = "Liu et al., FINER: Flexible Spectral-bias Tuning, CVPR 2024"
    default_scale = 0.7
    scale_text = "bias of the first layer U(±scale)"

    def layer(self, inputs: int, width: int) -> nn.Linear:
        """A larger bias of the first layer distributes the units over frequencies."""
        layer = super().layer(inputs, width)
        if self.first:
            nn.init.uniform_(layer.bias, -float(self.scale), float(self.scale))
        return layer

    def forward(self, z: Tensor) -> Tensor:
        factor = (z.detach() if self.training else z).abs() + 1
        return torch.sin(self.omega * factor * z)


@activations.register("gauss")
class Gauss(Activation):
    r"""A Gaussian: :math:`\exp(-(s z)^2)`."""

    formula = "exp(-(s z)²)"
    reference = "Ramasinghe and Lucey, Beyond Periodicity, ECCV 2022"
    rate = 3e-3
    scales_targets = True
    default_scale = 10.0
    scale_text = "s"

    def forward(self, z: Tensor) -> Tensor:
        return exponential(z.to(exact_dtype(z)).square(), -self.scale.square())


@activations.register("staf")
class Staf(Sine):
    r"""STAF: :math:`\sum_j b_j \sin(w_j z + \phi_j)`, five trained terms, shared by the units of a layer.

    Initially :math:`w_j = \omega U(0, 1)`, :math:`\phi_j = U(\pm\pi)` and :math:`b_j = \pm\sqrt{|l|}` for :math:`l` of the
    Laplace distribution of scale :math:`1 / 2\tau`, :math:`\tau` the number of terms.
    """

    formula = "Σ b_j sin(w_j z + φ_j)"
    reference = "Morsali et al., STAF: Sinusoidal Trainable Activation Functions, 2025"
    rate = 1e-3
    terms: ClassVar[int] = 5

    def __init__(self, omega: float | None = None, scale: float | None = None, first: bool = False) -> None:
        super().__init__(omega, scale, first)
        self.frequencies = nn.Parameter(self.omega * torch.rand(self.terms))
        self.phases = nn.Parameter(math.pi * (2 * torch.rand(self.terms) - 1))
        sign = torch.randint(2, (self.terms,)) * 2 - 1
        # the absolute value of a Laplace variable is exponential
        self.amplitudes = nn.Parameter(sign * (torch.empty(self.terms).exponential_(2 * self.terms)).sqrt())

    def forward(self, z: Tensor) -> Tensor:
        terms = zip(self.frequencies.unbind(), self.phases.unbind(), self.amplitudes.unbind(), strict=True)
        waves = [b * torch.sin(w * z + phi) for w, phi, b in terms]
        return sum(waves[1:], waves[0])


MAX_GABOR_OMEGA = 6
r"""Largest omega of gabor, in units of its scale: its values reach :math:`\exp(\omega^2 / 4 s^2)`, here 8103."""


class ComplexLayer(nn.Module):
    """A complex linear layer with real parameters, as optimisers and several processes support these alone.

    Real parts come first, then imaginary parts: ``(*batch, 2 * inputs)`` -> ``(*batch, 2 * outputs)``.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(2, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        real, imaginary = self.weight.unbind()
        rows = torch.cat([torch.cat([real, -imaginary], 1), torch.cat([imaginary, real], 1)])
        return F.linear(x, rows, self.bias.flatten())


@activations.register("gabor")
class Gabor(Activation):
    r"""WIRE: :math:`\exp(i \omega z - |s z|^2)` with complex weights; the output is the real part of the last layer.

    A layer has ``width / √2`` complex units, and thus as many numbers as a real layer of ``width`` units.
    """

    formula = "exp(i ω z - |s z|²)"
    reference = "Saragadam et al., WIRE: Wavelet Implicit Neural Representations, CVPR 2023"
    rate = 1e-3
    scales_targets = True
    default_omega = 20.0
    default_scale = 10.0
    scale_text = "s"

    @classmethod
    def largest_omega(cls, scale: float | None) -> float:
        return MAX_GABOR_OMEGA * (scale or cls.default_scale or 1.0)

    def size(self, width: int) -> int:
        return 2 * round(width / math.sqrt(2))

    def layer(self, inputs: int, width: int) -> nn.Module:
        """Real below the first activation, complex below further ones."""
        outputs = self.size(width) // 2
        return nn.Linear(inputs, outputs) if self.first else ComplexLayer(inputs // 2, outputs)

    def last(self, inputs: int, outputs: int) -> nn.Linear:
        """The real part of a complex layer, as a real layer of real and imaginary parts."""
        layer, bound = nn.Linear(inputs, outputs), 1 / math.sqrt(inputs / 2)
        nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.uniform_(layer.bias, -bound, bound)
        return layer

    def forward(self, z: Tensor) -> Tensor:
        """Real, ``(*batch, n)``, or real and then imaginary parts, ``(*batch, 2 n)`` -> ``(*batch, 2 n)``."""
        z = z.to(exact_dtype(z))
        if self.first:
            envelope, phase = exponential(z.square(), -self.scale.square()), self.omega * z
        else:
            real, imaginary = z.chunk(2, -1)
            squared = real.square() + imaginary.square()
            envelope = exponential(-self.omega * imaginary - self.scale.square() * squared, 1.0)
            phase = self.omega * real
        return torch.cat([envelope * phase.cos(), envelope * phase.sin()], -1)


def find_activation(name: str, plain: bool = False) -> type[Activation]:
    """The activation of a registered name or an import path; with ``plain`` one with options is refused."""
    kind = activations.get(name)
    if plain and kind.has_options():
        allowed = [other for other in activations if not activations.get(other).has_options()]
        raise InputError(f"activation {name!r} is for SimpleMLP only; allowed here: {', '.join(allowed)}")
    return kind


def check_options(name: str, omega: float | None, scale: float | None) -> None:
    """Checks the options of an activation."""
    kind = find_activation(name)
    given = (("omega", omega, "default_omega"), ("activation_scale", scale, "default_scale"))
    for option, value, default in given:
        if value is None:
            continue
        if getattr(kind, default) is None:
            having = ", ".join(other for other in activations if getattr(activations.get(other), default) is not None)
            raise InputError(f"activation {name!r} has no {option}, got {value!r}; leave it out. These have: {having}")
        validation.number(option, value, "[1e-6, 1e6]", hint=f", such as {getattr(kind, default):g}")
    frequency = kind.default_omega if omega is None else omega
    if frequency is not None and frequency > (largest := kind.largest_omega(scale)):
        raise InputError(
            f"{name} overflows where omega is above {largest:g}, for activation_scale={scale or kind.default_scale:g}; got "
            f"omega={frequency:g}"
        )

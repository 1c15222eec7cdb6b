"""Learnable Fourier features: features of groups of coordinates, with or without a small MLP that all groups share.

Coordinates ``(*batch, G, M)`` -> features ``(*batch, G, F)`` -> MLP ``(*batch, G, D / G)`` -> ``(*batch, D)``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.encoders.arguments import (
    CountLike,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    SeedLike,
    sample_value,
    seeded,
)
from pe_lightning.encoders.base import Encoder, registry
from pe_lightning.encoders.coordinates import boxes, points
from pe_lightning.encoders.fourier import waves
from pe_lightning.errors import InputError
from pe_lightning.linalg import without_autocast

DropoutShare: TypeAlias = Annotated[float, "[0, 0.99]"]


class Modulator(nn.Module):
    r"""The MLP after features: :math:`Y = \mathrm{GeLU}(F W_1 + B_1) W_2 + B_2`.

    It runs in the precision of its input, even under autocast. The scale and offset of LayerNorm are left out: the dense
    layer
    after it has its own. Initial weights are drawn as by :class:`torch.nn.Linear`.
    """

    def __init__(
        self, num_inputs: int, hidden: int, num_outputs: int, layer_norm: bool, dropout: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.layer_norm = layer_norm
        self.dropout = dropout

        def drawn(num_inputs: int, *shape: int) -> nn.Parameter:
            empty = torch.empty(shape, dtype=torch.float32, device="cpu")
            return nn.Parameter(empty.uniform_(-(num_inputs**-0.5), num_inputs**-0.5, generator=generator))

        self.weight_1, self.bias_1 = drawn(num_inputs, hidden, num_inputs), drawn(num_inputs, hidden)
        self.weight_2, self.bias_2 = drawn(hidden, num_outputs, hidden), drawn(hidden, num_outputs)

    def dense(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x = F.layer_norm(x, x.shape[-1:]) if self.layer_norm else x
        return F.linear(x, weight.to(x.dtype), bias.to(x.dtype))

    def forward(self, features: Tensor) -> Tensor:
        with without_autocast(features.device):
            hidden = F.gelu(self.dense(features, self.weight_1, self.bias_1))
            return self.dense(F.dropout(hidden, self.dropout, self.training), self.weight_2, self.bias_2)


class Grouped(Encoder):
    """Base of features of groups of coordinates, with or without a :class:`Modulator` after them.

    A subclass defines :meth:`group_features`, of :attr:`num_inputs` numbers, and calls :meth:`add_modulator`.

    Args:
        num_features: Number ``D`` of features of the output; ``auto``: as many as trained samples.
        num_axes: Number of coordinates of a point, ``G * M``.
        groups: Number ``G`` of groups. All share their weights.
        mlp: Whether the MLP comes after the features, as in ``lff``.
        num_inputs: Features of a group below the MLP, a cosine and a sine per frequency; without it there are ``D / G``.
    """

    joint = True
    multiple = 2
    modulator: Modulator | None

    def __init__(self, num_features: CountLike, num_axes: int, groups: int, mlp: bool, num_inputs: int) -> None:
        super().__init__(num_features, num_axes)
        self.groups = groups
        if self.num_axes % self.groups or self.num_features % self.groups:
            raise InputError(
                f"{type(self).__name__}: groups must divide num_axes and num_features, got {groups!r}; num_axes is "
                f"{num_axes}, num_features {num_features}. Groups need num_axes, as in {{groups: 2, num_axes: 4}}"
            )
        self.mlp = mlp
        self.num_inputs = num_inputs if mlp else self.num_features // self.groups

    def add_modulator(self, hidden: int, layer_norm: bool, dropout: float, generator: torch.Generator) -> None:
        """Creates the MLP if ``mlp`` is set."""
        sizes = self.num_inputs, hidden, self.num_features // self.groups
        self.modulator = Modulator(*sizes, layer_norm, dropout, generator) if self.mlp else None

    def check_waves(self, least: int = 1) -> int:
        """Half of :attr:`num_inputs`: the number of frequencies, with a cosine and a sine each."""
        if self.num_inputs % 2 or self.num_inputs < 2 * least:
            argument = "num_inputs" if self.mlp else "num_features"
            raise InputError(
                f"{type(self).__name__}: {argument} must be even per group, and at least {2 * least}: a cosine and a sine "
                f"per frequency; got {self.num_inputs} per group"
            )
        return self.num_inputs // 2

    @abstractmethod
    def group_features(self, coords: Tensor) -> Tensor:
        """Features of each group: ``(*batch, G, M)`` -> ``(*batch, G, num_inputs)``."""

    def grouped(self, coords: Tensor) -> Tensor:
        """``(*batch, num_axes)`` -> ``(*batch, G, M)``."""
        return coords.reshape(*coords.shape[:-1], self.groups, self.num_axes // self.groups)

    def joined(self, features: Tensor) -> Tensor:
        """The output from the features of each group: ``(*batch, G, num_inputs)`` -> ``(*batch, num_features)``."""
        return (features if self.modulator is None else self.modulator(features)).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        return self.joined(self.group_features(self.grouped(points(self, x)))).to(x.dtype)


class GroupedWaves(Grouped):
    """Base of cosines, then sines, of groups of coordinates; a subclass defines :meth:`group_frequencies`."""

    divisor: float = 1.0
    """Features are divided by it."""

    @abstractmethod
    def group_frequencies(self, coords: Tensor) -> Tensor:
        """The frequencies in radians per unit length, ``(num_inputs / 2, M)``, for coordinates ``(*batch, G, M)``."""

    def group_features(self, coords: Tensor) -> Tensor:
        return waves(coords, self.group_frequencies(coords)) / self.divisor

    def cell(self, x: Tensor, size: Tensor | float) -> Tensor:
        """In closed form if no MLP follows, else by quadrature of its output."""
        if self.modulator is not None:
            return super().cell(x, size)
        coords, sizes = boxes(self, x, size)
        coords, sizes = self.grouped(coords), self.grouped(sizes)
        return (waves(coords, self.group_frequencies(coords), sizes) / self.divisor).flatten(-2).to(x.dtype)


@registry.register("lff")
class LearnableFourier(GroupedWaves):
    r"""Learnable Fourier features: :math:`F = |F|^{-1/2} [\cos X W_r^T, \sin X W_r^T]`, of norm :math:`\|F\|^2 = 1/2`.

    All of ``W_r`` is trained. An MLP may follow, :math:`Y = \mathrm{GeLU}(F W_1 + B_1) W_2 + B_2`. At the start the products
    of ``F`` fall with the distance as a Gaussian of standard deviation ``gamma``.

    When to use:
        Works as position encoding of attention models, and below a perceptron, where it adapts its frequencies to the
        signal. Too small a ``gamma`` is not repaired by training. It has no closed-form fit.

    Args:
        gamma: ``W_r`` starts with standard deviation ``1/gamma``, in radians per unit length; larger is smoother. ``auto``:
            three trained samples, or one position of the tokens of an attention model, as in the paper.
        init: ``normal`` draws ``W_r`` from ``N(0, 1/gamma^2)``, ``uniform`` from ``[0, 1/gamma]``, which is worse.
        mlp: Whether the MLP comes after the Fourier features, as in the paper, where a model adds the output to its own
            features. Below a perceptron it is slower, also in steps.
        num_inputs: Number ``|F|`` of Fourier features of a group below the MLP, even; without it there are ``D / G``.
        hidden: Hidden units ``|H|`` of the MLP.
        layer_norm: Whether a LayerNorm comes before each dense layer of the MLP.
        dropout: Share of the hidden units that are left out in training; the paper's captioning has 0.2.
        kl: Weight of a loss that keeps ``W_r`` near a normal distribution of mean zero (see :meth:`penalty`).
        seed: Seed of all initial weights; ``None``: of the run.

    Reference: Li et al., *Learnable Fourier Features for Multi-Dimensional Spatial Positional Encoding*, NeurIPS 2021,
    Algorithm 1 and Eqs. 10-11.
    """

    formula = "|F|^(-1/2) cos, sin(w·x), w trained; with or without an MLP"
    from_samples: ClassVar = {"gamma": lambda samples: (1 if samples.use == "tokens" else 3) / samples.mean}

    def __init__(
        self,
        num_features: CountLike = "auto",
        gamma: PositiveFloat | Literal["auto"] = "auto",
        init: Literal["normal", "uniform"] = "normal",
        mlp: bool = False,
        num_inputs: PositiveInt = 256,
        hidden: PositiveInt = 32,
        groups: PositiveInt = 1,
        layer_norm: bool = False,
        dropout: DropoutShare = 0.0,
        kl: NonNegativeFloat = 0.0,
        seed: SeedLike = None,
        num_axes: PositiveInt = 1,
    ) -> None:
        super().__init__(num_features, num_axes, groups, mlp, num_inputs)
        self.gamma: float = sample_value(self, "gamma", gamma)
        self.kl = kl
        generator = seeded(seed)
        self.divisor = math.sqrt(self.num_inputs)
        start = torch.empty(self.check_waves(), self.num_axes // self.groups, dtype=torch.float32, device="cpu")
        if self.kl and start.numel() < 2:
            raise InputError(f"{type(self).__name__}: one frequency has no variance for kl; set kl: 0, or more features")
        draw = nn.init.normal_ if init == "normal" else nn.init.uniform_
        self.frequencies = nn.Parameter(draw(start, generator=generator) / self.gamma)
        if self.kl:
            self.log_variance = nn.Parameter(torch.tensor(-2 * math.log(self.gamma), dtype=torch.float32, device="cpu"))
        self.add_modulator(hidden, layer_norm, dropout, generator)

    def group_frequencies(self, coords: Tensor) -> Tensor:
        return self.frequencies

    def penalty(self) -> Tensor:
        r"""``kl`` times :math:`\frac12 (\log \bar\sigma^2 - \log \sigma^2 + (\sigma^2 + \mu^2) / \bar\sigma^2 - 1)`, ``()``.

        The divergence of a normal distribution with mean and variance of the entries of ``W_r`` from one of mean zero and
        the trained variance :math:`\bar\sigma^2`, which starts at :math:`\gamma^{-2}`.
        """
        if not self.kl:
            return super().penalty()
        variance, mean = torch.var_mean(self.frequencies, correction=0)
        ratio = (variance + mean**2) / self.log_variance.exp()
        return self.kl / 2 * (self.log_variance - variance.log() + ratio - 1)

    def distance(self, delta: Tensor) -> Tensor:
        r"""The product of two positions' features, :math:`|F|^{-1} \sum_j \cos w_j \Delta`, if no MLP follows."""
        if self.modulator is not None:
            return super().distance(delta)
        features = self.forward(delta)
        groups = features.reshape(*features.shape[:-1], self.groups, self.num_inputs)
        return groups[..., : self.num_inputs // 2].sum((-1, -2)) / math.sqrt(self.num_inputs)

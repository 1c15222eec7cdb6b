"""One multilayer perceptron per signal, evaluated together."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["ACTIVATIONS", "Activation", "SignalMLP", "check_activation"]

Activation = Literal["relu", "gelu", "silu", "tanh", "sine"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sine": torch.sin,
}
assert set(ACTIVATIONS) == set(get_args(Activation))


def check_activation(name: str) -> str:
    """``name`` if it is a known activation, else an :class:`InputError`."""
    if name not in ACTIVATIONS:
        raise InputError(
            f"unknown activation {name!r}{did_you_mean(name, ACTIVATIONS) or '.'} Allowed: {', '.join(ACTIVATIONS)}"
        )
    return name


class SignalMLP(nn.Module):
    """``S`` perceptrons of one shape, one per signal, as batched matrix products.

    Every signal starts from the same weights, drawn once as :class:`torch.nn.Linear` draws them, so that what is
    learned for a signal does not depend on which others are fitted beside it.

    Args:
        num_signals: Number of signals ``S``.
        num_inputs: Features per point.
        num_outputs: Channels ``C``.
        depth: Number of hidden layers; 0 is a single linear layer.
        width: Units per hidden layer.
        activation: Name of the non-linearity after each hidden layer.
        sigmoid: Whether the output passes through a sigmoid.

    Shape:
        ``(S or 1, P, num_inputs)`` -> ``(S, P, num_outputs)``.
    """

    def __init__(
        self,
        num_signals: int,
        num_inputs: int,
        num_outputs: int,
        depth: int,
        width: int,
        activation: str = "relu",
        sigmoid: bool = False,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[check_activation(activation)]
        self.sigmoid = sigmoid
        sizes = [num_inputs, *[width] * depth, num_outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            bound = 1 / math.sqrt(fan_in)
            weight = torch.empty(1, fan_in, fan_out).uniform_(-bound, bound)
            bias = torch.empty(1, 1, fan_out).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(weight.repeat(num_signals, 1, 1)))
            self.biases.append(nn.Parameter(bias.repeat(num_signals, 1, 1)))

    def forward(self, features: Tensor) -> Tensor:
        """Values at points."""
        x = features
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x.expand(weight.shape[0], -1, -1), weight)
            if layer < last:
                x = self.activation(x)
        return torch.sigmoid(x) if self.sigmoid else x

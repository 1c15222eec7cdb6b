"""The multilayer perceptron."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["ACTIVATIONS", "MLP", "Activation", "check_activation"]

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


class MLP(nn.Module):
    """Linear layers with a non-linearity after each but the last, initialised as :class:`torch.nn.Linear` is.

    Args:
        num_inputs: Features per point.
        num_outputs: Channels ``C``.
        depth: Number of hidden layers; 0 is a single linear layer.
        width: Units per hidden layer.
        activation: Name of the non-linearity.
        sigmoid: Whether the output passes through a sigmoid.

    Shape:
        ``(*batch, num_inputs)`` -> ``(*batch, num_outputs)``.
    """

    def __init__(
        self, num_inputs: int, num_outputs: int, depth: int, width: int, activation: str = "relu", sigmoid: bool = False
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[check_activation(activation)]
        self.sigmoid = sigmoid
        sizes = [num_inputs, *[width] * depth, num_outputs]
        self.layers = nn.ModuleList(nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))

    def hidden(self, features: Tensor) -> list[Tensor]:
        """The activations of every hidden layer, each ``(*batch, width)``."""
        found, x = [], features
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
            found.append(x)
        return found

    def forward(self, features: Tensor) -> Tensor:
        """Values at points."""
        x = self.layers[-1]((self.hidden(features) or [features])[-1])
        return torch.sigmoid(x) if self.sigmoid else x

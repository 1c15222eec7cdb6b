"""The multilayer perceptron."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from pe_lightning.encoders.lookups import Lookup, SparseLookup
from pe_lightning.encodings import Simple
from pe_lightning.linalg import without_autocast
from pe_lightning.networks.activations import find_activation
from pe_lightning.networks.base import Network
from pe_lightning.networks.scaling import TargetScaling


class MLP(nn.Module):
    """Linear layers with an activation after each but the last, initialised by the activation.

    Args:
        num_inputs: Features per point.
        num_outputs: Channels ``C``.
        depth: Number of hidden layers; 0 is a single linear layer.
        hidden_size: Units per hidden layer.
        activation: Name of the activation.
        sigmoid: Whether the output passes through a sigmoid.
        omega: Angular frequency of the activation; ``None`` for its default.
        scale: Second option of the activation; ``None`` for its default.
    """

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        depth: int,
        hidden_size: int,
        activation: str = "relu",
        sigmoid: bool = False,
        omega: float | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.sigmoid = sigmoid
        kind = find_activation(activation)
        self.has_options = kind.has_options()
        self.num_outputs = num_outputs
        self.scales_targets = kind.scales_targets and not sigmoid
        activations = [kind(omega, scale, first=number == 0) for number in range(depth)]
        inputs = [num_inputs, *[one.size(hidden_size) for one in activations]]
        layers = [one.layer(size, hidden_size) for one, size in zip(activations, inputs, strict=False)]
        last = activations[-1].last(inputs[-1], num_outputs) if activations else nn.Linear(num_inputs, num_outputs)
        self.layers = nn.ModuleList([*layers, last])
        self.activations = nn.ModuleList(activations)

    def hidden(self, features: Tensor) -> list[Tensor]:
        """The activations of every hidden layer, each ``(*batch, hidden_size)``."""
        outputs, x = [], features
        for layer, activation in zip(self.layers, self.activations, strict=False):
            # half precision would round coordinates to 8 bits, an error that omega multiplies
            precise = activation.first and self.has_options
            with without_autocast(x.device) if precise else nullcontext():
                x = activation(layer(x))
            outputs.append(x)
        return outputs

    def forward(self, features: Tensor) -> Tensor:
        x = self.layers[-1]((self.hidden(features) or [features])[-1])
        return torch.sigmoid(x) if self.sigmoid else x


class SimpleNetwork(Network):
    r"""Concatenated features and an MLP: :math:`f(x) = \mathrm{MLP}(\psi(v_1) \oplus \psi(v_2) \dots)`.

    Attributes:
        scaling: The scaling of the targets of the perceptron, if its activation has ``scales_targets``; else ``None``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, §6.
    """

    encoding: Simple

    def __init__(self, encoding: Simple, mlp: MLP) -> None:
        super().__init__()
        self.encoding, self.mlp = encoding, mlp
        self.scaling = TargetScaling(mlp.num_outputs) if mlp.scales_targets else None

    def calibrate(self, coords: Tensor) -> None:
        """Sets the scale of the features from the training points, ``(P, D)``."""
        self.encoding.calibrate(coords)

    def respond(self, features: Tensor) -> Tensor:
        """Outputs of the perceptron from features: ``(*batch, num_features)`` -> ``(*batch, C)``."""
        outputs: Tensor = self.mlp(features)
        return outputs

    def look_up(self, lookups: Sequence[Sequence[Lookup | SparseLookup]]) -> Tensor:
        """Outputs of the perceptron from the lookups of the encoding, ``(P, C)``."""
        return self.respond(self.encoding.from_lookups(lookups))

    def hidden(self, coords: Tensor) -> list[Tensor]:
        """As in :class:`MLP`."""
        return self.mlp.hidden(self.encoding(coords))

    def outputs(self, coords: Tensor) -> Tensor:
        """Outputs of the perceptron at points ``(*batch, D)``."""
        return self.respond(self.encoding(coords))

    def forward(self, coords: Tensor) -> Tensor:
        outputs = self.outputs(coords)
        return outputs if self.scaling is None else self.scaling(outputs)

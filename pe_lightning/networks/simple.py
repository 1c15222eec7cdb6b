"""Simple encoding and a perceptron."""

from __future__ import annotations

from torch import Tensor

from pe_lightning.encodings import Simple
from pe_lightning.networks.derivatives import Network
from pe_lightning.networks.mlp import MLP


class SimpleNetwork(Network):
    r"""Concatenated features and an MLP: :math:`f(x) = \mathrm{MLP}(\psi(v_1) \oplus \psi(v_2) \dots)`.

    Args:
        encoding: The simple encoding of the coordinates.
        channels: Number of channels ``C``.
        depth: Number of hidden layers; 0 is a single linear layer.
        hidden_size: Units per hidden layer.
        activation: Name of the activation.
        sigmoid: Whether the output passes through a sigmoid.
        omega: Angular frequency of the activation; ``None`` for its default.
        scale: Second parameter of the activation; ``None`` for its default.

    Shape:
        ``(*batch, D)`` in [0, 1) -> ``(*batch, C)``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, §6.
    """

    encoding: Simple

    def __init__(
        self,
        encoding: Simple,
        channels: int,
        depth: int,
        hidden_size: int,
        activation: str = "relu",
        sigmoid: bool = False,
        omega: float | None = None,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.mlp = MLP(encoding.num_features, channels, depth, hidden_size, activation, sigmoid, omega, scale)

    def calibrate(self, coords: Tensor) -> None:
        """Sets the scale of the features from the training points, ``(P, D)``."""
        self.encoding.calibrate(coords)

    def respond(self, features: Tensor) -> Tensor:
        """Values from features of the encoding: ``(*batch, num_features)`` -> ``(*batch, C)``."""
        values: Tensor = self.mlp(features)
        return values

    def hidden(self, coords: Tensor) -> list[Tensor]:
        """The activations of every hidden layer, each ``(*batch, hidden_size)``."""
        return self.mlp.hidden(self.encoding(coords))

    def forward(self, coords: Tensor) -> Tensor:
        return self.respond(self.encoding(coords))

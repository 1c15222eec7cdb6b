"""Complex encoding and a linear layer, optionally with a perceptron after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pe_lightning.encodings import Complex
from pe_lightning.linalg import Operator, mode_products
from pe_lightning.networks.activations import find_activation
from pe_lightning.networks.base import Network
from pe_lightning.networks.mlp import MLP


class ComplexNetwork(Network):
    r"""The Kronecker product of the axes' features and a linear layer: :math:`f(x) = W (\psi(x_1) \otimes \dots) + m`.

    Channels precede samples, so that the last mode product is one large matrix product. :meth:`linear` accepts weights with
    leading axes: signals with the same features are then evaluated by the same few large products.

    The single linear layer is initialised to zero: gradient descent then stays in the row space of the features and
    converges to the solution of minimum norm. Below a head it is initialised like :class:`torch.nn.Linear`.

    Args:
        encoding: The complex encoding of the coordinates.
        channels: Number of channels ``C``.
        depth: Number of hidden layers after the linear layer; 0 is the linear layer alone.
        hidden_size: Units per hidden layer, and outputs of the linear layer, for ``depth`` >= 1.
        activation: Name of the activation of the hidden layers; it must not have options.

    Attributes:
        weight: ``(C or hidden_size, K_1, ..., K_D)``.
        mean: ``(C,)``, added to the output; a buffer.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 17-18.
    """

    encoding: Complex
    mean: Tensor

    def __init__(
        self, encoding: Complex, channels: int, depth: int = 0, hidden_size: int = 256, activation: str = "relu"
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.activation = find_activation(activation, plain=True)()
        weight = torch.zeros(hidden_size if depth else channels, *encoding.num_features)
        self.head: MLP | None = None
        if depth:
            bound = 1 / math.sqrt(math.prod(encoding.num_features))
            weight.uniform_(-bound, bound)
            self.head = MLP(hidden_size, channels, depth - 1, hidden_size, activation)
        self.weight = nn.Parameter(weight)
        self.register_buffer("mean", torch.zeros(channels))

    def linear(self, features: Sequence[Tensor | Operator]) -> Tensor:
        """The linear layer on a separable grid: features ``(n_a, K_a)`` per axis -> ``(outputs, n_1, ..., n_D)``."""
        return mode_products(self.weight, features)

    def calibrate(self, axes: Sequence[Tensor]) -> None:
        """Sets the scales of the features from the training coordinates of each axis, ``(N_a,)``."""
        self.encoding.calibrate(axes)

    def respond(self, linear: Tensor) -> Tensor:
        """Values from the outputs of the linear layer, without the mean: ``(outputs, *samples)`` -> ``(C, *samples)``."""
        if self.head is None:
            return linear
        values: Tensor = self.head(self.activation(linear.movedim(0, -1)))
        return values.movedim(-1, 0)

    def grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid, by mode products: coordinates ``(n_a,)`` per axis -> ``(n_1, ..., n_D, C)``."""
        return self.respond(self.linear(self.encoding.operators(axes, self.weight.dtype))).movedim(0, -1) + self.mean

    def hidden(self, coords: Tensor) -> list[Tensor]:
        """The activations of every hidden layer at points ``(P, D)``, each ``(P, hidden_size)``."""
        if self.head is None:
            return []
        first = self.activation(self.encoding.points(self.weight, coords).movedim(0, -1))
        return [first, *self.head.hidden(first)]

    def forward(self, coords: Tensor) -> Tensor:
        points = coords.reshape(-1, coords.shape[-1])
        values = self.respond(self.encoding.points(self.weight, points)).movedim(0, -1) + self.mean
        return values.reshape(*coords.shape[:-1], values.shape[-1])

    @torch.no_grad()
    def start_from(self, linear: Tensor) -> None:
        """Sets the weights so that the network computes the linear layer ``linear``, ``(C, K_1, ..., K_D)``, exactly.

        With a head, the first C units of each hidden layer pass on the solution and the next C its negative:
        f(z) - f(-z) = z for ReLU, GELU and SiLU. Other units keep their random weights, but have no weight in the last
        layer.
        """
        if self.head is None:
            self.weight.copy_(linear)
            return
        channels = len(linear)
        both = 2 * channels
        self.weight[:channels] = linear
        self.weight[channels:both] = -linear
        identity = torch.eye(channels, dtype=linear.dtype, device=linear.device)
        *hidden, last = [layer for layer in self.head.layers if isinstance(layer, nn.Linear)]
        for layer in hidden:
            layer.weight[:both] = 0  # (outputs, inputs)
            layer.weight[:both, :both] = torch.cat([torch.cat([identity, -identity]), torch.cat([-identity, identity])], 1)
            layer.bias[:both] = 0
        last.weight.zero_()
        last.weight[:, :both] = torch.cat([identity, -identity], 1)
        last.bias.zero_()

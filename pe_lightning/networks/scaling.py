"""Networks that are trained on values scaled to [-1, 1]."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TargetScaling(nn.Module):
    r"""The targets :math:`(y - c) / s` of a network in place of the values of its signal, and its values from its outputs.

    In a :class:`~pe_lightning.networks.VmapEnsemble` the buffers have a leading axis of signals ``S``.

    Args:
        channels: Number of channels ``C``.

    Attributes:
        center: ``c``, ``(C,)``: mean of each channel over the trained samples.
        scale: ``s``, ``()``: largest distance of a trained value from the mean of its channel; 1 for a constant signal.
    """

    center: Tensor
    scale: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(channels))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def calibrate(self, values: Tensor) -> None:
        """Sets the buffers of all signals from their trained values, ``(S, *samples, C)``."""
        samples = values.flatten(1, -2)
        self.center.copy_(samples.mean(1, dtype=torch.float64))
        largest = (samples - self.center[:, None]).abs().amax((1, 2))
        self.scale.copy_(torch.where(largest > 0, largest, 1.0))

    def targets(self, values: Tensor) -> Tensor:
        """The targets of all signals, of the shape of their values ``(S, *samples, C)``."""
        samples = values.flatten(1, -2)
        return ((samples - self.center[:, None]) / self.scale[:, None, None]).view_as(values)

    def forward(self, outputs: Tensor) -> Tensor:
        """Values of one signal from the outputs of its network, ``(*batch, C)``."""
        return self.center + self.scale * outputs


class ScaledNetwork(nn.Module):
    """Any network of one signal with the scaling of its targets: coordinates ``(*batch, D)`` -> values ``(*batch, C)``."""

    def __init__(self, network: nn.Module, channels: int) -> None:
        super().__init__()
        self.network, self.scaling = network, TargetScaling(channels)

    def outputs(self, coords: Tensor) -> Tensor:
        """The outputs of the network, which are trained on the targets."""
        outputs: Tensor = self.network(coords)
        return outputs

    def forward(self, coords: Tensor) -> Tensor:
        values: Tensor = self.scaling(self.outputs(coords))
        return values

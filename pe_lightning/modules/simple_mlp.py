"""Simple encoding and a multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError
from pe_lightning.modules.base import CoordinateModule, EncoderChoice
from pe_lightning.modules.exact_fit import samples_of
from pe_lightning.networks import Activation, SimpleNetwork, check_activation

__all__ = ["SimpleMLP"]

CACHE_LIMIT = 1 << 30
"""Bytes of training features that are remembered between steps; more are computed anew each step."""


class SimpleMLP(CoordinateModule):
    r"""Concatenated features and an MLP per signal: :math:`f(x) = \mathrm{MLP}(\psi(v_1) \oplus \psi(v_2) \dots)`.

    Args:
        encoder: The encoder by name, or one per direction. Its ``num_features`` is the total width of the encoding,
            which is divided among the directions.
        depth: Number of hidden layers; 0 is a single linear layer.
        width: Units per hidden layer.
        activation: Non-linearity after each hidden layer.
        sigmoid: Whether the output passes through a sigmoid, which keeps it in (0, 1).
        layout: Directions that are encoded: ``axes``, ``directions`` (2-D: x, y and the two diagonals), ``joint``
            (rff); ``auto`` chooses what the papers use for the encoder.
        normalize: Whether features are divided by their largest row norm over the training coordinates.
        points_per_chunk: How many points, of all signals together, are evaluated at once on a grid outside training.
        signals_per_chunk: Signals whose network is evaluated at a time, for less memory in training: hidden layers are
            then computed twice. ``None``: all.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: that of the network.
        optimizer: Makes the optimiser. The default is the papers' Adam.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step.

    Raises:
        InputError: If an argument is out of range.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, §6.
    """

    free: ClassVar[frozenset[str]] = CoordinateModule.free | {"points_per_chunk"}

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 4,
        width: int = 256,
        activation: Activation = "relu",
        sigmoid: bool = False,
        layout: Literal["auto", "axes", "directions", "joint"] = "auto",
        normalize: bool = True,
        points_per_chunk: int = 65536,
        signals_per_chunk: int | None = None,
        shared_encoder: bool = False,
        encoder_lr: float | None = None,
        optimizer: OptimizerCallable = lambda params: torch.optim.Adam(params, lr=5e-3, weight_decay=1e-8, fused=True),
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(encoder, shared_encoder, encoder_lr, signals_per_chunk, optimizer, lr_scheduler)
        if depth < 0 or width < 1 or points_per_chunk < 1:
            raise InputError(
                f"SimpleMLP: depth must be >= 0, width and points_per_chunk >= 1; got depth={depth}, width={width}, "
                f"points_per_chunk={points_per_chunk}"
            )
        self.depth = depth
        self.width = width
        self.activation = check_activation(activation)
        self.sigmoid = sigmoid
        self.layout: Literal["auto", "axes", "directions", "joint"] = layout
        self.normalize = normalize
        self.points_per_chunk = points_per_chunk
        self.remember(
            depth=depth,
            width=width,
            activation=activation,
            sigmoid=sigmoid,
            layout=layout,
            normalize=normalize,
            points_per_chunk=points_per_chunk,
        )
        if any(configured.automatic() for configured in self._configured):
            raise InputError(
                "SimpleMLP: a width of 'auto' is chosen by the solver of a linear layer, which an MLP has not; give a "
                "number, leave it out for the encoder's rule, or use ComplexLinear"
            )

    def make_network(self, info: SignalInfo) -> SimpleNetwork:
        """The encoding and the perceptron."""
        encoding = Simple(self.encoder, info.num_axes, self.layout, self.normalize)
        return SimpleNetwork(encoding, info.channels, self.depth, self.width, self.activation, self.sigmoid)

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        """Sets the resolutions that encoders leave to the data: cells of tables, positions."""
        if self.info is None:
            _, samples = samples_of(data.dataset)
            joint = len(self._configured) == 1 and self._configured[0].joint and self.layout in ("auto", "joint")
            one = [math.prod(samples) ** (1 / len(samples))]
            self._configured = [encoder.for_samples(samples if joint else one) for encoder in self._configured]

    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the scale of the features from the training coordinates."""
        coords = _coordinates(batch)
        if self.features_are_shared:
            self.encoding.calibrate(coords)
        else:
            points, each = _for_each(coords)
            self.networks.change("calibrate", points, each=each)

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, P * C)``."""
        signals, channels = batch.values.shape[0], batch.values.shape[-1]
        if self.features_are_shared:
            inputs = batch.axes if isinstance(batch, GridBatch) else (batch.coords,)
            count = batch.values.numel() // (signals * channels) * (1 if isinstance(batch, GridBatch) else len(batch.coords))
            small = count * self.encoding.num_features * batch.values.element_size() <= CACHE_LIMIT
            features = self.cached("features", inputs, lambda: self._features(batch)) if small else self._features(batch)
            values, each = _for_each(features)
            prediction = self.networks.call("respond", values, each=each)
        else:
            coords, each = _for_each(_coordinates(batch))
            prediction = self.networks.call("forward", coords, each=each)
        errors: Tensor = (prediction - batch.values.reshape(signals, -1, channels)).flatten(1)
        return errors

    def _features(self, batch: GridBatch | PointBatch) -> Tensor:
        features: Tensor = self.encoding(_coordinates(batch))
        return features

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid, a few rows of the first axis, or points of one row, at a time."""
        info = self.require_info()
        self.encoding.check_axes(axes)
        points = max(1, self.points_per_chunk // self.networks.num_signals)
        rows = max(1, points // max(1, math.prod(len(x) for x in axes[1:])))
        blocks = []
        for some in torch.split(axes[0], rows):
            coords = torch.stack(torch.meshgrid(some, *axes[1:], indexing="ij"), -1)
            values = torch.cat([self(part) for part in torch.split(coords.flatten(0, -2), points)], 1)
            blocks.append(values.reshape(len(values), *coords.shape[:-1], info.channels))
        return torch.cat(blocks, 1)


def _for_each(x: Tensor) -> tuple[Tensor, bool]:
    """``(S or 1, ...)`` as an input of :meth:`Stack.call` and whether each signal has its own."""
    return (x, True) if len(x) > 1 else (x[0], False)


def _coordinates(batch: GridBatch | PointBatch) -> Tensor:
    """The coordinates of the samples of a batch, ``(S or 1, P, D)``."""
    if isinstance(batch, PointBatch):
        return batch.coords.to(batch.values.dtype)
    return torch.stack(torch.meshgrid(*[x.to(batch.values.dtype) for x in batch.axes], indexing="ij"), -1).reshape(
        1, -1, len(batch.axes)
    )

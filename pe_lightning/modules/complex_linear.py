"""Complex encoding and a linear layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.encodings import Complex
from pe_lightning.errors import InputError
from pe_lightning.modules.base import CoordinateModule, EncoderChoice
from pe_lightning.modules.mlp import ACTIVATIONS, Activation, SignalMLP, check_activation

__all__ = ["ComplexLinear"]

HIDDEN_LIMIT = 1 << 24
"""Numbers of a hidden layer that are held at once outside training."""


class ComplexLinear(CoordinateModule):
    r"""The Kronecker product of the axes' features and one linear layer: :math:`f(x) = W (\psi(x_1) \otimes \dots)`.

    The layer holds :math:`C \prod_a K_a` weights per signal and is evaluated by mode products; the product of the
    features is never formed. With ``depth`` >= 1 the linear layer has ``width`` outputs and an MLP follows.

    Args:
        encoder: The encoder by name, or one per axis. ``num_features`` is ``K`` per axis.
        depth: Number of hidden layers after the linear layer; 0 is the single linear layer.
        width: Units per hidden layer, for ``depth`` >= 1.
        activation: Non-linearity of the hidden layers.
        normalize: Whether each axis's features are divided by their largest row norm over the training coordinates,
            which makes one learning rate fit all encoders.
        center: Whether each signal's mean per channel over the training samples is taken out first and kept as a
            buffer. Shifted encoders decay to zero past the last shift; without this they decay to black.
        optimizer: Makes the optimiser. The default is the papers' Adam.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step.

    Raises:
        InputError: If an argument is out of range.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 17-18.
    """

    free: ClassVar[frozenset[str]] = frozenset({"normalize", "center"})

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 0,
        width: int = 256,
        activation: Activation = "relu",
        normalize: bool = True,
        center: bool = True,
        optimizer: OptimizerCallable = lambda params: torch.optim.Adam(params, lr=0.1, weight_decay=1e-8, fused=True),
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        super().__init__(encoder, optimizer, lr_scheduler)
        if depth < 0 or width < 1:
            raise InputError(f"ComplexLinear: depth must be >= 0 and width >= 1; got depth={depth}, width={width}")
        self.depth = depth
        self.width = width
        self.activation = check_activation(activation)
        self.normalize = normalize
        self.center = center
        self.remember(depth=depth, width=width, activation=activation, normalize=normalize, center=center)

    def make(self, info: SignalInfo) -> None:
        """Creates the encoding, the weights and the head.

        The single linear layer starts from zero: gradient descent then stays in the row space of the features and finds
        the smallest of the solutions when there are many. Below a head it starts as :class:`torch.nn.Linear` does.
        """
        self.encoding: Complex = Complex(self.encoder_prototype, info.num_axes, self.normalize)
        outputs = self.width if self.depth else info.channels
        shape = (outputs, *self.encoding.num_features)
        weight = torch.zeros(1, *shape)
        self.head: SignalMLP | None = None
        if self.depth:
            bound = 1 / math.sqrt(math.prod(self.encoding.num_features))
            weight.uniform_(-bound, bound)
            self.head = SignalMLP(
                info.num_signals, self.width, info.channels, self.depth - 1, self.width, self.activation
            )
        self.weight = nn.Parameter(weight.repeat(info.num_signals, *[1] * len(shape)))
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(info.num_signals, info.channels))

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        """Sets the scales of the features and the means of the signals from the training data."""
        if isinstance(batch, GridBatch):
            self.encoding.calibrate(batch.axes)
        else:
            self.encoding.calibrate(batch.axes if batch.axes is not None else batch.coords.flatten(0, -2).unbind(-1))
        if self.center:
            signals, channels = batch.values.shape[0], batch.values.shape[-1]
            self.mean.copy_(batch.values.reshape(signals, -1, channels).mean(1, dtype=torch.float64))

    # -- evaluation: channels first, (S, C, ...), so that the last mode product is one large matrix product ------------

    def _respond(self, linear: Tensor) -> Tensor:
        """The head, if any: the layer's output ``(S, outputs, *samples)`` to ``(S, C, *samples)``, mean left out."""
        if self.head is None:
            return linear
        hidden = ACTIVATIONS[self.activation](linear.flatten(2).transpose(1, 2))
        return self.head(hidden).transpose(1, 2).unflatten(2, linear.shape[2:])  # type: ignore[no-any-return]

    def _linear_at_points(self, coords: Tensor) -> Tensor:
        """``(S or 1, P, D)`` -> ``(S, outputs, P)``."""
        if coords.shape[0] == 1:
            return self.encoding.points(self.weight, coords[0])
        return torch.stack([self.encoding.points(w, x) for w, x in zip(self.weight, coords, strict=True)])

    def _target(self, values: Tensor) -> Tensor:
        """``(S, *samples, C)`` -> ``(S, C, *samples)``, contiguous, mean taken out."""
        centred = values - self.mean.reshape(len(values), *[1] * (values.ndim - 2), -1)
        return centred.movedim(-1, 1).contiguous()

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, C * P)``."""
        if isinstance(batch, GridBatch):
            features, target = self.cached(
                batch, lambda: (self.encoding.axis_features(batch.axes), self._target(batch.values))
            )
            linear = self.encoding.products(self.weight, features)
        elif batch.axes is not None and batch.index is not None and self._grid_is_cheaper(batch):
            axes, index = batch.axes, batch.index.unsqueeze(1)
            features, target, where = self.cached(
                batch,
                lambda: (
                    self.encoding.axis_features(axes),
                    self._target(batch.values),
                    index.expand(self.weight.shape[0], self.weight.shape[1], -1),
                ),
            )
            # samples of a grid: the whole grid by mode products, then the samples; exact, and far fewer operations
            linear = self.encoding.products(self.weight, features).flatten(2).gather(2, where)
        else:
            target = self.cached(batch, lambda: self._target(batch.values))
            linear = self._linear_at_points(batch.coords)
        errors: Tensor = self._respond(linear) - target
        return errors.flatten(1)

    def _grid_is_cheaper(self, batch: PointBatch) -> bool:
        """Whether evaluating the whole grid takes fewer multiplications than evaluating the points one by one."""
        assert batch.axes is not None
        features = self.encoding.num_features
        sizes = [len(x) for x in batch.axes]
        grid = sum(math.prod(sizes[: a + 1]) * math.prod(features[a:]) for a in range(len(sizes)))
        point = sum(math.prod(features[a:]) for a in range(len(sizes)))
        return grid <= batch.coords.shape[1] * point

    def forward(self, coords: Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable."""
        info = self.require_info()
        self.encoding.check_points(coords)
        points = coords.to(self.weight.dtype).reshape(1, -1, info.num_axes)
        values = self._respond(self._linear_at_points(points)).transpose(1, 2)
        return (values + self.mean[:, None]).reshape(info.num_signals, *coords.shape[:-1], info.channels)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid, exactly, by mode products."""
        info = self.require_info()
        self.encoding.check_axes(axes)
        first, *others = self.encoding.axis_features([x.to(self.weight.dtype) for x in axes])
        # a hidden layer holds `width` numbers per sample: then a few rows at a time
        per_row = self.width * info.num_signals * math.prod(len(x) for x in axes[1:])
        rows = max(1, HIDDEN_LIMIT // max(per_row, 1) if self.head is not None else len(first))
        parts = [
            self._respond(self.encoding.products(self.weight, [part, *others])).movedim(1, -1)
            for part in torch.split(first, rows)
        ]
        return torch.cat(parts, 1) + self.mean.reshape(info.num_signals, *[1] * info.num_axes, info.channels)

"""The Kronecker product of the axes' features and one linear layer, as a module that is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from pe_lightning.networks import ComplexEnsemble, ComplexNetwork
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.training.base import signals_of
from pe_lightning.training.coordinate import CoordinateModule
from pe_lightning.training.optimization import parameter_groups

DEFAULT_ENCODER_LR = 0.01
"""Learning rate of the default optimiser for the encoder's parameters, which are mostly logarithms."""


class KroneckerModule(CoordinateModule):
    """Training and evaluation of a linear layer, or a head above it, on the product of the features of the axes."""

    center: bool
    has_layers: ClassVar[bool] = True
    takes_periodic: ClassVar[bool] = True

    @property
    def loss_is_quadratic(self) -> bool:
        """Whether the loss of a single linear layer is the mean squared error of :meth:`predict_grid`.

        Gram matrices and the rate of accelerated gradient descent then apply. A subclass that defines :meth:`errors` and for
        which it is true says so by a class attribute of this name.
        """
        return type(self).errors is KroneckerModule.errors

    @property
    def network(self) -> ComplexNetwork:
        network = self.networks.network
        assert isinstance(network, ComplexNetwork)
        return network

    @property
    def weight(self) -> torch.nn.Parameter:
        """The linear layer of all signals, ``(S, outputs, K_1, ..., K_D)``."""
        return self.network.weight

    @property
    def mean(self) -> Tensor:
        """The subtracted mean of each signal and channel, ``(S, C)``."""
        return self.network.mean

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        axes = batch.axes if batch.axes is not None else batch.coords.flatten(0, -2).unbind(-1)
        if self.networks.features_are_shared:
            self.encoding.calibrate(axes)
        else:
            self.networks.change("calibrate", list(axes))
        if self.center:
            signals, channels = batch.values.shape[0], batch.values.shape[-1]
            self.mean.copy_(batch.values.reshape(signals, -1, channels).mean(1, dtype=torch.float64))

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        r"""Nesterov's accelerated gradient descent at rate :math:`1/L`, else the papers' Adam.

        The loss of a single linear layer on all samples of a grid is quadratic, with the largest second derivative
        :math:`L = \frac{2}{NC} \prod_a \lambda_a`, from the largest eigenvalue of each axis's Gram matrix; for some of the
        samples of a grid that is an upper bound. At that rate the fit does not diverge, and the directions with the smallest
        eigenvalues are learned last. Adam's steps have the same size in every weight: too large where features overlap, and
        as large for weights that the samples hardly determine.

        Reference: Nesterov, *A method of solving a convex programming problem with convergence rate O(1/k^2)*, 1983.
        """
        curvature = self._curvature()
        if curvature is None and self.networks.features_are_trained and self.encoder_lr is None:
            parameters = parameter_groups(parameters, self.encoding.parameters(), DEFAULT_ENCODER_LR)
        if curvature is None:
            return super().default_optimizer(parameters)
        return torch.optim.SGD(parameters, lr=1 / curvature, momentum=0.9, nesterov=True, fused=True)

    def _curvature(self) -> float | None:
        """The largest second derivative of the loss, or a bound; ``None`` if the loss is not quadratic, or it is zero."""
        data, linear = signals_of(self), self.network.head is None and not self.networks.features_are_trained
        applies = self.trainer.max_steps != 0 and linear and self.loss_is_quadratic and data.batching.kind == "full"
        batch = data.calibration_batch() if applies else None
        return None if batch is None or batch.axes is None else self.stack.curvature(batch)

    @property
    def stack(self) -> ComplexEnsemble:
        return ComplexEnsemble(self.networks)

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, C * P)``; see :meth:`~pe_lightning.networks.ComplexEnsemble.errors`."""
        return self.stack.errors(batch)

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool = True) -> Tensor:
        """The sum of squared errors of each signal, ``(S,)``; on a fixed grid through its Gram matrices."""
        applies = every_step and isinstance(batch, GridBatch) and self.loss_is_quadratic
        gram = self.stack.gram(batch) if applies else None  # type: ignore[arg-type]
        return super().squared_errors(batch) if gram is None else gram(self.weight, exact)

    def evaluate(self, name: str, points: Tensor) -> Tensor:
        if name != "forward" or not self.networks.features_are_shared:
            return super().evaluate(name, points)
        return self.stack.at(points)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        self.require_info()
        self.encoding.check_axes(axes)
        return self.stack.grid(axes)

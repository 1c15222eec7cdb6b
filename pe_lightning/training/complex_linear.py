"""The Kronecker product of the axes' features and one linear layer: trained, and solved for."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from pe_lightning.encoders import ConfiguredEncoders, EncoderLike, automatic, automatic_width, per_axis
from pe_lightning.encoders.cells import with_cells
from pe_lightning.encoders.configured import changed
from pe_lightning.encodings import Complex
from pe_lightning.encodings.base import check_axes
from pe_lightning.errors import InputError
from pe_lightning.estimators.linear import LinearField, LinearRidge, has_parameters
from pe_lightning.networks import ComplexEnsemble, ComplexNetwork, activations, find_activation
from pe_lightning.signals import validation
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo, to_device
from pe_lightning.solvers import Choice
from pe_lightning.solvers.choice import check_ridge
from pe_lightning.solvers.solution import FitReport
from pe_lightning.training.base import models, signals_of
from pe_lightning.training.coordinate import CoordinateModule, EncoderChoice
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.optimization import parameter_groups
from pe_lightning.training.steps import AxisStep, QuadraticStep, Step


@models.register("ComplexLinear")
class ComplexLinear(CoordinateModule):
    r"""The Kronecker product of the axes' features and one linear layer: :math:`f(x) = W (\psi(x_1) \otimes \dots)`.

    The layer holds :math:`C \prod_a K_a` weights per signal and is evaluated by mode products; the product of the
    features is never formed. With ``depth`` >= 1 the linear layer has ``hidden_size`` outputs and an MLP follows.

    Args:
        encoder: The encoder by name, or one per axis. ``num_features`` is ``K`` per axis; ``auto`` is as many as trained
            samples of a grid, or the size of the grid where they are scattered.
        depth: Number of hidden layers after the linear layer; 0 is the single linear layer.
        hidden_size: Units per hidden layer, for ``depth`` >= 1.
        activation: Non-linearity of the hidden layers.
        normalize: Whether each axis's features are divided by their largest row norm over the training coordinates,
            which makes one learning rate fit all encoders.
        center: Whether each signal's mean per channel over the training samples is subtracted before the fit. Predictions
            by shifted encoders decay to it beyond the last shift.
        solver: ``exact``: the linear layer is solved for before the first step; with ``max_steps: 0`` the solution is the
            fit. A head starts as the identity. An encoder with parameters is learned first, by variable projection
            (:func:`~pe_lightning.solvers.learn_encoders`). ``None``: the layer is trained from zero.
        ridge: Ridge of the exact fit, relative to the mean squared norm of the features, or ``auto``: chosen by the
            prediction of held-out training samples.
        choose_bandwidth: Whether widths that are not given are ``auto``: chosen like the ridge, also without a ``solver``.
        signals_per_chunk: Signals whose head is evaluated at a time, for less memory in training. ``None``: all.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters. ``None``: 0.01 with the default optimiser, else the rate of
            the linear layer.
        lr: Learning rate in place of the optimiser's own, also of the default optimiser's. ``None``: its own.
        optimizer: Makes the optimiser. ``None``: accelerated gradient descent where the loss is a known quadratic function,
            else the papers' Adam (:meth:`default_optimizer`).
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step. ``None``: with the default optimiser
            ``1 / (1 + t / 500)``, else a constant rate.
        compile: Whether training steps are compiled (:func:`torch.compile`), which takes seconds at the first step and needs
            a C++ compiler; for ``depth`` >= 1 or an encoder with parameters.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 17-18.
    """

    size_argument = "encoder.num_features"
    takes_periodic = True
    may_differ: ClassVar[frozenset[str]] = CoordinateModule.may_differ | {"center", "solver", "ridge"}

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 0,
        hidden_size: int = 256,
        activation: str = "relu",
        normalize: bool = True,
        center: bool = True,
        solver: Literal["exact"] | None = None,
        ridge: float | Literal["auto"] = "auto",
        choose_bandwidth: bool = False,
        signals_per_chunk: int | None = None,
        shared_encoder: bool = False,
        encoder_lr: float | None = None,
        lr: float | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
    ) -> None:
        given = automatic_width(encoder) if choose_bandwidth else encoder
        super().__init__(given, shared_encoder, encoder_lr, signals_per_chunk, optimizer, lr_scheduler, compile, lr)
        validation.integer("ComplexLinear: depth", depth)
        validation.integer("ComplexLinear: hidden_size", hidden_size, 1)
        validation.choice("ComplexLinear: solver", solver, ("exact", None))
        check_ridge(ridge)
        if not find_activation(activation, plain=True).carries_identity and solver and depth:
            allowed = [name for name in activations if activations.get(name).carries_identity]
            validation.choice("solver: exact with a head: activation", activation, allowed)
        if compile and not has_parameters(self.configured.entries) and not depth and self.has_usual_errors:
            raise InputError(
                "ComplexLinear: compile: true does nothing for a single linear layer on fixed features, whose step is a few "
                "matrix products: leave out --model.compile, or give --model.depth 1"
            )
        self.depth = depth
        self.hidden_size = hidden_size
        self.activation = activation
        self.normalize = normalize
        self.center = center
        self.solves = solver == "exact"
        self.ridge = ridge
        self._choice: Choice | None = None
        self.save_arguments(
            shared_encoder=shared_encoder,
            encoder_lr=encoder_lr,
            lr=lr,
            signals_per_chunk=signals_per_chunk,
            depth=depth,
            hidden_size=hidden_size,
            activation=activations.name_of(activations.get(activation)),
            normalize=normalize,
            center=center,
            solver=solver,
            ridge=ridge,
            compile=compile,
        )

    @staticmethod
    def exact(encoder: EncoderLike | Sequence[EncoderLike]) -> ComplexLinear:
        """The exact fit, whose ridge and widths that are not given are chosen by held-out samples."""
        return ComplexLinear(encoder, solver="exact", choose_bandwidth=True)  # type: ignore[arg-type]

    @property
    def network(self) -> ComplexNetwork:
        network = self.networks.network
        assert isinstance(network, ComplexNetwork)
        return network

    @property
    def stack(self) -> ComplexEnsemble:
        return ComplexEnsemble(self.networks)

    @property
    def weight(self) -> torch.nn.Parameter:
        """The linear layer of all signals, ``(S, outputs, K_1, ..., K_D)``."""
        return self.network.weight

    @property
    def mean(self) -> Tensor:
        """The subtracted mean of each signal and channel, ``(S, C)``."""
        return self.network.mean

    # -- building and the exact fit -------------------------------------------------------------------------------------

    def make_network(self, info: SignalInfo) -> ComplexNetwork:
        if self.solves and self.depth and self.hidden_size < 2 * info.channels:
            raise InputError(
                f"solver: exact with a head needs hidden_size >= {2 * info.channels} for {info.channels} channels"
            )
        encoding = Complex(self.encoder, info.num_axes, self.normalize)
        return ComplexNetwork(encoding, info.channels, self.depth, self.hidden_size, self.activation)

    def unread_arguments(self) -> dict[str, list[str]]:
        defaults = inspect.signature(type(self)).parameters
        head = ("hidden_size", "activation") if not self.depth else ()
        names = [name for name in head if name in defaults and self.hparams[name] != defaults[name].default]
        return super().unread_arguments() | ({"there are no hidden layers (depth 0)": names} if names else {})

    def describe(self) -> dict[str, Any]:
        head = {"name": self.activation, "depth": self.depth, "width": self.hidden_size}
        return {**super().describe(), "network": head if self.depth else None}

    @property
    def estimator(self) -> LinearRidge:
        return LinearRidge(self.encoder, self.ridge, self.center)

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        encoders = per_axis(self.encoder, data.info.num_axes)
        if self.info is not None:
            if any(automatic(encoder) is not None for encoder in encoders):
                raise InputError("this model was built before its width was chosen; leave build() to the Trainer")
            return
        began = time.perf_counter()
        encoders, self._choice = self.estimator.choose(data.signals, encoders, device)
        if self._choice is not None:
            self.choice_seconds = time.perf_counter() - began
            encoders = changed(encoders, lambda encoder: with_cells(encoder, None).cpu())
            self.solution = FitReport(choice=self._choice.report())
        self.configured = ConfiguredEncoders.of_axes(encoders)

    @torch.no_grad()
    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        axes: Sequence[Tensor] | None = batch.axes
        if isinstance(batch, PointBatch) and batch.index is None:
            axes = batch.coords.flatten(0, -2).unbind(-1)
        assert axes is not None
        if self.networks.features_are_shared:
            self.encoding.calibrate(axes)
        else:
            self.networks.change("calibrate", list(axes))
        if self.center:
            signals, channels = batch.values.shape[0], batch.values.shape[-1]
            self.mean.copy_(batch.values.reshape(signals, -1, channels).mean(1, dtype=torch.float64))

    def on_fit_start(self) -> None:
        """Solves for the linear layer with a ``solver``, unless a checkpoint restored the solution."""
        if not self.solves or (self.solution is not None and self.solution.is_solved):
            return
        data, began = signals_of(self), time.perf_counter()
        encoders = per_axis(self.encoder, self.require_info().num_axes)
        shared, dtype = self.networks.features_are_shared, self.weight.dtype
        field = self.estimator.fit_layer(data.signals, encoders, self.device, self._choice, data.shard(), shared, dtype)
        self.take_fit(field)
        self.solution = replace(field.solution, solve_seconds=self.choice_seconds + time.perf_counter() - began)

    def take_fit(self, field: LinearField) -> None:
        """Takes encoders that were learned, weights and means of an exact fit; a subclass may take more."""
        solutions = field.solutions
        if self.networks.features_are_trained:
            for signal, solution in enumerate(solutions):
                self.stack.set_encoders(signal, solution.encoders)
            self.calibrate(to_device(signals_of(self).signals.calibration_batch(), self.device))
        # the network's features are the raw ones times the scales
        weight = torch.cat([solution.weight for solution in solutions]) if len(solutions) > 1 else solutions[0].weight
        scales = self.encoding.scales.double().prod(-1).reshape(-1, *[1] * (weight.ndim - 1))
        if bool((scales != 1).any()):
            weight = (weight.double() / scales).to(self.weight.dtype)
        self.networks.change("start_from", weight.to(self.weight.dtype), each=True)
        if self.center:
            self.mean.copy_(torch.cat([solution.mean for solution in solutions]))

    # -- training and predictions ---------------------------------------------------------------------------------------

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        r"""Nesterov's accelerated gradient descent at rate :math:`1/L`, else the papers' Adam.

        The loss of a single linear layer on all samples of a grid is quadratic, with the largest second derivative
        :math:`L = \frac{2}{NC} \prod_a \lambda_a`, from the largest eigenvalue of each axis's Gram matrix; for some of the
        samples that is an upper bound. At this rate the fit does not diverge. Adam's steps have the same size in every
        weight: too large where features overlap.

        Reference: Nesterov, *A method of solving a convex programming problem with convergence rate O(1/k^2)*, 1983.
        """
        curvature = self._curvature()
        if curvature is None and self.networks.features_are_trained and self.encoder_lr is None:
            parameters = parameter_groups(parameters, self.encoding.parameters(), 0.01)  # mostly logarithms
        if curvature is None:
            return super().default_optimizer(parameters)
        return torch.optim.SGD(parameters, lr=1 / curvature, momentum=0.9, nesterov=True, fused=True)

    def _curvature(self) -> float | None:
        """The largest second derivative of a quadratic loss, or a bound; ``None`` if there is none, or it is zero."""
        data, linear = signals_of(self), self.network.head is None and not self.networks.features_are_trained
        applies = self.trainer.max_steps != 0 and linear and self.has_usual_errors and data.batching.kind == "full"
        batch = data.signals.calibration_batch() if applies else None
        scattered = isinstance(batch, PointBatch) and batch.index is None
        return None if batch is None or scattered else self.stack.curvature(batch)

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, C * P)``; see :meth:`~pe_lightning.networks.ComplexEnsemble.errors`."""
        return self.stack.errors(batch)

    def make_step(self, batch: GridBatch | PointBatch) -> Step:
        fixed = self.networks.features_are_shared and not self.networks.features_are_trained
        if not fixed or not self.has_usual_errors:
            return Step(self, batch)
        quadratic = self.stack.quadratic_errors(batch) if batch.repeated else None
        return AxisStep(self, batch) if quadratic is None else QuadraticStep(self, batch, quadratic)

    def evaluate(self, points: Tensor) -> Tensor:
        return self.stack.at(points) if self.networks.features_are_shared else super().evaluate(points)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        self.require_info()
        check_axes(axes, self.encoding.num_axes)
        return self.stack.grid(axes)

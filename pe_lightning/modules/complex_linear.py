"""Complex encoding and a linear layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.dataset import to_device
from pe_lightning.encoders import Encoder, resolve
from pe_lightning.encodings import Complex
from pe_lightning.errors import InputError
from pe_lightning.modules.base import CoordinateModule, EncoderChoice
from pe_lightning.modules.chunks import check_signals_per_batch
from pe_lightning.modules.description import plain_encoder
from pe_lightning.modules.gram import GramErrors
from pe_lightning.modules.mlp import ACTIVATIONS, Activation, SignalMLP, check_activation
from pe_lightning.modules.several_steps import check_steps_per_batch
from pe_lightning.modules.warm_start import PASSING, pass_through, solve_data, wants_width
from pe_lightning.solvers import Solution

__all__ = ["ComplexLinear"]

SOLUTION_KEY = "pe_lightning/solution"
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
        warm_start: Whether the linear layer is solved for exactly before the first step. With ``max_steps: 0`` the
            solution is the fit. Below a head the layer starts as the solution, and the head hands it on unchanged.
        ridge: Ridge of the exact fit, relative to the mean squared norm of the features, or ``auto``: chosen by the
            prediction of training samples that are held out.
        steps_per_batch: Optimiser steps on each (full) batch. Epochs, validation and callbacks count batches, logging and
            ``max_steps`` steps; the weights are the same, sooner.
        signals_per_batch: Signals whose errors are computed at a time in training, for less memory; ``None``: all.
        optimizer: Makes the optimiser. The default is the papers' Adam.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step.

    A width of the encoder that is given as ``auto`` is chosen like the ridge, with or without ``warm_start``.

    Raises:
        InputError: If an argument is out of range.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, Eqs. 17-18.
    """

    free: ClassVar[frozenset[str]] = frozenset(
        {"normalize", "center", "warm_start", "ridge", "steps_per_batch", "signals_per_batch"}
    )

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 0,
        width: int = 256,
        activation: Activation = "relu",
        normalize: bool = True,
        center: bool = True,
        warm_start: bool = False,
        ridge: float | Literal["auto"] = "auto",
        steps_per_batch: int = 1,
        signals_per_batch: int | None = None,
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
        self.warm_start = warm_start
        self.ridge = check_ridge(ridge)
        self.steps_per_batch = check_steps_per_batch(steps_per_batch)
        self.signals_per_batch = check_signals_per_batch(signals_per_batch)
        if warm_start and depth and activation not in PASSING:
            raise InputError(
                f"warm_start with a head needs an activation that can hand a number on: {', '.join(PASSING)}; got "
                f"{activation!r}"
            )
        self.remember(
            depth=depth,
            width=width,
            activation=activation,
            normalize=normalize,
            center=center,
            warm_start=warm_start,
            ridge=ridge,
            steps_per_batch=steps_per_batch,
            signals_per_batch=signals_per_batch,
        )

    def make(self, info: SignalInfo) -> None:
        """Creates the encoding, the weights and the head.

        The single linear layer starts from zero: gradient descent then stays in the row space of the features and finds
        the smallest of the solutions when there are many. Below a head it starts as :class:`torch.nn.Linear` does.
        """
        self.encoding: Complex = Complex(self.encoder_prototype, info.num_axes, self.normalize)
        if self.warm_start and self.depth and self.width < 2 * info.channels:
            raise InputError(f"warm_start with a head needs width >= {2 * info.channels} for {info.channels} channels")
        outputs = self.width if self.depth else info.channels
        shape = (outputs, *self.encoding.num_features)
        weight = torch.zeros(1, *shape)
        self.head: SignalMLP | None = None
        if self.depth:
            bound = 1 / math.sqrt(math.prod(self.encoding.num_features))
            weight.uniform_(-bound, bound)
            self.head = SignalMLP(info.num_signals, self.width, info.channels, self.depth - 1, self.width, self.activation)
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

    # -- the exact fit --------------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        """Chooses the encoder's width and solves for the linear layer, if asked to; a resumed fit has both already."""
        super().on_fit_start()
        encoders = [encoder for encoder in self.encoding.encoders if isinstance(encoder, Encoder)]
        if self.solution is not None or not (self.warm_start or wants_width(encoders)):
            return
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        part, process = data.shard()
        fit = solve_data(part, process, encoders, self.ridge, self.center, self.device, data.dataset)
        self.adopt(fit, to_device(part.calibration_batch(), self.device))

    @torch.no_grad()
    def adopt(self, fit: Solution, batch: GridBatch | PointBatch) -> None:
        """Takes over the encoders of an exact fit and, with ``warm_start``, its weights.

        Args:
            fit: The fit, for raw features.
            batch: What it was fitted to.
        """
        self.encoding.encoders = nn.ModuleList(encoder.to(self.device) for encoder in fit.encoders)
        self.calibrate(batch)
        self.solution = {"encoders": [plain_encoder(encoder) for encoder in fit.encoders], **fit.report()}
        if not self.warm_start:
            return
        # the module's features are the raw ones times the scales
        linear = (fit.weight.double() / self.encoding.scales.double().prod()).to(self.weight.dtype)
        if self.head is None:
            self.weight.copy_(linear)
        else:
            pass_through(self.weight, self.head, linear)
        if self.center:
            self.mean.copy_(fit.mean)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds what the solver found."""
        super().on_save_checkpoint(checkpoint)
        if self.solution is not None:
            checkpoint[SOLUTION_KEY] = self.solution

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the encoders as the solver chose them."""
        super().on_load_checkpoint(checkpoint)
        self.solution = checkpoint.get(SOLUTION_KEY)
        if self.solution is not None:
            made = [resolve(plain) for plain in self.solution["encoders"]]
            self.encoding.encoders = nn.ModuleList(encoder.to(self.device) for encoder in made)

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

        def make() -> Tensor:
            centred = values - self.mean.reshape(len(values), *[1] * (values.ndim - 2), -1)
            return centred.movedim(-1, 1).contiguous()

        target: Tensor = self.cached("target", (values,), make)
        return target

    def _axis_features(self, axes: Sequence[Tensor]) -> list[Tensor]:
        """Scaled, ``(N_a, K_a)``; in the precision of the coordinates, autocast or not."""
        with torch.autocast(self.weight.device.type, enabled=False):
            features: list[Tensor] = self.cached("features", axes, lambda: self.encoding.axis_features(axes))
        return features

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        """Prediction minus truth, ``(S, C * P)``."""
        target = self._target(batch.values)
        if batch.axes is None:
            return (self._respond(self._linear_at_points(batch.coords)) - target).flatten(1)
        features = self._axis_features(batch.axes)
        if isinstance(batch, GridBatch):
            linear = self.encoding.products(self.weight, features)
        elif batch.index is None:
            linear = self._linear_at_points(batch.coords)
        elif self._grid_is_cheaper(batch):
            # the whole grid by mode products, then the samples; exact, and far fewer operations
            where = batch.index.unsqueeze(1).expand(self.weight.shape[0], self.weight.shape[1], -1)
            linear = self.encoding.products(self.weight, features).flatten(2).gather(2, where)
        else:
            linear = self._linear_at_samples(features, batch.index)
        return (self._respond(linear) - target).flatten(1)

    def squared_errors(self, batch: GridBatch | PointBatch, every_step: bool = False, exact: bool | None = True) -> Tensor:
        """As in the base class; of a grid that comes every step through its Gram matrices."""
        gram = self._gram(batch) if every_step and isinstance(batch, GridBatch) else None
        return super().squared_errors(batch) if gram is None else gram(self.weight, exact)

    def _gram(self, batch: GridBatch) -> GramErrors | None:
        """The Gram matrices of a batch, if they apply and take fewer operations than the samples do."""
        # a class with errors of its own has a loss of its own
        if self.head is not None or self.features_are_trained or type(self).errors is not ComplexLinear.errors:
            return None

        def make() -> GramErrors | None:
            return GramErrors.if_cheaper(self._axis_features(batch.axes), self._target(batch.values))

        made: GramErrors | None = self.cached("gram", (batch.values, *batch.axes), make)
        return made

    def _linear_at_samples(self, features: Sequence[Tensor], index: Tensor) -> Tensor:
        """At samples of a grid, one by one, from the features of its axes: ``(S or 1, P)`` -> ``(S, outputs, P)``."""
        sizes = tuple(len(rows) for rows in features)
        if len(index) == 1:
            return self.encoding.samples(self.weight, features, torch.unravel_index(index[0], sizes))
        each = zip(self.weight, index, strict=True)
        return torch.stack([self.encoding.samples(w, features, torch.unravel_index(i, sizes)) for w, i in each])

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
        return (values + self.mean[:, None]).reshape(len(self.weight), *coords.shape[:-1], info.channels)

    def predict_grid(self, axes: Sequence[Tensor]) -> Tensor:
        """Values on a separable grid, exactly, by mode products."""
        info = self.require_info()
        self.encoding.check_axes(axes)
        first, *others = self.encoding.axis_features([x.to(self.weight.dtype) for x in axes])
        # a hidden layer holds `width` numbers per sample: then a few rows at a time
        per_row = self.width * len(self.weight) * math.prod(len(x) for x in axes[1:])
        rows = max(1, HIDDEN_LIMIT // max(per_row, 1) if self.head is not None else len(first))
        parts = [
            self._respond(self.encoding.products(self.weight, [part, *others])).movedim(1, -1)
            for part in torch.split(first, rows)
        ]
        return torch.cat(parts, 1) + self.mean.reshape(len(self.weight), *[1] * info.num_axes, info.channels)


def check_ridge(ridge: float | Literal["auto"]) -> float | Literal["auto"]:
    """``ridge`` if it is ``auto`` or a number >= 0, else an :class:`InputError`."""
    if ridge != "auto" and (isinstance(ridge, bool) or not isinstance(ridge, (int, float)) or not 0 <= ridge < math.inf):
        raise InputError(f"ridge must be 'auto' or a number >= 0, got {ridge!r}; 1e-3 is moderate, 0 plain least squares")
    return ridge

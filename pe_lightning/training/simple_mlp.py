"""Simple encoding and a multilayer perceptron."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor

from pe_lightning.encoders import Encoder, Samples
from pe_lightning.encoders.base import mean
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError
from pe_lightning.estimators.linear import samples_of
from pe_lightning.estimators.report import FitReport, SpectrumReport
from pe_lightning.networks import MLP, SimpleNetwork, find_activation
from pe_lightning.networks.activations import check_options
from pe_lightning.networks.spectrum import choose_by_spectrum, ladder
from pe_lightning.signals import validation
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.dataset import to_device
from pe_lightning.signals.splits import GridSplit
from pe_lightning.training.base import models
from pe_lightning.training.coordinate import CoordinateModule, EncoderChoice
from pe_lightning.training.datamodule import SignalDataModule

MAX_CACHED_BYTES = 1 << 30
"""Most bytes of training features that are cached between steps; more are computed anew in each step."""


@models.register("SimpleMLP")
class SimpleMLP(CoordinateModule):
    r"""Concatenated features and an MLP per signal: :math:`f(x) = \mathrm{MLP}(\psi(v_1) \oplus \psi(v_2) \dots)`.

    Args:
        encoder: The encoder by name, or one per direction. Its ``num_features`` is the total number of features, which is
            divided among the directions.
        depth: Number of hidden layers; 0 is a single linear layer.
        hidden_size: Units per hidden layer.
        activation: Activation of the hidden layers. ``relu``, ``gelu``, ``silu``, ``tanh``; on coordinates alone
            (``encoder: identity``) ``sine`` is SIREN, ``gabor`` WIRE, ``finer``, ``gauss``, ``staf``.
        omega: Angular frequency of ``sine``, ``gabor``, ``finer`` and ``staf``. ``None``: that of their papers, 30
            (``gabor``: 20). ``auto``: the value with which the spectrum of the untrained network is nearest to that of the
            trained samples, on a grid.
        activation_scale: The scale ``s`` of ``gabor`` and ``gauss``; of ``finer`` the largest bias of the first layer.
            ``None``: their defaults.
        sigmoid: Whether the output passes through a sigmoid, which keeps it in (0, 1).
        layout: Directions that are encoded: ``axes``, ``directions`` (2-D: x, y and the two diagonals), ``joint``
            (rff); ``auto``: that of the papers for the encoder.
        normalize: Whether features are divided by their largest row norm over the training coordinates; does not apply to
            coordinates and to learned features.
        points_per_chunk: Number of points, of all signals together, that are evaluated at a time on a grid outside
            training.
        signals_per_chunk: Signals whose network is evaluated at a time, for less memory in training: hidden layers are
            then computed twice. ``None``: all.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: that of the network.
        optimizer: Makes the optimiser. ``None``: Adam at the rate of the activation; with ``relu`` the papers', 5e-3.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step.

    A width of the encoder that is given as ``auto`` is chosen by spectra in the same way, instead of ``omega``.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, §6.
    """

    has_layers: ClassVar[bool] = True
    may_differ: ClassVar[frozenset[str]] = CoordinateModule.may_differ | {"points_per_chunk"}

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 4,
        hidden_size: int = 256,
        activation: str = "relu",
        omega: float | Literal["auto"] | None = None,
        activation_scale: float | None = None,
        sigmoid: bool = False,
        layout: Literal["auto", "axes", "directions", "joint"] = "auto",
        normalize: bool = True,
        points_per_chunk: int = 65536,
        signals_per_chunk: int | None = None,
        shared_encoder: bool = False,
        encoder_lr: float | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        kind = find_activation(activation)
        adam = partial(torch.optim.Adam, lr=kind.rate, weight_decay=kind.weight_decay, fused=True)
        super().__init__(encoder, shared_encoder, encoder_lr, signals_per_chunk, optimizer or adam, lr_scheduler)
        validation.integer("SimpleMLP: depth", depth)
        validation.integer("SimpleMLP: hidden_size", hidden_size, 1)
        validation.integer("SimpleMLP: points_per_chunk", points_per_chunk, 1)
        self.depth = depth
        self.hidden_size = hidden_size
        check_options(activation, omega, activation_scale)
        self.activation = activation
        self.omega = omega
        self._omega = None if omega == "auto" else omega
        self.activation_scale = activation_scale
        self.sigmoid = sigmoid
        self.layout: Literal["auto", "axes", "directions", "joint"] = layout
        self.normalize = normalize
        self.points_per_chunk = points_per_chunk
        self.save_arguments(
            shared_encoder=shared_encoder,
            encoder_lr=encoder_lr,
            signals_per_chunk=signals_per_chunk,
            depth=depth,
            hidden_size=hidden_size,
            activation=activation,
            omega=omega,
            activation_scale=activation_scale,
            sigmoid=sigmoid,
            layout=layout,
            normalize=normalize,
            points_per_chunk=points_per_chunk,
        )
        automatic = [encoder.automatic() is not None for encoder in self.configured.entries]
        if any(automatic) and (omega == "auto" or not all(automatic)):
            raise InputError(
                "SimpleMLP: one width is chosen for all encoders, or omega; give 'auto' to every encoder, or to omega alone"
            )

    def make_network(self, info: SignalInfo) -> SimpleNetwork:
        return self._network(info, self.encoder, self._omega)

    def _network(self, info: SignalInfo, encoder: Encoder | list[Encoder], omega: float | None) -> SimpleNetwork:
        encoding = Simple(encoder, info.num_axes, self.layout, self.normalize)
        scale, channels = self.activation_scale, info.channels
        shape = encoding.num_features, channels, self.depth, self.hidden_size
        return SimpleNetwork(encoding, MLP(*shape, self.activation, self.sigmoid, omega, scale))

    def describe(self) -> dict[str, Any]:
        kind = find_activation(self.activation)
        options = {
            "omega": self._omega or kind.default_omega,
            "activation_scale": self.activation_scale or kind.default_scale,
        }
        given = {key: value for key, value in options.items() if value is not None}
        layers = {"name": self.activation, **given, "depth": self.depth, "width": self.hidden_size}
        return {**super().describe(), "network": layers if self.depth else None}

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        automatic = self.omega == "auto" or self.configured.entries[0].automatic() is not None
        if self.info is not None:
            if automatic:
                raise InputError("this model was built before its width was chosen; leave build() to the Trainer")
            return
        _, samples = samples_of(data.dataset)
        entries = self.configured.entries
        joint = len(entries) == 1 and entries[0].joint and self.layout in ("auto", "joint")
        per_axis = Samples(tuple(samples) if joint else (mean(samples),), use="perceptron")
        self.configured.entries = [encoder.for_data(per_axis) for encoder in entries]
        if automatic:
            self._choose_by_spectrum(data, mean(samples), device)

    def _choose_by_spectrum(self, data: SignalDataModule, samples: float, device: torch.device) -> None:
        began, encoders = time.perf_counter(), self.configured.entries
        if not isinstance(data.dataset.split, GridSplit):
            raise InputError(
                "auto compares the spectra of grids, and the trained samples are scattered; give a number, such as "
                "--model.omega 30 or --model.encoder.sigma 10, or set --data.sampling grid"
            )

        def encoders_of(features: float) -> list[Encoder]:  # with the default widths for as many per unit length
            return [e.copy(**{e.width.argument: e.width.rule(features)}) for e in encoders if e.width is not None]

        def make(value: float) -> SimpleNetwork:
            if self.omega == "auto":
                return self._network(data.info, self.encoder, value)
            found = encoders_of(value)
            return self._network(data.info, found[0] if self.configured.one_for_all else found, None)

        batch = to_device(data.dataset.choice_batch(), device)
        candidates = ladder(samples)
        if self.omega == "auto":
            check_options(self.activation, candidates[0], self.activation_scale)  # the least of them may be too large
            most = find_activation(self.activation).largest_omega(self.activation_scale)
            candidates = [omega for omega in candidates if omega <= most]
        chosen, tried = choose_by_spectrum(candidates, make, batch.values, batch.axes)
        parameter, values = "omega", [value for value, _ in tried]
        if self.omega == "auto":
            self._omega = chosen
        else:
            width = encoders[0].width
            assert width is not None
            parameter, values = width.argument, [width.rule(value) for value in values]
            self.configured.entries = encoders_of(chosen)
        self.choice_seconds = time.perf_counter() - began
        curve = [[value, distance] for value, (_, distance) in zip(values, tried, strict=True)]
        best = min(curve, key=lambda row: row[1])[0]
        self.solution = FitReport(spectrum=SpectrumReport(parameter, best, curve, self.choice_seconds))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        chosen = checkpoint["state_dict"].get("networks.network.mlp.activations.0.omega")
        if self.omega == "auto" and chosen is not None:
            self._omega = float(chosen.flatten()[0])

    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        coords = _coordinates(batch)
        if self.networks.features_are_shared:
            self.encoding.calibrate(coords)
        else:
            points, each = _for_each(coords)
            self.networks.change("calibrate", points, each=each)

    def errors(self, batch: GridBatch | PointBatch) -> Tensor:
        signals, channels = batch.values.shape[0], batch.values.shape[-1]
        if self.networks.features_are_shared:
            inputs = batch.axes if isinstance(batch, GridBatch) else (batch.coords,)
            count = batch.values.numel() // (signals * channels) * (1 if isinstance(batch, GridBatch) else len(batch.coords))
            small = count * self.encoding.num_features * batch.values.element_size() <= MAX_CACHED_BYTES
            features = (
                self.networks.cached("features", inputs, lambda: self._features(batch)) if small else self._features(batch)
            )
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
        """As in the base class, computed for a few rows of the first axis, or points of a row, at a time."""
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
    """A tensor ``(S or 1, ...)`` as input of :meth:`VmapEnsemble.call`, and whether each signal has its own."""
    return (x, True) if len(x) > 1 else (x[0], False)


def _coordinates(batch: GridBatch | PointBatch) -> Tensor:
    """``(S or 1, P, D)``."""
    if isinstance(batch, PointBatch):
        return batch.coords.to(batch.values.dtype)
    return torch.stack(torch.meshgrid(*[x.to(batch.values.dtype) for x in batch.axes], indexing="ij"), -1).reshape(
        1, -1, len(batch.axes)
    )

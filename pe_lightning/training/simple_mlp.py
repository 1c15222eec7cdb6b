"""Simple encoding and a multilayer perceptron."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch.utils._pytree import tree_map

from pe_lightning.encoders import Samples, automatic, for_data
from pe_lightning.encoders.lookups import SparseLookup, sparse_lookups
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError
from pe_lightning.estimators.linear import samples_of
from pe_lightning.networks import MLP, SimpleNetwork, activations, find_activation
from pe_lightning.networks.activations import check_options
from pe_lightning.signals import validation
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.training.base import models
from pe_lightning.training.coordinate import CoordinateModule, EncoderChoice
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.optimization import FallAtEnd
from pe_lightning.training.steps import FeatureStep, LookupStep, Step, coordinates_of, for_each

MAX_HELD_BYTES = 1 << 30
"""Most bytes of training features, or of lookups, that are held between steps; more are computed anew in each step."""


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
        omega: Angular frequency of ``sine``, ``gabor``, ``finer`` and ``staf``. ``None``: 30, as in their papers
            (``gabor``: 20).
        activation_scale: The scale ``s`` of ``gabor`` and ``gauss``, or the largest bias of the first layer of ``finer``.
            ``None``: their defaults.
        sigmoid: Whether the output passes through a sigmoid, which keeps it in (0, 1).
        layout: Directions that are encoded: ``axes``, ``directions`` (2-D: x, y and directions between them), ``joint``
            (rff); ``auto``: as in the papers for the encoder.
        normalize: Whether features are divided by their largest row norm over the training coordinates at the start of the
            fit, also of ``lff`` and of trained widths; does not apply to coordinates and trained tables.
        points_per_chunk: Points, of all signals together, that are evaluated at a time outside training.
        signals_per_chunk: Signals whose network is evaluated at a time, for less memory in training: hidden layers are
            then computed twice. ``None``: all.
        shared_encoder: Whether all signals train one encoder, where it has parameters; else each has its own.
        encoder_lr: Learning rate of the encoder's parameters; ``None``: the rate of the network.
        lr: Learning rate in place of the optimiser's own, also of the default optimiser's. ``None``: its own.
        optimizer: Makes the optimiser. ``None``: Adam at the rate of the activation, 5e-3 for ``relu``.
        lr_scheduler: Makes the learning-rate scheduler; stepped every optimiser step. ``None``: a constant rate, which falls
            at the end with the default optimiser of an activation whose targets are scaled.
        compile: Whether training steps are compiled (:func:`torch.compile`), which takes seconds at the first step and needs
            a C++ compiler.
        directions: Number of directions of the layout ``directions``: the papers' four are x, y and the two diagonals.
            Of ``gau`` below a hidden layer eight have 22.6 dB on a photograph, four 21.6.

    Reference: Zheng et al., *Trading Positional Complexity vs. Deepness in Coordinate Networks*, ECCV 2022, §6.
    """

    size_argument = "hidden_size"
    may_differ: ClassVar[frozenset[str]] = CoordinateModule.may_differ | {"points_per_chunk"}

    def __init__(
        self,
        encoder: EncoderChoice,
        depth: int = 4,
        hidden_size: int = 256,
        activation: str = "relu",
        omega: float | None = None,
        activation_scale: float | None = None,
        sigmoid: bool = False,
        layout: Literal["auto", "axes", "directions", "joint"] = "auto",
        normalize: bool = True,
        points_per_chunk: int = 65536,
        signals_per_chunk: int | None = None,
        shared_encoder: bool = False,
        encoder_lr: float | None = None,
        lr: float | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        compile: bool = False,
        directions: int = 4,
    ) -> None:
        super().__init__(encoder, shared_encoder, encoder_lr, signals_per_chunk, optimizer, lr_scheduler, compile, lr)
        validation.integer("SimpleMLP: depth", depth)
        validation.integer("SimpleMLP: hidden_size", hidden_size, 1)
        validation.integer("SimpleMLP: points_per_chunk", points_per_chunk, 1)
        validation.integer("SimpleMLP: directions", directions, 1)
        self.directions = directions
        self.depth = depth
        self.hidden_size = hidden_size
        check_options(activation, omega, activation_scale)
        self.activation = activation
        self.omega = omega
        self.activation_scale = activation_scale
        self.sigmoid = sigmoid
        self.layout: Literal["auto", "axes", "directions", "joint"] = layout
        self.normalize = normalize
        self.points_per_chunk = points_per_chunk
        self.save_arguments(
            shared_encoder=shared_encoder,
            encoder_lr=encoder_lr,
            lr=lr,
            signals_per_chunk=signals_per_chunk,
            depth=depth,
            hidden_size=hidden_size,
            activation=activations.name_of(activations.get(activation)),
            omega=omega,
            activation_scale=activation_scale,
            sigmoid=sigmoid,
            layout=layout,
            normalize=normalize,
            points_per_chunk=points_per_chunk,
            compile=compile,
            directions=directions,
        )
        if any(automatic(encoder) is not None for encoder in self.configured.entries):
            raise InputError("SimpleMLP takes the width of an encoder as a number, or its rule if none is given, not 'auto'")

    def make_network(self, info: SignalInfo) -> SimpleNetwork:
        encoding = Simple(self.encoder, info.num_axes, self.layout, self.normalize, self.directions)
        shape = encoding.num_features, info.channels, self.depth, self.hidden_size
        return SimpleNetwork(encoding, MLP(*shape, self.activation, self.sigmoid, self.omega, self.activation_scale))

    def describe(self) -> dict[str, Any]:
        kind = find_activation(self.activation)
        options = {
            "omega": self.omega or kind.default_omega,
            "activation_scale": self.activation_scale or kind.default_scale,
        }
        given = {key: value for key, value in options.items() if value is not None}
        layers = {"name": self.activation, **given, "depth": self.depth, "width": self.hidden_size}
        return {**super().describe(), "network": layers if self.depth else None}

    def choose(self, data: SignalDataModule, device: torch.device) -> None:
        if self.info is not None:
            return
        _, samples = samples_of(data.signals)
        entries = self.configured.entries
        joint = len(entries) == 1 and entries[0].joint and self.layout in ("auto", "joint")
        known = Samples(tuple(samples), use="perceptron")
        known = known if joint else replace(known, per_unit=(known.mean,))
        self.configured.entries = [for_data(encoder, known) for encoder in entries]

    def default_optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """Adam at the rate of the activation, 5e-3 and weight decay 1e-8 for ``relu``."""
        kind = find_activation(self.activation)
        return torch.optim.Adam(parameters, lr=kind.rate, weight_decay=kind.weight_decay, fused=True)

    def default_schedule(self) -> tuple[Callable[[int], float] | None, str]:
        """A constant rate as in the papers; for activations with scaled targets it falls at the end."""
        if not find_activation(self.activation).scales_targets:
            return None, "constant"
        factor = FallAtEnd(self.trainer.max_steps)
        return factor, str(factor)

    def calibrate(self, batch: GridBatch | PointBatch) -> None:
        coords = coordinates_of(batch)
        if self.networks.features_are_shared:
            self.encoding.calibrate(coords)
        else:
            points, each = for_each(coords)
            self.networks.change("calibrate", points, each=each)

    def make_step(self, batch: GridBatch | PointBatch) -> Step:
        if not batch.repeated or not self.has_usual_errors:
            return super().make_step(batch)
        if self.networks.features_are_trained:
            lookups = [] if self.compile_errors else self._lookups(batch)  # compilers take no sparse matrices
            return LookupStep(self, batch, lookups) if lookups else super().make_step(batch)
        sets = len(batch.coords) if isinstance(batch, PointBatch) else 1
        numbers = sets * math.prod(batch.values.shape[1:-1]) * self.encoding.num_features
        if self.networks.features_are_shared and numbers * batch.values.element_size() <= MAX_HELD_BYTES:
            return FeatureStep(self, batch)
        return super().make_step(batch)

    def _lookups(self, batch: GridBatch | PointBatch) -> list[list[SparseLookup]]:
        """The lookups of a batch: of the points of all signals together where features are shared.

        Empty for encoders without tables and for batches above the limit of memory.
        """
        encoding, coords = self.networks.network_of(0).encoding, coordinates_of(batch)
        assert isinstance(encoding, Simple)
        points = coords.flatten(0, 1)
        terms = sum(lookup.shares.numel() for some in encoding.lookups(points[:1]) for lookup in some)
        if terms * len(points) * 2 * (4 + points.element_size()) > MAX_HELD_BYTES:
            return []
        if self.networks.features_are_shared or len(coords) == 1:
            return sparse_lookups(encoding.lookups, points)
        own: list[list[SparseLookup]] = tree_map(
            lambda *signals: torch.stack(signals), *[sparse_lookups(encoding.lookups, some) for some in coords]
        )
        return own

"""The stable rank of features and hidden layers during training."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from pe_lightning.encodings import Encoding, feature_rank, stable_rank
from pe_lightning.errors import InputError
from pe_lightning.results.pictures import plot_curves
from pe_lightning.signals import GridBatch, PointBatch, sample_coordinates, validation
from pe_lightning.signals.dataset import to_device
from pe_lightning.training import CoordinateModule
from pe_lightning.training.base import signals_of
from pe_lightning.training.callbacks.base import (
    PeriodicCallback,
    TrainingClock,
    callbacks,
    log_values,
    require_coordinates,
)
from pe_lightning.training.callbacks.recorder import RunRecorder


def encoding_rank(module: CoordinateModule, batch: GridBatch | PointBatch, coords: Tensor) -> float:
    """Stable rank of the features of samples at ``coords`` ``(S or 1, P, D)`` of a batch, mean over signals."""
    networks = module.networks
    count = 1 if networks.features_are_shared else networks.num_signals
    encodings: list[Encoding] = [networks.network_of(signal).encoding for signal in range(count)]  # type: ignore[misc]
    axes = batch.axes if isinstance(batch, GridBatch) else None
    return torch.stack([feature_rank(encoding, coords, axes).mean() for encoding in encodings]).mean().item()


def layer_ranks(module: CoordinateModule, coords: Tensor) -> dict[str, float]:
    """Stable rank of each hidden layer's activations at points ``(S or 1, P, D)``, mean over signals: ``layer0``, ...

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 8.
    """
    return {f"layer{n}": stable_rank(layer).mean().item() for n, layer in enumerate(module.networks.hidden(coords))}


@callbacks.register("StableRank")
class StableRank(PeriodicCallback):
    r"""Follows the stable rank :math:`\|A\|_F^2 / \|A\|_2^2` of every hidden layer's activations and of the features.

    A row of ``A`` is a training point; the value is the mean over signals. It is computed before the first step, every
    ``every_n_steps`` and at the end, by the first process alone, and logged as ``stable_rank/features`` and
    ``stable_rank/layer0``, ``layer1``, ... The curves are in ``stable_rank.png`` in the run directory, and the numbers in
    the report ``stable_rank``: ``{"steps": [..], "features": [..], "layer0": [..], ..}``.

    Of a complex encoding on a training grid the rank of the features is that of the whole grid. Anything else is computed
    from a sample of the training points, whose stable rank is at most their number.

    Args:
        every_n_steps: Optimiser steps between two measurements.
        points: How many training points are used, at most; of each signal, if it has its own.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 8.
    """

    def __init__(self, every_n_steps: int = 100, points: int = 2048) -> None:
        super().__init__(every_n_steps)
        validation.integer("StableRank: points", points, 2)
        self.points = points
        self._curves: dict[str, list[Any]] = {}  # with the steps, under that name
        self._resumed = False
        self._coords: Tensor | None = None
        self._features: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit":
            signals_of(pl_module)
            if not getattr(pl_module, "has_layers", False):
                raise InputError(f"StableRank is for SimpleMLP and ComplexLinear, got a {type(pl_module).__name__}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._resumed:
            self._curves = {}
        self._resumed, self._features, self._coords = False, None, None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.act(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.act(trainer, pl_module)
        self._coords = None
        run_dir = RunRecorder.run_dir_of(trainer)
        if run_dir is not None and trainer.is_global_zero:
            curves = {**self._curves}
            plot_curves(run_dir / "stable_rank.png", curves.pop("steps"), curves, "stable rank, mean over signals")

    def act(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or trainer.global_step in self._curves.get("steps", [])[-1:]:
            return
        with TrainingClock.of(trainer).paused(pl_module.device):
            values = self._ranks(trainer, require_coordinates("StableRank", pl_module))
            for name, value in {"steps": trainer.global_step, **values}.items():
                self._curves.setdefault(name, []).append(value)
            log_values(trainer, {f"stable_rank/{name}": value for name, value in values.items()})

    def report(self) -> dict[str, Any]:
        """``stable_rank``: steps, and one list of equal length per layer; ``None`` where the fit has diverged."""
        curves = {name: [v if math.isfinite(v) else None for v in values] for name, values in self._curves.items()}
        return {"stable_rank": curves} if curves else {}

    def state_dict(self) -> dict[str, Any]:
        return {"curves": self._curves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._curves, self._resumed = state_dict["curves"], True

    def _ranks(self, trainer: Trainer, module: CoordinateModule) -> dict[str, float]:
        batch = to_device(signals_of(module).calibration_batch(), module.device)
        if self._coords is None:
            self._coords = sample_coordinates(batch, self.points).to(next(module.parameters()).dtype)
        self._coords = self._coords.to(module.device)  # after the last step Lightning moves the module to the CPU
        if self._features is None or module.networks.features_are_trained:
            self._features = encoding_rank(module, batch, self._coords)
        return {"features": self._features, **layer_ranks(module, self._coords)}

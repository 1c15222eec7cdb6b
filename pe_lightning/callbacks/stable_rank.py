"""The stable rank of features and hidden layers through training."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from matplotlib.figure import Figure
from torch import Tensor

from pe_lightning.callbacks.clock import clocks_paused
from pe_lightning.callbacks.quiet import QuietCallback
from pe_lightning.callbacks.ranks import feature_rank, layer_ranks, sample_coordinates
from pe_lightning.callbacks.schedule import Schedule
from pe_lightning.callbacks.surroundings import log_values, require_module, require_signals, run_dir_of
from pe_lightning.data.dataset import to_device
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP
from pe_lightning.runs import write_atomically

__all__ = ["StableRank"]

PLOT = "stable_rank.png"


class StableRank(QuietCallback):
    r"""Follows the stable rank :math:`\|A\|_F^2 / \|A\|_2^2` of every hidden layer's activations and of the features.

    A row of ``A`` is a training point; the value is the mean over signals. It is computed before the first step, every
    ``every_n_steps`` and at the end, by the first process alone, and logged as ``stable_rank/features`` and
    ``stable_rank/layer0``, ``layer1``, ... The curves are in ``stable_rank.png`` in the run directory, and the numbers in
    the report ``stable_rank``: ``{"steps": [..], "features": [..], "layer0": [..], ..}``.

    Of a complex encoding on a training grid the rank of the features is that of the whole grid. Anything else is computed
    from a sample of the training points, whose stable rank is at most their number.

    Args:
        every_n_steps: Optimiser steps between two measurements.
        points: How many training points are looked at, at most; of each signal, if it has its own.

    Raises:
        InputError: If an argument is out of range, or the module is not one of ours.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 8.
    """

    def __init__(self, every_n_steps: int = 100, points: int = 2048) -> None:
        self._schedule = Schedule("StableRank", every_n_steps)
        if points < 2:
            raise InputError(f"StableRank: points must be >= 2, got {points}")
        self.points = points
        self._curves: dict[str, list[float]] = {}
        self._steps: list[int] = []
        self._restored = False
        self._coords: Tensor | None = None
        self._features: float | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses what has no layers that are known, before a run directory is made."""
        if stage == "fit":
            require_signals("StableRank", trainer)
            if not isinstance(pl_module, (SimpleMLP, ComplexLinear)):
                raise InputError(f"StableRank is for SimpleMLP and ComplexLinear, got a {type(pl_module).__name__}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forgets an earlier fit, but not the one that is resumed."""
        if not self._restored:
            self._curves, self._steps = {}, []
        self._restored, self._features, self._coords = False, None, None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures before the first step."""
        self._schedule.start(trainer.global_step)
        self._measure(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Measures every few steps."""
        if self._schedule.due(trainer.global_step):
            self._measure(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measures what the fit has ended with, and draws the curves."""
        self._measure(trainer, pl_module)
        self._coords = None
        run_dir = run_dir_of(trainer)
        if run_dir is not None and trainer.is_global_zero:
            _plot(run_dir / PLOT, self._steps, self._curves)

    def report(self) -> dict[str, Any]:
        """``stable_rank``: one list per layer, as long as that of the steps; ``None`` where a fit has diverged."""
        if not self._steps:
            return {}
        curves = {name: [v if math.isfinite(v) else None for v in values] for name, values in self._curves.items()}
        return {"stable_rank": {"steps": self._steps, **curves}}

    def state_dict(self) -> dict[str, Any]:
        """The curves so far."""
        return {"steps": self._steps, "curves": self._curves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what :meth:`state_dict` gave."""
        self._steps, self._curves, self._restored = state_dict["steps"], state_dict["curves"], True

    def _measure(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero or (self._steps and self._steps[-1] == trainer.global_step):
            return
        with clocks_paused(trainer):
            values = self._ranks(trainer, require_module("StableRank", pl_module))
            self._steps.append(trainer.global_step)
            for name, value in values.items():
                self._curves.setdefault(name, []).append(value)
            log_values(trainer, {f"stable_rank/{name}": value for name, value in values.items()})

    def _ranks(self, trainer: Trainer, module: CoordinateModule) -> dict[str, float]:
        batch = to_device(require_signals("StableRank", trainer).calibration_batch(), module.device)
        if self._coords is None:
            dtype = next(module.parameters()).dtype
            self._coords = sample_coordinates(batch, self.points).to(dtype)
        if self._features is None or any(p.requires_grad for p in module.encoding.parameters()):
            self._features = feature_rank(module, batch, self._coords).mean().item()
        layers = layer_ranks(module, self._coords)
        found = torch.stack([layer.mean() for layer in layers]).tolist() if layers else []
        return {"features": self._features, **{f"layer{place}": value for place, value in enumerate(found)}}


def _plot(path: Path, steps: list[int], curves: dict[str, list[float]]) -> None:
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        dashed = name == "features"
        axes.plot(
            steps, values, marker=".", linestyle="--" if dashed else "-", color="black" if dashed else None, label=name
        )
    axes.set(xlabel="optimiser steps", ylabel="stable rank, mean over signals", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_atomically(path, buffer.getvalue())

"""The stable rank of features and hidden layers, and the similarity across gaps, of a fitted model and during training."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn

from pe_lightning.encodings import Complex, Encoding, evaluating, feature_rank, stable_rank
from pe_lightning.errors import InputError
from pe_lightning.signals import GridBatch, PointBatch, sample_coordinates
from pe_lightning.training import ComplexLinear, CoordinateModule, SignalDataModule, SimpleMLP, datamodule_of
from pe_lightning.training.callbacks import TrainingClock

MAX_FEATURES = 1 << 24
"""Most numbers of a matrix of features whose rows are compared."""


def encoding_rank(module: CoordinateModule, batch: GridBatch | PointBatch, coords: Tensor) -> float:
    """Stable rank of the features of samples at ``coords`` ``(S or 1, P, D)`` of a batch, mean over signals."""
    encodings = _encodings(module)
    axes = [x.to(coords.device) for x in batch.axes] if isinstance(batch, GridBatch) else None
    return math.fsum(feature_rank(encoding, coords, axes).mean().item() for encoding in encodings) / len(encodings)


def similarity_across_gaps(module: CoordinateModule, batch: GridBatch | PointBatch, coords: Tensor) -> float:
    r"""How similar the features of a held-out and of the nearest trained samples are: :math:`D(\Delta) / D(0)`.

    :math:`\Delta` is the distance from the middle of a gap between trained samples: half their distance on a grid. Of
    scattered samples it is the distance of a grid with as many: a place at random is in a gap of twice the mean length.

    Args:
        module: A module of a complex or simple encoding.
        batch: The trained samples.
        coords: Some of their coordinates, ``(S or 1, P, D)``. The result is the mean of the cosines of features of these
            points and of points that far from them along each axis, over points, axes and signals.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Eq. 6.
    """
    if isinstance(batch, GridBatch):
        steps = [float(x[-1] - x[0]) / max(1, len(x) - 1) / 2 for x in batch.axes]
    else:
        extents = batch.coords.amax((0, 1)) - batch.coords.amin((0, 1))
        steps = [(extents.prod().item() / batch.coords.shape[1]) ** (1 / len(extents))] * len(extents)
    cosines = []
    for encoding in _encodings(module):
        with evaluating(encoding):
            for axis, step in enumerate(steps):
                # of a Kronecker product the factors of the other axes are equal
                encode = encoding.encoders[axis] if isinstance(encoding, Complex) else encoding
                few = coords[:, : max(1, MAX_FEATURES // encode.num_features)]  # type: ignore[operator]
                there = few.clone()
                there[..., axis] += step
                pair = (few[..., axis], there[..., axis]) if isinstance(encoding, Complex) else (few, there)
                cosines.append(nn.functional.cosine_similarity(encode(pair[0]), encode(pair[1]), dim=-1).mean().item())
    return math.fsum(cosines) / len(cosines)


def _encodings(module: CoordinateModule) -> list[Encoding]:
    networks = module.networks
    count = 1 if networks.features_are_shared else networks.num_signals
    return [networks.network_of(signal).encoding for signal in range(count)]  # type: ignore[misc]


def layer_ranks(module: CoordinateModule, coords: Tensor) -> dict[str, float]:
    """Stable rank of each hidden layer's activations at points ``(S or 1, P, D)``, mean over signals: ``layer0``, ...

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 8.
    """
    return {f"layer{n}": stable_rank(layer).mean().item() for n, layer in enumerate(module.networks.hidden(coords))}


class StableRank(Callback):
    r"""Follows the stable rank :math:`\|A\|_F^2 / \|A\|_2^2` of features and layers, and the similarity across gaps.

    A row of ``A`` is a training point; the value is the mean over signals. It is computed before the first step, every
    ``every_n_steps`` and at the end, by the first process alone, and logged as ``stable_rank/features`` and
    ``stable_rank/layer0``, ``layer1``, ...; ``similarity/features`` is :func:`similarity_across_gaps`, and
    ``similarity/times_rank`` its product with the stable rank of the features: both are needed to predict held-out samples.
    ``metrics.json`` has the curves: ``"stable_rank": {"steps": [..], "features": [..], "layer0": [..], ..}``, and
    ``"similarity"``. ``pe-lightning compare --against similarity.times_rank`` takes the last value.

    Of a complex encoding on a training grid the rank is computed on the whole grid. Anything else is computed
    from a sample of the training points, whose stable rank is at most their number.

    Args:
        every_n_steps: Optimiser steps between two measurements.
        points: How many training points are used, at most; of each signal, if it has its own.

    Reference: Zheng et al., *Rethinking Positional Encoding*, arXiv 2107.02561, Fig. 8.
    """

    def __init__(self, every_n_steps: int = 100, points: int = 2048) -> None:
        if every_n_steps < 1 or points < 2:
            raise InputError(f"StableRank: every_n_steps >= 1 and points >= 2; got {every_n_steps} and {points}")
        self.every_n_steps, self.points = every_n_steps, points
        self._curves: dict[str, list[Any]] = {}  # with the steps, under that name
        self._is_resumed = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and not isinstance(pl_module, (ComplexLinear, SimpleMLP)):
            raise InputError(f"StableRank is for SimpleMLP and ComplexLinear, got a {type(pl_module).__name__}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._is_resumed:
            self._curves = {}
        self._is_resumed = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer, pl_module)

    def next_step(self, trainer: Trainer) -> int:
        return trainer.global_step + self.every_n_steps - trainer.global_step % self.every_n_steps

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_step % self.every_n_steps == 0:
            self._measure(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._measure(trainer, pl_module)

    def _measure(self, trainer: Trainer, module: Any) -> None:
        data, steps = datamodule_of(trainer, SignalDataModule), self._curves.get("steps", [])
        if data is None or not trainer.is_global_zero or trainer.global_step in steps[-1:]:
            return
        with TrainingClock.of(trainer).paused(module.device):
            batch, like = data.signals.calibration_batch(), next(module.parameters())
            coords = sample_coordinates(batch, self.points).to(like)
            rank, similarity = encoding_rank(module, batch, coords), similarity_across_gaps(module, batch, coords)
            values = {
                "stable_rank/features": rank,
                **{f"stable_rank/{name}": value for name, value in layer_ranks(module, coords).items()},
                "similarity/features": similarity,
                "similarity/times_rank": similarity * rank,
            }
            for name, value in {"steps": trainer.global_step, **values}.items():
                self._curves.setdefault(name, []).append(value)
            for logger in trainer.loggers:
                logger.log_metrics(values, trainer.global_step)

    def report(self) -> dict[str, Any]:
        """``stable_rank`` and ``similarity``: steps, and lists of equal length; ``None`` where the fit has diverged."""
        found: dict[str, Any] = {}
        for name, values in self._curves.items():
            entry, _, layer = name.partition("/")
            if layer:
                curve = [value if math.isfinite(value) else None for value in values]
                found.setdefault(entry, {"steps": self._curves["steps"]})[layer] = curve
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"curves": self._curves}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._curves, self._is_resumed = state_dict["curves"], True

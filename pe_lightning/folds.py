"""Scores by cross-validation: of the samples of each fold, predicted by a model that was fitted to the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pe_lightning import metrics
from pe_lightning.baselines import baselines, interpolate
from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.data.coordinates import point_coordinates
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.sampling import FoldSampling
from pe_lightning.errors import InputError, last_resort
from pe_lightning.modules import Adaptive, CoordinateModule

__all__ = ["FoldScores", "predicted_at", "score_folds"]


@dataclass
class FoldScores:
    """Scores of held-out samples, over all folds that were fitted.

    Args:
        protocol: The folds in words.
        scores: The metric of each signal, ``(S,)``.
        errors: Root mean squared error of each signal, in units of values in [0, 1], ``(S,)``.
        baselines: The same two of each baseline that applies.
        left_out: Why a baseline has no score.
    """

    protocol: str
    scores: Tensor
    errors: Tensor
    baselines: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def predicted_at(module: CoordinateModule, batch: GridBatch | PointBatch, index: Tensor) -> Tensor:
    """Predictions at some samples of an evaluation batch: row-major positions ``(P,)`` -> ``(S, P, C)``.

    Local models predict these samples alone. A product of features is evaluated faster on the whole grid.

    Args:
        module: A fitted model.
        batch: All samples.
        index: Positions.
    """
    with torch.no_grad():
        if isinstance(batch, PointBatch):
            return module.predict_step(batch.coords[0][index].to(module.device)).cpu()
        axes = [x.to(module.device) for x in batch.axes]
        if not isinstance(module, Adaptive):
            return module.predict_step(axes).flatten(1, -2).index_select(1, index.to(module.device)).cpu()
        return module.predict_step(point_coordinates(axes, index)).cpu()


def score_folds(
    data: SignalDataModule,
    fitted: Callable[[SignalDataModule], CoordinateModule],
    sampling: FoldSampling,
    count: int | None = None,
    with_baselines: bool = True,
) -> FoldScores:
    """Fits a model to all folds but one, and scores that one; in turn for every fold.

    Args:
        data: Signals in memory.
        fitted: Fits a new model to a DataModule.
        sampling: The folds.
        count: Number of folds that are scored, the first ones; all by default.
        with_baselines: Whether to score interpolation of the same samples too.

    Raises:
        InputError: If the signals are read from their file, or there are fewer known samples than folds.
    """
    count = sampling.number if count is None else count
    signals, metric = data.info.num_signals, data.info.metric

    def scorer() -> tuple[metrics.SignalMetric, metrics.SignalMetric]:
        return metrics.create(metric, signals, sync_on_compute=False), metrics.create("psnr", signals, sync_on_compute=False)

    own, others, left_out = scorer(), {name: scorer() for name in baselines if with_baselines}, dict[str, str]()
    for fold in range(count):
        spec = {key: value for key, value in sampling.spec().items() if key not in ("name", "fold")}
        part = data.resampled(FoldSampling(**spec, fold=fold))
        batch: GridBatch | PointBatch = part.evaluation_batch()
        assert batch.mask is not None
        index = batch.mask.flatten(1).any(0).nonzero().flatten()
        mask = batch.mask.flatten(1)[:, index]
        truth = batch.values.flatten(1, -2)[:, index]
        if part.split.num_train < 2 or not len(index):
            raise InputError(f"{sampling.words()}: fold {fold} has {len(index)} known samples to score; set fewer folds")
        prediction = predicted_at(fitted(part), batch, index)
        for score in own:
            score.update(prediction.to(truth), truth, mask)
        for name in [name for name in others if name not in left_out]:
            try:
                if not baselines.create(name).applies_to(part.info, part.split):
                    del others[name]
                    continue
                if isinstance(batch, PointBatch):
                    found = interpolate(name, part.train_batch(), batch.coords[0][index])
                else:
                    found = interpolate(name, part.train_batch(), batch.axes).flatten(1, -2)[:, index]
            except Exception as error:  # a baseline must not end a fit
                left_out[name] = str(error) if isinstance(error, InputError) else last_resort(error)[0]
                continue
            for score in others[name]:
                score.update(found.to(truth), truth, mask)
    of = "" if count == sampling.number else f"{count} of "
    return FoldScores(
        of + sampling.words(),
        own[0].per_signal(),
        _error(own[1].per_signal()),
        {name: (a.per_signal(), _error(b.per_signal())) for name, (a, b) in others.items() if name not in left_out},
        left_out,
    )


def _error(psnr: Tensor) -> Tensor:
    """Root mean squared error from PSNR in dB, peak 1."""
    return 10 ** (-psnr / 20)

"""Scores by cross-validation: each fold is predicted by a model that was fitted to all other folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.errors import InputError, last_resort
from pe_lightning.estimators.base import Field
from pe_lightning.evaluation.baselines import baselines, interpolate, refuse_slow
from pe_lightning.evaluation.totals import totals
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.signals.blocks import point_coordinates
from pe_lightning.signals.sampling import FoldSampling
from pe_lightning.signals.split_signals import Signals


@dataclass(frozen=True)
class FoldScore:
    """Scores of the held-out samples of all folds.

    Args:
        values: The metric of the signals, ``(S,)``.
        errors: Root mean squared error of values in [0, 1], ``(S,)``.
    """

    values: Tensor
    errors: Tensor

    @classmethod
    def of_squared_errors(cls, errors: Tensor) -> FoldScore:
        """PSNR and RMSE from mean squared errors of values in [0, 1], ``(S,)``."""
        return cls(-10 * errors.clamp_min(1e-30).log10(), errors.sqrt())


@dataclass(frozen=True)
class _Fold:
    """One fold: the signals that train on all other folds, and the known samples of the fold, ``(S, P, C)``."""

    signals: Signals
    batch: GridBatch | PointBatch
    index: Tensor
    truth: Tensor
    mask: Tensor


def _folds(signals: Signals, sampling: FoldSampling, count: int | None) -> Iterator[_Fold]:
    """The folds with known samples, or the first ``count`` of them."""
    for fold in range(sampling.number):
        part = signals.resampled(sampling.hold_out(fold))
        batch = part.evaluation_batch()
        assert batch.mask is not None
        index = batch.mask.flatten(1).any(0).nonzero().flatten()
        if not len(index):
            continue
        if part.split.num_train < 2:
            raise InputError(
                f"{sampling.words()}: {len(index)} known samples are in one fold, and {part.split.num_train} in the others, "
                "which a fit needs at least 2 of: set kind: random, blocks of a smaller folds.size, or no folds"
            )
        yield _Fold(part, batch, index, batch.values.flatten(1, -2)[:, index], batch.mask.flatten(1)[:, index])
        if count is not None and (count := count - 1) == 0:
            return


class _Scorer:
    def __init__(self, info: SignalInfo) -> None:
        self.metrics = [totals(name, info.num_signals) for name in (info.metric, "psnr")]

    def add(self, prediction: Tensor, fold: _Fold) -> None:
        for metric in self.metrics:
            metric.update(prediction.to(fold.truth), fold.truth, fold.mask)

    def score(self) -> FoldScore:
        own, psnr = (metric.per_signal() for metric in self.metrics)
        return FoldScore(own, 10 ** (-psnr / 20))


def predicted_at(field: Field, batch: GridBatch | PointBatch, index: Tensor) -> Tensor:
    """Predictions at some samples of an evaluation batch: row-major positions ``(P,)`` -> ``(S, P, C)``.

    Local models predict these samples alone. A product of features is evaluated faster on the whole grid.
    """
    with torch.no_grad():
        if isinstance(batch, PointBatch):
            return field.at(batch.coords[0][index]).cpu()
        if field.prefers_points:
            return field.at(point_coordinates(batch.axes, index)).cpu()
        values = field.grid(batch.axes).flatten(1, -2)
        return values.index_select(1, index.to(values.device)).cpu()


def score_folds(
    signals: Signals, fitted: Callable[[Signals], Field], sampling: FoldSampling, count: int | None = None
) -> FoldScore:
    """Fits a new model to all folds but one, and scores that one; in turn for all folds, or the first ``count``.

    Folds without a known sample are passed over.
    """
    scorer = _Scorer(signals.info)
    for fold in _folds(signals, sampling, count):
        scorer.add(predicted_at(fitted(fold.signals), fold.batch, fold.index), fold)
    return scorer.score()


def interpolated_folds(
    signals: Signals, sampling: FoldSampling, count: int | None = None, fast: bool = True
) -> tuple[dict[str, FoldScore], dict[str, str]]:
    """Scores by name of the baselines that apply, on the samples of :func:`score_folds`, and why others have none.

    ``fast``: whether slow ones are left out.
    """
    scorers, left_out = {name: _Scorer(signals.info) for name in baselines}, dict[str, str]()
    for fold in _folds(signals, sampling, count):
        for name in [name for name in scorers if name not in left_out]:
            try:
                if not baselines.create(name).applies_to(fold.signals.info, fold.signals.split):
                    del scorers[name]
                    continue
                if fast:
                    refuse_slow(name, fold.signals.info, fold.signals.split)
                if isinstance(fold.batch, PointBatch):
                    found = interpolate(name, fold.signals.train_batch(), fold.batch.coords[0][fold.index])
                else:
                    found = interpolate(name, fold.signals.train_batch(), fold.batch.axes).flatten(1, -2)[:, fold.index]
                scorers[name].add(found, fold)
            except Exception as error:  # a baseline must not end a fit
                left_out[name] = f"left out: {str(error) if isinstance(error, InputError) else last_resort(error)[0]}"
    return {name: scorer.score() for name, scorer in scorers.items() if name not in left_out}, left_out

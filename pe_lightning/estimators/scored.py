"""A fit with the scores of its held-out samples, as :func:`pe_lightning.fit` returns it."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lightning.estimators.base import Estimator, FittedField
from pe_lightning.estimators.folds import score_folds
from pe_lightning.evaluation.totals import totals
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.sampling import FoldSampling
from pe_lightning.signals.split_signals import Signals


def fit_and_score(estimator: Estimator, signals: Signals, folds: FoldSampling | None = None) -> FittedField:
    """Fits signals and scores the result, by the folds of a cross-validation if there are some."""
    of_folds = {}
    if folds is not None:
        of_folds[f"test/{signals.info.metric}"] = score_folds(signals, estimator.fit, folds).values
    field = estimator.fit(signals)
    field.scores = {**_scores(field, signals), **of_folds}
    return field


@torch.no_grad()
def _scores(field: FittedField, signals: Signals) -> dict[str, Tensor]:
    metric = signals.info.metric
    scores = {f"{stage}/{metric}": totals(metric, signals.info.num_signals) for stage in ("test", "train")}
    for batch in signals.evaluation_loader(Process()):
        points = getattr(batch, "coords", None)
        prediction = field.grid(batch.axes) if points is None else field.at(points[0])
        for score, mask in zip(scores.values(), (batch.mask, batch.train_mask), strict=True):
            score.update(prediction.to(batch.values), batch.values, mask)
    found = {name: score.per_signal() for name, score in scores.items()}
    return {name: values for name, values in found.items() if not bool(values.isnan().all())}

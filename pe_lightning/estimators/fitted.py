"""A fit with the scores of its held-out samples, as :func:`pe_lightning.fit` returns it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pe_lightning.encodings.base import check_points
from pe_lightning.estimators.base import Estimator, Field
from pe_lightning.estimators.folds import score_folds
from pe_lightning.estimators.report import FitReport
from pe_lightning.evaluation.scores import held_out_psnr
from pe_lightning.evaluation.totals import totals
from pe_lightning.signals.batches import SignalInfo
from pe_lightning.signals.process import Process
from pe_lightning.signals.sampling import FoldSampling
from pe_lightning.signals.split_signals import Signals


class Fitted:
    """Fitted signals as a function of coordinates, with scores.

    Args:
        field: The fitted signals.
        info: Shape and origin of the signals.
        scores: The scores of each signal ``(S,)``: ``train/psnr``, and ``test/psnr`` if samples are held out.
    """

    def __init__(self, field: Field, info: SignalInfo, scores: dict[str, Tensor]) -> None:
        self.field, self.info, self.scores = field, info, scores

    @classmethod
    def fit(cls, estimator: Estimator, signals: Signals, folds: FoldSampling | None = None) -> Fitted:
        """Fits signals and scores the result, by the folds of a cross-validation if there are some."""
        scores = {}
        if folds is not None:
            scores[f"test/{signals.info.metric}"] = score_folds(signals, estimator.fit, folds).values
        field = estimator.fit(signals)
        return cls(field, signals.info, {**_scores(field, signals), **scores})

    def __call__(self, coords: npt.ArrayLike | Tensor) -> Tensor:
        """Values at any coordinates: ``(*batch, D)`` in [0, 1) -> ``(S, *batch, C)``; differentiable in them."""
        points = coords if isinstance(coords, Tensor) else torch.as_tensor(np.asarray(coords))
        check_points(points, self.info.num_axes)
        values = self.field.at(points.reshape(-1, points.shape[-1]))
        return values.reshape(len(values), *points.shape[:-1], values.shape[-1])

    def grid(self, axes: list[Tensor]) -> Tensor:
        """Values on a separable grid: ``D`` coordinate vectors ``(n_a,)`` -> ``(S, n_1, ..., n_D, C)``."""
        return self.field.grid(axes)

    def std(self, coords: Tensor, level: float | None = None) -> Tensor:
        """Standard deviations of values about the predictions, of one signal: ``(*batch, D)`` -> ``(*batch, C)``."""
        return self.field.std(coords, level)

    def state_dict(self) -> dict[str, Any]:
        """The tensors of the fit by name."""
        return self.field.state_dict()

    @property
    def solution(self) -> FitReport | None:
        """Ridge, widths and other results of the fit."""
        return self.field.solution

    @property
    def psnr(self) -> float:
        """PSNR of the held-out samples in dB, mean over signals."""
        return held_out_psnr(self.field.label, self.scores)

    @property
    def train_psnr(self) -> float:
        """PSNR of the trained samples in dB, mean over signals."""
        return float(self.scores["train/psnr"].mean())

    def __repr__(self) -> str:
        return f"<{self.field.label} fitted to {self.info.num_signals} signals of {self.info.grid}>"


@torch.no_grad()
def _scores(field: Field, signals: Signals) -> dict[str, Tensor]:
    metric = signals.info.metric
    scores = {f"{stage}/{metric}": totals(metric, signals.info.num_signals) for stage in ("test", "train")}
    for batch in signals.dataset.evaluation_loader(Process()):
        points = getattr(batch, "coords", None)
        prediction = field.grid(batch.axes) if points is None else field.at(points[0])
        for score, mask in zip(scores.values(), (batch.mask, batch.train_mask), strict=True):
            score.update(prediction.to(batch.values), batch.values, mask)
    found = {name: score.per_signal() for name, score in scores.items()}
    return {name: values for name, values in found.items() if not bool(values.isnan().all())}

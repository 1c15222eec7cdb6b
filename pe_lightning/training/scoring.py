"""Scores of signals: during training, of held-out samples, and after a test; over the signals of all processes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pe_lightning.errors import show_metric
from pe_lightning.evaluation import metrics
from pe_lightning.evaluation.metrics import HeldOutScores, psnr
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.sharding import SignalShard


@dataclass(frozen=True)
class BatchErrors:
    """Errors of a training batch before the step; under several processes, those of this process's share."""

    squared: Tensor
    """Sum of squared errors per signal, ``(S,)``."""
    count: int
    """Number of values in each sum."""

    def psnr(self) -> Tensor:
        """PSNR, mean over signals, ``()``; NaN without signals."""
        return psnr(self.squared, torch.full_like(self.squared, self.count)).mean()


class SignalScores(HeldOutScores):
    """The metric of held-out and of trained samples, of the signals of all processes.

    Args:
        metric: Name of the registered metric.
        num_signals: Number of signals of all processes.
        shard: The signals of this process, where each has its own; scores of different signals are not added up.
    """

    def __init__(self, metric: str, num_signals: int, shard: SignalShard | None = None) -> None:
        own = num_signals if shard is None else shard.own.stop - shard.own.start
        super().__init__(metric, own, sync_on_compute=shard is None)
        self.num_signals = num_signals
        self.shard = shard

    def sum(self, values: Tensor) -> Tensor:
        """The sum of ``(S,)`` values over the signals of all processes, ``()``."""
        total = values.sum()
        return total if self.shard is None else self.shard.sum(total)

    def of_training(self, squared: Tensor, count: int) -> dict[str, Tensor]:
        """The loss, and the mean PSNR where that is the metric, of a training batch.

        Args:
            squared: Squared-error sum per signal of this process, ``(S,)``.
            count: Number of values in each sum.
        """
        values = {"train/loss": self.sum(squared / count)}
        if self.metric == "psnr":
            values["train/psnr"] = self.sum(psnr(squared, torch.full_like(squared, count))) / self.num_signals
        return values

    def validation(self) -> Tensor:
        """The score of the held-out samples, mean over signals, ``()``; NaN if there are none. Starts a new score."""
        score = self.sum(self.held_out.per_signal()) / self.num_signals
        self.held_out.reset()
        return score


def held_out_score(prediction: Tensor, batch: GridBatch | PointBatch, metric: str) -> float:
    """The score of the samples of a mask, mean over signals, computed by this process alone.

    Args:
        prediction: ``(S, *grid, C)``, or ``(S, P, C)`` at points.
        batch: The whole grid, or all points, with the mask.
        metric: Registered name of the metric.
    """
    score = metrics.create(metric, len(prediction), sync_on_compute=False).to(prediction.device)
    score.update(prediction, batch.values, batch.mask)
    return float(score.per_signal().mean())


def score_in_words(score: float, data: SignalDataModule) -> str:
    """The mean score of held-out samples: ``held-out PSNR: 28.61 dB (protocol rest, mean over 2 signals)``."""
    name, num_signals = data.info.metric, data.info.num_signals
    over = f", mean over {num_signals} signals" if num_signals > 1 else ""
    value = f"{score:.2f} {metrics.unit_of(name)}".rstrip()
    return f"held-out {show_metric(name)}: {value} (protocol {data.effective_eval_mask}{over})"

"""Scores of held-out and of trained samples: of a fit without Lightning, and of modules after a test."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from pe_lightning.errors import InputError
from pe_lightning.evaluation import metrics
from pe_lightning.signals.batches import GridBatch, PointBatch


class HeldOutScores(nn.Module):
    """The metric of held-out and of trained samples.

    Args:
        metric: Name of the registered metric.
        num_signals: Number of signals.
        sync_on_compute: Whether scores are those of the sums over all processes.
    """

    def __init__(self, metric: str, num_signals: int, sync_on_compute: bool = False) -> None:
        super().__init__()
        self.metric = metric
        self.trained = metrics.create(metric, num_signals, sync_on_compute)
        self.held_out = metrics.create(metric, num_signals, sync_on_compute)

    def add(self, prediction: Tensor, batch: GridBatch | PointBatch, with_trained: bool = False) -> None:
        """Adds a prediction at the held-out samples, and at the trained ones if asked for."""
        self.held_out.update(prediction, batch.values, batch.mask)
        if with_trained:
            self.trained.update(prediction, batch.values, batch.train_mask)

    def test(self) -> dict[str, Tensor]:
        """The score of each signal ``(S,)``, by names such as ``test/psnr`` and ``train/psnr``. Starts new scores."""
        scores = {}
        for stage, metric in (("test", self.held_out), ("train", self.trained)):
            scores[f"{stage}/{self.metric}"] = metric.per_signal().cpu()
            metric.reset()
        return scores


def held_out_psnr(label: str, scores: Mapping[str, Tensor]) -> float:
    """Mean over signals of the PSNR of the held-out samples in dB.

    Args:
        label: Name of the model in messages.
        scores: Scores of each signal ``(S,)`` by name.
    """
    if "test/psnr" not in scores:
        there = f"there is {', '.join(scores)}" if scores else "Trainer.test scores it, and so does pe_lightning.fit"
        raise InputError(f"this {label} has no PSNR: {there}")
    mean = float(scores["test/psnr"].mean())
    if mean != mean:
        trained = float(scores["train/psnr"].mean())
        raise InputError(f"no sample is held out: the PSNR of the trained samples is train_psnr, {trained:.2f} dB")
    return mean

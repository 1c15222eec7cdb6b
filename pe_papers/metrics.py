"""Scores of the attention tasks: accuracy, bits per dimension, average precision of detections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lightning.evaluation.metrics import SignalMetric


class Accuracy(SignalMetric):
    """The share of targets that are predicted correctly."""

    sums = ("right",)
    right: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return (prediction == target,)

    def compute(self) -> Tensor:
        return torch.where(self.count > 0, self.right / self.count, torch.nan)


class BitsPerDimension(SignalMetric):
    """Bits per value of a probabilistic model: the mean of minus the base-2 logarithm of the probability of the truth."""

    higher_is_better = False
    sums = ("bits",)
    bits: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The target is zero, the prediction the base-2 logarithm of the probability of the truth."""
        return (target - prediction,)

    def compute(self) -> Tensor:
        return torch.where(self.count > 0, self.bits / self.count, torch.nan)


class AveragePrecision(SignalMetric):
    """Average precision of detections as defined by COCO: mean over classes and over overlaps of 0.5, 0.55, ..., 0.95.

    In each picture detections are matched in descending order of confidence, each to the unmatched box of its class with
    the largest overlap. Precision is interpolated at 101 values of recall. Confidences are rounded down to 1/1000, so that
    counts per confidence can be summed over batches and processes. A signal is a set of pictures.
    """

    levels = 1000
    classes = 8
    """Largest number of classes."""
    right: Tensor
    given: Tensor
    boxes: Tensor

    def __init__(self, num_signals: int, sync_on_compute: bool = True, **kwargs: Any) -> None:
        super().__init__(num_signals, sync_on_compute, **kwargs)
        self.thresholds = torch.arange(10, 20, dtype=torch.float64) / 20
        for name, shape in (("right", (10, self.classes, self.levels + 1)), ("given", (self.classes, self.levels + 1))):
            self.add_state(name, torch.zeros(num_signals, *shape), dist_reduce_fx="sum")
        self.add_state("boxes", torch.zeros(num_signals, self.classes), dist_reduce_fx="sum")

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return ()  # the counts are not sums over samples

    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds the detections of pictures.

        Args:
            prediction: ``(B, Q, 6)``: left, top, right, bottom, class, confidence.
            target: ``(B, N, 5)``: left, top, right, bottom, class; a class below 0 is padding.
            mask: ``(S, B)``; whether a picture belongs to a set. ``None``: to all sets.
        """
        mask = torch.ones(len(self.count), len(target), dtype=torch.bool) if mask is None else mask.cpu()
        for found, true, sets in zip(prediction.double().nan_to_num().cpu(), target.double().cpu(), mask.T, strict=True):
            self._add_picture(found, true[true[:, 4] >= 0], sets.nonzero()[:, 0].to(self.device))
        self.count = self.count + mask.sum(1).to(self.device)

    def _add_picture(self, found: Tensor, true: Tensor, sets: Tensor) -> None:
        low, high = torch.maximum(found[:, None, :2], true[:, :2]), torch.minimum(found[:, None, 2:4], true[:, 2:4])
        inter = (high - low).clamp(min=0).prod(-1)
        area, true_area = ((each[:, 2:4] - each[:, :2]).prod(-1) for each in (found, true))
        overlap = inter / (area[:, None] + true_area - inter).clamp(min=1e-12) * (found[:, None, 4] == true[:, 4])
        free = torch.ones(len(self.thresholds), len(true), dtype=torch.bool)
        every = torch.arange(len(self.thresholds))
        for kind in true[:, 4].long().tolist():
            self.boxes[sets, kind] += 1
        for number in found[:, 5].argsort(descending=True, stable=True).tolist():
            kind, level = int(found[number, 4]), int(found[number, 5] * self.levels)
            self.given[sets, kind, level] += 1
            if len(true):
                best, place = torch.where(free, overlap[number], -1.0).max(1)
                hit = best >= self.thresholds
                free[every[hit], place[hit]] = False
                self.right[sets, :, kind, level] += hit.float().to(self.device)

    def compute(self) -> Tensor:
        right, given = self.right.flip(-1).cumsum(-1).double(), self.given.flip(-1).cumsum(-1).double()
        precision = right / given[:, None].clamp(min=1)
        envelope = precision.flip(-1).cummax(-1).values.flip(-1)
        recall = right / self.boxes[:, None, :, None].clamp(min=1)
        wanted = torch.linspace(0, 1, 101, dtype=torch.float64, device=recall.device)
        place = torch.searchsorted(recall, wanted.expand(*recall.shape[:-1], -1).contiguous() - 1e-9)
        padded = torch.cat([envelope, torch.zeros_like(envelope[..., :1])], -1)  # zero at recalls that are not reached
        found, there = padded.gather(-1, place).mean((1, -1)), self.boxes > 0
        return torch.where(there.any(1), (found * there).sum(1) / there.sum(1).clamp(min=1), torch.nan)

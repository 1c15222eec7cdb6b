"""Metrics per signal as torchmetrics, from sums and counts: exact for any split into batches and processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import Self

from pe_lightning.evaluation.scores import errors_and_energy, iou, overlap, psnr, snr, squared_errors, sums_of
from pe_lightning.registry import Registry


class SignalMetric(Metric):
    """A score per signal, from sums over samples.

    A subclass names its :attr:`sums`, defines their summands in :meth:`terms` and the score in :meth:`compute`. The sums
    are float64 whatever the precision of the model that has the metric, and are not in checkpoints. Only samples inside the
    mask are counted; predictions are not clamped.

    Args:
        num_signals: Number of signals ``S``.
        sync_on_compute: Whether the score is that of the sums over all processes.
        **kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    unit: ClassVar[str] = ""
    sums: ClassVar[tuple[str, ...]] = ()
    count: Tensor

    def __init__(self, num_signals: int, sync_on_compute: bool = True, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=sync_on_compute, **kwargs)
        for name in (*self.sums, "count"):
            self.add_state(name, torch.zeros(num_signals, dtype=torch.float64), dist_reduce_fx="sum")

    @abstractmethod
    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The summands of :attr:`sums`, each of the shape of ``target``."""

    @abstractmethod
    def compute(self) -> Tensor:
        """The score per signal from the sums, ``(S,)``: NaN where no sample was counted.

        torchmetrics drops the axis of a single signal; :meth:`per_signal` has it.
        """

    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch.

        Args:
            prediction: ``(S, *samples, C)``.
            target: The same shape.
            mask: ``(S or 1, *samples)``; True where a sample is scored. ``None``: everywhere.
        """
        added = sums_of(self.terms, len(self.count), prediction, target, mask)
        for name, value in zip((*self.sums, "count"), added, strict=True):
            setattr(self, name, getattr(self, name) + value)

    def per_signal(self) -> Tensor:
        """The score per signal of the sums over all processes, ``(S,)``."""
        return self.compute().reshape(self.count.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Self:
        # torchmetrics keeps the dtype in half() and double(), but not in to(dtype), by which Lightning sets a precision
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)  # type: ignore[return-value]


metrics: Registry[SignalMetric] = Registry("metric", SignalMetric, "pe_lightning.metrics")  # type: ignore[type-abstract]


def create(name: str, num_signals: int, sync_on_compute: bool = True) -> SignalMetric:
    """Creates a registered metric for a number of signals.

    >>> create("psnr", 2).unit
    'dB'
    """
    return metrics.create(name, num_signals=num_signals, sync_on_compute=sync_on_compute)


def unit_of(name: str) -> str:
    """The unit of a metric; empty if it has none or is not registered."""
    return metrics.get(name).unit if name in metrics else ""


@metrics.register("psnr")
class SignalPSNR(SignalMetric):
    """Peak signal-to-noise ratio, peak 1 (see :func:`~pe_lightning.evaluation.scores.psnr`)."""

    unit = "dB"
    sums = ("squared_error",)
    squared_error: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return squared_errors(prediction, target)

    def compute(self) -> Tensor:
        return psnr(self.squared_error, self.count)


@metrics.register("snr")
class SNR(SignalMetric):
    """Signal-to-noise ratio: ``10 log10`` of the signal's energy over the energy of the error."""

    unit = "dB"
    sums = ("squared_error", "energy")
    squared_error: Tensor
    energy: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return errors_and_energy(prediction, target)

    def compute(self) -> Tensor:
        return snr(self.squared_error, self.energy, self.count)


@metrics.register("iou")
class IoU(SignalMetric):
    """Intersection over union of the values above 0.5: 1 where both are empty, 0 where a prediction is not finite."""

    sums = ("intersection", "union")
    intersection: Tensor
    union: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return overlap(prediction, target)

    def compute(self) -> Tensor:
        return iou(self.intersection, self.union, self.count)


@metrics.register("accuracy")
class Accuracy(SignalMetric):
    """The share of targets that are predicted correctly."""

    sums = ("right",)
    right: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return (prediction == target,)

    def compute(self) -> Tensor:
        return torch.where(self.count > 0, self.right / self.count, torch.nan)


@metrics.register("bpd")
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


@metrics.register("ap")
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

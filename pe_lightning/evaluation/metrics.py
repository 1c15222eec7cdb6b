"""Metrics per signal from sums and counts: exact for any split into batches and processes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pe_lightning.errors import InputError
from pe_lightning.registry import Registry
from pe_lightning.signals.batches import GridBatch, PointBatch


class SignalMetric(nn.Module, ABC):
    """A score per signal, from sums over samples.

    A subclass names its :attr:`sums`, defines their summands in :meth:`terms` and the score in :meth:`compute`. The sums
    are float64 whatever the precision of the model that has the metric, and are not in checkpoints. Only samples inside the
    mask are counted; predictions are not clamped.

    Args:
        num_signals: Number of signals ``S``.
        sync_on_compute: Whether the score is that of the sums over all processes.
    """

    higher_is_better: ClassVar[bool] = True
    unit: ClassVar[str] = ""
    sums: ClassVar[tuple[str, ...]] = ()
    count: Tensor

    def __init__(self, num_signals: int, sync_on_compute: bool = True) -> None:
        super().__init__()
        self.sync_on_compute = sync_on_compute
        self._states: list[str] = []
        for name in (*self.sums, "count"):
            self.add_sum(name, torch.zeros(num_signals, dtype=torch.float64))

    def add_sum(self, name: str, zeros: Tensor) -> None:
        """Adds an attribute that is summed over batches and processes, and starts at zero."""
        self._states.append(name)
        setattr(self, name, zeros)

    def reset(self) -> None:
        for name in self._states:
            setattr(self, name, torch.zeros_like(getattr(self, name)))

    @property
    def device(self) -> torch.device:
        return self.count.device

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SignalMetric:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._states:
            setattr(self, name, getattr(self, name).to(fn(getattr(self, name)).device))
        return self

    @abstractmethod
    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The summands of :attr:`sums`, each of the shape of ``target``."""

    @abstractmethod
    def compute(self) -> Tensor:
        """The score per signal from the sums, ``(S,)``: NaN where no sample was counted."""

    @torch.no_grad()
    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch.

        Args:
            prediction: ``(S, *samples, C)``.
            target: The same shape.
            mask: ``(S or 1, *samples)``; True where a sample is scored. ``None``: everywhere.
        """
        signals, samples = len(self.count), target.shape[1:-1]
        masked = mask is None or (mask.shape[1:] == samples and len(mask) in (1, signals))
        if prediction.shape != target.shape or len(target) != signals or not masked:
            given = [tuple(tensor.shape) for tensor in (prediction, target, mask) if tensor is not None]
            raise ValueError(
                f"prediction and target have the shape ({signals}, *samples, C), a mask (1 or {signals}, *samples); "
                f"got {given}"
            )
        # half precision becomes float32
        precise = torch.promote_types(prediction.dtype, torch.float32)
        flat = torch.ones(1, samples.numel(), dtype=torch.bool, device=target.device) if mask is None else mask.flatten(1)
        for name, values in zip(self.sums, self.terms(prediction.to(precise), target.to(precise)), strict=True):
            per_sample = values.to(precise).sum(-1).flatten(1)
            setattr(self, name, getattr(self, name) + torch.where(flat, per_sample, 0.0).sum(1, dtype=torch.float64))
        self.count = self.count + flat.sum(1) * target.shape[-1]

    def per_signal(self) -> Tensor:
        """The score per signal of the sums over all processes, ``(S,)``."""
        if not (self.sync_on_compute and dist.is_available() and dist.is_initialized()):
            return self.compute()
        own = {name: getattr(self, name) for name in self._states}
        for name, value in own.items():
            total = value.clone()
            dist.all_reduce(total)
            setattr(self, name, total)
        score = self.compute()
        for name, value in own.items():
            setattr(self, name, value)
        return score


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


def psnr(squared_error: Tensor, count: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB for values in [0, 1]: ``-10 log10(squared_error / count)``.

    Args:
        squared_error: Sum of squared errors, ``(S,)``.
        count: Number of values summed, ``(S,)``.

    Returns:
        ``(S,)``: infinite where the error is zero, minus infinite where it is infinite or NaN (a diverged fit), NaN where
        the count is zero.
    """
    error = torch.nan_to_num(squared_error, nan=torch.inf, posinf=torch.inf)
    return torch.where(count > 0, -10 * torch.log10(error / count), torch.nan)


@metrics.register("psnr")
class SignalPSNR(SignalMetric):
    """Peak signal-to-noise ratio, peak 1 (see :func:`psnr`)."""

    unit = "dB"
    sums = ("squared_error",)
    squared_error: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        return ((prediction - target).square(),)

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
        return (prediction - target).square(), target.square()

    def compute(self) -> Tensor:
        ratio = psnr(self.squared_error, self.energy.clamp(min=torch.finfo(torch.float64).tiny))
        return torch.where(self.count > 0, ratio, torch.nan)


@metrics.register("iou")
class IoU(SignalMetric):
    """Intersection over union of the values above 0.5: 1 where both are empty, 0 where a prediction is not finite."""

    sums = ("intersection", "union")
    intersection: Tensor
    union: Tensor

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        inside, finite = target > 0.5, prediction.isfinite()
        return (prediction > 0.5) & inside & finite, (prediction > 0.5) | inside | ~finite

    def compute(self) -> Tensor:
        ratio = torch.where(self.union > 0, self.intersection / self.union, 1.0)
        return torch.where(self.count > 0, ratio, torch.nan)


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

    def __init__(self, num_signals: int, sync_on_compute: bool = True) -> None:
        super().__init__(num_signals, sync_on_compute)
        self.thresholds = torch.arange(10, 20, dtype=torch.float64) / 20
        for name, shape in (("right", (10, self.classes, self.levels + 1)), ("given", (self.classes, self.levels + 1))):
            self.add_sum(name, torch.zeros(num_signals, *shape))
        self.add_sum("boxes", torch.zeros(num_signals, self.classes))

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


def summary(values: Tensor, prefix: str, nothing: str) -> dict[str, Any]:
    """Mean, standard deviation and list of a per-signal metric as plain JSON values.

    Values that are not finite become ``None``, with the reason under ``<prefix>_reason``. The standard deviation has no
    correction: it is 0 for one signal.

    Args:
        values: One value per signal, ``(S,)``.
        prefix: Key of the mean, such as ``test/psnr``.
        nothing: The reason of a NaN.
    """
    finite = torch.isfinite(values)
    whole = bool(finite.all())
    plain: dict[str, Any] = {
        prefix: values.mean().item() if whole else None,
        f"{prefix}_std": values.std(correction=0).item() if whole else None,
        f"{prefix}_per_signal": [v.item() if ok else None for v, ok in zip(values, finite, strict=True)],
    }
    reasons = {
        nothing: values.isnan(),
        "infinite: a signal is reproduced exactly": values.isposinf(),
        "minus infinite: a prediction is not finite": values.isneginf(),
    }
    if not whole:
        plain[f"{prefix}_reason"] = "; ".join(reason for reason, where in reasons.items() if where.any())
    return plain


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
        self.trained = create(metric, num_signals, sync_on_compute)
        self.held_out = create(metric, num_signals, sync_on_compute)

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
    """Mean over signals of the PSNR of the held-out samples in dB, from scores ``(S,)`` by name.

    Args:
        label: Name of the model in messages.
        scores: Scores of each signal by name.
    """
    mean = float(scores["test/psnr"].mean()) if "test/psnr" in scores else math.nan
    if not math.isnan(mean):
        return mean
    there = f"there is {', '.join(scores)}" if scores else "Trainer.test scores it, and so does pe_lightning.fit"
    if "train/psnr" in scores:
        trained = float(scores["train/psnr"].mean())
        there = f"no sample is held out, and that of the trained samples is train_psnr, {trained:.2f} dB"
    raise InputError(f"this {label} has no PSNR: {there}")

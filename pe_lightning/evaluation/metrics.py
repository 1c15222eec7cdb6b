"""Metrics per signal as torchmetrics, from sums and counts: exact for any split into batches and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from typing_extensions import Self

from pe_lightning.evaluation.scores import FORMULAS, Formula, sums_of
from pe_lightning.registry import Registry


class SignalMetric(Metric):
    """A score per signal, from sums over samples.

    A subclass names its :attr:`sums` and defines :meth:`terms` and :meth:`compute`, or has a :attr:`formula`. The sums are
    float64 whatever the precision of the model that has the metric, and are not in checkpoints. Only samples inside the
    mask are counted; predictions are not clamped.

    Args:
        num_signals: Number of signals ``S``.
        sync_on_compute: Whether :meth:`compute` adds the sums of all processes.
        **kwargs: Further arguments of :class:`torchmetrics.Metric`.
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    unit: ClassVar[str] = ""
    sums: ClassVar[tuple[str, ...]] = ()
    formula: ClassVar[Formula]
    count: Tensor

    def __init__(self, num_signals: int, sync_on_compute: bool = True, **kwargs: Any) -> None:
        super().__init__(sync_on_compute=sync_on_compute, **kwargs)
        for name in (*self.sums, "count"):
            self.add_state(name, torch.zeros(num_signals, dtype=torch.float64), dist_reduce_fx="sum")

    def terms(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        """The summands of :attr:`sums`, each of the shape of ``target``."""
        return self.formula.terms(prediction, target)

    def compute(self) -> Tensor:
        """The score per signal from the sums, ``(S,)``: NaN where no sample was counted.

        torchmetrics drops the axis of a single signal; :meth:`per_signal` has it.
        """
        return self.formula.score(*(getattr(self, name) for name in (*self.sums, "count")))

    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch, as :func:`~pe_lightning.evaluation.scores.sums_of` takes it."""
        added = sums_of(self.terms, len(self.count), prediction, target, mask)
        for name, value in zip((*self.sums, "count"), added, strict=True):
            setattr(self, name, getattr(self, name) + value)

    def per_signal(self) -> Tensor:
        """The score per signal of the sums over all processes, ``(S,)``."""
        return self.compute().reshape(self.count.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Self:
        # torchmetrics keeps the dtype in half() and double(), but not in to(dtype), by which Lightning sets a precision
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), exclude_state)  # type: ignore[return-value]


metrics: Registry[SignalMetric] = Registry("metric", SignalMetric, "pe_lightning.metrics")


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

    unit, formula = "dB", FORMULAS["psnr"]
    sums = formula.sums


@metrics.register("snr")
class SNR(SignalMetric):
    """Signal-to-noise ratio: ``10 log10`` of the signal's energy over the energy of the error."""

    unit, formula = "dB", FORMULAS["snr"]
    sums = formula.sums


@metrics.register("iou")
class IoU(SignalMetric):
    """Intersection over union of the values above 0.5: 1 where both are empty, 0 where a prediction is not finite."""

    formula = FORMULAS["iou"]
    sums = formula.sums

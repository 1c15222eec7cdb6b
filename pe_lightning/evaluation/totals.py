"""Scores per signal of the batches of one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from pe_lightning.evaluation.scores import FORMULAS, Formula, sums_of

if TYPE_CHECKING:
    from pe_lightning.evaluation.metrics import SignalMetric


class Totals:
    """A score per signal of the batches of one process.

    Args:
        formula: The score.
        num_signals: Number of signals ``S``.
    """

    def __init__(self, formula: Formula, num_signals: int) -> None:
        self.formula, self.num_signals = formula, num_signals
        self._sums: tuple[Tensor, ...] = ()

    def update(self, prediction: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Adds a batch, as :func:`sums_of` takes it."""
        new = sums_of(self.formula.terms, self.num_signals, prediction, target, mask)
        self._sums = tuple(a + b for a, b in zip(self._sums, new, strict=True)) if self._sums else new

    def per_signal(self) -> Tensor:
        """The score per signal after one or more batches, ``(S,)``: NaN where no sample was counted."""
        return self.formula.score(*self._sums)


def totals(metric: str, num_signals: int) -> Totals | SignalMetric:
    """Scores signals in one process by a registered metric; the metric of a plug-in is a torchmetrics.Metric."""
    if metric in FORMULAS:
        return Totals(FORMULAS[metric], num_signals)
    from pe_lightning.evaluation.metrics import create

    return create(metric, num_signals, sync_on_compute=False)

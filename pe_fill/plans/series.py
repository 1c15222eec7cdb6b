"""Rows at unequal distances, fitted as series with seasons."""

from __future__ import annotations

from pe_fill.estimators.series import SeriesFit
from pe_fill.plans.model import by_fit
from pe_fill.plans.signal import Outcome, Signal
from pe_lightning.signals.distributed import without_notices


def applies(signal: Signal) -> bool:
    """To rows with enough samples; those at equal distances have the mixture."""
    return signal.fills and len(signal.grid) == 1


def run(signal: Signal) -> Outcome:
    """By :func:`pe_fill.fit_points`."""
    with without_notices():
        return by_fit(signal, SeriesFit(signal.periods).fit, signal.periods)

"""Confidence intervals of means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy.special import stdtrit  # scipy.stats has the same quantile, and takes longer to import

CONFIDENCE = 0.95
"""Coverage of all confidence intervals."""


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, NaN of no values, and half-width of its t interval at :data:`CONFIDENCE`, NaN of fewer than two."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.nan
    quantile = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2))
    return statistics.fmean(values), quantile * statistics.stdev(values) / len(values) ** 0.5

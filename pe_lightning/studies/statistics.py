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
    return statistics.fmean(values), _quantile(len(values) - 1) * standard_error(values)


def welch_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Difference of the means of two independent samples, and half-width of its interval by Welch's t test.

    The half-width is NaN if a sample has fewer than two values.
    """
    difference = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return difference, math.nan
    a, b = standard_error(first) ** 2, standard_error(second) ** 2
    if a + b == 0:
        return difference, 0.0
    degrees = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return difference, _quantile(degrees) * (a + b) ** 0.5


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean, NaN of fewer than two values."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan


def _quantile(degrees: float) -> float:
    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))

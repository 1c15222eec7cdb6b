"""Means, deviations and confidence intervals of scores; NaN of missing scores, and where infinite ones leave no number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.special import stdtrit  # scipy.stats has the same quantile, and takes longer to import

CONFIDENCE = 0.95
"""Coverage of all confidence intervals."""


def mean(values: Iterable[float | None]) -> float:
    """The mean; NaN if a value is missing or there are no values."""
    found = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    with np.errstate(invalid="ignore"):  # infinities of both signs
        return float(found.mean()) if len(found) else math.nan


def deviation(values: Sequence[float]) -> float:
    """Sample standard deviation; NaN of fewer than two values, and of infinite ones."""
    with np.errstate(invalid="ignore"):
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean; NaN of fewer than two values, and of infinite ones."""
    return deviation(values) / math.sqrt(max(1, len(values)))


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half-width of its t interval at :data:`CONFIDENCE`, NaN where there is no standard error."""
    return mean(values), _quantile(len(values) - 1) * standard_error(values)


def welch_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Difference of the means of two independent samples, and half-width of its interval by Welch's t test.

    The half-width is NaN if a sample has no standard error.
    """
    difference = mean(first) - mean(second)
    a, b = standard_error(first) ** 2, standard_error(second) ** 2
    if math.isnan(a + b) or a + b == 0:
        return difference, a + b
    degrees = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    return difference, _quantile(degrees) * (a + b) ** 0.5


def _quantile(degrees: float) -> float:
    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))

"""Confidence intervals of means, against SciPy."""

import math

import numpy as np
import pytest
from scipy import stats

from pe_lightning.studies.statistics import CONFIDENCE, t_interval


@pytest.mark.parametrize("count", [2, 3, 40])
def test_the_interval_is_that_of_student(count):
    values = np.random.default_rng(count).normal(3, 2, count)
    mean, half_width = t_interval(values.tolist())
    expected = stats.ttest_1samp(values, 0).confidence_interval(CONFIDENCE)
    assert (mean - half_width, mean + half_width) == pytest.approx((expected.low, expected.high))


def test_few_values_have_no_interval():
    assert t_interval([2.5])[0] == 2.5
    assert all(map(math.isnan, (t_interval([2.5])[1], *t_interval([]))))

"""Periods that are found in series, and accepted or not."""

from __future__ import annotations

import numpy as np
import pytest

import pe_fill
from pe_fill.kriging.seasons import SeasonalMean, find_periods, strongest_period
from pe_lightning.errors import InputError


def test_a_period_is_found_at_uneven_times_and_noise_or_a_random_walk_has_none():
    random = np.random.default_rng(0)
    times = np.sort(random.uniform(0, 20, 200))
    season = np.exp(np.sin(2 * np.pi * times / 1.7)) + 0.3 * times + 0.2 * random.normal(size=200)
    assert find_periods(times, season[:, None]) == pytest.approx([1.7], rel=0.01)
    assert strongest_period(times, np.cos(2 * np.pi * times / 0.9)[:, None]) == pytest.approx((0.9, 1.0), rel=0.01)
    assert find_periods(times, random.normal(size=(200, 1))) == ()
    assert find_periods(times, random.normal(size=(200, 1)).cumsum(0)) == ()
    assert find_periods(times[:20], season[:20, None]) == ()


def test_seasons_have_the_harmonics_that_values_need_and_tell_how_much_larger_new_errors_are():
    random, times = np.random.default_rng(0), np.arange(160) / 8
    one = SeasonalMean(times, np.cos(2 * np.pi * times)[:, None] + 0.3 * random.normal(size=(160, 1)), [1.0])
    assert [harmonics for _, harmonics in one.waves] == [1]
    assert not one.slopes
    angles = 2 * np.pi * np.arange(1, 5) * times[:, None]
    season = (np.cos(angles).sum(1) * (1 + times / 9))[:, None]  # takes all four, with slopes
    known, new = season + random.normal(size=(2, 160, 400))
    fit = SeasonalMean(times, known, [1.0])
    assert fit.slopes
    ratio = np.sqrt(np.square(new - fit(times)).mean() / np.square(known - fit(times)).mean())
    assert fit.inflation == pytest.approx(ratio, rel=0.02)


@pytest.mark.slow
def test_a_gap_of_a_series_with_a_season_is_continued_by_it():
    days = np.datetime64("2020-01-01") + 9 * np.arange(240)
    year = (days - days[0]).astype(float) / 365.2425
    values = 10 * np.sin(2 * np.pi * year) + 3 * np.cos(4 * np.pi * year) + year**2
    known = np.ones(240, bool)
    known[100:140] = False
    errors = {}
    for periodic in ("auto", "none"):
        fit = pe_fill.fit_points({"time": days[known]}, values[known], periodic=periodic)
        assert [len(periods) for periods in fit.seasons.values()] == ([] if periodic == "none" else [1])
        errors[periodic] = np.sqrt(np.mean((fit.predict({"time": days[~known]}) - values[~known]) ** 2))
    assert fit.axes[0].time
    assert errors["auto"] < 0.2 * errors["none"]
    with pytest.raises(InputError, match=r"the axes are time \(dates\); got 'day=7d'"):
        pe_fill.fit_points({"time": days}, values, periodic="day=7d")
    with pytest.raises(InputError, match="5 together, and at most 3"):
        pe_fill.fit_points({"time": days}, values, periodic="time=1y,time=7d,time=1d,time=30d")

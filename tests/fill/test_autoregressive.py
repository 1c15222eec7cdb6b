"""Autoregressive interpolation against a dense least-squares solution, and on tones."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pe_fill.members.autoregressive import autoregressive, interpolate_segment


def process(length: int, coefficients: list[float], seed: int = 0) -> np.ndarray:
    random, values = np.random.default_rng(seed), np.zeros(length + 100)
    for t in range(len(coefficients), len(values)):
        values[t] = values[t - len(coefficients) : t][::-1] @ coefficients + random.normal()
    return values[100:]


def test_the_missing_samples_leave_the_least_prediction_error() -> None:
    row, known = process(300, [1.6, -0.8]), np.ones(300, bool)
    known[140:148] = known[200:203] = False
    found = interpolate_segment(torch.from_numpy(row), torch.from_numpy(known), orders=(2,))
    centred = found.numpy() - row[known].mean()
    near, far = np.concatenate([centred[1:-1], centred[1:-1]]), np.concatenate([centred[:-2], centred[2:]])
    ends = np.concatenate([centred[2:], centred[:-2]])
    coefficients = np.linalg.lstsq(np.stack([near, far], 1), ends, rcond=None)[0]
    assert np.allclose(coefficients, [1.6, -0.8], atol=0.1)
    matrix = np.zeros((596, 300))
    for t in range(298):
        matrix[t, t : t + 3] = [-coefficients[1], -coefficients[0], 1]
        matrix[298 + t, t : t + 3] = [1, -coefficients[0], -coefficients[1]]
    right = -matrix[:, known] @ centred[known]
    expected, *_ = np.linalg.lstsq(matrix[:, ~known], right, rcond=None)
    np.testing.assert_allclose(centred[~known], expected, atol=0.02)


@pytest.mark.parametrize("start", [0, 4, 191, 378, 382])
def test_gaps_near_an_end_are_as_good_as_those_inside(start: int) -> None:
    t, known = np.arange(400), np.ones(400, bool)
    season = 5 * np.sin(np.pi * t / 6) + 1.5 * np.sin(np.pi * t / 3 + 1) + 0.01 * t
    row = torch.from_numpy(season + 0.3 * np.random.default_rng(1).standard_normal(400))
    known[start : start + 18] = False
    mask, given = torch.from_numpy(known), row.where(torch.from_numpy(known), 0.0)
    found = interpolate_segment(given, mask)
    assert float((found - row)[~mask].square().mean().sqrt()) < 0.5
    torch.testing.assert_close(interpolate_segment(given.flip(0), mask.flip(0)).flip(0), found)


def test_gaps_that_leave_short_stretches_of_many_tones_have_enough_coefficients() -> None:
    t, known = np.arange(1000), np.ones(1000, bool)
    tones = sum(np.sin(0.17 * n * t + n) for n in range(1, 13)) + 0.05 * np.random.default_rng(0).standard_normal(1000)
    for start in range(80, 1000, 110):
        known[start : start + 30] = False
    row, mask = torch.from_numpy(tones), torch.from_numpy(known)
    assert float((interpolate_segment(row.where(mask, 0.0), mask) - row)[~mask].square().mean().sqrt()) < 0.1


def test_dropouts_in_tones_and_a_row_that_is_too_short() -> None:
    random = np.random.default_rng(1)
    t, known = np.arange(6000) / 16_000, np.ones(6000, bool)
    tones = sum(np.sin(2 * math.pi * f * t + f) / n for n, f in enumerate((220, 523.3, 1310, 2741), 1))
    tones = tones + 0.005 * random.standard_normal(6000)
    for start, length in zip(range(150, 5800, 400), random.integers(10, 60, 15), strict=False):
        known[start : start + length] = False
    values = np.stack([tones, np.roll(tones, 700)], 1)
    found = autoregressive(torch.from_numpy(np.where(known[:, None], values, np.nan)), torch.from_numpy(known))
    np.testing.assert_array_equal(found.numpy()[known], values[known])
    error = found.numpy()[~known] - values[~known]
    assert 10 * np.log10(np.square(values[~known]).sum() / np.square(error).sum()) > 20
    short = autoregressive(torch.tensor([[0.0], [math.nan], [2.0]]), torch.tensor([True, False, True]))
    assert short.flatten().tolist() == [0, 1, 2]

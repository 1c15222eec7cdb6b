"""The adaptive fit of one axis: splines and leave-one-out errors against references, and its choice."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline, make_interp_spline
from scipy.signal import lfilter
from torch import Tensor

from pe_fill.adaptive.line import DEGREES, AdaptiveLine, member_errors
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals import GridBatch

RANDOM = np.random.default_rng(0)
TIME = np.arange(6000)


def line(values: Tensor, size: int, step: int = 2) -> AdaptiveLine:
    return AdaptiveLine(values[::step], size, 0.0, float(step), 0.0)


@pytest.mark.parametrize("member", range(5))
def test_members_are_the_interpolating_splines(member: int) -> None:
    values, degree = RANDOM.random((121, 2)), DEGREES[member]
    mixture = torch.eye(AdaptiveLine.num_members, dtype=torch.float64)[member]
    fitted = AdaptiveLine(torch.from_numpy(values[::2]), 121, 0.0, 2.0, 0.0, mixture)
    x = np.arange(150, 455) / 605  # far from the ends, where conditions differ
    expected = make_interp_spline(np.arange(0, 121, 2) / 121, values[::2], k=degree)(x)
    tolerance = {1: 1e-9, 3: 1e-8}.get(degree, 0.01)
    np.testing.assert_allclose(fitted.predict([torch.from_numpy(x)]).numpy(), expected, rtol=0, atol=tolerance)
    at_samples = fitted.predict([torch.arange(0, 121, 2) / 121])
    np.testing.assert_allclose(at_samples.numpy(), values[::2], rtol=0, atol=1e-9)


def test_leave_one_out_errors_are_those_of_splines_without_the_sample() -> None:
    values = RANDOM.random(80)
    errors = member_errors(torch.from_numpy(values)[:, None])[..., 0].numpy()
    for i in (39, 44):
        others = np.delete(np.arange(80.0), i)
        for member, spline in ((0, np.interp), (1, lambda x, at, y: CubicSpline(at, y, bc_type="natural")(x))):
            expected = values[i] - spline(float(i), others, values[others.astype(int)])
            assert errors[member, i] == pytest.approx(expected, abs=1e-9)


SIGNALS = {
    "smooth": np.sin(TIME / 9) + 0.3 * np.cos(TIME / 4),
    "voiced": lfilter([1], np.poly([0.97 * np.exp(0.4j), 0.97 * np.exp(-0.4j)]).real, TIME % 160 == 0),
    "random walk": np.cumsum(RANDOM.normal(size=6000)),
    "steps": np.repeat(RANDOM.normal(size=163), 37)[:6000],
    "noise": RANDOM.normal(size=6000),
    "daily cycle and noise": 4 * np.sin(TIME / 24 * 2 * np.pi) + 0.5 * RANDOM.normal(size=6000),
    "daily cycle": 4 * np.sin(TIME / 24 * 2 * np.pi) + lfilter([1], [1, -0.95], RANDOM.normal(0, 0.4, 6000)),
    "slow tone": np.sin(0.6 * TIME),
    "fast tone": np.sin(1.2 * TIME),
}


@pytest.mark.parametrize(
    ("name", "step"), [*((name, 2) for name in SIGNALS), *((name, 3) for name in ("smooth", "random walk", "noise"))]
)
def test_the_mixture_is_as_good_as_the_best_interpolation(name: str, step: int) -> None:
    signal = torch.from_numpy(SIGNALS[name])[:, None].float()
    trained = (torch.arange(0, 6000, step, dtype=torch.float64) / 6000,)
    axis = torch.arange(6000, dtype=torch.float64) / 6000
    held_out = torch.arange(6000) % step != 0
    held_out[:30] = held_out[-30:] = False  # the ends, where the spline has another condition

    def decibels(prediction: Tensor) -> float:
        error = (prediction - signal)[held_out].square().mean() / signal.var()
        return min(60.0, float(-10 * error.log10()))

    batch = GridBatch(trained, signal[None, ::step])
    best = max(decibels(interpolate(method, batch, [axis])[0]) for method in ("nearest", "linear", "bicubic", "spline"))
    assert decibels(line(signal, 6000, step).predict([axis])) > best - 0.05


@pytest.mark.slow
def test_values_are_differentiable_and_samples_of_long_signals_are_met() -> None:
    smooth = torch.sin(torch.arange(400, dtype=torch.float64) / 9)[:, None]
    points = torch.tensor([[0.203], [0.517]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(line(smooth, 400).at(points).sum(), points)
    torch.testing.assert_close(slope[:, 0], (torch.cos(points * 400 / 9) * 400 / 9)[:, 0].detach(), rtol=1e-4, atol=0)
    count = 3_000_001  # float32 coordinates are off by a quarter of a sample
    ramp = (torch.arange(300_001) % 2).float()[:, None]
    fitted = AdaptiveLine(ramp, count, 0.0, 10.0, 0.0)
    places = torch.arange(290_000, 290_100)
    torch.testing.assert_close(fitted.predict([10 * places / count]), ramp[places], rtol=0, atol=1e-4)


@pytest.mark.parametrize("values", [torch.zeros(2, 1), torch.ones(9, 3), torch.rand(3, 1)], ids=["two", "constant", "three"])
def test_short_and_constant_signals_stay_finite(values: Tensor) -> None:
    fitted = AdaptiveLine(values, 2 * len(values), 0.0, 2.0, 0.0)
    predicted = fitted.predict([torch.arange(2 * len(values)) / (2 * len(values))])
    assert predicted.isfinite().all()
    torch.testing.assert_close(predicted[::2], values, rtol=0, atol=1e-3)
    assert fitted.mixture.sum() == pytest.approx(1)

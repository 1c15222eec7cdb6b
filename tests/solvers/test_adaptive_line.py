"""The adaptive fit of one axis: its three methods against references, and its choice against the best interpolation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline
from scipy.signal import lfilter
from torch import Tensor

from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals import GridBatch
from pe_lightning.solvers.adaptive_line import AdaptiveLine

RANDOM = np.random.default_rng(0)
TIME = np.arange(6000)


def line(values: Tensor, size: int, step: int = 2) -> AdaptiveLine:
    return AdaptiveLine(values[::step], size, 0.0, float(step), 0.0)


@pytest.mark.parametrize(("member", "name"), [(0, "linear"), (1, "bicubic"), (2, "spline")])
def test_each_method_is_the_interpolation_of_its_name(member: int, name: str) -> None:
    values = torch.from_numpy(RANDOM.random((121, 2)))
    fitted = line(values, 121)
    fitted.mixture = torch.eye(3, dtype=torch.float64)[member]
    x = torch.arange(0, 1, 1 / 605, dtype=torch.float64)
    trained = (torch.arange(0, 121, 2, dtype=torch.float64) / 121,)
    expected = interpolate(name, GridBatch(trained, values[None, ::2]), [x])[0]
    inside = slice(150, -150)  # the ends of the spline differ, and so does what the cut-off filter leaves out
    torch.testing.assert_close(fitted.predict([x])[inside], expected[inside], rtol=0, atol=2e-4)
    spline = CubicSpline(np.arange(0, 121, 2) / 121, values[::2].numpy())(x.numpy())
    assert name != "spline" or np.abs(expected[inside].numpy() - spline[inside]).max() < 1e-9
    at_samples = fitted.predict([torch.arange(0, 121, 2) / 121])
    torch.testing.assert_close(at_samples[8:-8], values[::2][8:-8], rtol=0, atol=2e-4)


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
    ("name", "step"),
    [*((name, 2) for name in SIGNALS), *((name, 3) for name in ("smooth", "voiced", "random walk", "noise"))],
)
def test_the_mixture_is_as_good_as_the_best_interpolation(name: str, step: int) -> None:
    signal = torch.from_numpy(SIGNALS[name])[:, None].float()
    trained = (torch.arange(0, 6000, step, dtype=torch.float64) / 6000,)
    axis = torch.arange(6000, dtype=torch.float64) / 6000
    held_out = torch.arange(6000) % step != 0
    held_out[:30] = held_out[-30:] = False  # the ends, where the spline has another condition

    def decibels(prediction: Tensor) -> float:
        error = (prediction - signal)[held_out].square().mean() / signal.var()
        return min(60.0, float(-10 * error.log10()))  # more is a matter of the filter that is cut off

    batch = GridBatch(trained, signal[None, ::step])
    best = max(decibels(interpolate(method, batch, [axis])[0]) for method in ("nearest", "linear", "bicubic", "spline"))
    assert decibels(line(signal, 6000, step).predict([axis])) > best - 0.05


def test_values_are_differentiable_and_samples_of_long_signals_are_met() -> None:
    smooth = torch.sin(torch.arange(400, dtype=torch.float64) / 9)[:, None]
    points = torch.tensor([[0.203], [0.517]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(line(smooth, 400).at(points).sum(), points)
    torch.testing.assert_close(slope[:, 0], (torch.cos(points * 400 / 9) * 400 / 9)[:, 0].detach(), rtol=1e-2, atol=0)
    count = 3_000_001  # float32 coordinates are off by a quarter of a sample
    ramp = (torch.arange(count) % 2).float()[:, None]
    fitted = AdaptiveLine(ramp, count, 0.0, 1.0, 0.0)
    places = torch.arange(2_900_000, 2_900_100)
    torch.testing.assert_close(fitted.predict([places / count]), ramp[places], rtol=0, atol=1e-4)


@pytest.mark.parametrize("values", [torch.zeros(2, 1), torch.ones(9, 3), torch.rand(3, 1)], ids=["two", "constant", "three"])
def test_short_and_constant_signals_stay_finite(values: Tensor) -> None:
    fitted = AdaptiveLine(values, 2 * len(values), 0.0, 2.0, 0.0)
    predicted = fitted.predict([torch.arange(2 * len(values)) / (2 * len(values))])
    assert predicted.isfinite().all()
    torch.testing.assert_close(predicted[::2], values, rtol=0, atol=1e-3)
    assert fitted.mixture.sum() == pytest.approx(1)

"""Closed forms of distance preservation and stable rank, against sums and singular values of the features."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pe_lightning.encoders import RandomFourier, create
from pe_lightning.encoders.fourier import Fourier

DELTA = torch.linspace(-0.12, 0.12, 25, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "arguments", "deltas"),
    [
        ("gau", {"sigma": 0.02}, DELTA),
        ("tri", {"half_width": 0.05}, DELTA),
        ("laplace", {"scale": 0.015}, DELTA),
        ("rect", {"sigma": 0.1}, DELTA),
        ("sine", {"frequency": 1.0}, 4 * DELTA),
        ("square", {"frequency": 1.0}, 4 * DELTA),
        ("square", {"frequency": 3.0}, 4 * DELTA),
    ],
)
def test_distance_is_the_integral_over_the_shifts(name: str, arguments: dict[str, Any], deltas: Tensor) -> None:
    encoder = create(name, num_features=4000, **arguments)
    x = torch.tensor(0.50003, dtype=torch.float64)  # between two shifts, so that no jump falls on one
    integral = encoder(x + deltas) @ encoder(x) / 4000
    # jumps of rect and square are known to one shift: 1/4000 each
    tolerance = {"rect": 1e-3, "square": 8e-3}.get(name, 1e-6)
    torch.testing.assert_close(encoder.distance(deltas), integral, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["linf", "logf", "rff", "basic"])
def test_fourier_distances_are_sums_of_cosines(name: str) -> None:
    encoder = create(name, **({} if name == "basic" else {"num_features": 64}))
    x = torch.tensor(0.31, dtype=torch.float64)
    products = encoder(x + DELTA) @ encoder(x) / (encoder.num_features / 2)
    torch.testing.assert_close(Fourier.distance(encoder, DELTA), products)


@pytest.mark.parametrize("num_axes", [1, 2])
def test_random_fourier_distance_is_the_mean_over_draws(num_axes: int) -> None:
    encoder = RandomFourier(200_000, sigma=2.0, num_axes=num_axes)
    delta = DELTA if num_axes == 1 else torch.stack([DELTA, DELTA.flip(0) / 2], -1)
    torch.testing.assert_close(encoder.distance(delta), Fourier.distance(encoder, delta), rtol=0, atol=0.01)
    assert encoder.distance(delta).shape == DELTA.shape


@pytest.mark.parametrize(
    ("name", "arguments", "tolerance"),
    [
        ("gau", {"sigma": 0.01}, 0.03),
        ("tri", {"half_width": 0.02}, 0.03),
        ("rect", {"sigma": 0.02}, 0.03),
        ("laplace", {"scale": 0.01}, 0.03),
        ("sine", {"frequency": 2.0}, 1e-6),
        ("square", {"frequency": 2.0}, 0.01),
        ("impulse", {}, 1e-6),
    ],
)
def test_stable_rank_is_that_of_the_singular_values(name: str, arguments: dict[str, Any], tolerance: float) -> None:
    size = 400
    encoder = create(name, num_features=size, **arguments)
    values = torch.linalg.svdvals(encoder(torch.arange(size, dtype=torch.float64) / size))
    measured = (values.square().sum() / values[0].square()).item()
    assert encoder.stable_rank(size) == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize("name", ["gau", "tri", "rect", "laplace", "rff", "impulse", "sine", "square"])
def test_stable_rank_is_at_most_the_number_of_samples_and_of_features(name: str) -> None:
    encoder = create(name, num_features=50)
    assert encoder.stable_rank(1) == 1
    assert 1 <= encoder.stable_rank(10) <= 10
    assert encoder.stable_rank(10**6) <= 50
    with pytest.raises(NotImplementedError, match="Keys has no closed form of the stable rank"):
        create("keys").stable_rank(10)

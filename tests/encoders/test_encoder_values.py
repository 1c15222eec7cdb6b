"""Features against NumPy formulas written from the papers, and what follows from them exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pe_lightning.encoders import Noise, RandomFourier, Samples, create, for_data
from pe_lightning.encoders.fourier import Fourier
from pe_lightning.errors import InputError

Array = NDArray[np.float64]


def waves(x: Array, frequencies: Array) -> Array:
    angles = 2 * np.pi * x[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], 1)


def keys_kernel(s: Array) -> Array:
    near = 1.5 * s**3 - 2.5 * s**2 + 1
    far = -0.5 * s**3 + 2.5 * s**2 - 4 * s + 2
    return np.where(s < 1, near, np.where(s < 2, far, 0.0))


def spline_kernel(s: Array) -> Array:
    # as the fourth difference of truncated powers: not the pieces that the code uses
    return sum(c * np.maximum(2 - j - s, 0) ** 3 for j, c in enumerate([1, -4, 6, -4])) / 6  # type: ignore[return-value]


SHIFTED: dict[str, tuple[dict[str, Any], Callable[[Array], Array]]] = {
    "gau": ({"sigma": 0.1}, lambda d: np.exp(-(d**2) / 0.02)),
    "tri": ({"half_width": 0.3}, lambda d: np.maximum(1 - np.abs(d) / 0.3, 0)),
    "laplace": ({"scale": 0.2}, lambda d: np.exp(-np.abs(d) / 0.2)),
    "rect": ({"sigma": 0.23}, lambda d: ((d >= -0.115) & (d < 0.115)).astype(float)),
    "impulse": ({}, lambda d: (np.abs(d) == np.abs(d).min(1, keepdims=True)).astype(float)),
    "keys": ({}, lambda d: keys_kernel(12 * np.abs(d))),
    "bspline": ({}, lambda d: spline_kernel(12 * np.abs(d))),
    "sine": ({"frequency": 2.3, "offset": 0.7}, lambda d: np.sin(-4.6 * np.pi * d) + 0.7),
    "square": ({"frequency": 2.3}, lambda d: np.sign(np.sin(-4.6 * np.pi * d))),
}
"""Arguments, and the feature of 12 shifts by its offset from the shift."""
CASES: list[tuple[str, dict[str, Any], Callable[[Array], Array]]] = [
    ("linf", {}, lambda x: waves(x, np.linspace(1, 2**6, 128))),
    ("linf", {"num_features": 10, "sigma": 3.5}, lambda x: waves(x, np.linspace(1, 2**3.5, 5))),
    ("linf", {"num_features": 4}, lambda x: waves(x, np.array([1.0, 2.0]))),
    ("logf", {}, lambda x: waves(x, 2 ** np.linspace(0, 6.5, 128))),
    ("logf", {"num_features": 10, "sigma": 4.0}, lambda x: waves(x, np.array([1.0, 2.0, 4.0, 8.0, 16.0]))),
    ("basic", {}, lambda x: waves(x, np.array([1.0]))),
    ("identity", {}, lambda x: 2 * x[:, None] - 1),
    ("gau", {}, lambda x: np.exp(-((x[:, None] - np.arange(256) / 256) ** 2) / (2 * 0.0025**2))),
]
for name, (arguments, kernel) in SHIFTED.items():
    given = {"num_features": 12, "padding": 2, **arguments}
    CASES.append((name, given, lambda x, kernel=kernel: kernel(x[:, None] - np.arange(-2, 14) / 12)))  # type: ignore[misc]


@pytest.mark.parametrize(("name", "arguments", "formula"), CASES, ids=lambda c: "" if callable(c) else str(c))
def test_values_are_those_of_the_formula(name: str, arguments: dict[str, Any], formula: Callable[[Array], Array]) -> None:
    x = np.concatenate([np.random.default_rng(0).uniform(0, 1, 400), [0.3, 0.999, -0.07, 1.06]])
    encoder = create(name, **arguments)
    np.testing.assert_allclose(encoder(torch.from_numpy(x)).numpy(), formula(x), rtol=1e-11, atol=1e-11)
    single = encoder(torch.from_numpy(x).float())
    jumps = (single - torch.from_numpy(formula(x))).abs().amax(1) > 0.5  # a coordinate rounded across a jump
    np.testing.assert_allclose(single[~jumps], formula(x)[~jumps.numpy()], rtol=1e-4, atol=2e-4)
    assert jumps.float().mean() < 0.01


@pytest.mark.parametrize("name", [name for name in SHIFTED if name not in ("sine", "square")])
def test_features_of_circular_shifts_continue_at_the_other_end(name: str) -> None:
    """The features at x are those at x + 1, and the offset to a shift is the shortest one around the circle."""
    arguments, kernel = SHIFTED[name]
    x = torch.rand(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 0.999
    encoder = create(name, num_features=12, padding="wrap", **arguments)
    offsets = x.numpy()[:, None] - np.arange(12) / 12
    np.testing.assert_allclose(encoder(x), kernel(offsets - np.round(offsets)), atol=1e-12)
    np.testing.assert_allclose(encoder(x + 1), encoder(x), atol=1e-9)
    assert for_data(encoder, Samples((7.0,))).support is None
    with pytest.raises(InputError, match="needs a spacing of 1/12"):
        create(name, num_features=12, padding="wrap", spacing=0.05, **arguments)


# -- random encoders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_random_fourier_features_of_several_axes(num_axes: int) -> None:
    encoder = RandomFourier(40, sigma=3.0, seed=4, num_axes=num_axes)
    frequencies = encoder.frequencies.double().numpy()
    assert frequencies.shape == (20, num_axes)
    points = np.random.default_rng(1).uniform(size=(5, 7, num_axes))
    angles = 2 * np.pi * points @ frequencies.T
    x = torch.from_numpy(points if num_axes > 1 else points[..., 0])
    np.testing.assert_allclose(encoder(x).numpy(), np.concatenate([np.cos(angles), np.sin(angles)], -1), atol=1e-12)
    if num_axes > 1:
        with pytest.raises(InputError, match=r"points of . axes have the shape \(\*batch, .\)"):
            encoder(torch.rand(5, num_axes + 1))


def test_noise_is_a_table_of_positions_and_frequencies_are_normal() -> None:
    encoder = Noise(6, seed=3, num_positions=10)
    positions = torch.tensor([0.0, 0.05, 0.1, 0.95, 1.0, 1.5, -0.5])
    torch.testing.assert_close(encoder(positions), encoder.table[[0, 0, 1, 9, 9, 9, 0]])
    table = Noise().table
    assert table.shape == (4096, 256)
    assert table.mean().item() == pytest.approx(0, abs=0.01)
    assert table.std().item() == pytest.approx(1, abs=0.01)
    frequencies = RandomFourier(20000, sigma=5.0).frequencies
    assert frequencies.std().item() == pytest.approx(5.0, rel=0.03)
    assert RandomFourier(60).sigma == 10.0


# -- borders of cells, where samples usually are ----------------------------------------------------------------------

SIZES = [1, 3, 7, 49, 103, 256]
COORDINATES: dict[str, Callable[[int, torch.dtype], Tensor]] = {
    "linspace": lambda n, dtype: torch.linspace(0, 1, n + 1, dtype=dtype)[:-1],
    "quotients": lambda n, dtype: torch.arange(n, dtype=dtype) / n,
    "numpy": lambda n, dtype: torch.from_numpy(np.linspace(0, 1, n + 1)[:-1]).to(dtype),
}
coordinates = pytest.mark.parametrize("grid", COORDINATES.values(), ids=COORDINATES)
precision = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def nearest_shifts(num_samples: int, num_shifts: int) -> Array:
    """floor(K n/N + 1/2), in integers."""
    return (2 * np.arange(num_samples) * num_shifts + num_samples) // (2 * num_samples)


@coordinates
@precision
@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(2), Fraction(3), Fraction(4), Fraction(1, 2), Fraction(3, 2)])
def test_every_sample_is_in_exactly_one_cell(
    grid: Callable[[int, torch.dtype], Tensor], dtype: torch.dtype, ratio: Fraction
) -> None:
    for num_shifts in SIZES:
        num_samples = math.ceil(num_shifts * ratio)
        x = grid(num_samples, dtype)
        expected = nearest_shifts(num_samples, num_shifts)
        inside = expected < num_shifts  # the last half cell has no box
        for arguments in ({}, {"sigma": 1 / num_shifts}):
            boxes = create("rect", num_features=num_shifts, **arguments)(x).numpy()
            np.testing.assert_array_equal(boxes.sum(1), inside)
            np.testing.assert_array_equal(boxes[inside].argmax(1), expected[inside])
        padded = create("rect", num_features=num_shifts, padding=1)(x).numpy()
        np.testing.assert_array_equal(padded, np.eye(num_shifts + 2)[expected + 1])
        impulse = create("impulse", num_features=num_shifts)(x).numpy()
        np.testing.assert_array_equal(impulse, np.eye(num_shifts)[np.minimum(expected, num_shifts - 1)])


@coordinates
@precision
@pytest.mark.parametrize("frequency", [1, 2, 5])
def test_square_waves_are_exact_at_their_jumps(
    grid: Callable[[int, torch.dtype], Tensor], dtype: torch.dtype, frequency: int
) -> None:
    for num_shifts in SIZES:
        num_samples = 2 * num_shifts
        n, i = np.arange(num_samples)[:, None], np.arange(num_shifts)
        period = num_shifts * num_samples
        phase = frequency * (i * num_samples - n * num_shifts) % period
        expected = np.where(phase % period == 0, 0, np.sign(period - 2 * phase))
        features = create("square", num_features=num_shifts, frequency=float(frequency))(grid(num_samples, dtype))
        np.testing.assert_array_equal(features.numpy(), expected)


# -- closed forms of distance preservation and stable rank -------------------------------------------------------------

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
    for delta in (DELTA, torch.stack([DELTA, DELTA.flip(0) / 2], -1)):  # of random frequencies, the mean over the draws
        drawn = RandomFourier(200_000, sigma=2.0, num_axes=delta.ndim)
        torch.testing.assert_close(drawn.distance(delta), Fourier.distance(drawn, delta), rtol=0, atol=0.01)


@pytest.mark.parametrize(
    ("name", "arguments", "tolerance"),
    [
        ("gau", {"sigma": 0.01}, 0.03),
        ("tri", {"half_width": 0.02}, 0.03),
        ("rect", {"sigma": 0.02}, 0.03),
        ("laplace", {"scale": 0.01}, 0.03),
        ("sine", {"frequency": 2.0}, 1e-6),
        ("sine", {"frequency": 1.0, "offset": 0.7}, 1e-6),
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
    few = create(name, num_features=50)
    assert 1 == few.stable_rank(1) <= few.stable_rank(10) <= 10
    assert few.stable_rank(10**6) <= 50
    with pytest.raises(NotImplementedError, match="Keys has no closed form of the stable rank"):
        create("keys").stable_rank(10)


def test_the_similarity_of_learnable_fourier_features_sums_all_groups():
    encoder = create("lff", num_features=32, groups=2, num_axes=4, seed=3)
    x, y = torch.rand(2, 5, 4)
    torch.testing.assert_close(encoder.distance(x - y), (encoder(x) * encoder(y)).sum(-1))


def test_a_copy_has_new_parameters_where_the_others_are():
    learned = create("logf", num_features=8, trainable=True).double()
    assert [p.dtype for p in learned.copy(per_feature=True).parameters()] == [torch.float64] * 2
    assert not hasattr(create("impulse"), "sigma")


@pytest.mark.parametrize(("name", "activation"), [("siren", "sine"), ("WIRE", "gabor")])
def test_names_of_networks_are_answered_by_what_to_type(name, activation):
    with pytest.raises(InputError, match=rf"is a network and no encoder: --config image/{name.lower()}.*{activation!r}"):
        create(name)

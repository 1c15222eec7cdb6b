"""The adaptive fit against a NumPy version in the fewest lines, and what a user can rely on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from pe_lightning import baselines
from pe_lightning.data.batches import GridBatch
from pe_lightning.encodings.bank import Bank
from pe_lightning.errors import InputError
from pe_lightning.solvers import adaptive
from pe_lightning.solvers.adaptive import AdaptiveGrid, ordinary_kriging


def picture(*grid: int, channels: int = 2, seed: int = 0) -> Tensor:
    """Noise, in which every member errs differently."""
    return torch.rand(*grid, channels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(values: Tensor, step: tuple[float, ...], first: tuple[float, ...] | None = None, **options) -> AdaptiveGrid:
    axes = values.ndim - 1
    grid = [round(n * s) for n, s in zip(values.shape, step, strict=False)]
    bank = Bank(options.pop("encoder", "laplace"), axes, options.pop("angles", 3), options.pop("aspects", (2.0, 6.0)))
    return AdaptiveGrid(bank, values, grid, first or (0,) * axes, step, options.pop("window", 0.8), options.pop("ridge", 1e-3))


def independent(values: np.ndarray, step: np.ndarray, point: np.ndarray, angles: int, aspects: tuple[float, ...]) -> np.ndarray:
    """The value at a point (in trained samples): kriging, held-out errors and mixture, one sample at a time."""
    length = 1.5 * np.sqrt(step.prod())  # laplace's own rule, 1.5/K, with K samples
    stretches = [np.eye(2)]
    for rho, k in itertools.product(aspects, range(angles)):
        c, s = np.cos(np.pi * k / angles), np.sin(np.pi * k / angles)
        stretches.append(np.diag([rho**-0.5, rho**0.5]) @ np.array([[c, s], [-s, c]]))

    def matern(delta: np.ndarray, stretch: np.ndarray) -> np.ndarray:
        u = np.linalg.norm(delta * step @ stretch.T, axis=-1) / length
        return (1 + u) * np.exp(-u)

    def sample(i: np.ndarray) -> np.ndarray:
        return values[tuple(np.clip(i, 0, np.array(values.shape[:2]) - 1))]

    def predict(stretch: np.ndarray, taps: np.ndarray, at: np.ndarray, origin: np.ndarray, spread: int = 1) -> np.ndarray:
        n = len(taps)
        system = np.ones((n + 1, n + 1))
        system[:n, :n] = matern(taps[:, None] - taps, stretch) + 1e-3 * np.eye(n)
        system[n, n] = 0
        weights = np.linalg.solve(system, np.append(matern(at - taps, stretch), 1))[:n]
        return sum(w * sample(origin + spread * t) for w, t in zip(weights, taps, strict=True))

    cell = np.array(list(itertools.product(range(-1, 3), repeat=2)))
    around = np.array([t for t in itertools.product(range(-2, 3), repeat=2) if t != (0, 0)])
    kinds = [np.array(kind) for kind in ((0, 1), (1, 0), (1, 1))]

    def error(stretch: np.ndarray, i: np.ndarray) -> float:
        alone = ((predict(stretch, around, np.zeros(2), i) - sample(i)) ** 2).mean()
        twice = [((predict(stretch, cell, kind / 2, i - kind, 2) - sample(i)) ** 2).mean() for kind in kinds]
        return alone + np.mean(twice)

    rows, columns = values.shape[:2]
    places = np.array(list(itertools.product(range(rows), range(columns))))
    errors = np.array([[error(stretch, i) for i in places] for stretch in stretches])
    left = np.floor(point)
    mixture = np.zeros(len(stretches))
    for corner in itertools.product((0, 1), repeat=2):
        i = np.clip(left + corner, 0, [rows - 1, columns - 1])
        near = np.abs(places - i).max(1) <= 3
        bell = np.exp(-0.5 * ((places - i) ** 2).sum(1) / 0.8**2) * near
        member = ((errors * bell).sum(1) / bell.sum() + 3e-6) ** -5.0
        mixture += np.abs(1 - np.array(corner) - (point - left)).prod() * member / member.sum()
    return sum(m * predict(t, cell, point - left, left.astype(int)) for m, t in zip(mixture, stretches, strict=True))


@pytest.mark.parametrize("step", [(2.0, 2.0), (4.0, 3.0)])
def test_the_values_are_those_of_an_independent_version(step):
    values = picture(9, 8)
    field = make(values, step)
    for point in ([4.5, 3.5], [0.25, 6.9], [8.5, 7.5], [3.0, 2.5]):
        expected = independent(values.numpy(), np.array(step), np.array(point), 3, (2.0, 6.0))
        coords = torch.tensor([point], dtype=torch.float64) / torch.tensor(values.shape[:2])
        assert field.at(coords)[0].numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("sizes", "step", "first", "shape"),
    [
        ((30,), (3.0,), (1.0,), (90,)),
        ((9, 8), (2.0, 2.0), None, (18, 16)),
        ((9, 8), (3.0, 2.0), (1.0, 0.0), (27, 16)),
        ((9, 8), (2.0, 2.0), None, (37, 23)),
        ((5, 6, 4), (2.0, 2.0, 2.0), None, (10, 12, 8)),
    ],
)
def test_a_grid_is_predicted_as_its_points_are_also_in_tiles(sizes, step, first, shape, monkeypatch):
    values = picture(*sizes)
    field = make(values, step, first)
    axes = [torch.arange(n, dtype=torch.float64) / n for n in shape]
    points = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    whole = field.predict(axes)
    torch.testing.assert_close(whole, field.at(points).reshape(*shape, 2), rtol=0, atol=1e-9)
    monkeypatch.setattr(adaptive, "LIMIT", 2000)
    torch.testing.assert_close(make(values, step, first).predict(axes), whole, rtol=0, atol=1e-9)


def test_samples_are_reproduced_to_the_ridge_and_a_constant_exactly():
    values = picture(12, 12)
    axes = [torch.arange(12, dtype=torch.float64) / 12] * 2
    assert (make(values, (2.0, 2.0)).predict(axes) - values).abs().mean() < 0.03
    assert (make(values, (2.0, 2.0), ridge=1e-9).predict(axes) - values).abs().max() < 1e-5
    everywhere = [torch.arange(24, dtype=torch.float64) / 24] * 2
    constant = make(torch.full_like(values, 0.3), (2.0, 2.0)).predict(everywhere)
    torch.testing.assert_close(constant, torch.full_like(constant, 0.3))


def test_the_gradient_in_the_coordinates():
    field = make(picture(8, 8, channels=1), (2.0, 2.0))
    points = torch.tensor([[0.33, 0.41], [0.01, 0.97], [0.61, 0.2]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(field.at, points)
    at_sample = torch.tensor([[0.25, 0.5]], requires_grad=True)
    field.at(at_sample).sum().backward()
    assert at_sample.grad is not None and at_sample.grad.isfinite().all()


@pytest.mark.parametrize("angle", [0.3, 1.2, 2.0, 2.8])
def test_an_oblique_pattern_is_followed_where_bicubic_shows_steps(angle):
    y, x = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    truth = torch.tanh(4 * torch.sin(0.45 * (np.cos(angle) * x + np.sin(angle) * y)))[..., None] / 2 + 0.5
    known, axes = truth[::2, ::2].contiguous(), [torch.arange(64) / 64] * 2

    def decibels(prediction: Tensor) -> float:
        return float(-10 * ((prediction - truth)[6:-6, 6:-6] ** 2).mean().log10())

    bicubic = baselines.interpolate("bicubic", GridBatch((axes[0][::2], axes[1][::2]), known[None]), axes)[0]
    adapted = decibels(make(known, (2.0, 2.0), angles=12).predict(axes))
    assert adapted > decibels(bicubic) + 3
    assert adapted > decibels(make(known, (2.0, 2.0), angles=0).predict(axes)) + 3


@pytest.mark.parametrize("encoder", ["laplace", "gau", "tri", "rect", "bspline"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_every_encoder_with_a_similarity_gives_finite_weights_that_sum_to_one(encoder, axes):
    field = make(picture(*[6] * axes), (2.0,) * axes, encoder=encoder)
    weights = field.weights(torch.rand(5, axes, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert weights.isfinite().all() and weights.abs().max() < 3
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_a_similarity_matrix_without_full_rank():
    same = torch.ones(1, 4, 4, dtype=torch.float64)
    slope, mean = ordinary_kriging(same, 1e-6)
    torch.testing.assert_close(same[0, :1] @ slope[0] + mean, torch.full_like(mean, 0.25))


def test_encoders_without_a_similarity_and_too_many_axes_are_refused():
    with pytest.raises(InputError, match=r"closed form.*laplace"):
        Bank("identity", 2, 12, (2.0,))
    with pytest.raises(InputError, match="1 to 3 axes"):
        Bank("laplace", 4, 12, (2.0,))

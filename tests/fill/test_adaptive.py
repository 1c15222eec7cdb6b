"""The adaptive fit against a NumPy version in the fewest lines, and what a user can rely on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from pe_fill.adaptive import grid as adaptive
from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.grid import AdaptiveGrid, ordinary_kriging
from pe_fill.adaptive.points import AdaptivePoints
from pe_lightning.evaluation import baselines
from pe_lightning.signals.batches import GridBatch


def picture(*grid: int, channels: int = 2, seed: int = 0) -> Tensor:
    """Noise, in which every member errs differently."""
    return torch.rand(*grid, channels, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(values: Tensor, step: tuple[float, ...], first: tuple[float, ...] | None = None, **options) -> AdaptiveGrid:
    axes = values.ndim - 1
    grid = [round(n * s) for n, s in zip(values.shape, step, strict=False)]
    bank = AnisotropicKernels(
        options.pop("encoder", "laplace"), axes, options.pop("angles", 3), options.pop("aspects", (2.0, 6.0))
    )
    return AdaptiveGrid(
        bank, values, grid, first or (0,) * axes, step, options.pop("window", 0.8), options.pop("ridge", 1e-3)
    )


def matern(delta: np.ndarray, stretch: np.ndarray, length: float) -> np.ndarray:
    """Laplace's D."""
    u = np.linalg.norm(delta @ stretch.T, axis=-1) / length
    return (1 + u) * np.exp(-u)


def kriging(taps: np.ndarray, at: np.ndarray, stretch: np.ndarray, length: float, ridge: float) -> np.ndarray:
    """Weights of samples at ``taps`` for a value at a point, by the system with a Lagrange multiplier."""
    n = len(taps)
    system = np.ones((n + 1, n + 1))
    system[:n, :n] = matern(taps[:, None] - taps, stretch, length) + ridge * np.eye(n)
    system[n, n] = 0
    return np.linalg.solve(system, np.append(matern(at - taps, stretch, length), 1))[:n]


def stretches(angles: int, aspects: tuple[float, ...]) -> list[np.ndarray]:
    """The bank in 2-D: as it is, and longer along each direction than across it."""
    found = [np.eye(2)]
    for rho, k in itertools.product(aspects, range(angles)):
        c, s = np.cos(np.pi * k / angles), np.sin(np.pi * k / angles)
        found.append(np.diag([rho**-0.5, rho**0.5]) @ np.array([[c, s], [-s, c]]))
    return found


def independent(values: np.ndarray, step: np.ndarray, point: np.ndarray, bank: list[np.ndarray]) -> np.ndarray:
    """The value at a point (in trained samples): kriging, held-out errors and mixture, one sample at a time."""
    length = 1.5 * np.sqrt(step.prod())  # laplace's own rule, 1.5/K, with K samples
    last = np.array(values.shape[:2]) - 1
    cell = np.array(list(itertools.product(range(-1, 3), repeat=2)))
    around = np.array([t for t in itertools.product(range(-2, 3), repeat=2) if t != (0, 0)])
    kinds = [np.array(kind) for kind in ((0, 1), (1, 0), (1, 1))]
    left = np.floor(point)

    def weights(taps: np.ndarray, at: np.ndarray) -> list[np.ndarray]:
        linear = np.clip(1 - np.abs(taps - at), 0, None).prod(1)
        if not linear.any():  # without the sample itself
            linear = (np.abs(taps).sum(1) == 1) / 4
        return [*(kriging(taps * step, at * step, stretch, length, 1e-3) for stretch in bank), linear]

    def predict(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
        return weights @ values[tuple(np.clip(places, 0, last).astype(int).T)]

    alone, twice, here = (
        weights(around, np.zeros(2)),
        [weights(cell, kind / 2) for kind in kinds],
        weights(cell, point - left),
    )

    def error(member: int, i: np.ndarray) -> float:
        truth = values[tuple(i)]
        spread = [predict(w[member], i - kind + 2 * cell) for w, kind in zip(twice, kinds, strict=True)]
        return ((predict(alone[member], i + around) - truth) ** 2).mean() + np.mean(
            [((p - truth) ** 2).mean() for p in spread]
        )

    places = np.array(list(itertools.product(*map(range, values.shape[:2]))))
    errors = np.array([[error(member, i) for i in places] for member in range(len(bank) + 1)])
    mixture = np.zeros(len(errors))
    for corner in itertools.product((0, 1), repeat=2):
        i = np.clip(left + corner, 0, last)
        bell = np.exp(-0.5 * ((places - i) ** 2).sum(1) / 0.8**2) * (np.abs(places - i).max(1) <= 3)
        member = ((errors * bell).sum(1) / bell.sum() + 3e-6) ** -5.0
        mixture += np.abs(1 - np.array(corner) - (point - left)).prod() * member / member.sum()
    return sum(m * predict(w, left + cell) for m, w in zip(mixture, here, strict=True))


@pytest.mark.parametrize("step", [(2.0, 2.0), (4.0, 3.0)])
def test_the_values_are_those_of_an_independent_version(step):
    values = picture(9, 8)
    field = make(values, step)
    for point in ([4.5, 3.5], [0.25, 6.9], [8.5, 7.5], [3.0, 2.5]):
        expected = independent(values.numpy(), np.array(step), np.array(point), stretches(3, (2.0, 6.0)))
        coords = torch.tensor([point], dtype=torch.float64) / torch.tensor(values.shape[:2])
        assert field.at(coords)[0].numpy() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("sizes", "step", "first", "shape"),
    [
        ((30,), (3.0,), (1.0,), (90,)),
        ((9, 8), (2.0, 2.0), None, (18, 16)),
        ((9, 8), (3.0, 2.0), (1.0, 0.0), (27, 16)),
        ((9, 8), (2.0, 2.0), None, (37, 23)),
        ((4, 4, 3), (2.0, 2.0, 2.0), None, (8, 8, 6)),
        ((4, 4, 3), (2.0, 2.0, 2.0), None, (7, 5, 9)),
    ],
)
def test_a_grid_is_predicted_as_its_points_are_also_in_tiles(sizes, step, first, shape, monkeypatch):
    values = picture(*sizes)
    field = make(values, step, first)
    axes = [torch.arange(n, dtype=torch.float64) / n for n in shape]
    points = torch.cartesian_prod(*axes).reshape(-1, len(axes))
    whole = field.predict(axes)
    torch.testing.assert_close(whole, field.at(points).reshape(*shape, 2), rtol=0, atol=1e-9)
    monkeypatch.setattr(adaptive, "MAX_NUMBERS", 20000)
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
    assert at_sample.grad is not None
    assert at_sample.grad.isfinite().all()


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


@pytest.mark.parametrize(("encoder", "axes"), [("laplace", 1), ("gau", 2), ("tri", 3), ("rect", 1), ("bspline", 2)])
def test_every_encoder_with_a_similarity_gives_finite_weights_that_sum_to_one(encoder, axes):
    field = make(picture(*[6] * axes), (2.0,) * axes, encoder=encoder)
    weights = field.weights(torch.rand(5, axes, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    assert weights.isfinite().all()
    assert weights.abs().max() < 3
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_a_similarity_matrix_without_full_rank():
    same = torch.ones(1, 4, 4, dtype=torch.float64)
    slope, mean = ordinary_kriging(same, 1e-6)
    torch.testing.assert_close(same[0, :1] @ slope[0] + mean, torch.full_like(mean, 0.25))


@pytest.fixture(scope="module")
def scattered():
    """Few samples of noise, the adaptive fit, and NumPy's leave-one-out errors and mixture, one sample at a time."""
    rng = np.random.default_rng(0)
    grid, places, values = (20, 12), rng.random((60, 2)) * [20, 12], rng.random((60, 2))
    bank = [(stretch, 0.06) for stretch in stretches(2, (3.0,))]
    field = AdaptivePoints(
        AnisotropicKernels("laplace", 2, 2, (3.0,)),
        torch.tensor(values),
        torch.tensor(places / grid),
        grid,
        0.5,
        0.06,
        keeps_samples=False,
    )
    cells = field.levels[0].cells

    def predict(at: np.ndarray, cell: int, member: tuple[np.ndarray, float], without: int = -1) -> np.ndarray:
        others, (stretch, ridge) = cells.near[cell][cells.near[cell] != without], member
        return kriging(places[others], at, stretch, 1.5 * cells.spacing[cell], ridge) @ values[others]

    errors = np.array([[values[i] - predict(places[i], cells.cell[i], t, i) for t in bank] for i in range(60)])

    def mixture(at: np.ndarray, cell: int, without: int = -1) -> np.ndarray:
        near = cells.near[cell][cells.near[cell] != without]
        bell = np.exp(-0.5 * ((places[near] - at) ** 2).sum(1) / (0.8 * cells.spacing[cell]) ** 2)
        weights = (bell @ (errors[near] ** 2).mean(-1) / bell.sum() + 3e-6) ** -5.0
        return weights / weights.sum()

    return field, places, values, bank, predict, errors, mixture


def test_scattered_samples_by_an_independent_version_of_leave_one_out(scattered):
    field, places, _, bank, predict, _, mixture = scattered
    for at in (np.array([7.3, 4.1]), np.array([19.9, 0.2])):
        near = ((places - at) ** 2).sum(1).argmin()
        cell = field.levels[0].cells.cell[near]
        expected = sum(m * predict(at, cell, t) for m, t in zip(mixture(at, cell), bank, strict=True))
        found = field.levels[0].at(torch.tensor(at)[None], torch.tensor(near)[None])[0]
        assert found.numpy() == pytest.approx(expected, abs=1e-9)
        point = torch.tensor(at / [20, 12])[None].requires_grad_()
        assert torch.autograd.gradcheck(field.at, point)


def test_standard_deviations_are_the_kriging_variance_times_local_held_out_errors(scattered):
    field, places, _, bank, _, errors, mixture = scattered
    level = field.levels[0]
    cells = level.cells

    def variance(at: np.ndarray, cell: int, member: tuple[np.ndarray, float], without: int = -1) -> float:
        """By the system with a Lagrange multiplier; of a sample, with the ridge."""
        taps, length = places[cells.near[cell][cells.near[cell] != without]], 1.5 * cells.spacing[cell]
        stretch, ridge = member
        weights = kriging(taps, at, stretch, length, ridge)
        among = matern(taps[:, None] - taps, stretch, length) + ridge * np.eye(len(taps))
        return 1 + ridge - 2 * weights @ matern(at - taps, stretch, length) + weights @ among @ weights

    def mixed(at: np.ndarray, cell: int, without: int = -1) -> float:
        return mixture(at, cell, without) @ [variance(at, cell, t, without) for t in bank]

    ratios = [(mixture(x, cells.cell[i], i) @ errors[i]) ** 2 / mixed(x, cells.cell[i], i) for i, x in enumerate(places)]
    at = np.array([7.3, 4.1])
    cell = cells.cell[((places - at) ** 2).sum(1).argmin()]
    near = cells.near[cell]
    bell = np.exp(-0.5 * ((places[near] - at) ** 2).sum(1) / (2 * cells.spacing[cell]) ** 2)
    local = bell @ np.array(ratios)[near] / bell.sum()
    scale = (local + 0.05 * level.everywhere().numpy()) / 1.05
    expected = np.sqrt(mixed(at, cell) * scale)
    nearest = torch.tensor([((places - at) ** 2).sum(1).argmin()])
    assert level.at(torch.tensor(at)[None], nearest, std=True)[0].numpy() == pytest.approx(expected, rel=1e-7)

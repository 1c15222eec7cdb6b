"""The local network: against an implementation of one value in a few lines, and what its function promises."""

from __future__ import annotations

import math

import pytest
import torch

from pe_fill.estimators.priors import prior_from
from pe_fill.networks.cells import orientations
from pe_fill.networks.frames import LocalFrames, spaced_axes
from pe_fill.networks.local import LocalGrid, LocalPrior
from pe_lightning.errors import InputError

GRID, FIRST, STEP = (18, 24), (1, 0), (2, 3)


@pytest.fixture(scope="module")
def prior() -> LocalPrior:
    torch.manual_seed(0)
    made = LocalPrior(width=8).requires_grad_(False)
    torch.nn.init.normal_(made.trunk.layers[-1].weight)
    return made


@pytest.fixture(scope="module")
def values() -> torch.Tensor:
    return torch.rand(9, 8, 2, generator=torch.Generator().manual_seed(1))


def gaussians(u: float) -> torch.Tensor:
    """Gaussians at -1/2, 0, ..., 3/2, of 0.8 of their distance."""
    return torch.exp(-((u - torch.arange(-0.5, 1.6, 0.5)) ** 2) / (2 * 0.4**2))


def keys(d: float) -> float:
    d = abs(d)
    return 1.5 * d**3 - 2.5 * d**2 + 1 if d <= 1 else -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2 if d < 2 else 0.0


def one_value(prior: LocalPrior, samples: torch.Tensor, y: float, x: float) -> float:
    """The formula of the module's docstring, for one channel ``(n_1, n_2)`` at a position in samples."""

    def sample(i: int, j: int) -> torch.Tensor:
        return samples[min(max(i, 0), samples.shape[0] - 1), min(max(j, 0), samples.shape[1] - 1)]

    top, left = math.floor(y), math.floor(x)
    base = sum(keys(y - i) * keys(x - j) * sample(i, j) for i in range(top - 1, top + 3) for j in range(left - 1, left + 3))
    total = 0.0
    for i in (top - 1, top, top + 1):
        for j in (left - 1, left, left + 1):
            u, v = y - i, x - j
            if max(abs(u - 0.5), abs(v - 0.5)) >= 1:
                continue
            patch = torch.stack([sample(a, b) for a in range(i - 2, i + 4) for b in range(j - 2, j + 4)]).reshape(6, 6)
            inner = patch[1:5, 1:5]
            scale, weight = inner.std(unbiased=False) + 0.02, math.cos(math.pi * (u - 0.5) / 2) ** 2
            weight *= math.cos(math.pi * (v - 0.5) / 2) ** 2
            if prior.negated and inner[1:3, 1:3].mean() < inner.mean():
                scale = -scale
            turned, (p, q) = (patch - inner.mean()) / scale, (u, v)
            inner = turned[1:5, 1:5]
            down, right = inner[2:].sum() - inner[:2].sum(), inner[:, 2:].sum() - inner[:, :2].sum()
            if down < 0:
                turned, p = turned.flip(0), 1 - p
            if right < 0:
                turned, q = turned.flip(1), 1 - q
            if abs(right) > abs(down):
                turned, (p, q) = turned.T, (q, p)
            c = prior.trunk(turned.reshape(1, 36)).reshape(5, 5)
            total += weight * float(scale * gaussians(p) @ c @ gaussians(q))
    return float(base) + (1 - math.cos(math.pi * y) ** 2 * math.cos(math.pi * x) ** 2) * total


@pytest.mark.parametrize("negated", [True, False])
def test_values_are_those_of_the_formula_at_any_stride_and_offset(prior, values, negated):
    state, prior = prior.state_dict(), prior_from({**prior.spec(), "negated": negated})
    prior.load_state_dict(state)
    field = LocalGrid(prior, values, GRID, FIRST, STEP)
    axes = [torch.tensor([0.0, 0.12, 0.5, 0.77, 0.99]), torch.tensor([0.02, 0.31, 0.5, 0.98])]
    expected = [
        [[one_value(prior, values[..., c], (y * 18 - 1) / 2, x * 24 / 3) for c in range(2)] for x in axes[1].tolist()]
        for y in axes[0].tolist()
    ]
    torch.testing.assert_close(field.predict(axes), torch.tensor(expected), rtol=1e-4, atol=1e-4)
    points = torch.cartesian_prod(*axes)
    torch.testing.assert_close(field.at(points), torch.tensor(expected).reshape(-1, 2), rtol=1e-4, atol=1e-4)


def test_samples_are_reproduced_and_tiles_change_nothing(prior, values, monkeypatch):
    field, axes = LocalGrid(prior, values, GRID, FIRST, STEP), [torch.arange(n) / n for n in GRID]
    whole = field.predict(axes)
    torch.testing.assert_close(whole[1::2, ::3], values, rtol=0, atol=1e-6)
    monkeypatch.setattr("pe_fill.networks.local.MAX_NUMBERS", 1)
    torch.testing.assert_close(field.predict(axes), whole)
    torch.testing.assert_close(field.at(torch.cartesian_prod(*axes)[:9]), whole.flatten(0, 1)[:9], rtol=1e-4, atol=1e-6)


def test_the_derivative_is_continuous_and_that_of_the_values(prior, values):
    field = LocalGrid(prior, values.double(), GRID, FIRST, STEP)
    points = torch.rand(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 0.9
    assert torch.autograd.gradcheck(field.at, points.requires_grad_(), eps=1e-5, atol=1e-4)
    # across the middles and the borders of cells, where the blended pair of cells changes
    across = ((torch.arange(2, 14, dtype=torch.float64) / 2) * 2 + 1)[:, None] / 18
    sides = [torch.cat([across + shift, torch.full_like(across, 0.37)], 1).requires_grad_() for shift in (-1e-7, 1e-7)]
    before, after = (torch.autograd.grad(field.at(side).sum(), side)[0] for side in sides)
    torch.testing.assert_close(before, after, rtol=1e-3, atol=1e-2)


def test_reflected_and_transposed_samples_have_reflected_and_transposed_values(prior, values):
    field = LocalGrid(prior, values, (9, 8), (0, 0), (1, 1))
    points = torch.rand(20, 2, generator=torch.Generator().manual_seed(3)) * 0.8
    turned = LocalGrid(prior, values.flip(0).transpose(0, 1), (8, 9), (0, 0), (1, 1))
    mirrored = torch.stack([points[:, 1], (8 - points[:, 0] * 9) / 9], 1)
    torch.testing.assert_close(turned.at(mirrored), field.at(points), rtol=1e-4, atol=1e-5)


def test_the_negative_of_samples_has_negative_values(prior, values):
    points = torch.rand(20, 2, generator=torch.Generator().manual_seed(3))
    field, negative = (LocalGrid(prior, some, (9, 8), (0, 0), (1, 1)) for some in (values, 1 - values))
    torch.testing.assert_close(negative.at(points), 1 - field.at(points), rtol=0, atol=1e-5)


def test_rounding_does_not_decide_the_orientation_of_a_patch():
    bits = (torch.rand(500, 6, 6, generator=torch.Generator().manual_seed(4)) > 0.5).float()  # many equal differences
    expected = orientations(bits)
    for level in torch.rand(20, generator=torch.Generator().manual_seed(5)):
        for found, same in zip(orientations(level * bits), expected, strict=True):
            assert torch.equal(found, same)


def test_flat_cells_are_bicubic_and_cells_without_training_too(values):
    untrained = LocalPrior("linf", width=4)
    bicubic = LocalGrid(untrained, values, GRID, FIRST, STEP)
    at = (0.4 * 18 - 1) / 2, 0.6 * 24 / 3
    expected = [one_value(LocalPrior(width=4).requires_grad_(False), values[..., c], *at) for c in range(2)]
    torch.testing.assert_close(bicubic.at(torch.tensor([[0.4, 0.6]]))[0], torch.tensor(expected))
    trained = LocalPrior(width=4)
    torch.nn.init.ones_(trained.trunk.layers[-1].bias)
    flat = 0.5 + 1e-3 * values
    difference = LocalGrid(trained, flat, GRID, FIRST, STEP).at(torch.rand(30, 2)) - 0.5
    assert difference.abs().max() < 2e-3


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("impulse", "not closed under reflection"),
        ({"name": "gau", "trainable": True}, "of one axis without parameters"),
        ("no_such", "unknown encoder"),
    ],
)
def test_encoders_that_cannot_be_used_are_refused(encoder, message):
    with pytest.raises(InputError, match=message):
        LocalPrior(encoder)


@pytest.mark.slow
def test_frames_are_those_of_the_grid_and_cubic_in_between(prior):
    clip = torch.rand(9, 5, 8, 2, generator=torch.Generator().manual_seed(4)).double()
    grid, first, step, spaced = (18, 5, 24), (1, 0, 0), (2, 1, 3), (0, 2)
    field = LocalFrames(prior, clip, grid, first, step, spaced)
    axes = [torch.arange(n, dtype=torch.float64) / n for n in grid]
    whole = field.predict(axes)
    each = [LocalGrid(prior, clip[:, t], GRID, FIRST, STEP).predict([axes[0], axes[2]]) for t in range(5)]
    torch.testing.assert_close(whole, torch.stack(each, 1), rtol=0, atol=1e-9)
    torch.testing.assert_close(whole[1::2, :, ::3], clip, rtol=0, atol=1e-6)
    between = field.predict([axes[0], torch.tensor([1.3 / 5], dtype=torch.float64), axes[2]])[:, 0]
    expected = sum(keys(1.3 - t) * each[t] for t in range(4))
    torch.testing.assert_close(between, expected, rtol=0, atol=1e-9)
    points = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) * 0.9
    for point in points:
        torch.testing.assert_close(
            field.at(point[None]), field.predict(list(point[:, None])).reshape(1, 2), rtol=0, atol=1e-5
        )
    assert torch.autograd.gradcheck(field.at, points.requires_grad_(), eps=1e-5, atol=1e-4)


def test_the_axes_that_a_prior_predicts_along():
    assert spaced_axes((8, 16), (16, 16)) == (0, 1)
    assert spaced_axes((5, 8, 8), (5, 16, 15)) == (1, 2)
    assert spaced_axes((3, 8, 8), (5, 16, 15)) is None
    assert spaced_axes((5, 16, 8), (5, 16, 15)) is None
    assert spaced_axes((5,), (9,)) is None

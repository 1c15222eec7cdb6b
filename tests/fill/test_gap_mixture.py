"""Mixtures that fill gaps: weights, imitated gaps, known samples, deviations, and what is far from known samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from skimage import data
from torch import Tensor

from pe_fill.members.fourier import smooth_continuation
from pe_fill.members.member import Gaps, Member
from pe_fill.members.table import MEMBERS, default_members
from pe_fill.mixture import copies as gap_copies
from pe_fill.mixture import mixture as gap_mixture
from pe_fill.mixture.copies import Hidden, imitated_gaps
from pe_fill.mixture.gaps import has_wide_gaps, mean_distance
from pe_fill.mixture.mixture import fill_gaps
from pe_fill.mixture.weights import least_variance

Array = NDArray[Any]


def holes(shape: tuple[int, ...], share: float, seed: int = 0) -> Tensor:
    """Known samples: all but random blocks of 2 samples per axis."""
    few = np.random.default_rng(seed).random([-(-n // 2) for n in shape]) < share
    missing = few
    for axis, n in enumerate(shape):
        missing = np.repeat(missing, 2, axis).take(range(n), axis)
    return torch.from_numpy(~missing)


def test_weights_are_those_of_least_variance_on_the_simplex() -> None:
    random = np.random.default_rng(0)
    factor = random.standard_normal((20, 3, 3))
    moments = factor @ factor.swapaxes(-1, -2) + 0.05 * np.eye(3)
    weights, variance = least_variance(moments)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert weights.min() >= 0
    steps = np.linspace(0, 1, 101)
    grid = np.array([(a, b, 1 - a - b) for a, b in itertools.product(steps, steps) if a + b <= 1 + 1e-9])
    least = np.einsum("gm,pmn,gn->pg", grid, moments, grid).min(1)
    assert (variance <= least * 1.01 + 1e-3).mean() > 0.9
    np.testing.assert_allclose(least_variance(np.diag([1.0, 4.0])[None])[0], [[0.8, 0.2]], atol=2e-3)


def test_a_member_that_is_exact_on_one_side_is_taken_there(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.rand(160, 80, 2, generator=random)
    left = torch.arange(160)[:, None, None] < 80
    noise = 0.3 * torch.randn(truth.shape, generator=random)
    monkeypatch.setitem(MEMBERS, "upper", Member(lambda _: truth + noise * ~left))
    monkeypatch.setitem(MEMBERS, "lower", Member(lambda _: truth + noise.flip(1) * left))
    known = holes((160, 80), 0.1)
    found = fill_gaps(truth, known, ["upper", "lower"], imitated_gaps(known))
    error = (found.values - truth).square().mean(-1)
    alone = float(noise[:80][~known[:80]].square().mean())
    assert float(error[:40][~known[:40]].mean()) < 0.08 * alone
    assert float(error[120:][~known[120:]].mean()) < 0.08 * alone
    assert found.errors["mixture"] < 0.6 * min(found.errors["upper"], found.errors["lower"])


@pytest.mark.parametrize("shape", [(240,), (48, 40), (12, 10, 8)])
def test_known_samples_are_unchanged_and_deviations_cover_the_errors(shape: tuple[int, ...]) -> None:
    grid = torch.stack(torch.meshgrid(*[torch.arange(n) for n in shape], indexing="ij"), -1).float()
    wave = torch.sin(grid.sum(-1) * 0.9) + torch.cos(grid[..., 0] * 0.5)
    noise = 0.2 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    truth = torch.stack([wave + noise, wave - noise], -1)
    known = holes(shape, 0.15)
    names = default_members(known)
    found = fill_gaps(truth.masked_fill(~known[..., None], torch.nan), known, names, imitated_gaps(known))
    assert torch.equal(found.values[known], truth[known])
    assert bool(found.values.isfinite().all())
    assert found.errors["mixture"] < 1.02 * min(found.errors[name] for name in names)
    error = (found.values - truth).abs()
    assert 0.8 < float((error < 1.645 * found.std)[~known].float().mean()) < 0.98
    assert bool((found.std[known] == 0).all())


def test_imitated_gaps_hide_known_samples_only(monkeypatch: pytest.MonkeyPatch) -> None:
    known = holes((60, 50), 0.2)
    for hidden in imitated_gaps(known):
        assert bool((known | ~hidden.mask).all())
        assert bool((hidden.mask | ~hidden.scored).all())
        assert int(hidden.scored.sum()) > 100
    many = torch.rand(60, 50, generator=torch.Generator().manual_seed(0)) < 0.25
    assert all(int(hidden.mask.sum()) < 0.2 * int(many.sum()) for hidden in imitated_gaps(many))
    first, second = imitated_gaps(known), imitated_gaps(known)
    assert all(a.mask.equal(b.mask) and a.scored.equal(b.scored) for a, b in zip(first, second, strict=True))
    monkeypatch.setattr(gap_copies, "MAX_SCORED", 50)
    few = imitated_gaps(known)
    assert all(20 < int(hidden.scored.sum()) < 100 < int(hidden.mask.sum()) for hidden in few)


def test_hidden_frames_are_predicted_in_all_parts() -> None:
    known = torch.ones(9, 96, 96, dtype=torch.bool)
    known[4] = False
    for hidden in imitated_gaps(known):
        parts = hidden.scored.any(0).view(6, 16, 6, 16).transpose(1, 2).flatten(2)
        assert float(parts.any(2).float().mean()) > 0.8
        assert int(hidden.scored.sum()) < 3000


@pytest.mark.parametrize(
    ("shape", "lost"),
    [((400,), slice(4, 22)), ((400,), slice(378, 396)), ((30, 24), slice(0, 2)), ((12, 10, 8), slice(11, 12))],
)
def test_gaps_near_an_end_are_imitated_as_near_to_the_end_of_a_smaller_grid(shape: tuple[int, ...], lost: slice) -> None:
    known = torch.ones(shape, dtype=torch.bool)
    known[lost] = False
    near = min(lost.start, shape[0] - lost.stop)
    copies = imitated_gaps(known)
    assert copies
    for some in copies:
        along, part = some.scored.flatten(1).any(1) if known.ndim > 1 else some.scored, some.part[0]
        places = along.nonzero()[:, 0]
        first, last = int(places[0]), int(places[-1])
        assert (first - part.start if lost.start == near else part.stop - 1 - last) in range(near, near + 2)
        outside = torch.ones(shape, dtype=torch.bool)
        outside[some.part] = False
        assert bool((some.mask | ~outside | ~known).all())  # baselines do not see what is cut off
    inside = torch.ones(shape, dtype=torch.bool)
    inside[shape[0] // 2 - 1 : shape[0] // 2 + 1] = False
    every = tuple(slice(0, n) for n in shape)
    assert all(some.part == every for some in imitated_gaps(inside))
    assert all(some.part == every for some in imitated_gaps(known, periodic=[True] * len(shape)))


@pytest.mark.parametrize(
    ("name", "step", "place"),
    [
        ("every second line", 2, lambda y, x: y % 2 == 1),
        ("two of three rows", 3, lambda y, x: y % 3 > 0),
        ("three of four columns", 2, lambda y, x: x % 4 > 0),
        ("checkerboard", 2, lambda y, x: (y + x) % 2 == 1),
    ],
)
def test_regular_patterns_are_imitated_at_a_larger_spacing(name: str, step: int, place: Callable[..., Array]) -> None:
    missing = place(*np.indices((72, 64)))
    copies = imitated_gaps(torch.from_numpy(~missing))
    assert copies, name
    for some in copies:
        assert (some.step, some.words) == (step, f"copies of the pattern at {step} times its spacing")
        seen = ~(torch.from_numpy(missing) | some.mask)[some.part].numpy()
        pattern = missing[: seen.shape[0], : seen.shape[1]]
        np.testing.assert_array_equal(seen, ~pattern)
        scored = some.scored[some.part].numpy()
        assert scored.any()
        assert not scored[~pattern].any()
        assert bool((torch.from_numpy(~missing) | ~some.scored).all())


def season_with_noise() -> Tensor:
    t = torch.arange(600, dtype=torch.float64)
    noise = 0.3 * torch.randn(600, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (5 * torch.sin(torch.pi * t / 6) + noise)[:, None]


@pytest.mark.parametrize(
    ("truth", "members"),
    [
        (torch.from_numpy(data.astronaut()[100:196, 160:256, 1:2] / 255), ["cubic", "kriging"]),
        (season_with_noise(), ["autoregressive", "fourier"]),  # errors that are noise do not fall with the spacing
    ],
    ids=["picture", "season"],
)
def test_what_is_stated_for_every_second_line_holds(truth: Tensor, members: list[str]) -> None:
    known = torch.zeros(truth.shape[:-1], dtype=torch.bool)
    known[::2] = True
    found = fill_gaps(truth, known, members, imitated_gaps(known))
    error = (found.values - truth)[~known]
    assert abs(20 * math.log10(found.errors["mixture"] / float(error.square().mean().sqrt()))) < 1.5
    assert 0.85 < float((error.abs() < 1.645 * found.std[~known]).double().mean()) < 0.95


def test_single_lost_frames_are_imitated_apart_from_others_and_from_the_ends() -> None:
    known = torch.ones(16, 6, 5, dtype=torch.bool)
    known[[3, 9, 12]] = False
    for some in imitated_gaps(known):
        frames = some.scored.flatten(1).any(1).nonzero()[:, 0].tolist()
        unseen = {3, 9, 12, *some.mask.flatten(1).all(1).nonzero()[:, 0].tolist()}
        assert all({n - 1, n + 1}.isdisjoint(unseen) and 0 < n < 15 for n in frames)


def test_frames_are_imitated_by_frames_in_a_short_clip() -> None:
    known = torch.ones(10, 6, 5, dtype=torch.bool)
    known[[3, 6]] = False
    copies = imitated_gaps(known)
    assert copies
    for some in copies:
        frames = some.scored.flatten(1).any(1).nonzero()[:, 0].tolist()
        assert {*frames} <= {1, 8}  # apart from the lost ones and the ends
        assert bool(some.mask[frames].all())


def test_errors_of_lost_slabs_follow_the_change_between_the_slabs_around(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.randn(2, 24, 10, 10, 1, generator=torch.Generator().manual_seed(0))
    size = torch.ones(24, 1, 1, 1)
    size[4:8] = size[15:] = 5.0
    truth, known = size * noise[0], torch.ones(24, 10, 10, dtype=torch.bool)
    known[[6, 11]] = False
    monkeypatch.setitem(MEMBERS, "member", Member(lambda _: truth + 0.1 * size * noise[1]))
    found = fill_gaps(truth, known, ["member"], imitated_gaps(known))
    std = [float(found.std[frame].mean()) for frame in (6, 11)]
    assert 0.35 < std[0] < 0.65
    assert 0.07 < std[1] < 0.13
    assert found.errors["mixture"] == pytest.approx(0.1 * 13**0.5, rel=0.3)


def test_the_mixture_passes_into_its_best_member_where_few_gaps_are_imitated(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, known, hidden = torch.zeros(70, 20, 1), torch.ones(70, 20, dtype=torch.bool), []
    noise = torch.randn(2, 70, 20, 1, generator=torch.Generator().manual_seed(0))
    luck = torch.full((70, 1, 1), 0.1)
    luck[50:] = 3.0
    known[40:45] = False
    for start in (5, 25, 60):
        mask = torch.zeros_like(known)
        mask[start : start + 5] = True
        hidden.append(Hidden(mask, mask))
    monkeypatch.setitem(MEMBERS, "steady", Member(lambda _: noise[0]))
    monkeypatch.setitem(MEMBERS, "lucky", Member(lambda _: luck * noise[1]))  # in two of three copies
    found = fill_gaps(truth, known, ["steady", "lucky"], hidden)
    assert found.errors["mixture"] < 1.01 * found.errors["steady"]
    assert found.weights["steady"] > 0.9


@pytest.mark.parametrize("start", [0, 4, 378])
def test_deviations_of_a_row_hold_near_its_ends(start: int) -> None:
    t = torch.arange(400, dtype=torch.float64)
    noise = 0.3 * torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row, known = (5 * torch.sin(torch.pi * t / 6) + noise)[:, None], torch.ones(400, dtype=torch.bool)
    known[start : start + 18] = False
    found = fill_gaps(row, known, default_members(known), imitated_gaps(known))
    error = (found.values - row)[~known]
    assert float(error.square().mean().sqrt()) < 0.65
    assert 0.15 < float(found.std[~known].mean()) < 0.8


def test_large_pictures_are_filled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, known = torch.rand(230, 220, 1, generator=torch.Generator().manual_seed(0)), holes((230, 220), 0.1)
    whole = fill_gaps(truth, known, ["kriging"], imitated_gaps(known))
    monkeypatch.setattr("pe_fill.mixture.gaps.MAX_PART", 96)
    monkeypatch.setattr(gap_copies, "MAX_WINDOW", 60**2)
    hidden = imitated_gaps(known)
    found = fill_gaps(truth, known, ["kriging"], hidden)
    # of samples as far away as each other others may be chosen
    torch.testing.assert_close(found.values, whole.values, rtol=0, atol=0.05)
    assert bool((found.std[~known] > 0).all())
    assert len(hidden) == 3
    for some in hidden:
        assert bool((known | ~some.mask).all())
        assert all(int(along[-1] - along[0]) < 60 for along in some.mask.nonzero().T.sort().values)


def test_far_from_known_samples_values_are_smooth() -> None:
    row = torch.linspace(0, 1, 100)
    values, known = row[:, None].expand(100, 100)[..., None].clone(), torch.ones(100, 100, dtype=torch.bool)
    known[14:86, 14:86] = False
    found = smooth_continuation(values, known)[..., 0]
    torch.testing.assert_close(found[known], values[..., 0][known])
    assert float(found.diff(dim=0).abs().max()) < 0.1
    texture = values + 0.2 * torch.rand(100, 100, 1, generator=torch.Generator().manual_seed(0))
    made = fill_gaps(texture, known, default_members(known), imitated_gaps(known))
    inner = made.values[32:68, 32:68, 0]
    assert float(inner.diff(dim=0).abs().max()) < 0.06  # no squares
    assert float(inner.diff(dim=1).abs().max()) < 0.03
    assert float((inner - values[32:68, 32:68, 0] - 0.1).abs().max()) < 0.15


def test_members_that_are_never_ahead_are_not_computed_in_the_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, calls = torch.rand(60, 60, 1, generator=torch.Generator().manual_seed(0)), list[Tensor]()

    def wrong(gaps: Gaps) -> Tensor:
        calls.append(gaps.wanted)
        return truth + 1

    monkeypatch.setitem(MEMBERS, "right", Member(lambda _: truth))
    monkeypatch.setitem(MEMBERS, "wrong", Member(wrong))
    known = holes((60, 60), 0.1)
    found = fill_gaps(truth, known, ["right", "wrong"], imitated_gaps(known))
    assert found.weights == {"right": 1.0, "wrong": 0.0}
    assert not any(bool((wanted & ~known).any()) for wanted in calls)


def test_a_member_is_left_out_that_only_helped_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, noise = torch.zeros(60, 60, 1), torch.randn(3, 60, 60, 1, generator=torch.Generator().manual_seed(0))
    errors = {"good": noise[0], "helped": 10**0.5 * noise[1], "helper": -2 * 10**0.5 * noise[1] + 3 * noise[2]}
    for name, error in errors.items():
        monkeypatch.setitem(MEMBERS, name, Member(lambda _, error=error: error))
    monkeypatch.setattr(gap_mixture, "LEAST_SHARE", 0.22)
    known = holes((60, 60), 0.1)
    found = fill_gaps(truth, known, list(errors), imitated_gaps(known))
    assert found.weights == {"good": 1.0, "helped": 0.0, "helper": 0.0}


def test_dropouts_of_a_sound_are_continued_across_their_whole_width() -> None:
    t = torch.arange(1000, dtype=torch.float64)
    truth = (torch.sin(0.21 * t) + torch.sin(0.83 * t + 1))[:, None]
    known = torch.ones(1000, dtype=torch.bool)
    for start in range(150, 900, 300):
        known[start : start + 59] = False
    found = fill_gaps(truth, known, ["autoregressive"], imitated_gaps(known))
    assert float((found.values - truth).abs().max()) < 0.1


def test_a_smooth_picture_is_that_of_cubic_kriging_and_an_edge_that_of_patches() -> None:
    y, x = torch.meshgrid(*[torch.arange(40) / 40] * 2, indexing="ij")
    known = torch.ones(40, 40, dtype=torch.bool)
    known[12:15] = known[:, 25:28] = False
    smooth = (torch.sin(3 * x * y) + (x - y).square())[..., None] / 2
    edge = (10 * (x + 0.6 * y - 0.8)).sigmoid().round()[..., None]
    for truth, best in ((smooth, "cubic"), (edge, "patches")):
        found = fill_gaps(truth, known, default_members(known), imitated_gaps(known))
        error = {
            name: float((MEMBERS[name](Gaps(truth * known[..., None], known, ~known)) - truth)[~known].square().mean())
            for name in default_members(known)
        }
        assert min(error, key=lambda name: error[name]) == best
        assert float((found.values - truth)[~known].square().mean()) < 1.3 * error[best]


@pytest.mark.parametrize("share", [0.1, 0.7])
@pytest.mark.parametrize("grid", [(120,), (24, 48), (320, 300), (12, 12, 18)])
def test_gaps_are_wide_if_samples_are_missing_in_cubes_and_not_if_they_are_random(
    grid: tuple[int, ...], share: float
) -> None:
    """One of the grids is larger than the one on which random samples are drawn."""
    coarse = np.random.default_rng(3).permutation(int(np.prod([n // 6 for n in grid]))) < share * np.prod(grid) / 6 ** len(
        grid
    )
    cubes = coarse.reshape([n // 6 for n in grid])
    for axis in range(len(grid)):
        cubes = cubes.repeat(6, axis)
    random = np.random.default_rng(4).permutation(cubes.flatten()).reshape(cubes.shape)
    for missing, wide in ((cubes, True), (random, False)):
        assert has_wide_gaps(mean_distance(missing), float(missing.mean()), missing.shape) == wide


def test_members_of_wide_gaps() -> None:
    y, x = torch.meshgrid(*[torch.arange(60) / 60] * 2, indexing="ij")
    slope, known = (2 * x - y)[..., None], torch.ones(60, 60, dtype=torch.bool)
    known[20:45, 15:50] = False
    assert {"biharmonic", "delaunay"} <= {*default_members(known)}
    for name in ("biharmonic", "delaunay"):
        torch.testing.assert_close(MEMBERS[name](Gaps(slope * known[..., None], known, ~known)), slope, rtol=0, atol=1e-5)
    known[20:45, 15:] = False  # to the end of the picture
    torch.testing.assert_close(
        MEMBERS["biharmonic"](Gaps(slope * known[..., None], known, ~known)), slope, rtol=0, atol=1e-5
    )
    bowl = ((x - 0.5).square() + (y - 0.5).square())[..., None].double()
    made = MEMBERS["biharmonic"](Gaps(bowl * known[..., None], known, ~known))
    torch.testing.assert_close(made, bowl.clamp_min(float(bowl[known].min())), rtol=0, atol=0.02)

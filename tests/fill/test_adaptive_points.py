"""The adaptive fit of scattered samples: gaps, seams, samples that coincide, cells."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from pe_fill.adaptive import point_level
from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_fill.kriging import neighbours, power
from pe_fill.kriging.matern import learn_matern
from pe_fill.kriging.neighbours import Neighbourhoods


def field(values: torch.Tensor, places: torch.Tensor, grid: tuple[int, ...], **options: object) -> AdaptivePoints:
    bank = AnisotropicKernels("laplace", len(grid), 2, (3.0,))
    return AdaptivePoints(bank, values, places / torch.tensor(grid), grid, 0.8, RIDGE, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "axes", "core", "near"), [(100, 2, 8, 32), (37, 3, 8, 48), (5, 1, 4, 12), (64, 2, 8, 9)])
def test_every_sample_belongs_to_one_cell_and_is_in_its_neighbourhood(count, axes, core, near):
    places = np.random.default_rng(0).random((count, axes)) ** 3
    cells = Neighbourhoods(places, core, near)
    assert cells.near.shape[1] == min(near, count)
    assert all(len(set(row)) == len(row) for row in cells.near)
    last = cells.near[:, -cells.core :]
    for sample in range(count):
        assert sample in last[cells.cell[sample]][cells.own[cells.cell[sample]]]
    assert cells.own.sum() == count


def test_a_gap_is_predicted_from_both_sides_within_its_standard_deviations():
    """A slope on both sides of a gap of ten samples."""
    y, x = torch.meshgrid(torch.arange(30.0), torch.arange(40.0), indexing="ij")
    truth = x / 40 + 0.02 * torch.sin(3 * y) * torch.cos(2 * x)
    known = (x < 15) | (x >= 25)
    places = torch.stack([y, x], -1)
    fit = field(truth[known][:, None], places[known], (30, 40))
    found = fit.at(places[~known] / torch.tensor([30, 40]))[:, 0]
    assert fit.gap_size() > 5
    assert (found - truth[~known]).square().mean().sqrt() < 0.045  # the nearest samples: 0.08
    errors, deviations = (found - truth[~known]).abs(), fit.std(places[~known] / torch.tensor([30, 40]))[:, 0]
    assert 0.7 < float((errors <= 1.645 * deviations).double().mean()) <= 1


@pytest.mark.parametrize("ridge", [2.0**-10, RIDGE])
def test_samples_that_coincide_or_lie_on_a_line_give_finite_values(ridge):
    random = torch.Generator().manual_seed(0)
    twice = torch.rand(20, 2, generator=random).repeat(2, 1)
    line = torch.linspace(0, 0.9, 40)[:, None].expand(-1, 2)
    same = torch.full((40, 2), 0.5)
    for coords in (twice, line, same):
        values = torch.rand(40, 1, generator=random)
        fit = AdaptivePoints(
            AnisotropicKernels("laplace", 2, 2, (3.0,)), values, coords, (10, 10), 0.8, ridge, keeps_samples=False
        )
        points = torch.rand(30, 2, generator=random)
        assert fit.at(points).isfinite().all()
        assert fit.std(points).isfinite().all()
        assert (fit.at(points) > -1).logical_and(fit.at(points) < 2).all()


def test_memory_is_bounded_and_values_are_the_same_in_small_blocks(monkeypatch):
    places = 30 * torch.rand(300, 2, generator=torch.Generator().manual_seed(0))
    values, points = torch.rand(300, 2, dtype=torch.float64), torch.rand(200, 2)
    whole = field(values, places, (30, 30)).at(points)
    monkeypatch.setattr(power, "MAX_NUMBERS", 1)
    monkeypatch.setattr(neighbours, "POINTS_PER_BLOCK", 3)
    monkeypatch.setattr(point_level, "MAX_NUMBERS", 1)
    fit = field(values, places, (30, 30))
    assert max(block.points.numel() for block in neighbours.blocks_of(torch.zeros(9, dtype=torch.int64), 4, 1)) <= 3
    torch.testing.assert_close(fit.at(points), whole, rtol=0.02, atol=0.02)


def test_calibration_takes_a_bounded_number_of_cells_next_to_each_other(monkeypatch):
    random = torch.Generator().manual_seed(0)
    places, points = 60 * torch.rand(3600, 2, generator=random), torch.rand(3, 2, generator=random)
    monkeypatch.setattr(point_level, "MEAN_CELLS", 64)
    monkeypatch.setattr(point_level, "CALIBRATION_CELLS", 64)
    fit = field(torch.rand(3600, 1, generator=random), places, (60, 60))
    level = fit.levels[0]
    assert fit.std(points).isfinite().all()
    assert level.errors.known.sum() < 0.7 * len(level.near)  # two runs of 32 cells and those around them, not all


def test_smoothed_values_at_samples_do_not_follow_their_noise():
    """The variogram of power 1/2 has the least held-out error here, and a third more error at samples than others have."""
    random = torch.Generator().manual_seed(0)
    places = torch.cartesian_prod(torch.arange(40), torch.arange(40))
    clean = 0.5 + 0.3 * torch.sin((5 * places[:, :1] + 2 * places[:, 1:]) / 40)
    noise, known = 0.2 * torch.randn(1600, 1, generator=random), torch.rand(1600, generator=random) < 0.3
    bank = AnisotropicKernels("laplace", 2, 2, (3.0,))
    fit = AdaptivePoints(bank, (clean + noise)[known], places[known] / 40, (40, 40), 0.8, 1.0, keeps_samples=False)
    assert (fit.at(places[known] / 40) - clean[known]).square().mean() < 0.15 * 0.2**2
    assert len(fit.calibration(0).weights) == len(power.POWERS), "the bank, and all powers but 1/2"


def made_surface(side: int) -> torch.Tensor:
    noise = np.fft.rfft2(np.random.default_rng(0).standard_normal((side, side)))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    values = torch.from_numpy(np.fft.irfft2(noise * frequency**-1.3, (side, side)))
    return ((values - values.mean()) / values.std()).float()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "lowest"), [(8, 6), (1, 0)])
def test_standard_deviations_in_wide_gaps_are_calibrated_by_gaps_as_wide(width, lowest):
    surface, random = made_surface(96), torch.Generator().manual_seed(1)
    drawn = torch.rand(96 // width, 96 // width, generator=random) < 0.2
    missing = drawn.repeat_interleave(width, 0).repeat_interleave(width, 1)
    places = torch.cartesian_prod(torch.arange(96), torch.arange(96)).reshape(96, 96, 2)
    fit = field(surface[~missing][:, None], places[~missing], (96, 96))
    assert lowest <= fit.gap_size() <= 1.5 * lowest
    wanted = places[missing] / 96
    errors, deviations = fit.at(wanted)[:, 0] - surface[missing], fit.std(wanted)[:, 0]
    inside = float((errors.abs() <= 1.645 * deviations).double().mean())
    assert 0.87 <= inside <= 0.94
    assert (len(fit._calibrations or ()) > 1) == (width > 1)


@pytest.mark.slow
def test_between_tracks_the_linear_covariance_follows_what_lengths_along_tracks_do_not():
    random = np.random.default_rng(0)
    centres, track = random.uniform(0.05, 0.95, (60, 2)), np.arange(480) % 60
    along = 0.02 * random.uniform(-1, 1, 480)
    places = torch.from_numpy(centres[track] + np.stack([along, 0 * along], 1))
    broad, short = 3 * np.abs(centres - [0.5, 0.4]).sum(1)[track], np.sin(150 * along + random.uniform(0, 6, 60)[track])
    values, held = torch.from_numpy(broad + short)[:, None], torch.from_numpy(track < 12)
    covariances = [learn_matern(values[~held], places[~held], linear) for linear in (False, True)]
    errors = []
    for count in (1, 2):
        bank = AnisotropicKernels("laplace", 2, 12, (2, 6))
        fit = AdaptivePoints(bank, values[~held], places[~held], (20, 20), 0.8, RIDGE, covariances=covariances[:count])
        errors.append(float((fit.at(places[held]) - values[held]).square().mean().sqrt()))
    assert errors[1] < 0.95 * errors[0]


def test_fits_do_not_depend_on_the_number_of_threads(monkeypatch, request):
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    monkeypatch.setattr(point_level, "MAX_NUMBERS", 1 << 15)  # many blocks
    generator = torch.Generator().manual_seed(0)
    coords, values = torch.rand(300, 2, generator=generator), torch.rand(300, 2, generator=generator)
    points = torch.rand(200, 2, generator=generator)
    results = []
    for number in (1, 3):
        torch.set_num_threads(number)
        fit = AdaptivePoints(AnisotropicKernels("laplace", 2, 2, (3.0,)), values, coords, (20, 20), 0.8, RIDGE)
        some = points.clone().requires_grad_()
        (slope,) = torch.autograd.grad(fit.at(some).sum(), some)
        results.append(torch.cat([fit.at(points), fit.std(points), slope], 1))
        assert torch.get_num_threads() == number
    assert torch.equal(*results)

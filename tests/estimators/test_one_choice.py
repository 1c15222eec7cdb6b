"""Whatever route the same samples take to an exact fit, width, features and ridge are the same, and so are the scores."""

import numpy as np
import pytest
import skimage.data
import torch
from commands import fit as run
from commands import metrics

import pe_lightning
from pe_lightning.encoders import local
from pe_lightning.estimators import LinearRidge
from pe_lightning.signals import Signals, grid_axes
from pe_lightning.signals.distributed import Process
from pe_lightning.signals.split_signals import read_signals
from pe_lightning.solvers import solve_grid
from pe_lightning.training import ComplexLinear, ImageDataModule

ENCODER = {"name": "gau", "width": "auto"}
PICTURE = torch.from_numpy(skimage.data.coffee()[:64, :72] / 255).float()[None]


def described(found):
    """Score, features, width, and ridge of a fit of :func:`pe_lightning.fit`, or of a module."""
    choice = found.solution.choice
    return found.psnr, choice["num_features"], choice["value"], found.solution.ridge, choice["rule"]


def assert_alike(found, expected, db=1e-3):
    psnr, features, widths, ridge, rule = described(found)
    wanted = described(expected)
    assert psnr == pytest.approx(wanted[0], abs=db)
    assert (features, rule) == (wanted[1], wanted[4])
    assert widths == pytest.approx(wanted[2])
    assert ridge == pytest.approx(wanted[3], rel=1e-3)


@pytest.fixture(scope="module")
def on_grid():
    return pe_lightning.fit(PICTURE, ENCODER)


def test_a_mask_that_is_a_grid_is_a_grid(on_grid):
    mask = np.zeros(PICTURE.shape[1:3], dtype=bool)
    mask[::2, ::2] = True
    assert_alike(pe_lightning.fit(PICTURE, ENCODER, sampling=mask), on_grid)


def test_signals_in_their_file_are_fitted_as_in_memory(tmp_path, on_grid):
    storage = {"in_memory": False, "cache_dir": str(tmp_path)}
    paths = tmp_path / "coffee.png"
    skimage.io.imsave(paths, (PICTURE[0].numpy() * 255).round().astype(np.uint8), check_contrast=False)
    streamed = ImageDataModule(str(paths), storage=storage)
    assert_alike(pe_lightning.fit(streamed, ENCODER), on_grid)
    assert_alike(pe_lightning.fit(str(paths), model=ComplexLinear(ENCODER, solver="exact"), storage=storage), on_grid)


def test_precision_and_copies_of_a_signal_change_nothing(on_grid):
    half = PICTURE[:, ::2, ::2]
    axes = [x[::2] for x in grid_axes(PICTURE.shape[1:3])]
    single, double, copies = (
        solve_grid(values, "gau", axes, sigma="auto") for values in (half, half.double(), half.repeat(3, 1, 1, 1))
    )
    for found in (double, copies):
        assert found.choice.candidate == single.choice.candidate
        torch.testing.assert_close(found.predict(axes)[:1].float(), single.predict(axes), atol=1e-3, rtol=0)
    assert single.choice.report()["value"] == pytest.approx(on_grid.solution.choice["value"])


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0, 3])
def test_a_module_and_the_estimator_and_the_command_are_one(missing, tmp_path, monkeypatch, on_grid):
    values = PICTURE.clone()
    values[0, [4, 20, 30][:missing], [6, 32, 30][:missing]] = torch.nan
    estimator = pe_lightning.fit(values, ENCODER)
    assert estimator.psnr == pytest.approx(on_grid.psnr, abs=0.15)
    assert_alike(pe_lightning.fit(values, model=ComplexLinear(ENCODER, solver="exact")), estimator)
    monkeypatch.chdir(tmp_path)
    np.save("picture.npy", values[0].numpy())
    report = metrics(run("picture.npy", "--encoder", "gau", "--data.value_range", "[0, 1]", "--wandb.enabled", "false"))
    assert report["test/psnr"] == pytest.approx(estimator.psnr, abs=1e-3)
    assert report["solution"]["ridge"] == pytest.approx(estimator.solution.ridge, rel=1e-3)
    assert report["solution"]["choice"]["value"] == pytest.approx(estimator.solution.choice["value"])


def test_several_processes_with_missing_samples_solve_the_whole_each(on_grid):
    values = PICTURE.clone()
    values[0, 20, 32] = torch.nan
    signals: Signals = read_signals(values)[0]
    estimator = LinearRidge(ENCODER)
    encoders, choice = estimator.choose(signals, [pe_lightning.encoders.resolve(ENCODER)] * 2, torch.device("cpu"))
    alone, one_of_two = (
        estimator.fit_layer(signals, encoders, torch.device("cpu"), choice, (signals, process))
        for process in (Process(), Process(rank=1, world_size=2))
    )
    assert torch.equal(alone.solutions[0].weight, one_of_two.solutions[0].weight)


def test_a_line_is_fitted_as_a_grid(monkeypatch):
    x = torch.arange(800, dtype=torch.float64) / 800
    row = (0.5 + 0.2 * torch.sin(60 * x) + 0.1 * torch.rand(800, generator=torch.Generator().manual_seed(0)))[None, :, None]
    grid = pe_lightning.fit(row.float(), ENCODER)
    assert grid.solution.solver == "grid"
    monkeypatch.setattr(local, "MIN_FEATURES", 200)
    line = pe_lightning.fit(row.float(), ENCODER)
    assert line.solution.solver == "line"
    assert_alike(grid, line, db=0.01)

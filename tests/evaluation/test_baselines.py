"""Interpolation against SciPy and against formulas written out one sample at a time."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import (
    CloughTocher2DInterpolator,
    CubicSpline,
    LinearNDInterpolator,
    RBFInterpolator,
    RegularGridInterpolator,
)
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.estimators.folds import interpolated_folds
from pe_lightning.evaluation.baselines import Interpolation, baselines, interpolate, names, refuse_slow
from pe_lightning.signals import FoldSampling, GridBatch, PointBatch, SignalInfo, Split, grid_axes, samplings
from pe_lightning.studies.suggest.crop import scored_signals
from pe_lightning.studies.suggest.search import search
from pe_lightning.training import TensorDataModule
from pe_lightning.training.callbacks.baseline_scores import score_baselines

Array = np.ndarray[Any, Any]
GRIDS = [(9,), (8, 11), (6, 7, 8)]
by_name = pytest.mark.parametrize("name", ["nearest", "linear", "bicubic", "spline"])
SCATTERED = ["delaunay", "inverse_distance", "nearest", "rbf_linear", "thin_plate"]
by_grid = pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{len(grid)}-D")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def batch(grid: tuple[int, ...], stride: int = 2) -> tuple[GridBatch, tuple[Tensor, ...]]:
    axes = grid_axes(grid, torch.float64)
    training = tuple(x[::stride] for x in axes)
    return GridBatch(training, numbers(2, *(len(x) for x in training), 3)), axes


def keys(s: float) -> float:
    """Keys' kernel, from its definition for any a, at a = -1/2."""
    a, s = -0.5, abs(s)
    if s <= 1:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1
    return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a if s < 2 else 0.0


def convolved(samples: Array, position: float) -> Array:
    """Cubic convolution along the first axis at a position in samples, border replicated."""
    total = np.zeros_like(samples[0])
    for i in range(-4, len(samples) + 4):
        total = total + keys(position - i) * samples[min(max(i, 0), len(samples) - 1)]
    return total


def reference(name: str, known: Array, training: list[Any], axes: list[Any]) -> Array:
    """``(n_1, ..., n_D)`` -> ``(N_1, ..., N_D)``, one axis after the other or by SciPy, border replicated."""
    clamped = [np.clip(x, t[0], t[-1]) for x, t in zip(axes, training, strict=True)]
    if name in ("nearest", "linear"):
        points = np.stack(np.meshgrid(*clamped, indexing="ij"), -1)
        return RegularGridInterpolator(training, known, method=name)(points)
    for a, (t, x) in enumerate(zip(training, axes, strict=True)):
        moved = np.moveaxis(known, a, 0)
        if name == "spline":
            moved = CubicSpline(t, moved)(clamped[a])
        else:
            moved = np.stack([convolved(moved, (value - t[0]) / (t[1] - t[0])) for value in x])
        known = np.moveaxis(moved, 0, a)
    return known


@by_name
@by_grid
def test_against_references(name: str, grid: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    # of stride 2 nothing is nearest halfway between samples
    training, axes = batch(grid, 3 if name == "nearest" else 2)
    result = interpolate(name, training, axes)
    assert result.shape == (2, *grid, 3)
    arrays = [[x.numpy() for x in side] for side in (training.axes, axes)]
    for s, c in product(range(2), range(3)):
        expected = reference(name, training.values[s, ..., c].numpy(), *arrays)
        np.testing.assert_allclose(result[s, ..., c].numpy(), expected, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr("pe_lightning.evaluation.baselines.MAX_OUTPUT_VALUES", 1)  # one signal at a time
    torch.testing.assert_close(interpolate(name, training, axes), result)


def test_uneven_samples() -> None:
    t, values = numbers(12, seed=3).sort().values, numbers(1, 12, 1)
    x = torch.linspace(t[0].item(), t[-1].item(), 50, dtype=torch.float64)
    result = interpolate("spline", GridBatch((t,), values), [x])
    expected = CubicSpline(t.numpy(), values[0, :, 0].numpy())(x.numpy())
    np.testing.assert_allclose(result[0, :, 0], expected, rtol=1e-7, atol=1e-9)
    with pytest.raises(InputError, match="evenly spaced"):
        interpolate("bicubic", GridBatch((t,), values), [x])


# -- scattered points -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_scattered_points_against_scipy(shared: bool, num_axes: int) -> None:
    coords, values = numbers(1 if shared else 2, 60, num_axes), numbers(2, 60, 3, seed=1)
    axes = [torch.linspace(0, 1, n, dtype=torch.float64) for n in (9, 8, 7)[:num_axes]]
    result = interpolate("delaunay", PointBatch(coords, values), axes)
    assert result.shape == (2, *(len(x) for x in axes), 3)
    grid = np.stack(np.meshgrid(*[x.numpy() for x in axes], indexing="ij"), -1)
    for s in range(2):
        points, known = coords[0 if shared else s].numpy(), values[s].numpy()
        distance = np.linalg.norm(grid[..., None, :] - points, axis=-1)
        if num_axes == 1:
            order = points[:, 0].argsort()
            expected = np.stack([np.interp(axes[0].numpy(), points[order, 0], column) for column in known[order].T], -1)
        else:
            expected = LinearNDInterpolator(points, known)(grid)
            outside = np.isnan(expected[..., 0])
            assert outside.any()
            expected[outside] = known[distance.argmin(-1)[outside]]
        np.testing.assert_allclose(result[s].numpy(), expected, rtol=1e-9, atol=1e-9)
        nearest = interpolate("nearest", PointBatch(coords, values), axes)[s].numpy()
        np.testing.assert_allclose(nearest, known[distance.argmin(-1)])


def test_distances_are_in_samples_of_the_grid() -> None:
    # one sample away along the long axis, two along the short one; in coordinates the second is nearer
    index, coords = torch.tensor([[0 * 100 + 50, 1 * 100 + 52]]), torch.tensor([[[0.0, 0.5], [0.25, 0.52]]])
    axes = grid_axes((4, 100))
    training = PointBatch(coords, torch.tensor([[[0.0], [1.0]]]), axes, index)
    assert interpolate("nearest", training, axes)[0, 1, 50, 0] == 0


def test_radial_functions_inverse_distances_and_cubic_triangles_against_scipy() -> None:
    points, known, places = numbers(70, 2).numpy(), numbers(70, 3, seed=1).numpy(), numbers(20, 2, seed=2)
    batch = PointBatch(torch.from_numpy(points)[None], torch.from_numpy(known)[None])
    distance = np.linalg.norm(places.numpy()[:, None] - points, axis=-1)
    near = distance.argsort(1)[:, :12]
    weights = np.take_along_axis(distance, near, 1) ** -2.0
    cubic = CloughTocher2DInterpolator(points, known)(places.numpy())
    inside = ~np.isnan(cubic[:, 0])
    for name, expected in (
        ("rbf_linear", RBFInterpolator(points, known, 50, kernel="linear")(places.numpy())),
        ("thin_plate", RBFInterpolator(points, known, 50)(places.numpy())),
        ("inverse_distance", (weights[..., None] * known[near]).sum(1) / weights.sum(1, keepdims=True)),
        ("clough_tocher", np.where(inside[:, None], cubic, known[near[:, 0]])),
    ):
        np.testing.assert_allclose(interpolate(name, batch, places)[0].numpy(), expected, rtol=1e-7, atol=1e-9)


def test_missing_samples_of_a_grid_by_the_biharmonic_equation() -> None:
    """A plane solves it; samples stay, and other places than those of the grid are refused."""
    axes = grid_axes((12, 9), torch.float64)
    plane = (0.2 + 0.03 * torch.arange(12)[:, None] + 0.05 * torch.arange(9)).double().flatten()
    missing = torch.zeros(12, 9, dtype=torch.bool)
    missing[3:9, 3:6] = torch.rand(6, 3, generator=torch.Generator().manual_seed(0)) < 0.6  # away from the border
    index = (~missing).flatten().nonzero().T
    coords = torch.cartesian_prod(*axes)[index]
    batch = PointBatch(coords, plane[index][..., None], axes, index)
    np.testing.assert_allclose(interpolate("biharmonic", batch, axes).flatten(), plane, atol=1e-6)
    with pytest.raises(InputError, match="a grid with equal distances"):
        interpolate("biharmonic", batch, coords[0] + 0.01)


@pytest.mark.parametrize("broken", [lambda *_, **__: np.full((6, 7, 1), np.nan), lambda *_, **__: np.linalg.inv([[0.0]])])
def test_a_biharmonic_system_that_cannot_be_solved_is_named_beside_the_other_baselines(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skimage.restoration.inpaint_biharmonic", broken)
    values = torch.rand(1, 6, 7, 1, generator=torch.Generator().manual_seed(0))
    values[0, 2:4, 3] = torch.nan
    data = TensorDataModule(values, sampling={"name": "grid", "stride": 1}, eval_mask="none")
    scores, left_out = interpolated_folds(data.signals, FoldSampling(number=2))
    assert "nearest" in scores
    assert "biharmonic cannot interpolate these samples" in left_out["biharmonic"]


@pytest.mark.parametrize(
    ("grid", "slow"),
    [
        ((32, 40, 36), {"biharmonic"}),
        ((512, 512), {"rbf_linear", "thin_plate", "biharmonic"}),
        ((160, 160), set()),
        ((20_000,), set()),
    ],
)
def test_slow_baselines_are_left_out_by_the_number_of_samples(grid: tuple[int, ...], slow: set[str]) -> None:
    info = SignalInfo(("signal",), grid, 1)
    for sampling in ("random", "grid"):
        split, left_out = samplings.create(sampling).split(grid, 1), slow if sampling == "random" else set()
        for name in filter(lambda name: baselines.create(name).applies_to(info, split), names()):
            expected = pytest.raises(
                InputError, match=r"slow for .* places; fit --trainer.callbacks.baselines all computes it"
            )
            with expected if name in left_out else nullcontext():
                refuse_slow(name, info, split)


# -- where a baseline applies -----------------------------------------------------------------------------------------


class Zero(Interpolation):
    """Predicts zero from samples on grids of two axes."""

    on_grids = True

    def applies_to(self, info: SignalInfo, split: Split) -> bool:
        if info.grid[0] == 6:
            raise InputError("6 rows are too few")
        return super().applies_to(info, split) and info.num_axes == 2

    def from_grid(self, values: Tensor, training: Any, axes: Any) -> Tensor:
        return values.new_zeros(len(values), *map(len, axes), values.shape[-1])


@pytest.mark.parametrize(
    ("grid", "sampling", "expected"),
    [
        ((8, 8), "grid", ["bicubic", "linear", "nearest", "spline", "zero"]),
        ((8,), "grid", ["bicubic", "linear", "nearest", "spline"]),
        ((8, 8), "random", [*SCATTERED, "biharmonic", "clough_tocher"]),
        ((4, 4, 4), "random", [*SCATTERED, "biharmonic"]),
        ((6, 6), "grid", ["bicubic", "linear", "nearest", "spline"]),
    ],
    ids=str,
)
def test_every_table_has_all_registered_baselines_that_apply(
    grid: tuple[int, ...], sampling: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_classes", dict(baselines._classes))
    baselines.register("zero")(Zero)
    data = TensorDataModule(numbers(1, *grid, 1).float(), sampling=sampling)
    rows, _ = score_baselines(data)
    refused = {"zero"} if grid == (6, 6) else set()
    assert {name for name, row in rows.items() if row["test/psnr"] is not None} == set(expected)
    assert rows.keys() - set(expected) == refused
    result = search([], scored_signals(data), math.inf, torch.device("cpu"), lambda _: None)
    assert {trial.candidate.name for trial in result.trials} == set(expected)
    assert result.skipped.keys() == {f"{name} interpolation" for name in refused}


# -- what is refused --------------------------------------------------------------------------------------------------


def test_the_wrong_kind_of_samples_is_refused() -> None:
    assert names() == sorted(["bicubic", "linear", "spline", "biharmonic", "clough_tocher", *SCATTERED])
    training, axes = batch((8, 11))
    points = PointBatch(torch.rand(1, 5, 2), torch.rand(1, 5, 1))
    with pytest.raises(InputError, match="delaunay does not interpolate samples of a grid to a grid; use linear"):
        interpolate("delaunay", training, axes)
    with pytest.raises(InputError, match="bicubic does not interpolate scattered points of 2 axes; use nearest"):
        interpolate("bicubic", points, axes)
    with pytest.raises(InputError, match="did you mean 'bicubic'"):
        interpolate("bicubik", training, axes)
    with pytest.raises(InputError, match="scattered points of 4 axes"):
        interpolate("delaunay", PointBatch(torch.rand(1, 9, 4), torch.rand(1, 9, 1)), [torch.rand(2)] * 4)
    line = torch.linspace(0, 1, 10)
    with pytest.raises(InputError, match="span all axes"):
        interpolate("delaunay", PointBatch(torch.stack([line, line], 1)[None], torch.rand(1, 10, 1)), [line, line])

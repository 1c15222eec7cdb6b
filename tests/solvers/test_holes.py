"""Grids with a few missing samples: the exact fit of the known ones, whatever route the samples take."""

from functools import reduce

import pytest
import skimage.data
import torch
from draws import coordinates

import pe_lightning
from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.solvers import solve_grid, solve_points


def with_holes(shape, share, seed=0):
    values = torch.rand(2, *shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    mask = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed + 1)) > share
    return values, mask, [coordinates(n) for n in shape]


@pytest.mark.parametrize("ridge", [1e-4, 0.1])
@pytest.mark.parametrize(
    ("shape", "names"),
    [((12, 10), ("gau", "rff")), ((40,), ("linf",)), ((9, 8, 7), ("laplace", "bspline", "gau")), ((11, 13), ("tri", "gau"))],
)
def test_the_fit_is_least_squares_of_the_known_samples(shape, names, ridge):
    """Against dense normal equations of the Kronecker product; with clusters of missing samples, and fewer features."""
    values, mask, axes = with_holes(shape, 0.08)
    mask[(slice(None), *[slice(2, 4)] * len(shape))] = False
    made = [encoders.create(name, num_features=max(4, n // 2 * 2)) for name, n in zip(names, shape, strict=True)]
    if "tri" in names:
        made[0] = encoders.create("tri", num_features=11, half_width=2 / 11)
    found = solve_grid(torch.where(mask[..., None], values, torch.nan), made, axes, ridge=ridge, mask=mask)
    whole = reduce(torch.kron, [encoder(x) for encoder, x in zip(made, axes, strict=True)])
    absolute = ridge * whole.square().sum(1).mean()
    for signal in range(2):
        known = mask[signal].flatten()
        target = values[signal].flatten(0, -2)[known]
        mean = target.mean(0)
        gram = whole[known].T @ whole[known] + absolute * torch.eye(whole.shape[1], dtype=torch.float64)
        weight = torch.linalg.solve(gram, whole[known].T @ (target - mean))
        prediction = found.predict(axes)[signal].flatten(0, -2)
        torch.testing.assert_close(prediction, whole @ weight + mean, atol=1e-9, rtol=0)
        assert found.count[signal] == known.sum() * 2
        assert float(found.squared_error[signal]) == pytest.approx(
            float((prediction[known] - target).square().sum()), rel=1e-4
        )


def test_a_sample_that_no_other_determines_is_interpolated():
    """``keys`` with a feature at every sample: the weight of least norm would be zero, and its surroundings the mean."""
    whole = torch.from_numpy(skimage.data.camera()[100:132, 200:232] / 255)[None, ..., None].float()
    mask = torch.ones(32, 32, dtype=torch.bool)
    mask[10, 12] = False
    found = solve_grid(whole, {"name": "keys", "padding": "edge", "num_features": 32}, mask=mask, ridge=1e-6)
    nearby = whole[0, 9:12, 11:14, 0].flatten()[[1, 3, 5, 7]]
    assert float(found.predict([coordinates(32)] * 2)[0, 10, 12, 0]) == pytest.approx(float(nearby.mean()), abs=0.1)
    torch.testing.assert_close(found.predict([coordinates(32)] * 2)[0][mask], whole[0][mask], atol=1e-5, rtol=0)


def test_a_mask_of_all_samples_changes_nothing():
    values, _, axes = with_holes((9, 8), 0.1)
    whole = solve_grid(values, "gau", axes, ridge=1e-3)
    masked = solve_grid(values, "gau", axes, ridge=1e-3, mask=torch.ones(9, 8, dtype=torch.bool))
    torch.testing.assert_close(masked.predict(axes), whole.predict(axes))


def test_masks_are_checked():
    for mask in (torch.ones(4, 5, dtype=torch.bool), torch.ones(4, 4)):
        with pytest.raises(InputError, match=r"the mask of values \(1, 4, 4, 1\) is boolean, \(S or 1, \*grid\); got"):
            solve_grid(torch.rand(1, 4, 4, 1), "gau", mask=mask)


LEARNED = {name for name in encoders.registry if any(True for _ in encoders.create(name).parameters())}


@pytest.mark.filterwarnings("ignore::pe_lightning.solvers.LowRankWarning")  # sines of one frequency
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LEARNED)) for n in encoders.registry])
def test_one_missing_sample_changes_nothing_else(name, monkeypatch):
    """Of every registered encoder: 0.1 dB at most; encoders that are learned end in another minimum."""
    monkeypatch.setattr("pe_lightning.solvers.variable_projection.SEARCH_TOLERANCE", 0.1)  # learns for a few steps
    crop = torch.from_numpy(skimage.data.coffee()[:48, :48] / 255).float()[None]
    missing = crop.clone()
    missing[0, 20, 14] = torch.nan
    described = {"name": name, "seed": 0} if "seed" in encoders.registry.parameters(encoders.registry.get(name)) else name
    whole, fitted = (pe_lightning.fit(values, described) for values in (crop, missing))
    assert fitted.psnr == pytest.approx(whole.psnr, abs=1 if name in LEARNED else 0.1)
    assert fitted.solution.solver == whole.solution.solver
    assert fitted.solutions[0].weight.shape == whole.solutions[0].weight.shape


def test_a_line_with_missing_samples_is_fitted_as_a_line():
    x = coordinates(3000)
    row = torch.sin(40 * x)[None, :, None].float()
    mask = torch.ones(1, 3000, dtype=torch.bool)
    mask[0, ::20] = False
    encoder = encoders.create("gau", num_features=1500)
    found = solve_grid(torch.where(mask[..., None], row, torch.nan), encoder, [x], mask=mask, ridge=1e-4)
    other = solve_points(row, encoder, axes=[x], mask=mask, ridge=1e-4)
    assert found.solver == other.solver == "line"
    torch.testing.assert_close(found.predict([x]), other.predict([x]), atol=1e-5, rtol=0)


def test_more_missing_samples_than_a_fifth_are_scattered_points():
    values = torch.rand(1, 32, 32, 1, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(32, 32, generator=torch.Generator().manual_seed(1))
    solvers = [pe_lightning.fit(values, "gau", sampling=mask < share).solution.solver for share in (0.85, 0.7)]
    assert solvers == ["grid", "points"]

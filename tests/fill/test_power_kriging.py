"""Kriging with power variograms, and the weights by which its members are mixed with others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import RBFInterpolator
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_fill.kriging.neighbours import neighbours_around
from pe_fill.kriging.power import POWERS, PowerKriging
from pe_fill.mixture.weights import least_error_weights

KERNELS = {1.0: "linear", 2.0: "thin_plate_spline", 3.0: "cubic"}


def kriging(values: np.ndarray, places: np.ndarray) -> PowerKriging:
    return PowerKriging(torch.from_numpy(values), torch.from_numpy(places), cKDTree(places))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("power", list(KERNELS))
def test_members_are_the_radial_basis_functions_of_scipy(axes, power):
    random = np.random.default_rng(0)
    places, values, wanted = random.random((14, axes)) * 9, random.random((14, 2)), random.random((5, axes)) * 9
    found = kriging(values, places).at(torch.from_numpy(wanted), torch.zeros(5), [POWERS.index(power)])[0]
    expected = RBFInterpolator(places, values, kernel=KERNELS[power])(wanted)
    assert found.numpy() == pytest.approx(np.clip(expected, *_bounds(values)), abs=1e-4)


def _bounds(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = values.min(0), values.max(0)
    return low - (high - low), high + (high - low)


def test_neighbours_are_taken_from_all_directions():
    """A point close to a dense cluster, which has all of its nearest samples."""
    random = np.random.default_rng(0)
    places = np.concatenate([6 + random.random((100, 2)), random.random((156, 2)) * 20])
    centre = torch.tensor([[8.0, 8.0]], dtype=torch.float64)
    near = neighbours_around(cKDTree(places), torch.from_numpy(places), centre, 40, 192)
    angles = np.arctan2(*(places[near[0].numpy()] - centre.numpy()).T)
    assert np.histogram(angles, 8, (-np.pi, np.pi))[0].min() == 40 // 8


def test_weights_have_the_least_error_of_all_that_are_not_negative():
    random = np.random.default_rng(0)
    errors = random.standard_normal((4, 200)) * [[1.0], [1.1], [0.9], [5.0]] + random.standard_normal(200) / 4
    found = least_error_weights(*[torch.from_numpy(errors)] * 2).numpy()
    sum_is_one = {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = minimize(lambda w: ((w @ errors) ** 2).mean(), np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=sum_is_one)
    assert ((found @ errors) ** 2).mean() <= 1.0051 * best.fun
    assert found.min() == 0
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("wide", [False, True])
def test_a_signal_that_a_power_variogram_predicts_is_predicted_as_well(wide):
    """A cubic polynomial, at random samples and across gaps, that stretched encoders alone predict worse."""
    axis = torch.arange(48.0) / 48
    truth = (axis[:, None] ** 3 + axis * axis[:, None])[..., None]
    random = torch.Generator().manual_seed(0)
    missing = torch.rand(8, 8, generator=random).repeat_interleave(6, 0).repeat_interleave(6, 1) < 0.2
    missing = missing if wide else torch.rand(48, 48, generator=random) < 0.7
    coords = torch.cartesian_prod(axis, axis).reshape(48, 48, 2)
    fit = AdaptivePoints(
        AnisotropicKernels("laplace", 2, 2, (3.0,)), truth[~missing], coords[~missing], (48, 48), 0.8, RIDGE
    )
    alone = AdaptivePoints(
        AnisotropicKernels("laplace", 2, 2, (3.0,)), truth[~missing], coords[~missing], (48, 48), 0.8, RIDGE
    )
    alone._members = []
    error, other = ((f.at(coords[missing]) - truth[missing]).square().mean() for f in (fit, alone))
    assert error < 0.01 * other

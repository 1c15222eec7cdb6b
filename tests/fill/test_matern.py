"""Kriging with a learned covariance, against dense algebra, finite differences and the model that made the data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.interpolate import RBFInterpolator
from scipy.optimize import approx_fprime
from scipy.spatial.distance import cdist

from pe_fill.kriging.matern import SMOOTHNESS, Matern, MaternKriging, _cost, learn_matern

LENGTHS = np.array([0.06, 0.6, 0.3])
NOISE = 0.1


def similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Matérn 3/2 by its formula."""
    r = np.sqrt(3) * cdist(first / LENGTHS, second / LENGTHS)
    return (1 + r) * np.exp(-r)


def field(count: int, held: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Places and values of a field whose lengths differ by ten, and the same without noise where it is not known."""
    random = np.random.default_rng(0)
    places = random.random((count + held, 3))
    clean = np.linalg.cholesky(similarity(places, places) + 1e-9 * np.eye(count + held)) @ random.normal(size=count + held)
    values = clean + np.sqrt(NOISE) * random.normal(size=count + held)
    return places[:count], values[:count, None], places[count:], clean[count:]


@pytest.mark.parametrize("smoothness", SMOOTHNESS)
def test_the_gradient_of_the_likelihood(smoothness):
    random = np.random.default_rng(0)
    places, values = torch.from_numpy(random.random((2, 9, 2))), torch.from_numpy(random.random((2, 9, 2)))
    parts, theta = [((places[:, :, None] - places[:, None]).square(), values)], np.log([0.3, 0.8, 0.1])
    slope = approx_fprime(theta, lambda at: _cost(at, parts, smoothness)[0], 1e-7)
    assert _cost(theta, parts, smoothness)[1] == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_lengths_and_noise_are_learned_and_predict_as_those_that_made_the_values():
    places, values, wanted, clean = field(400, 300)
    found = learn_matern(torch.from_numpy(values), torch.from_numpy(places))
    assert found.lengths.numpy() == pytest.approx(LENGTHS, rel=0.5)
    assert found.nugget == pytest.approx(NOISE, rel=0.6)

    def error(covariance: Matern) -> float:
        fit = MaternKriging(torch.from_numpy(values), torch.from_numpy(places), [covariance])
        return float(np.square(fit.at(torch.from_numpy(wanted), 4 * torch.arange(300))[0, :, 0].numpy() - clean).mean())

    true, learned = Matern(torch.from_numpy(LENGTHS), NOISE, 1.5), error(found)
    same_lengths = true._replace(lengths=torch.full((3,), float(np.exp(np.log(LENGTHS).mean())), dtype=torch.float64))
    assert learned < 1.1**2 * error(true)
    assert learned < 0.8 * error(same_lengths)


def test_predictions_and_variances_are_those_of_ordinary_kriging():
    places, values, wanted, _ = field(40, 5)
    lagrange = np.ones((41, 41))
    lagrange[:40, :40], lagrange[40, 40] = similarity(places, places) + NOISE * np.eye(40), 0
    right = np.concatenate([similarity(places, wanted), np.ones((1, 5))])
    weights = np.linalg.solve(lagrange, right)
    covariance, at = Matern(torch.from_numpy(LENGTHS), NOISE, 1.5), torch.from_numpy(wanted)
    fit = MaternKriging(torch.from_numpy(values), torch.from_numpy(places), [covariance])
    assert fit.at(at, torch.arange(5))[0, :, 0].numpy() == pytest.approx(weights[:40].T @ values[:, 0], abs=1e-9)
    expected = np.sqrt(1 + NOISE - (weights * right).sum(0))
    assert fit.std(at, torch.zeros(5))[:, 0].numpy() == pytest.approx(expected, abs=1e-9)


def test_the_linear_covariance_is_the_linear_variogram_with_the_noise_of_the_values():
    random = np.random.default_rng(0)
    places, wanted, spread = random.random((60, 2)) * [1, 50], random.random((5, 2)) * [1, 50], np.array([1, 50])
    values = places @ [1, 0.02] + 0.3 * np.sin(9 * places[:, 0])
    units = places.std(0)
    found = learn_matern(torch.from_numpy(values[:, None]), torch.from_numpy(places / spread), linear=True)
    fit = MaternKriging(torch.from_numpy(values[:, None]), torch.from_numpy(places / spread), [found._replace(nugget=1e-9)])
    expected = RBFInterpolator(places / units, values, kernel="linear")(wanted / units)
    assert fit.at(torch.from_numpy(wanted / spread), torch.arange(5))[0, :, 0].numpy() == pytest.approx(expected, abs=0.02)
    noisy = values + 0.5 * random.normal(size=60)
    noisier = learn_matern(torch.from_numpy(noisy[:, None]), torch.from_numpy(places / spread), linear=True)
    assert noisier.nugget > 3 * found.nugget

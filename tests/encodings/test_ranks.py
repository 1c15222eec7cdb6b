"""Stable ranks of matrices and encodings against NumPy's singular values."""

import math

import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.encodings import Complex, Simple, encoder_rank, feature_rank, stable_rank
from pe_lightning.signals import GridBatch, sample_coordinates
from pe_lightning.signals.sampling import RandomSampling
from pe_lightning.training import TensorDataModule

GAU = {"name": "gau", "num_features": 8, "sigma": 0.1}


def dense(matrix) -> float:
    values = np.linalg.svd(np.asarray(matrix.detach(), dtype=np.float64), compute_uv=False)
    return float(np.square(values).sum() / values[0] ** 2)


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (3, 1)])
def test_stable_rank_is_that_of_the_singular_values(shape):
    matrices = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(1))
    found = stable_rank(matrices)
    assert (found.dtype, found.shape) == (torch.float64, (2, 3))
    for place in np.ndindex(2, 3):
        assert found[place].item() == pytest.approx(dense(matrices[place]), rel=1e-9)


def test_stable_rank_of_the_identity_of_zero_and_of_what_has_diverged():
    bad = torch.eye(5)
    bad[1, 1] = math.inf
    found = stable_rank(torch.stack([torch.eye(5), torch.zeros(5, 5), bad]))
    assert found[:2].tolist() == [5, 0]
    assert found[2].isnan()


def test_a_complex_encoding_on_a_grid_is_taken_over_the_whole_grid():
    batch = TensorDataModule(torch.rand(1, 24, 20, 1)).train_batch()
    encoding = Complex(GAU, 2)
    grid = torch.stack(torch.meshgrid(*batch.axes, indexing="ij"), -1).reshape(-1, 2)
    found = feature_rank(encoding, sample_coordinates(batch, 5), batch.axes)
    assert found.tolist() == pytest.approx([dense(encoding(grid))], rel=1e-5)


@pytest.mark.parametrize("points", [30, 100])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("encoding", [Complex(GAU, 2), Simple(GAU, 2)], ids=["complex", "simple"])
def test_at_scattered_points_it_is_that_of_the_sample(encoding, shared, points):
    """64 products of features: fewer and more than the points."""
    batch = TensorDataModule(torch.rand(2, 24, 20, 1), sampling=RandomSampling(0.5, shared=shared)).train_batch()
    coords = sample_coordinates(batch, points)
    assert coords.shape == (1 if shared else 2, points, 2)
    found = feature_rank(encoding, coords)
    assert found.tolist() == pytest.approx([dense(encoding(own)) for own in coords], rel=1e-5)


def test_a_long_axis_has_the_rank_of_its_dense_features(monkeypatch):
    encoder, x = encoders.create("gau", num_features=300), torch.arange(600, dtype=torch.float64) / 600
    batch = GridBatch((x,), torch.zeros(1, 600, 1))
    expected = stable_rank(encoder(x))
    monkeypatch.setattr("pe_lightning.encoders.local.MIN_FEATURES", 200)
    found = feature_rank(Complex(encoder, 1, normalize=False), x[None, :, None], batch.axes)
    torch.testing.assert_close(found[0], expected, rtol=2e-3, atol=0)


def test_the_rank_of_many_features_of_mean_zero_is_found():
    """A start vector of ones lies in their null space."""
    encoder = encoders.create("square", num_features=2304)
    assert encoder_rank(encoder, torch.arange(2304) / 2304) == pytest.approx(2.47, abs=0.05)

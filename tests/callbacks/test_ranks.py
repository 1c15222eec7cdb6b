"""Stable ranks of features and layers against NumPy and against the modules' own outputs."""

import math

import numpy as np
import pytest
import torch
from small_fits import MODULES, signals

from pe_lightning.callbacks import ranks
from pe_lightning.callbacks.ranks import feature_rank, hidden_layers, layer_ranks, sample_coordinates, stable_rank
from pe_lightning.data import TensorDataModule
from pe_lightning.data.sampling import RandomSampling
from pe_lightning.encoders import resolve
from pe_lightning.modules import ComplexLinear, SimpleMLP


def dense(matrix) -> float:
    """By NumPy's singular values."""
    values = np.linalg.svd(np.asarray(matrix.detach(), dtype=np.float64), compute_uv=False)
    return float(np.square(values).sum() / values[0] ** 2)


def built(kind, data):
    torch.manual_seed(0)
    module = kind() if callable(kind) else MODULES[kind]()
    module.build(data.info)
    module.calibrate(data.train_batch())
    for parameter in module.parameters():  # every signal another
        parameter.data.normal_(std=0.3)
    return module


SAMPLINGS = {"grid": "grid", "shared": RandomSampling(0.5, shared=True), "own": RandomSampling(0.5)}


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (6, 6), (3, 1)])
def test_stable_rank_is_that_of_the_singular_values(shape):
    matrices = torch.randn(2, 3, *shape, generator=torch.Generator().manual_seed(1))
    found = stable_rank(matrices)
    assert found.dtype == torch.float64
    assert found.shape == (2, 3)
    for place in np.ndindex(2, 3):
        assert found[place].item() == pytest.approx(dense(matrices[place]), rel=1e-9)


def test_stable_rank_of_the_identity_of_zero_and_of_what_has_diverged():
    bad = torch.eye(5)
    bad[1, 1] = math.inf
    found = stable_rank(torch.stack([torch.eye(5), torch.zeros(5, 5), bad]))
    assert found[:2].tolist() == [5, 0]
    assert found[2].isnan()


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_hidden_layers_lead_to_the_modules_output(kind, sampling):
    """The last layer on the last activations is what the module predicts at the same points."""
    data = TensorDataModule(signals(3, 8, 6), sampling=SAMPLINGS[sampling])
    module = built(kind, data)
    coords = sample_coordinates(data.train_batch(), 10)
    assert coords.shape == (3 if sampling == "own" else 1, 10, 2)
    layers = hidden_layers(module, coords)
    assert [tuple(layer.shape) for layer in layers] == [(3, 10, 6)] * module.depth
    if not layers:
        return
    mlp = module.mlp if isinstance(module, SimpleMLP) else module.head
    outputs = torch.baddbmm(mlp.biases[-1], layers[-1], mlp.weights[-1])
    if isinstance(module, ComplexLinear):
        outputs = outputs + module.mean[:, None]
    expected = torch.stack([module(own)[s] for s, own in enumerate(coords.expand(3, -1, -1))])
    torch.testing.assert_close(outputs, expected)


@pytest.mark.parametrize("kind", ["simple", "complex-head"])
@pytest.mark.parametrize("sampling", ["shared", "own"])
def test_layer_ranks_are_per_signal_also_in_turns(kind, sampling, monkeypatch):
    data = TensorDataModule(signals(3, 8, 6), sampling=SAMPLINGS[sampling])
    module = built(kind, data)
    coords = sample_coordinates(data.train_batch(), 20)
    found = layer_ranks(module, coords)
    for layer, activations in zip(found, hidden_layers(module, coords), strict=True):
        assert layer.tolist() == pytest.approx([dense(own) for own in activations], rel=1e-6)
    assert len({round(value, 4) for value in found[0].tolist()}) == 3, "each signal has its own"
    monkeypatch.setattr(ranks, "HELD", 1)
    for layer, again in zip(found, layer_ranks(module, coords), strict=True):
        torch.testing.assert_close(layer, again)


def test_features_of_a_complex_encoding_are_those_of_the_whole_training_grid():
    data = TensorDataModule(signals(1, 24, 20))
    module = built("complex", data)
    axes = data.train_batch().axes
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    found = feature_rank(module, data.train_batch(), sample_coordinates(data.train_batch(), 5))
    assert found.tolist() == pytest.approx([dense(module.encoding(grid))], rel=1e-5)


@pytest.mark.parametrize("points", [30, 100])
@pytest.mark.parametrize("sampling", ["shared", "own"])
def test_features_of_a_complex_encoding_at_scattered_points(points, sampling):
    """64 products of features: fewer and more than the points."""
    data = TensorDataModule(signals(2, 24, 20), sampling=SAMPLINGS[sampling])
    module = built("complex", data)
    coords = sample_coordinates(data.train_batch(), points)
    found = feature_rank(module, data.train_batch(), coords)
    assert found.tolist() == pytest.approx([dense(module.encoding(own)) for own in coords], rel=1e-5)


def test_features_of_a_simple_encoding():
    data = TensorDataModule(signals(1, 24, 20))
    module = built("simple", data)
    coords = sample_coordinates(data.train_batch(), 50)
    found = feature_rank(module, data.train_batch(), coords)
    assert found.tolist() == pytest.approx([dense(module.encoding(coords[0]))], rel=1e-5)


def test_the_paper_s_prediction_for_gaussians():
    """Rethinking Positional Encoding, Proposition 2, at enough features and samples."""
    encoder = resolve({"name": "gau", "num_features": 512, "sigma": 0.01})
    data = TensorDataModule(signals(1, 1024))
    module = built(lambda: SimpleMLP(encoder, depth=0), data)
    found = feature_rank(module, data.train_batch(), sample_coordinates(data.train_batch(), 2048)).item()
    assert found == pytest.approx(1 / (2 * math.sqrt(math.pi) * 0.01), rel=0.05)


def test_the_sample_is_of_training_points_and_always_the_same():
    data = TensorDataModule(signals(1, 16, 12))
    batch = data.train_batch()
    every = {tuple(point) for point in sample_coordinates(batch, 1000)[0].tolist()}
    assert every == {(x, y) for x in batch.axes[0].tolist() for y in batch.axes[1].tolist()}
    some = sample_coordinates(batch, 20)
    assert {tuple(point) for point in some[0].tolist()} < every
    assert len({tuple(point) for point in some[0].tolist()}) == 20
    assert torch.equal(some, sample_coordinates(batch, 20))

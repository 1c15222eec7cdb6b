"""Measures of encoders against the papers' properties, and against a few lines of NumPy."""

import json
import math

import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_papers import analysis

SIZE = 600
"""Positions and features: enough for theory to hold within the tolerances below."""


def report(name, samples=SIZE, **arguments):
    return analysis.analyze(encoders.create(name, num_features=SIZE, **arguments), samples)


@pytest.mark.parametrize(
    ("name", "arguments", "rank", "distance"),
    [
        # Proposition 2 of "Rethinking Positional Encoding", and the table of "Trading Positional Complexity", section 4
        ("gau", {"sigma": 0.01}, 1 / (2 * math.sqrt(math.pi) * 0.01), lambda d: np.exp(-(d**2) / (4 * 0.01**2))),
        ("rect", {"sigma": 0.05}, 1 / 0.05, lambda d: np.maximum(1 - d / 0.05, 0)),
        ("tri", {"half_width": 0.025}, 4 / (3 * 0.05), lambda d: np.where(d < 0.025, triangle(d), tail(d))),
        ("sine", {"frequency": 1.0}, 2.0, lambda d: np.cos(2 * np.pi * d)),
        ("square", {"frequency": 0.5}, np.pi**2 / 4, lambda d: 1 - 2 * d),
    ],
)
def test_rank_and_distance_are_those_of_the_propositions(name, arguments, rank, distance):
    found = report(name, **arguments)
    assert found["stable_rank"]["measured"] == pytest.approx(rank, rel=0.02)
    assert found["stable_rank"]["theory"] == pytest.approx(rank, rel=1e-6)
    displacements = np.abs(found["delta"])
    assert found["distance"]["measured"] == pytest.approx(distance(displacements), abs=0.02)
    assert found["distance"]["theory"] == pytest.approx(distance(displacements), abs=1e-6)
    assert found["deviation"]["stable_rank"] < 0.02
    assert found["deviation"]["distance"] < 0.02


def triangle(d):
    return 1 - 1.5 * (d / 0.025) ** 2 + 0.75 * (d / 0.025) ** 3


def tail(d):
    return np.maximum(2 - d / 0.025, 0) ** 3 / 4


def test_sigma_from_the_interval_that_is_to_be_preserved():
    """Appendix A, after Eq. 14: sigma = l / (2 sqrt(k ln 10)) keeps D >= 10^-k over l."""
    length, k = 0.1, 1.6
    found = report("gau", sigma=length / (2 * math.sqrt(k * math.log(10))))["interval"]
    assert found["theory"] == pytest.approx(length, rel=1e-3)
    assert found["measured"] == pytest.approx(length, rel=1e-3)


@pytest.mark.parametrize("name", ["gau", "logf", "lff"])
def test_numbers_are_those_of_numpy(name):
    encoder, n = encoders.create(name, num_features=40), 64
    found = analysis.analyze(encoder, n)
    x = torch.arange(n, dtype=torch.float64) / n
    rows = encoder(x).detach().numpy()
    values = np.linalg.svd(rows, compute_uv=False)
    gram, middle = rows @ rows.T, n // 2
    assert found["singular_values"] == pytest.approx(values / values[0], abs=1e-12)
    assert found["stable_rank"]["measured"] == pytest.approx((values**2).sum() / values[0] ** 2)
    assert found["numerical_rank"] == np.linalg.matrix_rank(rows)
    if found["condition"] is not None:
        assert found["condition"] == pytest.approx(np.linalg.cond(rows.T @ rows), rel=1e-3)
    assert (found["condition"] is None) == (found["numerical_rank"] < 40)
    assert found["distance"]["measured"] == pytest.approx(gram[middle] / gram[middle, middle])
    pairs = [(i, j) for i in range(n) for j in range(n) if 0 <= j - i + middle < n]
    errors = [gram[i, j] - gram[middle, middle + j - i] for i, j in pairs]
    assert found["spread"] == pytest.approx(np.sqrt(np.mean(np.square(errors))) / gram[middle, middle], abs=1e-12)
    # Wiener and Khinchin: the transform of D, as a sum of cosines
    delta = np.array(found["delta"])
    power = [float(np.sum(found["distance"]["measured"] * np.cos(2 * np.pi * f * delta))) for f in found["frequencies"]]
    assert found["spectrum"]["measured"] == pytest.approx(np.array(power) / max(power), abs=1e-9)


def test_every_registered_encoder_has_a_report_of_plain_numbers():
    for name in encoders.names():
        found = analysis.analyze(name, 32)
        json.dumps(found, allow_nan=False)
        assert found["encoder"]["name"] == name
        assert len(found["positions"]) == len(found["delta"]) == len(found["distance"]["measured"]) == 32
        assert 0 < found["stable_rank"]["measured"] <= found["numerical_rank"] + 1e-9 <= 32.1


@pytest.mark.parametrize("name", ["impulse", "gau", "rff", "sine"])
def test_large_features_have_the_rank_of_the_exact_routine(name, monkeypatch):
    x = torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    encoder = encoders.create(name, num_features=200)
    exact = analysis.stable_rank(encoder(x)).item()
    monkeypatch.setattr("pe_lightning.encodings.ranks.MAX_EXACT", 50)
    assert analysis.encoder_rank(encoder, x) == pytest.approx(exact, rel=2e-3)
    assert analysis.encoder_rank(encoder, x[:20]) == pytest.approx(analysis.stable_rank(encoder(x[:20])).item())


@pytest.mark.parametrize(
    ("encoder", "samples", "told"),
    [
        ("gau", 2, "samples must be from 4"),
        ({"name": "gau", "sigma": "auto"}, 16, "sigma 'auto' is chosen by a solver"),
        ({"name": "gau", "num_features": 5000}, 16, "at most 4096 features"),
        ("gua", 16, "did you mean 'gau'"),
    ],
)
def test_errors_say_what_to_change(encoder, samples, told):
    with pytest.raises(InputError, match=told):
        analysis.analyze(encoder, samples)

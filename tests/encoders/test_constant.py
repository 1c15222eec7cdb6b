"""Whether drawn frequencies represent a constant, and the warnings of a fit and of analyze."""

import warnings

import numpy as np
import pytest
import torch

from pe_lightning import ComplexLinear, TensorDataModule, analysis, encoders
from pe_lightning.__main__ import main
from pe_lightning.estimators.linear import ConstantWarning

X = torch.arange(64, dtype=torch.float64) / 64
GOOD, BAD = 0, 7  # seeds


def rff(seed):
    return encoders.create("rff", num_features=64, sigma=3.0 if seed == GOOD else 6.0, seed=seed)


@pytest.mark.parametrize("seed", [GOOD, BAD])
def test_the_error_is_that_of_a_ridge_fit(seed):
    features = rff(seed)(X).double().numpy()
    ridge = 0.01 * np.linalg.norm(features, 2) ** 2
    weight = np.linalg.solve(features.T @ features + ridge * np.eye(64), features.T @ np.ones(64))
    expected = np.linalg.norm(1 - features @ weight) / 8
    assert encoders.constant_error(rff(seed), X) == pytest.approx(expected, rel=1e-6)
    assert (expected > 0.1) == (seed == BAD)
    assert encoders.misses_constant(rff(seed), X) == (seed == BAD)


@pytest.mark.parametrize(("seed", "center", "warns"), [(BAD, False, True), (BAD, True, False), (GOOD, False, False)])
def test_a_fit_without_centring_warns(seed, center, warns):
    data = TensorDataModule(torch.rand(1, 64, 1))
    model = ComplexLinear(rff(seed), center=center)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.choose(data, torch.device("cpu"))
    texts = [str(warning.message) for warning in found if issubclass(warning.category, ConstantWarning)]
    assert bool(texts) == warns
    assert all("--model.center true" in text for text in texts)


def test_analyze_names_the_draw(tmp_path, capsys):
    options = ["--encoder", "rff", "--encoder.num_features", "64", "--encoder.sigma", "6", "--encoder.seed", str(BAD)]
    main(["analyze", *options, "--samples", "64", "--out", str(tmp_path)])
    assert "does not represent a constant" in capsys.readouterr().out
    assert analysis.analyze(rff(GOOD), 64)["constant"] == pytest.approx(encoders.constant_error(rff(GOOD), X), rel=1e-6)

"""Dense and banded matrices behind one protocol, against plain products in float64."""

from __future__ import annotations

import pytest
import torch

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.linalg import Banded, Dense, as_operator, encode_axis, mode_products
from pe_lightning.linalg import operators as module

FEATURES = 160
"""In these tests, features of so many columns may be banded: small enough to compare with dense ones."""


def coordinates(n):
    return torch.arange(n, dtype=torch.float64) / n


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(module, "MIN_FEATURES", FEATURES)
    monkeypatch.setattr(module, "MAX_DENSITY", 0.6)


@pytest.mark.parametrize("name", ["gau", "tri", "rect", "keys", "bspline", "impulse", "rff"])
def test_every_operator_multiplies_as_its_dense_matrix(name):
    encoder = encoders.create(name, num_features=FEATURES)
    operator, psi = encode_axis(encoder, coordinates(220)), encoder(coordinates(220))
    assert isinstance(operator, Dense if name == "rff" else Banded)
    matrix = operator.dense()
    torch.testing.assert_close(matrix, psi, atol=1e-9, rtol=0)
    for axis in (0, 1, 2, -1):
        x, y = ([2, 3, 4] for _ in range(2))
        x[axis], y[axis] = FEATURES, 220
        x, y = random(*x), random(*y)
        torch.testing.assert_close(operator.mv(x, axis), (x.movedim(axis, -1) @ matrix.T).movedim(-1, axis))
        torch.testing.assert_close(operator.rmv(y, axis), (y.movedim(axis, -1) @ matrix).movedim(-1, axis))
    assert operator.shape == matrix.shape
    single = operator.to(torch.float32)
    assert single.dtype == single.mv(x).dtype == torch.float32
    for start, stop in [(0, 220), (7, 8), (40, 170), (219, 220), (5, 5)]:
        part = operator.rows(start, stop)
        assert torch.equal(part.dense(), matrix[start:stop])
        first, trimmed = part.trimmed()
        assert torch.equal(trimmed.dense(), matrix[start:stop, first : first + trimmed.shape[1]])


def test_banded_matrices_store_less_and_have_a_gram_matrix():
    banded = Banded.from_dense(encoders.create("tri", num_features=FEATURES)(coordinates(220)))
    assert banded.density < 0.6
    torch.testing.assert_close(banded.gram(), banded.dense().T @ banded.dense())
    x = random(2, FEATURES, 3)
    torch.testing.assert_close(
        mode_products(x, [banded, random(5, 3)]), mode_products(x, [banded.dense(), random(5, 3)]), rtol=1e-10, atol=1e-12
    )
    with pytest.raises(InputError, match="matrix"):
        banded.mv(torch.zeros(99), 0)


def test_dense_features_stay_dense():
    gau = encoders.create("gau", num_features=FEATURES)
    assert isinstance(encode_axis(gau, coordinates(200), compact=False), Dense)
    assert isinstance(encode_axis(encoders.create("gau", num_features=64), coordinates(20)), Dense)
    wide = encoders.create("gau", num_features=FEATURES, sigma=0.2)
    assert isinstance(encode_axis(wide, coordinates(200)), Dense)
    with pytest.raises(InputError, match=r"shape \(N, K\)"):
        as_operator(torch.ones(3))

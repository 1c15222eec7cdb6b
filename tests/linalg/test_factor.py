"""Factorisations of one axis's features against NumPy's, in float64."""

import numpy as np
import pytest
import torch
from draws import coordinates

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.linalg import Banded, eigh, factor_axis

FEATURES = 160


def banded(encoder, n):
    return Banded.from_dense(encoders.resolve({"num_features": FEATURES, **encoder})(coordinates(n)))


def rebuilt(factor):
    return factor.left() * factor.singular_values @ factor.right.T


@pytest.mark.parametrize(("n", "k"), [(7, 7), (20, 6), (6, 20), (1, 5), (5, 1), (9, "symmetric")])
def test_reproduces_any_shape(n, k):
    symmetric = k == "symmetric"
    k = n if symmetric else k
    matrix = torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    matrix = matrix + matrix.T if symmetric else matrix  # with negative eigenvalues
    factor = factor_axis(matrix)
    assert (factor.rank, factor.method) == (min(n, k), "svd")
    assert factor.shape == (n, k)
    torch.testing.assert_close(rebuilt(factor), matrix)
    torch.testing.assert_close(factor.left().T @ factor.left(), torch.eye(factor.rank, dtype=torch.float64))
    torch.testing.assert_close(factor.singular_values, torch.linalg.svdvals(matrix))
    assert factor.mean_diagonal == pytest.approx(float((matrix @ matrix.T).diagonal().mean()))


def test_reveals_the_rank():
    psi = encoders.create("sine", num_features=40)(coordinates(30))
    assert factor_axis(psi).rank == np.linalg.matrix_rank(psi.numpy()) == 2
    nothing = factor_axis(torch.zeros(5, 3))
    assert (nothing.rank, nothing.mean_diagonal, nothing.condition) == (0, 0.0, 1.0)
    assert nothing.left().shape == (5, 0)


def fails(*_args, **_kwargs):
    raise torch.linalg.LinAlgError("the algorithm failed to converge")


def test_second_routes_when_divide_and_conquer_fails(monkeypatch):
    matrix = encoders.create("logf", num_features=64)(coordinates(50))
    gram = matrix.T @ matrix
    first, expected = factor_axis(matrix), torch.linalg.eigvalsh(gram)
    monkeypatch.setattr(torch.linalg, "svd", fails)
    monkeypatch.setattr(torch.linalg, "eigh", fails)
    second = factor_axis(matrix)
    assert (first.method, second.method) == ("svd", "gesvd")
    torch.testing.assert_close(rebuilt(second), matrix, atol=1e-12, rtol=0)
    assert second.rank == first.rank
    eigenvalues, vectors = eigh(gram)
    torch.testing.assert_close(eigenvalues, expected, atol=1e-10, rtol=0)
    torch.testing.assert_close(vectors * eigenvalues @ vectors.T, gram, atol=1e-10, rtol=0)


def test_a_wrong_svd_is_noticed(monkeypatch):
    right = torch.linalg.svd
    monkeypatch.setattr(torch.linalg, "svd", lambda *a, **k: [part * (1 + 1e-6) for part in right(*a, **k)])
    matrix = torch.eye(6, 5, dtype=torch.float64)
    assert factor_axis(matrix).method == "gesvd"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("store", [lambda matrix: matrix, Banded.from_dense])
def test_refuses_features_that_are_not_finite(bad, store):
    matrix = torch.eye(FEATURES)
    matrix[3, 3] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        factor_axis(store(matrix))


@pytest.mark.parametrize("name", ["gau", "keys"])
def test_banded_factorisation_equals_the_svd(name):
    matrix = banded({"name": name}, 220)
    fast, exact = factor_axis(matrix), factor_axis(matrix.dense())
    assert (fast.method, exact.method) == ("gram", "svd")
    torch.testing.assert_close(fast.singular_values, exact.singular_values, rtol=1e-9, atol=0)
    assert fast.mean_diagonal == pytest.approx(exact.mean_diagonal)
    torch.testing.assert_close(rebuilt(fast), rebuilt(exact), atol=1e-9, rtol=0)
    identity = torch.eye(fast.rank, dtype=torch.float64)
    torch.testing.assert_close(fast.left().T @ fast.left(), identity, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("encoder", "n"),
    [({"name": "gau", "sigma": 3 / FEATURES}, 220), ({"name": "tri"}, 130), ({"name": "rect", "sigma": 1e-6}, 168)],
)
def test_badly_conditioned_banded_features_go_through_the_svd(encoder, n):
    matrix = banded(encoder, n)
    factor = factor_axis(matrix)
    assert factor.method == "svd"
    assert factor.rank == np.linalg.matrix_rank(matrix.dense().numpy())

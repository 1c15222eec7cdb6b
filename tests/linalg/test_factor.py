import numpy as np
import pytest
import torch

from pe_lightning import encoders
from pe_lightning.errors import InputError
from pe_lightning.linalg import FactorisationError, LocalMatrix, encode_axis, factor_axis, products
from pe_lightning.linalg import factor as factor_module
from pe_lightning.linalg import local as local_module
from pe_lightning.linalg.mode_products import mode_products

MIN_FEATURES = 160
"""In these tests, features of so many columns may be local: small enough to compare with dense ones."""
COMPACT = ["gau", "tri", "rect", "keys", "bspline", "impulse"]


def coordinates(n):
    return torch.arange(n, dtype=torch.float64) / n


def rebuilt(factor):
    return factor.left() * factor.singular_values @ factor.right.T


@pytest.fixture(autouse=True)
def _small_and_uncached(monkeypatch):
    for module in (factor_module, local_module):
        monkeypatch.setattr(module, "MIN_FEATURES", MIN_FEATURES)
        monkeypatch.setattr(module, "MAX_DENSITY", 0.6)
    factor_module.clear_cache()


@pytest.mark.parametrize(("n", "k"), [(7, 7), (20, 6), (6, 20), (1, 5), (5, 1)])
def test_reproduces_any_shape(n, k):
    matrix = torch.randn(n, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    factor = factor_axis(matrix)
    assert factor.rank == min(n, k)
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


def test_second_route_when_divide_and_conquer_fails(monkeypatch):
    matrix = encoders.create("logf", num_features=64)(coordinates(50))
    first = factor_axis(matrix, reuse=False)

    def fails(*_args, **_kwargs):
        raise torch.linalg.LinAlgError("linalg.svd: the algorithm failed to converge")

    monkeypatch.setattr(torch.linalg, "svd", fails)
    second = factor_axis(matrix, reuse=False)
    assert (first.method, second.method) == ("svd", "gesvd")
    torch.testing.assert_close(rebuilt(second), matrix, atol=1e-12, rtol=0)
    assert second.rank == first.rank


def test_a_wrong_svd_is_noticed(monkeypatch):
    right = torch.linalg.svd
    monkeypatch.setattr(torch.linalg, "svd", lambda *a, **k: [part * (1 + 1e-6) for part in right(*a, **k)])
    matrix = torch.eye(6, dtype=torch.float64)
    assert factor_axis(matrix, reuse=False).method == "gesvd"
    monkeypatch.setattr(factor_module.scipy.linalg, "svd", lambda *a, **k: [np.full(n, np.nan) for n in ((6, 6), 6, (6, 6))])
    with pytest.raises(FactorisationError, match="no SVD reproduces"):
        factor_axis(matrix, reuse=False)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_refuses_features_that_are_not_finite(bad):
    matrix = torch.ones(4, 3)
    matrix[1, 2] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        factor_axis(matrix)
    wide = torch.eye(MIN_FEATURES)
    wide[3, 3] = bad
    with pytest.raises(InputError, match="NaN or infinite"):
        factor_axis(LocalMatrix.from_dense(wide))


@pytest.mark.parametrize("bad", [torch.ones(3), torch.ones(0, 3), torch.ones(3, 3, dtype=torch.int64)])
def test_refuses_what_is_no_matrix(bad):
    with pytest.raises(InputError, match=r"shape \(N, K\)"):
        factor_axis(bad)


def test_reuses_equal_features_and_forgets_the_oldest(monkeypatch):
    psi = encoders.create("gau", num_features=16)(coordinates(20))
    first = factor_axis(psi)
    assert factor_axis(psi.clone()) is first
    assert factor_axis(psi.float()) is not first  # rounded: other features
    assert factor_axis(psi, reuse=False) is not first
    monkeypatch.setattr(factor_module, "CACHE_BYTES", first.nbytes())
    factor_axis(psi + 1)
    assert factor_axis(psi) is not first


# -- local matrices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPACT)
def test_local_matrices_multiply_as_dense_ones(name):
    psi = encoders.create(name, num_features=MIN_FEATURES)(coordinates(220))
    local = encode_axis(encoders.create(name, num_features=MIN_FEATURES), coordinates(220))
    assert isinstance(local, LocalMatrix)
    assert local.density < 0.6
    torch.testing.assert_close(local.dense(), psi, atol=1e-9, rtol=0)
    generator = torch.Generator().manual_seed(0)
    for axis in (0, 1, 2):
        shape = [2, 3, 4]
        x = torch.randn(*shape[:axis], MIN_FEATURES, *shape[axis + 1 :], dtype=torch.float64, generator=generator)
        y = torch.randn(*shape[:axis], 220, *shape[axis + 1 :], dtype=torch.float64, generator=generator)
        torch.testing.assert_close(local.product(x, axis), (x.movedim(axis, -1) @ local.dense().T).movedim(-1, axis))
        expected = (y.movedim(axis, -1) @ local.dense()).movedim(-1, axis)
        torch.testing.assert_close(local.transposed_product(y, axis), expected)
    torch.testing.assert_close(local.gram(), local.dense().T @ local.dense())
    torch.testing.assert_close(local.squares(), local.dense().square().sum())


def test_rows_of_a_local_matrix():
    local = LocalMatrix.from_dense(encoders.create("tri", num_features=100)(coordinates(300)))
    for start, stop in [(0, 300), (7, 8), (40, 170), (299, 300), (5, 5)]:
        part = local.rows(start, stop)
        assert torch.equal(part.dense(), local.dense()[start:stop])
        first, trimmed = part.trimmed()
        inside = slice(first, first + trimmed.shape[1])
        assert torch.equal(trimmed.dense(), local.dense()[start:stop, inside])
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        products(x.T.contiguous(), [local.rows(10, 20)]), mode_products(x.T, [local.dense()[10:20].float()])
    )
    with pytest.raises(InputError, match="needs 100 entries"):
        local.product(torch.zeros(99), 0)


def test_dense_features_stay_dense():
    assert isinstance(encode_axis(encoders.create("rff", num_features=MIN_FEATURES), coordinates(20)), torch.Tensor)
    assert isinstance(encode_axis(encoders.create("gau", num_features=64), coordinates(20)), torch.Tensor)
    gau = encoders.create("gau", num_features=MIN_FEATURES)
    assert isinstance(encode_axis(gau, coordinates(200), compact=False), torch.Tensor)
    wide = encoders.create("gau", num_features=MIN_FEATURES, sigma=0.2)
    assert isinstance(encode_axis(wide, coordinates(200)), torch.Tensor)


@pytest.mark.parametrize("name", ["gau", "tri", "keys", "bspline"])
def test_local_factorisation_equals_the_svd(name):
    local = encode_axis(encoders.create(name, num_features=MIN_FEATURES), coordinates(220))
    fast, exact = factor_axis(local), factor_axis(local, compact=False)
    assert (fast.method, exact.method) == ("gram", "svd")
    torch.testing.assert_close(fast.singular_values, exact.singular_values, rtol=1e-9, atol=0)
    assert fast.mean_diagonal == pytest.approx(exact.mean_diagonal)
    torch.testing.assert_close(rebuilt(fast), rebuilt(exact), atol=1e-9, rtol=0)
    identity = torch.eye(fast.rank, dtype=torch.float64)
    torch.testing.assert_close(fast.left().T @ fast.left(), identity, atol=1e-9, rtol=0)


@pytest.mark.parametrize(
    ("encoder", "n"),
    [({"name": "gau", "sigma": 3 / MIN_FEATURES}, 220), ({"name": "tri"}, 130), ({"name": "rect", "sigma": 1e-6}, 168)],
)
def test_badly_conditioned_local_features_go_through_the_svd(encoder, n):
    local = encode_axis(encoders.resolve({**encoder, "num_features": MIN_FEATURES}), coordinates(n))
    assert isinstance(local, LocalMatrix)
    factor = factor_axis(local)
    assert factor.method == "svd"
    assert factor.rank == np.linalg.matrix_rank(local.dense().numpy())

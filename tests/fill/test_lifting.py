"""Multi-resolution transforms of one axis against their own dense matrices and PyWavelets."""

import sys

import numpy as np
import pytest
import pywt
import scipy.sparse
import torch

from pe_fill.sparse.lifting import LIFTINGS, lifting

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 13, 32, 97]
FILTERS = {"9/7": "bior4.4", "5/3": "bior2.2", "haar": "haar"}

names = pytest.mark.parametrize("name", LIFTINGS)


def matrix(name, n):
    return lifting(name).forward_all(torch.eye(n, dtype=torch.float64), (0,))


@names
@pytest.mark.parametrize("n", SIZES)
def test_an_axis_is_multiplied_by_an_invertible_matrix(name, n):
    transform, dense = lifting(name), matrix(name, n)
    x = torch.randn(3, n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    expected = torch.einsum("ij,bjc->bic", dense, x)
    torch.testing.assert_close(transform.forward_all(x, (1,)), expected)
    torch.testing.assert_close(transform.forward_all(x.movedim(1, -1), (2,)), expected.movedim(1, -1))
    torch.testing.assert_close(transform.forward_all(x.movedim(1, 0), (0,)), expected.movedim(1, 0))
    wide = x.repeat(1, 1, 50)  # another layout inside
    torch.testing.assert_close(transform.forward_all(wide, (1,)), expected.repeat(1, 1, 50))
    torch.testing.assert_close(transform.inverse_all(expected, (1,)), x, atol=1e-13, rtol=0)
    torch.testing.assert_close(transform.synthesis_norms(n), torch.linalg.inv(dense).norm(dim=0))
    torch.testing.assert_close(transform.analysis_norms(n), dense.norm(dim=1))
    parts = transform.levels(n)
    assert [part.start for part in parts] == [0, *[part.stop for part in parts[:-1]]]
    assert parts[-1].stop == n


@names
def test_several_axes_are_a_kronecker_product(name):
    transform = lifting(name)
    x = torch.randn(2, 5, 6, 7, generator=torch.Generator().manual_seed(0))
    y = transform.forward_all(x, (1, 2, 3))
    kron = torch.kron(torch.kron(matrix(name, 5), matrix(name, 6)), matrix(name, 7)).float()
    torch.testing.assert_close(y.flatten(1), x.flatten(1) @ kron.T, atol=1e-5, rtol=0)
    assert y.dtype == torch.float32
    torch.testing.assert_close(transform.inverse_all(y, (1, 2, 3)), x)


@names
def test_norms_of_synthesis_vectors_below_features(name):
    features = torch.rand(40, 21, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (features @ torch.linalg.inv(matrix(name, 21))).norm(dim=0)
    gram = scipy.sparse.csr_matrix((features.T @ features).numpy())
    torch.testing.assert_close(lifting(name).synthesis_norms(21, gram), expected)


@names
def test_dyadic_sizes_have_the_coefficients_of_pywavelets(name):
    n, first = 256, {"9/7": 2, "5/3": 1, "haar": 0}[name]
    x = np.random.default_rng(0).standard_normal(n)
    y = lifting(name).forward_all(torch.from_numpy(x), (0,)).numpy()
    coarse, *details = (y[level] for level in lifting(name).levels(n))
    for ours in reversed(details):
        # ends are mirrored about the last entry in both; PyWavelets adds coefficients that it extended past them
        x, theirs = (part[first : first + len(ours)] for part in pywt.dwt(x, FILTERS[name], mode="reflect"))
        np.testing.assert_allclose(ours, -theirs, atol=1e-10)
    np.testing.assert_allclose(coarse, x, atol=1e-10)


@names
def test_norms_of_long_axes_are_those_of_their_middle(name, monkeypatch):
    exact = lifting(name).synthesis_norms(3000)
    monkeypatch.setattr(sys.modules["pe_fill.sparse.lifting"], "LONG", 1024)
    found = lifting(name).synthesis_norms(3000)
    for part in lifting(name).levels(3000):
        middle = (part.start + part.stop) // 2
        few = part.stop - part.start < 16  # both ends matter there
        torch.testing.assert_close(found[middle], exact[middle], rtol=0.15 if few else 1e-3, atol=0)

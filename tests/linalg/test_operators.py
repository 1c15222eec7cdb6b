"""Dense and banded matrices, and products along axes against dense Kronecker products, in float64."""

from __future__ import annotations

from functools import reduce
from itertools import permutations

import numpy as np
import pytest
import torch
from draws import coordinates
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.linalg import (
    Banded,
    Dense,
    Identity,
    contraction_order,
    encode_axis,
    factor_axis,
    mode_product,
    mode_products,
    rowwise_products,
)
from pe_lightning.linalg import operators as module

FEATURES = 160
"""In these tests, features of so many columns may be banded: small enough to compare with dense ones."""


def random(*shape: int) -> Tensor:
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
        torch.testing.assert_close(operator.matvec(x, axis), (x.movedim(axis, -1) @ matrix.T).movedim(-1, axis))
        torch.testing.assert_close(operator.rmatvec(y, axis), (y.movedim(axis, -1) @ matrix).movedim(-1, axis))
    assert operator.shape == matrix.shape
    if isinstance(operator, Banded):
        assert sum(band.values.numel() for band in operator.bands) < 0.6 * matrix.numel()
        torch.testing.assert_close(operator.gram(), matrix.T @ matrix)
    single = operator.to(torch.float32)
    assert single.dtype == single.matvec(x).dtype == torch.float32
    for start, stop in [(0, 220), (7, 8), (40, 170), (219, 220), (5, 5)]:
        part = operator.rows(start, stop)
        assert torch.equal(part.dense(), matrix[start:stop])
        first, trimmed = part.trimmed()
        assert torch.equal(trimmed.dense(), matrix[start:stop, first : first + trimmed.shape[1]])


# -- products ---------------------------------------------------------------------------------------------------------

SIZES = [
    # K per axis, N per axis
    ((3,), (5,)),
    ((3, 4), (5, 2)),
    ((2, 5, 3), (4, 2, 6)),
    ((2, 3, 2, 4), (3, 2, 5, 1)),
]
every_size = pytest.mark.parametrize(("sizes_in", "sizes_out"), SIZES, ids=lambda sizes: "x".join(map(str, sizes)))


def matrices(sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> list[Tensor]:
    return [random(n, k) for n, k in zip(sizes_out, sizes_in, strict=True)]


@every_size
@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (0,)])
def test_products_along_axes_are_kronecker_products(
    sizes_in: tuple[int, ...], sizes_out: tuple[int, ...], batch: tuple[int, ...]
) -> None:
    x, factors = random(*batch, *sizes_in), matrices(sizes_in, sizes_out)
    result = mode_products(x, factors)
    assert result.shape == (*batch, *sizes_out)
    expected = x.flatten(len(batch)) @ reduce(torch.kron, factors).T
    torch.testing.assert_close(result.flatten(len(batch)), expected, rtol=1e-12, atol=1e-12)
    points = [random(7, k) for k in sizes_in]
    rows = torch.stack([reduce(torch.kron, [factor[p] for factor in points]) for p in range(7)])
    if 0 not in batch:
        expected = x.flatten(len(batch)) @ rows.T
        torch.testing.assert_close(rowwise_products(x, points), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("sizes_in", "sizes_out"), SIZES[:3])
def test_gradients(sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> None:
    x = random(2, *sizes_in).requires_grad_()
    factors = [matrix.requires_grad_() for matrix in matrices(sizes_in, sizes_out)]
    assert torch.autograd.gradcheck(lambda x, *factors: mode_products(x, factors), (x, *factors))
    rows = [random(3, k).requires_grad_() for k in sizes_in]
    assert torch.autograd.gradcheck(lambda x, *rows: rowwise_products(x, rows), (x, *rows))
    assert torch.autograd.gradgradcheck(lambda x, *rows: rowwise_products(x, rows), (x, *rows))


# -- the order of the axes --------------------------------------------------------------------------------------------


def cost(order: tuple[int, ...], sizes_in: tuple[int, ...], sizes_out: tuple[int, ...]) -> int:
    """Multiplications, counted one product after another."""
    sizes, total = list(sizes_in), 0
    for axis in order:
        total += int(np.prod(sizes)) * sizes_out[axis]
        sizes[axis] = sizes_out[axis]
    return total


@pytest.mark.parametrize("axes", [1, 2, 4, 5])
def test_the_cheapest_order(axes: int) -> None:
    generator = np.random.default_rng(axes)
    for _ in range(40):
        sizes_in, sizes_out = (tuple(generator.integers(1, 40, axes).tolist()) for _ in range(2))
        order = contraction_order(sizes_in, sizes_out)
        cheapest = min(cost(other, sizes_in, sizes_out) for other in permutations(range(axes)))
        assert cost(order, sizes_in, sizes_out) == cheapest, (sizes_in, sizes_out)
    assert contraction_order((8, 8, 8), (4, 4, 4)) == (2, 1, 0), "the last axis first at equal cost"


@pytest.mark.parametrize("n", [31, FEATURES + 13])  # below and above the size from which features may be banded
@pytest.mark.parametrize("name", ["tri", "keys"])
def test_interpolating_kernels_at_the_samples_are_the_identity(name: str, n: int) -> None:
    made = encode_axis(encoders.create(name, num_features=n), coordinates(n))
    assert isinstance(made, Identity)
    assert isinstance(encode_axis(encoders.create(name, num_features=n), coordinates(n).float()), Identity)
    assert not isinstance(encode_axis(encoders.create(name, num_features=n), coordinates(n) + 0.1 / n), Identity)
    part, x, y = made.rows(3, 20), random(2, n, 3), random(2, 17, 3)
    torch.testing.assert_close(part.dense(), torch.eye(n, dtype=torch.float64)[3:20])
    torch.testing.assert_close(part.matvec(x, 1), mode_product(x, part.dense(), 1))
    torch.testing.assert_close(part.rmatvec(y, 1), mode_product(y, part.dense().T, 1))
    first, square = part.trimmed()
    assert (first, square.shape) == (3, (17, 17))
    assert square.matvec(y, 1).data_ptr() != y.data_ptr()  # callers write into the result
    assert part.to(torch.float32).matvec(x, 1).dtype == torch.float32
    factor = factor_axis(made)
    assert factor.method == "identity"
    torch.testing.assert_close(factor.left() * factor.singular_values @ factor.right.T, made.dense())

"""Tables that are looked up: gathered at once, term by term, and as products with sparse matrices."""

from __future__ import annotations

import functools
import itertools
import operator

import pytest
import torch
from learned_encoders import REGISTERED, train
from torch import Tensor

from pe_lightning.encoders import Encoder, create, lookups, resolve
from pe_lightning.encoders.lookups import sparse_lookups
from pe_lightning.encoders.tables import PRIMES, Grids


def interpolated(encoder: Grids, x: Tensor) -> Tensor:
    """The features of a grid: a level, a corner, an operation after another."""
    features = []
    tables = encoder.table.to(x.dtype).split(encoder.sizes)
    for table, cells, hashed in zip(tables, encoder.cells, encoder.hashed, strict=True):
        positions = [x[:, axis] * n + 0.5 for axis, n in enumerate(cells)]
        lower = [position.long().clamp(0, n) for position, n in zip(positions, cells, strict=True)]
        total = torch.zeros(())
        for corner in itertools.product((0, 1), repeat=len(cells)):
            nodes = [left + side for left, side in zip(lower, corner, strict=True)]
            if hashed:
                row = functools.reduce(operator.xor, (n * p for n, p in zip(nodes, PRIMES, strict=False))) % len(table)
            else:
                row = functools.reduce(lambda row, pair: row * (pair[1] + 2) + pair[0], zip(nodes, cells, strict=True), 0)
            sides = zip(positions, lower, corner, strict=True)
            share = functools.reduce(operator.mul, ((p - left) if side else 1 - (p - left) for p, left, side in sides))
            total = total + share[:, None] * table[row]
        features.append(total)
    return torch.cat(features, -1)


def from_matrices(encoder: Encoder, x: Tensor) -> Tensor:
    (found,) = sparse_lookups(lambda points: [encoder.lookup(points)], x)
    return encoder.from_lookup(found)


def assert_equal_to_rounding(features: Tensor, expected: Tensor, name: str = "") -> None:
    """Sums of few terms in any order, with or without fused multiplications."""
    error = (features - expected).abs().max()
    assert error <= 4 * torch.finfo(features.dtype).eps * expected.abs().max(), name


def gradient(encoder: Encoder, features: Tensor) -> Tensor:
    cotangent = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=features.dtype)
    return torch.autograd.grad((features * cotangent).sum(), encoder.get_parameter("table"), retain_graph=True)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("table_size", [32, 50])
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_all_routes_are_the_interpolation(
    num_axes: int, table_size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a few units of rounding; dense and hashed levels, more points than are found at a time."""
    monkeypatch.setattr(lookups, "POINTS_AT_ONCE", 64)
    finest = {1: 60, 2: 8, 3: 5}[num_axes]
    encoder = train(create("hash", num_levels=3, finest=finest, table_size=table_size, num_axes=num_axes))
    assert isinstance(encoder, Grids)
    assert set(encoder.hashed) == {False, True}
    x = torch.rand(200, num_axes, generator=torch.Generator().manual_seed(0), dtype=dtype)
    expected, coords = interpolated(encoder, x), x if num_axes > 1 else x[:, 0]
    routes = {"at once": encoder(coords), "matrices": from_matrices(encoder, coords)}
    monkeypatch.setattr(lookups, "MAX_VALUES_AT_ONCE", 0)
    routes["by terms"] = encoder(coords)
    for name, features in routes.items():
        assert features.dtype == dtype
        assert_equal_to_rounding(features, expected, name)
        torch.testing.assert_close(gradient(encoder, features), gradient(encoder, expected))


TABLES = [key for key, description in REGISTERED.items() if hasattr(resolve(description), "table")]


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("key", TABLES)
def test_every_table_is_looked_up_alike(key: str, num_axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = train(resolve({**REGISTERED[key], "num_axes": num_axes}))
    x = torch.rand((100, num_axes) if num_axes > 1 else (100,), generator=torch.Generator().manual_seed(0))
    at_once, found = encoder(x), from_matrices(encoder, x)
    monkeypatch.setattr(lookups, "MAX_VALUES_AT_ONCE", 0)
    by_terms = encoder(x)
    for features in (at_once, found):
        assert_equal_to_rounding(features, by_terms)
        torch.testing.assert_close(gradient(encoder, features), gradient(encoder, by_terms))

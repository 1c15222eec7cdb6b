"""One long axis: its features as a matrix that is never dense, and the banded solver, against the dense routes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from draws import numbers

from pe_lightning import encoders
from pe_lightning.encoders import local
from pe_lightning.solvers import solve_blocks, solve_grid, solve_points

NAMES = ["gau", "tri", "laplace", "rect", "impulse", "keys", "bspline"]


def long(monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Which axes count as long: those of so many features."""
    monkeypatch.setattr(local, "MIN_FEATURES", least)
    monkeypatch.setattr(local, "MAX_SHARE", 1.0)


@pytest.mark.parametrize("padding", [0, 2, "edge"])
@pytest.mark.parametrize("name", NAMES)
def test_a_local_matrix_is_the_encoder_s(name: str, padding: Any) -> None:
    encoder = encoders.create(name, num_features=120, padding=padding)
    ties = torch.arange(240, dtype=torch.float64) / 240
    crowded = torch.cat([numbers(20) * 1e-3, ties.new_tensor([0.0, 0.999]), numbers(30, seed=1)])
    for x in (ties, crowded):
        features, expected = local.local_features(encoder, x), encoder(x)
        torch.testing.assert_close(features.dense(), expected, rtol=0, atol=2e-9)
        values = numbers(2, len(x), 3)
        adjoint = torch.einsum("pk,spc->skc", expected, values)
        torch.testing.assert_close(features.rmatvec(values, 1), adjoint, rtol=0, atol=1e-7)
        width = local.bandwidth(encoder)
        band, gram = features.gram(width), expected.T @ expected
        for d in range(width + 1):
            torch.testing.assert_close(band[d, : len(gram) - d], gram.diagonal(-d), rtol=0, atol=1e-7)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):  # the latter takes the route of GPUs
            rounded = local.local_features(encoder, x, dtype)
            found = rounded.rmatvec(values, 1).double()
            torch.testing.assert_close(found, adjoint, rtol=tolerance, atol=tolerance * float(adjoint.abs().max()))
            products, scale = rounded.matvec(adjoint, 1).double(), float(adjoint.abs().max())
            wanted = torch.einsum("pk,skc->spc", expected, adjoint)
            torch.testing.assert_close(products, wanted, rtol=tolerance, atol=tolerance * scale)
    weight, upstream = numbers(1, 120 + (4 if padding == 2 else 0)).requires_grad_(), numbers(1, 9, seed=2)
    # the product is linear in the weights, so that its gradient is the product with the transpose
    (found,) = torch.autograd.grad((local.local_features(encoder, crowded[:9]).matvec(weight) * upstream).sum(), weight)
    torch.testing.assert_close(found, upstream @ encoder(crowded[:9]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("ridge", [1e-2, 1e-6, 0.0])
@pytest.mark.parametrize("name", ["gau", "laplace", "bspline"])
@pytest.mark.parametrize("count", [150, 260])
def test_a_line_is_solved_as_a_grid(name: str, count: int, ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer and more features than samples; without a ridge the latter is the solution of least norm."""
    x = torch.arange(400, dtype=torch.float64) / 400
    values = numbers(2, 200, 2)
    encoder = {"name": name, "num_features": count}
    expected = solve_grid(values, encoder, [x[::2]], ridge=ridge)
    assert expected.solver == "grid"
    long(monkeypatch, 100)
    found = solve_grid(values, encoder, [x[::2]], ridge=ridge)
    assert found.solver == "line"
    torch.testing.assert_close(found.weight, expected.weight, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.predict([x]), expected.predict([x]), rtol=0, atol=1e-4 if ridge == 0 else 1e-7)
    torch.testing.assert_close(found.at(x[7:80, None]), expected.predict([x[7:80]]), rtol=0, atol=1e-4)
    torch.testing.assert_close(found.squared_error, expected.squared_error, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.absolute_ridge, expected.absolute_ridge)
    blocks = [((120,), values[:, 120:]), ((0,), values[:, :120])]
    torch.testing.assert_close(
        solve_blocks(blocks, encoder, [x[::2]], ridge=ridge).weight, found.weight, rtol=1e-5, atol=1e-5
    )


def test_scattered_samples_of_a_line_are_solved_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    x, values, mask = torch.arange(300, dtype=torch.float64) / 300, numbers(2, 300, 2), numbers(2, 300) < 0.3
    values = torch.where(mask[..., None], values, torch.nan)
    options: dict[str, Any] = {"axes": [x], "mask": mask, "ridge": 1e-3}
    encoder = {"name": "laplace", "num_features": 300}
    expected = solve_points(values, encoder, iterations=3000, tolerance=1e-13, **options)
    long(monkeypatch, 100)
    found = solve_points(values, encoder, **options)
    assert (expected.solver, found.solver) == ("points", "line")
    torch.testing.assert_close(found.predict([x]), expected.predict([x]), rtol=0, atol=1e-6)
    assert found.count.tolist() == expected.count.tolist()

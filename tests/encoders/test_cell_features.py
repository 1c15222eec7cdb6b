"""Features averaged over cells, against means of the features of many points."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from learned_encoders import REGISTERED, takes, train
from torch import Tensor

from pe_lightning.encoders import Encoder, cell_means, create, is_local, local_features, names, resolve
from pe_lightning.encoders.cells import resized, with_cells

POINTS = {1: 4000, 2: 400}
"""Points of a cell per axis, by number of axes."""
SMALL = {"num_features": 8, "num_levels": 2, "rank": 6, "num_positions": 6, "finest": 6, "cells": 6, "plane_cells": 3}
JUMPS = {"rect", "impulse", "square", "noise"}
"""Encoders whose means of points are known to one point."""
QUADRATURE = {"hash": 0.03, "grid": 0.03, "lines": 0.03, "planes": 0.03, "embed": 0.03}
"""Encoders with kinks that the quadrature does not resolve, and their error relative to the features."""


def cases() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in names():
        few = {key: value for key, value in SMALL.items() if takes(name, key)}
        found.append({"name": name, **few})
        if takes(name, "padding"):
            found += [{"name": name, **few, "padding": padding} for padding in (2, "edge", "wrap")]
        if takes(name, "num_axes"):
            found.append({"name": name, **few, "num_axes": 2})
    trained = [d for d in REGISTERED.values() if d.get("trainable") or d.get("mlp")]
    return [
        *found,
        *trained,
        {"name": "sine", "num_features": 8, "padding": "edge", "offset": 0.7},
        {"name": "square", "num_features": 8, "frequency": 2.3},
        {"name": "lff", "num_features": 8, "num_axes": 2, "groups": 2},
    ]


def mean_of_points(encoder: Encoder, x: Tensor, size: Tensor) -> Tensor:
    """The midpoint rule."""
    count = 60 if encoder.name in QUADRATURE and encoder.num_axes > 1 else POINTS[encoder.num_axes]
    offsets = (torch.arange(count, dtype=x.dtype) + 0.5) / count - 0.5
    if encoder.num_axes == 1:
        return encoder(x[:, None] + size[:, None] * offsets).mean(1)
    return encoder(x[:, None] + size[:, None] * torch.cartesian_prod(offsets, offsets)).mean(1)


@pytest.mark.parametrize("description", cases(), ids=lambda d: ",".join(f"{v}" for v in d.values()))
def test_cells_are_means_of_points(description: dict[str, Any]) -> None:
    name, encoder = description["name"], train(resolve(description)).double()
    x = torch.tensor([0.0, 0.031, 0.4, 0.5, 0.77, 0.969, 1.0], dtype=torch.float64)
    size = torch.tensor([0.01, 0.0625, 0.1, 0.125, 0.3, 0.0625, 0.02], dtype=torch.float64)
    if name in QUADRATURE:
        size = size / 4
    if encoder.num_axes == 2:
        x, size = torch.stack([x, x.flip(0)], -1), torch.stack([size, size.roll(2)], -1)
    cells, expected = encoder.cell(x, size), mean_of_points(encoder, x, size)
    tolerance = QUADRATURE.get(name, 2e-3 if name in JUMPS else 2e-5)
    torch.testing.assert_close(
        cells, expected, rtol=0, atol=tolerance * float(expected.detach().abs().amax().clamp_min(1e-3))
    )
    # one size for all, in single precision, and as an encoder of cells
    single = encoder.float().cell(x.float(), 0.125)
    torch.testing.assert_close(single.double(), encoder.double().cell(x, 0.125), rtol=1e-3, atol=1e-4)
    assert single.dtype == torch.float32
    assert torch.equal(with_cells(encoder, 0.125)(x), encoder.cell(x, 0.125))
    assert torch.equal(with_cells(encoder, 0.125).copy()(x), encoder.cell(x, 0.125))


@pytest.mark.parametrize("name", [name for name in names() if name not in QUADRATURE])
def test_cells_are_differentiable(name: str) -> None:
    encoder = create(name, **({"num_features": 8} if takes(name, "num_features") else {}))
    # an end of the last cell is a shift, unless features jump there
    x = torch.tensor([0.11, 0.4621, 0.7301 if name in JUMPS else 0.73], dtype=torch.float64, requires_grad=True)
    size = torch.tensor([0.09, 0.17, 0.21], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(encoder.cell, (x, size))


def test_means_have_the_support_the_bands_and_the_description_of_their_cells() -> None:
    encoder = create("tri", num_features=1200)
    means, x = with_cells(encoder, 0.01), torch.rand(50, dtype=torch.float64)
    assert (means.support, means.resolved()) == (1 / 1200 + 0.005, encoder.resolved())
    assert is_local(means)
    torch.testing.assert_close(local_features(means, x).dense(), encoder.cell(x, 0.01), rtol=0, atol=1e-12)
    torch.testing.assert_close(resized(means, 3.0)(x), encoder.cell(x, 0.03))
    first, second = cell_means([means, means], [0.02, 0.02])
    assert first is second
    assert torch.equal(first(x), encoder.cell(x, 0.02)), "not means of means"
    assert torch.equal(cell_means([means], [0.0])[0](x), encoder(x))

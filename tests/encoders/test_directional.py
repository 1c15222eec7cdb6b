"""Shifted features along rotated directions: against the papers' four, formulas, integrals and complex encoding."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pe_lightning.encoders import Directional, Samples, create, for_data
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError

POINTS = torch.rand(40, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def coordinate(points: Tensor, degrees: float) -> Tensor:
    """The coordinate along a direction, scaled by what the corners of the unit square have."""
    w = torch.tensor([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))], dtype=torch.float64)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 2) @ w
    return (points @ w - corners.min()) / (corners.max() - corners.min())


@pytest.mark.parametrize(("base", "width"), [("gau", "sigma"), ("tri", "half_width"), ("bspline", None)])
def test_four_directions_are_the_papers(base: str, width: str | None) -> None:
    given = {} if width is None else {"width": 0.05}
    encoding = Simple({"name": "directional", "num_features": 48, "base": base, **given}, 2)
    papers = Simple({"name": base, "num_features": 48, **given}, 2)
    assert (papers.layout, encoding.layout) == ("directions", "joint")
    for each in (encoding, papers):
        each.calibrate(POINTS)
    mine, theirs = (each(POINTS).unflatten(-1, (4, 12)) for each in (encoding, papers))
    assert torch.equal(mine, theirs[:, [0, 2, 1, 3]])
    # the width that the rule gives is that of a direction too
    default = Simple({"name": "directional", "base": base}, 2).encoders[0]
    assert default.num_features == 512
    rule = create(base, num_features=128).resolved().get(width or "")
    assert default.resolved()["base_width"] == rule
    if width is not None:  # and of fewer samples than features
        few = for_data(create("directional", num_features=48, base=base), Samples((12.0,)))
        assert few.resolved()["base_width"] == create(base, num_features=12).resolved()[width]


@pytest.mark.parametrize(("directions", "angles"), [(2, [0, 90]), (6, [0, 30, 60, 90, -60, -30])])
def test_features_are_those_of_rotated_coordinates(directions: int, angles: list[int]) -> None:
    expected = torch.cat([create("laplace", num_features=6)(coordinate(POINTS, angle)) for angle in angles], 1)
    encoder = Directional(6 * directions, "laplace", directions, num_axes=2)
    torch.testing.assert_close(encoder(POINTS), expected, rtol=1e-12, atol=1e-13)
    batch = encoder(POINTS.float().reshape(5, 8, 2))
    torch.testing.assert_close(batch, expected.float().reshape(5, 8, -1), rtol=1e-4, atol=1e-5)


def test_distance_is_the_integral_over_the_shifts() -> None:
    encoder = Directional(16000, "gau", 4, 0.02, num_axes=2)
    x = torch.tensor([0.45003, 0.52001], dtype=torch.float64)
    deltas = torch.tensor([[0.0, 0.0], [0.04, 0.0], [0.0, -0.05], [0.03, 0.03], [0.01, -0.06]], dtype=torch.float64)
    integral = encoder(x + deltas) @ encoder(x) / 4000
    torch.testing.assert_close(encoder.distance(deltas), integral, rtol=1e-6, atol=1e-9)
    assert encoder.distance(deltas.reshape(5, 1, 2)).shape == (5, 1)
    with pytest.raises(NotImplementedError, match="Keys has no closed form"):
        Directional(8, "keys", num_axes=2).distance(deltas)


def test_auto_is_256_per_axis_or_what_divides_below() -> None:
    for arguments, total in (({}, 512), ({"directions": 3}, 510)):
        assert Simple({"name": "directional", **arguments}, 2).num_features == total
        assert Simple({"name": "directional", **arguments}, 1).num_features == 256


@pytest.mark.parametrize(
    ("arguments", "num_axes", "message"),
    [
        ({"num_features": 30}, 2, "a multiple of 4 for 4 directions, got 30; use 28 or 32$"),
        ({"num_features": 3}, 2, "got 3; use 4$"),
        ({"base": "keys", "base_width": 0.1}, 2, "encoder 'keys' has no width, got width=0.1"),
        ({}, 3, "num_axes must be 1 or 2, got 3"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], num_axes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Simple({"name": "directional", **arguments}, num_axes)

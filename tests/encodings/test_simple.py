"""Simple encoding: directions and widths against the formulas of the papers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from learned_encoders import Gained, LearnedGaussian, Table, train
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.encoders import Encoder, Gaussian, Laplace, LinearFourier, RandomFourier
from pe_lightning.encodings import Simple
from pe_lightning.errors import InputError


def points(num_axes: int, count: int = 9) -> Tensor:
    return torch.rand(count, num_axes, dtype=torch.float64, generator=torch.Generator().manual_seed(num_axes))


def side_by_side(encoder: Encoder, *directions: Tensor) -> Tensor:
    return torch.cat([encoder(v) for v in directions], -1)


# -- layouts ----------------------------------------------------------------------------------------------------------


def test_four_directions_of_shifted_encoders() -> None:
    encoding = Simple({"name": "gau", "num_features": 32, "sigma": 0.05}, 2).double()
    coords = points(2)
    x, y = coords.unbind(-1)
    assert (encoding.layout, encoding.num_features) == ("directions", 32)
    expected = side_by_side(Gaussian(8, sigma=0.05), x, y, (x + y) / 2, (x - y + 1) / 2)
    torch.testing.assert_close(encoding(coords), expected, rtol=1e-12, atol=1e-14)
    assert [entry.sigma for entry in Simple({"name": "gau", "num_features": 512}, 2).encoders] == [0.64 / 128] * 4


@pytest.mark.parametrize(("count", "angles"), [(1, [0]), (2, [0, 90]), (6, [0, 90, 30, 60, -60, -30])])
def test_any_number_of_directions_covers_the_square_along_each(count: int, angles: list[int]) -> None:
    encoding = Simple({"name": "laplace", "num_features": 6 * count}, 2, "directions", directions=count).double()
    coords, expected = points(2), []
    for angle in angles:
        w = torch.tensor([math.cos(math.radians(angle)), math.sin(math.radians(angle))], dtype=torch.float64)
        ends = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 2) @ w
        expected.append((coords @ w - ends.min()) / (ends.max() - ends.min()))
    torch.testing.assert_close(encoding(coords), side_by_side(Laplace(6), *expected), rtol=1e-5, atol=1e-6)
    assert Simple("gau", 2, "directions", directions=3).num_features == 510


@pytest.mark.parametrize(
    ("encoder", "num_axes", "layout", "one"),
    [
        ({"name": "linf", "num_features": 24, "sigma": 2.0}, 4, "auto", LinearFourier(6, sigma=2.0)),
        ({"name": "gau", "num_features": 32, "sigma": 0.05}, 2, "axes", Gaussian(16, sigma=0.05)),
        ({"name": "gau", "num_features": 12, "sigma": 0.05}, 3, "auto", Gaussian(4, sigma=0.05)),
        ({"name": "rff", "num_features": 12, "sigma": 2.0}, 3, "axes", RandomFourier(4, sigma=2.0)),
        ("identity", 3, "auto", encoders.create("identity")),
        *[
            ({"name": "rff", "num_features": 10, "sigma": 2.0}, d, "auto", RandomFourier(10, 2.0, num_axes=d))
            for d in (1, 2, 3)
        ],
    ],
)
def test_the_axes_side_by_side_or_together(encoder: Any, num_axes: int, layout: Any, one: Encoder) -> None:
    encoding, coords = Simple(encoder, num_axes, layout).double(), points(num_axes)
    joint = one.joint and layout == "auto"
    directions = [coords if num_axes > 1 else coords[:, 0]] if joint else coords.unbind(-1)
    assert encoding.layout == ("joint" if joint else "axes")
    assert encoding.num_features == one.num_features * len(directions)
    torch.testing.assert_close(encoding(coords), side_by_side(one.double(), *directions), rtol=1e-9, atol=1e-9)


def test_one_encoder_per_direction() -> None:
    mixed = [Gaussian(5), LinearFourier(8)]
    encoding, coords = Simple(mixed, 2).double(), points(2)
    assert (encoding.layout, encoding.num_features) == ("axes", 13)
    torch.testing.assert_close(encoding(coords), torch.cat([mixed[0](coords[:, 0]), mixed[1](coords[:, 1])], -1))
    assert Simple([Gaussian(5)] * 4, 2).layout == "directions"
    assert Simple(["rff", "gau"], 2).layout == "axes"
    assert Simple([RandomFourier(4, num_axes=2)], 2).layout == "joint"
    assert Simple(["rff"], 1).layout == "axes"


@pytest.mark.parametrize(("encoder", "num_axes"), [(LearnedGaussian(9, 0.1), 3), (Gained(8), 2), (Table(8), 1)])
def test_directions_are_copies_that_have_learned_the_same(encoder: Encoder, num_axes: int) -> None:
    directions = list(Simple(train(encoder), num_axes).encoders)
    assert len({id(entry) for entry in [*directions, encoder]}) == len(directions) + 1
    state = dict(encoder.named_parameters()) | dict(encoder.named_buffers())
    assert all(torch.equal(getattr(entry, key), value) for entry in directions for key, value in state.items())


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "num_axes", "total", "advice"),
    [
        ("gau", 2, 30, 28),
        ("gau", 2, 3, 4),
        ("linf", 3, 256, 258),  # 255 would be 85 each, and odd
    ],
)
def test_a_width_that_does_not_divide(encoder: str, num_axes: int, total: int, advice: int) -> None:
    with pytest.raises(InputError) as caught:
        Simple({"name": encoder, "num_features": total}, num_axes)
    assert f"num_features={total} does not divide among" in str(caught.value)
    assert str(caught.value).endswith(f"use {advice}")
    assert Simple({"name": encoder, "num_features": advice}, num_axes).num_features == advice


@pytest.mark.parametrize(
    ("encoder", "num_axes", "layout", "message"),
    [
        ("gau", 3, "directions", "'directions' is for 2 axes, the signal has 3; use layout 'axes' or 'auto'"),
        ("gau", 2, "joint", "encoder 'gau' encodes one axis at a time; use layout 'axes' or 'auto'"),
        ("gau", 2, "axis", "unknown layout 'axis'"),
        (["gau", "tri", "linf"], 2, "auto", "3 encoders were given for 2 directions; give one, or one per direction"),
        ([], 2, "auto", "an empty list of encoders"),
        ("directional", 2, "auto", "'directional' is a layout now: .*--model.layout directions --model.directions 8"),
        ({"name": "rff", "num_axes": 3}, 2, "auto", "needs encoders with num_axes=2, 'rff' has num_axes=3"),
    ],
)
def test_layouts_that_do_not_exist(encoder: Any, num_axes: int, layout: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Simple(encoder, num_axes, layout)
    with pytest.raises(InputError, match="layout 'axes' has no number of directions, got 8"):
        Simple("linf", 2, directions=8)


# -- grids and scaling ------------------------------------------------------------------------------------------------


def test_scales() -> None:
    coords = points(2, 20)
    grid = [torch.arange(n) / n for n in (5, 4)]
    encoding = Simple("gau", 2)
    encoding.calibrate(torch.cartesian_prod(*grid))
    assert encoding(torch.cartesian_prod(*grid)).norm(dim=-1).max().item() == pytest.approx(1, abs=1e-6)
    raw = Simple({"name": "gau", "num_features": 16}, 2, normalize=False)
    table = Simple([Table(8), LearnedGaussian(8)], 2)
    for encoding in (raw, table):  # the table starts at 1e-4: scaled up to a row norm of 1, training would explode
        encoding.calibrate(coords)
        assert encoding.scale == 1
    scaled, other = (Simple({"name": "gau", "num_features": 16}, 2) for _ in range(2))
    scaled.calibrate(coords)
    other.load_state_dict(scaled.state_dict())
    assert torch.equal(other(coords), scaled(coords))

"""Simple encoding: directions and widths against the formulas of the papers."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from pe_lightning import encoders
from pe_lightning.encoders import Encoder, Gaussian, LinearFourier, RandomFourier
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
    assert encoding.layout == "directions"
    assert encoding.num_features == 32
    expected = side_by_side(Gaussian(8, sigma=0.05), x, y, (x + y) / 2, (x - y + 1) / 2)
    torch.testing.assert_close(encoding(coords), expected, rtol=1e-12, atol=1e-14)


def test_directions_stay_in_the_unit_interval() -> None:
    encoding = Simple("gau", 2)
    corners = torch.cartesian_prod(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))
    projected = corners @ encoding.directions[:, :-1].T + encoding.directions[:, -1]
    assert projected.min() == 0
    assert projected.max() == 1
    assert projected.tolist() == [[0, 0, 0, 0.5], [0, 1, 0.5, 0], [1, 0, 0.5, 1], [1, 1, 1, 0.5]]


@pytest.mark.parametrize("num_axes", [1, 2, 3, 4])
def test_axes_of_fourier_encoders(num_axes: int) -> None:
    encoding = Simple({"name": "linf", "num_features": 24, "sigma": 2.0}, num_axes).double()
    coords = points(num_axes)
    assert encoding.layout == "axes"
    expected = side_by_side(LinearFourier(24 // num_axes, sigma=2.0), *coords.unbind(-1))
    torch.testing.assert_close(encoding(coords), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_axes", [1, 3])
def test_shifted_encoders_encode_axes_unless_there_are_two(num_axes: int) -> None:
    encoding = Simple({"name": "tri", "num_features": 12}, num_axes)
    assert encoding.layout == "axes"
    assert len(encoding.encoders) == num_axes


def test_two_directions_of_a_shifted_encoder() -> None:
    encoding = Simple({"name": "gau", "num_features": 32, "sigma": 0.05}, 2, layout="axes").double()
    coords = points(2)
    expected = side_by_side(Gaussian(16, sigma=0.05), *coords.unbind(-1))
    torch.testing.assert_close(encoding(coords), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_rff_has_joint_frequencies(num_axes: int) -> None:
    encoding = Simple({"name": "rff", "num_features": 10, "sigma": 2.0, "seed": 4}, num_axes).double()
    coords = points(num_axes)
    assert encoding.layout == "joint"
    assert encoding.num_features == 10
    assert len(encoding.encoders) == 1
    frequencies = RandomFourier(10, sigma=2.0, seed=4, num_axes=num_axes).frequencies.double()
    assert frequencies.shape == (5, num_axes)
    angle = 2 * math.pi * coords @ frequencies.T
    torch.testing.assert_close(encoding(coords), torch.cat([angle.cos(), angle.sin()], -1), rtol=1e-9, atol=1e-9)


def test_rff_of_the_axes_apart() -> None:
    encoding = Simple({"name": "rff", "num_features": 12, "sigma": 2.0}, 3, layout="axes").double()
    coords = points(3)
    expected = side_by_side(RandomFourier(4, sigma=2.0).double(), *coords.unbind(-1))
    torch.testing.assert_close(encoding(coords), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "per_axis"), [("identity", 1), ("basic", 2)])
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_encoders_without_a_width(name: str, per_axis: int, num_axes: int) -> None:
    encoding = Simple(name, num_axes).double()
    coords = points(num_axes)
    assert encoding.num_features == per_axis * num_axes
    torch.testing.assert_close(encoding(coords), side_by_side(encoders.create(name), *coords.unbind(-1)))


def test_defaults_follow_the_width_of_a_direction() -> None:
    assert [part.sigma for part in Simple({"name": "gau", "num_features": 512}, 2).encoders] == [0.64 / 128] * 4


def test_one_encoder_per_direction() -> None:
    mixed = [Gaussian(5), LinearFourier(8)]
    encoding = Simple(mixed, 2).double()
    coords = points(2)
    assert (encoding.layout, encoding.num_features) == ("axes", 13)
    torch.testing.assert_close(encoding(coords), torch.cat([mixed[0](coords[:, 0]), mixed[1](coords[:, 1])], -1))


def test_the_number_of_encoders_decides_between_axes_and_directions() -> None:
    assert Simple([Gaussian(5)] * 2, 2).layout == "axes"
    assert Simple([Gaussian(5)] * 4, 2).layout == "directions"
    assert Simple(["rff", "gau"], 2).layout == "axes"
    assert Simple([RandomFourier(4, num_axes=2)], 2).layout == "joint"
    assert Simple(["rff"], 1).layout == "axes"


def test_directions_have_encoders_of_their_own() -> None:
    first, *others = Simple("gau", 2).encoders
    assert all(other is not first for other in others)


# -- widths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoder", "num_axes", "total", "advice"),
    [
        ("gau", 2, 30, "28 or 32"),
        ("gau", 3, 256, "255 or 258"),
        ("gau", 2, 3, "4"),
        ("linf", 3, 256, "252 or 258"),  # 255 would be 85 each, and odd
        ("linf", 2, 258, "256 or 260"),
        ("linf", 3, 2, "6"),
    ],
)
def test_a_width_that_does_not_divide(encoder: str, num_axes: int, total: int, advice: str) -> None:
    with pytest.raises(InputError) as caught:
        Simple({"name": encoder, "num_features": total}, num_axes)
    count = 4 if (encoder, num_axes) == ("gau", 2) else num_axes
    message = f"'{encoder}': num_features={total} does not divide among {count} directions; use {advice}"
    assert str(caught.value) == message
    for number in advice.split(" or "):  # and what it says to use works
        assert Simple({"name": encoder, "num_features": int(number)}, num_axes).num_features == int(number)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_directions_are_for_two_axes() -> None:
    with pytest.raises(InputError, match="'directions' is for 2 axes, the signal has 3; use layout 'axes' or 'auto'"):
        Simple("gau", 3, layout="directions")


def test_joint_is_for_joint_encoders() -> None:
    with pytest.raises(InputError, match="encoder 'gau' encodes one axis at a time; use layout 'axes' or 'auto'"):
        Simple("gau", 2, layout="joint")


def test_an_unknown_layout() -> None:
    with pytest.raises(InputError, match="unknown layout 'axis'; allowed: auto, axes, directions, joint"):
        Simple("gau", 2, layout="axis")  # type: ignore[arg-type]


def test_another_number_of_encoders_is_refused() -> None:
    with pytest.raises(InputError, match="3 encoders were given for 2 directions; give one, or one per direction"):
        Simple(["gau", "tri", "linf"], 2)
    with pytest.raises(InputError, match="an empty list of encoders"):
        Simple([], 2)


def test_encoders_of_another_number_of_axes_are_refused() -> None:
    with pytest.raises(InputError, match="'joint' of 2 axes needs encoders with num_axes=2, 'rff' has num_axes=3"):
        Simple({"name": "rff", "num_axes": 3}, 2)
    with pytest.raises(InputError, match="'axes' of 2 axes needs encoders with num_axes=1, 'rff' has num_axes=2"):
        Simple({"name": "rff", "num_axes": 2}, 2, layout="axes")
    with pytest.raises(InputError, match="'joint' of 2 axes needs encoders with num_axes=2, 'rff' has num_axes=1"):
        Simple(["rff"], 2, layout="joint")


def test_coordinates_of_another_shape_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\).*got \(4, 3\)"):
        Simple("gau", 2)(torch.rand(4, 3))
    with pytest.raises(InputError, match="has 2 axes, got 3 coordinate vectors"):
        Simple("gau", 2).grid([torch.rand(3)] * 3)
    with pytest.raises(InputError, match=r"floating-point.*torch\.int64"):
        Simple("identity", 2)(torch.tensor([[3, 7]]))


# -- grids and scaling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_a_grid_is_its_points(num_axes: int) -> None:
    encoding = Simple({"name": "gau", "num_features": 12}, num_axes).double()
    axes = [torch.rand(n, dtype=torch.float64) for n in (4, 3, 2)[:num_axes]]
    coords = torch.cartesian_prod(*axes).reshape(-1, num_axes)
    encoding.calibrate(coords)
    grid = encoding.grid(axes)
    assert grid.shape == (*[len(x) for x in axes], 12)
    assert torch.equal(grid.reshape(-1, 12), encoding(coords))


@pytest.mark.parametrize("name", ["gau", "rect"])
def test_calibrate_makes_the_largest_row_norm_one(name: str) -> None:
    encoding = Simple({"name": name, "num_features": 16}, 2).double()
    coords = points(2, 50).reshape(5, 10, 2)
    encoding.calibrate(coords)
    assert encoding(coords).norm(dim=-1).max().item() == pytest.approx(1, abs=1e-12)


def test_calibrate_in_turns_and_with_points_without_features() -> None:
    whole, in_turns = (Simple({"name": "gau", "num_features": 8, "sigma": 0.01}, 2).double() for _ in range(2))
    # one point at the foot of a bump, the others out of reach of any
    coords = torch.tensor([[0.03, 0.25], *[[9.0, 5.0]] * 5], dtype=torch.float64)
    assert whole(coords[1:]).abs().max() == 0
    whole.calibrate(coords)
    in_turns.calibrate(coords, chunk=2)
    assert whole.scale.item() == in_turns.scale.item() > 1


def test_without_normalize_features_are_raw() -> None:
    encoding = Simple({"name": "gau", "num_features": 16}, 2, normalize=False)
    encoding.calibrate(torch.rand(20, 2))
    assert encoding.scale.item() == 1


def test_scale_is_part_of_the_state() -> None:
    encoding, other = (Simple({"name": "gau", "num_features": 16}, 2) for _ in range(2))
    coords = torch.rand(20, 2)
    encoding.calibrate(coords)
    other.load_state_dict(encoding.state_dict())
    assert torch.equal(other(coords), encoding(coords))


def test_derivatives_with_respect_to_coordinates() -> None:
    encoding: nn.Module = Simple({"name": "gau", "num_features": 16, "sigma": 0.2}, 2).double()
    coords = points(2, 3).reshape(3, 1, 2).requires_grad_()
    assert torch.autograd.gradcheck(encoding, (coords,))


@pytest.mark.parametrize("name", encoders.names())
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_every_encoder(name: str, num_axes: int) -> None:
    sized = "num_features" in encoders.registry.parameters(encoders.registry.get(name))
    encoding = Simple({"name": name, **({"num_features": 24} if sized else {})}, num_axes)
    axes = [torch.arange(n) / n for n in (5, 4, 3)[:num_axes]]
    features = encoding.grid(axes)
    assert features.shape == (*[len(x) for x in axes], encoding.num_features)
    assert features.isfinite().all()
    assert features.dtype == torch.float32
    if sized:
        assert encoding.num_features == 24
    encoding.calibrate(torch.cartesian_prod(*axes).reshape(-1, num_axes))
    assert encoding.grid(axes).norm(dim=-1).max().item() == pytest.approx(1, abs=1e-6)

"""Complex encoding against an explicit Kronecker product."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.encodings import Complex
from pe_lightning.encodings.base import Encoding
from pe_lightning.errors import InputError

DIMENSIONS = [1, 2, 3, 4]


def mixed(num_axes: int) -> list[dict[str, Any]]:
    """Another encoder, of another size, for each axis."""
    entries = [
        {"name": "gau", "num_features": 5, "sigma": 0.2},
        {"name": "rff", "num_features": 4, "sigma": 1.0, "seed": 3},
        {"name": "linf", "num_features": 6},
        {"name": "tri", "num_features": 3, "half_width": 0.5},
    ]
    return entries[:num_axes]


def axes_of(*sizes: int) -> list[Tensor]:
    return [torch.linspace(0, 0.97, n, dtype=torch.float64) for n in sizes]


def grid_points(axes: list[Tensor]) -> Tensor:
    return torch.cartesian_prod(*axes).reshape(-1, len(axes))


def calibrated(num_axes: int) -> tuple[Complex, list[Tensor]]:
    encoding = Complex(mixed(num_axes), num_axes).double()
    axes = axes_of(4, 3, 5, 2)[:num_axes]
    encoding.calibrate(axes)
    return encoding, axes


def weights(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("num_axes", DIMENSIONS)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_grid_and_points_are_the_kronecker_product(num_axes: int, batch: tuple[int, ...]) -> None:
    encoding, axes = calibrated(num_axes)
    factors = [encoder(x) * scale for encoder, x, scale in zip(encoding.encoders, axes, encoding.scales, strict=True)]
    dense = reduce(torch.kron, factors)
    weight = weights(*batch, *encoding.num_features)
    expected = weight.flatten(len(batch)) @ dense.T
    on_grid, coords = encoding.grid(weight, axes), grid_points(axes)
    assert on_grid.shape == (*batch, *[len(x) for x in axes])
    torch.testing.assert_close(on_grid.flatten(len(batch)), expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(encoding.points(weight, coords), expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(encoding(coords), dense, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("num_axes", DIMENSIONS)
def test_gradients_are_those_of_the_kronecker_product(num_axes: int) -> None:
    encoding, axes = calibrated(num_axes)
    coords = grid_points(axes)
    weight = weights(2, *encoding.num_features).requires_grad_()
    cotangent = weights(2, len(coords))
    (expected,) = torch.autograd.grad((weight.flatten(1) @ encoding(coords).T * cotangent).sum(), weight)
    for values in (encoding.grid(weight, axes).flatten(1), encoding.points(weight, coords)):
        (gradient,) = torch.autograd.grad((values * cotangent).sum(), weight)
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_derivatives_with_respect_to_coordinates(num_axes: int) -> None:
    encoding, _ = calibrated(num_axes)  # the triangle of the fourth axis has kinks
    weight = weights(2, *encoding.num_features)
    coords = torch.rand(3, num_axes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    coords.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: encoding.points(weight, x), (coords,))


def test_points_in_turns() -> None:
    encoding, axes = calibrated(3)
    weight, coords = weights(2, *encoding.num_features), grid_points(axes)
    whole = encoding.points(weight, coords)
    held = 2 * 4 * 6  # intermediate numbers of one point: all of a weight but its first axis
    for chunk in (1, held, 7 * held, 10**9):
        torch.testing.assert_close(encoding.points(weight, coords, chunk), whole, rtol=1e-13, atol=1e-14)


def test_a_turn_is_never_larger_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    encoding, axes = calibrated(3)
    weight, coords = weights(2, *encoding.num_features), grid_points(axes)
    seen: list[int] = []
    original = encoding.point_features

    def spy(part: Tensor) -> list[Tensor]:
        seen.append(len(part))
        return original(part)

    monkeypatch.setattr(encoding, "point_features", spy)
    encoding.points(weight, coords, chunk=2 * 4 * 6 * 11)
    assert seen == [11, 11, 11, 11, 11, 5]


def test_no_points() -> None:
    encoding, _ = calibrated(2)
    weight = weights(2, 3, *encoding.num_features)
    assert encoding.points(weight, torch.empty(0, 2, dtype=torch.float64)).shape == (2, 3, 0)
    assert encoding(torch.empty(5, 0, 2, dtype=torch.float64)).shape == (5, 0, 20)


# -- scaling ----------------------------------------------------------------------------------------------------------


def test_calibrate_makes_the_largest_row_norm_one_on_each_axis() -> None:
    encoding, axes = calibrated(4)
    for features in encoding.axis_features(axes):
        assert features.norm(dim=-1).max().item() == pytest.approx(1, abs=1e-12)
    assert encoding.scales.min() < 0.9  # so that the scales were needed


def test_calibrate_in_turns_and_with_points_without_features() -> None:
    whole, in_turns = (Complex({"name": "rect", "num_features": 4, "sigma": 0.5}, 1).double() for _ in range(2))
    x = torch.linspace(0, 5, 50, dtype=torch.float64)  # past 1.5 there is no rectangle
    assert whole.encoders[0](x[20:]).abs().max() == 0
    whole.calibrate([x])
    in_turns.calibrate([x], chunk=3)
    assert whole.scales.item() == in_turns.scales.item() < 1


def test_scales_stay_one_where_all_features_are_zero() -> None:
    encoding = Complex({"name": "rect", "num_features": 4}, 1)
    encoding.calibrate([torch.full((3,), 7.0)])
    assert encoding.scales.tolist() == [1]


def test_without_normalize_features_are_raw() -> None:
    encoding = Complex({"name": "gau", "num_features": 8}, 2, normalize=False)
    axes = [torch.linspace(0, 0.9, 5)] * 2
    encoding.calibrate(axes)
    assert encoding.scales.tolist() == [1, 1]
    torch.testing.assert_close(encoding.axis_features(axes)[0], encoding.encoders[0](axes[0]), rtol=0, atol=0)


def test_scales_are_part_of_the_state() -> None:
    encoding, axes = calibrated(2)
    other = Complex(mixed(2), 2).double()
    other.load_state_dict(encoding.state_dict())
    torch.testing.assert_close(other.axis_features(axes), encoding.axis_features(axes), rtol=0, atol=0)


# -- which encoders ---------------------------------------------------------------------------------------------------


def test_one_encoder_serves_all_axes_with_the_same_frequencies() -> None:
    encoding = Complex({"name": "rff", "num_features": 8, "seed": 5}, 3)
    assert encoding.num_features == (8, 8, 8)
    x = torch.rand(4)
    first, second, third = encoding.axis_features([x, x, x])
    assert torch.equal(first, second)
    assert torch.equal(first, third)
    assert encoding.encoders[0] is encoding.encoders[2]


def test_one_encoder_per_axis() -> None:
    encoding = Complex(mixed(3), 3)
    assert [encoder.name for encoder in encoding.encoders] == ["gau", "rff", "linf"]
    assert encoding.num_features == (5, 4, 6)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_encoders_is_refused(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} encoders were given for 2 axes; give one, or one per axis"):
        Complex(mixed(4)[:count], 2)


def test_a_joint_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="'rff' has num_axes=2; leave num_axes out"):
        Complex({"name": "rff", "num_axes": 2}, 2)


# -- coordinates ------------------------------------------------------------------------------------------------------


def test_no_axis_at_all() -> None:
    with pytest.raises(InputError, match="at least one axis, got num_axes=0"):
        Encoding(0)


def test_coordinates_of_another_shape_are_refused() -> None:
    encoding = Complex("gau", 2)
    weight = torch.zeros(256, 256)
    with pytest.raises(InputError, match="has 2 axes, got 1 coordinate vectors"):
        encoding.grid(weight, [torch.rand(3)])
    with pytest.raises(InputError, match=r"axis 1: a coordinate vector has shape \(N,\).*got \(3, 1\)"):
        encoding.grid(weight, [torch.rand(3), torch.rand(3, 1)])
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\).*got \(4, 3\)"):
        encoding.points(weight, torch.rand(4, 3))
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\).*got \(\)"):
        encoding.points(weight, torch.tensor(0.5))
    with pytest.raises(InputError, match=r"points have shape \(P, 2\), got \(4, 3, 2\)"):
        encoding.points(weight, torch.rand(4, 3, 2))


def test_pixel_numbers_are_no_coordinates() -> None:
    encoding = Complex("gau", 2)
    with pytest.raises(InputError, match=r"floating-point.*torch\.int64"):
        encoding(torch.tensor([[3, 7]]))
    with pytest.raises(InputError, match=r"axis 0: .*floating-point.*torch\.int64"):
        encoding.axis_features([torch.arange(3), torch.arange(3)])


# -- every encoder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", encoders.names())
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_every_encoder(name: str, num_axes: int) -> None:
    sized = "num_features" in encoders.registry.parameters(encoders.registry.get(name))
    encoding = Complex({"name": name, **({"num_features": 6} if sized else {})}, num_axes).double()
    axes = [torch.arange(n, dtype=torch.float64) / n for n in (5, 4, 3)[:num_axes]]
    encoding.calibrate(axes)
    coords = grid_points(axes)
    weight = weights(2, *encoding.num_features)
    grid = encoding.grid(weight, axes)
    assert grid.shape == (2, *[len(x) for x in axes])
    assert grid.isfinite().all()
    torch.testing.assert_close(grid.flatten(1), encoding.points(weight, coords), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(grid.flatten(1), weight.flatten(1) @ encoding(coords).T, rtol=1e-12, atol=1e-13)
    assert encoding(coords).norm(dim=-1).max().item() <= 1 + 1e-12

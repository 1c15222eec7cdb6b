"""Complex encoding against an explicit Kronecker product."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import torch
from learned_encoders import LearnedGaussian, Table, train
from torch import Tensor

from pe_lightning.encodings import Complex
from pe_lightning.errors import InputError
from pe_lightning.linalg import mode_products

DIMENSIONS = pytest.mark.parametrize("num_axes", [1, 2, 3, 4])


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


@DIMENSIONS
@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_grid_points_and_samples_are_the_kronecker_product(num_axes: int, batch: tuple[int, ...]) -> None:
    encoding, axes = calibrated(num_axes)
    factors = [encoder(x) * scale for encoder, x, scale in zip(encoding.encoders, axes, encoding.scales, strict=True)]
    dense = reduce(torch.kron, factors)
    weight = weights(*batch, *encoding.num_features).requires_grad_()
    expected = weight.flatten(len(batch)) @ dense.T
    coords, sizes = grid_points(axes), [len(x) for x in axes]
    positions = torch.unravel_index(torch.arange(len(coords)), sizes)
    on_grid = mode_products(weight, encoding.axis_features(axes))
    assert on_grid.shape == (*batch, *sizes)
    torch.testing.assert_close(encoding(coords), dense, rtol=1e-12, atol=1e-13)
    cotangent = weights(*expected.shape)
    for limit in (1, 1 << 24):
        at_points = encoding.points(weight, coords, limit)
        at_samples = encoding.samples(weight, encoding.axis_features(axes), positions, limit)
        for values in (on_grid.flatten(len(batch)), at_points, at_samples):
            torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-13)
            gradients = [
                torch.autograd.grad((v * cotangent).sum(), weight, retain_graph=True)[0] for v in (values, expected)
            ]
            torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-13)
    assert encoding.points(weight, coords[:0]).shape == (*batch, 0)


# -- scaling ----------------------------------------------------------------------------------------------------------


def test_calibrate_makes_the_largest_row_norm_one_on_each_axis() -> None:
    encoding, axes = calibrated(4)
    for features in encoding.axis_features(axes):
        assert features.norm(dim=-1).max().item() == pytest.approx(1, abs=1e-12)
    assert encoding.scales.min() < 0.9  # so that the scales were needed
    raw, table = Complex(mixed(2), 2, normalize=False), Complex([Table(4), LearnedGaussian(4)], 2)
    for other in (raw, table):
        other.calibrate([torch.rand(9), torch.rand(9)])
    assert raw.scales.tolist() == [1, 1]
    assert table.scales[0] == 1 != table.scales[1]  # features that are parameters are not scaled


# -- encoders and coordinates -----------------------------------------------------------------------------------------


def test_axes_share_one_encoder_or_have_their_own() -> None:
    encoder = train(LearnedGaussian(5))
    shared = Complex(encoder, 3)
    assert all(axis_encoder is encoder for axis_encoder in shared.encoders)
    assert len(list(shared.parameters())) == 1
    assert [e.name for e in Complex(mixed(3), 3).encoders] == ["gau", "rff", "linf"]
    other = Complex(LearnedGaussian(5), 3)
    other.load_state_dict(shared.state_dict())
    assert list(shared.state_dict()) == ["scales", "encoders.0.log_sigma"]
    assert other.encoders[2].log_sigma == encoder.log_sigma


def test_other_encoders_are_refused() -> None:
    for count in (0, 1, 3):
        with pytest.raises(InputError, match=f"{count} encoders were given for 2 axes; give one, or one per axis"):
            Complex(mixed(4)[:count], 2)
    with pytest.raises(InputError, match=r"'rff' with num_axes=2 .*: leave num_axes out, or train a perceptron"):
        Complex({"name": "rff", "num_axes": 2}, 2)


def test_means_over_cells_are_compiled_as_a_whole():
    encoding, axes = Complex({"name": "gau", "num_features": 8, "trainable": True}, 2), [torch.rand(6), torch.rand(5)]
    encoding.cells = (0.1, 0.2)
    compiled = torch.compile(encoding.axis_features, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(axes), encoding.axis_features(axes))

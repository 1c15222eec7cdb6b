"""Sparse weights: selection, storage and refusals."""

import pytest
import torch

from pe_fill.sparse.network import Coefficients, SparseWeight
from pe_lightning.errors import InputError


def weights(*shape, seed=0):
    """Smooth, and the same in all channels but for noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, *shape[1:], generator=generator)
    for axis in range(1, len(shape)):
        x = x.cumsum(axis)
    return x / x.abs().max() + 0.1 * torch.randn(shape, generator=generator)


@pytest.mark.parametrize(
    ("name", "shape"), [("9/7", (1, 2)), ("5/3", (2, 1)), ("haar", (1, 37)), ("9/7", (3, 16, 11)), ("5/3", (2, 5, 6, 7))]
)
def test_all_coefficients_are_the_weight(name, shape):
    weight = weights(*shape)
    coefficients = Coefficients(weight, name)
    kept = coefficients.keep(coefficients.size)
    torch.testing.assert_close(kept.weight(), weight, atol=1e-5, rtol=0)
    rotation = kept.rotation.double()
    torch.testing.assert_close(rotation.T @ rotation, torch.eye(shape[0], dtype=torch.float64), atol=1e-6, rtol=0)
    assert kept.num_params == kept.count + (shape[0] ** 2 if shape[0] > 1 else 0)


def test_the_largest_are_kept_and_ties_broken():
    coefficients = Coefficients(weights(3, 20, 20), "9/7")
    importance = coefficients.importance().flatten()
    kept = coefficients.keep(100)
    chosen = kept.coefficients().flatten() != 0
    assert (kept.count, int(chosen.sum())) == (100, 100)
    assert importance[chosen].min() >= importance[~chosen].max()
    equal = Coefficients(torch.ones(1, 8), "haar", [torch.ones(8)])
    equal.values = torch.ones(1, 8)
    assert equal.keep(3).count == 3
    flat = Coefficients(torch.ones(1, 16), "haar")
    assert flat.keep(16).count == 4  # all details are zero
    assert Coefficients(torch.zeros(1, 16), "9/7").keep(5).count == 0


@pytest.mark.parametrize("storage_dtype", ["float32", "float16"])
def test_packed_weights_come_back_and_are_as_small_as_they_say(storage_dtype):
    coefficients = Coefficients(100 * weights(3, 64, 64), "9/7")
    kept = coefficients.keep(1200, storage_dtype)
    packed = kept.pack()
    back = SparseWeight.unpack(packed)
    torch.testing.assert_close(back.weight(), kept.weight(), atol=0, rtol=0)
    assert back.storage_dtype == storage_dtype
    assert packed["values"].nbytes == 1200 * (4 if storage_dtype == "float32" else 2)
    assert packed["positions"].nbytes < 3 * 64 * 64 / 8
    loss = (kept.weight() - coefficients.keep(1200).weight()).abs().max() / kept.weight().abs().max()
    assert loss < (1e-7 if storage_dtype == "float32" else 1e-3)


def test_float16_holds_large_and_small_values():
    for size in (1e-20, 1e20):
        weight = size * weights(1, 16, 16)
        kept = Coefficients(weight, "5/3").keep(256, "float16")
        assert (SparseWeight.unpack(kept.pack()).weight() - weight).abs().max() < 2e-3 * weight.abs().max()


def test_the_fewest_that_reach_a_psnr():
    weight = weights(3, 24, 24)
    coefficients, tried = Coefficients(weight, "9/7"), []

    def measure(found):
        tried.append(1)
        return float(-10 * torch.log10((found - weight).square().mean()))

    kept = coefficients.fewest(30, measure)
    assert measure(kept.weight()) >= 30 > measure(coefficients.keep(kept.count - 1).weight())
    assert len(tried) < 20
    with pytest.raises(InputError, match=r"psnr: 500\} is above the .* dB of the exact fit"):
        coefficients.fewest(500, measure)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3, 8, 9]},
        {"shape": "large"},
        {"transform": "8/8"},
        {"values": torch.ones(5)},
        {"values": torch.full((50,), torch.nan)},
        {"positions": torch.zeros(20, dtype=torch.uint8)},
        {"rotation": torch.ones(2, 2)},
        {"scale": 0.0},
    ],
)
def test_damaged_weights_are_refused(change):
    packed = Coefficients(weights(3, 8, 8), "9/7").keep(50).pack()
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        SparseWeight.unpack({**packed, **change})
    missing = {key: value for key, value in packed.items() if key not in change}
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        SparseWeight.unpack(missing)


def test_positions_that_unpack_to_more_than_there_is_room_for_are_refused():
    large = Coefficients(weights(3, 256, 256), "9/7").keep(50).pack()
    with pytest.raises(InputError, match="the checkpoint is damaged"):
        SparseWeight.unpack({**large, "shape": [3, 8, 8]})

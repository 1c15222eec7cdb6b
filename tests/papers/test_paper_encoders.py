"""The encoders that *Learnable Fourier Features* compares with ``lff``, against NumPy formulas written from the paper."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from encoders.test_learned_values import Array, both, corners, mlp, points, same, trained

from pe_lightning.encoders import create
from pe_lightning.errors import InputError


def decay(count: int, base: float = 10000.0) -> Array:
    return base ** -(2 * np.arange(count) / (2 * count))


@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_sinusoids_of_positions(num_axes: int) -> None:
    x, array = points(num_axes)
    position = 20 * array
    number = sum(position[:, a] * 20 ** (num_axes - 1 - a) for a in range(num_axes))
    same(create("sine1d", num_features=14, num_positions=20, num_axes=num_axes)(x), both(number[:, None] * decay(7)))
    joint = sum(position[:, a, None] * decay(7, 10000 / (a + 1)) for a in range(num_axes))
    same(create("md_sine", num_features=14, num_positions=20, num_axes=num_axes)(x), both(joint))
    counts = {1: [7], 2: [4, 3], 3: [3, 2, 2]}[num_axes]
    angles = np.concatenate([position[:, a, None] * decay(count) for a, count in enumerate(counts)], -1)
    same(create("sine_nd", num_features=14, num_positions=20, num_axes=num_axes)(x), both(angles))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_sinusoids_of_four_axes_below_a_grouped_mlp(groups: int) -> None:
    """Sine-4D + MLP-1/4, -2/2 and -4/1."""
    arguments = {"num_features": 8, "num_positions": 30, "mlp": True, "num_inputs": 8, "hidden": 6}
    encoder, p = trained("sine_nd", groups=groups, num_axes=4, **arguments)
    x, array = points(4)
    each = 4 // groups
    angles = (30 * array.reshape(-1, groups, each))[..., None] * decay(4 // each)
    same(encoder(x), mlp(p, both(angles.reshape(40, groups, 4))).reshape(40, 8))
    other, p = trained("pos_mlp", num_features=8, groups=groups, num_axes=4)
    same(other(x), mlp(p, array.reshape(-1, groups, each)).reshape(40, 8))


def test_invalid_features_and_positions_are_refused() -> None:
    for name in ("sine1d", "sine_nd", "md_sine"):
        with pytest.raises(InputError, match="num_features must be even per group"):
            create(name, num_features=7)
    with pytest.raises(InputError, match="num_features must be even per group, and at least 6"):
        create("sine_nd", num_features=4, num_axes=3)
    with pytest.raises(InputError, match=r"num_positions must be at most 1024 for 2 axes.*got 2000"):
        create("sine1d", num_positions=2000, num_axes=2)
    with pytest.raises(InputError, match="3 axes of a group need at least 3 features, got 2"):
        create("embed", num_features=2, num_axes=3)


@pytest.mark.parametrize("num_axes", [1, 2])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_an_embedding_is_a_row_per_position(num_axes: int, flat: bool, interpolation: str) -> None:
    arguments = {"num_positions": 9, "flat": flat, "interpolation": interpolation}
    encoder, p = trained("embed", num_features=5, num_axes=num_axes, **arguments)
    x, array = points(num_axes)
    position = np.minimum(array * 9 if interpolation == "linear" else np.floor(array * 9 + 0.5), 8)
    expected = np.zeros((40, 5))
    for i, point in enumerate(position):
        if flat:
            for node, share in corners(point):
                if share:
                    expected[i] += share * p["table"][np.ravel_multi_index(node, (9,) * num_axes)]
        else:
            blocks = np.split(p["table"], [3] if num_axes == 2 else [], axis=1)
            rows = [[np.interp(q, np.arange(9), column) for column in b.T] for q, b in zip(point, blocks, strict=True)]
            expected[i] = np.concatenate(rows)
    same(encoder(x), expected)
    assert torch.equal(encoder(torch.full_like(x, 2.0)), encoder(torch.full_like(x, 8 / 9))), "the last position's"
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(encoder(x).sum(), x, allow_unused=True)
    assert (gradient is None) == (interpolation == "nearest")

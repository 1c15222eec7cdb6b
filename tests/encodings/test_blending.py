"""Blending against the papers' formulas, and against the features it approximates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from learned_encoders import LearnedGaussian
from torch import Tensor
from torch.func import functional_call

from pe_lightning.encodings import Blended, Complex
from pe_lightning.errors import InputError

BLENDABLE: list[dict[str, Any]] = [
    {"name": "gau", "num_features": 16},
    {"name": "tri", "num_features": 16, "half_width": 2.5 / 16},
    {"name": "laplace", "num_features": 16},
    {"name": "rect", "num_features": 16, "sigma": 3 / 16},
    {"name": "rff", "num_features": 16, "sigma": 2.0},
    {"name": "linf", "num_features": 16, "sigma": 2.0},
    {"name": "logf", "num_features": 16, "sigma": 2.0},
    {"name": "sine", "num_features": 16},
]
each = pytest.mark.parametrize("spec", BLENDABLE, ids=lambda spec: spec["name"])


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def blended(spec: dict[str, Any], num_axes: int = 2, nodes: int | None = None) -> Blended:
    return Blended(Complex(spec, num_axes, normalize=False), nodes)


@pytest.mark.parametrize("spec", BLENDABLE[:3], ids=lambda spec: spec["name"])
def test_weights_are_the_papers(spec: dict[str, Any]) -> None:
    operator, d = blended(spec, 1), 1 / 15
    for x in (0.0, 0.013, 0.2, 0.5, 0.77, 0.998):
        left = int(x / d)
        beta = x / d - left
        here, there, near, far = (
            operator.encoding.encoders[0]
            .distance(torch.tensor([0, d, beta * d, (1 - beta) * d], dtype=torch.float64))
            .numpy()
        )
        alpha = np.linalg.solve(np.array([[here, there], [there, here]]), [near, far])
        alpha /= alpha.sum()
        nodes, weights = operator.neighbours(torch.tensor([[x]], dtype=torch.float64))
        assert nodes.flatten().tolist() == [left, left + 1]
        np.testing.assert_allclose(weights.flatten().numpy(), alpha, rtol=1e-9, atol=1e-12)


@each
@pytest.mark.parametrize("num_axes", [1, 2, 3])
def test_at_the_nodes_it_is_exact(spec: dict[str, Any], num_axes: int) -> None:
    operator = blended(spec, num_axes, nodes=9)
    x = torch.linspace(0, 1, 9, dtype=torch.float64)[:-1]
    coords = x[torch.randint(8, (30, num_axes), generator=torch.Generator().manual_seed(0))]
    weight = numbers(2, 3, *[16] * num_axes)
    torch.testing.assert_close(
        operator(weight, coords), operator.encoding.double().points(weight, coords), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("sets", [1, 2])
def test_gradients_are_exact_and_each_signal_may_have_its_own_points(sets: int) -> None:
    operator = Blended(Complex({"name": "gau", "num_features": 4}, 2, normalize=False).double())
    coords, weight = numbers(sets, 5, 2), numbers(2, 3, 4, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: operator(w, coords), (weight,))
    for s, values in enumerate(operator(weight, coords)):
        torch.testing.assert_close(values, operator(weight[s : s + 1], coords[min(s, sets - 1)])[0])


def test_a_learned_width_is_trained_through_blending() -> None:
    operator = Blended(Complex(LearnedGaussian(6, sigma=0.2), 2, normalize=False).double())
    weight, coords, (key, width) = numbers(1, 2, 6, 6), numbers(9, 2), next(operator.named_parameters())
    assert torch.autograd.gradcheck(lambda value: functional_call(operator, {key: value}, (weight, coords)), (width,))
    fixed = Blended(Complex({"name": "gau", "num_features": 6, "sigma": 0.2}, 2, normalize=False).double())
    torch.testing.assert_close(operator(weight, coords), fixed(weight, coords), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["impulse", "keys", "noise"])
def test_encoders_without_usable_weights_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"axis 0.*cannot be blended"):
        blended({"name": name, "num_features": 16})
    with pytest.raises(InputError, match="do not overlap"):
        blended({"name": "gau", "num_features": 16, "sigma": 0.001})

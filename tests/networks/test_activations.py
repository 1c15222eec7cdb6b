"""Each activation against its formula in NumPy, and how its layers start."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from pe_lightning.errors import InputError
from pe_lightning.networks import MLP, activations, find_activation
from pe_lightning.networks.activations import check_options

Array = Any
FORMULAS: dict[str, Callable[[Array, Any], Array]] = {
    "relu": lambda z, _: np.maximum(z, 0),
    "gelu": lambda z, _: z * special.ndtr(z),
    "silu": lambda z, _: z * special.expit(z),
    "tanh": lambda z, _: np.tanh(z),
    "sine": lambda z, _: np.sin(30 * z),
    "gabor": lambda z, _: np.exp(20j * z - np.abs(10 * z) ** 2),
    "finer": lambda z, _: np.sin(30 * (np.abs(z) + 1) * z),
    "gauss": lambda z, _: np.exp(-((10 * z) ** 2)),
    "staf": lambda z, a: sum(
        b * np.sin(w * z + p) for w, p, b in zip(*(v.tolist() for v in (a.frequencies, a.phases, a.amplitudes)), strict=True)
    ),
}
assert sorted(FORMULAS) == activations.names()


def weights(layer: Any, parts: int) -> tuple[Array, Array]:
    """The matrix and the offset of a layer, complex where it holds two parts."""
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    return (weight[0] + 1j * weight[1], bias[0] + 1j * bias[1]) if parts == 2 else (weight, bias)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("name", activations.names())
def test_a_perceptron_is_its_formula(name: str, depth: int) -> None:
    mlp, x = MLP(5, 2, depth, 8, name).double(), torch.rand(7, 5, dtype=torch.float64) * 2 - 1
    expected, hidden = x.numpy(), mlp.hidden(x)
    for layer, activation, values in zip(mlp.layers, mlp.activations, hidden, strict=False):
        matrix, offset = weights(layer, layer.weight.ndim - 1)
        expected = FORMULAS[name](expected @ matrix.T + offset, activation)
        shown = np.concatenate([expected.real, expected.imag], -1) if name == "gabor" else expected
        np.testing.assert_allclose(values.detach(), shown, atol=1e-12)
    matrix, offset = weights(mlp.layers[-1], 1)
    if name == "gabor" and depth:  # the real part of a complex layer
        units = len(matrix.T) // 2
        matrix = matrix[:, :units] - 1j * matrix[:, units:]
    np.testing.assert_allclose(mlp(x).detach(), (expected @ matrix.T + offset).real, atol=1e-12)


def uniform(values: Any, bound: float) -> None:
    """Values of a uniform distribution within ``bound`` of zero: their largest, their mean and their variance."""
    values = values.detach().flatten().double()
    assert values.abs().max() <= bound * (1 + 1e-6)
    assert values.abs().max() > 0.97 * bound
    assert values.mean().abs() < 4 * bound / math.sqrt(3 * len(values))
    assert values.var().item() == pytest.approx(bound**2 / 3, rel=0.2)


@pytest.mark.parametrize(
    ("name", "first", "others"),
    [
        ("relu", 1 / math.sqrt(2), 1 / math.sqrt(256)),
        ("sine", 1 / 2, math.sqrt(6 / 256) / 50),
        ("finer", 1 / 2, math.sqrt(6 / 256) / 50),
        ("staf", 1 / 2, math.sqrt(6 / 256) / 50),
        ("gabor", 1 / math.sqrt(2), 1 / math.sqrt(181)),
        ("gauss", 1 / math.sqrt(2), 1 / math.sqrt(256)),
    ],
)
def test_layers_start_as_the_papers_say(name: str, first: float, others: float) -> None:
    torch.manual_seed(0)
    omega = None if activations.get(name).default_omega is None else 50.0
    scale = None if activations.get(name).default_scale is None else 20.0
    mlp = MLP(2, 40, 3, 256, name, omega=omega, scale=scale)
    for layer, bound in zip(mlp.layers, [first, others, others, others], strict=True):
        uniform(layer.weight, bound)  # type: ignore[arg-type]
    uniform(mlp.layers[0].bias, 20 if name == "finer" else 1 / math.sqrt(2))
    assert sum(p.numel() for p in mlp.layers.parameters()) == pytest.approx(142_632, rel=0.1 if name == "gabor" else 1e-9)


def test_staf_starts_as_its_paper_says() -> None:
    torch.manual_seed(0)
    made = [activations.get("staf")(50.0) for _ in range(2000)]
    frequencies, phases, amplitudes = (
        torch.cat([getattr(one, name) for one in made]).detach() for name in made[0]._parameters
    )
    uniform(frequencies - 25, 25)
    uniform(phases, math.pi)
    # the squares are of the Laplace distribution of scale 1/10, signs aside
    assert amplitudes.square().mean().item() == pytest.approx(0.1, rel=0.05)
    assert amplitudes.pow(4).mean().item() == pytest.approx(2 * 0.1**2, rel=0.15)
    assert abs(amplitudes.sign().mean().item()) < 0.05


def test_finer_takes_its_factor_for_constant_in_training_alone() -> None:
    finer, z = activations.get("finer")().double(), torch.tensor([-0.7, 0.2], dtype=torch.float64, requires_grad=True)
    slope = 30 * torch.cos(30 * (z.abs() + 1) * z)
    (trained,) = torch.autograd.grad(finer(z).sum(), z)
    torch.testing.assert_close(trained, slope * (z.abs() + 1))
    (exact,) = torch.autograd.grad(finer.eval()(z).sum(), z)
    torch.testing.assert_close(exact, slope * (2 * z.abs() + 1))


def test_half_precision_does_not_round_coordinates() -> None:
    """Neighbours of 1024 samples are told apart, though bfloat16 holds 256 numbers between 0.5 and 1 and fewer above."""
    x = (torch.arange(512, 1024) / 1024)[:, None]
    mlp = MLP(1, 1, 1, 8, "sine")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (hidden,) = mlp.hidden(x)
    torch.testing.assert_close(hidden, mlp.hidden(x)[0])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("relu", {"omega": 30}, "'relu' has no omega, got 30; leave it out. These have: finer, gabor, sine, staf"),
        ("sine", {"scale": 2.0}, "'sine' has no activation_scale, .* These have: finer, gabor, gauss"),
        ("sine", {"omega": -1}, "omega must be a positive number from 1e-6 to 1e6, such as 30; got -1"),
        ("sine", {"omega": "atuo"}, "omega must be a positive number from 1e-6 to 1e6"),
        ("gabor", {"scale": "auto"}, "activation_scale must be a positive number from 1e-6 to 1e6, such as 10"),
        ("gabor", {"omega": 100.0, "scale": 2.0}, "overflows"),
    ],
)
def test_options_that_do_not_fit(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_options(name, options.get("omega"), options.get("scale"))


def test_an_activation_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="unknown activation 'rellu'; did you mean 'relu'"):
        find_activation("rellu")
    with pytest.raises(InputError, match="activation 'sine' is for SimpleMLP only; allowed here: gelu, relu, silu, tanh"):
        find_activation("sine", plain=True)

"""Gradients and Laplacians by coordinates against differences of values, and as terms of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pe_lightning.encodings import Complex, Simple
from pe_lightning.networks import MLP, ComplexNetwork, Network, SimpleNetwork, VmapEnsemble, activations

GAU = {"name": "gau", "num_features": 8, "sigma": 0.15}
ENCODERS: list[Any] = [
    GAU,
    {"name": "rff", "num_features": 12, "sigma": 2.0},
    {"name": "bspline", "num_features": 8},
    {"name": "lff", "num_features": 8, "mlp": True},
    {"name": "hash", "num_levels": 3, "finest": 6},
]


def simple(encoder: Any, depth: int, width: int, activation: str, sigmoid: bool = False) -> SimpleNetwork:
    encoding = Simple(encoder, 2, "axes" if encoder == GAU else "auto")
    return SimpleNetwork(encoding, MLP(encoding.num_features, 3, depth, width, activation, sigmoid))


NETWORKS: dict[str, Callable[[], Network]] = {
    **{name: lambda name=name: simple("identity", 2, 12, name) for name in activations},
    **{f"tanh of {e['name']}": lambda e=e: simple(e, 1, 8, "tanh") for e in ENCODERS},
    "relu of gau": lambda: simple(GAU, 2, 12, "relu", True),
    "complex": lambda: ComplexNetwork(Complex(GAU, 2), 3),
    "complex with a head": lambda: ComplexNetwork(Complex(GAU, 2), 3, depth=1, hidden_size=9),
}


def made(kind: str) -> Network:
    torch.manual_seed(0)
    network = NETWORKS[kind]().double()
    if kind.startswith("complex"):
        network.get_parameter("weight").data.normal_()
    return network


def differences(function: Callable[[Tensor], Tensor], coords: Tensor, order: int) -> Tensor:
    """Gradient or Laplacian from values at five points along each axis, of fourth order."""
    step = 1e-3 if order == 2 else 1e-4
    found = []
    for unit in torch.eye(coords.shape[-1], dtype=coords.dtype) * step:
        far, near = function(coords + 2 * unit), function(coords + unit)
        back, rear = function(coords - unit), function(coords - 2 * unit)
        if order == 1:
            found.append((8 * (near - back) - (far - rear)) / (12 * step))
        else:
            found.append((16 * (near + back) - (far + rear) - 30 * function(coords)) / (12 * step**2))
    return torch.stack(found, -1) if order == 1 else torch.stack(found).sum(0)


@pytest.mark.parametrize("kind", NETWORKS)
def test_derivatives_are_differences(kind: str) -> None:
    network, coords = made(kind), 0.11 + 0.79 * torch.rand(4, 5, 2, dtype=torch.float64)
    assert network.gradient(coords).shape == (4, 5, 3, 2)
    assert network.laplacian(coords).shape == (4, 5, 3)
    for found, order in ((network.gradient(coords), 1), (network.laplacian(coords), 2)):
        expected = differences(network, coords, order)
        size = expected.abs().amax()
        # differences across a corner of relu or of an interpolation differ; few points are as close to one
        errors = ((found - expected) / size.clamp_min(1e-3)).abs()
        assert errors.flatten().quantile(0.8) < 1e-4, (kind, order, errors.amax())
    assert network.laplacian(coords).abs().amax() > 1 or kind in ("relu", "tanh of hash", "gelu", "silu", "tanh")


@pytest.mark.parametrize("kind", ["sine", "finer", "gabor", "relu of gau", "complex with a head"])
@pytest.mark.parametrize("name", ["gradient", "laplacian"])
def test_a_loss_of_derivatives_trains(kind: str, name: str) -> None:
    """Its gradient by every parameter, against differences along a random direction."""
    network, coords = made(kind), 0.1 + 0.8 * torch.rand(6, 2, dtype=torch.float64)

    def loss() -> Tensor:
        return getattr(network, name)(coords).square().mean()

    value = loss()
    slopes = torch.autograd.grad(value, list(network.parameters()), allow_unused=True)
    steps = [1e-7 * torch.randn_like(parameter) for parameter in network.parameters()]
    ends = []
    for sign in (1, -2):
        for parameter, step in zip(network.parameters(), steps, strict=True):
            parameter.data += sign * step
        ends.append(loss().item())
    expected = (ends[0] - ends[1]) / 2
    found = sum(float((slope * step).sum()) for slope, step in zip(slopes, steps, strict=True) if slope is not None)
    assert found == pytest.approx(expected, rel=1e-4)
    assert sum(slope is None for slope in slopes) <= 2, "all but offsets, which no derivative depends on, are trained"


@pytest.mark.parametrize("chunk", [None, 1])
def test_derivatives_of_a_stack_are_those_of_its_networks(chunk: int | None) -> None:
    """Also where hidden layers are computed a second time."""
    network = made("finer")
    stack = VmapEnsemble(network, 3, [name for name, _ in network.named_buffers()], chunk)
    for parameter in stack.parameters():
        parameter.data += 0.01 * torch.randn_like(parameter)
    coords = torch.rand(5, 2, dtype=torch.float64)
    networks = [stack.network_of(place) for place in range(3)]
    for name in ("gradient", "laplacian"):
        found = stack.call(name, coords)
        torch.testing.assert_close(found, torch.stack([getattr(one, name)(coords) for one in networks]))
        stack.zero_grad()
        found.square().sum().backward()
        for place, one in enumerate(networks):
            one.zero_grad()
            getattr(one, name)(coords).square().sum().backward()
            weight = "mlp.layers.1.weight"
            torch.testing.assert_close(stack.network.get_parameter(weight).grad[place], one.get_parameter(weight).grad)

"""Batched perceptrons against torch.nn.Sequential."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from pe_lightning.errors import InputError
from pe_lightning.modules.mlp import ACTIVATIONS, SignalMLP

REFERENCES = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


def reference(mlp: SignalMLP, signal: int, activation: type[nn.Module], sigmoid: bool) -> nn.Sequential:
    """The same perceptron of one signal, in torch's own layers, with copied weights."""
    layers: list[nn.Module] = []
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        linear = nn.Linear(weight.shape[1], weight.shape[2], dtype=weight.dtype)
        linear.weight.data.copy_(weight[signal].T)
        linear.bias.data.copy_(bias[signal, 0])
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1], *([nn.Sigmoid()] if sigmoid else []))


def random_mlp(signals: int, depth: int, activation: str, sigmoid: bool = False) -> SignalMLP:
    torch.manual_seed(depth)
    mlp = SignalMLP(signals, 5, 2, depth, 7, activation, sigmoid).double()
    for parameter in mlp.parameters():  # signals start equal; here they must differ
        parameter.data.normal_()
    return mlp


@pytest.mark.parametrize("activation", REFERENCES)
@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("shared", [True, False])
def test_values_and_gradients_are_torchs(activation: str, depth: int, sigmoid: bool, shared: bool) -> None:
    mlp = random_mlp(3, depth, activation, sigmoid)
    features = torch.randn(1 if shared else 3, 11, 5, dtype=torch.float64)
    values = mlp(features)
    assert values.shape == (3, 11, 2)
    gradients = torch.autograd.grad(values.square().sum(), list(mlp.weights))
    for signal in range(3):
        network = reference(mlp, signal, REFERENCES[activation], sigmoid)
        expected = network(features[0 if shared else signal])
        torch.testing.assert_close(values[signal], expected, rtol=1e-12, atol=1e-12)
        expected.square().sum().backward()
        linears = [layer for layer in network if isinstance(layer, nn.Linear)]
        for gradient, linear in zip(gradients, linears, strict=True):
            torch.testing.assert_close(gradient[signal], linear.weight.grad.T, rtol=1e-10, atol=1e-12)


def test_sine() -> None:
    mlp = random_mlp(1, 1, "sine")
    x = torch.randn(1, 4, 5, dtype=torch.float64)
    hidden = torch.sin(x[0] @ mlp.weights[0][0] + mlp.biases[0][0])
    torch.testing.assert_close(mlp(x)[0], hidden @ mlp.weights[1][0] + mlp.biases[1][0])


def test_initial_weights_are_drawn_as_torchs_and_equal_for_all_signals() -> None:
    torch.manual_seed(0)
    mlp = SignalMLP(3, 400, 300, 1, 200)
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        bound = 1 / math.sqrt(weight.shape[1])
        assert torch.equal(weight[0], weight[2])
        assert torch.equal(bias[0], bias[1])
        assert weight.abs().max() <= bound
        assert weight.abs().max() > 0.99 * bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert bias.std() > 0


def test_signals_do_not_share_storage() -> None:
    mlp = SignalMLP(2, 3, 1, 0, 1)
    mlp.weights[0].data[0] = 7
    assert (mlp.weights[0].data[1] != 7).all()


def test_sigmoid_stays_between_zero_and_one() -> None:
    mlp = random_mlp(2, 2, "relu", sigmoid=True)
    values = mlp(torch.randn(1, 50, 5, dtype=torch.float64))
    assert 0 <= values.min() < 0.1
    assert 0.9 < values.max() <= 1


def test_an_unknown_activation() -> None:
    with pytest.raises(InputError, match=r"unknown activation 'rely'; did you mean 'relu'\? Allowed: relu, "):
        SignalMLP(1, 1, 1, 1, 1, "rely")
    assert set(REFERENCES) | {"sine"} == set(ACTIVATIONS)

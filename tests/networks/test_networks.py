"""Networks of one signal against formulas, and stacks of them against each network alone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pe_lightning.encodings import Complex, Simple
from pe_lightning.errors import InputError
from pe_lightning.networks import MLP, ComplexNetwork, SimpleNetwork, VmapEnsemble
from pe_lightning.training import SimpleMLP, TensorDataModule

GAU = {"name": "gau", "num_features": 8, "sigma": 0.15}


def simple(mlp: MLP) -> SimpleNetwork:
    return SimpleNetwork(Simple(GAU, 2, "axes"), mlp)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "complex": lambda: ComplexNetwork(Complex(GAU, 2), 3),
    "complex-head": lambda: ComplexNetwork(Complex(GAU, 2), 3, depth=2, hidden_size=7, activation="tanh"),
    "simple": lambda: simple(MLP(8, 3, 2, 7, "sine", omega=1)),
    "simple-gabor": lambda: simple(MLP(8, 3, 2, 7, "gabor", omega=2, scale=1)),
    "simple-staf": lambda: simple(MLP(8, 3, 2, 7, "staf")),
    "simple-linear": lambda: simple(MLP(8, 3, 0, 7, sigmoid=True)),
}
every_network = pytest.mark.parametrize("kind", NETWORKS)


def made(kind: str, signals: int | None = None, chunk: int | None = None) -> nn.Module:
    """A network with random parameters and buffers in float64, or a stack of networks that differ."""
    torch.manual_seed(0)
    network: nn.Module = NETWORKS[kind]().double()
    fixed = [name for name, _ in network.named_buffers() if name.startswith("encoding.")]
    if signals is not None:
        network = VmapEnsemble(network, signals, fixed, chunk)
    for tensor in network.parameters():
        tensor.data.normal_()
    for name, tensor in network.named_buffers():
        if name.endswith("mean"):
            tensor.normal_()
    return network


@every_network
def test_a_network_maps_coordinates_to_values(kind: str) -> None:
    network = made(kind)
    coords = torch.rand(4, 5, 2, dtype=torch.float64, requires_grad=True)
    assert network(coords).shape == (4, 5, 3)
    assert torch.autograd.gradcheck(network, (coords,))
    assert torch.autograd.gradgradcheck(network, (coords[:1, :2],))


def test_a_linear_layer_is_the_kronecker_product() -> None:
    network = made("complex")
    assert isinstance(network, ComplexNetwork)
    coords = torch.rand(9, 2, dtype=torch.float64)
    expected = network.encoding(coords) @ network.weight.flatten(1).T + network.mean
    torch.testing.assert_close(network(coords), expected)


@pytest.mark.parametrize(("depth", "activation"), [(0, "relu"), (1, "relu"), (3, "gelu"), (2, "silu")])
def test_a_head_hands_a_solution_on(depth: int, activation: str) -> None:
    network = ComplexNetwork(Complex(GAU, 2), 3, depth, 16, activation).double()
    solution = torch.randn(3, 8, 8, dtype=torch.float64)
    network.start_from(solution)
    coords = torch.rand(9, 2, dtype=torch.float64)
    torch.testing.assert_close(network(coords), network.encoding(coords) @ solution.flatten(1).T)
    if depth:  # the other units still learn: their weights are not zero
        assert network.weight[6:].abs().min() > 0


# -- stacks -----------------------------------------------------------------------------------------------------------


@every_network
@pytest.mark.parametrize(("signals", "chunk"), [(1, None), (3, None), (3, 1), (3, 2)])
def test_a_stack_is_its_networks(kind: str, signals: int, chunk: int | None) -> None:
    """Values and gradients, of shared points and of each signal's own."""
    stack = made(kind, signals, chunk)
    assert isinstance(stack, VmapEnsemble)
    coords = torch.rand(signals, 5, 2, dtype=torch.float64)
    networks = [stack.network_of(place) for place in range(signals)]
    for values, points in ((stack(coords[0]), [coords[0]] * signals), (stack.call("forward", coords, each=True), coords)):
        expected = torch.stack([network(x) for network, x in zip(networks, points, strict=True)])
        torch.testing.assert_close(values, expected)
        stack.zero_grad()
        values.square().sum().backward()
        for place, network in enumerate(networks):
            network.zero_grad()
            expected[place].square().sum().backward(retain_graph=True)
            for name, parameter in network.named_parameters():
                gradient = stack.network.get_parameter(name).grad
                assert gradient is not None
                torch.testing.assert_close(gradient[place], parameter.grad)


def reloaded(stack: VmapEnsemble, assign: bool) -> VmapEnsemble:
    other = copy.deepcopy(stack)
    other.load_state_dict({name: torch.rand_like(values) for name, values in stack.state_dict().items()}, assign=assign)
    return other


def taken(stack: VmapEnsemble, *signals: int) -> VmapEnsemble:
    other = copy.deepcopy(stack)
    other.replace_signals(lambda values: values[list(signals)].clone())
    return other


REPLACEMENTS: dict[str, Callable[[VmapEnsemble], VmapEnsemble]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda stack: pickle.loads(pickle.dumps(stack)),
    "load_state_dict": lambda stack: reloaded(stack, assign=False),
    "load_state_dict by assignment": lambda stack: reloaded(stack, assign=True),
    "to": lambda stack: copy.deepcopy(stack).float().double(),
    "one signal": lambda stack: taken(stack, 0),
    "more signals": lambda stack: taken(stack, 0, 0),
}


@pytest.mark.parametrize("signals", [1, 2])
@pytest.mark.parametrize("way", REPLACEMENTS)
def test_a_stack_has_the_tensors_of_its_modules(way: str, signals: int) -> None:
    """Values and gradients follow tensors that were replaced, and a copy is independent."""
    stack, coords = made("simple", signals), torch.rand(5, 2, dtype=torch.float64)
    assert isinstance(stack, VmapEnsemble)
    before = stack(coords)
    other = REPLACEMENTS[way](stack)
    other.network.get_parameter("mlp.layers.0.weight").data.mul_(2)
    other.network.get_buffer("mlp.activations.0.omega").mul_(3)
    values = other(coords)
    values.square().sum().backward()
    for place in range(other.num_signals):
        network = other.network_of(place)
        network.zero_grad()
        expected = network(coords)
        torch.testing.assert_close(values[place], expected)
        expected.square().sum().backward()
        for name, parameter in network.named_parameters():
            gradient = other.network.get_parameter(name).grad
            assert gradient is not None
            torch.testing.assert_close(gradient[place], parameter.grad)
    assert torch.equal(stack(coords), before)
    assert next(stack.parameters()).grad is None


def test_a_call_that_fails_leaves_the_stack_as_it_was() -> None:
    stack, coords = made("simple", 1), torch.rand(5, 2, dtype=torch.float64)
    assert isinstance(stack, VmapEnsemble)
    before, names = stack(coords), list(stack.state_dict())
    with pytest.raises(InputError, match="coordinates"):
        stack(coords[:, :1])
    assert torch.equal(stack(coords), before)
    assert list(stack.state_dict()) == names
    assert all(tensor.shape[0] == 1 for _, tensor in stack.per_signal())


@pytest.mark.parametrize("signals", [1, 3])
@pytest.mark.parametrize("name", ["relu", "sine", "gabor"])
def test_a_step_has_the_errors_and_gradients_of_a_plain_network(name: str, signals: int) -> None:
    """Against a network in a few lines, WIRE in complex numbers; for one signal and real numbers to the bit."""
    data = TensorDataModule(torch.rand(signals, 8, 8, 3))
    module = SimpleMLP("rff", depth=2, hidden_size=8, activation=name)
    module.build_from(data)
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.rand_like(parameter)
    batch = data.train_batch()
    features = module.encoding(torch.cartesian_prod(*batch.axes))
    squared = module.make_step(batch).squared_errors(batch)
    squared.sum().backward()
    activation = {
        "relu": torch.relu,
        "sine": lambda z: torch.sin(30 * z),
        "gabor": lambda z: torch.exp(20j * z - (10 * z).abs().square()),
    }[name]
    check = torch.equal if signals == 1 and name != "gabor" else lambda *pair: torch.allclose(*pair, rtol=1e-3, atol=1e-4)
    for signal in range(signals):
        layers = [(layer.weight, layer.bias) for layer in module.networks.network.mlp.layers]
        weights = [[tensor[signal].detach().requires_grad_() for tensor in layer] for layer in layers]
        x = features
        for place, (weight, bias) in enumerate(weights):
            if name == "gabor" and place == 1:
                weight, bias = torch.complex(*weight), torch.complex(*bias)
            if name == "gabor" and place == 2:
                x = torch.cat([x.real, x.imag], -1)
            x = nn.functional.linear(x, weight, bias)
            x = x if place == 2 else activation(x)
        target = batch.values[signal].flatten(0, 1)
        if name != "relu":
            target = target - target.mean(0, dtype=torch.float64).float()
            target = target / target.abs().max()
        errors = x - target
        errors.square().sum().backward()
        torch.testing.assert_close(squared[signal], errors.square().sum())
        for mine, theirs in zip(layers, weights, strict=True):
            assert all(check(a.grad[signal], b.grad) for a, b in zip(mine, theirs, strict=True))


def test_signals_start_alike_and_are_counted_once() -> None:
    torch.manual_seed(0)
    stack = VmapEnsemble(NETWORKS["simple"](), 3, ["encoding.scale", "encoding.directions"])
    weight = stack.network.get_parameter("mlp.layers.0.weight")
    assert weight.shape == (3, 7, 8)
    assert torch.equal(weight[0], weight[2])
    assert stack.num_params == sum(parameter[0].numel() for parameter in stack.parameters())
    assert not {"encoding.scale"} & {name for name, _ in stack.per_signal()}


def test_each_network_is_changed_with_its_own_input() -> None:
    stack = made("complex", 3)
    assert isinstance(stack, VmapEnsemble)
    solution: Tensor = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    stack.change("start_from", solution, each=True)
    assert torch.equal(stack.network.get_parameter("weight"), solution)

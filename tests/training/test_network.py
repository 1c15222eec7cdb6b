"""Networks of a user, plain modules of PyTorch, as models: fits, checkpoints, resumption, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from packaging.version import Version
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pe_lightning import fit, load
from pe_lightning.errors import InputError
from pe_lightning.signals import SignalInfo
from pe_lightning.training import NetworkModule, TensorDataModule

VALUES = torch.rand(3, 12, 10, 3, generator=torch.Generator().manual_seed(0))
SETTINGS: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class Own(nn.Module):
    """A network with buffers, complex numbers, a parametrised layer, a layer used twice, and an attribute with our name."""

    def __init__(self, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        self.encoding = nn.Linear(2, width)
        self.inner = nn.Linear(width, width)
        nn.utils.parametrize.register_parametrization(self.inner, "weight", nn.Tanh())
        self.last = nn.Linear(width, channels)
        self.factor = nn.Parameter(torch.full((width,), 1 + 1j))
        self.register_buffer("omega", torch.tensor(9.0))

    def forward(self, x: Tensor) -> Tensor:
        x = (self.factor * torch.sin(self.omega * self.encoding(x))).imag
        return self.last(torch.relu(self.inner(self.inner(x))))


def perceptron(width: int = 16) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3))


def trained_plainly(network: nn.Module, values: Tensor, steps: int, scaled: bool) -> Tensor:
    """Values at all samples after steps of Adam on every second one, by a loop of PyTorch alone."""
    axes = [torch.arange(n) / n for n in values.shape[:2]]
    coords, target = torch.cartesian_prod(*[x[::2] for x in axes]), values[::2, ::2].reshape(-1, 3)
    center = target.mean(0) if scaled else torch.zeros(3)
    scale = (target - center).abs().max() if scaled else torch.ones(())
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1, (steps - step) / (0.2 * steps))  # falls in the last fifth
        optimizer.zero_grad()
        (network(coords) - (target - center) / scale).square().mean().backward()
        optimizer.step()
    return (center + scale * network(torch.cartesian_prod(*axes))).detach()


@pytest.mark.parametrize("scaled", [False, True])
def test_each_signal_is_trained_as_by_a_loop_of_pytorch(scaled: bool) -> None:
    network = perceptron()
    start = nn.utils.parameters_to_vector(network.parameters()).detach()
    model = fit(VALUES, model=NetworkModule(network, scale_targets=scaled), max_steps=30)
    assert torch.equal(nn.utils.parameters_to_vector(network.parameters()), start)  # the object that was given stays
    expected = torch.stack([trained_plainly(perceptron(), values, 30, scaled) for values in VALUES])
    found = model(torch.cartesian_prod(*[torch.arange(n) / n for n in VALUES.shape[1:3]]))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert model.scores["test/psnr"].shape == (3,)
    assert model.describe()["network"] == {"name": "Sequential"}
    alone = model.networks.network_of(1)
    torch.testing.assert_close(alone(torch.full((4, 2), 0.3)), model(torch.full((4, 2), 0.3))[1])


@pytest.mark.parametrize("signals", [1, 3])
@pytest.mark.parametrize("batching", [{}, {"kind": "points", "size": 7}])
def test_a_resumed_fit_reaches_the_same_weights(signals: int, batching: dict[str, Any], tmp_path: Any) -> None:
    def fitted(steps: int, ckpt_path: Any = None) -> tuple[NetworkModule, Trainer]:
        torch.manual_seed(1)
        network = nn.Sequential(perceptron(), nn.Dropout(0.1)) if ckpt_path is None else other
        model = NetworkModule(network, scale_targets=True)
        trainer = Trainer(max_steps=steps, default_root_dir=tmp_path, **SETTINGS)
        data = TensorDataModule(VALUES[:signals], batching=batching)
        trainer.fit(model, data, ckpt_path=ckpt_path, weights_only=True)
        return model, trainer

    torch.manual_seed(5)
    other = nn.Sequential(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)), nn.Dropout(0.1))
    whole, _ = fitted(9)
    _, trainer = fitted(4)
    trainer.save_checkpoint(tmp_path / "four.ckpt")
    resumed, _ = fitted(9, tmp_path / "four.ckpt")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_description_is_loaded_from_its_checkpoint_and_an_object_with_the_network(tmp_path: Any) -> None:
    points = torch.rand(5, 2)
    described = NetworkModule({"class_path": f"{__name__}.Own", "init_args": {"width": 8}})
    own = perceptron()
    for name, model in {"described": described, "object": NetworkModule(own, scale_targets=True)}.items():
        trainer = Trainer(max_steps=2, default_root_dir=tmp_path, **SETTINGS)
        trainer.fit(model, TensorDataModule(VALUES))
        trainer.save_checkpoint(tmp_path / f"{name}.ckpt")
        given = {} if name == "described" else {"network": perceptron()}  # whose scaling the checkpoint holds
        again = NetworkModule.load_from_checkpoint(tmp_path / f"{name}.ckpt", weights_only=True, **given)
        assert torch.equal(again(points), model(points))
    assert torch.equal(load(tmp_path / "described.ckpt")(points), described(points))
    with pytest.raises(InputError, match=r"needs a network.*load_from_checkpoint\(PATH, network=NETWORK\)"):
        load(tmp_path / "object.ckpt")
    with pytest.raises(InputError, match=r"another network.*0.bias has shape \(16,\) in the checkpoint, \(5,\) here"):
        NetworkModule.load_from_checkpoint(tmp_path / "object.ckpt", weights_only=True, network=perceptron(5))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight


class Branching(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        values = super().forward(x)
        return values if self.weight.sum() > 0 else -values


class Of(nn.Module):
    """A layer, and a function of it and the coordinates."""

    def __init__(self, function: Any, channels: int) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def of(function: Callable[[nn.Linear, Tensor], Tensor], channels: int = 3) -> nn.Module:
    return Of(lambda self, x: function(self.layer, x), channels)


def recomputed(layer: nn.Linear, x: Tensor) -> Tensor:
    values: Tensor = checkpoint(lambda given: layer(given).tanh(), x, use_reentrant=False)
    return values


with warnings.catch_warnings():  # PyTorch has newer ones
    warnings.simplefilter("ignore")
    NORMALISED = nn.utils.weight_norm(nn.Linear(2, 3))
    SCRIPTED, TRACED = torch.jit.script(nn.Linear(2, 3)), torch.jit.trace(nn.Linear(2, 3), torch.rand(4, 2))


class Plain(LightningModule):
    """Steps of its own."""


REFUSED = {
    "axes": (nn.Linear(5, 3), r"Linear fails at coordinates \(4, 2\): .*4x2 and 5x3.*must map coordinates \(\.\.\., 2\)"),
    "channels": (nn.Linear(2, 1), r"Linear returns \(4, 1\), torch.float32 .*floating-point values \(\.\.\., 3\)"),
    "no tensor": (nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 3)), r"Sequential returns a tuple"),
    "statistics": (nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), r"changes its buffers.*1.running_mean.*LayerNorm"),
    "vmap": (Branching(2, 3), r"Branching cannot be evaluated for 3 signals together.*signals_per_chunk=1"),
    "tied": (nn.Sequential(Tied(), nn.Linear(2, 3)), "fails"),
    "constant": (of(lambda layer, x: torch.zeros(len(x), 3)), r"Of returns values that do not depend on its parameters"),
    "detached": (of(lambda layer, x: layer(x).detach()), r"do not depend on its parameters.*without detach\(\)"),
    "checkpoint": (
        of(recomputed),
        r"Of has no gradient: .*signals_per_chunk or take batches of points.*torch.utils.checkpoint"
        if Version(torch.__version__) >= Version("2.12")  # vmap refuses it before
        else r"Of cannot be evaluated for 3 signals together.*vmap over _NoopSaveInputs.*signals_per_chunk=1",
    ),
    "normalised": (NORMALISED, r"Linear cannot be copied.*torch.nn.utils.parametrizations.weight_norm"),
    "scripted": (SCRIPTED, r"is or has a module of torch.jit.*give the module that"),
    "traced inside": (nn.Sequential(TRACED), r"is or has a module of torch.jit"),
    "no parameters": (nn.ZeroPad1d((0, 1)), "no parameters to train"),
    "steps": (Plain(), r"Plain is a LightningModule .*Trainer.*--model .*Plain --data"),
    "word": ("SimpleMLP", r"model is an nn.Module.*got 'SimpleMLP'"),
}


@pytest.mark.parametrize(("network", "message"), REFUSED.values(), ids=REFUSED)
def test_a_network_that_cannot_be_fitted_is_refused(network: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fit(VALUES, model=network, max_steps=1)


def test_lazy_layers_have_their_size_before_a_fit() -> None:
    torch.manual_seed(0)
    model = NetworkModule(nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(3)))
    model.build(SignalInfo(("a", "b"), (8, 8), 3))
    assert model(torch.rand(5, 2)).shape == (2, 5, 3)
    assert model.num_params == 12 + 15


@pytest.mark.parametrize(
    "function",
    [
        lambda layer, x: layer(x) * (1 + 0 * x.sum().item()),
        lambda layer, x: layer(torch.from_numpy(np.cos(x.numpy()))),
        lambda layer, x: layer(x) if x.max() > 0 else layer(-x),
    ],
    ids=["item", "numpy", "branch"],
)
def test_a_network_without_vmap_fits_several_signals_with_points_of_their_own_one_after_another(function: Any) -> None:
    random: dict[str, Any] = {"sampling": "random", "max_steps": 2}
    with pytest.raises(InputError, match=r"Of cannot be evaluated for 3 signals together.*signals_per_chunk=1"):
        fit(VALUES, model=of(function), **random)
    network = of(function)
    together = fit(VALUES, model=NetworkModule(network, signals_per_chunk=1), **random)
    alone = fit(VALUES[:1], model=network, **random)
    torch.testing.assert_close(together.scores["test/psnr"][:1], alone.scores["test/psnr"])


def test_a_network_that_keeps_computed_tensors_is_not_copied() -> None:
    model = fit(VALUES, model=Of(lambda self, x: setattr(self, "kept", self.layer(x)) or self.kept, 3), max_steps=1)
    with pytest.raises(InputError, match=r"Of cannot be copied: .*leave out computed tensors as attributes"):
        model.networks.network_of(0)


def test_a_fit_in_float64() -> None:
    model = NetworkModule(perceptron())
    Trainer(max_steps=2, precision="64-true", enable_checkpointing=False, **SETTINGS).fit(model, TensorDataModule(VALUES))
    assert model(torch.rand(5, 2)).dtype == torch.float64


DEPENDENT = {
    "mean": lambda self, x: self.layer(x - x.mean(0)),
    "mean in training alone": lambda self, x: self.layer(x - x.mean(0) if self.training else x),
    "statistics of batches": lambda self, x: nn.functional.batch_norm(self.layer(x), None, None, training=True),
    "attention": lambda self, x: nn.functional.scaled_dot_product_attention(*[self.layer(x)[None]] * 3)[0],
    "earlier points": lambda self, x: self.layer(x).cumsum(0),
    "position": lambda self, x: self.layer(x) + torch.arange(len(x))[:, None],
}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda self, x: self.layer(x.sub_(0.5)), r"changes its input in place.*x - 0.5 in place of"),
        *((function, "another value where it is evaluated with other points") for function in DEPENDENT.values()),
    ],
    ids=["in place", *DEPENDENT],
)
def test_networks_of_more_than_a_point_are_refused(function: Any, words: str) -> None:
    """In place they damage the coordinates of later steps; statistics and attention train other values than they predict."""
    with pytest.raises(InputError, match=words):
        fit(torch.rand(1, 8, 8, 3), model=Of(function, 3), max_steps=2)

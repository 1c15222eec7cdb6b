"""Fits of encoders with parameters: each signal has its own, all are trained, saved and reported."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import SAMPLINGS, Losses, MakeTrainer, fit, signals
from learned_encoders import REGISTERED, LearnedGaussian
from lightning.pytorch import seed_everything
from torch import Tensor

from pe_lightning.encoders import Width, create, names, registry
from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, CoordinateModule, SimpleMLP, TensorDataModule


class Penalised(LearnedGaussian):
    """Gaussians of a trained width, with a penalty that pulls it to 1."""

    width = Width("sigma", "length", lambda k: 1 / k, "1/K")

    def __init__(self, num_features: int = 8, sigma: float | None = 0.2, padding: int = 0, strength: float = 0.0) -> None:
        super().__init__(num_features, sigma, padding)
        self.strength = strength

    def penalty(self) -> Tensor:
        return self.strength * self.log_sigma.square()


MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "complex": lambda encoder, **more: ComplexLinear(encoder, **more),
    "complex-head": lambda encoder, **more: ComplexLinear(encoder, depth=1, hidden_size=8, **more),
    "simple": lambda encoder, **more: SimpleMLP(encoder, depth=1, hidden_size=8, **more),
}
every_module = pytest.mark.parametrize("kind", MODULES)
SGD = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.05)}


def log_widths(module: CoordinateModule) -> list[Tensor]:
    """The logarithms of the widths of the distinct encoders."""
    return [encoder.log_sigma.detach().clone() for encoder in dict.fromkeys(module.encoding.encoders)]


def test_every_registered_encoder_with_parameters_is_tested() -> None:
    tested = {description["name"] for description in REGISTERED.values()}
    for name in names():
        arguments = registry.parameters(registry.get(name))
        learns = {"trainable", "mlp"} & set(arguments) or any(True for _ in create(name).parameters())
        assert bool(learns) == (name in tested), name


@every_module
@pytest.mark.parametrize(("sampling", "shared"), [("grid", False), ("grid", True), ("random", False), ("shared", True)])
def test_a_fit_is_a_bare_loop(kind: str, shared: bool, sampling: str, make_trainer: MakeTrainer) -> None:
    """Gradients go through the features, which are computed anew each step."""
    data, losses = TensorDataModule(signals(2, 8, 6), sampling=SAMPLINGS[sampling]), Losses()
    seed_everything(0, verbose=False)
    made = MODULES[kind](Penalised(), shared_encoder=shared, **SGD)
    fit(made, data, make_trainer, 4, callbacks=[losses], limit_val_batches=0)
    assert all((width != math.log(0.2)).all() for width in log_widths(made))
    seed_everything(0, verbose=False)
    bare, batch, expected = MODULES[kind](Penalised(), shared_encoder=shared), data.train_batch(), []
    bare.build_from(data)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        loss = bare.errors(batch).square().mean(1).sum()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses.values == pytest.approx(expected, rel=1e-5)


TOGETHER = [(key, "simple", "grid") for key in REGISTERED]
TOGETHER += [(key, kind, "grid") for key in ("gau", "rff-each", "lff", "hash") for kind in ("complex", "complex-head")]
TOGETHER += [(key, kind, "shared") for key in ("gau", "embed") for kind in MODULES]


@pytest.mark.parametrize(("key", "kind", "sampling"), TOGETHER)
def test_fitted_alone_is_fitted_together(key: str, kind: str, sampling: str) -> None:
    values = signals(2, 10, 6)

    def fitted(some: Tensor) -> CoordinateModule:
        seed_everything(0, verbose=False)
        data, module = TensorDataModule(some, sampling=SAMPLINGS[sampling]), MODULES[kind](REGISTERED[key])
        data.setup("fit")
        module.build_from(data)
        if kind == "complex":  # it starts at zero, where a table close to zero has hardly a gradient
            module.get_parameter("networks.network.weight").data.fill_(0.3)
        assert module.networks.features_are_trained
        batch, optimizer = data.train_batch(), torch.optim.SGD(module.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            (module.errors(batch).square().mean(1).sum() + module.networks.penalty()).backward()
            optimizer.step()
        return module

    together, alone = fitted(values), fitted(values[1:])
    theirs = dict(alone.networks.per_signal())
    for name, tensor in together.networks.per_signal():
        torch.testing.assert_close(tensor[1], theirs[name][0], rtol=2e-4, atol=2e-5, msg=name)
    moved = [parameter for parameter in together.encoding.parameters() if not torch.equal(parameter[0], parameter[1])]
    assert moved, "each signal has its own"
    assert together.num_params == alone.num_params


@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_a_chosen_width_is_where_training_starts(sampling: str, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """``sigma: auto`` and trained: chosen before the optimiser exists, then trained by it, and in the checkpoint."""
    gau = {"name": "gau", "num_features": 16, "sigma": "auto", "trainable": True}
    data = TensorDataModule(signals(1, 40, 40), sampling=SAMPLINGS[sampling])
    still = ComplexLinear(gau, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    fit(still, data, make_trainer, 1, limit_val_batches=0)
    (chosen,) = {float(width) for width in log_widths(still)}
    assert chosen != pytest.approx(math.log(0.64 / 16))
    assert still.solution is not None
    assert not still.weight.any(), "gradient descent starts from zero"
    module = ComplexLinear(gau, **SGD)
    trainer = fit(module, data, make_trainer, 3, limit_val_batches=0)
    stepped = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    assert all(id(parameter) in stepped for parameter in module.parameters())
    assert all(float(width) != chosen for width in log_widths(module))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    again = ComplexLinear.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert log_widths(again) == log_widths(module)
    x = torch.rand(5, 2)
    assert torch.equal(again(x), module(x))


@every_module
def test_encoder_and_network_have_their_own_rates(kind: str, make_trainer: MakeTrainer) -> None:
    module = MODULES[kind](Penalised(), encoder_lr=1e-9, **SGD)
    trainer = fit(module, TensorDataModule(signals(2, 8, 6)), make_trainer, 3, limit_val_batches=0)
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == [0.05, 1e-9]
    for width in log_widths(module):
        torch.testing.assert_close(width, torch.full_like(width, math.log(0.2)), rtol=1e-6, atol=0)
    with pytest.raises(InputError, match="encoder_lr must be a positive number"):
        MODULES[kind](Penalised(), encoder_lr=0.0)


def test_an_optimiser_that_leaves_a_parameter_out_is_refused(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(Penalised(), optimizer=lambda parameters: torch.optim.SGD(list(parameters)[:1], lr=0.1))
    with pytest.raises(InputError, match=r"the optimiser leaves out .*log_sigma"):
        fit(module, TensorDataModule(signals(1, 8, 6)), make_trainer, 1)


@every_module
@pytest.mark.parametrize("shared", [True, False])
def test_a_penalty_is_part_of_the_loss(kind: str, shared: bool, make_trainer: MakeTrainer) -> None:
    losses = []
    for strength in (0.0, 2.0):
        seed_everything(0, verbose=False)
        module, seen = MODULES[kind](Penalised(strength=strength), shared_encoder=shared, **SGD), Losses()
        fit(module, TensorDataModule(signals(3, 8, 6)), make_trainer, 1, callbacks=[seen], limit_val_batches=0)
        losses.append(seen.values[0])
    encoders = len(dict.fromkeys(module.encoding.encoders)) * (1 if shared else 3)
    assert losses[1] - losses[0] == pytest.approx(2 * math.log(0.2) ** 2 * encoders, rel=1e-4)


@pytest.mark.parametrize(
    ("encoder", "grid"),
    [
        *((REGISTERED["gau"], grid) for grid in ((12, 8, 8), (8, 8, 12), (8, 12, 8))),
        (REGISTERED["lff"], (12, 8, 8)),
        ({"name": "rff", "num_features": 8}, (8, 12, 8)),
    ],
)
def test_a_checkpoint_keeps_which_axes_share_their_encoder(
    encoder: dict[str, Any], grid: tuple[int, ...], make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    """A width or size that follows the samples makes two encoders of one, for axes of two sizes."""
    model = ComplexLinear({key: value for key, value in encoder.items() if key not in ("num_features", "gamma")})
    trainer = fit(model, TensorDataModule(signals(2, *grid)), make_trainer, steps=2)
    trainer.save_checkpoint(tmp_path / "some.ckpt")
    loaded, points = ComplexLinear.load_from_checkpoint(tmp_path / "some.ckpt"), torch.rand(4, 3)
    assert len(set(map(id, loaded.encoding.encoders))) == len(set(map(id, model.encoding.encoders))) == 2
    assert loaded.num_params == model.num_params
    torch.testing.assert_close(loaded(points), model(points))


@pytest.mark.parametrize("name", ["lff", "embed", "sine1d", "sine_nd", "md_sine", "hash", "grid", "lines", "planes"])
def test_sizes_left_to_the_data_follow_the_trained_samples(name: str, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """As they are in the results and in a checkpoint; one that is given stays."""
    expected: dict[str, Any] = {
        "lff": ("gamma", pytest.approx(3 / (16 * 8) ** 0.5)),
        "hash": ("finest", [4, 2]),
        "grid": ("finest", [4, 2]),
        "lines": ("cells", [16, 8]),
        "planes": ("plane_cells", [4, 2]),
    }
    argument, value = expected.get(name, ("num_positions", 11))
    data = TensorDataModule(signals(1, 32, 16), sampling="grid")
    module = SimpleMLP(name, depth=0)
    trainer = fit(module, data, make_trainer, 1, limit_val_batches=0)
    assert module.describe()["encoder"][argument] == value
    assert module.describe()["encoder"]["num_axes"] == 2
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    again = SimpleMLP.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    x = torch.rand(5, 2)
    assert torch.equal(again(x), module(x))
    given = SimpleMLP({"name": name, argument: 5}, depth=0)
    fit(given, data, make_trainer, 1, limit_val_batches=0)
    assert given.describe()["encoder"][argument] in (5, [5, 5])
    along = ComplexLinear(name)
    along.build_from(data)
    axes = along.describe()["encoder"]
    assert [axis[argument] for axis in axes] == {
        "gamma": [3 / 16, 3 / 8], "num_positions": [16, 8], "finest": [[4], [2]], "cells": [[16], [8]],
        "plane_cells": [[4], [2]],
    }[argument]  # fmt: skip

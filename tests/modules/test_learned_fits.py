"""Fits with the encoders that learn: each signal has its own, sizes follow the samples, what was learned is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import SAMPLINGS, MakeTrainer, fit, signals
from learned_encoders import train
from lightning.pytorch import seed_everything
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from pe_lightning.data import TensorDataModule
from pe_lightning.encoders import create, names, registry, resolve
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP

ROOT = Path(__file__).parents[2]
MLP = {"num_features": 8, "num_inputs": 8, "hidden": 4, "mlp": True}
SINES = {"num_features": 8, "num_positions": 6}
LEARNED: dict[str, dict[str, Any]] = {
    "lff": {"name": "lff", **MLP, "gamma": 0.2, "kl": 0.1},
    "lff-no-mlp": {"name": "lff", "num_features": 8, "gamma": 0.2},
    "embed": {"name": "embed", "num_features": 8, "num_positions": 6},
    "embed-nearest": {"name": "embed", **MLP, "num_positions": 6, "interpolation": "nearest", "flat": True},
    "pos_mlp": {"name": "pos_mlp", "num_features": 8, "hidden": 4},
    "sine1d": {"name": "sine1d", **SINES, **MLP},
    "sine_nd": {"name": "sine_nd", **SINES, **MLP},
    "md_sine": {"name": "md_sine", **SINES, **MLP},
    "hash": {"name": "hash", "num_levels": 3, "finest": 6, "table_size": 20},
    "grid": {"name": "grid", "num_levels": 2, "finest": 6},
    "lines": {"name": "lines", "rank": 6, "cells": 5},
    "planes": {"name": "planes", "rank": 6, "cells": 5, "plane_cells": 3},
    **{
        f"{name}{'-each' if each else ''}": {"name": name, "num_features": 8, "trainable": True, "per_feature": each}
        for name in ("gau", "tri", "laplace", "linf", "logf", "rff")
        for each in (False, True)
    },
}
every = pytest.mark.parametrize("key", LEARNED)


def test_all_encoders_that_learn_are_here() -> None:
    tested = {description["name"] for description in LEARNED.values()}
    for name in names():
        arguments = registry.parameters(registry.get(name))
        learns = {"trainable", "mlp"} & set(arguments) or any(True for _ in create(name).parameters())
        assert bool(learns) == (name in tested), name


@every
@pytest.mark.parametrize("num_axes", [1, 2])
def test_encoders_of_many_signals_run_together(key: str, num_axes: int) -> None:
    """Values and gradients, and copies that keep what was learned."""
    encoder = resolve(LEARNED[key])
    if num_axes == 2 and not encoder.joint:
        return
    encoder = encoder.copy(num_axes=2) if num_axes == 2 else encoder
    x = torch.rand((20, num_axes) if num_axes > 1 else (20,), dtype=torch.float64)
    several = [train(encoder.copy().double(), seed) for seed in range(3)]
    parameters, buffers = stack_module_state(several)  # type: ignore[arg-type]

    def features(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(encoder, (parameters, buffers), (x,))

    together, alone = vmap(features)(parameters, buffers), torch.stack([one(x) for one in several])
    torch.testing.assert_close(together, alone)
    assert not torch.equal(alone[0], alone[1])
    assert torch.equal(several[0].copy()(x), alone[0])
    found = torch.autograd.grad(together.square().sum(), list(parameters.values()), allow_unused=True)
    expected = [torch.autograd.grad(one(x).square().sum(), list(one.parameters()), allow_unused=True) for one in several]
    for ours, theirs in zip(found, zip(*expected, strict=True), strict=True):
        assert (ours is None) == (theirs[0] is None)  # the variance of the penalty
        if ours is not None:
            torch.testing.assert_close(ours, torch.stack(theirs))


MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "simple": lambda encoder: SimpleMLP(encoder, depth=1, width=8),
    "complex": lambda encoder: ComplexLinear(encoder),
}


@every
@pytest.mark.parametrize("kind", MODULES)
def test_fitted_alone_is_fitted_together(key: str, kind: str) -> None:
    values = signals(2, 10, 6)

    def fitted(some: Tensor) -> CoordinateModule:
        seed_everything(0, verbose=False)
        data, module = TensorDataModule(some, sampling=SAMPLINGS["grid"]), MODULES[kind](LEARNED[key])
        data.setup("fit")
        module.build_from(data)
        if isinstance(module, ComplexLinear):
            module.weight.data.fill_(0.3)  # it starts at zero, where a table close to zero has hardly a gradient
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


PAIRS = [(key, "simple") for key in LEARNED if key == "gau-each" or not key.endswith("-each")]
PAIRS += [(key, "complex") for key in ("gau", "hash", "lff")]


@pytest.mark.parametrize(("key", "kind"), PAIRS)
def test_derivatives_of_many_signals_are_those_of_their_networks(key: str, kind: str) -> None:
    """Of every encoder below one of the modules, of which encoders know nothing, and of three below the other."""
    data, module = TensorDataModule(signals(2, 10, 6)), MODULES[kind](LEARNED[key])
    data.setup("fit")
    module.build_from(data)
    for _, tensor in module.networks.per_signal():
        tensor.data[1] *= 1.1
    module.double()
    points = torch.rand(4, 2, dtype=torch.float64)
    for name in ("gradient", "laplacian"):
        expected = [getattr(module.networks.network_of(place), name)(points) for place in range(2)]
        torch.testing.assert_close(getattr(module, name)(points), torch.stack(expected))
    module.laplacian(points).square().sum().backward()


@pytest.mark.parametrize("encoder", [LEARNED["gau"], LEARNED["lff"], {"name": "rff", "num_features": 8}])
@pytest.mark.parametrize("grid", [(12, 8, 8), (8, 8, 12), (8, 12, 8)])
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


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_a_width_that_is_four_times_wrong_is_repaired(factor: float, make_trainer: MakeTrainer) -> None:
    """Of signals that the encoder with the true width has made; what is learned is what is reported, per signal."""
    weight = torch.randn(16, 2, generator=torch.Generator().manual_seed(0))
    values = create("gau", num_features=16, sigma=0.04)(torch.arange(64) / 64) @ weight
    values = 0.5 + values / (2 * values.abs().max())
    module = ComplexLinear(
        {"name": "gau", "num_features": 16, "sigma": factor * 0.04, "trainable": True},
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.05),
    )
    fit(module, TensorDataModule(torch.stack([values, values])), make_trainer, 160, limit_val_batches=0)
    learned = module.encoding.encoders[0].sigma.tolist()
    assert json.loads(json.dumps(module.describe()))["encoder"]["sigma"] == pytest.approx(learned)
    assert learned == pytest.approx([0.04, 0.04], rel=0.4)


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

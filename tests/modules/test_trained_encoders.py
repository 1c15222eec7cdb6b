"""Encoders whose parameters are trained: nothing that may be trained is lost, and each signal has its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import SAMPLINGS, Losses, MakeTrainer, fit, signals
from lightning.pytorch import seed_everything
from torch import Tensor, nn

from pe_lightning.data import Batching, SignalInfo, TensorDataModule
from pe_lightning.encoders import Encoder
from pe_lightning.encoders.base import Width
from pe_lightning.errors import InputError
from pe_lightning.modules import ComplexLinear, CoordinateModule, SimpleMLP


class Trainable(Encoder):
    """Gaussians of a width that is learned, with a penalty that pulls it to 1."""

    width = Width("sigma", "length", lambda k: 1 / k, "1/K")

    def __init__(self, num_features: int = 6, sigma: float | str | None = 0.2, strength: float = 0.0) -> None:
        super().__init__(num_features)
        start = sigma if isinstance(sigma, (int, float)) else 1 / num_features
        self.log_sigma = nn.Parameter(torch.tensor(math.log(start)))
        self.strength = strength

    def forward(self, x: Tensor) -> Tensor:
        shifts = torch.arange(self.num_features, dtype=x.dtype, device=x.device) / self.num_features
        return torch.exp(-(((x[..., None] - shifts) / self.log_sigma.exp()) ** 2) / 2)

    def penalty(self) -> Tensor:
        return self.strength * self.log_sigma.square()


class Table(Encoder):
    """A learned vector per position, which starts close to zero."""

    normalizable = False

    def __init__(self, num_features: int = 6) -> None:
        super().__init__(num_features)
        self.table = nn.Parameter(1e-4 * torch.randn(16, num_features, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        position = (x.detach() * 16).long().clamp(0, 15)
        return self.table[position].to(x.dtype)


SMALL: dict[str, Any] = {"layout": "axes", "depth": 1, "width": 8}
MODULES: dict[str, Callable[..., CoordinateModule]] = {
    "complex": lambda encoder, **more: ComplexLinear(encoder, **more),
    "complex-head": lambda encoder, **more: ComplexLinear(encoder, depth=1, width=8, **more),
    "simple": lambda encoder, **more: SimpleMLP(encoder, **SMALL, **more),
}
every_module = pytest.mark.parametrize("kind", MODULES)
SGD = {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.05)}


def widths(module: CoordinateModule) -> list[Tensor]:
    """The logarithms of the widths, of each distinct encoder."""
    return [encoder.log_sigma.detach().clone() for encoder in dict.fromkeys(module.encoding.encoders)]


@every_module
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_fit_is_a_bare_loop(kind: str, shared: bool, sampling: str, make_trainer: MakeTrainer) -> None:
    """Gradients go through the features, which are computed anew each step."""
    data, losses = TensorDataModule(signals(2, 8, 6), sampling=SAMPLINGS[sampling]), Losses()
    seed_everything(0, verbose=False)
    made = MODULES[kind](Trainable(), shared_encoder=shared, **SGD)
    fit(made, data, make_trainer, 4, callbacks=[losses], limit_val_batches=0)
    assert all((width != math.log(0.2)).all() for width in widths(made))
    seed_everything(0, verbose=False)
    bare, batch, expected = MODULES[kind](Trainable(), shared_encoder=shared), data.train_batch(), []
    bare.build_from(data)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        loss = bare.errors(batch).square().mean(1).sum()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert losses.values == pytest.approx(expected, rel=1e-5)


@every_module
@pytest.mark.parametrize("encoder", [Trainable, Table])
@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_fitted_alone_is_fitted_together(
    kind: str, encoder: type[Encoder], sampling: str, make_trainer: MakeTrainer
) -> None:
    values = signals(3, 10, 6)

    def fitted(some: Tensor) -> CoordinateModule:
        seed_everything(0, verbose=False)
        module = MODULES[kind](encoder(), **SGD)
        data = TensorDataModule(some, sampling=SAMPLINGS["shared"] if sampling == "random" else sampling)
        fit(module, data, make_trainer, 8, limit_val_batches=0)
        return module

    together, alone = fitted(values), [fitted(values[s : s + 1]) for s in range(3)]
    for name, tensor in together.networks.per_signal():
        if not tensor.is_floating_point() or name.endswith("directions"):
            continue
        for s in range(3):
            other = dict(alone[s].networks.per_signal())[name]
            torch.testing.assert_close(tensor[s], other[0], rtol=2e-4, atol=2e-5, msg=name)
    if encoder is Trainable:  # a linear layer that starts at zero hardly moves a table in eight steps
        assert all(not torch.equal(p[0], p[2]) for p in together.encoding.parameters()), "each signal has its own"
    assert together.num_params == alone[0].num_params


def test_a_shared_encoder_is_counted_once() -> None:
    shared, own = ComplexLinear(Trainable(), shared_encoder=True), ComplexLinear(Trainable())
    for module in (shared, own):
        module.build(SignalInfo(("a", "b", "c"), (4, 4), 2))
        assert module.num_params == 2 * 36 + 1
    assert sum(p.numel() for p in shared.parameters()) == 3 * 72 + 1
    assert sum(p.numel() for p in own.parameters()) == 3 * 73


@pytest.mark.parametrize("sampling", ["grid", "random"])
def test_a_chosen_width_is_where_training_starts(sampling: str, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    """``sigma: auto`` and trained: chosen before the optimiser exists, then trained by it, and in the checkpoint."""
    values = signals(1, 40, 40)
    data = TensorDataModule(values, sampling=SAMPLINGS[sampling])
    still = ComplexLinear(Trainable(16, "auto"), optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    fit(still, data, make_trainer, 1, limit_val_batches=0)
    (chosen,) = {float(width) for width in widths(still)}
    assert chosen != pytest.approx(math.log(1 / 16))
    assert still.solution is not None
    module = ComplexLinear(Trainable(16, "auto"), **SGD)
    trainer = fit(module, data, make_trainer, 3, limit_val_batches=0)
    stepped = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    assert all(id(parameter) in stepped for parameter in module.parameters())
    assert all(float(width) != chosen for width in widths(module))
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    again = ComplexLinear.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    assert widths(again) == widths(module)
    x = torch.rand(5, 2)
    assert torch.equal(again(x), module(x))


@every_module
def test_a_resumed_fit_keeps_what_was_learned(kind: str, make_trainer: MakeTrainer, tmp_path: Path) -> None:
    def run(steps: int, **more: Any) -> CoordinateModule:
        seed_everything(0, verbose=False)
        module, data = MODULES[kind](Trainable()), TensorDataModule(signals(2, 10, 8), batching=Batching(steps_per_epoch=3))
        trainer = make_trainer(max_steps=steps, num_sanity_val_steps=0, limit_val_batches=0)
        trainer.fit(module, data, **more)
        trainer.save_checkpoint(tmp_path / f"{steps}.ckpt")
        return module

    whole = run(6)
    run(3)
    resumed = run(6, ckpt_path=tmp_path / "3.ckpt", weights_only=True)
    for (name, here), there in zip(whole.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(here, there), name


@every_module
def test_encoder_and_network_have_their_own_rates(kind: str, make_trainer: MakeTrainer) -> None:
    module = MODULES[kind](Trainable(), encoder_lr=1e-9, **SGD)
    trainer = fit(module, TensorDataModule(signals(2, 8, 6)), make_trainer, 3, limit_val_batches=0)
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == [0.05, 1e-9]
    for width in widths(module):
        torch.testing.assert_close(width, torch.full_like(width, math.log(0.2)), rtol=1e-6, atol=0)
    with pytest.raises(InputError, match="encoder_lr must be a positive number"):
        MODULES[kind](Trainable(), encoder_lr=0.0)


def test_an_optimiser_that_leaves_something_out(make_trainer: MakeTrainer) -> None:
    module = ComplexLinear(Trainable(), optimizer=lambda parameters: torch.optim.SGD(list(parameters)[:1], lr=0.1))
    with pytest.raises(InputError, match=r"the optimiser leaves out .*log_sigma"):
        fit(module, TensorDataModule(signals(1, 8, 6)), make_trainer, 1)


@every_module
@pytest.mark.parametrize("shared", [True, False])
def test_a_penalty_is_part_of_the_loss(kind: str, shared: bool, make_trainer: MakeTrainer) -> None:
    losses = []
    for strength in (0.0, 2.0):
        seed_everything(0, verbose=False)
        module, seen = MODULES[kind](Trainable(strength=strength), shared_encoder=shared, **SGD), Losses()
        fit(module, TensorDataModule(signals(3, 8, 6)), make_trainer, 1, callbacks=[seen], limit_val_batches=0)
        losses.append(seen.values[0])
    encoders = (2 if kind == "simple" else 1) * (1 if shared else 3)
    assert losses[1] - losses[0] == pytest.approx(2 * math.log(0.2) ** 2 * encoders, rel=1e-4)


@every_module
def test_features_that_start_close_to_zero_are_not_blown_up(kind: str, make_trainer: MakeTrainer) -> None:
    module = MODULES[kind](Table(), optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3))
    fit(module, TensorDataModule(signals(1, 16, 16)), make_trainer, 2, limit_val_batches=0)
    scale = getattr(module.encoding, "scales", None) if kind != "simple" else module.encoding.scale
    assert scale is not None
    assert scale.max() == 1
    assert all(parameter.abs().max() < 0.1 for parameter in module.encoding.parameters())


def test_a_model_built_too_early_says_so(make_trainer: MakeTrainer) -> None:
    module, data = ComplexLinear(Trainable(16, "auto")), TensorDataModule(signals(1, 40, 40))
    module.build(data.info)
    with pytest.raises(InputError, match="built before its width was chosen"):
        fit(module, data, make_trainer, 1)

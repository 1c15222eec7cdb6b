"""SimpleMLP with every activation: its optimiser, bare loops, checkpoints, derivatives; what is chosen by spectra."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from fits import MakeTrainer, check_derivatives, fit, signals
from lightning.pytorch import seed_everything
from lightning.pytorch.plugins.precision import DoublePrecision
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, FunctionModule, SimpleMLP, TensorDataModule

SMALL: dict[str, Any] = {"encoder": "identity", "depth": 2, "hidden_size": 12}
RATES = {"relu": 5e-3, "sine": 5e-4, "gabor": 1e-3, "finer": 5e-4, "gauss": 3e-3, "staf": 1e-3}


def waves(frequency: float, size: int = 32) -> Tensor:
    """``(1, size, size, 1)``: waves along both axes."""
    x = torch.arange(size) / size
    return (0.5 + 0.2 * torch.sin(2 * math.pi * frequency * x[:, None]) + 0.2 * torch.cos(2 * math.pi * frequency * x))[
        None, ..., None
    ]


@pytest.mark.parametrize("activation", RATES)
def test_a_fit_is_a_bare_loop_at_the_rate_of_the_activation(activation: str, make_trainer: MakeTrainer) -> None:
    """For all but relu on targets in [-1, 1], at a rate that falls at the end; two signals together are the two alone."""
    values = 0.5 + 0.2 * signals(2, 8, 6).double()

    def fitted(some: Tensor, **more: Any) -> SimpleMLP:
        seed_everything(0, verbose=False)
        module = SimpleMLP(activation=activation, **SMALL)
        fit(module, TensorDataModule(some), make_trainer, 10, limit_val_batches=0, precision="64-true", **more)
        return module

    axes = [torch.arange(8).double() / 8, torch.arange(6).double() / 6]
    torch.testing.assert_close(fitted(values).predict_grid(axes)[1:], fitted(values[1:]).predict_grid(axes))
    together = fitted(values, gradient_clip_val=0.1)
    seed_everything(0, verbose=False)
    start = SimpleMLP(activation=activation, **SMALL)
    with DoublePrecision().module_init_context():  # the same draw as the Trainer's
        start.build_from(TensorDataModule(values))
    networks = [start.networks.network_of(signal).mlp for signal in range(2)]  # type: ignore[union-attr]
    parameters = [parameter for network in networks for parameter in network.parameters()]  # type: ignore[union-attr]
    trained, coords = values[:, ::2, ::2], 2 * torch.cartesian_prod(*axes).reshape(8, 6, 2) - 1
    center = torch.zeros(2, 1, 1, 2) if activation == "relu" else trained.mean((1, 2), keepdim=True)
    scale = torch.ones(2, 1, 1, 1) if activation == "relu" else (trained - center).abs().amax((1, 2, 3), keepdim=True)
    decay = 1e-8 if activation == "relu" else 0.0
    optimizer = torch.optim.Adam(parameters, lr=RATES[activation], weight_decay=decay)
    for step in range(10):
        falling = 1 if activation == "relu" else min(1, (10 - step) / 2)  # over the last fifth
        optimizer.param_groups[0]["lr"] = RATES[activation] * falling
        optimizer.zero_grad()
        outputs = torch.stack([network(coords[::2, ::2]) for network in networks])  # type: ignore[operator]
        (outputs - (trained - center) / scale).square().mean((1, 2, 3)).sum().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.1)
        optimizer.step()
    outputs = torch.stack([network.eval()(coords) for network in networks])  # type: ignore[operator]
    torch.testing.assert_close(together.predict_grid(axes), center + scale * outputs)


def test_logged_rows_are_of_the_values(make_trainer: MakeTrainer) -> None:
    """Loss and PSNR before a step that changes nothing, though the targets are scaled."""
    values, axes = 0.4 + 0.1 * signals(2, 8, 6), [torch.arange(0, n, 2) / n for n in (8, 6)]
    module = SimpleMLP(activation="sine", lr=1e-30, **SMALL)
    trainer = fit(module, TensorDataModule(values), make_trainer, 1, log_every_n_steps=1)
    squared = (module.predict_grid(axes) - values[:, ::2, ::2]).detach().square().mean((1, 2, 3))
    assert trainer.callback_metrics["train/loss"] == pytest.approx(squared.sum().item(), rel=1e-5)
    assert trainer.callback_metrics["train/psnr"] == pytest.approx(-10 * squared.log10().mean().item(), rel=1e-5)
    assert module.batch_psnr == pytest.approx(-10 * squared.log10().mean().item(), rel=1e-5)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
@pytest.mark.parametrize("activation", ["gabor", "staf", "finer", "gauss"])
def test_every_activation_trains_in_other_precisions(activation: str, precision: str, make_trainer: MakeTrainer) -> None:
    module, data = SimpleMLP(activation=activation, **SMALL), TensorDataModule(signals(2, 8, 6))
    trainer = fit(module, data, make_trainer, 2, limit_val_batches=0, precision=precision)
    trainer.test(module, data, verbose=False)
    assert module.scores["test/psnr"].isfinite().all()


DERIVED: dict[str, FunctionModule] = {
    "siren": SimpleMLP(activation="sine", signals_per_chunk=1, **SMALL),
    "complex": ComplexLinear({"name": "gau", "num_features": 8, "sigma": 0.15}),
}


@pytest.mark.parametrize("kind", DERIVED)
def test_derivatives_of_every_module(kind: str) -> None:
    module, data = DERIVED[kind].double(), TensorDataModule(signals(2, 16, 12).double())
    module.build_from(data)
    module.double()
    if isinstance(module, ComplexLinear):  # it starts at zero
        module.weight.data.normal_()
    check_derivatives(module)
    with pytest.raises(InputError, match=r"shape \(\*batch, 2\)"):
        module(torch.rand(2, 3, 1))


def test_a_width_is_not_chosen() -> None:
    with pytest.raises(InputError, match="a number, or its rule"):
        SimpleMLP({"name": "rff", "sigma": "auto"})

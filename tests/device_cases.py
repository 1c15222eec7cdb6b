"""Small fits of every kind, which are made on the CPU and on another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import GAU, MODULES, SAMPLINGS, MakeTrainer, signals
from lightning.pytorch import Callback, Trainer
from stopping import TESTS, run_command
from torch import Tensor

from pe_lightning.encoders.base import registry as encoders
from pe_lightning.networks.activations import activations
from pe_lightning.signals import Batching
from pe_lightning.training import ComplexLinear, FunctionModule, SimpleMLP, TensorDataModule


@dataclass(frozen=True)
class Case:
    """A model, its data, the number of training steps, and callbacks."""

    model: Callable[[], FunctionModule]
    values: Callable[[], Tensor] = lambda: signals(3, 24, 20)
    data: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    callbacks: Callable[[], list[Callback]] = list


def with_gap() -> Tensor:
    values = signals(2, 24, 20)
    values[:, 5:9, 6:9] = torch.nan
    return values


def _exact(**more: Any) -> Callable[[], ComplexLinear]:
    return lambda: ComplexLinear({"name": "gau", "num_features": 16}, solver="exact", **more)


CASES: dict[str, Case] = {
    **{
        f"{kind}, {sampling}": Case(model, data={"sampling": SAMPLINGS[sampling]}, steps=3)
        for kind, model in MODULES.items()
        for sampling in SAMPLINGS
    },
    **{f"encoder {e}": Case(lambda e=e: ComplexLinear(e), lambda: signals(1, 12, 10), steps=1) for e in encoders},
    **{
        f"activation {a}": Case(lambda a=a: SimpleMLP(GAU, 1, 8, activation=a), lambda: signals(1, 12, 10), steps=1)
        for a in activations
    },
    "points, complex": Case(MODULES["complex"], data={"batching": Batching("points", size=50)}, steps=3),
    "points, simple": Case(MODULES["simple"], data={"batching": Batching("points", size=50)}, steps=3),
    "blocks, complex": Case(MODULES["complex"], data={"batching": Batching("blocks", size=9)}, steps=3),
    "chunks of signals": Case(lambda: MODULES["simple"](signals_per_chunk=2), steps=3),
    "one learned encoder": Case(lambda: ComplexLinear("lff", shared_encoder=True), steps=3),
    "lookups": Case(lambda: SimpleMLP("planes", depth=1, hidden_size=8), steps=3),
    "validation": Case(MODULES["simple"], data={"validation": 0.2}, steps=3),
    "gap, simple": Case(MODULES["simple"], with_gap, steps=3),
    "gap, exact": Case(_exact(), with_gap),
    **{f"exact, {s}": Case(_exact(), lambda: signals(2, 16, 12), {"sampling": SAMPLINGS[s]}) for s in ("grid", "random")},
    "exact, ridge": Case(_exact(ridge=1e-3)),
    "exact, row": Case(_exact(), lambda: signals(2, 64)),
    "exact, cube": Case(_exact(), lambda: signals(1, 12, 12, 12)),
    "exact, learned": Case(
        lambda: ComplexLinear({"name": "lff", "num_features": 4}, solver="exact"), lambda: signals(1, 16, 16, channels=1)
    ),
    # not with Adam, which divides the gradients at a solution, which are rounding, by their size
    "exact, hidden layer": Case(
        lambda: ComplexLinear(GAU, depth=1, hidden_size=6, solver="exact", optimizer=lambda p: torch.optim.SGD(p, lr=1e-3)),
        steps=2,
    ),
}
"""By name. Every registered encoder and activation is among them."""


def scores(case: Case, trainer: Trainer) -> dict[str, Tensor]:
    """The scores of all signals, fitted and evaluated by the trainer; values and deviations at points are on its device."""
    torch.manual_seed(0)
    model = case.model()
    trainer.callbacks.extend(case.callbacks())
    trainer.fit(model, TensorDataModule(case.values(), **case.data))
    trainer.test(model, TensorDataModule(case.values(), **case.data), verbose=False)
    device = trainer.strategy.root_device
    model.to(device)
    coords = torch.rand(5, case.values().dim() - 2).to(device)
    found = [model(coords)] + ([model.std(coords)] if model.has_std else [])
    assert all(tensor.device == device and bool(tensor.isfinite().all()) for tensor in found)
    model.describe()
    return {name: score.cpu() for name, score in model.scores.items()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], decibels: float) -> None:
    """Scores are equal to a tolerance; those without samples are NaN. Errors below 60 dB are as much rounding as fit."""
    found, expected = ({name: score.clamp(max=60) for name, score in scores.items()} for scores in (found, expected))
    torch.testing.assert_close(found, expected, rtol=0, atol=decibels, equal_nan=True)


def on_gpu(test: Any) -> Any:
    """Marks a test that needs a GPU."""
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")(test))


def compare(case: Case, make_trainer: MakeTrainer, decibels: float, **more: Any) -> None:
    """The case on the CPU and on the GPU."""
    settings = {"max_steps": case.steps, "num_sanity_val_steps": 0, "devices": 1, **more}
    cpu, gpu = (scores(case, make_trainer(accelerator=name, **settings)) for name in ("cpu", "gpu"))
    assert_equal(gpu, cpu, decibels)


def check_on_an_emulated_device(module: str, count: int, folder: Path) -> None:
    """The cases of a module on a device in CPU memory: an operation on tensors of both fails, as with a GPU."""
    made = run_command(folder, str(TESTS / "training/emulated_device.py"), module)
    assert made.returncode == 0, made.stdout + made.stderr
    assert made.stdout.count(" ok\n") == count + 2  # and the collectives, and the number of operations

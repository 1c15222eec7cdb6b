"""Small fits of every kind, which are made on the CPU and on another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from fits import GAU, MODULES, SAMPLINGS, signals
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from pe_fill import Adaptive, Local, SparseLinear
from pe_lightning.encoders.base import registry as encoders
from pe_lightning.networks.activations import activations
from pe_lightning.signals import Batching
from pe_lightning.signals.sampling import GridSampling
from pe_lightning.training import ComplexLinear, FunctionModule, SimpleMLP, TensorDataModule
from pe_papers.analysis import StableRank


@dataclass(frozen=True)
class Case:
    """A model, its data, the number of training steps, and callbacks."""

    model: Callable[[], FunctionModule]
    values: Callable[[], Tensor] = lambda: signals(3, 24, 20)
    data: dict[str, Any] = field(default_factory=dict)
    steps: int = 0
    callbacks: Callable[[], list[Callback]] = list


def _with_gap() -> Tensor:
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
    "validation": Case(MODULES["simple"], data={"validation": 0.2}, steps=3),
    "callbacks": Case(MODULES["simple"], steps=3, callbacks=lambda: [StableRank(2)]),
    "gap, simple": Case(MODULES["simple"], _with_gap, steps=3),
    "gap, exact": Case(_exact(), _with_gap),
    "gap, adaptive": Case(Adaptive, lambda: _with_gap()[:1, :16, :12]),
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
    "sparse": Case(lambda: SparseLinear("keys", num_coefficients=60), data={"sampling": GridSampling(1)}),
    "adaptive": Case(Adaptive, lambda: signals(1, 24, 20)),
    "adaptive, noise": Case(lambda: Adaptive(noise="auto"), lambda: signals(1, 24, 20)),
    "adaptive, scattered": Case(Adaptive, lambda: signals(1, 16, 12), {"sampling": SAMPLINGS["random"]}),
    "adaptive, row": Case(Adaptive, lambda: signals(2, 64)),
    "adaptive, cube": Case(Adaptive, lambda: signals(1, 12, 12, 12)),
    "adaptive, prior": Case(lambda: Adaptive(pretrained="pictures"), lambda: signals(1, 48, 40)),
    "local": Case(Local, lambda: signals(1, 48, 40)),
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

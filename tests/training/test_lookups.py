"""Steps at the same samples look a trained table up by matrices that are made once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from fits import SAMPLINGS, signals
from torch import Tensor

from pe_lightning.encoders.tables import Grids
from pe_lightning.signals import Batching
from pe_lightning.training import SimpleMLP, TensorDataModule, simple_mlp
from pe_lightning.training.steps import LookupStep, OutputStep

ENCODERS: dict[str, Any] = {
    "hash": {"name": "hash", "num_levels": 3, "table_size": 32},
    "planes": {"name": "planes", "rank": 4},
    "embed-mlp": {"name": "embed", "num_features": 4, "mlp": True, "num_inputs": 5},
    "axes": [{"name": "lines", "rank": 4}, {"name": "embed", "num_features": 4}],
}


def built(encoder: Any, data: TensorDataModule, **more: Any) -> SimpleMLP:
    torch.manual_seed(0)
    module = SimpleMLP(encoder, depth=1, hidden_size=8, **more)
    module.build_from(data)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return module


def step(module: SimpleMLP, errors: Tensor) -> list[Tensor]:
    """Errors and gradients."""
    return [errors, *torch.autograd.grad(errors.square().sum(), list(module.parameters()))]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of points for which corners of a grid were found."""
    counted, lookup = [], Grids.lookup

    def count(encoder: Grids, x: Tensor) -> Any:
        counted.append(len(x))
        return lookup(encoder, x)

    monkeypatch.setattr(Grids, "lookup", count)
    return counted


@pytest.mark.parametrize(
    ("count", "more"), [(1, {}), (3, {}), (3, {"shared_encoder": True}), (3, {"signals_per_chunk": 2})], ids=str
)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("key", ENCODERS)
def test_errors_and_gradients_are_the_same(count: int, key: str, sampling: str, more: dict[str, Any]) -> None:
    """As without a cache: of a grid, of points that signals share, and of each signal's own points."""
    data = TensorDataModule(signals(count, 12, 10), sampling=SAMPLINGS[sampling])
    module = built(ENCODERS[key], data, **more)
    for precision in (torch.float32, torch.float64):
        module.to(precision)
        first = next(iter(data.train_dataloader()))
        batch = replace(first, values=first.values.to(precision))
        batch.repeated = True
        known, alone = module.make_step(batch), step(module, module.errors(batch))
        assert isinstance(known, LookupStep)
        for _ in range(2):
            for found, expected in zip(step(module, known.errors(batch)), alone, strict=True):
                torch.testing.assert_close(found, expected)


def test_lookups_are_found_once_for_a_batch(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    full = TensorDataModule(signals(2, 12, 10))
    module = built(ENCODERS["hash"], full)
    assert not any("level_cells" in name for name, _ in module.networks.per_signal()), "rows of each signal"
    batch = next(iter(full.train_dataloader()))
    calls.clear()
    known = module.make_step(batch)
    for _ in range(3):
        step(module, known.errors(batch))
    assert calls == [1, 30], "a point for the size, then all"
    points = TensorDataModule(signals(2, 12, 10), batching=Batching("points", size=7))
    assert type(module.make_step(next(iter(points.train_dataloader())))) is OutputStep
    monkeypatch.setattr(simple_mlp, "MAX_HELD_BYTES", 8 * 30 * 12 * 2 - 1)
    assert type(module.make_step(batch)) is OutputStep


@pytest.mark.slow
def test_steps_are_compiled_as_a_whole() -> None:
    """Without the matrices, which no compiler takes."""
    data = TensorDataModule(signals(2, 12, 10))
    module = built(ENCODERS["hash"], data)
    batch = next(iter(data.train_dataloader()))
    expected = module.errors(batch)
    compiled = torch.compile(SimpleMLP.errors, backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(module, batch), expected)

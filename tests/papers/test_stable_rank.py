"""Stable ranks through a fit, by a callback of the papers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from fits import MODULES, MakeTrainer, fit, signals
from lightning.pytorch.loggers.logger import DummyLogger

from pe_lightning.encodings import feature_rank, stable_rank
from pe_lightning.signals import sample_coordinates
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import ComplexLinear, SimpleMLP, TensorDataModule
from pe_lightning.training.callbacks import FiniteWeights, reports
from pe_papers.analysis import StableRank


class Ranks(DummyLogger):
    """Keeps the rank of the features by step."""

    def __init__(self) -> None:
        super().__init__()
        self.logged: dict[int, float] = {}

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "stable_rank/features" in metrics:
            self.logged[step or 0] = metrics["stable_rank/features"]


@pytest.mark.parametrize("kind", MODULES)
def test_every_layer_from_the_first_step_to_the_last(kind: str, make_trainer: MakeTrainer) -> None:
    data, callback = TensorDataModule(signals(2, 16, 12), batching=Batching(steps_per_epoch=6)), StableRank(every_n_steps=5)
    module, logger = MODULES[kind](), Ranks()
    trainer = fit(module, data, make_trainer, 12, callbacks=[callback], logger=logger, log_every_n_steps=5)
    found = reports(trainer)["stable_rank"]
    layers = [f"layer{n}" for n in range(module.depth)]
    assert list(found) == ["steps", "features", *layers]
    assert found["steps"] == [0, 5, 10, 12]
    coords = sample_coordinates(data.train_batch(), 2048)
    at_the_end = [stable_rank(layer).mean().item() for layer in module.networks.hidden(coords)]
    assert [found[name][-1] for name in layers] == pytest.approx(at_the_end)
    encoding = module.networks.network_of(0).encoding
    assert found["features"] == pytest.approx([feature_rank(encoding, coords, data.train_batch().axes).item()] * 4)
    assert all(len(set(found[name])) == 4 for name in layers), "a layer that learns changes"
    assert logger.logged == dict(zip(found["steps"], found["features"], strict=True))


@pytest.mark.parametrize("case", ["complex", "simple", "scattered"])
def test_similarity_across_gaps_is_the_closed_form_of_the_encoder(case: str, make_trainer: MakeTrainer) -> None:
    encoder = {"name": "rff", "num_features": 2048, "sigma": 2.0}
    module, callback = (SimpleMLP if case == "simple" else ComplexLinear)(encoder), StableRank()
    data = TensorDataModule(signals(1, 16, 12), sampling="random" if case == "scattered" else "grid")
    fit(module, data, make_trainer, 1, callbacks=[callback])
    # half of the distance of every second of 16 and 12 samples; a perceptron has frequencies of both axes together
    steps = [1 / 16, 1 / 12]
    if case == "scattered":
        coords = data.train_batch().coords[0]
        steps = [math.sqrt((coords.amax(0) - coords.amin(0)).prod() / len(coords))] * 2
    expected = sum(math.exp(-2 * (math.pi * 2.0 * step) ** 2) for step in steps) / 2
    found = callback.report()
    assert found["similarity"]["features"] == pytest.approx([expected] * 2, abs=0.03)
    product = [
        rank * similar
        for rank, similar in zip(found["stable_rank"]["features"], found["similarity"]["features"], strict=True)
    ]
    assert found["similarity"]["times_rank"] == product


def test_a_fit_of_no_steps_and_one_that_diverges(make_trainer: MakeTrainer) -> None:
    callback = StableRank()
    fit(MODULES["complex"](solver="exact"), TensorDataModule(signals(1, 16, 12)), make_trainer, 0, callbacks=[callback])
    assert callback.report()["stable_rank"]["steps"] == [0]
    module = MODULES["simple"](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e30))
    data, goes_on = TensorDataModule(signals(1, 16, 12)), FiniteWeights(stop=False)
    with pytest.warns(UserWarning, match="the weights are not finite"):
        fit(module, data, make_trainer, 4, callbacks=[callback, goes_on])
    found = callback.report()["stable_rank"]
    assert found["steps"] == [0, 4], "a second fit starts anew"
    assert found["layer1"][-1] is None
    json.dumps(found, allow_nan=False)


def test_a_resumed_fit_continues_the_curves(make_trainer: MakeTrainer, tmp_path: Path) -> None:
    data, first, second = TensorDataModule(signals(1, 16, 12)), StableRank(4), StableRank(4)
    trainer = fit(MODULES["simple"](), data, make_trainer, 6, callbacks=[first])
    trainer.save_checkpoint(tmp_path / "6.ckpt")
    trainer = make_trainer(max_steps=12, callbacks=[second], num_sanity_val_steps=0)
    trainer.fit(MODULES["simple"](), data, ckpt_path=tmp_path / "6.ckpt", weights_only=True)
    found = second.report()["stable_rank"]
    assert found["steps"] == [0, 4, 6, 8, 12]
    assert found["layer0"][:3] == first.report()["stable_rank"]["layer0"]

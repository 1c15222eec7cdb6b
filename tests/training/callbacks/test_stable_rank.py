"""Stable ranks through a fit."""

import csv
import json

import pytest
import torch
from small_fits import MODULES, signals

from pe_lightning.encodings import feature_rank, stable_rank
from pe_lightning.signals import sample_coordinates
from pe_lightning.signals.loaders import Batching
from pe_lightning.training import TensorDataModule
from pe_lightning.training.callbacks import StableRank, reports


@pytest.mark.parametrize("kind", MODULES)
def test_every_layer_from_the_first_step_to_the_last(kind, fit):
    data, callback = TensorDataModule(signals(2, 16, 12), batching=Batching(steps_per_epoch=6)), StableRank(every_n_steps=5)
    assert callback.report() == {}
    run = fit(kind, data, [callback], steps=12)
    found = reports(run.trainer)["stable_rank"]
    layers = [f"layer{n}" for n in range(run.module.depth)]
    assert list(found) == ["steps", "features", *layers]
    assert found["steps"] == [0, 5, 10, 12]
    coords = sample_coordinates(data.train_batch(), 2048)
    at_the_end = [stable_rank(layer).mean().item() for layer in run.module.networks.hidden(coords)]
    assert [found[name][-1] for name in layers] == pytest.approx(at_the_end)
    encoding = run.module.networks.network_of(0).encoding
    assert found["features"] == pytest.approx([feature_rank(encoding, coords, data.train_batch().axes).item()] * 4)
    for name in layers:
        assert len(set(found[name])) == 4, "a layer that learns changes"
    with (run.folder / "logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name in ["features", *layers]:
        logged = {int(row["step"]): float(row[f"stable_rank/{name}"]) for row in rows if row[f"stable_rank/{name}"]}
        assert logged == pytest.approx(dict(zip(found["steps"], found[name], strict=True)))
    assert (run.folder / "stable_rank.png").stat().st_size > 5000


def test_an_exact_fit_of_no_steps_is_measured_once(fit):
    callback = StableRank()
    fit(MODULES["complex"](solver="exact"), signals(1, 16, 12), [callback], steps=0)
    assert callback.report()["stable_rank"]["steps"] == [0]


def test_a_diverged_fit_is_reported_as_null(fit):
    callback = StableRank(every_n_steps=100)
    module = MODULES["simple"](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e30))
    fit(module, signals(1, 16, 12), [callback], steps=4)
    found = callback.report()["stable_rank"]
    assert found["layer1"][-1] is None
    json.dumps(found, allow_nan=False)


def test_a_resumed_fit_continues_the_curves_and_a_second_one_starts_anew(fit):
    first = StableRank(every_n_steps=4)
    for _ in range(2):
        run = fit("simple", signals(1, 16, 12), [first], steps=6, enable_checkpointing=False)
        assert first.report()["stable_rank"]["steps"] == [0, 4, 6]
    checkpoint = run.folder / "checkpoints/last.ckpt"
    run.trainer.save_checkpoint(checkpoint)
    second = StableRank(every_n_steps=4)
    fit("simple", signals(1, 16, 12), [second], steps=12, ckpt_path=checkpoint)
    found = second.report()["stable_rank"]
    assert found["steps"] == [0, 4, 6, 8, 12]
    assert found["layer0"][:3] == first.report()["stable_rank"]["layer0"]

"""Stable ranks through a fit."""

import csv
import json

import pytest
import torch
from small_fits import MODULES, signals

from pe_lightning.callbacks import StableRank, stable_rank
from pe_lightning.callbacks.ranks import feature_rank, layer_ranks, sample_coordinates
from pe_lightning.data import TensorDataModule
from pe_lightning.errors import InputError


@pytest.mark.parametrize("kind", MODULES)
def test_every_layer_from_the_first_step_to_the_last(kind, fit):
    data, callback = TensorDataModule(signals(2, 16, 12), steps_per_epoch=6), StableRank(every_n_steps=5)
    run = fit(kind, data, [callback], steps=12)
    found = callback.report()["stable_rank"]
    layers = [f"layer{n}" for n in range(run.module.depth)]
    assert list(found) == ["steps", "features", *layers]
    assert found["steps"] == [0, 5, 10, 12]
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    coords = sample_coordinates(data.train_batch(), 2048)
    at_the_end = [layer.mean().item() for layer in layer_ranks(run.module, coords)]
    assert [found[name][-1] for name in layers] == pytest.approx(at_the_end)
    assert found["features"] == pytest.approx([feature_rank(run.module, data.train_batch(), coords).item()] * 4)
    for name in layers:
        assert len(set(found[name])) == 4, "a layer that learns changes"
    with (run.folder / "logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for name in ["features", *layers]:
        logged = {int(row["step"]): float(row[f"stable_rank/{name}"]) for row in rows if row[f"stable_rank/{name}"]}
        assert logged == pytest.approx(dict(zip(found["steps"], found[name], strict=True)))
    assert (run.folder / "stable_rank.png").stat().st_size > 5000


def test_the_first_value_is_that_of_the_initial_weights(fit):
    callback = StableRank(every_n_steps=100)
    fit("simple", signals(1, 16, 12), [callback], steps=3)
    still = StableRank(every_n_steps=100)
    frozen = MODULES["simple"](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0))
    fit(frozen, signals(1, 16, 12), [still], steps=3)
    first, second = (c.report()["stable_rank"]["layer1"] for c in (callback, still))
    assert first[0] == second[0]
    assert second[0] == pytest.approx(second[1])
    assert first[1] != first[0]


def test_features_that_do_not_learn_are_computed_once(fit, monkeypatch):
    calls = []
    monkeypatch.setattr(stable_rank, "feature_rank", lambda *arguments: calls.append(0) or feature_rank(*arguments))
    fit("simple", signals(1, 16, 12), [StableRank(every_n_steps=2)], steps=12)
    assert len(calls) == 1


def test_an_exact_fit_of_no_steps_is_measured_once(fit):
    callback = StableRank()
    module = MODULES["complex"](warm_start=True)
    fit(module, signals(1, 16, 12), [callback], steps=0)
    assert callback.report()["stable_rank"]["steps"] == [0]


def test_a_diverged_fit_is_reported_as_null(fit):
    callback = StableRank(every_n_steps=100)
    module = MODULES["simple"](optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e30))
    fit(module, signals(1, 16, 12), [callback], steps=4)
    found = callback.report()["stable_rank"]
    assert found["layer1"][0] > 0
    assert found["layer1"][-1] is None
    json.dumps(found, allow_nan=False)


def test_a_resumed_fit_continues_the_curves(fit, tmp_path):
    first = StableRank(every_n_steps=4)
    run = fit("simple", signals(1, 16, 12), [first], steps=6, enable_checkpointing=False)
    checkpoint = run.folder / "checkpoints/last.ckpt"
    run.trainer.save_checkpoint(checkpoint)
    second = StableRank(every_n_steps=4)
    fit("simple", signals(1, 16, 12), [second], steps=12, ckpt_path=checkpoint)
    found = second.report()["stable_rank"]
    assert found["steps"] == [0, 4, 6, 8, 12]
    assert found["layer0"][:3] == first.report()["stable_rank"]["layer0"]


def test_a_second_fit_starts_anew_and_nothing_is_reported_before_the_first(fit):
    callback = StableRank(every_n_steps=4)
    assert callback.report() == {}
    for _ in range(2):
        fit("simple", signals(1, 16, 12), [callback], steps=4)
        assert callback.report()["stable_rank"]["steps"] == [0, 4]


@pytest.mark.parametrize(("arguments", "words"), [({"every_n_steps": 0}, "every_n_steps"), ({"points": 1}, "points")])
def test_bad_arguments(arguments, words):
    with pytest.raises(InputError, match=f"StableRank: {words}"):
        StableRank(**arguments)

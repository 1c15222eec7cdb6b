"""Samples that are held out of training for the scores that select."""

import json

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer

from pe_lightning import ComplexLinear, TensorDataModule, fit
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.running import CellRunner

VALUES = torch.rand(2, 24, 20, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sampling", [{"name": "grid", "stride": 2}, {"name": "random", "fraction": 0.25}])
def test_trained_validation_and_test_samples_are_disjoint_and_complete(sampling):
    without, data = TensorDataModule(VALUES, sampling=sampling), TensorDataModule(VALUES, sampling=sampling, validation=0.2)
    before, batch, validation = without.evaluation_batch(), data.evaluation_batch(), data.signals.validation_batch
    trained, tested, selected = batch.train_mask, batch.mask, validation.mask
    assert torch.equal(tested, before.mask)
    assert torch.equal(trained | selected, before.train_mask)
    assert not (trained & selected).any()
    assert selected.flatten(1).sum(1) == pytest.approx(0.2 * before.train_mask.flatten(1).sum(1), rel=0.2)
    assert torch.equal(data.train_batch().values.flatten(1), VALUES[trained.expand(2, -1, -1)].reshape(2, -1))
    assert data.signals.num_validation == int(selected[0].sum())


def test_validation_scores_are_of_their_samples_and_test_scores_of_the_others():
    data = TensorDataModule(VALUES[:1], sampling={"name": "grid", "stride": 2}, validation=0.2)
    model = fit(data, model=ComplexLinear("gau"), max_steps=3)
    prediction = model.predict_grid(data.signals.axes).detach()
    trainer = Trainer(logger=False, enable_progress_bar=False, enable_checkpointing=False)
    logged = trainer.validate(model, datamodule=data, verbose=False)[0]
    errors = (prediction - VALUES[:1])[data.signals.split.validation].square().mean()
    assert logged["val/psnr"] == pytest.approx(float(-10 * errors.log10()), abs=1e-3)
    errors = (prediction - VALUES[:1])[data.signals.split.test_mask("rest")].square().mean()
    assert model.psnr == pytest.approx(float(-10 * errors.log10()), abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation": 0.7}, "0.5"),
        ({"validation": -1}, "0.5"),
        ({"validation": 0.1, "storage": {"in_memory": False}}, "in_memory"),
        ({"validation": 0.1, "sampling": {"name": "random", "count": 4}}, "at least 8 trained samples"),
    ],
)
def test_shares_that_cannot_be_held_out_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        TensorDataModule(VALUES, **arguments).prepare()


def test_the_command_holds_samples_out_where_a_callback_stops_by_them(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    np.save("picture.npy", VALUES[0].numpy())
    common = ["fit", "--config", "image/complex_gau", "--data.paths", "picture.npy", "--trainer.max_steps", "4"]
    common += ["--data.batching.steps_per_epoch", "2", "--wandb.enabled", "false", "--trainer.log_every_n_steps", "1"]
    stopping = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]
    stopping += ["--trainer.callbacks.mode", "max"]
    found = {}
    for name, options in {"no": [], "stop": stopping, "off": [*stopping, "--data.validation", "0"]}.items():
        assert not main([*common, *options, "--trainer.default_root_dir", name])
        text = next((tmp_path / name).rglob("metrics.json")).read_text()
        found[name] = json.loads(text).get("num_validation")
    assert found == {"no": None, "stop": 10, "off": None}
    assert caplog.text.count("--data.validation is auto: a tenth") == 1


def test_a_sweep_holds_samples_out_of_the_cells_that_stop_by_them_and_of_no_others(tmp_path):
    np.save(tmp_path / "picture.npy", VALUES[0].numpy())
    fits = CellRunner()
    common = ["--config", "image/complex_gau", "--data.paths", str(tmp_path / "picture.npy"), "--trainer.max_steps", "2"]
    stop = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]
    found = []
    for options in (common, [*common, *stop], common):
        tree = fits.resolve(options)
        found.append((tree["data"]["init_args"]["validation"], fits.load(tree).signals.num_validation))
    assert found == [(None, 0), ("auto", 10), (None, 0)]

"""Noise that is added to trained samples: what is trained has it, what is scored does not."""

import math

import numpy as np
import pytest
import torch

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.results.run import Run
from pe_lightning.studies.suggest.crop import scored_signals
from pe_lightning.training import TensorDataModule

y, x = np.mgrid[:24, :20] / 24
VALUES = torch.from_numpy(0.5 + 0.4 * np.sin(7 * x) * np.cos(5 * y)).float()[None, ..., None].repeat(2, 1, 1, 1)
NOISE = 0.1 * torch.randn(VALUES.shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("sampling", ["grid", {"name": "random", "fraction": 0.4}])
def test_trained_samples_have_it_and_scored_ones_do_not(sampling):
    signals = TensorDataModule(VALUES, sampling=sampling, validation=0.25, added_noise=0.1).signals
    plain = TensorDataModule(VALUES, sampling=sampling, validation=0.25).signals
    assert torch.equal(signals.train_batch().values, signals.split.take(VALUES + NOISE))
    assert torch.equal(signals.evaluation_batch().values, VALUES)
    assert torch.equal(signals.validation_batch.values, VALUES + NOISE)
    assert torch.equal(signals.select(slice(1, 2)).train_batch().values, signals.train_batch().values[1:])
    assert signals.fingerprint != plain.fingerprint


def test_a_crop_that_suggest_scores_has_it_too():
    data = TensorDataModule(VALUES, added_noise=0.1)
    crop = scored_signals(data, max_samples=100).data
    noise = (crop.train_batch().values - crop.split.take(crop.values)).std()
    assert crop.values.shape[1:3] == crop.split.grid != VALUES.shape[1:3]
    assert float(noise) == pytest.approx(0.1, rel=0.3)


def test_it_is_for_signals_in_memory(tmp_path):
    np.save(tmp_path / "a.npy", VALUES[0].numpy())
    with pytest.raises(InputError, match=r"added_noise is for signals in memory: set --data\.storage\.in_memory true"):
        pe_lightning.fit(str(tmp_path / "a.npy"), "gau", added_noise=0.1, storage={"in_memory": False})
    with pytest.raises(InputError, match=r"added_noise must be a number >= 0, such as 0\.1 for 20 dB; got -1"):
        pe_lightning.fit(VALUES.numpy(), "gau", added_noise=-1)


@pytest.mark.slow
def test_a_command_and_python_have_the_same_scores_of_values_without_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", VALUES[0, ..., 0].numpy())
    options = ["--model.solver", "exact", "--trainer.max_steps", "0", "--wandb.enabled", "false"]
    assert main(["fit", "a.npy", "--encoder", "gau", "--data.added_noise", "0.1", *options]) == 0
    found = Run.open(next(iter((tmp_path / "runs").glob("*/1")))).metrics
    fitted = pe_lightning.fit(VALUES[:1].numpy(), "gau", added_noise=0.1)
    truth, mask = VALUES[0, ..., 0], torch.ones(24, 20, dtype=torch.bool)
    mask[::2, ::2] = False
    error = (fitted.grid([torch.arange(24) / 24, torch.arange(20) / 20]).reshape(24, 20) - truth)[mask]
    assert found["test/psnr"] == pytest.approx(-10 * math.log10(float(error.square().mean())), abs=1e-3)

"""Adaptive with a network that has seen other pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from fits import fit, signals

from pe_fill import Adaptive, Local
from pe_fill.estimators.priors import PRIOR_KEY, card, read_prior, shipped_file
from pe_fill.networks.local import LocalPrior
from pe_lightning.errors import InputError
from pe_lightning.signals.sampling import GridSampling, RandomSampling
from pe_lightning.training import TensorDataModule

from drawing import draw_words


@pytest.fixture(scope="module")
def words() -> torch.Tensor:
    """Part of a picture of words in a font that was not trained on, (1, 80, 72, 1)."""
    picture = draw_words(np.random.default_rng(4), 128)[20:100, 30:102, :1]
    return torch.from_numpy(picture / np.float32(255))[None]


def test_the_mixture_is_better_than_the_fit_alone_and_between_it_and_the_prior(words, make_trainer, tmp_path):
    data = TensorDataModule(words)
    models = {"mixed": Adaptive(pretrained="pictures"), "alone": Adaptive(pretrained="none"), "local": Local()}
    scores = {}
    for name, model in models.items():
        trainer = fit(model, data, make_trainer, 0)
        trainer.test(model, data, verbose=False)
        scores[name] = model.psnr
        trainer.save_checkpoint(tmp_path / f"{name}.ckpt")
    assert scores["mixed"] > scores["alone"] + 1
    axes = [torch.arange(n) / n for n in (80, 72)]
    mixed, alone, local = (models[name].predict_grid(axes) for name in ("mixed", "alone", "local"))
    (weight,) = models["mixed"].describe()["prior"]["weight"]
    assert 0 < weight <= 1
    torch.testing.assert_close(mixed, alone + weight * (local - alone))
    loaded = Adaptive.load_from_checkpoint(tmp_path / "mixed.ckpt", pretrained="gone.ckpt")
    torch.testing.assert_close(loaded.predict_grid(axes), mixed, rtol=0, atol=0)
    points = torch.rand(5, 2)
    torch.testing.assert_close(loaded(points), models["mixed"](points))
    assert "prior" not in models["alone"].describe()


@pytest.mark.slow
def test_a_clip_of_which_every_frame_is_known_is_predicted_frame_by_frame(words, make_trainer, tmp_path):
    clip = torch.stack([words[0, t : 56 + t, 10:66] for t in range(0, 9, 4)])[None]
    data = TensorDataModule(clip, sampling=GridSampling([1, 2, 2]))
    models = {"mixed": Adaptive(pretrained="pictures"), "alone": Adaptive(pretrained="none"), "local": Local()}
    axes = [torch.arange(n) / n for n in (3, 56, 56)]
    for name, model in models.items():
        trainer = fit(model, data, make_trainer, 0)
        trainer.test(model, data, verbose=False)
        trainer.save_checkpoint(tmp_path / f"{name}.ckpt")
        again = type(model).load_from_checkpoint(tmp_path / f"{name}.ckpt")
        torch.testing.assert_close(again.predict_grid(axes), model.predict_grid(axes), rtol=0, atol=0)
    mixed, alone, local = (model.predict_grid(axes) for model in models.values())
    (weight,) = models["mixed"].describe()["prior"]["weight"]
    torch.testing.assert_close(mixed, alone + weight * (local - alone))
    frame = Local()
    fit(frame, TensorDataModule(clip[:, 1]), make_trainer, 0)
    torch.testing.assert_close(local[:, 1], frame.predict_grid(axes[1:]))
    assert models["mixed"].psnr > models["alone"].psnr + 0.7


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["none", "auto"])
def test_a_prior_without_support_changes_nothing(noise, make_trainer):
    rough = torch.rand(1, 40, 40, 1, generator=torch.Generator().manual_seed(0))
    for values, sampling in ((rough, "grid"), (signals(1, 60), "grid"), (signals(1, 16, 16), RandomSampling(0.5))):
        axes = [torch.arange(n) / n for n in values.shape[1:-1]]
        predictions = []
        for prior in ("none", "pictures"):
            model = Adaptive(angles=2, pretrained=prior, noise=noise)
            fit(model, TensorDataModule(values, sampling=sampling), make_trainer, 0)
            predictions.append(model.predict_grid(axes))
        torch.testing.assert_close(*predictions, rtol=0, atol=0)
        assert model.describe()["prior"] == {"name": "pictures", "weight": [0.0]}


def test_the_shipped_prior_is_small_and_that_of_its_card(tmp_path, monkeypatch):
    assert shipped_file("pictures").stat().st_size < 400_000
    assert read_prior("pictures").num_params == card("pictures")["num_params"]
    recipe = yaml.safe_load((Path(__file__).parents[2] / "datasets/prior_pictures.yaml").read_text())
    assert recipe["trainer"]["max_steps"] == card("pictures")["steps"]
    monkeypatch.setattr("pe_fill.estimators.priors.card", lambda name: {"sha256": "0"})
    with pytest.raises(InputError, match="damaged"):
        read_prior("pictures")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec, state: ({**spec, "width": 9}, state), "do not agree"),
        (lambda spec, state: ({**spec, "widht": 8}, state), "do not agree"),
        (lambda spec, state: (spec, {}), "do not agree"),
        (lambda spec, state: (spec, {name: value * torch.nan for name, value in state.items()}), "not finite"),
        (lambda spec, state: (None, state), "holds no prior"),
    ],
)
def test_a_damaged_prior_is_refused(change, message, tmp_path):
    prior = LocalPrior("tri", width=8)
    spec, state = change(prior.spec(), {f"prior.{name}": value for name, value in prior.state_dict().items()})
    torch.save({PRIOR_KEY: spec, "state_dict": state}, tmp_path / "prior.ckpt")
    with pytest.raises(InputError, match=message):
        read_prior(str(tmp_path / "prior.ckpt"))


def test_an_unknown_prior_is_refused_for_any_signals(make_trainer):
    with pytest.raises(InputError, match="unknown prior 'photos'"):
        fit(Adaptive(pretrained="photos"), TensorDataModule(signals(1, 60)), make_trainer, 0)

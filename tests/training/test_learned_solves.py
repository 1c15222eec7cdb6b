"""Encoders learned by variable projection in ComplexLinear."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fits import SAMPLINGS, MakeTrainer, fit, signals
from learned_encoders import Waves
from torch import Tensor

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.signals import Batching
from pe_lightning.solvers import learn_encoders, solve_grid
from pe_lightning.training import ComplexLinear, ImageDataModule, TensorDataModule

GAU: dict[str, Any] = {"name": "gau", "sigma": 0.2, "trainable": True}


def rough(count: int) -> Tensor:
    """Signals that ask for different widths."""
    smooth = signals(count, 24, 20)
    noise = torch.rand(smooth.shape, generator=torch.Generator().manual_seed(0))
    return smooth + 0.05 * torch.arange(count).reshape(-1, 1, 1, 1) * noise


def fitted(values: Tensor, make_trainer: MakeTrainer, sampling: str = "grid", **more: Any) -> ComplexLinear:
    module = ComplexLinear(GAU, solver="exact", **more)
    fit(module, TensorDataModule(values, sampling=SAMPLINGS[sampling]), make_trainer, 0)
    return module


@pytest.mark.slow  # eight fits by variable projection
@pytest.mark.parametrize("sampling", ["grid", "shared"])
def test_fitted_alone_is_fitted_together(sampling: str, make_trainer: MakeTrainer) -> None:
    together = fitted(rough(3), make_trainer, sampling)
    widths = torch.as_tensor(together.encoding.encoders[0].sigma)
    assert len(set(widths.tolist())) == 3, "each signal has its own"
    for s in range(3):
        alone = fitted(rough(3)[s : s + 1], make_trainer, sampling)
        torch.testing.assert_close(widths[s : s + 1], torch.as_tensor(alone.encoding.encoders[0].sigma))
        torch.testing.assert_close(together.weight[s : s + 1], alone.weight, rtol=1e-3, atol=1e-4)
    shared = fitted(rough(3), make_trainer, sampling, shared_encoder=True)
    assert torch.as_tensor(shared.encoding.encoders[0].sigma).shape == ()
    assert shared.solution is not None
    assert len(shared.solution.learned) == 1


def test_it_is_the_fit_of_the_documented_functions(make_trainer: MakeTrainer) -> None:
    module, data = fitted(rough(1), make_trainer, ridge=1e-3), TensorDataModule(rough(1))
    batch = data.train_batch()
    learned = learn_encoders(batch.values, GAU, axes=batch.axes, ridge=1e-3)
    expected = solve_grid(batch.values, learned.encoders, batch.axes, ridge=1e-3)
    whole = data.evaluation_batch().axes
    torch.testing.assert_close(module.predict_grid(whole), expected.predict(whole), rtol=0, atol=2e-5)
    reported = [encoder["sigma"] for encoder in module.describe()["encoder"]]
    assert reported == pytest.approx([float(torch.as_tensor(encoder.sigma)) for encoder in learned.encoders])
    assert module.describe()["ridge"] == 1e-3


@pytest.mark.slow
def test_learned_parameters_are_at_least_as_good_as_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Held-out samples of a grid cannot tell a frequency from its alias: fits fell below their start by up to 16 dB."""
    data = ImageDataModule("samples://astronaut", resize=48)
    for scale, seed, gains in ((10.0, 7, True), (10.0, 0, True), (2.0, 0, False)):
        start = pe_lightning.fit(data, Waves(scale, seed, fixed=True))
        caplog.clear()
        found = pe_lightning.fit(data, Waves(scale, seed))
        assert found.solution is not None
        assert found.solution.learned is not None
        assert (found.psnr > start.psnr + 0.3) == gains
        assert found.psnr > start.psnr - 1e-3
        assert found.solution.learned[0]["kept_start"] != gains
        assert ("are kept" in caplog.text) != gains
    monkeypatch.chdir(tmp_path)
    encoder = "{class_path: learned_encoders.Waves, init_args: {scale: 2.0, seed: 0}}"
    options = ["--data.resize=48", "--wandb.enabled=false", "--trainer.accelerator=cpu", f"--model.encoder={encoder}"]
    assert main(["fit", "--config", "image/varpro", *options]) == 0
    assert "are kept" in caplog.text
    (path,) = Path("runs").rglob("metrics.json")
    metrics = json.loads(path.read_text())
    assert metrics["test/psnr"] == pytest.approx(start.psnr, abs=1e-3)
    assert metrics["solution"]["learned"][0]["kept_start"]


def test_a_checkpoint_holds_what_was_learned_and_is_not_learned_again(
    make_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = TensorDataModule(rough(2), batching=Batching(steps_per_epoch=2))
    module = ComplexLinear(GAU, solver="exact")
    trainer = make_trainer(max_steps=2, num_sanity_val_steps=0, limit_val_batches=0)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    again = ComplexLinear.load_from_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    points = torch.rand(7, 2)
    assert torch.equal(again(points), module(points))
    assert again.solution == module.solution
    monkeypatch.setattr("pe_lightning.estimators.linear.learn_encoders", None)
    resumed = ComplexLinear(GAU, solver="exact")
    trainer = make_trainer(max_steps=4, num_sanity_val_steps=0, limit_val_batches=0)
    trainer.fit(resumed, data, ckpt_path=tmp_path / "model.ckpt", weights_only=True)
    assert trainer.global_step == 4
    assert resumed.solution == module.solution


def test_the_default_rate_of_a_trained_width_keeps_the_score(make_trainer: MakeTrainer) -> None:
    """At the linear layer's rate a width is lost in a few steps."""
    scores = {}
    for rate in (None, 0.1):
        module, data = ComplexLinear({"name": "gau", "trainable": True}, encoder_lr=rate), TensorDataModule(rough(1))
        trainer = fit(module, data, make_trainer, 60)
        scores[rate] = trainer.validate(module, data, verbose=False)[0]["val/psnr"]
        assert [group["lr"] for group in trainer.optimizers[0].param_groups][1] < 0.1 or rate
    assert scores[None] > scores[0.1] + 0.5


def test_fits_without_learnable_encoders_are_refused(make_trainer: MakeTrainer) -> None:
    with pytest.raises(InputError, match="too small to hold any out"):
        fit(ComplexLinear(GAU, solver="exact"), TensorDataModule(rough(1)[:, :8, :8]), make_trainer, 0)
    with pytest.raises(InputError, match="needs a positive ridge"):
        fitted(rough(1), make_trainer, ridge=0)
    with pytest.raises(InputError, match="set trainable: true"):
        learn_encoders(rough(1), "gau")

"""Weights of an earlier fit as the start of another: its predictions, at step 0, with a new optimiser, on other data."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commands import DEMO, NO_WANDB, error_of, fit, metrics
from fits import signals
from lightning.pytorch import LightningModule, Trainer
from torch import nn

import pe_lightning
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.training import ComplexLinear, RowDataModule, SimpleMLP, TensorDataModule
from pe_lightning.training.callbacks import InitialWeights, RunRecorder

FIT = [*DEMO, *NO_WANDB]

pytestmark = pytest.mark.usefixtures("empty_folder")


class Start(pe_lightning.training.callbacks.InitialWeights):
    """Keeps the step and the prediction before the first step."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.step, self.before = trainer.global_step, pl_module(torch.rand(5, 2, generator=torch.manual_seed(0))).detach()


@pytest.mark.parametrize("model", ["ComplexLinear", "SimpleMLP"])
@pytest.mark.parametrize("recorder_first", [True, False])
def test_a_fit_of_another_grid_starts_with_the_predictions_of_a_run(model: str, recorder_first: bool) -> None:
    """Widths and scales, which follow from the data, are the run's."""
    make = {"ComplexLinear": lambda: ComplexLinear("gau"), "SimpleMLP": lambda: SimpleMLP("gau", 1, 8)}[model]
    first = make()
    recorder = RunRecorder(log=False)
    Trainer(max_steps=3, callbacks=[recorder], logger=False).fit(first, TensorDataModule(signals(1, 12, 12)))
    start, more = Start(recorder.run_dir), RunRecorder(log=False)
    callbacks = [more, start] if recorder_first else [start, more]
    second, data = make(), TensorDataModule(signals(1, 9, 14).flip(1))
    Trainer(max_steps=4, callbacks=callbacks, logger=False).fit(second, data)
    assert start.step == 0
    assert torch.allclose(start.before, first(torch.rand(5, 2, generator=torch.manual_seed(0))), atol=1e-6)
    assert second.require_info().grid == (9, 14)
    assert more.run_dir != recorder.run_dir


def test_by_a_state_dict_and_in_one_line() -> None:
    values, points = torch.rand(1, 12, 12, 1), torch.rand(5, 2)
    first = pe_lightning.fit(values, model=SimpleMLP("gau", 1, 8), max_steps=3)
    options = {"lr": 1e-12}
    second = pe_lightning.fit(values, model=SimpleMLP("gau", 1, 8, **options), max_steps=1, init=first.state_dict())
    assert torch.allclose(second(points), first(points), atol=1e-6)
    with pytest.raises(InputError, match=r"the weights of the state_dict are of another model: .*size mismatch"):
        pe_lightning.fit(values, model=SimpleMLP("gau", 1, 9), max_steps=1, init=first.state_dict())
    with pytest.raises(InputError, match=r"ComplexLinear solves for its weights.* leave out --init"):
        pe_lightning.fit(values, model=ComplexLinear.exact("gau"), init=first.state_dict())
    with pytest.raises(InputError, match="give model too"):
        pe_lightning.fit(values, "gau", init=first.state_dict())  # type: ignore[call-overload]


@pytest.mark.parametrize("encoder", ["hash", "planes", "grid", "embed"])
def test_by_a_fitted_model_of_a_grid_of_another_size(encoder: str) -> None:
    """Sizes of tables are the model's; a state_dict does not have them."""

    def fitted(*shape: int, lr: float = 1e-12, init: Any = None) -> Any:
        model = ComplexLinear(encoder, lr=lr, encoder_lr=lr)
        return pe_lightning.fit(torch.rand(1, *shape, 1), model=model, max_steps=1, init=init)

    first, points = fitted(12, 12, lr=0.01), torch.rand(5, 2)
    assert torch.allclose(fitted(9, 14, init=first)(points), first(points), atol=1e-6)
    with pytest.raises(InputError, match=r"are of another model: .*For a grid of another size give the fitted model"):
        fitted(9, 14, init=first.state_dict())


@pytest.mark.parametrize("given", [3, [1, 2], b"run", torch.zeros(2), nn.Linear(2, 2), {1: torch.zeros(2)}], ids=repr)
def test_what_holds_no_weights_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"init is a run directory, .* a fitted model or its state_dict; got"):
        pe_lightning.fit(torch.rand(1, 4, 4, 1), model=SimpleMLP("gau", 1, 2), max_steps=1, init=given)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x * (1 + 1j), "is torch.complex64, that of the model torch.float32"),
        (lambda x: x.long(), "is torch.int64, that of the model torch.float32"),
        (lambda x: x * torch.nan, "has values that are not finite: give the weights of another fit"),
    ],
    ids=["complex", "integers", "NaN"],
)
def test_weights_of_other_numbers_are_refused(change: Callable[[torch.Tensor], torch.Tensor], words: str) -> None:
    values, name = torch.rand(1, 6, 6, 1), "networks.network.mlp.layers.0.bias"
    state = pe_lightning.fit(values, model=SimpleMLP("gau", 1, 2), max_steps=1).state_dict()
    with pytest.raises(InputError, match=f"{name} of the state_dict {words}"):
        pe_lightning.fit(values, model=SimpleMLP("gau", 1, 2), max_steps=1, init={**state, name: change(state[name])})


def test_the_scaling_is_of_the_new_data() -> None:
    for name, largest in (("a", 10.0), ("b", 1000.0)):
        np.save(name, np.linspace(0, largest, 40))
    recorder = RunRecorder(log=False)
    Trainer(max_steps=2, callbacks=[recorder], logger=False).fit(ComplexLinear("gau"), RowDataModule("a.npy"))
    data, module = RowDataModule("b.npy"), ComplexLinear("gau")
    Trainer(max_steps=2, callbacks=[InitialWeights(recorder.run_dir)], logger=False).fit(module, data)
    assert module.require_info().scaling == data.info.scaling == RowDataModule("b.npy").info.scaling
    assert data.info.scaling != RowDataModule("a.npy").info.scaling


def test_a_lightning_module_of_the_users_own() -> None:
    class Own(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    first, second = Own(), Own()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(4, 2)))
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    start = InitialWeights(first.state_dict())
    Trainer(max_steps=1, callbacks=[start], **options).fit(second, loader)
    assert all(value.equal(second.state_dict()[key]) for key, value in first.state_dict().items())


@pytest.mark.slow  # seven fits
def test_by_the_command_and_by_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    run = fit(*FIT, "--trainer.max_steps", "200")
    small = ["--trainer.max_steps", "1", "--model.optimizer.lr", "1e-9"]
    again = fit(*FIT, *small, "--init", str(run))
    assert metrics(again)["test/psnr"] == pytest.approx(metrics(run)["test/psnr"], abs=1e-3)
    config = yaml.safe_load((again / "config.yaml").read_text())
    assert config["trainer"]["callbacks"][0]["init_args"] == {"weights": str((run / "checkpoints/last.ckpt").absolute())}
    repeated = fit("--config", str(again / "config.yaml"))
    assert metrics(repeated)["test/psnr"] == metrics(again)["test/psnr"]
    # the configuration of the run, with another picture
    other = fit("samples://coffee", "--init", str(run), "--trainer.max_steps", "1", "--model.lr", "1e-9")
    assert metrics(other)["signals"] == ["coffee"]
    assert metrics(other)["test/psnr"] < metrics(run)["test/psnr"] - 1
    if importlib.util.find_spec("safetensors"):
        assert main(["export", str(run), "--out", "exported.safetensors"]) == 0
        of_export = fit(*FIT, *small, "--init", "exported.safetensors")
        assert metrics(of_export)["test/psnr"] == metrics(again)["test/psnr"]
    # a resumed fit continues from its own checkpoint, and does not need the run that it started from
    run.rename("elsewhere")
    resumed = ["fit", "--config", str(again / "config.yaml"), "--ckpt_path", str(again), "--trainer.max_steps", "3"]
    assert main(resumed) == 0
    Path("elsewhere").rename(run)
    assert torch.load(again / "checkpoints/last.ckpt", weights_only=True)["global_step"] == 3
    before = set(Path().glob("runs/*/*"))
    for more, words in {
        "--data.color grey": "this module holds 1 signal(s) of 2 axes and 3 channel(s); the data has 1 signal(s) of 2 axes",
        "--model.encoder tri": "the checkpoint holds encoder gau",
        f"--ckpt_path {run}": "--init starts a new fit, --ckpt_path resumes one",
        "--model.solver exact": "leave out --init",
        "--data.folds random": "leave out --init or --data.folds",
        "--init nowhere": "no checkpoint at 'nowhere'",
    }.items():
        assert words in error_of(capsys, ["fit", *FIT, "--init", str(run), *more.split()])
    assert set(Path().glob("runs/*/*")) == before

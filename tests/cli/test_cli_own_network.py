"""A network of a user, a plain module of PyTorch, by the command and by a configuration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI
from PIL import Image
from torch import Tensor, nn

from pe_lightning import load
from pe_lightning.__main__ import main
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse

QUIET = ["--wandb.enabled=false", "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1"]


class Perceptron(nn.Module):
    """A perceptron of one hidden layer.

    Args:
        hidden: Units of the hidden layer.
        name: Activation, an argument with a name that descriptions use, too.
    """

    def __init__(self, hidden: int, name: str = "tanh") -> None:
        super().__init__()
        self.activation = getattr(torch, name)
        self.first, self.last = nn.Linear(2, hidden), nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.first(x)))


class Deep(nn.Module):
    """A network whose arguments have default values."""

    def __init__(self, hidden: int = 4, depth: int = 1) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, hidden // depth), nn.Linear(hidden // depth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Steps(LightningModule):
    """A LightningModule that says nothing about itself."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Trains nothing."""

    validation_step = test_step = training_step

    def configure_optimizers(self) -> None:
        """None."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 12, 3), np.uint8)).save("a.png")
    return tmp_path


def metrics(number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(f"runs/a-NetworkModule-Perceptron/{number}/metrics.json").read_text())
    return found


def test_an_option_and_a_configuration_mean_the_same_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = f"{__name__}.Perceptron"
    optimizer = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}
    arguments = {"hidden": 7, "name": "sin", "optimizer": optimizer, "signals_per_chunk": 1}
    data = {"class_path": "pe_lightning.ImageDataModule", "init_args": {"paths": "a.png"}}
    content = {"model": {"class_path": model, "init_args": arguments}, "data": data, "trainer": {"max_steps": 3}}
    Path("own.yaml").write_text(yaml.safe_dump(content))
    options = ["--model.hidden", "7", "--model.name", "sin", "--model.signals_per_chunk", "1"]
    options += ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr", "0.1", "--trainer.max_steps", "3"]
    assert main(["fit", "a.png", "--model", model, *options, *QUIET]) == 0
    assert main(["fit", "--config", "own.yaml", *QUIET]) == 0
    first, second = metrics(1), metrics(2)
    assert first["test/psnr"] == second["test/psnr"]
    assert first["network"] == {"name": "Perceptron", "hidden": 7}
    assert first["optimizer"]["name"] == "SGD"
    # a stock LightningCLI reads what the run leaves
    config = "runs/a-NetworkModule-Perceptron/1/config.yaml"
    monkeypatch.setattr(sys, "argv", ["fit"])
    cli = LightningCLI(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        run=False,
        args=["--config", config],
        save_config_callback=None,
    )
    cli.trainer.fit(cli.model, cli.datamodule)
    (again,) = load("runs/a-NetworkModule-Perceptron/1").state_dict().keys() & {"networks.network.first.weight"}
    torch.testing.assert_close(cli.model.state_dict()[again], load("runs/a-NetworkModule-Perceptron/1").state_dict()[again])


@pytest.mark.slow  # three fits
def test_it_is_resumed_predicted_compared_and_has_steps_without_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", f"{__name__}.Perceptron", "--model.hidden", "5"]
    random = ["--data.batching.kind", "points", "--data.batching.size", "9"]
    assert main(["fit", "a.png", *words, *random, "--trainer.max_steps", "6", *QUIET]) == 0
    assert main(["fit", "a.png", *words, *random, "--trainer.max_steps", "2", *QUIET]) == 0
    run = Path("runs/a-NetworkModule-Perceptron/2")
    checkpoint = str(run / "checkpoints/last.ckpt")
    assert main(["fit", "a.png", *words, *random, "--ckpt_path", checkpoint, "--trainer.max_steps", "6", *QUIET]) == 0
    assert metrics(2)["test/psnr"] == metrics(1)["test/psnr"]
    assert main(["predict", "--ckpt_path", checkpoint, "--output_shape", "20", "20"]) == 0
    assert list(run.glob("reconstructions/*"))
    assert list(run.glob("predict/*"))
    assert main(["compare", "runs/", "--by", "network.name", "--out", "report"]) == 0
    assert "Perceptron" in Path("report/index.html").read_text()


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ("a.png --model {}.Deep", 2000),
        ("a.png --model SimpleMLP", 2000),
        ("--config image/closed_form --model {}.Deep", 2000),
        ("a.png --encoder gau --model.solver null", 2000),
        ("a.png --model SimpleMLP --trainer.max_epochs 3", -1),
        ("a.png --model ComplexLinear --encoder rff", 0),
        ("a.png --model SimpleMLP --trainer.max_steps 7", 7),
        ("--config image/demo --model.lr 0.1", 200),
    ],
)
def test_a_model_in_place_of_an_exact_fit_is_trained(words: str, steps: int) -> None:
    assert parse("fit", rewrite("fit", words.format(__name__).split())).trainer.max_steps == steps


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--model {}.Perceptron --model.hiden 3", "model '{}.Perceptron' has no argument 'hiden'; did you mean 'hidden'?"),
        ("--model {}.Perceptron", "model '{}.Perceptron' needs a value for 'hidden'"),
        ("--model {}.Perceptron --model.hidden -3", "Perceptron refuses model.hidden=-3: RuntimeError: Trying to create"),
        ("--model {}.Deep --model.depth 0 --model.hidden 3", "Deep refuses model.depth=0: ZeroDivisionError"),
        ("--model {}.Steps", "Steps is a LightningModule with steps of its own, which any Trainer of Lightning fits; for"),
        ("--model NetworkModule", "NetworkModule needs a network, such as --model my_module.MyNetwork"),
    ],
)
def test_what_is_no_network_is_refused(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "a.png", *words.format(__name__).split(), "--trainer.max_steps", "1", *QUIET]) == 2
    assert message.replace("{}", __name__) in " ".join(capsys.readouterr().err.split())
    assert not Path("runs").exists()

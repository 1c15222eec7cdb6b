"""Attention tasks by command: recipes, the same as from Python, resuming, errors, and processes."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything
from stopping import run_command, stopped

from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_papers import RECIPES as RECIPES_OF_PAPERS
from pe_papers.tasks import LayoutDataModule, LayoutRelations, pictures

ROOT = Path(__file__).parents[2]
QUICK = ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false", "--wandb.enabled", "false"]
QUICK += ["--trainer.log_every_n_steps", "1", "--model.width", "32", "--model.depth", "1"]
SMALL = {"layout": ["--data.num_train", "80", "--data.num_test", "40"]}
SMALL["detection"] = ["--data.num_train", "64", "--data.num_test", "8"]
RECIPES = sorted(path.stem for path in (RECIPES_OF_PAPERS / "attention").glob("*.yaml"))


pytestmark = pytest.mark.usefixtures("empty_folder")


def fit(recipe: str, *arguments: str, out: str = "runs") -> Path:
    """The run directory of a fit that succeeds."""
    given = ["--config", f"attention/{recipe}", *QUICK, *SMALL.get(recipe, []), "--trainer.default_root_dir", out]
    assert main(["fit", *given, *arguments]) == 0
    return max(Path(out).glob("runs/*/*"), key=lambda path: path.stat().st_mtime)


def read(run: Path) -> dict:
    return json.loads((run / "metrics.json").read_text())


def state(run: Path) -> dict:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.slow  # a fit of each
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_runs(recipe, monkeypatch):
    monkeypatch.setattr(pictures, "SAMPLES", 8)
    if "digits" in recipe:
        pytest.importorskip("sklearn")
    limits = ["--trainer.limit_val_batches", "1", "--trainer.limit_test_batches", "1"] if "textures" in recipe else []
    run = fit(recipe, "--trainer.max_steps", "2", *limits)
    found = read(run)
    assert found["steps"] == 2
    assert found["encoder"]["name"] == "lff"
    assert found["encoder"]["num_features"] == 32
    assert len(found[f"test/{found['metric']}_per_signal"]) == len(found["signals"])
    assert found["data_fingerprint"]
    assert (run / "samples.png").is_file() == ("generate" in recipe)


@pytest.mark.slow
def test_a_command_is_the_same_fit_as_python(make_trainer):
    """And its checkpoint is tested by command, and gives the learned encoder to anybody."""
    run = fit("layout", "--trainer.max_steps", "5")
    seed_everything(0, verbose=False)
    encoder = {"name": "lff", "mlp": True, "layer_norm": True, "groups": 2, "num_axes": 4, "num_inputs": 128}
    model = LayoutRelations(encoder, combine="concat", width=32, depth=1)
    trainer = make_trainer(max_steps=5, gradient_clip_val=1.0, num_sanity_val_steps=0)
    trainer.fit(model, LayoutDataModule(num_train=80, num_test=40))
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, state(run)[name], rtol=0, atol=0)
    assert read(run)["num_params"] == sum(v.numel() for k, v in state(run).items() if k[-5:] != "scale")
    loaded = LayoutRelations.load_from_checkpoint(run / "checkpoints/last.ckpt", weights_only=True)
    assert isinstance(loaded.encoder, encoders.LearnableFourier)
    torch.testing.assert_close(loaded.encoder.frequencies, model.encoder.frequencies)
    assert loaded.encoder(torch.rand(3, 4)).shape == (3, 32)
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    key = "test/accuracy_per_signal"
    assert read(run / "test")[key] == read(run)[key]


@pytest.mark.slow
def test_a_sweep_takes_rope_and_none_as_encoders_and_is_compared(capsys):
    given = ["--config", "attention/layout", *QUICK, *SMALL["layout"], "--trainer.max_steps", "2"]
    assert main(["sweep", *given, "--vary", "model.encoder=gau,rope,none", "--out", "s"]) == 0
    assert [read(path)["encoder"]["name"] for path in sorted(Path("s").glob("encoder-*"))] == ["gau", "none", "rope"]
    capsys.readouterr()
    assert main(["compare", "s", "--by", "encoder.name"]) == 0
    shown = capsys.readouterr().out
    assert "unseen-inside" in shown
    assert "tables" not in shown, "all three are on the same data"
    assert all(name in shown for name in ("gau", "rope", "none"))


def command(*arguments: str) -> subprocess.CompletedProcess:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)])
    line = ["fit", "--config", "attention/layout", *QUICK, *SMALL["layout"], *arguments]
    return run_command(Path(), *line, environment={"PYTHONPATH": paths})


@pytest.mark.slow
def test_a_resumed_fit_is_the_one_that_was_not_stopped():
    whole = fit("layout", "--trainer.max_steps", "5", out="whole")
    steps = ["--trainer.max_steps", "5", "--trainer.default_root_dir", "stopped"]
    assert command(*steps, *stopped(3, 9)).returncode == -9
    (run,) = Path("stopped").glob("runs/*/*")
    assert main(["fit", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints/last.ckpt"),
                 "--trainer.callbacks", "null"]) == 0  # fmt: skip
    assert read(run)["steps"] == 5
    assert read(run)["test/accuracy_per_signal"] == read(whole)["test/accuracy_per_signal"]
    torch.testing.assert_close(state(run), state(whole), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one():
    """Batches whose targets do not divide, the last one of an epoch odd; to rounding."""
    arguments = ["--data.num_train", "77", "--data.batch_size", "25"]
    arguments += ["--trainer.max_steps", "4", "--model.encoder.kl", "0.5"]
    one = fit("layout", *arguments, out="one")
    two = ["--trainer.devices", "2", "--trainer.strategy", "ddp", "--trainer.default_root_dir", "two"]
    done = command(*arguments, *two)
    assert done.returncode == 0, done.stderr
    (other,) = Path("two").glob("runs/*/*")
    torch.testing.assert_close(state(other), state(one), rtol=1e-3, atol=1e-5)
    assert read(other)["test/accuracy_per_signal"] == pytest.approx(read(one)["test/accuracy_per_signal"], abs=0.02)


def test_the_penalty_of_the_encoder_is_in_the_loss(make_trainer):
    losses = {}
    for kl in (0.0, 2.0):
        seed_everything(0, verbose=False)
        model = LayoutRelations({"name": "lff", "kl": kl, "gamma": 1.0}, width=32, depth=1)
        trainer: Trainer = make_trainer(max_steps=1, log_every_n_steps=1)
        trainer.fit(model, LayoutDataModule(num_train=16, num_test=4))
        losses[kl] = float(trainer.callback_metrics["train/loss"])
    fresh = encoders.create("lff", kl=2.0, gamma=1.0, num_features=32, num_axes=4).penalty().detach()
    assert losses[2.0] - losses[0.0] == pytest.approx(float(fresh), abs=1e-5)
    assert fresh > 1e-3
    assert model.positions.encoding.encoders[0].log_variance.item() != 0.0, "it is trained"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model.encoder", "roep"], "unknown encoder 'roep'"),
        (["--model.encoder", "rope", "--model.width", "12"], r"rope needs an even width / heads of at least 8 for 4 axes"),
        (["--model.heads", "3"], "heads must divide width"),
        (["--model.encoder", "tri", "--model.encoder.half_width", "auto"], "half_width: auto is chosen by exact fits"),
        (["--data", "ImageDataModule", "--data.paths", "samples://astronaut"], "needs a DataModule of pe_papers.tasks"),
        (["--model", "PixelClassification"], "is for data of the task 'pixels', got 'layout'"),
        (["--data", "ShapesDataModule", "--data.num_test", "4"], "is for data of the task 'layout', got 'shapes'"),
        (["--data.num_train", "0"], "num_train.*restriction v>0"),
    ],
)
def test_tasks_and_data_that_do_not_fit_are_refused(arguments, message, capsys):
    assert main(["fit", "--config", "attention/layout", *QUICK, *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not Path("runs").exists()


def test_a_checkpoint_of_another_encoder_is_refused(capsys):
    run = fit("layout", "--trainer.max_steps", "1")
    path = str(run / "checkpoints/last.ckpt")
    assert main(["test", "--ckpt_path", path, "--model.encoder", "rope"]) == 2
    assert "the model asked for is a model with encoder=rope" in capsys.readouterr().err
    assert main(["predict", "--ckpt_path", path]) == 2
    assert "use pe-lightning test" in capsys.readouterr().err

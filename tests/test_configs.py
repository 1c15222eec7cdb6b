"""Every shipped recipe is parsed, complete when printed, and says the same when parsed again."""

import re
from pathlib import Path

import pytest
import yaml

from pe_lightning.__main__ import main

ROOT = Path(__file__).parents[1]
SWEEPS = sorted((ROOT / "configs/sweeps").glob("*.yaml"))
RECIPES = sorted(set((ROOT / "configs").rglob("*.yaml")) - set(SWEEPS))


def printed(capsys, *arguments: str) -> dict:
    with pytest.raises(SystemExit) as finished:
        main(["fit", *arguments, "--print_config"])
    assert finished.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_there_are_recipes():
    assert {path.name for path in RECIPES} >= {"demo.yaml", "complex_gau.yaml", "simple_mlp.yaml", "random_points.yaml"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_recipe(path, capsys, tmp_path):
    config = printed(capsys, "--config", str(path))
    encoder = config["model"]["init_args"]["encoder"]
    assert encoder["class_path"].startswith("pe_lightning.encoders.")
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(config))
    assert printed(capsys, "--config", str(again)) == config


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_recipe_says_only_what_it_needs(path):
    """Short files: what is a default stays one."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) <= 20
    assert re.match(r"#", path.read_text()), "a recipe says first what it is"


def test_an_optimiser_and_a_scheduler_from_the_command_line(capsys):
    arguments = ["--model.optimizer", "SGD", "--model.optimizer.lr", "0.5", "--model.optimizer.momentum", "0.9"]
    arguments += ["--model.lr_scheduler", "CosineAnnealingLR", "--model.lr_scheduler.T_max", "100"]
    config = printed(capsys, "--config", str(ROOT / "configs/image/demo.yaml"), *arguments)["model"]["init_args"]
    assert config["optimizer"]["class_path"] == "torch.optim.SGD"
    assert config["optimizer"]["init_args"]["lr"] == 0.5
    assert config["lr_scheduler"]["init_args"]["T_max"] == 100


def test_an_encoder_from_its_own_file(capsys, tmp_path):
    file = tmp_path / "encoder.yaml"
    file.write_text("{name: laplace, scale: 0.01}")
    config = printed(capsys, "--config", str(ROOT / "configs/image/demo.yaml"), "--model.encoder", str(file))
    assert config["model"]["init_args"]["encoder"]["init_args"]["scale"] == 0.01


def test_a_second_file_names_another_encoder(capsys, tmp_path):
    """The second file's encoder starts from its own defaults and keeps the number of features."""
    file = tmp_path / "other.yaml"
    file.write_text("model: {class_path: ComplexLinear, init_args: {encoder: rff}}")
    base = str(ROOT / "configs/image/complex_gau.yaml")
    encoder = printed(capsys, "--config", base, "--config", str(file))["model"]["init_args"]["encoder"]
    assert encoder["class_path"].endswith(".RandomFourier")
    assert encoder["init_args"] == {"num_features": 256, "sigma": None, "seed": 0, "num_axes": 1}


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.name)
def test_a_wandb_sweep_runs_commands_that_parse(path, capsys, monkeypatch):
    """W&B puts ``--parameter=value`` in the place of ``${args}``."""
    monkeypatch.chdir(ROOT)
    sweep = yaml.safe_load(path.read_text())
    program, verb, *rest = sweep["command"]
    assert (program, verb, rest.pop()) == ("pe-lightning", "fit", "${args}")
    given = {
        name: (spread["values"] if "values" in spread else [spread["min"]])[-1]
        for name, spread in sweep["parameters"].items()
    }
    config = printed(capsys, *rest, *(f"--{name}={value}" for name, value in given.items()))
    for name, value in given.items():
        part: dict = config
        for key in name.split("."):
            part = part.get(key, part["init_args"].get(key)) if "init_args" in part else part[key]
        found = part["class_path"] if isinstance(part, dict) else part
        assert found == value or str(found).endswith("LogFourier")
    assert sweep["metric"]["name"] in ("test/psnr", "val/psnr")

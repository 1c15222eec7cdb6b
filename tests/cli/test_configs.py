"""Recipes are complete when printed, and say the same when parsed again; options change them."""

from pathlib import Path

import pytest
import yaml

from pe_lightning import ComplexLinear
from pe_lightning.__main__ import main
from pe_lightning.cli import recipes
from pe_lightning.encoders import automatic, registry

ROOT = Path(__file__).parents[2]
SWEEPS = sorted((ROOT / "configs/sweeps").glob("*.yaml"))
DEMO = ["--config", str(ROOT / "configs/image/demo.yaml")]


def printed(capsys, *arguments: str) -> dict:
    assert main(["fit", *arguments, "--print_config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def encoder_of(config: dict) -> dict:
    return config["model"]["init_args"]["encoder"]


@pytest.mark.parametrize("name", ["image/demo", "image/closed_form", "attention/layout", "image/varpro"])
def test_a_printed_recipe_prints_the_same(name, capsys, tmp_path):
    """Others have the same classes and kinds of values; tests/test_card.py parses all of them."""
    config = printed(capsys, "--config", name)
    assert encoder_of(config)["name"] in registry
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(config))
    assert printed(capsys, "--config", str(again)) == config


def test_a_recipe_says_first_what_it_is():
    assert [name for name in recipes.names() if not Path(recipes.find(name)).read_text().startswith("#")] == []


def test_another_encoder_starts_from_its_own_defaults(capsys, tmp_path):
    """An encoder per axis, too; and a width that is to be chosen is the model's, whatever the encoder calls it."""
    (tmp_path / "other.yaml").write_text("model: {class_path: ComplexLinear, init_args: {encoder: rff}}")
    options = ["--config", str(ROOT / "configs/image/complex_gau.yaml"), "--config", str(tmp_path / "other.yaml")]
    assert encoder_of(printed(capsys, *options)) == "rff"
    named = ["--model.encoder", "[gau, {name: tri, num_features: 12}]", "--data.sampling.stride", "4"]
    config = printed(capsys, *DEMO, *named)
    assert encoder_of(config) == ["gau", {"name": "tri", "num_features": 12}]
    assert config["data"]["init_args"]["sampling"] == {"stride": 4}, "of the default sampling"
    chosen = printed(capsys, "--config", "image/closed_form", "--model.encoder", "tri")["model"]["init_args"]
    (encoder,) = ComplexLinear(chosen["encoder"], choose_bandwidth=chosen["choose_bandwidth"]).configured.entries
    assert (encoder.name, automatic(encoder)) == ("tri", "half_width")


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
        assert part == value
    assert sweep["metric"]["name"] in ("test/psnr", "val/psnr")

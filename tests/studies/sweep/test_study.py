"""Sweeps from a file, and goals: numbers of parameters and seconds that sizes and steps are found for."""

import json
from pathlib import Path

import pytest
import yaml

from pe_lightning import encoders
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.matching import nearest_size, parse_goals, steps_within, with_option
from pe_lightning.studies.sweep.study import read_study

STUDY = {
    "options": {"data.paths": "samples://astronaut", "data.resize": 24, "wandb.enabled": False},
    "vary": {
        "samples": {"half": {"data": "ImageDataModule", "data.sampling.stride": 2}},
        "method": {
            "gau exact": {
                "model": "ComplexLinear",
                "model.encoder": "gau",
                "model.solver": "exact",
                "trainer.max_steps": 0,
                "match": [],
            },
            "SIREN": {"model": "SimpleMLP", "model.encoder": "identity", "model.activation": "sine", "model.depth": 2},
            "planes": {
                "model": "SimpleMLP",
                "model.encoder": {"name": "planes"},
                "model.hidden_size": 8,
                "size": "model.encoder.rank",
            },
        },
    },
    "match": {"num_params": [500, 1000], "core_seconds": [0.02]},
    "parts": {"small": {"num_params": [500]}},
}

pytestmark = pytest.mark.usefixtures("empty_folder")


def write(**changes: object) -> str:
    Path("my.yaml").write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
    return "my.yaml"


def cells() -> list[dict]:
    return json.loads(Path("s/sweep.json").read_text())["cells"]


@pytest.mark.slow  # five fits
def test_methods_of_a_study_have_equal_sizes_and_are_not_run_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--study", write(), "--out", "s"]) == 0
    found = {cell["name"]: cell for cell in cells()}
    assert len(found) == 1 + 2 * 2, "what is not matched is fitted once"
    for name, cell in found.items():
        metrics = json.loads(Path(f"s/{name}/metrics.json").read_text())
        if cell["settings"]["method"] == "gau exact":
            assert cell["settings"]["num_params"] == "any"
            assert metrics["steps"] == 0
        else:
            assert metrics["num_params"] == pytest.approx(float(cell["settings"]["num_params"]), rel=0.2)
            assert metrics["steps"] == cell["matched"]["trainer.max_steps"] > 0
            assert ("model.encoder.rank" in cell["matched"]) == (cell["settings"]["method"] == "planes")
            assert f"--trainer.max_steps={metrics['steps']}" in cell["arguments"]
    assert "pe-lightning compare s --by samples,method,num_params,core_seconds" in capsys.readouterr().out
    assert main(["sweep", "--study", "my.yaml", "--out", "s"]) == 0
    assert capsys.readouterr().err.count("finished before") == 5
    assert main(["sweep", "--study", "my.yaml", "--part", "small", "--vary", "method=planes", "--out", "t"]) == 0
    (cell,) = json.loads(Path("t/sweep.json").read_text())["cells"]
    assert cell["settings"] == {"samples": "half", "method": "planes", "num_params": "500", "core_seconds": "0.02"}


def test_sizes_follow_counts_that_grow_and_skip_sizes_that_cannot_be() -> None:
    def count(size: int) -> int:
        if size % 2:
            raise InputError("odd")
        return 3 * min(size, 5000) ** 2

    assert nearest_size(count, 3 * 58**2 + 1) == 58
    assert nearest_size(lambda size: 7 * size, 7 * 1001) == 1001
    assert nearest_size(lambda size: min(size, 900), 1000) == 900, "the first of counts that stop growing"
    with pytest.raises(InputError, match="no size has about 4 parameters: the nearest is 2, with 12"):
        nearest_size(count, 4)


def test_steps_follow_from_their_seconds_alone() -> None:
    """Not from the seconds of the first fit of a process, of a fit besides its steps, or of a moment of other programs."""
    fits: list[int] = []

    def seconds(steps: int) -> float:
        fits.append(steps)
        return 0.2 + 0.01 * steps + 3.0 * (len(fits) == 1) + 0.5 * (len(fits) == 5)

    assert steps_within(seconds, 5.0) == 500
    assert len(fits) == 6


def test_options_are_set_in_complete_configurations() -> None:
    tree = {"model": {"class_path": "m", "init_args": {"encoder": "gau", "hidden_size": 3}}, "trainer": {"max_steps": 1}}
    assert with_option(tree, "model.encoder.rank", 2)["model"]["init_args"]["encoder"] == {"name": "gau", "rank": 2}
    assert with_option(tree, "model.hidden_size", 2)["model"]["init_args"]["hidden_size"] == 2
    assert with_option(tree, "trainer.max_steps", 2)["trainer"] == {"max_steps": 2}
    assert tree["trainer"] == {"max_steps": 1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--study", "encoding"], "neither a file nor a study; did you mean 'encodings'"),
        (["--study", "my.yaml", "--part", "quick"], "has no part 'quick'; its parts are small"),
        (["--study", "my.yaml", "--vary", "method=SIRN"], "no 'SIRN'; did you mean 'SIREN'?"),
        (["--part", "small", "--vary", "a=1"], "give --study too"),
        (["--match", "num_parms=3"], "--match takes GOAL=V1,V2"),
        (["--match", "num_params=few"], "--match num_params must be a positive number"),
        (
            ["samples://astronaut", "--data.resize", "16", "--model", "Adaptive", "--match", "num_params=100"],
            "--size model.hidden_size",
        ),
    ],
)
def test_what_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write()
    assert main(["sweep", *words]) == 2
    assert said in capsys.readouterr().err


def test_files_say_what_they_lack(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no 'varry'; did you mean 'vary'"):
        read_study(write(varry={}))
    with pytest.raises(InputError, match=r"vary\.method is a mapping of names to options"):
        read_study(write(vary={"method": ["gau"]}))
    with pytest.raises(InputError, match=r"parts\.small has no 'methods'; did you mean 'method'"):
        read_study(write(parts={"small": {"methods": []}}), "small")
    assert parse_goals(["num_params=1e3,any"]) == {"num_params": ["1e3", "any"]}


def test_the_study_has_every_encoder_and_network() -> None:
    study = read_study("encodings")
    words = [word.partition("=") for options in study.varied["method"].values() for word in options]
    given = [yaml.safe_load(value) for option, _, value in words if option == "--model.encoder"]
    assert {value if isinstance(value, str) else value["name"] for value in given} == set(encoders.names())
    assert {"SIREN", "FINER", "WIRE", "Gauss", "STAF", "hash", "planes"} <= study.varied["method"].keys()
    quick = read_study("encodings", "quick")
    assert set(quick.varied["method"]) < set(study.varied["method"])

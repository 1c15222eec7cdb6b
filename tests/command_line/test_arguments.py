"""The command line before it is parsed: files, recipes, checkpoints, registered names and short forms."""

import json
from typing import Any

import numpy as np
import pytest
import yaml
from lightning.pytorch import LightningDataModule

from pe_lightning.command_line import recipes
from pe_lightning.command_line.arguments import Option, expand, read, rewrite
from pe_lightning.command_line.cli import parse, prepare
from pe_lightning.command_line.naming import expand_tree
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.errors import InputError

UNTRAINED = {"trainable": False, "per_feature": False}


def recipe_file(name: str) -> str:
    return f"--config={recipes.FOLDER}/{name}.yaml"


def expanded(words: str | list[str]) -> list[str]:
    return expand(read(words.split() if isinstance(words, str) else words)[1])


class Grouped(SignalDataModule):
    """A DataModule whose options are grouped; it has a ``cache`` of its own."""

    def __init__(self, batching: Any = None, storage: Any = None, cache: str = "") -> None: ...


class Flat(LightningDataModule):
    """A DataModule of another package."""

    def __init__(self, batch_size: int = 1) -> None: ...


def test_words_are_files_and_options():
    words = "a.png --encoder tri --output_shape 8 9 --print_config b.png --data.offset -.5 -c=image/demo --x"
    files, options = read(words.split())
    assert files == ["a.png", "b.png"]
    assert [(option.key, option.values) for option in options] == [
        ("model.encoder", ("tri",)), ("output_shape", ("8", "9")), ("print_config", ()), ("data.offset", ("-.5",)),
        ("config", ("image/demo",)), ("x", ()),
    ]  # fmt: skip
    for spelling in ("--encoder.sigma", "--model.encoder.init_args.sigma", "--model.init_args.encoder.sigma"):
        assert Option((spelling, "1")).key == "model.encoder.sigma"


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ("my.jpg", "image/adaptive"),
        ("my.jpg --model.noise auto --data.resize 64", "image/adaptive"),
        ("my.jpg --data.sampling random --data.sampling.fraction 0.1", "image/adaptive"),
        ("my.jpg --data.sampling random --encoder laplace", "image/inpaint"),
        ("clip.mp4 --data.sampling random", "video/adaptive"),
        ("a.png b.tiff --encoder tri samples://coffee", "image/closed_form"),
        ("song.wav", "row/adaptive"),
        ("--seed_everything 3 table.csv", "row/adaptive"),
        ("clip.mp4", "video/adaptive"),
        ("samples://bigbuckbunny", "video/adaptive"),
        ("scan.nii.gz", "volume/adaptive"),
        ("samples://phantom3d", "volume/adaptive"),
        ("array.npy --config image/demo", "image/demo"),
    ],
)
def test_files_get_the_recipe_of_their_kind(words, recipe):
    rewritten = rewrite("fit", words.split())
    files = [word for word in words.split() if ("." in word and word[0] not in "-0") or "://" in word]
    assert rewritten[0] == recipe_file(recipe)
    assert rewritten[-1] == f"--data.paths={json.dumps(files)}"


def test_options_beside_files_change_a_recipe_that_is_named_after_them():
    prepare()
    words = ["--model.keep", "0.3", "--data.frames", "[0, 4]", "--config", "video/sparse"]
    config = parse("fit", rewrite("fit", ["clip.mp4", *words]))
    assert (config.model.init_args.keep, config.data.init_args.frames) == (0.3, [0, 4])
    assert config.data.init_args.paths == ["clip.mp4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "pe-lightning fit my.jpg"),
        ("--data.paths my.jpg", "pe-lightning fit my.jpg"),
        ("a.npy", "no such file or folder: 'a.npy'"),
        ("a.xyz", "no such file or folder: 'a.xyz'"),
        (__file__, "--config image/closed_form, row/closed_form or volume/closed_form"),
        ("a.png b.wav", r"images \('a.png'\) and rows \('b.wav'\)"),
        ("a.png --config image/demmo", "did you mean 'image/demo'"),
    ],
)
def test_files_without_a_recipe_are_refused_with_what_to_type(words, message):
    with pytest.raises(InputError, match=message):
        rewrite("fit", words.split())


@pytest.mark.parametrize(
    ("shape", "recipe"), [((9, 2), "row/adaptive"), ((9, 8, 3), "image/adaptive"), ((9, 8, 7), "volume/adaptive")]
)
def test_the_recipe_of_an_array_is_that_of_its_shape(tmp_path, monkeypatch, shape, recipe):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", values=np.zeros(shape), other=np.zeros(3))
    for key in (["--data.key", "values"], ["--data.key=values"]):
        assert rewrite("fit", ["a.npz", *key])[0] == recipe_file(recipe)
    with pytest.raises(InputError, match=r"choose one array by key\. It holds: values, other"):
        rewrite("fit", ["a.npz"])
    np.save("a.npy", np.zeros((16, 900)))
    assert rewrite("fit", ["a.npy", "--data", "RowDataModule"])[0] == recipe_file("row/adaptive")
    with pytest.raises(InputError, match="16 rows of 900 samples; or say what they hold: --config image/closed_form"):
        rewrite("fit", ["a.npy"])


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_only_help_and_configurations_are_shown_without_a_checkpoint(verb):
    assert rewrite(verb, ["--help"]) == ["--help"]
    assert rewrite(verb, ["--print_config", "-v"]) == ["--print_config"]
    with pytest.raises(InputError, match=f"pe-lightning {verb} --ckpt_path RUN"):
        rewrite(verb, ["--data.resize", "3"])


@pytest.mark.parametrize(
    "spelling", ["tri", "Triangle", "pe_lightning.encoders.Triangle", '{"name": "tri", "half_width": 0.5}', "FILE"]
)
def test_an_encoder_by_name_class_path_and_file(spelling, tmp_path):
    """Another encoder starts from its own defaults and keeps the number of features, which is left out here."""
    if spelling == "FILE":
        (tmp_path / "encoder.yaml").write_text("{name: tri, half_width: 0.5}")
        spelling = str(tmp_path / "encoder.yaml")
    (word,) = expanded(["--encoder", spelling])
    encoder = yaml.safe_load(word.removeprefix("--model.encoder="))
    assert encoder["class_path"].endswith(".Triangle")
    width = 0.5 if "half_width" in spelling or "yaml" in spelling else None
    assert encoder["init_args"] == {"half_width": width, "padding": "auto", "spacing": None, **UNTRAINED}


def test_an_argument_is_that_of_the_class_named_before_it():
    sampling, stride = expanded("--data.sampling.stride 4")
    assert json.loads(sampling.removeprefix("--data.sampling="))["init_args"] == {"stride": 2, "offset": 0}
    assert stride == "--data.sampling.stride=4"
    assert expanded("--encoder laplace --encoder.width 0.5")[1] == "--model.encoder.scale=0.5"
    with pytest.raises(InputError, match="encoder 'tri' has no argument 'sigma'"):
        expanded("--config image/demo --encoder tri --encoder.sigma 1")
    with pytest.raises(InputError, match="pe-lightning encoders NAME shows the arguments"):
        expanded("--encoder.help gau")
    assert expanded("--model.help ComplexLinear") == ["--model.help", "ComplexLinear"]


def test_short_forms_stand_for_grouped_options():
    words = "--data.batch points --data.init_args.shuffle=false --data.steps_per_epoch null --data.cache x"
    assert expanded(f"--data {__name__}.Grouped {words}")[1:] == [
        "--data.batching.kind=points",
        "--data.batching.shuffle=false",
        '--data.batching={"steps_per_epoch": null}',
        "--data.cache=x",
    ]
    data = {"class_path": f"{__name__}.Grouped", "init_args": {"batch": "points", "batch_size": 9, "cache": "x"}}
    expected = {"batching": {"kind": "points", "size": 9}, "cache": "x"}
    assert expand_tree({"data": data})["data"]["init_args"] == expected


def test_a_data_module_that_has_an_option_itself_gets_it_as_it_is():
    data = {"class_path": f"{__name__}.Flat", "init_args": {"batch_size": 9}}
    assert expand_tree({"data": data}) == {"data": data}
    words = [f"--data={__name__}.Flat", "--data.batch_size=9"]
    assert expanded(words) == words
    settings = f"--config={json.dumps({'data': data})}"
    assert expanded([settings, "--data.batch_size=3"]) == [settings, "--data.batch_size=3"]


def test_a_colour_of_missing_pixels_is_no_comment() -> None:
    assert expand([Option(("--data.missing", "#ff00ff"))]) == ['--data.missing=["#ff00ff"]']
    assert expand([Option(("--data.missing=-99",))]) == ["--data.missing=-99"]

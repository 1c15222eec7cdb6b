"""The command line before it is parsed: files, recipes, checkpoints, registered names and short forms."""

import json
from pathlib import Path

import numpy as np
import pytest

from pe_lightning.cli import recipes
from pe_lightning.cli.arguments import Option, read, rewrite
from pe_lightning.cli.parser import parse, prepare
from pe_lightning.errors import InputError
from pe_lightning.signals import RawSignals
from pe_lightning.signals.sources import Source, sources
from pe_lightning.training import make_datamodule


def recipe_file(name: str) -> str:
    return f"--config={recipes.find(name)}"


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


def check_recipe(words: str, recipe: str) -> None:
    rewritten = rewrite("fit", words.split())
    files = [word for word in words.split() if ("." in word and word[0] not in "-0") or "://" in word]
    assert rewritten[0] == recipe_file(recipe)
    assert rewritten[-1] == f"--data.paths={json.dumps(files)}"


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ("my.jpg", "image/closed_form"),
        ("my.jpg --data.resize 64", "image/closed_form"),
        ("my.jpg --data.sampling random --encoder laplace", "image/inpaint"),
        ("a.png b.tiff --encoder tri samples://coffee", "image/closed_form"),
        ("song.wav", "row/closed_form"),
        ("--seed_everything 3 table.csv", "row/closed_form"),
        ("clip.mp4", "video/closed_form"),
        ("samples://bigbuckbunny", "video/closed_form"),
        ("scan.nii.gz", "volume/closed_form"),
        ("samples://phantom3d", "volume/closed_form"),
        ("array.npy --config image/demo", "image/demo"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_files_get_the_recipe_of_their_kind(words: str, recipe: str) -> None:
    """The first that is installed: without pe_fill, whose fits are adaptive, that of the exact fit of a linear layer."""
    check_recipe(words, recipe)


def test_options_beside_files_change_a_recipe_that_is_named_after_them():
    prepare()
    words = ["--model.encoder.num_features", "9", "--data.frames", "[0, 4]", "--config", "video/closed_form"]
    config = parse("fit", rewrite("fit", ["clip.mp4", *words]))
    assert (config.model.init_args.encoder["num_features"], config.data.init_args.frames) == (9, [0, 4])
    assert config.data.init_args.paths == ["clip.mp4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "pe-lightning fit my.jpg"),
        ("--data.paths my.jpg", "pe-lightning fit my.jpg"),
        ("a.npy", "no such file or folder: 'a.npy'"),
        ("a.xyz", "no such file or folder: 'a.xyz'"),
        (__file__, "--data ImageDataModule, RowDataModule, VideoDataModule"),
        ("a.png b.wav", r"images \('a.png'\) and rows \('b.wav'\)"),
        ("a.png --config image/demmo", "did you mean 'image/demo'"),
    ],
)
def test_files_without_a_recipe_are_refused_with_what_to_type(words, message):
    with pytest.raises(InputError, match=message):
        rewrite("fit", words.split())


@pytest.mark.parametrize(
    ("shape", "recipe"), [((9, 2), "row/closed_form"), ((9, 8, 3), "image/closed_form"), ((9, 8, 7), "volume/closed_form")]
)
@pytest.mark.usefixtures("alone")
def test_the_recipe_of_an_array_is_that_of_its_shape(tmp_path, monkeypatch, shape, recipe):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", values=np.zeros(shape), other=np.zeros(3))
    for key in (["--data.key", "values"], ["--data.key=values"]):
        assert rewrite("fit", ["a.npz", *key])[0] == recipe_file(recipe)
    with pytest.raises(InputError, match=r"choose one array by key\. It holds: values, other"):
        rewrite("fit", ["a.npz"])
    np.save("a.npy", np.zeros((16, 900)))
    assert rewrite("fit", ["a.npy", "--data", "RowDataModule"])[0] == recipe_file("row/closed_form")
    with pytest.raises(InputError, match="16 rows of 900 samples; or say which with --data ImageDataModule"):
        rewrite("fit", ["a.npy"])


class Cubes(Source):
    """A source of another package."""

    suffixes = (".cubes",)
    num_axes = 3

    def __init__(self, paths: list[str], order: str = "xyz") -> None:
        self.paths, self.order = paths, order

    def read(self) -> RawSignals:
        raise NotImplementedError


def test_a_source_of_another_package_is_asked_for_its_files(monkeypatch):
    monkeypatch.setattr(sources, "_classes", {**sources._classes, "cubes": Cubes})
    config, path = "--config=volume/closed_form", 'paths=["a.cubes"]'
    asked = ["--data=SignalDataModule", "--data.source=cubes", f"--data.source.{path}"]
    assert recipes.words_for(["a.cubes"], {}) == [config, *asked], "any DataModule, and an exact fit of three axes"
    assert type(make_datamodule("a.cubes", order="zyx", sampling="random").source) is Cubes
    monkeypatch.setattr(Cubes, "datamodule", "CubeDataModule")
    assert recipes.words_for(["a.cubes"], {}) == [config, "--data=CubeDataModule", f"--data.{path}"]
    monkeypatch.setattr(recipes, "_paths", lambda: {"cubes/closed_form": Path(), "image/closed_form": Path()})
    assert recipes.words_for(["a.cubes"], {}) == ["--config=cubes/closed_form", f"--data.{path}"], "its own recipe"
    assert recipes.words_for(["a.png"], {})[0] == "--config=image/closed_form", "the first that is installed"
    with pytest.raises(InputError, match=r"cubes \('a.cubes'\) and images \('b.png'\)"):
        recipes.words_for(["a.cubes", "b.png"], {})


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_only_help_and_configurations_are_shown_without_a_checkpoint(verb):
    assert rewrite(verb, ["--help"]) == ["--help"]
    assert rewrite(verb, ["--print_config", "-v"]) == ["--print_config"]
    with pytest.raises(InputError, match=f"pe-lightning {verb} --ckpt_path RUN"):
        rewrite(verb, ["--data.resize", "3"])


def test_an_argument_behind_a_registered_name_is_one_of_that_class():
    """jsonargparse adds arguments to a mapping, not to a word."""
    assert rewrite("fit", ["--config", "image/demo", "--encoder", "tri", "--encoder.width", "0.5"])[1:] == [
        '--model.encoder={"name": "tri"}',
        "--model.encoder.width=0.5",
    ]
    prepare()
    for words, encoder, sampling in [
        ("--encoder tri", "tri", "grid"),
        ("--encoder.sigma 0.1", {"name": "gau", "sigma": 0.1}, "grid"),
        ("--encoder tri --encoder.half_width 0.1", {"name": "tri", "half_width": 0.1}, "grid"),
        ("--encoder {name:\u00a0rff,\u00a0seed:\u00a01} --data.sampling random", {"name": "rff", "seed": 1}, "random"),
        ("--data.sampling.stride 4", {"name": "gau"}, {"stride": 4}),
        ("--data.sampling random --data.sampling.fraction 0.5", {"name": "gau"}, {"name": "random", "fraction": 0.5}),
    ]:
        given = [word.replace("\u00a0", " ") for word in words.split(" ")]
        config = parse("fit", rewrite("fit", ["--config", "image/demo", *given]))
        assert (config.model.init_args.encoder, config.data.init_args.sampling) == (encoder, sampling)


def test_a_class_that_is_named_after_its_arguments_does_not_reset_them_and_files_do():
    words = "--encoder.padding=1 --config=image/demo --encoder.num_features=8 --encoder=gau --model=ComplexLinear --x=3"
    assert [Option((word,)).key for word in rewrite("fit", words.split())] == [
        "model.encoder.padding", "config", "model", "model.encoder", "model.encoder.num_features", "x",
    ]  # fmt: skip
    prepare()
    words = "--config=image/demo --model.depth=3 --encoder=tri --model.encoder.num_features=8 --model=SimpleMLP"
    model = parse("fit", rewrite("fit", words.split())).model
    assert (model.init_args.depth, model.init_args.encoder) == (3, {"name": "tri", "num_features": 8})


def test_a_colour_of_missing_pixels_is_no_comment() -> None:
    words = ["--config", "image/demo", "--data.missing"]
    assert rewrite("fit", [*words, "#ff00ff"])[1:] == ['--data.missing=["#ff00ff"]']
    assert rewrite("fit", [*words[:2], "--data.missing=-99"])[1:] == ["--data.missing=-99"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--config", "image/simple_mlp"], (None, 1e-4, 1e-8)),
        (["--config", "image/demo"], (1e-4, None, None)),
        (["--config", "image/demo", "--model.optimizer", "Adam"], (None, 1e-4, 0.0)),
        (["--config", "image/simple_mlp", "--model.optimizer", "null"], (1e-4, None, None)),
        (["--config", "image/simple_mlp", "--config", "image/demo", "--model", "SimpleMLP"], (None, 1e-4, 1e-8)),
    ],
)
def test_a_rate_alone_is_of_the_recipes_optimiser_or_of_the_default_one(words, expected):
    model = parse("fit", rewrite("fit", [*words, "--model.optimizer.lr", "1e-4"])).model.init_args
    optimizer = None if model.optimizer is None else model.optimizer.init_args
    assert (model.lr, *((None, None) if optimizer is None else (optimizer.lr, optimizer.weight_decay))) == expected

"""Bad input of ``fill``, its words in other programs, and names of files: one line that says what to type."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from cli.test_cli_errors import DEMO, refused
from cli.test_names import BYTES, picture
from commands import error_of

import pe_fill
from pe_fill.filling import fill, read_file
from pe_fill.request import UNREAD, FillRequest
from pe_fill.verbs.fill import fill_files
from pe_lightning.__main__ import main
from pe_lightning.errors import InputError

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["denoise", "a.png"], ["pe-lightning fill FILE --smooth --out OUT"]),
        (["demo", "folder"], ["python benchmarks/gallery.py FOLDER"]),
        (["compress", "a.png"], ["pe-lightning fit FILE --config image/sparse"]),
        (["fit", "--config", "prior/cells"], ["type python datasets/make_priors.py cells"]),
        (["upscale", "a.png"], ["pe-lightning fill FILE --upscale 2 --out OUT"]),
        (["fit", "samples://astronaut", "--denoise"], ["type pe-lightning fill FILE --smooth --out OUT"]),
        (["fill", "a.png", "--mask", "m.png", "--out", "b.png"], ["type --missing MASK"]),
        (["fill", "a.png", "-o", "b.png"], ["type --out OUT"]),
        (
            ["fit", *DEMO, "--model.num_coefficients", "9"],
            ["has no argument 'num_coefficients'; --model SparseLinear has it.", "depth"],
        ),
        (
            ["fit", *DEMO, "--model", "SparseLinear", "--model.num_coefficients", "lots"],
            ["num_coefficients: expected int or float or 'auto' or dict, got lots"],
        ),
        (["fill", "~nobody-here/a.png", "--out", "b.png"], ["no home directory is known for"]),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_what_to_type(capsys, arguments, words):
    refused(capsys, arguments, *words)


def test_options_that_tables_of_points_do_not_have(capsys):
    given = {"upscale": "2", "samples": "cells", "block": "3", "axes": "2", "grow": "1", "noise": "0.1"}
    command = ["fill", "a.csv", "--coordinates", "x,y", "--values", "v", "--grid", "4,4", "--out", "b.csv"]
    names = ["no_std" if name == "std" else name for name in UNREAD["tables of points"]]
    for name in names:
        command += [f"--{name}"] if name in ("smooth", "no_std") else [f"--{name}", given.get(name, "a")]
    refused(capsys, command, "not for tables of points; leave them out", *(f"--{name}" for name in names))


def test_options_that_a_file_does_not_have(capsys, tmp_path):
    picture()
    refused(capsys, ["fill", "a.png", "--duplicates", "keep", "--upscale", "2", "--out", "b.png"], "--duplicates: not for")
    np.save("a.npy", np.where(np.eye(9) > 0, np.nan, 1.0))
    original = read_file("a.npy")
    with pytest.raises(InputError, match="missing: a file that is read has these already"):
        fill(original, -9999)
    with pytest.raises(InputError, match="key is the name of an array in a file"):
        fill(np.load("a.npy"), key="values")


def test_axes_are_of_arrays_alone(capsys):
    picture()
    Path("a.csv").write_text("v\n1\n\n3\n4\n")
    Path("frames").mkdir()
    for number in (1, 3):
        picture(f"frames/{number}.png")
    soundfile.write("a.wav", np.zeros(400), 8000, "PCM_16")
    for name in ("a.png", "a.csv", "frames", "a.wav"):
        words = f"axes says how the shape of an array is read, and {name!r} is none: leave it out"
        refused(capsys, ["fill", name, "--axes", "2", "--out", "b"], words)


def test_the_command_and_the_function_have_the_options_of_a_request():
    fields = {field.name: field.default for field in dataclasses.fields(FillRequest)}
    function = {key: value.default for key, value in inspect.signature(fill).parameters.items()}
    command = {key: value.default for key, value in inspect.signature(fill_files).parameters.items()}
    assert function.keys() - fields.keys() == {"values", "missing"} - fields.keys()
    assert command.keys() - fields.keys() == {"paths", "out", "missing", "no_std", "force", "verbose"}
    assert fields.keys() == (function.keys() | command.keys()) & fields.keys()
    for given in (function, command):
        assert {key: given[key] for key in given.keys() & fields.keys() - {"std", "values"}}.items() <= fields.items()


def test_members_and_numbers_of_numpy():
    values = np.where(
        np.arange(900).reshape(30, 30) % 7 == 0, np.nan, 1.0 * np.add.outer(np.arange(30), np.arange(30) ** 0.5)
    )
    with pytest.raises(InputError, match="members are named once each; got fourier, fourier"):
        fill(values, members=["fourier", "fourier"])
    few_frames = np.stack([values] * 3)
    assert np.isfinite(fill(few_frames, axes=3, folds="none").values).all(), "three frames, and no colours"
    with pytest.raises(InputError, match=r"bfloat16.*give values.float\(\)"):
        fill(torch.zeros(8, 8, dtype=torch.bfloat16), smooth=True)
    whole = np.nan_to_num(values).round().astype(np.uint8)
    assert fill(whole, upscale=np.int64(2), folds="none").values.shape == (60, 60)
    with pytest.raises(InputError, match="folds random or blocks"):
        fill(whole, upscale=2, folds="random")


def test_filling_leaves_the_random_generator_as_it_was():
    values, state = np.where(np.eye(12) > 0, np.nan, 1.0), torch.get_rng_state()
    fill(values, folds="none", seed=3)
    fit = pe_fill.fit_points(np.random.default_rng(0).random((60, 2)), np.arange(60.0), seed=3)
    assert np.isfinite(fit.score)
    assert torch.equal(torch.get_rng_state(), state)


def test_results_and_signals_that_are_none(capsys):
    picture()
    Path("loop.png").symlink_to("loop.png")
    assert "'loop.png' exists" in error_of(capsys, ["fill", "a.png", "--upscale", "2", "--out", "loop.png"])
    assert main(["fit", "a.png", "--encoder", "tri", "--wandb.enabled", "false"]) == 0
    (run,) = Path("runs").glob("*/1")
    assert f"fit --config {run}/config.yaml" in error_of(capsys, ["fill", str(run), "--out", "filled/"])


def test_a_name_of_any_bytes(capfd):
    name = picture(BYTES)
    assert main(["fill", name, "--upscale", "2", "--out", f"x{name}", "--folds", "none"]) == 0
    assert Path(f"x{name}").is_file()
    assert [char for char in "".join(capfd.readouterr()) if not char.isprintable() and char != "\n"] == []


def test_a_wav_file_that_claims_another_size_is_not_filled(capsys: pytest.CaptureFixture[str]) -> None:
    soundfile.write("a.wav", np.zeros(400), 8000, "PCM_16")
    content = bytearray(Path("a.wav").read_bytes())
    content[40:44] = (10**6).to_bytes(4, "little")
    Path("a.wav").write_bytes(content)
    line = error_of(capsys, ["fill", "a.wav", "--missing", "0", "--out", "b.wav"])
    assert "cannot read 'a.wav'" in line
    assert "should be" in line

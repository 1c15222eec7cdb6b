"""Bad input: one paragraph that says what to change, exit status 2, no run directory."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.data import TensorDataModule
from pe_lightning.errors import InputError

ROOT = Path(__file__).parents[1]
DEMO = ["--config", str(ROOT / "configs/image/demo.yaml"), "--trainer.max_steps", "2"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refused(capsys, arguments: list[str], *words: str) -> None:
    """Asserts that the command fails in the promised way, with all ``words`` in its message."""
    before = set(Path().rglob("*"))
    assert main(arguments) == 2
    message = capsys.readouterr().err
    lines = [line for line in message.splitlines() if line.startswith("pe-lightning: error: ")]
    assert len(lines) == 1, message
    assert message.splitlines()[-1] == lines[0], "nothing follows the message"
    assert "Namespace(" not in message
    assert len(lines[0]) < 700
    for word in words:
        assert word in lines[0]
    assert set(Path().rglob("*")) == before, "a file or run directory was left behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model.encoder", "gua"], ["unknown encoder 'gua'", "did you mean 'gau'?", "Registered: basic, bspline"]),
        (["--model", "ComplexLinaer"], ["unknown model 'ComplexLinaer'", "'ComplexLinear'"]),
        (["--data", "ImageData"], ["unknown data 'ImageData'", "'ImageDataModule'"]),
        (["--data.sampling", "gird"], ["unknown sampling 'gird'", "did you mean 'grid'?"]),
        (["--model.encoder.sigm", "1"], ["Gaussian has no argument 'sigm'", "'sigma'", "padding"]),
        (["--model.encoder", "{name: tri, half_with: 1}"], ["'tri' has no argument 'half_with'", "'half_width'"]),
        (["--model.centre", "true"], ["ComplexLinear has no argument 'centre'", "'center'"]),
        (["--data.path", "x"], ["ImageDataModule has no argument 'path'", "'paths'"]),
        (["--data.sampling.fraction", "0.5"], ["'fraction'", "stride"]),
        (["--trainer.max_step", "1"], ["--trainer.max_step", "'--trainer.max_steps'"]),
        (["--wandb.projct", "x"], ["--wandb.projct", "'--wandb.project'"]),
        (["--model.encoder.sigma", "0"], ["sigma", "positive", "0"]),
        (["--model.encoder.sigma", "-0.5"], ["sigma", "positive", "-0.5"]),
        (["--model.encoder.sigma", "nan"], ["sigma", "nan"]),
        (["--model.encoder.sigma", "wide"], ["model.encoder.sigma", "float", "wide"]),
        (["--model.encoder.num_features", "0"], ["num_features", ">= 1", "0"]),
        (["--model.encoder", "rff", "--model.encoder.num_features", "7"], ["num_features", "even", "6 or 8"]),
        (["--model.encoder", "[gau, gau, gau]"], ["3 encoders", "2 axes"]),
        (["--model.depth", "-1"], ["depth", ">= 0", "-1"]),
        (["--model.activation", "rleu"], ["model.activation", "'relu'", "rleu"]),
        (["--data.protocol", "odd", "--data.sampling.stride", "3"], ["odd", "stride"]),
        (["--data.sampling", "random", "--data.sampling.fraction", "0"], ["fraction", "(0, 1]"]),
        (["--data.sampling", "random", "--data.sampling.fraction", "1.5"], ["fraction", "(0, 1]", "1.5"]),
        (["--data.sampling.stride", "512"], ["stride", "512"]),
        (["--data.paths", "samples://astronuat"], ["astronuat", "'astronaut'"]),
        (["--data.paths", "nowhere.png"], ["nowhere.png"]),
        (["--ckpt_path", "nowhere.ckpt"], ["no checkpoint at 'nowhere.ckpt'"]),
        (["--config", "nowhere.yaml"], ["nowhere.yaml"]),
        (["--seed_everything", "soon"], ["seed_everything", "soon"]),
        (["--model.steps_per_batch", "0"], ["steps_per_batch", ">= 1", "0"]),
        (["--model.steps_per_batch", "4", "--data.batch", "points", "--data.batch_size", "9"], ["--data.batch full"]),
        (["--model.steps_per_batch", "4", "--trainer.accumulate_grad_batches", "2"], ["accumulate_grad_batches"]),
        (["--model.signals_per_batch", "-2"], ["signals_per_batch", ">= 1", "-2"]),
        (["--trainer.precision", "bf16-true"], ["'bf16-mixed'", "round the coordinates"]),
        (["--float32_matmul_precision", "tf32"], ["float32_matmul_precision", "'high'", "tf32"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_options(capsys, arguments, words):
    refused(capsys, ["fit", *DEMO, *arguments], *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fti"], ["unknown verb 'fti'", "'fit'"]),
        (["test"], ["--ckpt_path"]),
        (["predict"], ["--ckpt_path"]),
        (["encoders", "gau"], ["takes no arguments"]),
        (["fit"], ["model"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_verbs(capsys, arguments, words):
    refused(capsys, arguments, *words)


def write(name: str, size: tuple[int, int] = (16, 16)) -> Path:
    noise = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    Image.fromarray(noise).save(name)
    return Path(name)


@pytest.mark.parametrize("case", ["empty folder", "text", "truncated", "1x1", "smaller than the stride", "two sizes"])
def test_pictures(capsys, case):
    words = []
    if case == "empty folder":
        Path("pictures").mkdir()
        path, words = "pictures", ["pictures"]
    elif case == "text":
        Path("letter.png").write_text("Dear reader, this is no picture.")
        path, words = "letter.png", ["letter.png"]
    elif case == "truncated":
        whole = write("cut.png").read_bytes()
        Path("cut.png").write_bytes(whole[: len(whole) // 2])
        path, words = "cut.png", ["cut.png"]
    elif case == "1x1":
        path, words = str(write("dot.png", (1, 1))), ["1x1"]
    elif case == "smaller than the stride":
        path, words = str(write("small.png", (3, 40))), ["stride"]
    else:
        Path("pictures").mkdir()
        write("pictures/a.png", (16, 16))
        write("pictures/b.png", (20, 16))
        path, words = "pictures", ["a", "b", "center_crop", "resize"]
    stride = ["--data.sampling.stride", "5"] if case == "smaller than the stride" else []
    refused(capsys, ["fit", *DEMO, "--data.paths", path, *stride], *words)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_arrays_that_are_not_finite(bad):
    values = torch.full((1, 8, 8, 1), 0.5)
    values[0, 3, 4, 0] = bad
    with pytest.raises(InputError, match=r"finite|NaN|infinite"):
        TensorDataModule(values).prepare_data()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    root = tmp_path_factory.mktemp("fitted")
    quick = ["--data.resize", "16", "--model.encoder.num_features", "8", "--wandb.enabled", "false"]
    quick += ["--data.steps_per_epoch", "2", "--trainer.log_every_n_steps", "1"]
    assert main(["fit", *DEMO, *quick, "--trainer.default_root_dir", str(root)]) == 0
    (found,) = root.glob("runs/*/1/checkpoints/last.ckpt")
    return str(found)


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_checkpoint_of_another_encoder(capsys, checkpoint, verb):
    config = DEMO if verb == "fit" else []
    options = ["--ckpt_path", checkpoint, "--model.encoder", "tri"]
    refused(capsys, [verb, *config, *options], "Gaussian(num_features=8", "Triangle(", "leave the option out")


def test_a_checkpoint_of_another_model(capsys, checkpoint):
    options = ["--ckpt_path", checkpoint, "--model", "SimpleMLP", "--model.encoder", "gau"]
    refused(capsys, ["test", *options], "holds a ComplexLinear", "asks for a SimpleMLP")


def test_a_file_that_is_no_checkpoint(capsys):
    Path("notes.ckpt").write_text("not a checkpoint")
    refused(capsys, ["predict", "--ckpt_path", "notes.ckpt"], "notes.ckpt", "not a checkpoint of pe_lightning")


@pytest.mark.parametrize("shape", [["0", "4"], ["4"], ["4", "x"], []])
def test_output_shapes(capsys, checkpoint, shape):
    refused(capsys, ["predict", "--ckpt_path", checkpoint, "--output_shape", *shape], "output_shape")

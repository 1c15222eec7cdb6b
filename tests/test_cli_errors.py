"""Bad input: one paragraph that says what to change, exit status 2, no run directory."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.checkpoints import VERSION_KEY

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
        # names that do not exist
        (["--model.encoder", "gua"], ["unknown encoder 'gua'", "did you mean 'gau'?", "Registered: basic, bspline"]),
        (["--model", "ComplexLinaer"], ["unknown model 'ComplexLinaer'", "'ComplexLinear'"]),
        (["--data", "ImageData"], ["unknown data 'ImageData'", "'ImageDataModule'"]),
        (["--data.sampling", "gird"], ["unknown sampling 'gird'", "did you mean 'grid'?"]),
        (["--model.encoder.sigm", "1"], ["Gaussian has no argument 'sigm'", "'sigma'", "padding"]),
        (["--model.encoder", "{name: tri, half_with: 1}"], ["'tri' has no argument 'half_with'", "'half_width'"]),
        (["--model.centre", "true"], ["ComplexLinear has no argument 'centre'", "'center'"]),
        (["--data.path", "x"], ["ImageDataModule has no argument 'path'", "'paths'"]),
        (["--data.batch_sise", "9"], ["ImageDataModule has no argument 'batch_sise'", "'batch_size'"]),
        (["--data.sampling.fraction", "0.5"], ["'fraction'", "stride"]),
        (["--trainer.max_step", "1"], ["--trainer.max_step", "'--trainer.max_steps'"]),
        (["--wandb.projct", "x"], ["--wandb.projct", "'--wandb.project'"]),
        (["--trainer.callbacks+", "PeakMemry"], ["unknown callback 'PeakMemry'", "'PeakMemory'"]),
        # values that are not allowed
        (["--model.encoder.sigma", "-0.5"], ["sigma", "positive", "-0.5"]),
        (["--model.encoder.sigma", "wide"], ["model.encoder.sigma", "float", "wide"]),
        (["--model.encoder", "rff", "--model.encoder.num_features", "7"], ["num_features", "even", "6 or 8"]),
        (["--model.encoder", "[gau, gau, gau]"], ["3 encoders", "2 axes"]),
        (["--model.ridge", "-1"], ["ridge", "-1"]),
        (["--model.depth", "-1"], ["depth", ">= 0", "-1"]),
        (["--model.activation", "rleu"], ["model.activation", "'relu'", "rleu"]),
        (["--data.protocol", "odd", "--data.sampling.stride", "3"], ["odd", "stride"]),
        (["--data.sampling", "random", "--data.sampling.fraction", "1.5"], ["fraction", "(0, 1]", "1.5"]),
        (["--data.sampling.stride", "512"], ["stride", "512"]),
        (["--data.batch", "pionts"], ["expected one of 'full', 'points', 'blocks'", "got pionts"]),
        (["--trainer.precision", "bf16-true"], ["'bf16-mixed'", "round the coordinates"]),
        (["--float32_matmul_precision", "tf32"], ["float32_matmul_precision", "'high'", "tf32"]),
        (["--seed_everything", "soon"], ["seed_everything", "soon"]),
        # files that do not exist
        (["--data.paths", "samples://astronuat"], ["astronuat", "'astronaut'"]),
        (["--data.paths", "nowhere.png"], ["nowhere.png"]),
        (["--ckpt_path", "nowhere.ckpt"], ["no checkpoint at 'nowhere.ckpt'"]),
        (["--config", "nowhere.yaml"], ["nowhere.yaml"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_options(capsys, arguments, words):
    refused(capsys, ["fit", *DEMO, *arguments], *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fti"], ["unknown verb 'fti'", "'fit'"]),
        (["test"], ["test needs a checkpoint", "--ckpt_path"]),
        (["encoders", "gau"], ["unknown argument 'gau'"]),
        (["fit"], ["missing: data, model"]),
        (["fit", "--model", "ComplexLinear", "--data", "ImageDataModule"], ["ComplexLinear needs encoder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_verbs(capsys, arguments, words):
    refused(capsys, arguments, *words)


def test_pictures(capsys):
    noise = np.random.default_rng(0).integers(0, 255, (20, 16, 3), dtype=np.uint8)
    folder = Path("pictures")
    folder.mkdir()
    refused(capsys, ["fit", *DEMO, "--data.paths", "pictures"], "pictures")
    for name, values in (("a.png", noise[:16]), ("b.png", noise)):
        Image.fromarray(values).save(folder / name)
    refused(capsys, ["fit", *DEMO, "--data.paths", "pictures"], "a", "b", "center_crop", "resize")
    (folder / "a.png").write_bytes((folder / "a.png").read_bytes()[:300])
    refused(capsys, ["fit", *DEMO, "--data.paths", "pictures/a.png"], "a.png")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("fitted")
    quick = ["--data.resize", "16", "--model.encoder.num_features", "8", "--wandb.enabled", "false"]
    quick += ["--data.steps_per_epoch", "2", "--trainer.log_every_n_steps", "1"]
    assert main(["fit", *DEMO, *quick, "--trainer.default_root_dir", str(root)]) == 0
    (found,) = root.glob("runs/*/1/checkpoints/last.ckpt")
    return found


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_a_checkpoint_of_another_encoder(capsys, checkpoint, verb):
    config = DEMO if verb == "fit" else []
    options = ["--ckpt_path", str(checkpoint), "--model.encoder", "tri"]
    refused(capsys, [verb, *config, *options], "Gaussian(num_features=8", "Triangle(", "leave the option out")


def test_a_checkpoint_of_another_model_or_setting(capsys, checkpoint):
    other = ["--ckpt_path", str(checkpoint), "--model", "SimpleMLP", "--model.encoder", "gau"]
    refused(capsys, ["test", *other], "holds a ComplexLinear", "is a SimpleMLP")
    refused(capsys, ["test", "--ckpt_path", str(checkpoint), "--model.center", "false"], "center=True", "center=False")


def test_files_that_are_no_checkpoint_of_this_version(capsys, checkpoint, tmp_path):
    Path("notes.ckpt").write_text("not a checkpoint")
    refused(capsys, ["predict", "--ckpt_path", "notes.ckpt"], "notes.ckpt", "not a checkpoint of pe_lightning")
    content = torch.load(checkpoint, weights_only=True)
    torch.save({**content, VERSION_KEY: "0.0.3"}, "old.ckpt")
    refused(capsys, ["test", "--ckpt_path", "old.ckpt"], "old.ckpt", "written by pe_lightning 0.0.3", "fit again")


@pytest.mark.parametrize("shape", ["0 4", "4", "4 x", ""])
def test_output_shapes(capsys, checkpoint, shape):
    refused(capsys, ["predict", "--ckpt_path", str(checkpoint), "--output_shape", *shape.split()], "output_shape")


def test_output_formats(capsys, checkpoint):
    arguments = ["--ckpt_path", str(checkpoint), "--output_format", "bmp"]
    refused(capsys, ["predict", *arguments], "output_format: expected one of 'auto', 'png'", "got bmp")

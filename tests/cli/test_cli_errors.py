"""Bad input: one paragraph that says what to change, exit status 2, no run directory."""

from pathlib import Path

import numpy as np
import pytest
from commands import error_of, fit
from PIL import Image

from pe_lightning.__main__ import main

DEMO = ["--config", "image/demo", "--trainer.max_steps", "2"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def refused(capsys, arguments: list[str], *words: str) -> None:
    """The command ends with an error that has all ``words``, and leaves nothing behind."""
    before = set(Path().rglob("*"))
    message = error_of(capsys, arguments)
    assert "Namespace(" not in message
    for word in words:
        assert word in message
    assert set(Path().rglob("*")) == before, "a file or run directory was left behind"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # names that do not exist
        (["--model.encoder", "gua"], ["unknown encoder 'gua'", "did you mean 'gau'?", "Registered: basic, bspline"]),
        (["--model", "ComplexLinaer"], ["unknown model 'ComplexLinaer'", "'ComplexLinear'"]),
        (["--model.encoder.sigm", "1"], ["encoder 'gau' has no argument 'sigm'", "'sigma'", "padding"]),
        (["--model.encoder", "{name: tri, half_with: 1}"], ["'tri' has no argument 'half_with'", "'half_width'"]),
        (["--data.batch_sise", "9"], ["ImageDataModule has no argument 'batch_sise'", "'batching'"]),
        (["--data.sampling.fraction", "0.5"], ["'grid' has no argument 'fraction'", "'random' has it: name that first"]),
        (["--wandb.projct", "x"], ["unknown option '--wandb.projct'; did you mean '--wandb.project'"]),
        (["--trainer.callbacks+", "Snapshts"], ["unknown callback 'Snapshts'", "'Snapshots'"]),
        (["--trainer.callbacks.every_n_steps", "5"], ["named before it: --trainer.callbacks+ ", "Snapshots"]),
        (
            ["--trainer.callbacks+", "Snapshots", "--trainer.callbacks.every_n_steps", "often"],
            ["trainer.callbacks.every_n_steps: expected int, got often"],
        ),
        # names of classes that are in no registry, or in another module
        (["--model.optimizer", "torch.optim.Adamm"], ["model.optimizer: unknown optimiser 'torch.optim.Adamm'", "'Adam'"]),
        (["--model.optimizer", "Adamm", "--model.optimizer.lr", "1"], ["unknown optimiser 'Adamm'; did you mean 'Adam'"]),
        (
            ["--model.lr_scheduler", "CosineAnnealing"],
            ["unknown learning-rate scheduler", "did you mean 'CosineAnnealingLR'"],
        ),
        (["--model.lr_scheduler", "torch.optim.StepLR"], ["unknown learning-rate scheduler", "did you mean 'StepLR'"]),
        (["--model.lr_scheduler", "ReduceLROnPlateau"], ["give one of torch.optim.lr_scheduler.ReduceLROnPlateau, "]),
        (["--trainer.callbacks+", "EarlyStoping"], ["unknown callback 'EarlyStoping'; did you mean 'EarlyStopping'"]),
        (["--trainer.logger", "CSVLoger"], ["trainer.logger: unknown logger 'CSVLoger'; did you mean 'CSVLogger'"]),
        (["--model", "pe_lightning.SimpleMPL"], ["unknown model 'pe_lightning.SimpleMPL'; did you mean 'SimpleMLP'"]),
        (["--data", "my.ImageDataModul"], ["(no module named 'my'); did you mean 'ImageDataModule'"]),
        (["--config", "{model: {class_path: SimpleMPL}}"], ["unknown model 'SimpleMPL'; did you mean 'SimpleMLP'"]),
        # arguments of a class that is not named, of another class, or below another argument
        (["--model.optimizer.betas", "[0, 0]"], ["for a class that is named before it: --model.optimizer NAME"]),
        (["--model.optimizer", "Adam", "--model.optimizer.lrr", "1"], ["Adam has no argument 'lrr'; did you mean 'lr'"]),
        (["--model.lr_scheduler", "StepLR"], ["StepLR needs step_size"]),
        (["--trainer.callbacks.patience", "5"], ["named before it: --trainer.callbacks+ EarlyStopping"]),
        (["--data.steps_per_epoch", "9"], ["no argument 'steps_per_epoch'; type --data.batching.steps_per_epoch."]),
        (["--model.weight_decay", "9"], ["type --model.optimizer NAME --model.optimizer.weight_decay VALUE"]),
        (["--stride", "9"], ["unknown option '--stride'; type --data.sampling.stride."]),
        (["--hidden_size", "9"], ["unknown option '--hidden_size'; type --model.hidden_size."]),
        # values that are not allowed
        (["--model.optimizer.lr", "-1"], ["lr must be a positive number", "got -1"]),
        (["--model.optimizer", "Adam", "--model.optimizer.lr", "fast"], ["model.optimizer.lr: expected float, got fast"]),
        (
            ["--model.optimizer", "Adam", "--model.optimizer.lr", "-1"],
            ["Adam refuses optimizer.lr=-1.0: Invalid learning rate"],
        ),
        (["--model.optimizer", "Adam", "--model.optimizer.betas", "[2,2]"], ["Adam refuses optimizer.betas=(2.0, 2.0): "]),
        (["--model.optimizer", "SparseAdam"], ["optimizer SparseAdam: SparseAdam does not support dense gradients"]),
        (["--model.lr_scheduler", "StepLR", "--model.lr_scheduler.step_size", "0"], ["refuses lr_scheduler.step_size=0: "]),
        (["--model.encoder.sigma", "-0.5"], ["sigma must be a positive number", "got -0.5"]),
        (["--model.encoder.sigma", "wide"], ["sigma must be a positive number", "got 'wide'"]),
        (["--data.batching.kind", "pionts"], ["data.batching.kind", "'full', 'points', 'blocks'", "got pionts"]),
        (["--seed_everything", "soon"], ["seed_everything: expected bool or int, got soon"]),
        (["--model.hidden_siz", "9"], ["has no argument 'hidden_siz'", "'hidden_size'", "depth"]),
        # files that do not exist
        (["--data.paths", "nowhere.png"], ["no such file or folder: 'nowhere.png'"]),
        (["--ckpt_path", "nowhere.ckpt"], ["no checkpoint at 'nowhere.ckpt'"]),
        (["--config", "nowhere.yaml"], ["'nowhere.yaml' is neither a file nor a recipe"]),
        (["--config", "{a: b}.yaml"], ["--config '{a: b}.yaml' is not YAML"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) and value[0].startswith("--") else "",
)
def test_options(capsys, arguments, words):
    refused(capsys, ["fit", *DEMO, *arguments], *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fti"], ["unknown verb 'fti'", "'fit'"]),
        (["fit", "samples://astronaut", "--mask", "m.png"], ["type --data.missing MASK"]),
        (["fit", "samples://astronaut", "--epochs", "3"], ["type --trainer.max_epochs N"]),
        (["fit", "samples://astronaut", "--float32_matmul_precision", "high"], ["--trainer.callbacks+ MatmulPrecision"]),
        (["fit", "samples://astronaut", "--resume_with_other_data", "true"], ["type --init CKPT_PATH"]),
        (["fit", "samples://astronaut", "-o", "a"], ["'-o'; type --trainer.default_root_dir FOLDER"]),
        (["suggest", "samples://astronaut", "-o", "a"], ["type --out OUT"]),
        (["fit", "samples://astronaut", "--lr", "0.1"], ["--model.optimizer.lr"]),
        (["fit", "samples://astronaut", "--seed", "1"], ["type --seed_everything 0"]),
        (["fit", "samples://astronaut", "--out", "a"], ["type --trainer.default_root_dir FOLDER"]),
        (["fit", "--model", "PatchRegression"], ["PatchRegression is no --model any more", "datasets/make_priors.py"]),
        (
            ["fit", "--model", "pe_fill.networks.patches.PatchRegression", "--data", "ImageDataModule"],
            ["pe_fill.networks.patches is gone", "datasets/make_priors.py"],
        ),
        (["test"], ["test needs a checkpoint", "--ckpt_path"]),
        (["--encoders"], ["unknown verb '--encoders'", "'encoders'"]),
        (["my.jpg"], ["'my.jpg' is not a verb", "pe-lightning fit my.jpg"]),
        (["fit", "my.jpg", "--encoders", "tri"], ["unknown option '--encoders'", "'--encoder'"]),
        (["fit", "samples://astronaut", "--output_shpe", "8"], ["unknown option '--output_shpe'. --help lists"]),
        (["cache", "list", "gau"], ["unknown argument 'gau'"]),
        (["fit"], ["fit needs signals, pe-lightning fit my.jpg"]),
        (["fit", "--model", "ComplexLinear", "--data", "ImageDataModule"], ["ComplexLinear needs encoder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_verbs(capsys, arguments, words):
    refused(capsys, arguments, *words)


def test_pictures(capsys):
    Path("pictures").mkdir()
    for name, rows in (("a", 16), ("b", 20)):
        Image.fromarray(np.zeros((rows, 16, 3), np.uint8)).save(f"pictures/{name}.png")
    refused(capsys, ["fit", *DEMO, "--data.paths", "pictures"], "a", "b", "center_crop", "resize")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("fitted")
    quick = ["--data.resize", "16", "--model.encoder.num_features", "8", "--trainer.logger", "false"]
    return fit(*DEMO, *quick, root=root) / "checkpoints/last.ckpt"


@pytest.mark.parametrize(
    ("verb", "given", "words"),
    [
        ("fit", "--model.encoder tri", ["gau(num_features=8", "tri(", "leave the option out"]),
        ("predict", "--output_shape 4 x", ["output_shape"]),
        ("predict", "--output_shape 0 4", ["output_shape"]),
        ("predict", "--scale 0", ["scale must be a number above 0"]),
        ("predict", "--scale 2 --output_shape 4 4", ["give one of output_shape, scale and at"]),
        ("predict", "--output_format bmp", ["output_format: expected one of 'auto', 'png'", "got bmp"]),
    ],
)
def test_options_that_contradict_the_checkpoint_are_refused(capsys, checkpoint, verb, given, words):
    config = DEMO if verb == "fit" else []
    refused(capsys, [verb, *config, "--ckpt_path", str(checkpoint), *given.split()], *words)


def test_a_file_that_is_no_checkpoint(capsys):
    Path("notes.ckpt").write_text("not a checkpoint")
    refused(capsys, ["predict", "--ckpt_path", "notes.ckpt"], "notes.ckpt", "not a checkpoint of pe_lightning")


def test_a_run_directory_is_its_last_checkpoint(capsys, checkpoint):
    run = checkpoint.parent.parent
    for verb in ("predict", "test"):
        assert main([verb, "--ckpt_path", str(run)]) == 0
    assert list(run.glob("predict/*/*.png"))
    refused(capsys, ["predict", "--ckpt_path", str(run.parent)], "give a run directory, which has checkpoints/last.ckpt")

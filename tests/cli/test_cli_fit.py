"""One command from a picture to numbers, files and logs."""

import csv
import re
import shutil
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from commands import DEMO, NO_WANDB, fit, metrics, picture
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse
from pe_lightning.results.runs import origin
from pe_lightning.signals import grid_axes
from pe_lightning.training import ComplexLinear, ImageDataModule

SOLVED = ["--data.resize", "64", "--model.encoder.num_features", "32", "--trainer.logger", "false"]


pytestmark = pytest.mark.usefixtures("empty_folder")


def solve(recipe: str, *arguments: str) -> tuple[Path, dict]:
    run = fit("--config", f"image/{recipe}", *SOLVED, *arguments)
    return run, metrics(run)


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The run of one fit, for tests that only look at it."""
    root = tmp_path_factory.mktemp("demo")
    return fit(*DEMO, *NO_WANDB, root=root)


@pytest.fixture
def fitted(demo, empty_folder) -> Path:
    """A copy of that run, for tests that go on with it."""
    return Path(shutil.copytree(demo, Path(*demo.parts[-3:])))


def test_the_seconds_of_a_choice_are_seconds_of_the_fit(monkeypatch, capsys):
    build = ComplexLinear.build_from
    monkeypatch.setattr(ComplexLinear, "build_from", lambda *arguments: (time.sleep(1.0), build(*arguments))[1])
    fit(*DEMO, *NO_WANDB, "--trainer.max_steps", "1")
    assert float(re.search(r"reading .*, fit ([\d.]+)", capsys.readouterr().out)[1]) >= 1


def test_a_fit_leaves_everything_that_is_promised(demo):
    found = metrics(demo)
    assert demo.parts[-3:] == ("runs", "astronaut-ComplexLinear-gau", "1")
    assert found["schema"] == 1
    assert found["steps"] == 20
    assert found["num_params"] == 3 * 16 * 16
    assert found["protocol"] == "rest"
    assert found["sampling"] == {"name": "grid", "stride": 2, "offset": 0}
    width = {"num_features": 16, "sigma": 0.04, "padding": 0, "spacing": 1 / 16}
    assert found["encoder"] == {"name": "gau", **width, "trainable": False}
    assert found["signals"] == ["astronaut"]
    assert found["seed"] == 0
    assert found["fit_seconds"] > 0
    assert {"torch", "lightning", "pe_lightning"} <= set(found["versions"])
    assert abs((datetime.now(timezone.utc) - datetime.fromisoformat(found["date"])).total_seconds()) < 3600
    head = (demo / "config.yaml").read_text().splitlines()[1:3]
    assert head[0].startswith(f"# {found['date']}, ")
    assert head[1] == f"# {found['command']}" == f"# {origin()['command']}"
    assert found["test/psnr_per_signal"] == [found["test/psnr"]]
    assert 15 < found["test/psnr"] < 40
    for name in ("config.yaml", "checkpoints/last.ckpt", "checkpoints/best.ckpt"):
        assert (demo / name).is_file(), name
    assert picture(demo / "reconstructions/astronaut_comparison.png").shape[1] > 3 * 32


def test_the_scores_are_those_of_the_written_picture(demo):
    """The checkpoint, the picture and the numbers agree, computed anew in NumPy."""
    truth = ImageDataModule("samples://astronaut", resize=32).values[0].numpy()
    model = ComplexLinear.load_from_checkpoint(demo / "checkpoints/last.ckpt")
    with torch.no_grad():
        prediction = model.predict_grid(grid_axes((32, 32)))[0].numpy()
    held_out = np.ones((32, 32), bool)
    held_out[::2, ::2] = False
    found = metrics(demo)
    for key, samples in (("test/psnr", held_out), ("train/psnr", ~held_out)):
        assert -10 * np.log10(np.square(prediction - truth)[samples].mean()) == pytest.approx(found[key], abs=1e-4)
    written = picture(demo / "reconstructions/astronaut.png").astype(int)
    assert np.abs(written - np.clip(prediction, 0, 1) * 255).max() <= 0.51


def test_loggers_get_the_curves_and_the_complete_resolved_configuration(demo):
    with (demo / "logs/version_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    held_out = [float(row["val/psnr"]) for row in rows if row["val/psnr"]]
    assert len(held_out) == 2
    assert held_out[-1] == pytest.approx(metrics(demo)["test/psnr"], abs=1e-4)
    (logged,) = [float(row["test/psnr"]) for row in rows if row["test/psnr"]]
    assert logged == pytest.approx(metrics(demo)["test/psnr"])
    logged = yaml.safe_load((demo / "logs/version_0/hparams.yaml").read_text())
    assert logged["encoder"]["sigma"] == 0.04, "resolved"
    assert logged["config"]["model"] == yaml.safe_load((demo / "config.yaml").read_text())["model"]
    assert metrics(demo)["optimizer"]["name"] == "SGD"
    assert logged["config"]["trainer"]["max_steps"] == 20


def test_logger_false_switches_every_logger_off_and_the_precision_of_products_is_a_callback():
    try:
        run = fit(*DEMO, "--trainer.logger", "false", "--trainer.callbacks+", "MatmulPrecision")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not (run / "wandb").exists()
    assert not (run / "logs").exists()
    assert (run / "metrics.json").is_file()


def test_a_folder_of_ones_own_pictures_in_batches_of_points():
    folder = Path("my pictures")
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in ("a.png", "ü.png"):
        Image.fromarray(generator.integers(0, 255, (20, 30, 3), dtype=np.uint8)).save(folder / name)
    arguments = ["--data.paths", str(folder), "--data.resize", "null", *NO_WANDB]
    arguments += ["--data.sampling", "random", "--data.sampling.fraction", "0.5", "--data.sampling.seed", "3"]
    run = fit(*DEMO, *arguments, "--data.batching.kind", "points", "--data.batching.size", "7")
    assert run.parent.name == "my-pictures-ComplexLinear-gau"
    found = metrics(run)
    assert found["signals"] == ["a", "ü"]
    assert found["grid"] == [20, 30]
    assert found["sampling"] == {"name": "random", "fraction": 0.5, "seed": 3, "shared": False, "count": None}
    assert found["test/psnr"] == pytest.approx(np.mean(found["test/psnr_per_signal"]))


def test_nothing_held_out_is_said_and_not_scored(capsys):
    run = fit(*DEMO, *NO_WANDB, "--data.sampling.stride", "1")
    found = metrics(run)
    assert found["protocol"] == "none"
    assert found["test/psnr"] is None
    assert "nothing is held out" in found["test/psnr_reason"]
    assert "nothing is held out" in capsys.readouterr().out
    assert (run / "checkpoints/last.ckpt").is_file()


def test_test_validate_and_predict_of_a_checkpoint_write_beside_it(fitted):
    checkpoint = str(fitted / "checkpoints/last.ckpt")
    assert main(["test", "--ckpt_path", checkpoint]) == 0
    assert metrics(fitted / "test")["test/psnr"] == metrics(fitted)["test/psnr"]
    assert main(["validate", "--ckpt_path", checkpoint]) == 0
    assert metrics(fitted / "validate")["val/psnr"] == pytest.approx(metrics(fitted)["test/psnr"], abs=1e-4)
    assert main(["predict", "--ckpt_path", checkpoint]) == 0
    same = picture(fitted / "predict/32x32/astronaut.png")
    assert np.array_equal(same, picture(fitted / "reconstructions/astronaut.png"))
    assert main(["predict", "--ckpt_path", checkpoint, "--output_shape", "64", "48", "--output_format", "npy"]) == 0
    assert np.load(fitted / "predict/64x48/astronaut.npy").shape == (64, 48, 3)
    assert len(list(Path("runs").glob("*/*"))) == 1, "no second run directory"
    best = ["predict", "--ckpt_path", str(fitted / "checkpoints/best.ckpt")]
    before = (fitted / "predict/32x32/astronaut.png").stat().st_mtime_ns
    assert main(best) == 0
    assert (fitted / "predict/best/32x32/astronaut.png").is_file()
    assert (fitted / "predict/32x32/astronaut.png").stat().st_mtime_ns == before
    for _ in range(2):  # the second time it exists
        assert main([*best, "--trainer.default_root_dir", "elsewhere/new"]) == 0
    assert len(list(Path("elsewhere/new/runs").glob("*/*/32x32/astronaut.png"))) == 2


def test_predict_needs_neither_data_nor_configuration(fitted, tmp_path):
    """Every other row of twice the size is the fitted grid."""
    alone = tmp_path / "alone"
    alone.mkdir()
    (fitted / "checkpoints/last.ckpt").rename(alone / "model.ckpt")
    assert main(["predict", "--ckpt_path", str(alone / "model.ckpt"), "--scale", "2"]) == 0
    large = picture(alone / "predict/model/64x64/astronaut.png").astype(int)
    small = picture(fitted / "reconstructions/astronaut.png").astype(int)
    assert np.abs(large[::2, ::2] - small).max() <= 1


def test_closed_form():
    run, found = solve("closed_form")
    assert found["steps"] == 0
    assert found["fit_seconds"] >= found["solve_seconds"] > 0
    assert found["ridge"] == found["solution"]["choice"]["ridge"] > 0
    assert isinstance(found["encoder"]["sigma"], float), "auto in the recipe"
    assert found["test/psnr"] > 18
    scores = {name: row["test/psnr"] for name, row in found["baselines"].items()}
    assert set(scores) == {"nearest", "linear", "bicubic", "spline"}
    assert scores["nearest"] < scores["linear"] < scores["bicubic"] < found["test/psnr"] + 3
    assert (run / "choice.png").stat().st_size > 1000
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    again = metrics(run / "test")
    assert again["test/psnr"] == pytest.approx(found["test/psnr"])
    assert again["ridge"] == found["ridge"]


def test_inpaint_and_a_given_ridge():
    run, found = solve("inpaint", "--model.encoder.scale", "0.03", "--model.ridge", "0.01")
    assert found["ridge"] == 0.01
    assert not (run / "choice.png").exists(), "nothing was chosen"
    assert found["solution"]["solver"] == "points"
    assert found["solution"]["converged"]
    assert found["test/psnr"] > 15
    assert found["baselines"]["delaunay"]["test/psnr"] > found["baselines"]["nearest"]["test/psnr"]


def test_the_choice_knows_nothing_of_the_held_out_samples():
    """Other values off the training grid, the same choice."""
    picture = (ImageDataModule("samples://astronaut", resize=40).values[0].numpy() * 255).round().astype(np.uint8)
    other = np.full_like(picture, 128)
    other[::2, ::2] = picture[::2, ::2]
    found = []
    for name, values in (("a.png", picture), ("b.png", other)):
        Image.fromarray(values).save(name)
        found.append(solve("closed_form", "--data.paths", name, "--data.resize", "null")[1])
    assert found[0]["solution"]["choice"] == found[1]["solution"]["choice"]
    assert found[0]["train/psnr"] == pytest.approx(found[1]["train/psnr"])
    assert found[0]["test/psnr"] != found[1]["test/psnr"]


@pytest.mark.slow  # trains a network
def test_the_recipe_that_continues_never_ends_below_the_solution():
    """The first steps must not throw away what the solver found."""
    named = ["--model.encoder", "{name: rff, num_features: 32}"]
    scores = [solve(recipe, *named)[1]["test/psnr"] for recipe in ("closed_form", "warm_head")]
    assert scores[1] > scores[0] + 0.1, "the head learns"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ("~", None),
        ("true", True),
        ("1e-4", 1e-4),
        ("[1e-4,null]", [1e-4, None]),
        ("'1'", 1),
        ("'a b'", "a b"),
        ("nullable", "nullable"),
    ],
)
def test_values_of_encoders_are_those_of_a_configuration(text, value, empty_folder, monkeypatch):
    """By options, by a file and by ``--vary``: the same YAML."""
    (empty_folder / "my_values.py").write_text(
        "import torch\nfrom typing import Any\nfrom pe_lightning.encoders import Encoder\nclass Show(Encoder):\n"
        "    def __init__(self, num_features: int = 4, given: Any = 2.0):\n        super().__init__(num_features)\n"
        "    def forward(self, x):\n        return x[..., None] ** torch.arange(self.num_features, dtype=x.dtype)\n"
    )
    monkeypatch.syspath_prepend(empty_folder)
    (empty_folder / "own.yaml").write_text(f"model: {{init_args: {{encoder: {{name: my_values.Show, given: {text}}}}}}}\n")
    ways = (["--encoder", "my_values.Show", f"--encoder.given={text}"], ["--config", "own.yaml"])
    for words in ways:
        config = parse("fit", rewrite("fit", ["--config", "image/demo", *words]))
        assert config.model.init_args.encoder["given"] == value

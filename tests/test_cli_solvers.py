"""Exact fits from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pe_lightning.__main__ import main
from pe_lightning.data import ImageDataModule

ROOT = Path(__file__).parents[1]
QUICK = ["--data.resize", "64", "--model.encoder.num_features", "32", "--wandb.enabled", "false"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fit(recipe: str, *arguments: str) -> tuple[Path, dict]:
    before = set(Path().glob("runs/*/*"))
    assert main(["fit", "--config", str(ROOT / "configs/image" / recipe), *QUICK, *arguments]) == 0
    (run,) = set(Path().glob("runs/*/*")) - before
    return run, json.loads((run / "metrics.json").read_text())


def test_closed_form_leaves_everything_that_a_run_leaves():
    run, found = fit("closed_form.yaml")
    assert found["steps"] == 0
    assert found["solve_seconds"] > 0
    assert found["fit_seconds"] >= found["solve_seconds"]
    assert found["ridge"] == found["solution"]["choice"]["ridge"] > 0
    assert found["test/psnr"] > 18
    scores = {name: row["test/psnr"] for name, row in found["baselines"].items()}
    assert set(scores) == {"nearest", "linear", "bicubic", "spline"}
    assert scores["nearest"] < scores["linear"] < scores["bicubic"] < found["test/psnr"] + 3
    assert (run / "choice.png").stat().st_size > 1000
    assert (run / "config.yaml").is_file()
    torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    assert main(["predict", "--ckpt_path", str(run / "checkpoints/last.ckpt"), "--output_shape", "8", "8"]) == 0
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0
    again = json.loads((run / "test/metrics.json").read_text())
    assert again["test/psnr"] == pytest.approx(found["test/psnr"])
    assert again["ridge"] == found["ridge"]


def test_another_encoder_and_a_chosen_sigma():
    _, found = fit("closed_form.yaml", "--model.encoder", "rff", "--model.encoder.sigma", "auto")
    assert found["encoder"]["name"] == "rff"
    assert isinstance(found["encoder"]["sigma"], float)
    assert found["solution"]["choice"]["factors"]


def test_a_given_ridge():
    run, found = fit("closed_form.yaml", "--model.ridge", "0.01", "--model.encoder.sigma", "0.04")
    assert found["ridge"] == 0.01
    assert not (run / "choice.png").exists(), "nothing was chosen"


def test_inpaint():
    _, found = fit("inpaint.yaml", "--model.encoder.scale", "0.03")
    assert found["solution"]["solver"] == "points"
    assert found["solution"]["converged"]
    assert found["protocol"] == "rest"
    assert found["test/psnr"] > 15
    assert set(found["baselines"]) == {"nearest", "delaunay"}
    assert found["baselines"]["delaunay"]["test/psnr"] > found["baselines"]["nearest"]["test/psnr"]


def test_the_choice_knows_nothing_of_the_held_out_samples():
    """Other values off the training grid, the same choice."""
    picture = (ImageDataModule("samples://astronaut", resize=64).values[0].numpy() * 255).round().astype(np.uint8)
    other = np.full_like(picture, 128)
    other[::2, ::2] = picture[::2, ::2]
    found = []
    for name, values in (("a.png", picture), ("b.png", other)):
        Image.fromarray(values).save(name)
        found.append(fit("closed_form.yaml", "--data.paths", name, "--data.resize", "null")[1])
    assert found[0]["solution"]["choice"] == found[1]["solution"]["choice"]
    assert found[0]["train/psnr"] == pytest.approx(found[1]["train/psnr"])
    assert found[0]["test/psnr"] != found[1]["test/psnr"]


@pytest.mark.parametrize("encoder", ["gau", "rff"])
def test_the_recipe_that_continues_never_ends_below_the_solution(encoder):
    """The first steps of Adam must not throw away what the solver found."""
    named = ["--model.encoder", f"{{name: {encoder}, num_features: 32}}", "--trainer.logger", "false"]
    scores = [fit(recipe, *named)[1]["test/psnr"] for recipe in ("closed_form.yaml", "warm_head.yaml")]
    assert scores[1] > scores[0] - 0.01
    if encoder == "rff":
        assert scores[1] > scores[0] + 0.1, "the head learns"

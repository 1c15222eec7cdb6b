"""Third-party classes of every registry, verbs and recipes, installed for real, are found by name."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from stopping import run_command

pytestmark = pytest.mark.slow  # installs a package, and starts processes that can import it
TESTS = Path(__file__).parent
ROOT = TESTS.parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment in which the example plugin is installed, from its source, with pip and without a network."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(TESTS / "plugin_project", source, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(target), str(source)], check=True, capture_output=True)
    return {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT), str(TESTS)])}


def run(environment: dict[str, str], folder: Path, line: str, status: int = 0) -> str:
    """The output of the command, of both streams."""
    done = run_command(folder, *shlex.split(line), environment=environment)
    assert done.returncode == status, done.stderr
    return done.stdout


def fit(environment: dict[str, str], folder: Path, line: str, run_folder: str) -> tuple[Path, dict]:
    """The run directory of a fit, and its metrics."""
    run(environment, folder, f"fit {line} --wandb.enabled false")
    found = folder / "runs" / run_folder
    return found, json.loads((found / "metrics.json").read_text())


def test_it_fits_and_its_checkpoint_predicts(environment, tmp_path):
    quick = "--trainer.max_steps 20 --data.batching.steps_per_epoch 10 --data.resize 32"
    line = f"--config '{ROOT}/configs/image/demo.yaml' --model.encoder chirp {quick}"
    found, report = fit(environment, tmp_path, line, "astronaut-ComplexLinear-chirp/1")
    assert report["encoder"] == {"name": "chirp", "num_features": 256}
    listed = set(run(environment, tmp_path, "list").replace(",", " ").split())
    assert {"chirp", "chirp_mlp", "sinc", "balls", "ball", "checkerboard", "dice", "average", "step_counter"} <= listed
    run(environment, tmp_path, f"predict --ckpt_path {found}/checkpoints/last.ckpt --output_shape 8 8")
    assert (found / "predict/8x8/astronaut.png").is_file()


def test_a_fit_of_its_classes_alone(environment, tmp_path):
    (tmp_path / "data.yaml").write_text("data: {class_path: pe_chirp.BallDataModule, init_args: {size: 8}}\n")
    model = "--model chirp_mlp --model.encoder '{name: chirp, num_features: 12}' --model.activation sinc"
    data = "--config data.yaml --data.sampling checkerboard --data.sampling.odd true"
    quick = "--trainer.max_steps 20 --trainer.callbacks+ step_counter"
    run(environment, tmp_path, f"fit {model} {data} {quick} --wandb.enabled false")
    (found,) = tmp_path.glob("runs/ball-*-chirp/1/metrics.json")
    report = json.loads(found.read_text())
    assert (report["metric"], report["signals"], report["grid"]) == ("dice", ["ball"], [8, 8, 8])
    assert (report["sampling"], report["counted_steps"]) == ({"name": "checkerboard", "odd": True}, 20)
    assert 0 <= report["test/dice"] <= 1
    assert not any("psnr" in key for key in report)
    assert {"average", "delaunay", "nearest"} <= report["baselines"].keys()
    assert "test/dice" in report["baselines"]["average"]
    model = "--model ComplexLinear --model.encoder '{name: chirp, num_features: 8}'"
    data = "--data SignalDataModule --data.source ball --data.source.size 8 --trainer.max_steps 2"
    _, report = fit(environment, tmp_path, f"{model} {data}", "ball-ComplexLinear-chirp/1")
    assert report["sampling"]["name"] == "grid"


def test_files_of_its_suffix_are_fitted_predicted_and_compared(environment, tmp_path):
    y, x = np.mgrid[:24, :20] / 20
    np.savetxt(tmp_path / "scan.xyz", 1000 + 500 * np.sin(4 * x) * np.cos(3 * y))
    found, report = fit(environment, tmp_path, "scan.xyz --data.source.step 2", "scan-ComplexLinear-gau/1")
    assert report["grid"] == [12, 20]
    written = np.loadtxt(found / "reconstructions/scan.xyz")
    np.testing.assert_allclose(written[::2, ::2], np.loadtxt(tmp_path / "scan.xyz")[::4, ::2], atol=0.1)
    run(environment, tmp_path, f"predict --ckpt_path {found}/checkpoints/last.ckpt --output_shape 8 9")
    assert np.loadtxt(found / "predict/8x9/scan.xyz").shape == (8, 9)
    run(environment, tmp_path, "suggest scan.xyz --encoders gau,tri --num_features 8")
    run(environment, tmp_path, "fit --config suggested.yaml --wandb.enabled false")


def test_its_verb_its_hints_and_its_recipe(environment, tmp_path):
    assert run(environment, tmp_path, "rates 3 --scale 0.5") == "0.0 0.5 1.0\n"
    assert "did you mean '--scale'" in run(environment, tmp_path, "rates 3 --scael 0.5", 2)
    shown = run(environment, tmp_path, "--help")
    assert "rates      prints the rates of chirps\n" in shown
    assert "  pe-lightning rates 3\n" in shown
    assert "unknown verb 'speeds': pe-lightning rates 3." in run(environment, tmp_path, "speeds", 2)
    fit(environment, tmp_path, "--config chirp/image", "astronaut-ComplexLinear-chirp/1")


def test_its_estimator(environment, tmp_path):
    """It is hosted by a configuration, read back from a checkpoint, and a candidate of ``suggest``."""
    Image.fromarray(np.arange(16 * 12, dtype=np.uint8).reshape(16, 12)).save(tmp_path / "a.png")
    model = "--model EstimatorModule --model.estimator nearest --model.estimator.thinning 1 --trainer.max_steps 0"
    found, report = fit(environment, tmp_path, f"a.png {model}", "a-Nearest/1")
    assert (report["model"], report["num_params"], report["encoder"]) == ("Nearest", 8 * 6 * 3, None)
    assert report["test/psnr"] == pytest.approx(report["baselines"]["nearest"]["test/psnr"], abs=3)
    assert yaml.safe_load((found / "config.yaml").read_text())["model"]["class_path"] == "pe_lightning.EstimatorModule"
    run(environment, tmp_path, f"predict --ckpt_path {found}/checkpoints/last.ckpt --output_shape 16 12")
    assert (found / "predict/16x12/a.png").is_file()
    said = run(environment, tmp_path, "suggest a.png --encoders Nearest")
    assert "Best encoder: Nearest" in said
    assert "Nearest: the value of the nearest sample." in said
    model = yaml.safe_load((tmp_path / "suggested.yaml").read_text())["model"]
    assert model == {"class_path": "pe_lightning.EstimatorModule", "init_args": {"estimator": {"name": "nearest"}}}
    _, again = fit(environment, tmp_path, "--config suggested.yaml", "a-Nearest/2")
    assert again["test/psnr"] == report["test/psnr"]

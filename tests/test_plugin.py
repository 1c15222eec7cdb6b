"""Third-party classes of every registry, verbs and recipes, installed for real, are found by name."""

import json
import os
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


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(folder, *arguments, environment=environment)


def test_it_fits_and_its_checkpoint_predicts(environment, tmp_path):
    quick = [
        "--trainer.max_steps",
        "20",
        "--data.batching.steps_per_epoch",
        "10",
        "--data.resize",
        "32",
        "--wandb.enabled",
        "false",
    ]
    config = str(ROOT / "configs/image/demo.yaml")
    done = run(environment, tmp_path, "fit", "--config", config, "--model.encoder", "chirp", *quick)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/astronaut-ComplexLinear-chirp/1/metrics.json")
    assert json.loads(found.read_text())["encoder"] == {"name": "chirp", "num_features": 256}
    checkpoint = found.parent / "checkpoints/last.ckpt"
    done = run(environment, tmp_path, "list")
    names = ["chirp", "chirp_mlp", "sinc", "balls", "ball", "checkerboard", "dice", "average", "step_counter"]
    assert (done.returncode, [name for name in names if not {name, f"{name},"} & set(done.stdout.split())]) == (0, [])
    done = run(environment, tmp_path, "predict", "--ckpt_path", str(checkpoint), "--output_shape", "8", "8")
    assert done.returncode == 0, done.stderr
    assert (found.parent / "predict/8x8/astronaut.png").is_file()


def test_a_fit_of_its_classes_alone(environment, tmp_path):
    (tmp_path / "data.yaml").write_text("data: {class_path: pe_chirp.BallDataModule, init_args: {size: 8}}\n")
    model = ["--model", "chirp_mlp", "--model.encoder", "{name: chirp, num_features: 12}", "--model.activation", "sinc"]
    data = ["--config", "data.yaml", "--data.sampling", "checkerboard", "--data.sampling.odd", "true"]
    quick = ["--trainer.max_steps", "20", "--trainer.callbacks+", "step_counter", "--wandb.enabled", "false"]
    done = run(environment, tmp_path, "fit", *model, *data, *quick)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/ball-*-chirp/1/metrics.json")
    report = json.loads(found.read_text())
    assert (report["metric"], report["signals"], report["grid"]) == ("dice", ["ball"], [8, 8, 8])
    assert (report["sampling"], report["counted_steps"]) == ({"name": "checkerboard", "odd": True}, 20)
    assert 0 <= report["test/dice"] <= 1
    assert not any("psnr" in key for key in report)
    assert {"average", "delaunay", "nearest"} <= report["baselines"].keys()
    assert "test/dice" in report["baselines"]["average"]
    model = ["--model", "ComplexLinear", "--model.encoder", "{name: chirp, num_features: 8}"]
    data = ["--data", "SignalDataModule", "--data.source", "ball", "--data.source.size", "8"]
    done = run(environment, tmp_path, "fit", *model, *data, "--trainer.max_steps", "2", "--wandb.enabled", "false")
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/ball-ComplexLinear-chirp/1/metrics.json")
    assert json.loads(found.read_text())["sampling"]["name"] == "grid"


def test_files_of_its_suffix_are_fitted_predicted_and_compared(environment, tmp_path):
    y, x = np.mgrid[:24, :20] / 20
    np.savetxt(tmp_path / "scan.xyz", 1000 + 500 * np.sin(4 * x) * np.cos(3 * y))
    quiet = ["--wandb.enabled", "false"]
    done = run(environment, tmp_path, "fit", "scan.xyz", "--data.source.step", "2", *quiet)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/scan-ComplexLinear-gau/1/metrics.json")
    report = json.loads(found.read_text())
    assert report["grid"] == [12, 20]
    written = found.parent / "reconstructions/scan.xyz"
    np.testing.assert_allclose(np.loadtxt(written)[::2, ::2], np.loadtxt(tmp_path / "scan.xyz")[::4, ::2], atol=0.1)
    checkpoint = found.parent / "checkpoints/last.ckpt"
    done = run(environment, tmp_path, "predict", "--ckpt_path", str(checkpoint), "--output_shape", "8", "9")
    assert done.returncode == 0, done.stderr
    assert np.loadtxt(found.parent / "predict/8x9/scan.xyz").shape == (8, 9)
    done = run(environment, tmp_path, "suggest", "scan.xyz", "--encoders", "gau,tri", "--num_features", "8")
    assert done.returncode == 0, done.stderr
    done = run(environment, tmp_path, "fit", "--config", "suggested.yaml", *quiet)
    assert done.returncode == 0, done.stderr


def test_its_verb_its_hints_and_its_recipe(environment, tmp_path):
    done = run(environment, tmp_path, "rates", "3", "--scale", "0.5")
    assert (done.returncode, done.stdout) == (0, "0.0 0.5 1.0\n")
    done = run(environment, tmp_path, "rates", "3", "--scael", "0.5")
    assert "did you mean '--scale'" in done.stderr
    shown = run(environment, tmp_path, "--help").stdout
    assert "rates      prints the rates of chirps\n" in shown
    assert "  pe-lightning rates 3\n" in shown
    assert "unknown verb 'speeds': pe-lightning rates 3." in run(environment, tmp_path, "speeds").stderr
    done = run(environment, tmp_path, "fit", "--config", "chirp/image", "--wandb.enabled", "false")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/astronaut-ComplexLinear-chirp/1/metrics.json"))


def test_its_estimator(environment, tmp_path):
    """It is hosted by a configuration, read back from a checkpoint, and a candidate of ``suggest``."""
    Image.fromarray(np.arange(16 * 12, dtype=np.uint8).reshape(16, 12)).save(tmp_path / "a.png")
    model = ["--model", "EstimatorModule", "--model.estimator", "nearest", "--model.estimator.thinning", "1"]
    done = run(environment, tmp_path, "fit", "a.png", *model, "--trainer.max_steps", "0", "--wandb.enabled", "false")
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/a-Nearest/1/metrics.json")
    report = json.loads(found.read_text())
    assert (report["model"], report["num_params"], report["encoder"]) == ("Nearest", 8 * 6 * 3, None)
    assert report["test/psnr"] == pytest.approx(report["baselines"]["nearest"]["test/psnr"], abs=3)
    assert (
        yaml.safe_load((found.parent / "config.yaml").read_text())["model"]["class_path"] == "pe_lightning.EstimatorModule"
    )
    done = run(
        environment,
        tmp_path,
        "predict",
        "--ckpt_path",
        str(found.parent / "checkpoints/last.ckpt"),
        "--output_shape",
        "16",
        "12",
    )
    assert done.returncode == 0, done.stderr
    assert (found.parent / "predict/16x12/a.png").is_file()
    done = run(environment, tmp_path, "suggest", "a.png", "--encoders", "Nearest")
    assert done.returncode == 0, done.stderr
    assert "Best encoder: Nearest" in done.stdout
    assert "Nearest: the value of the nearest sample." in done.stdout
    model = yaml.safe_load((tmp_path / "suggested.yaml").read_text())["model"]
    assert model == {"class_path": "pe_lightning.EstimatorModule", "init_args": {"estimator": {"name": "nearest"}}}
    done = run(environment, tmp_path, "fit", "--config", "suggested.yaml", "--wandb.enabled", "false")
    assert done.returncode == 0, done.stderr
    (again,) = tmp_path.glob("runs/a-Nearest/2/metrics.json")
    assert json.loads(again.read_text())["test/psnr"] == report["test/psnr"]

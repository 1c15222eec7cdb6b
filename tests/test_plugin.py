"""A third-party encoder and a third-party source, installed for real, are found by name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment in which the example plugin is installed, from its source, with pip and without a network."""
    source = tmp_path_factory.mktemp("source")
    for path in (TESTS / "plugin_project").iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    target = tmp_path_factory.mktemp("site")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(target), str(source)], check=True, capture_output=True)
    paths = [str(target), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pe_lightning", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_its_encoder_is_listed_fits_and_its_checkpoint_predicts(environment, tmp_path):
    assert "chirp" in run(environment, tmp_path, "encoders").stdout
    quick = ["--trainer.max_steps", "20", "--data.resize", "32", "--wandb.enabled", "false"]
    config = str(ROOT / "configs/image/demo.yaml")
    done = run(environment, tmp_path, "fit", "--config", config, "--model.encoder", "chirp", *quick)
    assert done.returncode == 0, done.stderr
    (found,) = tmp_path.glob("runs/astronaut-ComplexLinear-chirp/1/metrics.json")
    assert json.loads(found.read_text())["encoder"] == {"name": "chirp", "num_features": 256}
    checkpoint = found.parent / "checkpoints/last.ckpt"
    done = run(environment, tmp_path, "predict", "--ckpt_path", str(checkpoint), "--output_shape", "8", "8")
    assert done.returncode == 0, done.stderr
    assert (found.parent / "predict/8x8/astronaut.png").is_file()


def test_its_source(environment, tmp_path):
    code = (
        "from pe_lightning.data.sources import sources\n"
        "ball = sources.create('ball', size=8)\n"
        "print(ball.read().shape, ball.metric, ball.describe(), ball.read().scaling.dtype)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 8, 8, 8, 1) iou {'size': 8, 'radius': 0.3} uint8", done.stderr

"""Two processes on one machine: the numbers of one, one run directory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUICK = ["--data.resize", "32", "--model.encoder.num_features", "16", "--data.steps_per_epoch", "10"]
QUICK += ["--trainer.log_every_n_steps", "5", "--trainer.accelerator", "cpu", "--wandb.enabled", "false"]


def fit(folder: Path, recipe: str, *arguments: str) -> dict:
    """Runs the command in a process of its own: the second process runs the same command line again."""
    folder.mkdir()
    config = str(ROOT / "configs/image" / recipe)
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", config, *QUICK, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (run,) = folder.glob("runs/*/*")
    return json.loads((run / "metrics.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["demo.yaml", "closed_form.yaml", "inpaint.yaml"])
def test_two_processes_give_the_numbers_of_one(tmp_path, recipe):
    steps = ["--trainer.max_steps", "20"] if recipe == "demo.yaml" else []
    one = fit(tmp_path / "one", recipe, *steps)
    two = fit(tmp_path / "two", recipe, *steps, "--trainer.devices", "2", "--trainer.strategy", "ddp")
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-4)
    assert two["train/psnr"] == pytest.approx(one["train/psnr"], abs=1e-4)
    assert two["baselines"] == one["baselines"]
    assert two["ridge"] == pytest.approx(one["ridge"]) if one["ridge"] else two["ridge"] is None

"""Two processes on one machine: the numbers of one, one run directory."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parents[1]
QUICK = ["--data.resize", "32", "--model.encoder.num_features", "16", "--data.steps_per_epoch", "10"]
QUICK += ["--trainer.log_every_n_steps", "5", "--trainer.accelerator", "cpu", "--wandb.enabled", "false"]
DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
SIGNALS = ["--trainer.devices", "2", "--trainer.strategy", "signals"]
THREE = ["--data.paths", "[samples://astronaut, samples://coffee, samples://chelsea]"]

pytestmark = pytest.mark.slow


def run(folder: Path, recipe: str, *arguments: str) -> subprocess.CompletedProcess:
    """Runs the command in a process of its own: the second process runs the same command line again."""
    folder.mkdir(exist_ok=True)
    config = str(ROOT / "configs/image" / recipe)
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", config, *QUICK, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def fit(folder: Path, recipe: str, *arguments: str) -> dict:
    done = run(folder, recipe, *arguments)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("runs/*/*/metrics.json")
    return json.loads(found.read_text())


def checkpoint_in(folder: Path) -> Path:
    (found,) = folder.glob("runs/*/*/checkpoints/last.ckpt")
    return found


def assert_same_state(one: Path, two: Path, tolerance: float) -> None:
    states = [torch.load(checkpoint_in(folder), weights_only=True)["state_dict"] for folder in (one, two)]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=0, atol=tolerance * float(value.abs().max()))


def test_two_processes_solve_what_one_does(tmp_path):
    one = fit(tmp_path / "one", "closed_form.yaml")
    two = fit(tmp_path / "two", "closed_form.yaml", *DDP)
    streamed = fit(tmp_path / "streamed", "closed_form.yaml", *DDP, "--data.in_memory", "false", "--data.batch", "blocks")
    for other, tolerance in ((two, 1e-4), (streamed, 1e-3)):
        for key in ("test/psnr", "train/psnr"):
            assert other[key] == pytest.approx(one[key], abs=tolerance)
        assert other["ridge"] == pytest.approx(one["ridge"])
        assert other["data_fingerprint"] == one["data_fingerprint"]
    assert two["baselines"] == one["baselines"]


def test_two_processes_solve_scattered_points_as_one_does(tmp_path):
    one, two = fit(tmp_path / "one", "inpaint.yaml"), fit(tmp_path / "two", "inpaint.yaml", *DDP)
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-4)
    assert two["ridge"] == pytest.approx(one["ridge"])
    assert two["baselines"] == one["baselines"]


POINTS = ["--data.batch", "points", "--data.batch_size", "77", "--data.steps_per_epoch", "null"]
DATA = {
    "rows of an odd grid": ["--data.resize", "[33, 31]"],
    "points": POINTS,
    "points from the file": ["--data.in_memory", "false", *POINTS],
}


@pytest.mark.parametrize("data", DATA)
def test_processes_share_every_kind_of_batch(tmp_path, data):
    arguments = [*DATA[data], "--trainer.max_steps", "21"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments)
    two = fit(tmp_path / "two", "demo.yaml", *arguments, *DDP)
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-4)
    assert two["train/psnr"] == pytest.approx(one["train/psnr"], abs=1e-4)
    assert_same_state(tmp_path / "one", tmp_path / "two", 1e-4)
    if "file" in data:
        arrays = [np.load(next((tmp_path / n).glob("runs/*/*/reconstructions/astronaut.npy"))) for n in ("one", "two")]
        np.testing.assert_allclose(arrays[0].astype(int), arrays[1].astype(int), atol=1)
        assert arrays[0].dtype == np.uint8


def test_every_strategy_passes_thresholds_at_the_same_step(tmp_path):
    """Gradients are clipped by the norm over all signals, whoever holds them."""
    arguments = [*THREE, "--trainer.max_steps", "21", "--trainer.gradient_clip_val", "0.5"]
    arguments += ["--trainer.callbacks+=TimeToPSNR", "--trainer.callbacks.thresholds", "[12, 15, 90]"]
    arguments += ["--trainer.callbacks.every_n_steps", "1"]
    results = [
        fit(tmp_path / name, "demo.yaml", *arguments, *devices)
        for name, devices in (("one", []), ("ddp", DDP), ("signals", SIGNALS))
    ]
    reached = [
        {name: entry and entry["steps"] for name, entry in result["time_to_psnr"]["train"].items()} for result in results
    ]
    assert reached[0]["12dB"] is not None
    assert reached[0]["90dB"] is None
    assert reached[0] == reached[1] == reached[2]
    for name, result in zip(("ddp", "signals"), results[1:], strict=True):
        assert result["test/psnr_per_signal"] == pytest.approx(results[0]["test/psnr_per_signal"], abs=1e-4)
        assert_same_state(tmp_path / "one", tmp_path / name, 1e-5)
    moments = [
        torch.load(checkpoint_in(tmp_path / name), weights_only=True)["optimizer_states"][0]["state"][0]["exp_avg"]
        for name in ("one", "signals")
    ]
    torch.testing.assert_close(*moments, rtol=0, atol=1e-5 * float(moments[0].abs().max()))


OWN = {
    "points": ("random_points.yaml", ["--trainer.max_steps", "21", "--data.batch", "points", "--data.batch_size", "50"]),
    "solved": ("closed_form.yaml", []),
    "points solved": ("inpaint.yaml", []),
}


@pytest.mark.parametrize("case", OWN)
def test_each_process_fits_its_own_signals(tmp_path, case):
    recipe, arguments = OWN[case]
    one = fit(tmp_path / "one", recipe, *THREE, *arguments)
    two = fit(tmp_path / "two", recipe, *THREE, *arguments, *SIGNALS)
    # conjugate gradients stop within their tolerance, which depends on what is solved together
    exact = case != "points solved"
    assert two["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4 if exact else 0.05)
    assert two["ridge"] == one["ridge"]
    if exact:
        assert_same_state(tmp_path / "one", tmp_path / "two", 1e-5)


def test_a_checkpoint_does_not_tell_how_many_processes_wrote_it(tmp_path):
    one = fit(tmp_path / "one", "demo.yaml", *THREE, "--trainer.max_steps", "25")
    fit(tmp_path / "two", "demo.yaml", *THREE, "--trainer.max_steps", "15", *SIGNALS)
    content = checkpoint_in(tmp_path / "two").read_bytes()
    for name, devices in (("alone", []), ("three", ["--trainer.devices", "3", "--trainer.strategy", "signals"])):
        copy = tmp_path / name / "checkpoints/last.ckpt"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(content)
        done = run(tmp_path, "demo.yaml", *THREE, "--trainer.max_steps", "25", "--ckpt_path", str(copy), *devices)
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / name / "metrics.json").read_text())
        assert found["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)


def test_more_processes_than_signals_are_refused(tmp_path):
    done = run(tmp_path, "demo.yaml", *SIGNALS)
    assert done.returncode != 0
    assert "there are 1 for 2 processes" in done.stderr

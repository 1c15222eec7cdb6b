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


def fit(folder: Path, recipe: str, *arguments: str, run: Path | None = None) -> dict:
    """Runs the command in a process of its own: the second process runs the same command line again."""
    folder.mkdir()
    config = str(ROOT / "configs/image" / recipe)
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", config, *QUICK, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    if run is None:
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


DATA = {
    "rows of an odd grid": ["--data.resize", "[33, 31]"],
    "points": ["--data.batch", "points", "--data.batch_size", "77", "--data.steps_per_epoch", "null"],
    "points from the file": [
        "--data.in_memory", "false", "--data.batch", "points", "--data.batch_size", "77", "--data.steps_per_epoch", "null",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("data", DATA)
def test_processes_share_every_kind_of_batch(tmp_path, data):
    arguments = [*DATA[data], "--trainer.max_steps", "21"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments)
    two = fit(tmp_path / "two", "demo.yaml", *arguments, "--trainer.devices", "2", "--trainer.strategy", "ddp")
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-4)
    assert two["train/psnr"] == pytest.approx(one["train/psnr"], abs=1e-4)
    weights = [
        torch.load(next((tmp_path / n).glob("runs/*/*/checkpoints/last.ckpt")), weights_only=True)["state_dict"]["weight"]
        for n in ("one", "two")
    ]
    torch.testing.assert_close(*weights, rtol=0, atol=1e-4 * float(weights[0].abs().max()))
    if "file" in data:
        arrays = [np.load(next((tmp_path / n).glob("runs/*/*/reconstructions/astronaut.npy"))) for n in ("one", "two")]
        np.testing.assert_allclose(arrays[0].astype(int), arrays[1].astype(int), atol=1)
        assert arrays[0].dtype == np.uint8


@pytest.mark.slow
def test_processes_solve_from_the_file_together(tmp_path):
    one = fit(tmp_path / "one", "closed_form.yaml")
    arguments = ["--data.in_memory", "false", "--data.batch", "blocks"]
    two = fit(tmp_path / "two", "closed_form.yaml", *arguments, "--trainer.devices", "2", "--trainer.strategy", "ddp")
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-3)
    assert two["ridge"] == pytest.approx(one["ridge"])
    assert two["data_fingerprint"] == one["data_fingerprint"]


@pytest.mark.slow
def test_several_steps_on_a_batch_and_when_thresholds_are_passed(tmp_path):
    """Steps taken by the module are shared by processes too, also when gradients are clipped."""
    arguments = [*THREE, "--model.steps_per_batch", "7", "--trainer.max_steps", "30", "--trainer.gradient_clip_val", "0.5"]
    arguments += ["--trainer.callbacks+=TimeToPSNR", "--trainer.callbacks.thresholds", "[12, 15, 90]"]
    arguments += ["--trainer.callbacks.every_n_steps", "1"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments)
    alone = fit(tmp_path / "alone", "demo.yaml", *arguments, "--model.steps_per_batch", "1")
    shared, apart = (
        fit(tmp_path / name, "demo.yaml", *arguments, "--trainer.devices", "2", "--trainer.strategy", name)
        for name in ("ddp", "signals")
    )
    for result in (alone, shared, apart):
        assert result["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)
    reached = [
        {name: entry and entry["steps"] for name, entry in result["time_to_psnr"]["train"].items()}
        for result in (one, shared, apart, alone)
    ]
    assert reached[0]["12dB"] is not None
    assert reached[0]["90dB"] is None
    assert reached[0]["12dB"] % 7 in (0, 5), "looked at after a batch, which ends where something is logged"
    assert reached[0] == reached[1] == reached[2]
    assert reached[3]["12dB"] <= reached[0]["12dB"]


THREE = ["--data.paths", "[samples://astronaut, samples://coffee, samples://chelsea]"]
ALONE = {
    "descent": ("demo.yaml", ["--trainer.max_steps", "21"]),
    "points": ("random_points.yaml", ["--trainer.max_steps", "21", "--data.batch", "points", "--data.batch_size", "50"]),
    "solved": ("closed_form.yaml", []),
    "points solved": ("inpaint.yaml", []),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", ALONE)
def test_each_process_fits_its_own_signals(tmp_path, case):
    recipe, arguments = ALONE[case]
    one = fit(tmp_path / "one", recipe, *THREE, *arguments)
    two = fit(tmp_path / "two", recipe, *THREE, *arguments, "--trainer.devices", "2", "--trainer.strategy", "signals")
    # conjugate gradients stop within their tolerance, which depends on what is solved together
    exact = case != "points solved"
    assert two["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4 if exact else 0.05)
    assert two["ridge"] == one["ridge"]
    if not exact:
        return
    states = [
        torch.load(next((tmp_path / n).glob("runs/*/*/checkpoints/last.ckpt")), weights_only=True) for n in ("one", "two")
    ]
    for name, value in states[0]["state_dict"].items():
        atol = 1e-5 * float(value.abs().max())
        torch.testing.assert_close(states[1]["state_dict"][name], value, rtol=0, atol=atol)
    if states[0]["optimizer_states"] and states[0]["optimizer_states"][0]["state"]:
        moments = [state["optimizer_states"][0]["state"][0]["exp_avg"] for state in states]
        torch.testing.assert_close(*moments, rtol=0, atol=1e-5 * float(moments[0].abs().max()))


@pytest.mark.slow
def test_a_fit_of_own_signals_goes_on_alone(tmp_path):
    """A checkpoint does not tell how many processes wrote it."""
    one = fit(tmp_path / "one", "demo.yaml", *THREE, "--trainer.max_steps", "25")
    fit(tmp_path / "two", "demo.yaml", *THREE, "--trainer.max_steps", "15", "--trainer.devices", "2",
        "--trainer.strategy", "signals")  # fmt: skip
    checkpoint = str(next((tmp_path / "two").glob("runs/*/*/checkpoints/last.ckpt")))
    for devices in ([], ["--trainer.devices", "3", "--trainer.strategy", "signals"]):
        copy = tmp_path / f"copy{len(devices)}" / "checkpoints" / "last.ckpt"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(Path(checkpoint).read_bytes())
        arguments = ["--trainer.max_steps", "25", "--ckpt_path", str(copy), *devices]
        fit(tmp_path / f"rest{len(devices)}", "demo.yaml", *THREE, *arguments, run=copy.parents[1])
        found = json.loads((copy.parents[1] / "metrics.json").read_text())
        assert found["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)


@pytest.mark.slow
def test_more_processes_than_signals_are_refused(tmp_path):
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", str(ROOT / "configs/image/demo.yaml"), *QUICK]
    command += ["--trainer.devices", "2", "--trainer.strategy", "signals"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert "there are 1 for 2 processes" in done.stderr

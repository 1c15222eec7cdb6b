"""Two processes on one machine: the numbers of one, one run directory."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from stopping import checkpoint, fit, metrics, only_run, run_fit

DDP = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
SIGNALS = ["--trainer.devices", "2", "--trainer.strategy", "independent_signals"]
THREE = ["--data.paths", "[samples://astronaut, samples://coffee, samples://chelsea]", "--data.resize", "[32, 32]"]
EPOCHS = ["--data.batching.steps_per_epoch", "10"]

pytestmark = pytest.mark.slow


def assert_same_state(one: Path, two: Path, tolerance: float) -> None:
    states = [checkpoint(only_run(folder))["state_dict"] for folder in (one, two)]
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=0, atol=tolerance * float(value.abs().max()))


STREAMED = ["--data.storage.in_memory", "false", "--data.batching.kind", "blocks"]


@pytest.mark.parametrize(("more", "tolerance"), [([], 1e-4), (STREAMED, 1e-3)], ids=["memory", "streamed"])
def test_two_processes_solve_what_one_does(tmp_path, more, tolerance):
    assert_two_processes_solve("closed_form.yaml", tmp_path, more, tolerance)


def assert_two_processes_solve(recipe: str, folder: Path, more: list[str], tolerance: float) -> None:
    one, two = fit(folder / "one", recipe), fit(folder / "two", recipe, *DDP, *more)
    for key in ("test/psnr", "train/psnr"):
        assert two[key] == pytest.approx(one[key], abs=tolerance)
    assert two["ridge"] == pytest.approx(one["ridge"])
    assert two["data_fingerprint"] == one["data_fingerprint"]
    assert more or two["baselines"] == one["baselines"]


@pytest.mark.parametrize("streamed", [False, True], ids=["rows of an odd grid", "points from the file"])
def test_processes_share_every_kind_of_batch(tmp_path, streamed):
    points = ["--data.storage.in_memory", "false", "--data.batching.kind", "points", "--data.batching.size", "77"]
    arguments = [*(points if streamed else ["--data.resize", "[33, 31]", *EPOCHS]), "--trainer.max_steps", "21"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments)
    two = fit(tmp_path / "two", "demo.yaml", *arguments, *DDP)
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-4)
    assert two["train/psnr"] == pytest.approx(one["train/psnr"], abs=1e-4)
    assert_same_state(tmp_path / "one", tmp_path / "two", 1e-4)
    if streamed:
        arrays = [np.load(next((tmp_path / n).glob("runs/*/*/reconstructions/astronaut.npy"))) for n in ("one", "two")]
        np.testing.assert_allclose(arrays[0].astype(int), arrays[1].astype(int), atol=1)
        assert arrays[0].dtype == np.uint8


def test_every_strategy_logs_the_same_scores(tmp_path):
    """Gradients are clipped by the norm over all signals, whoever holds them."""
    arguments = [*THREE, *EPOCHS, "--trainer.max_steps", "21", "--trainer.gradient_clip_val", "0.5"]
    arguments += ["--trainer.log_every_n_steps", "1"]
    cases = {"one": [], "ddp": DDP, "signals": SIGNALS}
    results = {name: fit(tmp_path / name, "demo.yaml", *arguments, *devices) for name, devices in cases.items()}
    logged = {}
    for name in cases:
        with (only_run(tmp_path / name) / "logs/version_0/metrics.csv").open() as file:
            logged[name] = [float(row["train/psnr"]) for row in csv.DictReader(file) if row["train/loss"]]
    assert len(logged["one"]) == 21
    for name in ("ddp", "signals"):
        assert logged[name] == pytest.approx(logged["one"], abs=1e-4)
        scores = [results[key]["test/psnr_per_signal"] for key in (name, "one")]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
        assert_same_state(tmp_path / "one", tmp_path / name, 1e-5)
    moments = [
        checkpoint(only_run(tmp_path / name))["optimizer_states"][0]["state"][0]["momentum_buffer"]
        for name in ("one", "signals")
    ]
    torch.testing.assert_close(*moments, rtol=0, atol=1e-5 * float(moments[0].abs().max()))


def test_each_process_fits_its_own_signals(tmp_path):
    arguments = [
        *THREE,
        *EPOCHS,
        "--trainer.max_steps",
        "21",
        "--data.batching.kind",
        "points",
        "--data.batching.size",
        "50",
    ]
    one = fit(tmp_path / "one", "random_points.yaml", *arguments)
    done = run_fit(tmp_path / "two", "random_points.yaml", *arguments, *SIGNALS)
    assert done.returncode == 0, done.stderr
    assert ", processes " in done.stdout, "seconds in which they start are no reading"
    scores = metrics(only_run(tmp_path / "two"))["test/psnr_per_signal"]
    assert scores == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)
    assert_same_state(tmp_path / "one", tmp_path / "two", 1e-5)


def test_a_checkpoint_does_not_tell_how_many_processes_wrote_it(tmp_path):
    arguments = [*THREE, *EPOCHS, "--trainer.max_steps"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments, "25")
    fit(tmp_path / "two", "demo.yaml", *arguments, "15", *SIGNALS)
    content = (only_run(tmp_path / "two") / "checkpoints/last.ckpt").read_bytes()
    copy = tmp_path / "alone/checkpoints/last.ckpt"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(content)
    done = run_fit(tmp_path, "demo.yaml", *arguments, "25", "--ckpt_path", str(copy))
    assert done.returncode == 0, done.stderr
    found = metrics(tmp_path / "alone")
    assert found["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)


def test_more_processes_than_signals_are_refused(tmp_path):
    done = run_fit(tmp_path, "demo.yaml", *SIGNALS)
    assert done.returncode != 0
    assert "there are 1 for 2 processes" in done.stderr


LEARNED = [*THREE, *EPOCHS, "--model.encoder", "learned_encoders.LearnedGaussian", "--trainer.max_steps", "21"]


def test_learned_encoders_are_those_of_one_process(tmp_path):
    one = fit(tmp_path / "one", "demo.yaml", *LEARNED)
    for name, devices in {"ddp": DDP, "signals": SIGNALS}.items():
        other = fit(tmp_path / name, "demo.yaml", *LEARNED, *devices)
        assert other["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-4)
        assert_same_state(tmp_path / "one", tmp_path / name, 1e-5)
        assert np.allclose(other["encoder"]["sigma"], one["encoder"]["sigma"], rtol=1e-6)
    assert len({*np.ravel(one["encoder"]["sigma"]).tolist()}) == 3, "each signal has learned its own"


def test_scaled_targets_are_those_of_one_process(tmp_path):
    sines = ["--model", "SimpleMLP", "--model.activation", "sine", "--model.hidden_size", "8", "--trainer.max_steps", "21"]
    arguments = [*THREE, *EPOCHS, *sines, "--trainer.precision", "64-true"]
    one = fit(tmp_path / "one", "demo.yaml", *arguments)
    for name, devices in {"ddp": DDP, "signals": SIGNALS}.items():
        other = fit(tmp_path / name, "demo.yaml", *arguments, *devices)
        assert other["test/psnr_per_signal"] == pytest.approx(one["test/psnr_per_signal"], abs=1e-6)
        assert_same_state(tmp_path / "one", tmp_path / name, 1e-7)


def test_a_warm_head_in_float64_is_that_of_one_process(tmp_path):
    """In float32 the residual of an exact start is rounding, which Adam scales to steps of its full rate."""
    arguments = [*EPOCHS, "--trainer.max_steps", "21", "--trainer.precision", "64-true"]
    one = fit(tmp_path / "one", "warm_head.yaml", *arguments)
    two = fit(tmp_path / "two", "warm_head.yaml", *arguments, *DDP)
    assert two["test/psnr"] == pytest.approx(one["test/psnr"], abs=1e-9)
    assert_same_state(tmp_path / "one", tmp_path / "two", 1e-9)


@pytest.mark.parametrize("devices", [DDP, SIGNALS], ids=["ddp", "signals"])
def test_processes_stop_together_where_one_has_weights_that_are_not_finite(tmp_path, devices):
    arguments = [*THREE, *EPOCHS, "--trainer.max_steps", "40", "--trainer.log_every_n_steps", "5"]
    spoil = ["--trainer.callbacks+", "stopping.SpoilAt", "--trainer.callbacks.step", "23", "--trainer.callbacks.rank", "1"]
    done = run_fit(tmp_path, "demo.yaml", *arguments, *spoil, *devices)
    assert done.returncode == 2
    assert done.stderr.count("the weights are not finite after step 25, and were after step 20") == 2
    state = checkpoint(only_run(tmp_path))
    assert state["global_step"] == 20
    assert all(value.isfinite().all() for value in state["state_dict"].values())


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_notebook"])
def test_strategies_whose_processes_keep_the_results_are_refused_before_they_start(tmp_path, strategy):
    done = run_fit(tmp_path, "demo.yaml", *EPOCHS, "--trainer.devices=2", f"--trainer.strategy={strategy}")
    assert done.returncode == 2
    assert "set --trainer.strategy ddp" in done.stderr
    assert not (tmp_path / "runs").exists()

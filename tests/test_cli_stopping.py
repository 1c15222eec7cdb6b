"""Fits that are killed, interrupted, and resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
QUICK = ["--data.resize", "32", "--model.encoder.num_features", "16", "--trainer.log_every_n_steps", "5"]
QUICK += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]
TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]

pytestmark = pytest.mark.slow


def fit(folder: Path, *arguments: str, recipe: str = "image/demo.yaml", wandb: bool = False) -> subprocess.CompletedProcess:
    """Runs the command in a process of its own."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pe_lightning", "fit", "--config", str(ROOT / "configs" / recipe), *QUICK]
    command += ["--wandb.enabled", str(wandb).lower(), *arguments]
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "PYTHONPATH": path}
    )


def stopped(step: int, signum: int, rank: int = -1) -> list[str]:
    return [
        "--trainer.callbacks+", "stopping.SignalAt", "--trainer.callbacks.step", str(step),
        "--trainer.callbacks.signum", str(signum), "--trainer.callbacks.rank", str(rank),
    ]  # fmt: skip


def only_run(folder: Path) -> Path:
    (run,) = folder.glob("runs/*/*")
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


FULL = ["--data.steps_per_epoch", "10"]
CASES = {
    "random, scheduled": [
        "--data.sampling", "random", "--data.batch", "points", "--data.batch_size", "50", "--data.steps_per_epoch", "7",
        "--model.lr_scheduler", "CosineAnnealingLR", "--model.lr_scheduler.T_max", "40",
    ],
    "mlp": ["--data.batch", "points", "--data.batch_size", "60"],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_killed_fit_is_resumed_to_the_weights_of_an_uninterrupted_one(tmp_path, case):
    recipe = "image/simple_mlp.yaml" if case == "mlp" else "image/demo.yaml"
    arguments = [*CASES[case], "--trainer.max_steps", "33"]
    if case == "mlp":
        arguments += ["--model.width", "16"]
    whole = fit(tmp_path / "whole", *arguments, recipe=recipe)
    assert whole.returncode == 0, whole.stderr
    killed = fit(tmp_path / "killed", *arguments, *stopped(27, 9), recipe=recipe)
    assert killed.returncode == -9
    run = only_run(tmp_path / "killed")
    assert not (run / "metrics.json").exists()
    checkpoint = str(run / "checkpoints/last.ckpt")
    resumed = fit(tmp_path / "killed", *arguments, "--ckpt_path", checkpoint, recipe=recipe)
    assert resumed.returncode == 0, resumed.stderr
    assert only_run(tmp_path / "killed") == run, "a resumed fit keeps its directory"
    expected = weights(only_run(tmp_path / "whole"))
    for name, found in weights(run).items():
        assert found.equal(expected[name]), name
    one, two = (json.loads((r / "metrics.json").read_text()) for r in (only_run(tmp_path / "whole"), run))
    assert one["test/psnr"] == two["test/psnr"]
    assert one["steps"] == two["steps"] == 33


def test_a_fit_that_ended_within_an_epoch_can_go_on(tmp_path):
    whole = fit(tmp_path / "whole", *FULL, "--trainer.max_steps", "36")
    part = fit(tmp_path / "part", *FULL, "--trainer.max_steps", "23", wandb=True)
    assert whole.returncode == part.returncode == 0, whole.stderr + part.stderr
    run = only_run(tmp_path / "part")
    first = json.loads((run / "metrics.json").read_text())
    checkpoint = str(run / "checkpoints/last.ckpt")
    rest = fit(tmp_path / "part", *FULL, "--trainer.max_steps", "36", "--ckpt_path", checkpoint, wandb=True)
    assert rest.returncode == 0, rest.stderr
    assert weights(run)["networks.network.weight"].equal(weights(only_run(tmp_path / "whole"))["networks.network.weight"])
    # the seconds of both parts, one W&B run in two offline parts
    assert json.loads((run / "metrics.json").read_text())["fit_seconds"] > first["fit_seconds"]
    segments = [path.name.rpartition("-")[2] for path in (run / "wandb").glob("offline-run-*")]
    assert segments == [(run / "wandb/run-id.txt").read_text().strip()] * 2


@pytest.mark.parametrize("devices", [[], TWO], ids=["one", "two"])
def test_an_interrupt_keeps_what_there_is(tmp_path, devices):
    done = fit(tmp_path, "--trainer.max_steps", "1000000", *stopped(60, 2, rank=0), *devices)
    assert done.returncode == 130, done.stderr
    run = only_run(tmp_path)
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == (100 if devices else 60)
    assert metrics["test/psnr"] > 10
    assert torch.load(run / "checkpoints/last.ckpt", weights_only=True)["global_step"] == metrics["steps"]
    assert list((run / "reconstructions").iterdir())


def test_a_killed_process_ends_the_others_with_an_error(tmp_path):
    done = fit(tmp_path, "--trainer.max_steps", "1000000", *stopped(60, 9, rank=1), *TWO)
    assert done.returncode not in (0, 130)
    assert not (only_run(tmp_path) / "metrics.json").exists()

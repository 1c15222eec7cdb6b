"""Callbacks from YAML and the command line; early stopping and time limits."""

from pathlib import Path

import pytest
import torch
import yaml
from commands import DEMO, NO_WANDB, error_of, fit, metrics

from pe_lightning.__main__ import main

DEMO = [*DEMO, *NO_WANDB]

pytestmark = pytest.mark.usefixtures("empty_folder")


def configured(run: Path) -> list[tuple[str, dict]]:
    """Class names and arguments of the callbacks in ``config.yaml``."""
    given = yaml.safe_load((run / "config.yaml").read_text())["trainer"]["callbacks"]
    entries = [{"class_path": one} if isinstance(one, str) else one for one in given]
    return [(entry["class_path"].rpartition(".")[2], entry.get("init_args", {})) for entry in entries]


def test_all_of_them_by_name_and_in_yaml_and_again_from_the_saved_configuration():
    rank = "pe_papers.analysis.StableRank"
    Path("one.yaml").write_text(f"trainer: {{callbacks: [{{class_path: {rank}, init_args: {{every_n_steps: 10}}}}]}}")
    arguments = ["--config", "one.yaml", "--trainer.callbacks+", "Snapshots", "--trainer.callbacks.every_n_steps", "10"]
    run = fit(*DEMO, *arguments, "--trainer.callbacks+=MatmulPrecision")
    assert (run / "snapshots/astronaut/20.png").is_file()
    assert [name for name, _ in configured(run)] == ["StableRank", "Snapshots", "MatmulPrecision", "RunRecorder"]
    assert dict(configured(run))["StableRank"] == {"every_n_steps": 10, "points": 2048}
    assert metrics(run)["stable_rank"]["steps"] == [0, 10, 20]
    again = fit("--config", str(run / "config.yaml"))
    assert (again / "snapshots/astronaut/20.png").read_bytes() == (run / "snapshots/astronaut/20.png").read_bytes()
    assert configured(again) == configured(run)
    assert main(["test", "--ckpt_path", str(run / "checkpoints/last.ckpt")]) == 0, "callbacks of a fit do not disturb"


def test_bad_arguments_are_refused_before_anything_is_written(capsys):
    bad = ["--trainer.callbacks+", "Snapshots", "--trainer.callbacks.every_n_steps", "0"]
    assert "Snapshots: every_n_steps must be an integer >= 1" in error_of(capsys, ["fit", *DEMO, *bad])
    assert not Path("runs").exists()


EARLY = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]


def complete(run: Path) -> int:
    """Asserts that a fit that ended early has left everything; returns its steps."""
    found = metrics(run)
    assert 5 < found["test/psnr"] < 40
    assert found["fit_seconds"] > 0
    assert (run / "reconstructions/astronaut.png").is_file()
    steps = found["steps"]
    assert torch.load(run / "checkpoints/last.ckpt", weights_only=True)["global_step"] == steps
    return steps


def test_early_stopping_at_a_psnr():
    more = ["--trainer.callbacks.mode", "max", "--trainer.callbacks.stopping_threshold", "11"]
    run = fit(*DEMO, "--trainer.max_steps", "200", *EARLY, *more)
    steps = complete(run)
    assert 10 <= steps < 200
    assert steps % 10 == 0, "at a validation"
    assert metrics(run)["test/psnr"] > 10


def test_a_time_limit():
    assert 0 < complete(fit(*DEMO, "--trainer.max_steps", "1000000", "--trainer.max_time", "00:00:00:01")) < 1000000

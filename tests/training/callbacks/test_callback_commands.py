"""Callbacks from YAML and the command line; early stopping and time limits."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from commands import DEMO, NO_WANDB, error_of, fit, metrics

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.parser import parse, plain_values

DEMO = [*DEMO, *NO_WANDB]

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_bad_arguments_are_refused_before_anything_is_written(capsys):
    bad = ["--trainer.callbacks+", "Snapshots", "--trainer.callbacks.every_n_steps", "0"]
    assert "Snapshots: every_n_steps must be an integer >= 1" in error_of(capsys, ["fit", *DEMO, *bad])
    assert not Path("runs").exists()


def test_defaults_without_a_text_are_written_by_name_and_read_back():
    timer = ["--trainer.callbacks+", "Timer", "--trainer.callbacks.duration", "00:01:00:00"]
    swa = ["StochasticWeightAveraging", "--trainer.callbacks.swa_lrs", "0.01", "--trainer.callbacks.swa_epoch_start", "5"]
    given = ["--config=image/demo", *timer, "--trainer.callbacks+", *swa]
    tree = plain_values("fit", parse("fit", rewrite("fit", given)))
    assert tree["trainer"]["callbacks"][0]["init_args"]["interval"] == "step"
    assert tree["trainer"]["callbacks"][1]["init_args"]["device"] == "cpu"
    assert plain_values("fit", parse("fit", yaml.safe_load(yaml.safe_dump(tree)))) == tree


def test_callbacks_that_need_a_logger_a_bar_or_a_rate_find_theirs(capsys):
    finder = ["--trainer.callbacks+", "LearningRateFinder", "--trainer.callbacks.num_training_steps", "30"]
    bar = ["--trainer.callbacks+", "TQDMProgressBar", "--trainer.enable_progress_bar", "true"]
    run = fit(*DEMO, *finder, *bar, "--trainer.callbacks+", "DeviceStatsMonitor")
    found = metrics(run)["optimizer"]["lr"]
    assert found != metrics(fit(*DEMO))["optimizer"]["lr"]
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)
    assert state["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(found / (1 + 20 / 500))
    columns = (run / "logs/version_0/metrics.csv").read_text().splitlines()[0]
    assert "DeviceStatsMonitor" in columns


def test_a_fit_without_anything_that_costs_time():
    bare = ["--trainer.barebones=true", "--trainer.log_every_n_steps=0", "--trainer.enable_progress_bar=null"]
    run = fit(*DEMO, *bare)
    assert metrics(run)["steps"] == 20
    assert not (run / "logs").exists()


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
    early = ["--trainer.callbacks+", "EarlyStopping", "--trainer.callbacks.monitor", "val/psnr"]
    early += ["--trainer.callbacks.mode", "max", "--trainer.callbacks.stopping_threshold", "11"]
    run = fit(*DEMO, "--trainer.max_steps", "200", *early)
    steps = complete(run)
    assert 10 <= steps < 200
    assert steps % 10 == 0, "at a validation"
    assert metrics(run)["test/psnr"] > 10


def test_a_time_limit(monkeypatch):
    seconds = itertools.count()  # a second passes between two looks at the clock
    monkeypatch.setattr("lightning.pytorch.callbacks.timer.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert 0 < complete(fit(*DEMO, "--trainer.max_steps", "40", "--trainer.max_time", "00:00:00:10")) < 40

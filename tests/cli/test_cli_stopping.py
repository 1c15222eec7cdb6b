"""Fits that are killed, interrupted, and resumed."""

import signal

import pytest
from stopping import checkpoint, fit, metrics, only_run, run_fit, stopped

TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]

pytestmark = pytest.mark.slow


def test_a_killed_fit_is_resumed_to_the_weights_of_an_uninterrupted_one(tmp_path):
    recipe, batching = "demo.yaml", "{kind: points, size: 50, steps_per_epoch: 7}"
    arguments = ["--data.sampling", "random", "--data.batching", batching, "--trainer.max_steps", "33"]
    arguments += ["--model.lr_scheduler", "CosineAnnealingLR", "--model.lr_scheduler.T_max", "40"]
    whole = fit(tmp_path / "whole", recipe, *arguments)
    assert run_fit(tmp_path / "killed", recipe, *arguments, *stopped(27, 9)).returncode == -9
    run = only_run(tmp_path / "killed")
    assert not (run / "metrics.json").exists()
    resumed = fit(tmp_path / "killed", recipe, *arguments, "--ckpt_path", str(run / "checkpoints/last.ckpt"))
    expected = checkpoint(only_run(tmp_path / "whole"))["state_dict"]
    for name, found in checkpoint(run)["state_dict"].items():
        assert found.equal(expected[name]), name
    assert whole["test/psnr"] == resumed["test/psnr"]
    assert whole["steps"] == resumed["steps"] == 33


@pytest.mark.parametrize(
    ("signum", "devices"),
    [(2, []), (15, []), (1, []), *(pytest.param(signum, TWO, marks=pytest.mark.stress) for signum in (2, 15))],
)
def test_a_signal_stops_after_a_step_with_all_results_and_the_fit_can_be_resumed(tmp_path, signum, devices):
    steps = ["--data.batching.steps_per_epoch", "50", "--trainer.max_steps"]
    ended = [*stopped(60, signum, rank=0), *devices]
    if signum == signal.SIGHUP:
        signal.signal(signum, signal.SIG_DFL)  # under nohup it is ignored, in processes that are started too
    done = run_fit(tmp_path / "s", "demo.yaml", *steps, "150", *ended, launched=bool(devices), wandb=signum == 15)
    assert done.returncode == 128 + signum, done.stderr
    run = only_run(tmp_path / "s")
    found = metrics(run)
    assert found["steps"] == (100 if devices else 60)
    assert found["test/psnr"] > 10
    assert checkpoint(run)["global_step"] == found["steps"]
    assert list((run / "reconstructions").iterdir())
    if not devices:
        fit(tmp_path / "s", "demo.yaml", *steps, "150", "--ckpt_path", str(run / "checkpoints/last.ckpt"))
        fit(tmp_path / "whole", "demo.yaml", *steps, "150")
        expected = checkpoint(only_run(tmp_path / "whole"))["state_dict"]
        assert all(value.equal(expected[name]) for name, value in checkpoint(run)["state_dict"].items())


@pytest.mark.stress
def test_a_killed_process_ends_the_others_with_an_error(tmp_path):
    done = run_fit(tmp_path, "demo.yaml", "--trainer.max_steps", "1000000", *stopped(60, 9, rank=1), *TWO, launched=True)
    assert done.returncode not in (0, 130)
    assert not (only_run(tmp_path) / "metrics.json").exists()

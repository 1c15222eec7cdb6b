"""Two processes: the numbers of one."""

import pytest
import torch
from cli.test_cli_devices import DDP, SIGNALS, THREE, assert_two_processes_solve
from stopping import checkpoint, fit, only_run

pytestmark = pytest.mark.slow


def test_two_processes_solve_what_one_does(tmp_path):
    assert_two_processes_solve("adaptive.yaml", tmp_path, [], 1e-4)


@pytest.mark.parametrize("devices", [DDP, SIGNALS], ids=["ddp", "signals"])
def test_two_processes_keep_the_numbers_that_one_does(tmp_path, devices):
    auto = ["--model.num_coefficients", "auto"]
    one = fit(tmp_path / "one", "sparse.yaml", *THREE, *auto)
    two = fit(tmp_path / "two", "sparse.yaml", *THREE, *auto, *devices)
    alone, together = (metrics["solution"]["sparse"] for metrics in (one, two))
    assert together["noise"] == pytest.approx(alone["noise"])
    assert together["denoised"] == alone["denoised"] == [True] * 3
    assert two["train/psnr_per_signal"] == pytest.approx(one["train/psnr_per_signal"], abs=1e-3)
    assert two["num_params"] == one["num_params"]
    kept = [checkpoint(only_run(tmp_path / name))["pe_lightning/sparse"] for name in ("one", "two")]
    assert [len(signals) for signals in kept] == [3, 3]
    for first, second in zip(*kept, strict=True):
        torch.testing.assert_close(second["values"].abs().sum(), first["values"].abs().sum(), rtol=1e-4, atol=0)

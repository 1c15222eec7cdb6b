"""Peak memory of processes."""

import csv
import subprocess
import sys

import pytest
import torch
from small_fits import signals

from pe_lightning.callbacks import PeakMemory
from pe_lightning.callbacks.memory import peak_resident_bytes

MIB = 2**20


def test_memory_that_was_used_and_given_back_counts():
    before = peak_resident_bytes()
    torch.ones(before // 4 + 64 * MIB)  # floats: more than all that was ever used
    assert peak_resident_bytes() >= before + 4 * 60 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's VmHWM")
def test_a_process_does_not_inherit_the_peak_of_the_one_that_started_it():
    code = "from pe_lightning.callbacks.memory import peak_resident_bytes as peak; print(peak())"
    own = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    torch.ones(own // 2)  # twice as much
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert peak_resident_bytes() > 2 * own
    assert child < 1.3 * own


def test_it_is_logged_and_reported(fit):
    callback = PeakMemory()
    assert callback.report() == {}
    run = fit("complex", signals(1, 16, 12), [callback])
    found = callback.report()["peak_memory"]
    assert found["resident_bytes_per_process"] == [found["resident_bytes"]]
    assert 50 * MIB < found["resident_bytes"] <= peak_resident_bytes()
    assert found["device_bytes"] is None
    assert found["device_bytes_per_process"] is None
    with (run.folder / "logs/version_0/metrics.csv").open() as file:
        logged = [row["memory/peak_resident_gib"] for row in csv.DictReader(file) if row["memory/peak_resident_gib"]]
    assert [float(value) for value in logged] == pytest.approx([found["resident_bytes"] / 2**30])
    assert all(not name.startswith("memory/peak_device") for name in run.trainer.logged_metrics)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_of_a_device_is_that_of_the_fit(fit):
    torch.ones(64 * MIB, device="cuda")  # before the fit: does not count
    callback = PeakMemory()
    fit("complex", signals(1, 16, 12), [callback], accelerator="cuda", devices=1)
    assert 0 < callback.report()["peak_memory"]["device_bytes"] < 64 * MIB

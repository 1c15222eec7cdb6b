"""Peak memory of processes."""

import subprocess
import sys

import pytest
import torch
from small_fits import signals

from pe_lightning.callbacks import PeakMemory
from pe_lightning.callbacks.memory import peak_resident_bytes

MIB = 2**20


def test_memory_that_was_used_and_given_back_counts_and_is_not_inherited():
    before = peak_resident_bytes()
    torch.ones(before // 4 + 128 * MIB)  # floats: more than all that was ever used
    assert peak_resident_bytes() >= before + 4 * 120 * MIB
    code = "from pe_lightning.callbacks.memory import peak_resident_bytes as peak; print(peak())"
    child = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert sys.platform != "linux" or child < peak_resident_bytes() - 100 * MIB


def test_it_is_logged_and_reported(fit):
    callback = PeakMemory()
    assert callback.report() == {}
    run = fit("complex", signals(1, 16, 12), [callback])
    found = callback.report()["peak_memory"]
    assert found["resident_bytes_per_process"] == [found["resident_bytes"]]
    assert 50 * MIB < found["resident_bytes"] <= peak_resident_bytes()
    assert found["device_bytes"] is None
    header = (run.folder / "logs/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert "memory/peak_resident_gib" in header
    assert "memory/peak_device_gib" not in header


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_of_a_device_is_that_of_the_fit(fit):
    torch.ones(64 * MIB, device="cuda")  # before the fit: does not count
    callback = PeakMemory()
    fit("complex", signals(1, 16, 12), [callback], accelerator="cuda", devices=1)
    assert 0 < callback.report()["peak_memory"]["device_bytes"] < 64 * MIB

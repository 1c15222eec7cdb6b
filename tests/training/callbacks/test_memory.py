"""Peak memory of processes."""

import subprocess
import sys

import pytest
import torch
from small_fits import signals

from pe_lightning.training.callbacks import PeakMemory
from pe_lightning.training.callbacks.devices import peak_resident_bytes

MIB = 2**20


OWN_PEAK = """
import subprocess, sys, torch
from pe_lightning.training.callbacks.devices import peak_resident_bytes
if sys.argv[1:]:
    before = peak_resident_bytes()
    torch.ones(64 * 2**20)  # 256 MiB, given back at once
    print(before, peak_resident_bytes(), subprocess.check_output([sys.executable, "-c", sys.argv[1]], text=True))
else:
    print(peak_resident_bytes())
"""


@pytest.mark.stress
def test_memory_that_was_used_and_given_back_counts_and_is_not_inherited():
    """In a process of its own: that of the tests may have used gigabytes."""
    done = subprocess.run([sys.executable, "-c", OWN_PEAK, OWN_PEAK], capture_output=True, text=True, check=True)
    before, peak, child = map(int, done.stdout.split())
    assert peak >= before + 150 * MIB
    assert sys.platform != "linux" or child < peak - 100 * MIB


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

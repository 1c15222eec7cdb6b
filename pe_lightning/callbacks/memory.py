"""Peak memory of a fit, of every process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import torch
from lightning.pytorch import LightningModule, Trainer

from pe_lightning.callbacks.quiet import QuietCallback
from pe_lightning.callbacks.surroundings import log_values

__all__ = ["PeakMemory", "peak_resident_bytes"]

STATUS = Path("/proc/self/status")


def peak_resident_bytes() -> int:
    """The most memory that this process has had in RAM since it began, in bytes.

    On Linux it is the kernel's ``VmHWM``. ``ru_maxrss`` is not used there: a process inherits it from the one that
    started it, so that of a small process started by a large one it is the large one's.
    """
    if STATUS.is_file():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class PeakMemory(QuietCallback):
    """Logs and reports the most memory that any process of a fit has used.

    Resident memory counts from the start of the process, with libraries and data; memory of a CUDA device from the start
    of the fit, as PyTorch's allocator gave it to tensors. Both are read once, at the end of the fit: steps cost nothing.

    Logged are ``memory/peak_resident_gib`` and, on a CUDA device, ``memory/peak_device_gib``, each the largest of all
    processes. The report is ``peak_memory``: ``resident_bytes`` and ``device_bytes`` (``null`` without CUDA), and both
    ``_per_process``, by rank.
    """

    def __init__(self) -> None:
        self._peaks: list[list[int]] = []
        self._device = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count on the device."""
        self._peaks, self._device = [], pl_module.device.type == "cuda"
        if self._device:
            torch.cuda.reset_peak_memory_stats(pl_module.device)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Collects the peaks of all processes; every one of them gets here."""
        device = torch.cuda.max_memory_allocated(pl_module.device) if self._device else 0
        mine = torch.tensor([peak_resident_bytes(), device], dtype=torch.int64, device=pl_module.device)
        self._peaks = trainer.strategy.all_gather(mine).reshape(-1, 2).tolist()
        largest = {"resident": max(peak[0] for peak in self._peaks), "device": max(peak[1] for peak in self._peaks)}
        shown = {name: value for name, value in largest.items() if self._device or name == "resident"}
        log_values(trainer, {f"memory/peak_{name}_gib": value / 2**30 for name, value in shown.items()})

    def report(self) -> dict[str, Any]:
        """``peak_memory`` in bytes."""
        if not self._peaks:
            return {}
        resident, device = ([peak[place] for peak in self._peaks] for place in (0, 1))
        found: dict[str, Any] = {"resident_bytes": max(resident), "resident_bytes_per_process": resident}
        found["device_bytes"] = max(device) if self._device else None
        found["device_bytes_per_process"] = device if self._device else None
        return {"peak_memory": found}

"""Devices: the precision of products on a GPU, and peak memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pe_lightning.training.callbacks.base import callbacks, log_values


def peak_resident_bytes() -> int:
    """Peak resident memory of this process since it started, in bytes.

    On Linux it is the kernel's ``VmHWM``: a process inherits ``ru_maxrss`` from the one that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


@callbacks.register("PeakMemory")
class PeakMemory(Callback):
    """Logs and reports the peak memory over the processes of a fit.

    Resident memory counts from the start of the process, with libraries and data; memory of a CUDA device from the start
    of the fit, as PyTorch's allocator gave it to tensors. Both are read once, at the end of the fit.

    Logged are ``memory/peak_resident_gib`` and, on a CUDA device, ``memory/peak_device_gib``, each the largest of all
    processes. The report is ``peak_memory``: ``resident_bytes`` and ``device_bytes`` (``null`` without CUDA), and both
    ``_per_process``, by rank.
    """

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._found = {}
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        used = trainer.strategy.root_device  # Lightning has moved the module to the CPU
        on_device = used.type == "cuda"
        device = torch.cuda.max_memory_allocated(used) if on_device else 0
        own = torch.tensor([peak_resident_bytes(), device], dtype=torch.int64, device=used)
        resident, devices = trainer.strategy.all_gather(own).reshape(-1, 2).T.tolist()
        self._found = {
            "resident_bytes": max(resident),
            "resident_bytes_per_process": resident,
            "device_bytes": max(devices) if on_device else None,
            "device_bytes_per_process": devices if on_device else None,
        }
        logged = {"memory/peak_resident_gib": max(resident) / 2**30}
        log_values(trainer, logged | ({"memory/peak_device_gib": max(devices) / 2**30} if on_device else {}))

    def report(self) -> dict[str, Any]:
        return {"peak_memory": self._found} if self._found else {}


@callbacks.register("MatmulPrecision")
class MatmulPrecision(Callback):
    """Sets the precision of float32 products in training steps on a GPU.

    Exact fits and Gram matrices are always computed in full precision.

    Args:
        precision: ``high`` is TF32 (faster, 10 bits), ``medium`` bfloat16, ``highest`` float32.
    """

    def __init__(self, precision: Literal["highest", "high", "medium"] = "high") -> None:
        self.precision = precision

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_float32_matmul_precision(self.precision)

"""The record of a fit by processes that ``ddp_spawn`` starts: Lightning returns weights and ``callback_metrics`` alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

from pe_lightning.errors import InputError
from pe_lightning.solvers.report import FitReport
from pe_lightning.training.base import TrainedModule
from pe_lightning.training.callbacks.scores import reports
from pe_lightning.training.function import FunctionModule

RECORD_KEY = "pe_lightning/record"
"""Key of the record, JSON in a tensor of bytes, in ``callback_metrics``."""


def hand_over(trainer: Trainer, module: Any, run_dir: Path, seconds: float) -> None:
    """Gives the record to the process that has started this one."""
    solution = getattr(module, "solution", None)
    record = {
        "run_dir": str(run_dir),
        "seconds": seconds,
        "steps": trainer.global_step,
        "optimization": getattr(module, "optimization", None),
        "solution": None if solution is None else solution.to_dict(),
        "reports": reports(trainer),
    }
    trainer.callback_metrics[RECORD_KEY] = torch.frombuffer(bytearray(json.dumps(record).encode()), dtype=torch.uint8)


def taken_over(trainer: Trainer, module: Any) -> dict[str, Any] | None:
    """The record of a fit that other processes made, whose results the module gets; ``None`` without such a fit."""
    if RECORD_KEY not in trainer.callback_metrics:
        return None
    if not any(True for _ in module.parameters()):
        raise InputError(
            f"{type(module).__name__} was not built when its fit was given to other processes, whose weights it has not "
            "received: call build_from(data) before Trainer.fit, or use strategy='ddp'"
        )
    record: dict[str, Any] = json.loads(trainer.callback_metrics[RECORD_KEY].numpy().tobytes())
    if isinstance(module, TrainedModule):
        module.optimization = record["optimization"]
    if isinstance(module, FunctionModule) and record["solution"] is not None:
        module.solution = FitReport(**record["solution"])
    return record

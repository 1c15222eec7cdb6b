"""What the benchmarks share: a Trainer that only trains, a command and its seconds, and the line that names the machine."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer

ROOT = Path(__file__).parents[1]


def machine() -> str:
    """Processor architecture, threads and versions, for the first line of a table."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU only"
    return f"{platform.machine()}, {torch.get_num_threads()} threads, {device}, torch {torch.__version__}"


def make_trainer(steps: int, precision: Any = "32-true") -> Trainer:
    """A Trainer without loggers, checkpoints, bars and validation."""
    for name in ("lightning.pytorch", "pe_lightning"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # Lightning 2.6 with torch >= 2.13
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # the data is one batch in memory
    return Trainer(
        max_steps=steps,
        precision=precision,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def run(*arguments: str, folder: Path, **environment: str) -> tuple[str, float]:
    """What ``pe-lightning`` prints in a folder, and seconds from its start to its end."""
    command = [sys.executable, "-m", "pe_lightning", *arguments]
    began = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stderr}")
    return done.stdout, time.perf_counter() - began

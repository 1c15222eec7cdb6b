"""Small fits and errors by command, in the process of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pe_lightning.__main__ import main

NO_WANDB = ["--wandb.enabled", "false"]
DEMO = [
    "--config",
    "image/demo",
    "--data.resize",
    "32",
    "--model.encoder.num_features",
    "16",
    "--trainer.accelerator",
    "cpu",
]
DEMO += ["--trainer.max_steps", "20", "--data.batching.steps_per_epoch", "10", "--trainer.log_every_n_steps", "5"]
DEMO += ["--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false"]


def fit(*arguments: str, root: Path | str = ".") -> Path:
    """The run directory that a fit makes below ``root``."""
    before = set(Path(root).glob("runs/*/*"))
    assert main(["fit", *arguments, *(["--trainer.default_root_dir", str(root)] if root != "." else [])]) == 0
    (run,) = set(Path(root).glob("runs/*/*")) - before
    return run


def metrics(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def error_of(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int = 2) -> str:
    """The one line of an error that a command ends with, and after which nothing follows."""
    assert main(arguments) == status
    text = capsys.readouterr().err
    assert "Traceback" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("pe-lightning: error: ")]
    assert text.splitlines()[-1] == line
    assert len(line) < 1000
    return line

"""Weights & Biases and CSV loggers of a run, offline unless the user is logged in."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import wandb
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from torch import Tensor

from pe_lightning.callbacks.clock import TrainingClock
from pe_lightning.runs import write_atomically

__all__ = ["TimedCSVLogger", "WandbSettings", "flat", "make_loggers", "wandb_is_offline"]

GOALS = {"val/psnr": "max", "train/psnr": "max", "train/loss": "min"}
"""Which way is better, for the summary of a run: the best of a curve, beside its last value."""

RUN_ID = "wandb/run-id.txt"
"""Where a run directory keeps the id of its W&B run."""


@dataclass
class WandbSettings:
    """How a run appears in W&B.

    Args:
        project: Project that runs are collected in.
        entity: User or team that owns the project; ``None`` is the account's default.
        name: Name of the run; ``None`` is ``<data>-<model>-<encoder>-<n>``.
        group: Group that the run belongs to.
        job_type: What the run does, to tell runs of a group apart.
        tags: Tags of the run.
        artifact: Whether the last checkpoint is kept in W&B too.
        enabled: Whether to log to W&B at all; the CSV log is kept either way.
    """

    project: str = "pe-lightning"
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: list[str] | None = None
    artifact: bool = False
    enabled: bool = True


def wandb_is_offline() -> bool:
    """Whether runs are to be kept on disk: no ``WANDB_MODE`` says otherwise, and nobody is logged in.

    Logged in means a ``WANDB_API_KEY`` or an entry for the W&B host in the ``.netrc`` file, where ``wandb login`` puts it.
    """
    if os.environ.get("WANDB_MODE"):
        return False  # wandb itself follows the variable
    if os.environ.get("WANDB_API_KEY"):
        return False
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is None
    except (OSError, netrc.NetrcParseError):
        return True


class TimedCSVLogger(CSVLogger):
    """The CSV log of a run, in ``logs/version_<n>/``; every row has the seconds of the fit, in the column ``seconds``.

    Rows of a validation are exact. On a GPU those of a training step may be a little early: nothing waits for the device.

    Args:
        run_dir: The run directory.
        clock: Of the fit, the one of ``fit_seconds``.
    """

    def __init__(self, run_dir: Path, clock: TrainingClock) -> None:
        super().__init__(save_dir=run_dir, name="logs")
        self.clock = clock

    def log_metrics(self, metrics: dict[str, Tensor | float], step: int | None = None) -> None:  # type: ignore[override]
        """Adds a row."""
        super().log_metrics({**metrics, "seconds": self.clock.seconds}, step)


def make_loggers(run_dir: Path, settings: WandbSettings, clock: TrainingClock, first_process: bool = True) -> list[Logger]:
    """The loggers of a run; each process makes them, only the first one writes.

    Args:
        run_dir: The run directory; W&B keeps its files in ``wandb/`` there, the CSV log is in ``logs/version_0/``.
        settings: How the run appears in W&B.
        clock: Of the fit; W&B has times of its own.
        first_process: Whether this is the process that writes.
    """
    loggers: list[Logger] = [TimedCSVLogger(run_dir, clock)]
    if settings.enabled:
        # the run is started here and not by WandbLogger, whose arguments draw a deprecation warning from wandb
        experiment = _start_run(run_dir, settings) if first_process else None
        loggers.append(WandbLogger(experiment=experiment, save_dir=run_dir))
    return loggers


def _start_run(run_dir: Path, settings: WandbSettings) -> Any:
    note = run_dir / RUN_ID
    known = note.read_text().strip() if note.is_file() else None
    offline = wandb_is_offline()
    run = wandb.init(
        # a fit that is resumed is the same run; what is offline becomes a second part, for wandb sync --append
        id=known,
        resume="allow" if known and not offline else None,
        project=settings.project,
        entity=settings.entity,
        name=settings.name or f"{run_dir.parent.name}-{run_dir.name}",
        group=settings.group,
        job_type=settings.job_type,
        tags=settings.tags,
        dir=run_dir,
        mode="offline" if offline else None,
        # the terminal belongs to our own progress bar and table; wandb's notices would tear them
        settings=wandb.Settings(console="off", silent=True),
    )
    if known is None:
        write_atomically(note, f"{run.id}\n")
    run.define_metric("*", step_metric="trainer/global_step")
    for name, goal in GOALS.items():
        run.define_metric(name, summary=goal, step_metric="trainer/global_step")
    return run


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values as one level of dotted keys, which W&B shows as columns and filters by.

    >>> flat({"encoder": {"name": "gau", "sigma": 0.1}, "grid": [4, 4], "axes": [{"name": "tri"}]})
    {'encoder.name': 'gau', 'encoder.sigma': 0.1, 'grid': [4, 4], 'axes.0.name': 'tri'}
    """
    result: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, (list, tuple)) and value and all(isinstance(entry, Mapping) for entry in value):
            value = {str(place): entry for place, entry in enumerate(value)}
        if isinstance(value, Mapping):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result

"""The loggers of a run, CSV and Weights & Biases, and the values logged at its end."""

from __future__ import annotations

import csv
import io
import netrc
import os
import shlex
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.core.saving import save_hparams_to_yaml
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import append_lines, replacing, write_atomically
from pe_lightning.training.callbacks.base import TrainingClock

RECORDS = ("logs", "wandb")
"""Folders of the loggers in a run directory."""
RUN_ID_FILE = "wandb/run-id.txt"
HISTOGRAM_BINS = 64
START_SECONDS = 15
"""Seconds in which W&B has to answer at the start of a run, without ``WANDB_INIT_TIMEOUT``."""
_UNREACHABLE = dict[str, str]()
"""Addresses of W&B that did not answer, and the reason: further runs of this process do not wait for them."""


@dataclass
class WandbSettings:
    """How a run appears in W&B. What is ``None`` follows W&B's own environment variables, ``WANDB_PROJECT`` and so on.

    Args:
        project: Project that runs are collected in; ``None``, without ``WANDB_PROJECT``, is ``pe-lightning``.
        entity: User or team that owns the project; ``None`` is the account's default.
        name: Name of the run; ``None``, without ``WANDB_NAME``, is ``<data>-<model>-<activation>-<encoder>-<n>``.
        group: Group that the run belongs to; ``None``, without ``WANDB_RUN_GROUP``, is the name of the data.
        job_type: What the run does, to distinguish runs of a group.
        tags: Tags of the run.
        artifact: Whether the last checkpoint is uploaded to W&B too.
        watch: Whether histograms of ``gradients``, of ``parameters`` or of both (``all``) are logged every
            ``log_every_n_steps`` steps.
        enabled: Whether to log to W&B at all; the CSV log is written either way.
    """

    project: str | None = None
    entity: str | None = None
    name: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: list[str] | None = None
    artifact: bool = False
    watch: Literal["gradients", "parameters", "all"] | None = None
    enabled: bool = True

    def check(self) -> None:
        """Refuses settings that W&B does not take; not in the constructor, since importing wandb takes a second."""
        import wandb

        given: dict[str, Any] = {"project": self.project, "entity": self.entity, "mode": os.environ.get("WANDB_MODE")}
        given |= {f"run_{name}": getattr(self, name) for name in ("name", "tags", "group", "job_type")}
        try:
            wandb.Settings(**{name: value for name, value in given.items() if value})
        except (ValueError, wandb.errors.UsageError) as error:
            raise InputError(f"W&B: {paragraph(str(error))}; --wandb.enabled false leaves it out") from error


@contextmanager
def wandb_may_fail() -> Iterator[None]:
    """Turns any exception of W&B into a notice, so that no fit ends by it."""
    try:
        yield
    except Exception as error:  # wandb raises anything
        reason = f"{type(error).__name__}, {paragraph(str(error))}"
        rank_zero_info(f"W&B failed ({reason}). The run directory has everything; --wandb.enabled false leaves W&B out.")


def mark_preempting(loggers: Sequence[Logger]) -> None:
    """Marks W&B runs as preempted: sweeps of W&B start such a run again if it ends with a status above 0."""
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            with wandb_may_fail():
                logger.experiment.mark_preempting()


class TolerantWandbLogger(WandbLogger):
    """W&B logger whose errors are notices, and whose rows have the seconds of the fit."""

    def __init__(self, run_dir: Path, clock: TrainingClock, experiment: Any) -> None:
        super().__init__(experiment=experiment, save_dir=run_dir)
        self.clock = clock

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        with wandb_may_fail():
            super().log_metrics({**metrics, "seconds": self.clock.seconds}, step)

    def log_image(self, *args: Any, **kwargs: Any) -> None:
        with wandb_may_fail():
            super().log_image(*args, **kwargs)

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        with wandb_may_fail():
            super().log_hyperparams(*args, **kwargs)


def wandb_is_offline() -> bool:
    """Whether nobody asks for W&B: no ``WANDB_MODE``, no ``WANDB_API_KEY``, no ``.netrc`` entry of ``wandb login``."""
    if os.environ.get("WANDB_MODE") or os.environ.get("WANDB_API_KEY"):
        return False  # wandb itself follows WANDB_MODE
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(urlparse(_wandb_url()).hostname or "") is None
    except (OSError, netrc.NetrcParseError):
        return True


def _wandb_url() -> str:
    import wandb

    return str(wandb.setup().settings.base_url)


def start_wandb(trainer: Trainer, run_dir: Path, settings: WandbSettings, goals: Mapping[str, str]) -> list[Logger]:
    """Starts the W&B run of a fit in the first process, and makes its logger in each; none on an error.

    ``goals``: for each logged value, whether its ``max`` or ``min`` is the summary of the run.
    """
    loggers: list[Logger] = []
    with wandb_may_fail():
        # the run is started here and not by WandbLogger, whose arguments make wandb warn
        experiment = _start_run(run_dir, settings, goals) if trainer.is_global_zero else None
        loggers.append(TolerantWandbLogger(run_dir, TrainingClock.of(trainer), experiment))
    return loggers


def end_wandb(loggers: Sequence[Logger], exit_code: int | None = None) -> None:
    """Ends the W&B run, if there is one, with the exit status of a fit that did not end by itself."""
    if any(isinstance(logger, WandbLogger) for logger in loggers):
        import wandb

        with wandb_may_fail():
            # a run that is torn down would stay the current one of this process
            wandb.finish(exit_code=exit_code)
            wandb.teardown()  # waits for the process of wandb, which writes its last records after finish() returns


def _start_run(run_dir: Path, settings: WandbSettings, goals: Mapping[str, str]) -> Any:
    import wandb

    id_file = run_dir / RUN_ID_FILE
    known = id_file.read_text().strip() if id_file.is_file() else None
    # a run that was begun offline stays offline: W&B would have one half of it
    folder = Path(os.environ.get("WANDB_DIR") or run_dir)
    offline = wandb_is_offline() or (known is not None and any((folder / "wandb").glob(f"offline-run-*-{known}")))
    falls_back = not offline and not os.environ.get("WANDB_MODE")  # WANDB_MODE=online asks for nothing else
    waits: dict[str, Any] = {} if not falls_back or "WANDB_INIT_TIMEOUT" in os.environ else {"init_timeout": START_SECONDS}

    def start(offline: bool) -> Any:
        return wandb.init(
            # a resumed fit is the same run; offline it becomes a second part, which wandb sync joins
            id=known,
            resume="allow" if known and not offline else None,
            # what is None follows the environment
            project=settings.project or (None if os.environ.get("WANDB_PROJECT") else "pe-lightning"),
            name=settings.name or (None if os.environ.get("WANDB_NAME") else f"{run_dir.parent.name}-{run_dir.name}"),
            **{name: getattr(settings, name) for name in ("entity", "group", "job_type", "tags")},
            dir=folder,
            mode="offline" if offline else None,
            # wandb's notices would break our own progress bar and table
            settings=wandb.Settings(console="off", silent=True, **waits),
        )

    reason = _UNREACHABLE.get(_wandb_url()) if falls_back else None
    if reason is None:
        try:
            run = start(offline)
        except wandb.errors.CommError as error:
            if not falls_back:
                raise
            reason = _UNREACHABLE[_wandb_url()] = paragraph(str(error).partition("\n")[0], 200)
    if reason is not None:
        run = start(True)
        kept = shlex.quote(str(Path(run.dir).parent))
        rank_zero_info(f"W&B does not answer ({reason}). The run is kept on disk; to upload it: wandb sync {kept}")
    if known is None:
        write_atomically(id_file, f"{run.id}\n")
    run.define_metric("*", step_metric="trainer/global_step")
    for name, goal in goals.items():
        run.define_metric(name, summary=goal, step_metric="trainer/global_step")
    return run


def log_histograms(
    loggers: Sequence[Logger], module: LightningModule, step: int, kind: Literal["gradients", "parameters", "all"]
) -> None:
    """Logs to W&B histograms of the trained parameters or of their gradients, under the names of ``wandb.watch``.

    Hooks of ``wandb.watch`` would miss gradients that are computed without autograd, and parameters, since training steps do
    not call ``forward``.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            with wandb_may_fail():
                import wandb

                watched: dict[str, Any] = {}
                for name, parameter in module.named_parameters():
                    both = {"parameters": parameter if parameter.requires_grad else None, "gradients": parameter.grad}
                    for part, values in both.items():
                        if kind in (part, "all") and values is not None:
                            finite = values.detach()[values.detach().isfinite()].cpu()
                            finite = torch.view_as_real(finite) if finite.is_complex() else finite
                            counts, edges = np.histogram(finite.double().numpy(), HISTOGRAM_BINS)
                            watched[f"{part}/{name}"] = wandb.Histogram(np_histogram=(counts.tolist(), edges.tolist()))
                logger.log_metrics(watched, step)


def log_scores(
    loggers: Sequence[Logger],
    metrics: Mapping[str, Any],
    pictures: Sequence[str],
    curve: Path | None,
    step: int,
    checkpoint: Path | None = None,
    of_pictures: Sequence[str] = (),
) -> None:
    """Logs the scores that the module does not log itself; to W&B also scores per signal, pictures, and a checkpoint.

    ``of_pictures``: keys of scores of all samples. ``curve``: a plot of the choice of width and ridge.
    """
    test, train = f"test/{metrics['metric']}", f"train/{metrics['metric']}"
    keys = (f"{test}_std", *of_pictures, "num_params", "checkpoint_bytes", "fit_seconds")
    scores = {key: metrics[key] for key in keys if metrics.get(key) is not None}
    baselines = {f"baseline/{name}": row[test] for name, row in metrics["baselines"].items() if row[test]}
    columns = [key for key in (test, train, *of_pictures) if f"{key}_per_signal" in metrics]
    rows = [list(row) for row in zip(metrics["signals"], *(metrics[f"{key}_per_signal"] for key in columns), strict=True)]
    for logger in loggers:
        logger.log_metrics(baselines | scores, step)
        if isinstance(logger, WandbLogger):
            with wandb_may_fail():
                logger.log_table("test/signals", columns=["signal", *columns], data=rows, step=step)
                if shown := list(pictures[:16]):  # all are on disk
                    logger.log_image("reconstructions", shown, step=step, caption=metrics["signals"][: len(shown)])
                videos = [path.removesuffix("_comparison.png") + ".mp4" for path in shown]
                if videos := [path for path in videos if Path(path).is_file()]:
                    logger.log_video("videos", videos, step=step, format=["mp4"] * len(videos))
                if curve is not None:
                    logger.log_image("choice", [str(curve)], step=step)
                if checkpoint is not None:
                    run = logger.experiment
                    run.log_artifact(str(checkpoint), name=f"checkpoint-{run.id}", type="model")


class CSVLog(CSVLogger):
    """Lightning's ``CSVLogger`` in ``logs/version_<n>/`` of a run directory, whose files are whole at any time.

    The column ``seconds`` is by the clock of ``fit_seconds``; on a GPU rows of training steps may be a little early.
    """

    def __init__(self, run_dir: Path, clock: TrainingClock) -> None:
        super().__init__(run_dir, name="logs")
        self.clock = clock
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []
        self._hparams: dict[str, Any] = {}

    @property
    def experiment(self) -> CSVLog:
        """This logger: Lightning's writer is not atomic."""
        return self

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Tensor | float], step: int | None = None) -> None:
        values = {name: value.item() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        self._rows.append({**values, "seconds": self.clock.seconds, "step": step})
        if len(self._rows) >= self._flush_logs_every_n_steps:
            self.save()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace | None = None) -> None:
        self._hparams |= vars(params) if isinstance(params, Namespace) else params or {}
        with replacing(Path(self.log_dir) / "hparams.yaml") as temporary:
            save_hparams_to_yaml(temporary, self._hparams)

    @rank_zero_only
    def save(self) -> None:
        """Appends the new rows as whole lines; with a new column, writes the whole file."""
        path, rows = Path(self.log_dir) / "metrics.csv", self._rows
        if not rows:
            return
        columns = sorted({*self._columns}.union(*rows))
        if columns == self._columns:
            append_lines(path, _csv_text(rows, columns))
        else:
            if self._columns:
                with path.open(newline="") as file:
                    rows = [*csv.DictReader(file), *rows]
            write_atomically(path, _csv_text(rows, columns, header=True))
        self._columns, self._rows = columns, []

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Writes the last rows; after a failed fit without an error of its own."""
        try:
            self.save()
        except InputError:
            if status == "success":
                raise


def _csv_text(rows: list[dict[str, Any]], columns: list[str], header: bool = False) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

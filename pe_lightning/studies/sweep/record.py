"""The state of a sweep: its record ``sweep.json``, its progress in the terminal, and signals that stop it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from filelock import FileLock, Timeout
from rich.progress import Progress
from rich.text import Text

from pe_lightning import errors
from pe_lightning.errors import InputError, show_metric
from pe_lightning.results import config_files, runs
from pe_lightning.results.run import Metric
from pe_lightning.signals.files import write_atomically
from pe_lightning.studies.sweep.cells import Cell, differences
from pe_lightning.studies.sweep.matching import found_before, with_options
from pe_lightning.training.interrupts import StopSignals, raise_interrupted

LOCK = ".sweep.lock"

Status: TypeAlias = Literal["waiting", "running", "done", "failed", "refused"]
"""Status of a cell. ``refused``: its configuration is invalid. ``running``: also after the sweep was killed in the fit."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a fit: seconds, including the reading of the data; the content of ``metrics.json``, or the error."""

    seconds: float
    metrics: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    trace: str | None = None
    """The traceback of an unexpected error."""
    resumed: bool = False
    """Whether it was resumed from a checkpoint."""
    warnings: tuple[str, ...] = ()


class SweepRecord:
    """The cells in the folder of a sweep, with cells of earlier commands: ``sweep.json``, progress, and stopping.

    Args:
        folder: The folder of the sweep.
        fingerprint: Returns the fingerprint of the data of a complete configuration; ``None`` if they have none.

    Attributes:
        signum: The signal after which no more cells are started, if there was one.
    """

    def __init__(self, folder: Path, fingerprint: Callable[[Mapping[str, Any]], str | None]) -> None:
        self.folder = folder
        self._fingerprint = fingerprint
        self.signum: int | None = None
        self.entries: dict[str, dict[str, Any]] = {}
        path = folder / runs.SWEEP
        if path.is_file():
            try:
                content = json.loads(path.read_text())
                self.entries = {entry["name"]: dict(entry) for entry in content["cells"]}
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{str(path)!r} cannot be read as the record of a sweep ({error}); choose another --out"
                ) from error
        elif folder.exists() and (not folder.is_dir() or any(entry.name != LOCK for entry in folder.iterdir())):
            raise InputError(
                f"{str(folder)!r} exists and is not the folder of a sweep: it has no {runs.SWEEP}. Choose another --out"
            )

    def run_dir(self, cell: Cell) -> Path:
        return (self.folder / cell.name).absolute()

    def finished(self, cell: Cell) -> dict[str, Any] | None:
        """The metrics of a cell that has finished before, else ``None``.

        Raises:
            InputError: If its folder holds another run, with other settings, data or files, or with unknown settings.
        """
        run = self.folder / cell.name
        if run.exists() and cell.name not in self.entries:
            raise InputError(f"{str(run)!r} exists and is not a run of this sweep. Remove it, or choose another --out")
        has_metrics, has_checkpoint = (run / runs.METRICS).is_file(), any((run / runs.CHECKPOINTS).glob("*.ckpt"))
        if cell.tree is None or not (has_metrics or has_checkpoint or (run / runs.CONFIG).exists()):
            return None
        remedy = "choose another --out, or move that folder away to run it again"
        try:
            before = config_files.read_config(run / runs.CONFIG)
            changed = differences(before, with_options(cell.tree, found_before(run, cell.goals)))
        except InputError as error:
            raise InputError(f"{str(run)!r} does not say with which settings it was run ({error}); {remedy}") from error
        known = self.entries[cell.name].get("files", {})
        changed += [f"content of {name}" for name, digest in cell.files.items() if known.get(name, digest) != digest]
        try:
            metrics = dict(json.loads((run / runs.METRICS).read_text())) if has_metrics else None
        except (ValueError, TypeError) as error:
            raise InputError(f"cannot read {str(run / runs.METRICS)!r} ({error}); {remedy}") from error
        if metrics is not None and not changed and (old := metrics.get("data_fingerprint")) is not None:
            new = self._fingerprint(cell.tree)
            changed += [] if new in (None, old) else [f"content of the data: {old}, now {new}"]
        if changed:
            what = "files" if changed[0].startswith("content of") else "settings"
            raise InputError(f"{str(run)!r} was run with other {what} ({'; '.join(changed[:3])}); {remedy}")
        return metrics

    def status(self, cell: Cell) -> Status | None:
        """The status of a cell; ``None`` if it is not in the record."""
        return self.entries.get(cell.name, {}).get("status")

    @contextmanager
    def running(
        self, cells: Sequence[Cell], stop_fit: Callable[[int], None] = raise_interrupted, bar: bool = True
    ) -> Iterator[list[Cell]]:
        """Locks the folder, records the cells and handles signals; yields the cells that have to be run.

        After Ctrl-C, no further cell is started; a second Ctrl-C ends the sweep at once. At SIGTERM and SIGHUP, ``stop_fit``
        stops the running cells, which wait for the next command.

        Raises:
            InputError: If another sweep is running there, or a folder holds another run.
        """

        def stop(signum: int) -> None:
            self.signum = signum
            if signum == signal.SIGINT:
                self._say("Stopping after the running fits; the same command resumes the sweep. Ctrl-C again stops at once.")
            else:
                stop_fit(signum)

        console = errors.console(None, stderr=True)
        self._bar = Progress(console=console, disable=not (bar and console.is_terminal), transient=True)
        self._task = self._bar.add_task("sweep", total=len(cells))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / LOCK, timeout=0):
                waiting = [cell for cell in cells if not self._is_over(cell)]
                self._write()
                try:
                    with StopSignals(stop), self._bar:
                        yield waiting
                except KeyboardInterrupt:
                    if self.signum in (None, signal.SIGINT):
                        raise
                    for name, entry in self.entries.items():
                        if entry["status"] == "running":
                            self.entries[name] = {**entry, "status": "waiting"}
                    self._write()
        except Timeout as error:
            raise InputError(f"another sweep is running in {str(self.folder)!r}; wait, or choose another --out") from error

    def _is_over(self, cell: Cell) -> bool:
        """Records a cell before the sweep; True if it has finished before or is refused."""
        metrics = self.finished(cell)
        if metrics is not None:
            self._note(cell, "done", **_scores(metrics))
            self._count(cell, f"{_score(metrics)}, finished before", "dim")
        elif cell.tree is None:
            self._note(cell, "refused", error=cell.error)
            self._count(cell, f"refused: {cell.error}", "red")
        else:
            self._note(cell, "waiting")
        return metrics is not None or cell.tree is None

    def start(self, cell: Cell) -> None:
        self._bar.update(self._task, description=cell.name)
        self._note(cell, "running")
        self._write()

    def finish(self, cell: Cell, outcome: Outcome) -> None:
        for text in outcome.warnings:
            self._say(f"{cell.name}: warning: {text}")
        if outcome.error is None:
            self._note(cell, "done", seconds=outcome.seconds, **_scores(outcome.metrics))
            resumed = ", resumed" if outcome.resumed else ""
            line, style = f"{_score(outcome.metrics)}, {outcome.seconds:.1f} s{resumed}", ""
        else:
            self._note(cell, "failed", error=outcome.error, traceback=outcome.trace)
            line, style = f"failed: {outcome.error}", "red"
        self._write()
        self._count(cell, line, style)

    def _note(self, cell: Cell, status: Status, **more: Any) -> None:
        matched = found_before(self.run_dir(cell), cell.goals)
        self.entries[cell.name] = {
            "name": cell.name,
            "status": status,
            "settings": cell.settings,
            "repeat": cell.repeat,
            "seed": None if cell.tree is None else cell.tree["seed_everything"],
            "arguments": [*cell.arguments, *(f"--{key}={value}" for key, value in matched.items())],
            "matched": matched,
            "files": cell.files,
            "run_dir": None if status in ("waiting", "refused") else cell.name,
            **more,
        }

    def _write(self) -> None:
        content = {"schema": 1, "name": self.folder.absolute().name, "cells": list(self.entries.values())}
        write_atomically(self.folder / runs.SWEEP, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def _count(self, cell: Cell, line: str, style: str) -> None:
        self._bar.advance(self._task)
        task = self._bar.tasks[self._task]
        self._say(f"{task.completed:.0f}/{task.total:.0f} {cell.name}: {line}", style)

    def _say(self, text: str, style: str = "yellow") -> None:
        self._bar.console.print(Text(text, style), soft_wrap=True)


def _scores(metrics: Mapping[str, Any]) -> dict[str, Any]:
    test = f"test/{metrics.get('metric')}"
    return {key: metrics.get(key) for key in ("metric", test, f"{test}_std", "fit_seconds", "num_params")}


def _score(metrics: Mapping[str, Any]) -> str:
    name = metrics.get("metric")
    if name is None:  # the result of a function, not of a fit
        return "computed"
    value = metrics.get(f"test/{name}")
    if value is None:
        return f"no test {show_metric(name)}"
    return Metric.of(name).text(value, unit=True)

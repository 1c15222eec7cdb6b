"""Runs the cells of a sweep that have no result, here or with Ray: for ``sweep``, and for verbs of other packages."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import torch
import wandb
from lightning.pytorch import Callback, LightningDataModule

from pe_lightning.cli.arguments import rewrite
from pe_lightning.cli.main import CommandLine
from pe_lightning.cli.parser import instantiate, parse, plain_values, prepare
from pe_lightning.errors import InputError, paragraph
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import BEST, LAST
from pe_lightning.studies.sweep.cells import Cell, checked, reseeded
from pe_lightning.studies.sweep.matching import Goal, found_before, match, with_options
from pe_lightning.studies.sweep.record import Outcome, SweepRecord
from pe_lightning.training.datamodule import SignalDataModule
from pe_lightning.training.export import read_model
from pe_lightning.training.function import FunctionModule
from pe_lightning.training.interrupts import Interrupted, raise_interrupted
from pe_lightning.training.quiet_fits import fit_quietly

__all__ = ["Cell", "CellRunner", "Launcher", "Outcome", "SweepRecord", "checked", "reseeded", "run_cells"]

Launcher: TypeAlias = Literal["process", "ray"]


class CoreClock(Callback):
    """Seconds of the processor between the first and the last step of a fit."""

    seconds = 0.0

    def on_train_start(self, *_: Any) -> None:
        self.seconds = -time.process_time()

    def on_train_end(self, *_: Any) -> None:
        self.seconds += time.process_time()


class CellRunner:
    """Runs cells in this process, one after the other; consecutive cells with the same data share one DataModule.

    Args:
        pictures: Whether to draw reconstructions beside the truth.
    """

    def __init__(self, pictures: bool = True) -> None:
        prepare()
        self._pictures = pictures
        self._data: tuple[str, LightningDataModule] | None = None
        self._job: CommandLine | None = None
        self._matched: dict[str, dict[str, int]] = {}

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """The complete configuration for options of ``fit``, as plain values."""
        config = parse("fit", rewrite("fit", arguments))
        instantiate("fit", config)
        return plain_values("fit", config)

    def match(self, tree: Mapping[str, Any], goals: Mapping[str, Goal]) -> dict[str, int]:
        """The options of a complete configuration that reach goals; equal ones are measured once."""
        key = json.dumps([tree["model"], tree["data"], goals], sort_keys=True)
        if key not in self._matched:
            self._matched[key] = match(goals, tree, self)
        return self._matched[key]

    def num_params(self, tree: Mapping[str, Any]) -> int:
        """Parameters of each signal of the model of a complete configuration."""
        return self._built(tree)[0].num_params

    def core_seconds(self, tree: Mapping[str, Any], steps: int) -> float:
        """Seconds of the processor for each signal of so many training steps of a complete configuration."""
        clock = CoreClock()
        model, data = self._built(tree)
        with torch.random.fork_rng():
            fit_quietly(model, data, steps, callbacks=[clock])
        return clock.seconds / data.info.num_signals

    def _built(self, tree: Mapping[str, Any]) -> tuple[FunctionModule, SignalDataModule]:
        data, model = self.load(tree), instantiate("fit", parse("fit", tree), ["model"]).model
        if not isinstance(model, FunctionModule) or not isinstance(data, SignalDataModule):
            raise InputError(f"{type(model).__name__}: goals are matched for models of signals; leave out --match")
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")  # the fit warns
            model.build_from(data)
        return model, data

    def load(self, tree: Mapping[str, Any]) -> LightningDataModule:
        """The DataModule of a complete configuration, with its data loaded. The following fits can share it."""
        data = self._data_of(tree)
        data.prepare_data()
        return data

    def fingerprint(self, tree: Mapping[str, Any]) -> str | None:
        """The fingerprint of the data of a complete configuration, as in ``metrics.json``; ``None`` if they have none."""
        return getattr(self.load(tree), "fingerprint", None)

    def _data_of(self, tree: Mapping[str, Any]) -> LightningDataModule:
        options = json.dumps(tree.get("data"), sort_keys=True)
        if self._data is None or self._data[0] != options:
            self._data = options, instantiate("fit", parse("fit", tree), ["data"]).data
        return self._data[1]

    def stop_now(self, signum: int) -> None:
        """Stops the running fit after its current step, so that it can be resumed; raises Interrupted if none is trained."""
        if self._job is None or not self._job.stop.training:
            raise Interrupted(signum)
        self._job.stop.request(signum)

    def run(self, tree: Mapping[str, Any], folder: Path, goals: Mapping[str, Goal] = MappingProxyType({})) -> Outcome:
        """Runs a complete configuration as ``pe-lightning fit`` does, or resumes it from the last readable checkpoint.

        Options with goals are found first, or are those of the configuration that the folder holds.
        Errors are part of the outcome; KeyboardInterrupt is raised if a signal ends the fit.
        """
        began, metrics, error, trace = time.perf_counter(), {}, None, None
        checkpoint: Path | None = None
        notes: list[str] = []
        disabled = logging.root.manager.disable
        logging.disable(max(disabled, logging.INFO))  # messages of Lightning about every fit
        with warnings.catch_warnings(record=True) as caught:
            try:
                checkpoint, notes = _checkpoint(folder)
                if goals:
                    tree = with_options(tree, found_before(folder, goals) or self.match(tree, goals))
                metrics = self._fit(tree, folder, checkpoint)
            except InputError as refused:
                error = str(refused)
            except SystemExit as ended:
                if isinstance(ended.__context__, KeyboardInterrupt):  # Lightning turns an interrupt into an exit status
                    raise ended.__context__ from None
                error, trace = f"the fit ended the process with status {ended.code}", traceback.format_exc()
            except Exception as failed:  # the other cells still run
                error, trace = f"{type(failed).__name__}: {paragraph(str(failed), 500)}", traceback.format_exc()
            finally:
                logging.disable(disabled)
        texts = dict.fromkeys([*notes, *(" ".join(str(warning.message).split()) for warning in caught)])
        return Outcome(time.perf_counter() - began, metrics, error, trace, checkpoint is not None, tuple(texts))

    def _fit(self, tree: Mapping[str, Any], folder: Path, checkpoint: Path | None) -> dict[str, Any]:
        tree = {**tree, "ckpt_path": None if checkpoint is None else str(checkpoint)}
        recorder = {"folder": str(folder), "table": False, "pictures": self._pictures}
        job = self._job = CommandLine("fit", tree, data=self._data_of(tree), interactive=False, **recorder)
        try:
            job.execute()
        except BaseException:
            if wandb.run is not None:
                wandb.finish(exit_code=1)
            raise
        return dict(job.recorder.metrics)


def run_cells(
    cells: Sequence[Cell],
    record: SweepRecord,
    runner: CellRunner,
    launcher: Launcher = "process",
    cpus: int = 1,
    gpus: float = 0.0,
    retries: int = 0,
    bar: bool = True,
) -> int | None:
    """Runs the cells that have no result, until a signal stops them.

    Args:
        cells: The cells; with Ray, cells without ``arguments``, which are no fits, run here.
        record: The record of their folder.
        runner: Runs a cell of this process by its method ``run``.
        launcher: ``process`` runs one cell after the other, ``ray`` as many at a time as the cluster allows: the cluster at
            ``RAY_ADDRESS``, or this machine.
        cpus: With Ray, CPUs per cell.
        gpus: With Ray, GPUs per cell, or a fraction of one.
        retries: With Ray, number of times a cell is resumed after its process died.
        bar: Whether to draw a progress bar.

    Returns:
        The number of the signal that stopped them, if any.
    """
    if launcher == "ray" and find_spec("ray") is None:
        raise InputError('--launcher ray needs Ray: pip install "pe-lightning[ray]"')
    with record.running(cells, raise_interrupted if launcher == "ray" else runner.stop_now, bar) as waiting:
        on_ray = [cell for cell in waiting if launcher == "ray" and cell.arguments]
        for cell in waiting:
            if record.signum is None and cell not in on_ray:
                assert cell.tree is not None
                record.start(cell)
                record.finish(cell, runner.run(cell.tree, record.run_dir(cell), cell.goals))
        if on_ray:
            _run_on_ray(on_ray, record, cpus, gpus, retries)
    return record.signum


def _run_on_ray(cells: Sequence[Cell], record: SweepRecord, cpus: int, gpus: float, retries: int) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        address = os.environ.get("RAY_ADDRESS")
        what = f"reach the Ray cluster at RAY_ADDRESS={address}" if address else "start Ray"
        raise InputError(f"cannot {what}: {' '.join(str(error).split())}") from error
    try:
        sizes = [(node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]
        room = sum(int(min(size[0] / cpus, size[1] / gpus if gpus else size[0])) for size in sizes)
        if not room:
            raise InputError(
                f"no machine of the Ray cluster has {cpus} CPU(s) and {gpus:g} GPU(s) for a cell, but (CPUs, GPUs): {sizes}"
            )
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=retries)(_run_cell)
        waiting = list(cells)
        running: dict[Any, Cell] = {}
        while running or (waiting and record.signum is None):
            while waiting and len(running) < room and record.signum is None:
                cell = waiting.pop(0)
                record.start(cell)
                given = (sys.argv, Path.cwd(), cpus, bool(gpus), cell.tree, record.run_dir(cell), cell.goals)
                running[task.remote(*given)] = cell
            for ended in ray.wait(list(running), timeout=1)[0]:  # a signal is handled between two of these
                record.finish(running.pop(ended), _outcome(ended))
    finally:
        ray.shutdown()


def _outcome(task: Any) -> Outcome:
    import ray

    try:
        return Outcome(**ray.get(task))
    except ray.exceptions.RayError as error:
        reason = next(reversed(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)):
            reason = "its process died, killed or out of memory; sweep.json has the report of Ray"
        return Outcome(0.0, error=reason, trace=traceback.format_exc())


def _run_cell(
    command: list[str],
    folder: Path,
    threads: int,
    gpu: bool,
    tree: Mapping[str, Any],
    run_dir: Path,
    goals: Mapping[str, Goal],
) -> dict[str, Any]:
    sys.argv = command  # records of runs have it
    os.chdir(folder)  # paths in configurations are relative to it
    if not gpu:  # some versions of Ray leave all GPUs visible to a process that asked for none
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    torch.set_num_threads(threads)
    return vars(_runner_of_worker().run(tree, run_dir, goals))


@functools.cache
def _runner_of_worker() -> CellRunner:
    return CellRunner()


def _checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    found = [path for name in (LAST, BEST) if (path := folder / runs.CHECKPOINTS / name).exists()]
    problems: list[str] = []
    for path in found:
        try:
            read_model(path)
        except InputError as error:
            problems.append(str(error))
        else:
            return path, [f"{problem}; resumed from {path.name}" for problem in problems]
    if problems:
        raise InputError(f"{'; '.join(problems)}; move {str(folder)!r} away to run the cell again")
    return None, []

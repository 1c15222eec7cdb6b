"""The cells of a sweep as trials of Ray Tune, side by side on this machine or a cluster."""

from __future__ import annotations

import functools
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from lightning.pytorch import Callback, LightningModule, Trainer
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.cells import Cell
from pe_lightning.studies.sweep.record import Outcome, SweepProgress
from pe_lightning.studies.sweep.running import Fits

FOLDER = ".ray"
"""Folder for the state of Tune during a sweep, in the folder of the sweep."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output prints a banner at every verbosity
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the runs have loggers of their own
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # after the first interrupt, running cells finish
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last report of a cell is its outcome, without the metric
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
}


@contextmanager
def cluster(cpus: int, gpus: float) -> Iterator[None]:
    """Connects to the cluster that ``RAY_ADDRESS`` names, or starts one on this machine for the duration of the block."""
    for variable, value in ENVIRONMENT.items():
        os.environ.setdefault(variable, value)
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        address = os.environ.get("RAY_ADDRESS")
        what = f"reach the Ray cluster at RAY_ADDRESS={address}" if address else "start Ray"
        raise InputError(f"cannot {what}: {' '.join(str(error).split())}") from error
    try:
        sizes = [(node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]
        if not any(cpus <= size[0] and gpus <= size[1] for size in sizes):
            raise InputError(
                f"no machine of the Ray cluster has {cpus} CPU(s) and {gpus:g} GPU(s) for a cell, but (CPUs, GPUs): {sizes}"
            )
        yield
    finally:
        ray.shutdown()


def run_on_ray(progress: SweepProgress, cpus: int, gpus: float, scheduler: str | None, retries: int) -> None:
    """Runs the waiting cells, as many in parallel as the cluster allows, until a signal stops the sweep.

    Arguments are those of :func:`~pe_lightning.studies.sweep.running.run_cells`.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    folder = progress.record.folder.absolute()
    cells = {cell.name: cell for cell in progress.waiting}
    stop_file = folder / FOLDER / "stop"
    shared = {
        "jobs": {name: (cell.tree, progress.record.run_dir(cell)) for name, cell in cells.items()},
        "start": functools.partial(_start_worker, Path.cwd(), cpus, bool(gpus), bool(scheduler)),
        "stop_file": stop_file,
    }
    asha = None
    if scheduler == "asha":
        steps = max(int((cell.tree or {})["trainer"]["max_steps"]) for cell in cells.values())
        options: dict[str, Any] = {"time_attr": "step", "metric": "goodness", "mode": "max", "stop_last_trials": False}
        asha = ASHAScheduler(max_t=max(steps, 1), grace_period=max(steps // 9, 1), reduction_factor=3, **options)
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(_run_cell, **shared), {"cpu": cpus, "gpu": gpus}),
        param_space={"cell": tune.grid_search(list(cells))},
        tune_config=tune.TuneConfig(scheduler=asha, reuse_actors=True),
        run_config=tune.RunConfig(
            name=FOLDER,
            storage_path=str(folder),
            failure_config=tune.FailureConfig(max_failures=retries),
            callbacks=[_Follow(progress, cells, stop_file)],
            verbose=0,
        ),
    )
    try:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)
        tuner.fit()
    finally:
        shutil.rmtree(folder / FOLDER, ignore_errors=True)


class _Follow(tune.Callback):  # type: ignore[misc]
    """Updates the progress of a sweep from its trials."""

    def __init__(self, progress: SweepProgress, cells: Mapping[str, Cell], stop_file: Path) -> None:
        self.progress = progress
        self.cells = cells
        self.stop_file = stop_file

    def __getstate__(self) -> dict[str, Any]:
        return {}  # nothing to restore: sweep.json and the checkpoints of the runs hold the state

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.progress.interrupted:
            self.stop_file.touch()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self.progress.interrupted:
            self.progress.start(self.cells[trial.config["cell"]])

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        cell, result = self.cells[trial.config["cell"]], trial.last_result
        if "outcome" in result:
            self.progress.finish(cell, Outcome(**result["outcome"]))
        elif "skipped" not in result:
            self.progress.stop(cell, result["metric"], result["score"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        text = Path(trial.error_file).read_text() if trial.error_file else "no report of Ray"
        reason = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
        if "OutOfMemoryError" in text or "actor died" in text:
            reason = "its process died, killed or out of memory; sweep.json has the report of Ray"
        self.progress.finish(self.cells[trial.config["cell"]], Outcome(0.0, error=reason, trace=text))


def _run_cell(config: dict[str, Any], jobs: dict[str, Any], start: Callable[[], Fits], stop_file: Path) -> dict[str, Any]:
    """Runs a cell in a process of the cluster. A process runs several cells, one after the other."""
    if stop_file.exists():
        return {"skipped": True}
    return {"outcome": vars(start().run(*jobs[config["cell"]]))}


def _start_worker(folder: Path, threads: int, gpu: bool, report: bool) -> Fits:
    """Prepares this process; the returned object is kept from one cell to the next."""
    os.chdir(folder)  # paths in configurations are relative to it
    if not gpu:  # some versions of Ray leave all GPUs visible to a process that asked for none
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    torch.set_num_threads(threads)
    return _fits(report)


@functools.cache
def _fits(report: bool) -> Fits:
    return Fits([_Report()] if report else [])


class _Report(Callback):
    """Reports each validation to the scheduler, which may then stop the fit."""

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        monitor = getattr(pl_module, "monitor", "")
        if monitor in trainer.callback_metrics:
            score = float(trainer.callback_metrics[monitor])
            goodness = -score if getattr(pl_module, "monitor_mode", "max") == "min" else score
            name = monitor.rpartition("/")[2]
            tune.report({"goodness": goodness, "score": score, "metric": name, "step": trainer.global_step})

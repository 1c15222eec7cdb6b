"""The cells of a sweep as tasks of Ray, side by side on this machine or a cluster."""

from __future__ import annotations

import functools
import logging
import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.cells import Cell
from pe_lightning.studies.sweep.fits import Fits
from pe_lightning.studies.sweep.record import Outcome, SweepRecord


def run_on_ray(cells: Sequence[Cell], record: SweepRecord, cpus: int, gpus: float, retries: int) -> None:
    """Runs cells, as many in parallel as the cluster has room for, until a signal stops the sweep.

    The cluster is the one that ``RAY_ADDRESS`` names, or is started on this machine. Further arguments are those of
    :func:`~pe_lightning.studies.sweep.running.run_cells`.
    """
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
                running[task.remote(Path.cwd(), cpus, bool(gpus), cell.tree, record.run_dir(cell))] = cell
            for ended in ray.wait(list(running), timeout=1)[0]:  # a signal is handled between two of these
                record.finish(running.pop(ended), _outcome(ended))
    finally:
        ray.shutdown()


def _outcome(task: Any) -> Outcome:
    try:
        return Outcome(**ray.get(task))
    except ray.exceptions.RayError as error:
        reason = next(reversed(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)):
            reason = "its process died, killed or out of memory; sweep.json has the report of Ray"
        return Outcome(0.0, error=reason, trace=traceback.format_exc())


def _run_cell(folder: Path, threads: int, gpu: bool, tree: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """Runs a cell in a process of the cluster, which may run several, one after the other."""
    os.chdir(folder)  # paths in configurations are relative to it
    if not gpu:  # some versions of Ray leave all GPUs visible to a process that asked for none
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch

    torch.set_num_threads(threads)
    return vars(_fits().run(tree, run_dir))


@functools.cache
def _fits() -> Fits:
    return Fits()

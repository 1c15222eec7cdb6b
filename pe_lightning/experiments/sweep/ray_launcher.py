"""The fits of a sweep on the machines of a Ray cluster."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.attempts import Job, Outcome
from pe_lightning.experiments.sweep.launchers import Queue, Results
from pe_lightning.experiments.sweep.ray_worker import Worker
from pe_lightning.experiments.sweep.share import Share

__all__ = ["check_cells", "cluster", "require_ray"]

POLL = 1.0
"""Seconds after which a launcher looks whether the user has asked it to stop."""
PATIENCE = 30.0
"""Seconds without a worker after which the user is told."""


def require_ray() -> None:
    """Checks that Ray is installed.

    Raises:
        InputError: If it is not.
    """
    try:
        import ray  # noqa: F401
    except ImportError as error:
        raise InputError(f'--launcher ray needs Ray ({error}): pip install "pe-lightning[ray]"') from error


def check_cells(trees: Sequence[Mapping[str, Any]], share: Share) -> None:
    """Checks that cells leave the choice of devices to Ray.

    Raises:
        InputError: If one asks for a GPU and gets none, or for a particular one.
    """
    for tree in trees:
        accelerator, devices = tree["trainer"]["accelerator"], tree["trainer"]["devices"]
        if not share.gpus and accelerator in ("gpu", "cuda"):
            raise InputError(f"--trainer.accelerator {accelerator} with --launcher ray needs --gpus_per_cell 1")
        if share.gpus and accelerator == "cpu":
            raise InputError("--trainer.accelerator cpu leaves no use for --gpus_per_cell; leave out one of them")
        if isinstance(devices, list):
            raise InputError(f"Ray chooses the device of a cell: set --trainer.devices 1 (now {devices})")


@contextmanager
def cluster(share: Share) -> Iterator[RayLauncher]:
    """A launcher on the cluster that Ray finds, or on one of this machine that ends with the block.

    Args:
        share: What each cell gets of it.

    Raises:
        InputError: If there is no such cluster, or no machine in it that is large enough for a cell.
    """
    import ray

    found = ray.is_initialized()  # by the program that calls this one
    if not found:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster that is started here
        try:
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            address = os.environ.get("RAY_ADDRESS")
            where = f"reach the Ray cluster at RAY_ADDRESS={address}" if address else "start Ray"
            raise InputError(f"cannot {where}: {' '.join(str(error).split())}") from error
    try:
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        places = sum(share.places(resources) for resources in machines)
        if not places:
            largest = ", ".join(f"{size.get('CPU', 0):g} CPU(s) and {size.get('GPU', 0):g} GPU(s)" for size in machines)
            raise InputError(
                f"no machine of the Ray cluster has {share} for a cell: {largest}. Lower --cpus_per_cell or --gpus_per_cell"
            )
        yield RayLauncher(share, places, idle_gpus=not share.gpus and any("GPU" in size for size in machines))
    finally:
        if not found:
            ray.shutdown()


class RayLauncher:
    """Runs fits in worker processes, as many at a time as the cluster has places for.

    A worker that dies takes one fit with it and is replaced by a new one.

    Args:
        share: What each worker gets of the cluster.
        places: How many workers it has room for.
        idle_gpus: Whether it has GPUs that no worker gets.
    """

    def __init__(self, share: Share, places: int, idle_gpus: bool = False) -> None:
        self.share = share
        self.places = places
        self.idle_gpus = idle_gpus
        self._starting: dict[Any, Any] = {}  # what will be ready -> the worker
        self._running: dict[Any, tuple[Any, Job, float]] = {}
        self._idle: list[Any] = []

    def run(self, queue: Queue) -> Results:
        """Runs until nothing is left; workers end with it, whatever they are doing."""
        import ray

        if self.idle_gpus:
            queue.say("The Ray cluster has GPUs, and cells get none of them; to use them: --gpus_per_cell 1")
        for _ in range(min(self.places, queue.left())):
            self._start_worker()
        began, problem = time.perf_counter(), ""
        try:
            while self._running or queue.left():
                while self._idle and (job := queue.take()) is not None:
                    worker = self._idle.pop()
                    self._running[worker.run.remote(job)] = worker, job, time.perf_counter()
                if not self._running and not self._starting:
                    raise InputError(f"no worker of the Ray cluster can start: {problem}")
                if not self._running and time.perf_counter() - began > PATIENCE:
                    queue.say(f"Waiting for Ray to start a worker with {self.share}; others may be using the cluster")
                    began = float("inf")
                ready, _ = ray.wait([*self._starting, *self._running], timeout=POLL)
                for reference in ready:
                    if reference in self._starting:
                        problem = self._started(reference, queue) or problem
                    else:
                        yield self._finished(reference, queue)
        finally:
            for worker in [*self._starting.values(), *self._idle, *(worker for worker, *_ in self._running.values())]:
                ray.kill(worker)

    def _start_worker(self) -> None:
        import ray

        worker = ray.remote(num_cpus=self.share.cpus, num_gpus=self.share.gpus)(Worker).remote()
        ready = worker.start.remote(str(Path.cwd()), self.share.cpus, bool(self.share.gpus))
        self._starting[ready] = worker

    def _started(self, reference: Any, queue: Queue) -> str | None:
        """Gives a new worker its place; or says why it has none."""
        import ray

        worker = self._starting.pop(reference)
        try:
            ray.get(reference)
        except ray.exceptions.RayError as error:
            ray.kill(worker)
            problem = _problem(error)
            queue.say(f"A worker cannot start: {problem}")
            return problem
        self._idle.append(worker)
        return None

    def _finished(self, reference: Any, queue: Queue) -> tuple[Job, Outcome]:
        """The outcome of a fit, whose worker is free again or replaced."""
        import ray

        worker, job, began = self._running.pop(reference)
        try:
            outcome, texts = ray.get(reference)
        except ray.exceptions.RayError as error:
            ray.kill(worker)
            if queue.left():
                self._start_worker()
            return job, Outcome(time.perf_counter() - began, {}, _problem(error), str(error))
        self._idle.append(worker)
        for text in texts:
            queue.warn(job, text)
        return job, outcome


def _problem(error: Exception) -> str:
    """The gist of an error of Ray, whose text has many lines."""
    import ray

    lines = [line for line in str(error).splitlines() if line.strip()]
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "the worker was ended because its machine ran out of memory"
    if isinstance(error, ray.exceptions.ActorDiedError):
        return "the worker process died, killed or out of memory; sweep.json has what Ray says of it"
    return lines[-1].strip() if lines else type(error).__name__

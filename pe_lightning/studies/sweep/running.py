"""Runs the cells of a sweep that have no result, here or with Ray: for ``sweep``, and for verbs of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.cells import Cell, checked, reseeded
from pe_lightning.studies.sweep.fits import Fits
from pe_lightning.studies.sweep.record import Outcome, SweepProgress, SweepRecord

__all__ = ["Cell", "Fits", "Launcher", "Outcome", "SweepRecord", "checked", "reseeded", "run_cells"]

Launcher: TypeAlias = Literal["process", "ray"]


def run_cells(
    cells: Sequence[Cell],
    record: SweepRecord,
    fits: Fits,
    launcher: Launcher = "process",
    cpus: int = 1,
    gpus: float = 0.0,
    scheduler: str | None = None,
    retries: int = 0,
    bar: bool = True,
) -> int | None:
    """Runs the cells that have no result, until a signal stops them.

    Args:
        cells: The cells; with Ray, those without ``arguments``, which are no fits, run here.
        record: The record of their folder.
        fits: Runs a cell of this process by its method ``run``.
        launcher: ``process`` runs one cell after the other, ``ray`` as many at a time as the cluster allows.
        cpus: With Ray, CPUs per cell.
        gpus: With Ray, GPUs per cell, or a fraction of one.
        scheduler: With Ray, ``asha`` stops the worse cells early.
        retries: With Ray, number of times a cell is resumed after its process died.
        bar: Whether to draw a progress bar.

    Returns:
        The number of the signal that stopped them, if any.
    """
    missing = [cell for cell in cells if cell.tree is not None and record.finished(cell) is None]
    on_ray = [cell for cell in missing if cell.arguments] if launcher == "ray" else []
    if on_ray:
        if find_spec("ray") is None:
            raise InputError('--launcher ray needs Ray Tune: pip install "pe-lightning[ray]"')
        from pe_lightning.studies.sweep.on_ray import cluster, run_on_ray
    with cluster(cpus, gpus) if on_ray else nullcontext(), record.locked():
        progress = SweepProgress(cells, record, bar, scheduler is not None)
        with progress.following() if launcher == "ray" else progress.following(fits.stop_now):
            for cell in progress.waiting:
                if not progress.interrupted and cell not in on_ray:
                    assert cell.tree is not None
                    progress.start(cell)
                    progress.finish(cell, fits.run(cell.tree, record.run_dir(cell)))
            if on_ray:
                progress.waiting = [cell for cell in progress.waiting if cell in on_ray]
                run_on_ray(progress, cpus, gpus, scheduler, retries)
    return progress.signum

"""Runs the cells of a sweep that have no result, here or with Ray: for ``sweep``, and for verbs of other packages."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal, TypeAlias

from pe_lightning.errors import InputError
from pe_lightning.studies.sweep.cells import Cell, checked, reseeded
from pe_lightning.studies.sweep.fits import Fits
from pe_lightning.studies.sweep.record import Outcome, SweepRecord
from pe_lightning.training.interrupts import raise_interrupted

__all__ = ["Cell", "Fits", "Launcher", "Outcome", "SweepRecord", "checked", "reseeded", "run_cells"]

Launcher: TypeAlias = Literal["process", "ray"]


def run_cells(
    cells: Sequence[Cell],
    record: SweepRecord,
    fits: Fits,
    launcher: Launcher = "process",
    cpus: int = 1,
    gpus: float = 0.0,
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
        retries: With Ray, number of times a cell is resumed after its process died.
        bar: Whether to draw a progress bar.

    Returns:
        The number of the signal that stopped them, if any.
    """
    if launcher == "ray" and find_spec("ray") is None:
        raise InputError('--launcher ray needs Ray: pip install "pe-lightning[ray]"')
    with record.running(cells, raise_interrupted if launcher == "ray" else fits.stop_now, bar) as waiting:
        on_ray = [cell for cell in waiting if launcher == "ray" and cell.arguments]
        for cell in waiting:
            if record.signum is None and cell not in on_ray:
                assert cell.tree is not None
                record.start(cell)
                record.finish(cell, fits.run(cell.tree, record.run_dir(cell)))
        if on_ray:
            from pe_lightning.studies.sweep.on_ray import run_on_ray

            run_on_ray(on_ray, record, cpus, gpus, retries)
    return record.signum

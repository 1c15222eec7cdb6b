"""Finds run directories, and reads each once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pe_lightning.errors import printable
from pe_lightning.results import runs
from pe_lightning.results.config_files import read_config
from pe_lightning.results.run import Run
from pe_lightning.signals.files import real_path

NOT_SEARCHED = frozenset({runs.CHECKPOINTS, runs.RECONSTRUCTIONS, "logs", "wandb"})
"""Folders of a run directory that cannot contain runs."""


class Found(NamedTuple):
    """The result of a search: the runs, and one line per directory that could not be read."""

    runs: tuple[Run, ...]
    problems: tuple[str, ...]


def find_runs(paths: Sequence[str | Path]) -> Found:
    """Reads the run directories at or below the given paths, each once, and does not search below a ``metrics.json``.

    A run without a ``metrics.json``, which was stopped before its end, is listed as a problem.
    """
    problems: list[str] = []
    folders: dict[Path, None] = {}
    for given in paths:
        candidates = dict.fromkeys(_candidates(real_path(given)))
        if not Path(given).is_dir():
            problems.append(f"{printable(given)} is not a directory")
        elif not candidates:
            problems.append(f"{printable(given)} holds no run: no {runs.METRICS} in it or below it")
        folders |= candidates
    found: dict[Path, Run] = {}
    for folder in folders:
        try:
            found[folder] = Run.open(folder)
            if (folder / runs.CONFIG).is_file():
                found[folder] = replace(found[folder], config=read_config(folder / runs.CONFIG))
        except ValueError as error:
            ending = "; compared without its configuration" if folder in found else ""
            problems.append(f"{printable(folder)}: {error}{ending}")
    sweeps: dict[Path, dict[str, dict[str, str]]] = {}
    for folder in dict.fromkeys(folder.parent for folder in found):
        try:
            sweeps[folder] = _varied(folder)
        except (OSError, ValueError, LookupError, TypeError) as error:
            sweeps[folder] = {}
            problems.append(f"{printable(folder / runs.SWEEP)} cannot be read as the record of a sweep: {error!r}")
    named = [
        replace(run, label=_label(folder, found), varied=sweeps[folder.parent].get(folder.name, {}))
        for folder, run in found.items()
    ]
    return Found(tuple(named), tuple(problems))


def _varied(folder: Path) -> dict[str, dict[str, str]]:
    """The varied settings of the cells of a sweep by name, from its record; empty for other folders."""
    if not (folder / runs.SWEEP).is_file():
        return {}
    cells = json.loads((folder / runs.SWEEP).read_text("utf-8"))["cells"]
    return {cell["name"]: dict(cell["settings"]) for cell in cells}


def _candidates(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        is_run = runs.METRICS in files
        if is_run or (runs.CONFIG in files and not NOT_SEARCHED.isdisjoint(below)):
            yield Path(folder)
        below[:] = [] if is_run else sorted(name for name in below if name not in NOT_SEARCHED and name[0] != ".")


def _label(path: Path, all_paths: Iterable[Path]) -> str:
    length = 2
    while sum(other.parts[-length:] == path.parts[-length:] for other in all_paths) > 1:
        length += 1
    return printable(Path(*path.parts[-length:]))

"""``sweep.json``: the cells of a sweep and the state of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml
from filelock import FileLock, Timeout

from pe_lightning import runs
from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.cells import Cell, differences

__all__ = ["RECORD", "Status", "SweepRecord", "read_config"]

RECORD = "sweep.json"
LOCK = ".sweep.lock"
SCHEMA = 1

Status: TypeAlias = Literal["waiting", "running", "done", "failed", "refused", "stopped"]
"""``refused``: by the parser or a constructor, before anything was run; ``running``: now, or when the sweep was killed;
``stopped``: by a scheduler, before its last step."""


class SweepRecord:
    """The record of a sweep's folder, written atomically after every change.

    Cells of earlier commands with the same folder stay in it.

    Args:
        folder: The sweep's folder.

    Raises:
        InputError: If the folder is not a sweep's, or its record cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, dict[str, Any]] = {}
        path = folder / RECORD
        if path.is_file():
            try:
                content = json.loads(path.read_text())
                if content["schema"] != SCHEMA:
                    raise ValueError(f"schema {content['schema']!r}")
                self.entries = {entry["name"]: dict(entry) for entry in content["cells"]}
            except (OSError, ValueError, KeyError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise InputError(
                    f"{str(path)!r} is no readable record of a sweep ({reason}); choose another --out"
                ) from error
        elif folder.exists() and (not folder.is_dir() or any(entry.name != LOCK for entry in folder.iterdir())):
            raise InputError(f"{str(folder)!r} exists and is no sweep: it has no {RECORD}. Choose another --out")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the folder and keeps other sweeps out of it; the lock ends with the process.

        Raises:
            InputError: If another sweep is running there, or the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / LOCK, timeout=0):
                yield
        except Timeout as error:
            raise InputError(f"another sweep is running in {str(self.folder)!r}; wait, or choose another --out") from error
        except PermissionError as error:
            raise InputError(f"cannot write to {str(self.folder)!r}: {error.strerror}; choose another --out") from error

    def finished(self, cell: Cell) -> dict[str, Any] | None:
        """The metrics of a cell that was run with the same configuration before, else ``None``.

        Raises:
            InputError: If it was run with another configuration, or its folder is not the sweep's.
        """
        run = self.folder / cell.name
        if run.exists() and cell.name not in self.entries:
            raise InputError(f"{str(run)!r} is in the way: it is no run of this sweep. Remove it, or choose another --out")
        if cell.tree is None or not (run / runs.METRICS).is_file():
            return None
        changed = differences(read_config(run), cell.tree)
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise InputError(
                f"{str(run)!r} was run with other settings ({'; '.join(changed[:3])}{more}); choose another --out, "
                "or remove that folder to run it again"
            )
        return dict(json.loads((run / runs.METRICS).read_text()))

    def status(self, cell: Cell) -> Status | None:
        """The recorded status of a cell."""
        status: Status | None = self.entries.get(cell.name, {}).get("status")
        return status

    def note(self, cell: Cell, status: Status, **more: Any) -> None:
        """Records the status of a cell; :meth:`write` saves it."""
        self.entries[cell.name] = {
            "name": cell.name,
            "status": status,
            "settings": cell.settings,
            "repeat": cell.repeat,
            "seed": None if cell.tree is None else cell.tree["seed_everything"],
            "arguments": list(cell.arguments),
            "run_dir": None if status in ("waiting", "refused") else cell.name,
            **more,
        }

    def write(self) -> None:
        """Writes the record."""
        content = {"schema": SCHEMA, "name": self.folder.absolute().name, "cells": list(self.entries.values())}
        runs.write_atomically(self.folder / RECORD, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_config(run: Path) -> dict[str, Any]:
    """The configuration in a run directory; empty if there is none that can be read."""
    try:
        tree = yaml.safe_load((run / runs.CONFIG).read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError):
        return {}
    return tree if isinstance(tree, dict) else {}

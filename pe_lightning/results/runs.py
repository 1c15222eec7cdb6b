"""Run directories ``<root>/<data>-<model>-<activation>-<encoder>/<n>``: file names, ``metrics.json``, dotted settings."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pe_lightning.errors import InputError, paragraph
from pe_lightning.signals.files import in_utf8, write_atomically

CONFIG = "config.yaml"
METRICS = "metrics.json"
SWEEP = "sweep.json"
"""Record of a sweep, in the folder of its run directories."""
CHECKPOINTS = "checkpoints"
RECONSTRUCTIONS = "reconstructions"
LOCK = ".lock"
MAX_FILES = 64
"""Largest number of signals that all have files of their own; one HDF5 file has more."""
SCHEMA = 1
"""The value of ``schema`` in ``metrics.json``. Increment when the meaning of a field changes."""
DEVICE = re.compile(r"^(con|prn|aux|nul|(?:com|lpt)[1-9¹²³])(?=\.|$)", re.IGNORECASE)
"""Names that Windows opens no file by, whatever suffix follows."""


def portable(name: str) -> str:
    """The name of a file, with an underscore in names of devices of Windows.

    >>> portable("nul.tar.gz"), portable("console.png")
    ('nul_.tar.gz', 'console.png')
    """
    return DEVICE.sub(r"\1_", name)


def slug(text: str) -> str:
    """Part of a file name: letters, digits, dot, dash and underscore of ``text``, anything else as a dash.

    At most 180 bytes: file systems allow 255, and suffixes follow. Names of devices of Windows get an underscore.
    """
    plain = portable(re.sub(r"[^\w.-]+", "-", in_utf8(text).decode()).strip("-."))
    return os.fsdecode(plain.encode()[:180].decode(errors="ignore").encode()) or "unnamed"


def file_names(names: tuple[str, ...]) -> list[str]:
    """File stems of signals, distinct also where the file system ignores case, and from ``<stem>_comparison``."""
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        base = slug(name)
        candidates = (base if number == 1 else f"{base}-{number}" for number in itertools.count(1))
        stem = next(c for c in candidates if taken.isdisjoint({c.casefold(), f"{c.casefold()}_comparison"}))
        taken |= {stem.casefold(), f"{stem.casefold()}_comparison"}
        result.append(stem)
    return result


def frames_of(count: int, most: int) -> list[int]:
    """Ascending indices of the shown frames: all ``count``, or the middles of ``most`` equal intervals.

    The Thue-Morse sequence moves half of the middles to the frame before, so that both trained and held-out frames are
    shown for any stride of the training grid.

    >>> frames_of(3, 4), frames_of(32, 4)
    ([0, 1, 2], [4, 11, 19, 28])
    """
    parts = min(count, most)
    shift = 1 if count >= 2 * parts else 0
    return [(2 * part + 1) * count // (2 * parts) - shift * (part.bit_count() % 2) for part in range(parts)]


def claim(root: str | Path, name: str) -> Path:
    """Creates the next free directory ``<root>/<name>/<n>``, counting from 1, for this process alone."""
    parent = Path(root) / slug(name)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        taken = [int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()]
        for number in itertools.count(max(taken, default=0) + 1):
            with suppress(FileExistsError):
                (parent / str(number)).mkdir()
                break
        return (parent / str(number)).absolute()
    except OSError as error:
        raise InputError(
            f"cannot create a run directory under {str(parent)!r}: {error.strerror or error}; "
            "choose another place with --trainer.default_root_dir"
        ) from error


class ClaimedFolder:
    """A run directory that this process writes to. A fit locks it, until the process ends in any way."""

    def __init__(self, path: Path, lock: bool) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path, self._was_empty, self._lock = path, not any(path.iterdir()), FileLock(path / LOCK)
        if lock:
            try:
                self._lock.acquire(timeout=0)
            except Timeout as error:
                raise InputError(f"another fit writes to {str(path)!r}: wait until it has ended") from error

    def release(self, worthless: Collection[str] | None = None) -> None:
        """Unlocks the directory, and removes it if it was empty and has no files but ``worthless`` ones."""
        self._lock.release()
        if worthless is not None and self._was_empty and {entry.name for entry in self.path.iterdir()} <= {LOCK, *worthless}:
            shutil.rmtree(self.path, ignore_errors=True)


def in_short(folder: Path) -> Path:
    """A folder below the working directory relative to it, for messages."""
    return Path(os.path.relpath(folder)) if folder.is_relative_to(Path.cwd()) else folder


def of_checkpoint(path: str | Path) -> Path:
    """The run directory of a checkpoint: the parent of ``checkpoints/``, else the checkpoint's own folder."""
    folder = Path(path).absolute().parent
    return folder.parent if folder.name == CHECKPOINTS else folder


class Durations:
    """Wall seconds by activity, since the command began or this object was made."""

    command_began: float | None = None
    """Start of the command of this process, by :func:`time.perf_counter`; ``None`` outside of a command."""

    def __init__(self) -> None:
        now = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self._began = self._marked = now
        if Durations.command_began is not None:
            self._began = Durations.command_began
            self.seconds["start"] = now - self._began

    def mark(self, name: str) -> None:
        """Adds the seconds since the last mark to an activity."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._marked
        self._marked = now

    @property
    def total(self) -> float:
        return time.perf_counter() - self._began


def _finite(number: str) -> int | float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{paragraph(number, 60)} is not a finite number, for which null is written")
    return int(number) if number.lstrip("-").isdecimal() else value


def read_metrics(path: Path) -> dict[str, Any]:
    """The content of a ``metrics.json``; ValueError if it is not JSON, or of another schema."""
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text, parse_float=_finite, parse_int=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError("it has too many levels of lists and mappings") from error
    if not isinstance(content, dict):
        raise ValueError(f"it holds {paragraph(json.dumps(content), 60)}, not a mapping")
    if content.get("schema") != SCHEMA:
        found = paragraph(json.dumps(content.get("schema")), 60)
        raise ValueError(f"its schema is {found}; this version reads {SCHEMA}")
    return content


def write_metrics(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a ``metrics.json`` atomically."""
    for name, value in content.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"cannot write {path.name}: {name}: {error}") from error
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def origin() -> dict[str, str | None]:
    """Entries of ``metrics.json``.

    Returns:
        ``date`` in ISO format and UTC; ``command``, the command line of this process; ``git_commit`` of the working
        directory, ``None`` outside of a repository.
    """
    program = Path(sys.argv[0])
    called = ["python", "-m", program.parent.name] if program.name == "__main__.py" else [program.name]
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        commit = found.stdout.strip() if found.returncode == 0 else None
    except OSError:  # there is no git
        commit = None
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join([*called, *sys.argv[1:]]),
        "git_commit": commit,
    }


RECORDER = "pe_lightning.RunRecorder"
"""Class path of the callback that records a run."""


def recorder_of(callbacks: Sequence[Any]) -> Any:
    """The arguments of the recorder among the callbacks of a configuration; ``None`` without a recorder."""
    found = (entry["init_args"] for entry in callbacks if entry["class_path"].endswith(".RunRecorder"))
    return next(found, None)


RESULT_KEYS = ("trainer", "model", "data", "seed_everything")
"""Sections of a configuration on which the result of a fit depends; the appearance in W&B does not count."""


def result_settings(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a configuration on which the result of a fit depends, by dotted keys without ``init_args``."""
    settings = {key: tree.get(key) for key in RESULT_KEYS}
    if isinstance(trainer := settings["trainer"], Mapping) and isinstance(callbacks := trainer.get("callbacks"), list):
        others = [entry for entry in callbacks if not isinstance(entry, Mapping) or entry.get("class_path") != RECORDER]
        settings["trainer"] = {**trainer, "callbacks": others or None}
    return {key.replace(".init_args", ""): value for key, value in flatten(settings)}


def flatten(tree: Mapping[Any, Any], prefix: str = "", entries: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields the dotted keys of a nested mapping with their values; with ``entries`` also from lists of mappings.

    >>> dict(flatten({"encoder": {"name": "gau", "sigma": 0.1}, "grid": [4, 4]}))
    {'encoder.name': 'gau', 'encoder.sigma': 0.1, 'grid': [4, 4]}
    >>> dict(flatten({"encoder": [{"name": "tri"}, {"name": "rbf"}]}, entries=True))
    {'encoder.0.name': 'tri', 'encoder.1.name': 'rbf'}
    """
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if entries and isinstance(value, (list, tuple)) and value and all(isinstance(entry, Mapping) for entry in value):
            value = dict(enumerate(value))
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{key}.", entries)
        else:
            yield key, value

"""The folder of cached signals: path, size limit, entries and locks. Needs neither Lightning nor torch."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs
from filelock import FileLock

from pe_lightning.errors import InputError, show_bytes

FOLDER_VARIABLE, LIMIT_VARIABLE = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
DEFAULT_LIMIT_GB = 20.0
REMEDY = (
    "empty the cache with `pe-lightning cache clear`, choose another folder with --data.storage.cache_dir DIR or "
    f"{FOLDER_VARIABLE}, or switch the cache off: --data.storage.cache off"
)


class CacheError(InputError):
    """The cache cannot be used; the signals themselves may be valid."""


class Entry(NamedTuple):
    """One file of the cache: key, path, size in bytes, and time of last use in seconds since 1970."""

    key: str
    path: Path
    bytes: int
    used: float

    def describe(self) -> dict[str, Any]:
        """Names, grid, channels and stored dtype of its signals; empty if the file cannot be read."""
        try:
            return read_entry(self.path)[0]
        except Exception:  # NumPy raises many types for a damaged file
            return {}


def read_entry(path: Path) -> tuple[dict[str, Any], np.memmap[Any, np.dtype[Any]]]:
    """The description of an entry and its values, ``(S, N_1, ..., N_D, C)``, mapped into memory."""
    with path.open("rb") as file:
        described = json.loads(np.lib.format.read_array(file, allow_pickle=False).tobytes())
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        return described, np.memmap(file, dtype, "r", file.tell(), shape)


class Cleared(NamedTuple):
    """Result of :meth:`CacheFolder.clear`: removed entries and bytes, and entries that are in use or protected."""

    entries: int
    bytes: int
    busy: int


class CacheFolder:
    """A folder of entries ``<key>.npy``, their temporary files and their locks.

    An entry is written to a temporary file and renamed, so it is complete. Its lock is held while it is written or removed,
    not while it is read. Lock files are empty and never removed: otherwise two processes could hold one lock. Other files in
    the folder are not touched.

    Args:
        folder: Path; ``None``: ``$PE_LIGHTNING_CACHE``, else the user's cache folder (``~/.cache/pe_lightning`` on Linux).
            It need not exist.
        limit_bytes: Largest total size of the entries; ``None``: ``$PE_LIGHTNING_CACHE_GB``, else 20 GB.
    """

    def __init__(self, folder: str | Path | None = None, limit_bytes: int | None = None) -> None:
        default = os.environ.get(FOLDER_VARIABLE) or platformdirs.user_cache_path("pe_lightning", appauthor=False)
        self.path = Path(folder or default).expanduser().absolute()
        self.limit = _default_limit() if limit_bytes is None else limit_bytes

    def entry(self, key: str) -> Path:
        return self.path / f"{key}.npy"

    def temporary(self, key: str) -> Path:
        return self.path / f".{key}.part"

    def lock(self, key: str) -> FileLock:
        return FileLock(self.path / f".{key}.lock")

    def entries(self, form: str = r"([0-9a-f]{64})\.(?:npy|h5)") -> list[Entry]:
        """The entries, least recently used first; ``.h5`` are those of version 0.2."""
        found = []
        with self.errors():
            for path in self.path.iterdir() if self.path.is_dir() else ():
                match = re.fullmatch(form, path.name)
                with suppress(FileNotFoundError):  # another process may remove it
                    if match and path.is_file():
                        found.append(Entry(match[1], path, path.stat().st_size, path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def unfinished(self) -> list[Entry]:
        """Temporary files, of running and of killed processes."""
        return self.entries(r"\.([0-9a-f]{64})\.part")

    def remove(self, entry: Entry) -> bool:
        """Removes an entry or a temporary file unless its lock is held; returns whether it was removed."""
        try:
            with self.lock(entry.key).acquire(timeout=0):
                entry.path.unlink(missing_ok=True)
        except OSError:  # the lock is held (Timeout is an OSError), or the folder is read-only
            return False
        return True

    def clear(self) -> Cleared:
        """Removes all entries and temporary files that no process is writing."""
        size = sum(part.bytes for part in self.unfinished() if self.remove(part))
        entries = self.entries()
        removed = [entry for entry in entries if self.remove(entry)]
        return Cleared(len(removed), size + sum(entry.bytes for entry in removed), len(entries) - len(removed))

    def make_room(self, needed: int) -> None:
        """Removes abandoned temporary files, and least recently used entries until ``needed`` bytes fit."""
        for part in self.unfinished():
            self.remove(part)
        entries = self.entries()
        excess = needed + sum(entry.bytes for entry in [*entries, *self.unfinished()]) - self.limit
        oldest: list[Entry] = []
        while entries and sum(entry.bytes for entry in oldest) < excess:
            oldest.append(entries.pop(0))
        with self.errors():
            free = shutil.disk_usage(self.path).free + sum(entry.bytes for entry in oldest)
        if needed > min(self.limit, free):
            raise CacheError(
                f"the cache in {str(self.path)!r} needs {show_bytes(needed)} for this; its limit is "
                f"{show_bytes(self.limit)} ({LIMIT_VARIABLE}, in GB) and the disk has {show_bytes(free)}; {REMEDY}"
            )
        for entry in oldest:
            self.remove(entry)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Converts :class:`OSError` to :class:`CacheError`."""
        try:
            yield
        except OSError as error:
            problem = f"cannot use the cache in {str(self.path)!r}: {error.strerror or error}"
            raise CacheError(f"{problem}; {REMEDY}") from error


def _default_limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT_GB)
    try:
        limit = int(float(given) * 1e9)
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(
            f"{LIMIT_VARIABLE} is the limit of the cache, a positive number of gigabytes such as 20; got {given!r}"
        )
    return limit

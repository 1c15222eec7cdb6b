"""The folder of decoded signals: its place, its limit, its entries and their locks. It needs neither Lightning nor HDF5."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs
from filelock import FileLock

from pe_lightning.errors import InputError, show_bytes

__all__ = ["CacheError", "CacheFolder", "Cleared", "Entry"]

FOLDER, LIMIT = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
DEFAULT_GB = 20.0
ELSEWHERE = (
    "remove what is cached with `pe-lightning cache clear`, choose another folder with --data.cache_dir DIR or "
    f"{FOLDER}, or do without the cache: --data.cache off"
)


class CacheError(InputError):
    """The cache cannot be used, though the signals may be fine: what is missing, and what to type."""


class Entry(NamedTuple):
    """One file of the cache: its key, its size in bytes, and when it was last used, in seconds since 1970."""

    key: str
    path: Path
    bytes: int
    used: float

    def describe(self) -> dict[str, Any]:
        """The names, grid, channels and stored dtype of the signals in it; empty if the file cannot be read."""
        import h5py

        try:
            with h5py.File(self.path, "r", locking=False) as file:
                plain: dict[str, Any] = json.loads(file["description"][()].tobytes())
                return plain
        except Exception:  # a damaged file makes HDF5 raise anything
            return {}


class Cleared(NamedTuple):
    """What :meth:`CacheFolder.clear` removed, and how many entries another process writes or may not be deleted."""

    entries: int
    bytes: int
    busy: int


class CacheFolder:
    """A folder of entries ``<key>.h5``, the temporary files of their writers and the locks of both.

    An entry appears by renaming, complete or not at all. Its lock is held while it is written or removed, not while it
    is read. Lock files are empty and stay: removing one would let two processes hold it. Other files are left alone.

    Args:
        folder: Where; ``None`` takes ``$PE_LIGHTNING_CACHE``, else the user's cache folder (``~/.cache/pe_lightning`` on
            Linux). It need not exist.
        limit_bytes: Largest sum of the entries' sizes; ``None`` takes ``$PE_LIGHTNING_CACHE_GB``, else 20 GB.

    Raises:
        InputError: If the limit is not a positive number.
    """

    def __init__(self, folder: str | Path | None = None, limit_bytes: int | None = None) -> None:
        default = os.environ.get(FOLDER) or platformdirs.user_cache_path("pe_lightning", appauthor=False)
        self.path = Path(folder or default).expanduser().absolute()
        self.limit = _default_limit() if limit_bytes is None else limit_bytes

    def entry(self, key: str) -> Path:
        """Where the entry of a key is, or would be."""
        return self.path / f"{key}.h5"

    def temporary(self, key: str) -> Path:
        """Where the entry of a key is written before it is renamed."""
        return self.path / f".{key}.part"

    def lock(self, key: str) -> FileLock:
        """The lock of a key; not taken yet."""
        return FileLock(self.path / f".{key}.lock")

    def entries(self, form: str = r"([0-9a-f]{64})\.h5") -> list[Entry]:
        """The entries, the one that was used longest ago first."""
        found = []
        with self.errors():
            for path in self.path.iterdir() if self.path.is_dir() else ():
                match = re.fullmatch(form, path.name)
                with suppress(FileNotFoundError):  # removed meanwhile
                    if match and path.is_file():
                        found.append(Entry(match[1], path, path.stat().st_size, path.stat().st_mtime))
        return sorted(found, key=lambda entry: entry.used)

    def unfinished(self) -> list[Entry]:
        """The temporary files of writers, living or killed."""
        return self.entries(r"\.([0-9a-f]{64})\.part")

    def remove(self, entry: Entry) -> bool:
        """Removes an entry or a temporary file unless its lock is held; tells whether it did."""
        try:
            with self.lock(entry.key).acquire(timeout=0):
                entry.path.unlink(missing_ok=True)
        except OSError:  # held (a Timeout is one), or nobody can write here
            return False
        return True

    def clear(self) -> Cleared:
        """Removes the entries and what killed writers left; not those that are being written, and no other file."""
        size = sum(part.bytes for part in self.unfinished() if self.remove(part))
        entries = self.entries()
        removed = [entry for entry in entries if self.remove(entry)]
        return Cleared(len(removed), size + sum(entry.bytes for entry in removed), len(entries) - len(removed))

    def make_room(self, needed: int) -> None:
        """Removes what killed writers left, and the entries used longest ago until ``needed`` more bytes are allowed.

        Raises:
            CacheError: Before any entry is removed, if the limit or the disk is too small.
        """
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
                f"{show_bytes(self.limit)} ({LIMIT}, in GB) and the disk has {show_bytes(free)}; {ELSEWHERE}"
            )
        for entry in oldest:
            self.remove(entry)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns an error of the file system into :class:`CacheError`."""
        try:
            yield
        except OSError as error:
            problem = f"cannot use the cache in {str(self.path)!r}: {error.strerror or error}"
            raise CacheError(f"{problem}; {ELSEWHERE}") from error


def _default_limit() -> int:
    given = os.environ.get(LIMIT) or str(DEFAULT_GB)
    try:
        limit = int(float(given) * 1e9)
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(f"{LIMIT} is the limit of the cache, a positive number of gigabytes such as 20; got {given!r}")
    return limit

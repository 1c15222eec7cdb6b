"""The folder of decoded signals: its place, its limit, its entries and their locks. It needs neither Lightning nor HDF5."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock

from pe_lightning.errors import InputError

__all__ = ["CacheError", "CacheFolder", "Cleared", "Entry", "read_description", "show_bytes"]

FOLDER, LIMIT = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
DEFAULT_GB = 20.0
DESCRIPTION = "description"
_KEY, _ENTRY, _PART = (re.compile(form) for form in (r"[0-9a-f]{64}", r"([0-9a-f]{64})\.h5", r"\.([0-9a-f]{64})\.part"))
ELSEWHERE = f"choose another folder with --data.cache_dir DIR or {FOLDER}, or do without the cache: --data.cache off"


class CacheError(InputError):
    """The cache cannot be used, though the signals may be fine: what is missing, and what to type."""


@dataclass(frozen=True)
class Entry:
    """One file of the cache."""

    key: str
    """The key that it is found by."""
    path: Path
    bytes: int
    """Size of the file."""
    used: float
    """When it was last used, in seconds since 1970."""

    def describe(self) -> dict[str, Any]:
        """What the entry says that it holds, unverified; empty if it cannot be read."""
        try:
            return read_description(self.path)
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
        folder: Where; ``None`` takes ``$PE_LIGHTNING_CACHE``, else ``~/.cache/pe_lightning``. It need not exist.
        limit_bytes: Largest sum of the entries' sizes; ``None`` takes ``$PE_LIGHTNING_CACHE_GB``, else 20 GB.

    Raises:
        InputError: If the limit is not a positive number.
    """

    def __init__(self, folder: str | Path | None = None, limit_bytes: int | None = None) -> None:
        try:
            self.path = Path(folder).expanduser().absolute() if folder else _default_folder()
        except RuntimeError as error:  # no home
            raise CacheError(f"there is no folder for the cache: {error}; {ELSEWHERE}") from error
        self.limit = _default_limit() if limit_bytes is None else limit_bytes
        if self.limit <= 0:
            raise InputError(f"the limit of the cache is a positive number of bytes, got {limit_bytes}")

    def entry(self, key: str) -> Path:
        """Where the entry of a key is, or would be."""
        if not _KEY.fullmatch(key):
            raise ValueError(f"a key is 64 hexadecimal digits, got {key!r}")
        return self.path / f"{key}.h5"

    def temporary(self, key: str) -> Path:
        """Where the entry of a key is written before it is renamed."""
        return self.path / f".{key}.part"

    def entries(self) -> list[Entry]:
        """The entries, the one that was used longest ago first."""
        return sorted(self._files(_ENTRY), key=lambda entry: entry.used)

    @contextmanager
    def guard(self, needed: int | None = None) -> Iterator[None]:
        """Turns an error of the file system into :class:`CacheError`; ``needed`` is the size of what is written."""
        try:
            yield
        except OSError as error:
            problem = f"cannot use the cache in {str(self.path)!r}: {error.strerror or error}"
            if needed is None:
                raise CacheError(f"{problem}; {ELSEWHERE}") from error
            raise CacheError(f"{problem}; {self.room(needed)}") from error

    def room(self, needed: int, freed: int = 0) -> str:
        """How much is needed and free, ``freed`` included, and how to get more: the end of an error message."""
        free = show_bytes(shutil.disk_usage(self.path).free + freed)
        option = "" if self.path == _default_folder() else f" --cache_dir {shlex.quote(str(self.path))}"
        return (
            f"{show_bytes(needed)} are needed and {free} are free: remove what is cached with `pe-lightning cache "
            f"clear{option}`, {ELSEWHERE}"
        )

    @contextmanager
    def try_lock(self, key: str) -> Iterator[bool]:
        """Holds the lock of a key if it is free; tells whether it was."""
        lock = FileLock(self.lock_path(key))
        try:
            lock.acquire(timeout=0)
        except OSError:  # held, or nobody can write here
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def remove_leftovers(self) -> int:
        """Removes what killed writers left, except for those whose lock is held; returns the bytes."""
        removed = 0
        for part in self.parts():
            with self.try_lock(part.key) as free, suppress(OSError):
                if free:
                    part.path.unlink()
                    removed += part.bytes
        return removed

    def clear(self) -> Cleared:
        """Removes the entries and what killed writers left; not those that are being written, and no other file."""
        size = self.remove_leftovers()
        count = busy = 0
        for entry in self.entries():
            if self.remove(entry):
                count, size = count + 1, size + entry.bytes
            else:
                busy += 1
        return Cleared(count, size, busy)

    def remove(self, entry: Entry) -> bool:
        """Removes an entry unless its lock is held; tells whether it did."""
        with self.try_lock(entry.key) as free:
            if free:
                with self.guard():
                    entry.path.unlink(missing_ok=True)
        return free

    def parts(self) -> list[Entry]:
        """The temporary files of writers, living or killed."""
        return self._files(_PART)

    def lock_path(self, key: str) -> Path:
        """The file that the lock of a key is taken on."""
        return self.path / f".{key}.lock"

    def _files(self, form: re.Pattern[str]) -> list[Entry]:
        found = []
        with self.guard():
            names = os.listdir(self.path) if self.path.is_dir() else []
        for match in filter(None, map(form.fullmatch, names)):
            path = self.path / match[0]
            with suppress(FileNotFoundError):  # removed meanwhile
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found.append(Entry(match[1], path, status.st_size, status.st_mtime))
        return found


def _default_folder() -> Path:
    if folder := os.environ.get(FOLDER):
        return Path(folder).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))  # by its specification, a relative one is ignored
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "pe_lightning"


def _default_limit() -> int:
    given = os.environ.get(LIMIT) or str(DEFAULT_GB)
    try:
        limit = int(float(given) * 1e9)
    except (ValueError, OverflowError):
        limit = 0
    if limit <= 0:
        raise InputError(f"{LIMIT} is the limit of the cache, a positive number of gigabytes such as 20; got {given!r}")
    return limit


def read_description(path: Path) -> dict[str, Any]:
    """What an entry says that it holds: ``kind`` (``signals`` or ``arrays``), and what describes that kind."""
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        plain: dict[str, Any] = json.loads(file[DESCRIPTION][()].tobytes())
    return plain


def show_bytes(size: int) -> str:
    """A size in the largest unit that it reaches, of 1000 each.

    >>> show_bytes(999), show_bytes(20_000_000_000)
    ('999 B', '20.0 GB')
    """
    if size < 1000:
        return f"{size} B"
    unit = min(int(math.log10(size)) // 3, 4)
    return f"{size / 1000**unit:.1f} {('kB', 'MB', 'GB', 'TB')[unit - 1]}"

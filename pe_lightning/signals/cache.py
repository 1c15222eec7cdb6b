"""The cache of decoded signals: one HDF5 file per set of signals, keyed by the content of the files. No torch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import uuid4

import platformdirs
from filelock import FileLock

from pe_lightning import __version__
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.entries import EntryValues, stored_bytes, write_entry
from pe_lightning.signals.files import sha256_of, user_path
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import reading
from pe_lightning.signals.validation import choice, free_memory

FOLDER_VARIABLE, LIMIT_VARIABLE = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
REMEDY = (
    "empty the cache with `pe-lightning cache clear`, choose another folder with --data.storage.cache_dir DIR or "
    f"{FOLDER_VARIABLE}, or switch the cache off: --data.storage.cache off"
)
ENTRY_NAME = re.compile(r"\.?(?P<key>[0-9a-f]{64})(\.[0-9a-f]{32})?\.(h5|part|npy)")
"""Names of entries and temporary files, also of earlier formats."""
ENTRY_FORMAT = 9
"""Increment when the meaning of an entry changes: entries of other formats are not found."""
ABANDONED_SECONDS = 86_400.0
"""Age of a temporary file that no living process is expected to write."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of the free memory for values; training needs memory besides."""


@dataclass(frozen=True)
class Storage:
    """Storage of the values, and the cache of decoded signals.

    Args:
        in_memory: ``true`` loads the signals, ``false`` reads blocks of their file when they are needed, ``auto`` loads them
            if they fit in a quarter of the free memory. Float32 in [0, 1] that is in memory already stays there.
        cache: ``auto`` stores decoded signals for the next run, ``off`` does not.
        cache_dir: Folder of the cache; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.
    """

    in_memory: bool | Literal["auto"] = "auto"
    cache: Literal["auto", "off"] = "auto"
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        choice("in_memory", self.in_memory, ("auto", True, False))
        choice("cache", self.cache, ("auto", "off"))

    def loads(self, raw: RawSignals) -> bool:
        """Whether signals are held in memory; scattered ones always are."""
        if self.in_memory != "auto":
            return self.in_memory or raw.points is not None
        return raw.points is not None or raw.is_loaded or raw.nbytes <= MAX_MEMORY_SHARE * free_memory()


class CacheError(InputError):
    """The cache cannot be used; the signals themselves may be valid."""


class Entry(NamedTuple):
    """One file of the cache; ``used`` is the time of its last use in seconds since 1970."""

    key: str
    path: Path
    bytes: int
    used: float


class SignalCache:
    """A folder of entries ``<key>.h5``, written to temporary files and renamed, so that they are complete.

    One process writes an entry, others that need it wait for its lock. Lock files are never removed: otherwise two processes
    could hold one lock. Other files in the folder are not touched.

    Args:
        folder: By default ``$PE_LIGHTNING_CACHE``, else the user's cache folder (``~/.cache/pe_lightning`` on Linux).
        limit_bytes: Largest total size of the entries; by default ``$PE_LIGHTNING_CACHE_GB``, else 20 GB.
    """

    def __init__(self, folder: str | Path | None = None, limit_bytes: int | None = None) -> None:
        self.path = user_path(folder or os.environ.get(FOLDER_VARIABLE) or _default_folder()).absolute()
        self.limit = _default_limit() if limit_bytes is None else limit_bytes

    def key(self, source: Source) -> str:
        """Key of the signals of a source: 64 hexadecimal digits.

        Its arguments count, and the order, names and contents of its files; their folders and times do not.
        """
        arguments = {name: value for name, value in source.describe().items() if name != "paths"}
        parameters = {**arguments, "source": sources.name_of(type(source)), "pe_lightning": __version__}
        contents = []
        for path in map(Path, source.files()):
            with reading(str(path)):
                contents.append([path.name, sha256_of(path)])
        text = json.dumps({"format": ENTRY_FORMAT, "parameters": parameters, "files": contents}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def entry(self, key: str) -> Path:
        return self.path / f"{key}.h5"

    def entries(self) -> list[Entry]:
        """The entries, and temporary files that killed processes left, least recently used first."""
        found = []
        with self._errors():
            for path in self.path.iterdir() if self.path.is_dir() else ():
                match = ENTRY_NAME.fullmatch(path.name)
                with suppress(FileNotFoundError):  # another process may remove it
                    if match and path.is_file():
                        found.append(Entry(match["key"], path, path.stat().st_size, path.stat().st_mtime))
        abandoned = time.time() - ABANDONED_SECONDS
        return sorted((e for e in found if e.path.suffix != ".part" or e.used < abandoned), key=lambda entry: entry.used)

    def clear(self, entries: Sequence[Entry] | None = None) -> list[Entry]:
        """Removes entries, by default all, and returns those removed."""
        removed = []
        for entry in self.entries() if entries is None else entries:
            with suppress(OSError):  # the folder may be read-only
                entry.path.unlink(missing_ok=True)
                removed.append(entry)
        return removed

    def find(self, key: str, source: Source) -> RawSignals | None:
        """The cached signals of a key, or ``None``; an entry that is not what :func:`write_entry` writes is removed.

        Values with a wrong checksum are decoded again from ``source`` when they are read.
        """
        path = self.entry(key)
        try:
            raw = EntryValues(path, partial(self._restore, key, source)).signals()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._remove_damaged(path, error)
            return None
        with suppress(OSError):  # the cache may be read-only
            os.utime(path)
        return raw

    def store(self, key: str, source: Source) -> RawSignals:
        """The signals of a source, decoded and written unless another process has done so."""
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path / f".{key}.lock"):
                if (found := self.find(key, source)) is None:
                    self._write(key, source)
                    found = self.find(key, source)
        assert found is not None
        return found

    def _restore(self, key: str, source: Source, error: Exception, inode: int) -> None:
        path = self.entry(key)
        with suppress(FileNotFoundError):
            if path.lstat().st_ino == inode:
                self._remove_damaged(path, error)
        self.store(key, source)

    def _remove_damaged(self, path: Path, error: Exception) -> None:
        with suppress(OSError):
            path.unlink()
        reason = str(error).partition(" (")[0].partition("\n")[0]
        rank_zero_info(f"The cached signals in {str(path)!r} were damaged ({reason}) and are decoded again")

    def _write(self, key: str, source: Source) -> None:
        raw = source.read()
        self._make_room(stored_bytes(raw.shape, raw.values.dtype.itemsize))
        temporary = self.path / f".{key}.{uuid4().hex}.part"
        try:
            write_entry(temporary, raw, f"pe_lightning {__version__}", key)
            if source.files() and self.key(source) != key:
                raise InputError("a file was changed while it was read, so its signals were not cached: run again")
            os.replace(temporary, self.entry(key))
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        """Removes the least recently used entries until ``needed`` bytes fit."""
        entries, oldest = self.entries(), []
        held, free = sum(entry.bytes for entry in entries), shutil.disk_usage(self.path).free
        while entries and needed + held > self.limit:
            oldest.append(entries.pop(0))
            held, free = held - oldest[-1].bytes, free + oldest[-1].bytes
        if needed > min(self.limit, free):
            raise CacheError(
                f"the cache in {str(self.path)!r} needs {show_bytes(needed)} for this; its limit is "
                f"{show_bytes(self.limit)} ({LIMIT_VARIABLE}, in GB) and the disk has {show_bytes(free)}; {REMEDY}"
            )
        self.clear(oldest)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"cannot use the cache in {str(self.path)!r}: {error.strerror or error}"
            raise CacheError(f"{problem}; {REMEDY}") from error


def open_signals(source: Source, storage: Storage) -> RawSignals:
    """The signals of a source, from the cache if its files and arguments are unchanged.

    If the default folder of the cache cannot be used, the signals are decoded, with a notice.
    """
    if storage.cache == "off" or not source.files():
        return source.read()
    try:
        cache = SignalCache(storage.cache_dir)
        key = cache.key(source)
        return cache.find(key, source) or cache.store(key, source)
    except CacheError as error:
        if storage.cache_dir is not None:
            raise
        rank_zero_info(f"The decoded signals are not cached: {error}")
        return source.read()


def _default_folder() -> Path:
    try:
        return platformdirs.user_cache_path("pe_lightning", appauthor=False)
    except RuntimeError as error:  # a user without a home directory
        raise CacheError(
            f"no home directory is known, which would hold the cache: set HOME, or {FOLDER_VARIABLE} to a folder"
        ) from error


def _default_limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE) or "20"
    with suppress(ValueError, OverflowError):
        if (limit := int(float(given) * 1e9)) > 0:
            return limit
    raise InputError(f"{LIMIT_VARIABLE} is the limit of the cache, a positive number of gigabytes such as 20; got {given!r}")

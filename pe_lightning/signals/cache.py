"""The cache of decoded signals: one HDF5 file per set of signals, keyed by the content of the decoded files.

:mod:`pe_lightning.signals.entries` writes and reads one file. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import numpy as np
import platformdirs
from filelock import FileLock

from pe_lightning import __version__
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.entries import EntryValues, described_signals, stored_bytes, write_entry
from pe_lightning.signals.files import sha256_of, user_path
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import reading
from pe_lightning.signals.validation import choice, free_memory

FOLDER_VARIABLE, LIMIT_VARIABLE = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
DEFAULT_LIMIT_GB = 20.0
REMEDY = (
    "empty the cache with `pe-lightning cache clear`, choose another folder with --data.storage.cache_dir DIR or "
    f"{FOLDER_VARIABLE}, or switch the cache off: --data.storage.cache off"
)
ENTRY_NAME = re.compile(r"\.?(?P<key>[0-9a-f]{64})(\.[0-9a-f]{32})?\.(h5|part|npy)")
"""Names of entries, of temporary files, and of entries of earlier formats, which are removed like others."""
ENTRY_FORMAT = 7
"""Increment when the meaning of an entry changes; those of another format are not found."""
ABANDONED_SECONDS = 86_400.0
"""Age of a temporary file that no living process is expected to write."""
MAX_MEMORY_SHARE = 0.25
"""Largest share of the free memory for values; training needs memory besides."""


@dataclass(frozen=True)
class Storage:
    """Storage of the values, and the cache of decoded signals.

    Args:
        in_memory: ``true`` loads the signals, ``false`` reads blocks of their file when they are needed, ``auto`` loads them
            if they fit in a quarter of the free memory.
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
        if isinstance(self.in_memory, bool):
            return self.in_memory
        return raw.nbytes <= MAX_MEMORY_SHARE * free_memory()


class CacheError(InputError):
    """The cache cannot be used; the signals themselves may be valid."""


class Entry(NamedTuple):
    """One file of the cache: key, path, size in bytes, and time of last use in seconds since 1970."""

    key: str
    path: Path
    bytes: int
    used: float


class SignalCache:
    """A folder of entries ``<key>.h5``, which are written to temporary files and renamed, so that they are complete.

    Of several processes that need an entry, one writes it, and the others wait for its lock. Lock files are empty and never
    removed: otherwise two processes could hold one lock. Other files in the folder are not touched.

    Args:
        folder: Path; ``None``: ``$PE_LIGHTNING_CACHE``, else the user's cache folder (``~/.cache/pe_lightning`` on Linux).
            It need not exist.
        limit_bytes: Largest total size of the entries; ``None``: ``$PE_LIGHTNING_CACHE_GB``, else 20 GB.
    """

    def __init__(self, folder: str | Path | None = None, limit_bytes: int | None = None) -> None:
        self.path = user_path(folder or os.environ.get(FOLDER_VARIABLE) or _default_folder()).absolute()
        self.limit = _default_limit() if limit_bytes is None else limit_bytes

    def key(self, parameters: Mapping[str, Any], files: Sequence[Path]) -> str:
        """Key of the signals decoded from some files: 64 hexadecimal digits.

        The order, names and contents of the files count, not their folders and times; ``parameters`` is everything else that
        changes the result, as plain JSON values.
        """
        contents = [[path.name, _sha256(path)] for path in map(Path, files)]
        text = json.dumps({"format": ENTRY_FORMAT, "parameters": parameters, "files": contents}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def entry(self, key: str) -> Path:
        return self.path / f"{key}.h5"

    def entries(self) -> list[Entry]:
        """The entries, and temporary files that killed processes left a day ago, least recently used first."""
        found = []
        with self._errors():
            for path in self.path.iterdir() if self.path.is_dir() else ():
                match = ENTRY_NAME.fullmatch(path.name)
                with suppress(FileNotFoundError):  # another process may remove it
                    if match and path.is_file():
                        found.append(Entry(match["key"], path, path.stat().st_size, path.stat().st_mtime))
        abandoned = time.time() - ABANDONED_SECONDS
        return sorted((e for e in found if e.path.suffix != ".part" or e.used < abandoned), key=lambda entry: entry.used)

    def clear(self) -> list[Entry]:
        """Removes all entries; returns what was removed."""
        return self._remove(self.entries())

    def _remove(self, entries: Sequence[Entry]) -> list[Entry]:
        removed = []
        for entry in entries:
            with suppress(OSError):  # the folder may be read-only
                entry.path.unlink(missing_ok=True)
                removed.append(entry)
        return removed

    def key_of(self, source: Source) -> str:
        """Key of the signals of a source."""
        arguments = {name: value for name, value in source.describe().items() if name != "paths"}
        parameters = {**arguments, "source": sources.name_of(type(source)), "pe_lightning": __version__}
        return self.key(parameters, source.files())

    def find(self, key: str, source: Source) -> RawSignals | None:
        """The cached signals of a key, or ``None``. The time of use of the entry is updated.

        An entry that cannot be opened is removed. One whose checksums are wrong is decoded again from ``source`` when its
        values are read.
        """
        path = self.entry(key)
        try:
            raw = described_signals(EntryValues(path, partial(self._restore, key, source)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # HDF5 raises many types for a damaged file
            self._remove_damaged(path, error)
            return None
        with suppress(OSError):  # the cache may be read-only
            os.utime(path)
        return raw

    def store(self, key: str, source: Source) -> RawSignals:
        """The signals of a source, which are decoded and written unless another process has done so."""
        with self._errors():
            self.path.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path / f".{key}.lock"):
                if (found := self.find(key, source)) is None:
                    self._write(key, source)
                    found = self.find(key, source)
        assert found is not None
        return found

    def _restore(self, key: str, source: Source, error: Exception, inode: int) -> None:
        """Decodes the signals of a damaged entry again, unless another process has replaced it."""
        path = self.entry(key)
        with suppress(FileNotFoundError):
            if path.stat().st_ino == inode:
                self._remove_damaged(path, error)
        self.store(key, source)

    def _remove_damaged(self, path: Path, error: Exception) -> None:
        with suppress(OSError):
            path.unlink()
        reason = str(error).partition(" (")[0].partition("\n")[0]
        rank_zero_info(f"The cached signals in {str(path)!r} were damaged ({reason}) and are decoded again")

    def _write(self, key: str, source: Source) -> None:
        raw = source.read()
        self._make_room(stored_bytes(raw.shape, np.dtype(raw.stored).itemsize))
        temporary = self.path / f".{key}.{uuid4().hex}.part"
        try:
            write_entry(temporary, raw, f"pe_lightning {__version__}")
            if source.files() and self.key_of(source) != key:
                raise InputError("a file was changed while it was read, so its signals were not cached: run again")
            os.replace(temporary, self.entry(key))
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        """Removes the least recently used entries until ``needed`` bytes fit."""
        entries, free = self.entries(), shutil.disk_usage(self.path).free
        held, oldest = sum(entry.bytes for entry in entries), 0
        while oldest < len(entries) and needed + held > self.limit:
            held -= entries[oldest].bytes
            free += entries[oldest].bytes
            oldest += 1
        if needed > min(self.limit, free):
            raise CacheError(
                f"the cache in {str(self.path)!r} needs {show_bytes(needed)} for this; its limit is "
                f"{show_bytes(self.limit)} ({LIMIT_VARIABLE}, in GB) and the disk has {show_bytes(free)}; {REMEDY}"
            )
        self._remove(entries[:oldest])

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"cannot use the cache in {str(self.path)!r}: {error.strerror or error}"
            raise CacheError(f"{problem}; {REMEDY}") from error


def open_signals(source: Source, storage: Storage) -> RawSignals:
    """The signals of a source, from the cache if its files and arguments are unchanged.

    If the default folder cannot be used, only a notice is printed.
    """
    if storage.cache == "off" or not source.files():
        return source.read()
    try:
        cache = SignalCache(storage.cache_dir)
        key = cache.key_of(source)
        return cache.find(key, source) or cache.store(key, source)
    except CacheError as error:
        if storage.cache_dir is not None:
            raise
        rank_zero_info(f"The decoded signals are not cached: {error}")
        return source.read()


def _sha256(path: Path) -> str:
    with reading(str(path)):
        return sha256_of(path)


def _default_folder() -> Path:
    try:
        return platformdirs.user_cache_path("pe_lightning", appauthor=False)
    except RuntimeError as error:  # a user without a home directory
        raise CacheError(
            f"no home directory is known, which would hold the cache: set HOME, or {FOLDER_VARIABLE} to a folder"
        ) from error


def _default_limit() -> int:
    given = os.environ.get(LIMIT_VARIABLE) or str(DEFAULT_LIMIT_GB)
    with suppress(ValueError, OverflowError):
        if (limit := int(float(given) * 1e9)) > 0:
            return limit
    raise InputError(f"{LIMIT_VARIABLE} is the limit of the cache, a positive number of gigabytes such as 20; got {given!r}")

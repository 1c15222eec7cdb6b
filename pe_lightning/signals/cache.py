"""The cache of decoded signals: one file per set of signals, keyed by the content of the decoded files.

An entry is two NumPy arrays in one file: a JSON description as bytes, and the values, which are mapped into memory. Nothing
here imports torch.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import platformdirs
from filelock import FileLock, Timeout

from pe_lightning import __version__
from pe_lightning.errors import InputError, show_bytes
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, RawSignals, ValueRange
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import reading
from pe_lightning.signals.validation import choice, free_memory

FOLDER_VARIABLE, LIMIT_VARIABLE = "PE_LIGHTNING_CACHE", "PE_LIGHTNING_CACHE_GB"
DEFAULT_LIMIT_GB = 20.0
REMEDY = (
    "empty the cache with `pe-lightning cache clear`, choose another folder with --data.storage.cache_dir DIR or "
    f"{FOLDER_VARIABLE}, or switch the cache off: --data.storage.cache off"
)
ENTRY_FORMAT = 5
"""Increment when the meaning of an entry changes; those of another format are not found."""
LOCK_NOTICE_SECONDS = 5.0
"""Seconds of waiting for another process before a notice."""
READ_BYTES = 1 << 22
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
        """Whether to load these signals into memory."""
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


class CacheNotice(UserWarning):
    """An event of the cache that costs time only: an entry is rebuilt, or another process is writing it."""


def open_signals(source: Source, storage: Storage) -> RawSignals:
    """The signals of a source, from the cache if its files and arguments are unchanged.

    If the default folder cannot be used, only a notice is printed.
    """
    files = source.files()
    if storage.cache == "off" or not files:
        return source.read()
    cache = SignalCache(storage.cache_dir)
    arguments = {name: value for name, value in source.describe().items() if name != "paths"}
    key = cache.key({**arguments, "source": sources.name_of(type(source)), "pe_lightning": __version__}, files)
    try:
        return cache.find(key) or cache.store(key, source)
    except CacheError as error:
        if storage.cache_dir is not None:
            raise
        rank_zero_info(f"The decoded signals are not cached: {error}")
        return source.read()


class SignalCache(CacheFolder):
    """The cache of decoded signals. An entry that cannot be opened is removed with a :class:`CacheNotice`."""

    def key(self, parameters: Mapping[str, Any], files: Sequence[Path]) -> str:
        """Key of the signals decoded from some files: 64 hexadecimal digits.

        Args:
            parameters: Everything else that changes the result, as plain JSON values.
            files: The files in order. Names and contents count, folders and times do not.
        """
        contents = [[path.name, _sha256(path)] for path in map(Path, files)]
        text = json.dumps({"format": ENTRY_FORMAT, "parameters": parameters, "files": contents}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: str) -> RawSignals | None:
        """The cached signals of a key, or ``None``. The time of use of the entry is updated."""
        path = self.entry(key)
        try:
            plain, values = read_entry(path)
            parts: dict[str, Any] = {"names": tuple(plain["names"]), "grid": tuple(plain["grid"])}
            parts |= {"scaling": ValueRange.from_dict(plain["scaling"]), "blocks": functools.partial(_blocks, path)}
            raw = RawSignals(**{**plain, **parts}, array=functools.partial(_values, path))
            if (raw.shape, raw.stored) != (values.shape, values.dtype.name):
                raise ValueError("values differ from their description")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # NumPy raises many types for a damaged file
            with suppress(OSError):
                path.unlink()
            notice = f"the cached signals in {str(path)!r} were damaged ({error}) and have been removed"
            warnings.warn(f"{notice}; they are decoded again", CacheNotice, stacklevel=2)
            return None
        with suppress(OSError):  # the cache may be read-only
            os.utime(path)
        return raw

    def store(self, key: str, source: Source) -> RawSignals:
        """The signals of a key from the cache; if there are none, they are decoded into it block by block."""
        with self.errors():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self.lock(key)
            try:
                lock.acquire(timeout=LOCK_NOTICE_SECONDS)
            except Timeout:
                notice = f"waiting for another process that writes the same signals to the cache in {str(self.path)!r}"
                warnings.warn(notice, CacheNotice, stacklevel=2)
                lock.acquire()
            try:
                if (found := self.find(key)) is None:
                    self._write(key, source.read())
                    found = self.find(key)
                assert found is not None
                return found
            finally:
                lock.release()

    def _write(self, key: str, raw: RawSignals) -> None:
        stored = np.dtype(raw.stored)
        self.make_room(math.prod(raw.shape) * stored.itemsize)
        described = {name: getattr(raw, name) for name in ("names", "grid", "channels", "stored", "unit", "rate", "media")}
        described["scaling"] = raw.scaling.to_dict()
        text = json.dumps(described, default=lambda number: number.item())
        temporary = self.temporary(key)
        try:
            with temporary.open("wb") as file:
                np.save(file, np.frombuffer(text.encode(), np.uint8))
                header = {"descr": np.lib.format.dtype_to_descr(stored), "fortran_order": False, "shape": raw.shape}
                np.lib.format.write_array_header_1_0(file, header)
                for _, block in raw.decoded():
                    file.write(np.ascontiguousarray(block).data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.entry(key))
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def _values(path: Path) -> AnyArray:
    return read_entry(path)[1]


def _blocks(path: Path) -> Iterator[AnyArray]:
    """The values in order, in arrays ``(n, N_2, ..., N_D, C)`` of one signal each."""
    for signal in _values(path):
        step = max(1, READ_BYTES // signal[:1].nbytes)
        yield from (signal[row : row + step] for row in range(0, len(signal), step))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with reading(str(path)), path.open("rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
    return digest.hexdigest()

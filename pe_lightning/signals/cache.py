"""The cache of decoded signals: one HDF5 file per set of signals, keyed by the content of the decoded files.

The values have a checksum per chunk, which HDF5 verifies on every read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from filelock import Timeout

from pe_lightning import __version__
from pe_lightning.signals.cache_folder import CacheError, CacheFolder
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.hdf5 import PatientFile
from pe_lightning.signals.options import Storage
from pe_lightning.signals.raw import AnyArray, RawSignals, Scaling
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import reading
from pe_lightning.signals.values import decoded_blocks

ENTRY_FORMAT = 4
"""Increment when the meaning of an entry changes; those of another format are not found."""
LOCK_NOTICE_SECONDS = 5.0
"""Seconds of waiting for another process before a notice."""
CHUNK_BYTES = 1 << 20
READ_BYTES = 1 << 22
CHUNK_CACHE_BYTES = 1 << 24


class CacheNotice(UserWarning):
    """An event of the cache that costs time only: an entry is rebuilt, or another process is writing it."""


class DamagedEntry(CacheError):
    """An entry is damaged and was removed; the next attempt decodes the signals again."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; run again to decode them again")
        self.notice = f"{problem}; they are decoded again"


def open_signals(source: Source, storage: Storage) -> RawSignals:
    """The signals of a source, from the cache if its files and arguments are unchanged."""
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
        """The cached signals of a key, or ``None``."""
        try:
            return StoredSignals(self.entry(key)).describe()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DamagedEntry as error:
            warnings.warn(error.notice, CacheNotice, stacklevel=2)
            return None

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
                found = self.find(key)
                if found is None:
                    raw = source.read()
                    self.make_room(math.prod(raw.shape) * np.dtype(raw.stored).itemsize)
                    self._write(key, raw)
                    found = StoredSignals(self.entry(key)).describe()
                return found
            finally:
                lock.release()

    def _write(self, key: str, raw: RawSignals) -> None:
        temporary, stored = self.temporary(key), np.dtype(raw.stored)
        described = {name: getattr(raw, name) for name in ("names", "grid", "channels", "stored", "unit", "rate", "media")}
        described["scaling"] = raw.scaling.to_dict()
        text = np.frombuffer(json.dumps(described, default=lambda number: number.item()).encode(), dtype=np.uint8)
        try:
            with PatientFile(temporary) as file:
                # this version of the HDF5 format has checksums for metadata
                with h5py.File(file, "w", libver=("v110", "v110"), rdcc_nbytes=CHUNK_CACHE_BYTES) as entry:
                    entry.create_dataset("description", data=text, chunks=text.shape, fletcher32=True)
                    chunks = _chunks(raw.shape, stored)
                    values = entry.create_dataset("values", raw.shape, stored, chunks=chunks, fletcher32=True)
                    for signal, row, block in decoded_blocks(raw):
                        values[signal, row : row + len(block)] = block
                        file.check()
                file.check()
                os.fsync(file.fileno())
            os.replace(temporary, self.entry(key))
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


class StoredSignals:
    """The values of an entry, read by slices. Unpickling opens the file again.

    Args:
        path: The entry. Its time of use is updated.

    Raises:
        FileNotFoundError: If there is no such file.
        DamagedEntry: If it is not an intact HDF5 file, or a checksum is wrong when values are read; the entry is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.stat()  # HDF5 does not distinguish a missing file from a damaged one
        with suppress(OSError):  # the cache may be read-only
            os.utime(path)
        try:
            self._values = h5py.File(path, "r", locking=False, rdcc_nbytes=CHUNK_CACHE_BYTES)["values"]
            plain = json.loads(self._values.file["description"][()].tobytes())
            parts = {"names": tuple(plain["names"]), "grid": tuple(plain["grid"])}
            self._description = {**plain, **parts, "scaling": Scaling.from_dict(plain["scaling"])}
        except Exception as error:  # HDF5 raises many types for a damaged file
            raise self._damaged(error) from error
        self.shape: tuple[int, ...] = self._values.shape

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredSignals, (self.path,)

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of a block."""
        try:
            values: AnyArray = self._values[index]
        except OSError as error:
            raise self._damaged(error) from error
        return values

    def blocks(self) -> Iterator[AnyArray]:
        """The values in order, in arrays ``(n, N_2, ..., N_D, C)`` of one signal each."""
        signals, rows = self.shape[:2]
        step = max(1, READ_BYTES // (math.prod(self.shape[2:]) * self._values.dtype.itemsize))
        together = max(1, step // rows)  # several small signals per read
        for signal in range(0, signals, together):
            for row in range(0, rows, step):
                yield from self[signal : signal + together, row : row + step]

    def describe(self) -> RawSignals:
        """Description of the signals, whose values are read from this entry."""
        # not an attribute: a reference cycle would keep the file open, and HDF5 does not see changes of an open file
        return RawSignals(**self._description, blocks=self.blocks, array=self._itself)

    def _itself(self) -> StoredSignals:
        return self

    def _damaged(self, error: Exception) -> DamagedEntry:
        """Removes the entry."""
        with suppress(OSError):
            self.path.unlink()
        reason = str(error).partition(" (")[0].partition("\n")[0]
        return DamagedEntry(f"the cached signals in {str(self.path)!r} were damaged ({reason}) and have been removed")


def _chunks(shape: Sequence[int], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Chunk shape of at most 1 MiB, contiguous in row-major order.

    >>> _chunks((2, 1000, 1000, 3), np.dtype("uint8"))
    (1, 334, 1000, 3)
    """
    chunks = list(shape)
    for axis, size in enumerate(shape):
        most = CHUNK_BYTES // (math.prod(shape[axis + 1 :]) * dtype.itemsize)
        if most >= 1:
            chunks[axis] = math.ceil(size / math.ceil(size / most))
            break
        chunks[axis] = 1
    return tuple(chunks)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with reading(str(path)), path.open("rb") as file:
        while part := file.read(READ_BYTES):
            digest.update(part)
    return digest.hexdigest()

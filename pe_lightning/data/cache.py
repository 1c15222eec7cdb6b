"""The cache of decoded signals: one HDF5 file per set of signals, keyed by the content of what it was decoded from.

The values carry a checksum per chunk, which HDF5 compares whenever it reads one.
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
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning import __version__
from pe_lightning.cache_folder import CacheError, CacheFolder
from pe_lightning.data.options import Storage
from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.data.sources.paths import reading
from pe_lightning.data.values import decoded_blocks
from pe_lightning.hdf5 import PatientFile

__all__ = ["CacheError", "CacheNotice", "DamagedEntry", "SignalCache", "open_signals"]

FORMAT = 4
"""Increment when the meaning of an entry changes; those of another format are not found."""
PATIENCE = 5.0
"""Seconds after which a notice says that another process is waited for."""
CHUNK_BYTES = 1 << 20
READ_BYTES = 1 << 22
CHUNK_CACHE_BYTES = 1 << 24


class CacheNotice(UserWarning):
    """What happened to the cache that costs time but nothing else: an entry is rebuilt, another process is waited for."""


class DamagedEntry(CacheError):
    """The values of an entry could not be read; the entry was removed, so that the next attempt decodes them anew."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; run again to decode them anew")
        self.notice = f"{problem}; they are decoded anew"


def open_signals(source: Source, storage: Storage) -> RawSignals:
    """The signals of a source, from the cache if its files and arguments have not changed.

    Raises:
        InputError: If the source cannot be read, or a cache folder that was named cannot be used. Of the default folder
            that is a notice only.
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
        rank_zero_info(f"The decoded signals are not kept for the next run: {error}")
        return source.read()


class SignalCache(CacheFolder):
    """Decoded signals in a folder. An entry that cannot be opened is removed with a :class:`CacheNotice`."""

    def key(self, parameters: Mapping[str, Any], files: Sequence[Path]) -> str:
        """The key of what is decoded from files: 64 hexadecimal digits.

        Args:
            parameters: Everything else that changes the result: what is decoded, and how; plain JSON values.
            files: The files in their order. Their names and their content count, not where they are nor how old.

        Raises:
            InputError: If a file cannot be read.
        """
        contents = [[path.name, _sha256(path)] for path in map(Path, files)]
        text = json.dumps({"format": FORMAT, "parameters": parameters, "files": contents}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def find(self, key: str) -> RawSignals | None:
        """The signals of a key, to be read from the cache, or ``None``."""
        try:
            return StoredSignals(self.entry(key)).describe()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DamagedEntry as error:
            warnings.warn(error.notice, CacheNotice, stacklevel=2)
            return None

    def store(self, key: str, source: Source) -> RawSignals:
        """The signals of a key: those of the cache, else decoded into it block by block, never all in memory.

        Raises:
            CacheError: If the folder cannot be written to, or the limit or the disk is too small.
            InputError: If the source cannot be read, or its blocks are not together what it described.
        """
        with self.errors():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self.lock(key)
            try:
                lock.acquire(timeout=PATIENCE)
            except Timeout:
                notice = f"another process is writing the same signals to the cache in {str(self.path)!r}; waiting for it"
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
                # this version of the format has checksums of its metadata
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
    """The values of an entry, read by slices. It can be pickled, and is then opened again.

    Args:
        path: The entry. It is marked as used.

    Raises:
        FileNotFoundError: If there is none.
        DamagedEntry: If it is not an intact HDF5 file; it is removed. At a read, if a checksum is wrong.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.stat()  # HDF5 does not tell a missing file from a damaged one
        with suppress(OSError):  # a cache that may only be read serves as well
            os.utime(path)
        try:
            self._values = h5py.File(path, "r", locking=False, rdcc_nbytes=CHUNK_CACHE_BYTES)["values"]
            plain = json.loads(self._values.file["description"][()].tobytes())
            parts = {"names": tuple(plain["names"]), "grid": tuple(plain["grid"])}
            self._description = {**plain, **parts, "scaling": Scaling.from_dict(plain["scaling"])}
        except Exception as error:  # a damaged file makes HDF5 raise anything
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
        """The values in order: arrays ``(n, N_2, ..., N_D, C)``, none across two signals."""
        signals, rows = self.shape[:2]
        step = max(1, READ_BYTES // (math.prod(self.shape[2:]) * self._values.dtype.itemsize))
        together = max(1, step // rows)  # small signals are read many at a time
        for signal in range(0, signals, together):
            for row in range(0, rows, step):
                yield from self[signal : signal + together, row : row + step]

    def describe(self) -> RawSignals:
        """The signals, with these values."""
        # not an attribute: a cycle would keep the file open, and HDF5 shows an open file as it was
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
    """Chunks of at most 1 MiB that are runs of whole rows: what is read in order is read from the disk in order.

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

"""The cache of decoded signals: one file per set of signals, keyed by the content of the decoded files.

An entry is two NumPy arrays in one file: a JSON description as bytes, and the values, which are mapped into memory.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import Timeout

from pe_lightning import __version__
from pe_lightning.signals.cache_folder import CacheError, CacheFolder, read_entry
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.options import Storage
from pe_lightning.signals.raw import AnyArray, RawSignals, ValueRange
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import reading
from pe_lightning.signals.values import decoded_blocks

ENTRY_FORMAT = 5
"""Increment when the meaning of an entry changes; those of another format are not found."""
LOCK_NOTICE_SECONDS = 5.0
"""Seconds of waiting for another process before a notice."""
READ_BYTES = 1 << 22


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
                for _, _, block in decoded_blocks(raw):
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

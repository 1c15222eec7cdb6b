"""One entry of the cache: an HDF5 file behind a header of 512 bytes that holds the checksum of all the rest.

HDF5 lays the file out, and its space is then filled by ordinary writes: HDF5 cannot recover from a full disk, and ends
the process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any
from weakref import WeakSet

import h5py
import numpy as np

from pe_lightning.cache_folder import DESCRIPTION, CacheError, CacheFolder
from pe_lightning.data.signals import AnyArray

__all__ = ["FORMAT", "VALUES", "Layout", "StoredSignals", "damage", "digest", "entry_bytes", "paths_in_use", "write_entry"]

FORMAT = 1
"""Raised by whatever changes the meaning of an entry; those of another format are written anew."""
VALUES = "values"
CHUNK_BYTES = 1 << 20
HEADER_BYTES = 512
READ_BYTES = 1 << 22
LONG_ROW_BYTES = 1 << 16
_LIBVER = ("v110", "v110")  # its chunks need no index where all are laid out at once
_MAGIC = b"pe-lightning cache, format "


@dataclass(frozen=True)
class Layout:
    """An array in the file: its shape, dtype, and the chunks it is cut into; without chunks it is one run of bytes.

    A chunk is a run of whole rows in C order, at most 1 MiB, so that what is read in order is read from the disk in order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None = None

    @classmethod
    def chunked(cls, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """Chunks over the last axes that fit, and an even part of the axis before them.

        >>> Layout.chunked((2, 1000, 1000, 3), np.dtype("uint8")).chunks
        (1, 334, 1000, 3)
        """
        chunks = list(shape)
        for axis, size in enumerate(shape):
            most = CHUNK_BYTES // (math.prod(shape[axis + 1 :]) * dtype.itemsize)
            if most >= 1:
                chunks[axis] = math.ceil(size / math.ceil(size / most))
                break
            chunks[axis] = 1
        return cls(shape, dtype, tuple(chunks))

    @property
    def run(self) -> tuple[int, int]:
        """Bytes that follow one another without padding, and the bytes from the start of such a run to the next."""
        if self.chunks is None:
            size = math.prod(self.shape) * self.dtype.itemsize
            return size, size
        axis = next((axis for axis, chunk in enumerate(self.chunks) if chunk > 1), len(self.shape) - 1)
        inner = math.prod(self.shape[axis + 1 :]) * self.dtype.itemsize
        return self.shape[axis] * inner, math.ceil(self.shape[axis] / self.chunks[axis]) * self.chunks[axis] * inner

    @property
    def bytes(self) -> int:
        """Size in the file, padding included."""
        run, step = self.run
        return math.prod(self.shape) * self.dtype.itemsize // run * step if run else 0


def header(key: str, checksum: str) -> bytes:
    """The first 512 bytes of an entry."""
    return (_MAGIC + f"{FORMAT}\n{key}\n{checksum}\n".encode()).ljust(HEADER_BYTES, b"\0")


def digest(file: FileIO) -> str:
    """SHA-256 of what remains to be read of a file, in hexadecimal."""
    result, block = hashlib.sha256(), bytearray(READ_BYTES)
    view = memoryview(block)
    while count := file.readinto(block):
        result.update(view[:count])
    return result.hexdigest()


def damage(path: Path, key: str) -> str | None:
    """Why a file is not the intact entry of a key, or ``None`` if it is. Reads the whole file.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        found = file.read(HEADER_BYTES)
        if not found.startswith(_MAGIC):
            return "is not an entry of the cache"
        number = found[len(_MAGIC) :].partition(b"\n")[0]
        if number != str(FORMAT).encode():
            return f"was written by another version of pe_lightning (format {number[:8].decode(errors='replace')!r})"
        return None if found == header(key, digest(file)) else "is damaged: its checksum is wrong"


def entry_bytes(description: Mapping[str, Any], layouts: Mapping[str, Layout]) -> int:
    """Size of an entry, rounded up."""
    return _content_bytes(layouts) + len(_text(description)) + 4096 * (2 + len(layouts))


def write_entry(
    folder: CacheFolder,
    key: str,
    description: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    blocks: Iterable[tuple[str, AnyArray]],
) -> None:
    """Writes an entry to a temporary file, then renames it: after a kill there is all of it or none.

    Args:
        folder: Where; the lock of the key has to be held, and room to have been made.
        key: Of the entry.
        description: Plain values, for :func:`~pe_lightning.cache_command.read_description`.
        layouts: The arrays by name.
        blocks: ``(name, values)``: the values of the arrays from their starts, in C order.

    Raises:
        CacheError: If the file cannot be written. What ``blocks`` raises is passed on.
    """
    temporary, final = folder.temporary(key), folder.entry(key)
    needed = entry_bytes(description, layouts)
    try:
        with folder.guard(needed):
            starts = _lay_out(temporary, description, layouts)
            file = FileIO(temporary, "r+")
        with file:
            written = dict.fromkeys(layouts, 0)
            for name, block in blocks:
                with folder.guard(needed):
                    _write_runs(file, starts[name], layouts[name], written[name], block)
                written[name] += block.nbytes
            with folder.guard(needed):
                file.seek(HEADER_BYTES)
                checksum = digest(file)
                file.seek(0)
                _write(file, memoryview(header(key, checksum)))
                os.fsync(file.fileno())
        with folder.guard(needed):
            os.replace(temporary, final)
            _sync_folder(final.parent)
    except BaseException:
        with folder.guard():
            temporary.unlink(missing_ok=True)
        raise


def _content_bytes(layouts: Mapping[str, Layout]) -> int:
    return sum(layout.bytes for layout in layouts.values())


def _text(description: Mapping[str, Any]) -> bytes:
    return json.dumps(description).encode()


def _lay_out(path: Path, description: Mapping[str, Any], layouts: Mapping[str, Layout]) -> dict[str, int]:
    """Creates the file with all of its space, and returns where each array starts."""
    # room for what HDF5 itself writes: where the disk is too full for that, this fails as any write does
    path.write_bytes(bytes(entry_bytes(description, layouts) - _content_bytes(layouts)))
    starts = {}
    with h5py.File(path, "w", userblock_size=HEADER_BYTES, libver=_LIBVER, locking=False) as file:
        file[DESCRIPTION] = np.frombuffer(_text(description), dtype=np.uint8)
        for name, layout in layouts.items():
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            if layout.chunks is not None:
                properties.set_chunk(layout.chunks)
            kind = h5py.h5t.py_create(layout.dtype, logical=True)
            place = h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(layout.shape), properties)
            starts[name] = place.get_offset() or 0
    if VALUES in layouts:  # the chunks are the last in the file; HDF5 < 1.14.2 leaves out the header in their positions
        starts[VALUES] = path.stat().st_size - layouts[VALUES].bytes
    return starts


def _write_runs(file: FileIO, start: int, layout: Layout, written: int, block: AnyArray) -> None:
    """Writes the next values of an array, of which ``written`` bytes are there."""
    content = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
    run, step = layout.run
    while content:
        number, inside = divmod(written, run)
        part = content[: run - inside]
        file.seek(start + number * step + inside)
        _write(file, part)
        content, written = content[len(part) :], written + len(part)


def _write(file: FileIO, content: memoryview) -> None:
    while content:  # a write may take a part only
        content = content[file.write(content) :]


def _sync_folder(folder: Path) -> None:
    if hasattr(os, "O_DIRECTORY"):  # so that the name, too, outlives a power cut
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class StoredSignals:
    """The values of an entry of signals, which is in use as long as this lives. It can be pickled.

    Args:
        path: The entry.
        shape: ``(S, N_1, ..., N_D, C)``.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self.path = path
        self.shape = shape
        _in_use.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredSignals, (self.path, self.shape)

    def array(self) -> CachedArray:
        """The values for reading by slices."""
        return CachedArray(self)

    def slabs(self) -> Iterator[AnyArray]:
        """The values in order: arrays ``(n, N_2, ..., N_D, C)``, none across two signals."""
        array = self.array()
        signals, rows = self.shape[:2]
        row_bytes = math.prod(self.shape[2:]) * array.dtype.itemsize
        step = max(1, READ_BYTES // row_bytes)
        for signal in range(0, signals, max(1, step // rows)):  # small signals are read many at a time
            for row in range(0, rows, step):
                yield from array[signal : signal + max(1, step // rows), row : row + step]


class CachedArray:
    """Signals in an entry, read by slices. The file is opened at the first read of each process, and can be pickled.

    Raises:
        CacheError: At a read, if the entry is gone.
    """

    def __init__(self, stored: StoredSignals) -> None:
        self._stored = stored
        self._file: Any = None  # closes when it is collected, and with it all of its data sets
        self._process = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedArray, (self._stored,)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(S, N_1, ..., N_D, C)``."""
        return self._stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self._values().dtype
        return dtype

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of a box, at any steps."""
        values = self._values()
        if all(axis.step in (None, 1) for axis in index):
            plain: AnyArray = values[index]
            return plain
        # HDF5 picks single values 50 times slower than it reads their surroundings
        index = (*index, *[slice(None)] * (len(self.shape) - len(index)))
        signals, rows, *inner = (range(size)[axis] for axis, size in zip(index, self.shape, strict=True))
        result: AnyArray = np.empty([len(signals), len(rows), *map(len, inner)], values.dtype)
        row_bytes = math.prod(self.shape[2:]) * values.dtype.itemsize
        step = abs(rows.step) if row_bytes >= LONG_ROW_BYTES else 1  # long rows are picked one by one
        many = max(1, READ_BYTES * step // (row_bytes * abs(rows.step)))
        thin = (slice(None, None, rows.step // step), *(slice(None, None, axis.step) for axis in inner))
        for place, signal in enumerate(signals):
            for start in range(0, len(rows), many) if result.size else ():
                part = rows[start : start + many]
                box = (signal, slice(min(part), max(part) + 1, step), *map(_span, inner))
                result[place, start : start + many] = values[box][thin]
        return result

    def _values(self) -> Any:
        if self._process != os.getpid():
            if self._file is not None:
                self._file.close()  # the copy of a fork: HDF5 would go on with the state of its parent
            try:
                self._file = h5py.File(self._stored.path, "r", locking=False)
            except OSError as error:
                self._file = None
                raise CacheError(
                    f"the cached signals in {str(self._stored.path)!r} are gone or unreadable ({error}): the cache was "
                    "cleared, or is too small for all that use it; run again"
                ) from error
            self._process = os.getpid()
        return self._file[VALUES]


def _span(taken: range) -> slice:
    return slice(min(taken), max(taken) + 1)


_in_use: WeakSet[StoredSignals] = WeakSet()


def paths_in_use() -> set[Path]:
    """The entries whose signals this process can still read."""
    return {stored.path for stored in list(_in_use)}

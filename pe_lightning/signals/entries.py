"""One entry of the cache: an HDF5 file of decoded signals, which any HDF5 tool opens. No torch.

The dataset ``values``, ``(S, N_1, ..., N_D, C)``, has chunks with Fletcher-32 checksums, and attributes that describe the
signals, with a checksum of their own. Only what :func:`write_entry` writes is read.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pe_lightning.signals.axes import Axis
from pe_lightning.signals.raw import BLOCK_VALUES, AnyArray, RawSignals, ValueRange

CHUNK_VALUES = 1 << 18
"""Values of one block of all signals, 1 MB as float32: what one read of random points takes."""
MIN_CHUNK_SAMPLES = 1 << 14
"""Fewest samples of a chunk of large signals, however many signals there are."""
LAYER_BYTES = 1 << 25
"""Most bytes of a layer of chunks, which are in memory at once, unless one row is larger."""
CHUNK_CACHE_BYTES = 1 << 22
"""Four of the largest chunks: blocks are whole chunks, and a larger cache takes more time to fill."""
CHUNK_CACHE_SLOTS = 1_009
"""A prime number of slots, many more than the cache holds chunks, as HDF5 recommends."""
CHECKSUM = "sha256"
"""Attribute with the checksum of an entry's description."""


def chunk_shape(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Shape of the chunks of values ``(S, N_1, ..., N_D, C)``, for blocks of a grid and for random points alike.

    Chunks of large signals are nearly cubic and hold one signal; small signals share a chunk.

    >>> chunk_shape((1, 512, 512, 512, 1), 1)
    (1, 64, 64, 64, 1)
    >>> chunk_shape((60000, 28, 28, 1), 1)
    (256, 28, 28, 1)
    """
    signals, *grid, channels = shape
    samples = max(CHUNK_VALUES // (signals * channels), MIN_CHUNK_SAMPLES)
    sides, limits = [1] * len(grid), list(grid)
    limits[0] = min(grid[0], max(1, LAYER_BYTES // (math.prod(grid[1:]) * channels * itemsize)))
    while growing := [axis for axis in range(len(grid)) if sides[axis] < limits[axis]]:
        axis = min(reversed(growing), key=sides.__getitem__)
        if 2 * math.prod(sides) > samples:
            break
        sides[axis] = min(2 * sides[axis], limits[axis])
    whole, together = all(map(int.__ge__, sides, grid)), 1
    while whole and 2 * together * math.prod(grid) * channels <= CHUNK_VALUES and together < signals:
        together *= 2
    equal = [math.ceil(size / math.ceil(size / side)) for size, side in zip(grid, sides, strict=True)]
    return (min(together, signals), *equal, channels)


def stored_bytes(shape: Sequence[int], itemsize: int) -> int:
    """Bytes of the chunks of an entry; those at the end of an axis are stored whole."""
    chunks = chunk_shape(shape, itemsize)
    return itemsize * math.prod(math.ceil(size / chunk) * chunk for size, chunk in zip(shape, chunks, strict=True))


class _ErrorKeepingFile(FileIO):
    """A new file that keeps its first error for :meth:`check`: HDF5 ends the process if it cannot close a file."""

    error: OSError | None = None

    def write(self, content: Any, /) -> int:
        rest = memoryview(content).cast("B")
        size = len(rest)
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        with suppress(OSError):  # it reserves no space: a write fails if there is none
            return super().truncate(size)
        return size or 0

    def check(self) -> None:
        if self.error is not None:
            raise self.error


def write_entry(path: Path, raw: RawSignals, creator: str, key: str) -> None:
    """Decodes signals into a new file, which must not exist, and flushes it to the disk."""
    together, rows, *_ = chunks = chunk_shape(raw.shape, raw.values.dtype.itemsize)
    names = np.array([name.encode("utf-8", "surrogateescape") for name in raw.names])
    with _ErrorKeepingFile(path, "x+") as file:  # "x": never through a link, never into a file of somebody else
        # this version of the format has checksums of the metadata
        with h5py.File(file, "w", libver=("v110", "v110")) as entry:
            entry.attrs["creator"] = np.bytes_(creator)
            values = entry.create_dataset("values", raw.shape, raw.values.dtype, chunks=chunks, fletcher32=True)
            axes = ["signal", *(f"axis {axis + 1}" for axis in range(len(raw.grid))), "channel"]
            values.attrs["axes"] = np.array(axes, "S")
            values.attrs.create("names", names, dtype=h5py.string_dtype("utf-8", names.dtype.itemsize))
            values.attrs.update({"media": np.bytes_(raw.media), "in_unit_range": raw.unit})
            if raw.rate is not None:
                values.attrs["samples_per_second"] = raw.rate
            if raw.axes:
                values.attrs["coordinates"] = np.bytes_(json.dumps([axis.to_dict() for axis in raw.axes]))
            if raw.note:
                values.attrs["note"] = np.bytes_(raw.note.encode())
            values.attrs["source_dtype"] = np.bytes_(raw.scaling.dtype)
            values.attrs.update({"source_low": raw.scaling.low, "source_high": raw.scaling.high})
            for index, layer in _layers(raw, together, rows):
                values[index] = layer
                file.check()
            entry.flush()  # allocates the last chunks
            values.attrs[CHECKSUM] = np.bytes_(_checksum(values, key))
        file.check()
        os.fsync(file.fileno())


def _layers(raw: RawSignals, together: int, rows: int) -> Iterator[tuple[tuple[slice, slice], AnyArray]]:
    """Layers of whole chunks: signals and rows, and values ``(s, n, N_2, ..., N_D, C)``. No chunk is written twice."""
    signals, length, *rest = raw.shape
    layer: AnyArray = np.empty((together, rows, *rest), raw.values.dtype)
    filled = layer.reshape(-1, *rest)
    start, row, held = 0, 0, 0
    for _, block in raw.decoded():
        while len(block):
            some, many = min(rows, length - row), min(together, signals - start)
            taken = block[: some * many - held]
            filled[held : held + len(taken)] = taken
            held, block = held + len(taken), block[len(taken) :]
            if held == some * many:
                yield (slice(start, start + many), slice(row, row + some)), filled[:held].reshape(many, some, *rest)
                held, row = 0, row + some
                if row == length:
                    start, row = start + many, 0


def open_entry(path: Path) -> h5py.Dataset:
    """The values of the entry ``<key>.h5``.

    Raises:
        OSError: If the file is not exactly what :func:`write_entry` writes for this key, beside the numbers, whose checksums
            are checked as they are read. A ``FileNotFoundError`` or ``NotADirectoryError`` if there is none.
    """
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError("it is not a regular file")
    try:
        # network file systems may lack locks
        file = h5py.File(path, locking=False, rdcc_nbytes=CHUNK_CACHE_BYTES, rdcc_nslots=CHUNK_CACHE_SLOTS)
        if list(file) == ["values"] and isinstance(file.get("values", getlink=True), h5py.HardLink):
            values = file["values"]
            if values.attrs[CHECKSUM].decode() == _checksum(values, path.stem):
                return values
    except Exception as error:  # HDF5 raises many types for a damaged file
        raise OSError(str(error)) from error
    raise OSError("it is not what was written")


def _checksum(values: h5py.Dataset, key: str) -> str:
    """SHA-256 of everything but the numbers: key, layout and attributes."""
    about = sorted((name, np.asarray(value).tolist()) for name, value in values.attrs.items() if name != CHECKSUM)
    # virtual and external values have no chunks
    layout = values.shape, values.dtype.str, values.chunks, values.fletcher32, values.id.get_storage_size()
    text = ascii((key, layout, about))
    return hashlib.sha256(text.encode()).hexdigest()


class EntryValues:
    """The values of an entry, ``(S, N_1, ..., N_D, C)``, read by slices.

    Each process opens the file when it first reads from it: a handle is used neither across a fork nor after unpickling.

    Args:
        path: The entry.
        restore: Called with the error and the inode of an entry that cannot be read; writes the entry again, or raises.
            ``None``: the error is raised.
    """

    def __init__(self, path: Path, restore: Callable[[Exception, int], None] | None = None) -> None:
        self.path, self._restore = path, restore
        self._opened: tuple[int, int, h5py.Dataset] | None = None
        self.shape: tuple[int, ...] = self.dataset.shape
        self.chunks: tuple[int, ...] = self.dataset.chunks
        self.dtype: np.dtype[Any] = self.dataset.dtype

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def dataset(self) -> h5py.Dataset:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self.path.lstat().st_ino, open_entry(self.path)
        return self._opened[2]

    def signals(self) -> RawSignals:
        """The signals as the attributes of the entry describe them; values are read when they are needed."""
        about = dict(self.dataset.attrs)
        low, high = tuple(about["source_low"].tolist()), tuple(about["source_high"].tolist())
        return RawSignals(
            self,
            names=tuple(name.decode("utf-8", "surrogateescape") for name in about["names"].tolist()),
            scaling=ValueRange(about["source_dtype"].decode(), low, high),
            unit=bool(about["in_unit_range"]),
            rate=about["samples_per_second"].item() if "samples_per_second" in about else None,
            media=about["media"].decode(),
            axes=tuple(map(Axis.from_dict, json.loads(about.get("coordinates", b"[]")))),
            note=about["note"].decode() if "note" in about else "",
        )

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of a block; values with a wrong checksum are restored first."""
        try:
            values: AnyArray = self.dataset[index]
        except OSError as error:  # a wrong checksum, or a file that cannot be opened again
            if self._restore is None:
                raise
            inode = -1 if self._opened is None else self._opened[1]
            self._opened = None
            self._restore(error, inode)
            values = self.dataset[index]
        return values

    def blocks(self) -> Iterator[AnyArray]:
        """The values in order, in blocks ``(n, N_2, ..., N_D, C)`` of one signal each. The file is closed after them."""
        for signals, rows in itertools.product(*map(_slices, self.shape[:2], self.chunks[:2])):
            for layer in self[signals, rows]:
                few = max(1, BLOCK_VALUES // math.prod(layer.shape[1:]))
                yield from (layer[along] for along in _slices(len(layer), few))
        self._opened = None


def _slices(count: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, count, size)]

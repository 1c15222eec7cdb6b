"""One entry of the cache: an HDF5 file of decoded signals, which any HDF5 tool opens.

The dataset ``values``, ``(S, N_1, ..., N_D, C)``, has chunks with Fletcher-32 checksums, and attributes that describe the
signals. Nothing here imports torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from pe_lightning.signals.raw import BLOCK_VALUES, AnyArray, RawSignals, ValueRange

CHUNK_VALUES = 1 << 18
"""Values of one block of all signals, 1 MB as float32: what one read of random points takes."""
MIN_CHUNK_SAMPLES = 1 << 14
"""Fewest samples of a chunk of large signals, however many signals there are."""
LAYER_BYTES = 1 << 25
"""Most bytes of a layer of chunks, which writing and sequential reading hold in memory, unless one row is larger."""
CHUNK_CACHE_BYTES = 1 << 22
"""Four of the largest chunks: blocks are whole chunks, and a larger cache takes more time to fill."""
CHUNK_CACHE_SLOTS = 1_009
"""A prime number of slots, many more than the cache holds chunks, as HDF5 recommends."""


def chunk_shape(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Shape of the chunks of values ``(S, N_1, ..., N_D, C)``, for blocks of a grid and for random points alike.

    Signals are read together, block by block, in training, and one after another when they are loaded. So chunks of large
    signals are nearly cubic and hold one signal, and small signals share a chunk. The chunks along an axis have nearly equal
    sizes.

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
    """A new file for HDF5, which keeps its first error instead of raising it.

    HDF5 cannot close a file on a full disk, and ends the process. :meth:`check` raises the error instead.
    """

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


def write_entry(path: Path, raw: RawSignals, creator: str) -> None:
    """Decodes signals into a new file, which must not exist, and flushes it to the disk."""
    stored = np.dtype(raw.stored)
    together, rows, *_ = chunks = chunk_shape(raw.shape, stored.itemsize)
    names = np.array([name.encode("utf-8", "surrogateescape") for name in raw.names])
    with _ErrorKeepingFile(path, "x+") as file:  # "x": never through a link, never into a file of somebody else
        # this version of the format has checksums of the metadata
        with h5py.File(file, "w", libver=("v110", "v110")) as entry:
            entry.attrs["creator"] = np.bytes_(creator)
            values = entry.create_dataset("values", raw.shape, stored, chunks=chunks, fletcher32=True)
            axes = ["signal", *(f"axis {axis + 1}" for axis in range(len(raw.grid))), "channel"]
            values.attrs["axes"] = np.array(axes, "S")
            values.attrs.create("names", names, dtype=h5py.string_dtype("utf-8", names.dtype.itemsize))
            values.attrs.update({"media": np.bytes_(raw.media), "in_unit_range": raw.unit})
            if raw.rate is not None:
                values.attrs["samples_per_second"] = raw.rate
            values.attrs["source_dtype"] = np.bytes_(raw.scaling.dtype)
            values.attrs.update({"source_low": raw.scaling.low, "source_high": raw.scaling.high})
            for first, layer in _layers(raw, together, rows):
                values[first] = layer
                file.check()
        file.check()
        os.fsync(file.fileno())


def _layers(raw: RawSignals, together: int, rows: int) -> Iterator[tuple[tuple[slice, slice], AnyArray]]:
    """Layers of whole chunks, so that no chunk is written in parts: their place, and values ``(s, n, N_2, ..., N_D, C)``."""
    signals, length, *rest = raw.shape
    layer: AnyArray = np.empty((together, rows, *rest), raw.stored)
    filled = layer.reshape(-1, *rest)
    first, row, held = 0, 0, 0
    for _, block in raw.decoded():
        while len(block):
            some, many = min(rows, length - row), min(together, signals - first)
            taken = block[: some * many - held]
            filled[held : held + len(taken)] = taken
            held, block = held + len(taken), block[len(taken) :]
            if held == some * many:
                where = slice(first, first + many), slice(row, row + some)
                yield where, filled[:held].reshape(many, some, *rest)
                held, row = 0, row + some
                if row == length:
                    first, row = first + many, 0


def open_entry(path: Path) -> h5py.Dataset:
    """The values of an entry, opened for reading without a lock, which network file systems may lack."""
    path.stat()  # HDF5 does not distinguish a missing file from a damaged one
    file = h5py.File(path, "r", locking=False, rdcc_nbytes=CHUNK_CACHE_BYTES, rdcc_nslots=CHUNK_CACHE_SLOTS)
    return file["values"]


def names_of(values: h5py.Dataset) -> tuple[str, ...]:
    """The names of the signals of an entry, one each."""
    return tuple(name.decode("utf-8", "surrogateescape") for name in values.attrs["names"].tolist())


def described_signals(values: EntryValues) -> RawSignals:
    """The description that the attributes of an entry hold; its values are read when they are needed."""
    dataset = values.dataset
    attributes = dict(dataset.attrs)
    low, high = tuple(attributes["source_low"].tolist()), tuple(attributes["source_high"].tolist())
    return RawSignals(
        names=names_of(dataset),
        grid=dataset.shape[1:-1],
        channels=dataset.shape[-1],
        stored=dataset.dtype.name,
        scaling=ValueRange(attributes["source_dtype"].decode(), low, high),
        unit=bool(attributes["in_unit_range"]),
        blocks=values.blocks,
        array=values.itself,
        rate=attributes["samples_per_second"].item() if "samples_per_second" in attributes else None,
        media=attributes["media"].decode(),
    )


class EntryValues:
    """The values of an entry, ``(S, N_1, ..., N_D, C)``, read by slices.

    A process opens the file once, when it first reads from it: a handle is used neither across a fork nor after unpickling.

    Args:
        path: The entry.
        restore: Called with the error and the inode number of an entry that cannot be read; it writes the entry again, or
            raises.
    """

    def __init__(self, path: Path, restore: Callable[[Exception, int], None]) -> None:
        self.path, self._restore = path, restore
        self._opened: tuple[int, int, h5py.Dataset] | None = None
        self.shape: tuple[int, ...] = self.dataset.shape
        self.chunks: tuple[int, ...] = self.dataset.chunks

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    @property
    def dataset(self) -> h5py.Dataset:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), self.path.stat().st_ino, open_entry(self.path)
        return self._opened[2]

    def __getitem__(self, index: tuple[slice, ...]) -> AnyArray:
        """The values of a block; damaged ones, whose checksum is wrong, are restored first."""
        try:
            values: AnyArray = self.dataset[index]
        except (OSError, KeyError) as error:  # a wrong checksum, or a file that cannot be opened again
            inode = -1 if self._opened is None else self._opened[1]
            self._opened = None
            self._restore(error, inode)
            values = self.dataset[index]
        return values

    def blocks(self) -> Iterator[AnyArray]:
        """The values in order, in blocks ``(n, N_2, ..., N_D, C)`` of one signal each. The file is closed after them."""
        signals, rows = self.chunks[:2]
        for first in range(0, self.shape[0], signals):
            for row in range(0, self.shape[1], rows):
                for layer in self[slice(first, first + signals), slice(row, row + rows)]:
                    few = max(1, BLOCK_VALUES // math.prod(layer.shape[1:]))
                    yield from (layer[start : start + few] for start in range(0, len(layer), few))
        self._opened = None

    def itself(self) -> EntryValues:
        return self

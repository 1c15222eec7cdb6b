"""Array files (``.npy``, ``.npz``, HDF5): meaning of their axes, and reading by slices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.signals.axes import MAX_CHANNELS
from pe_lightning.signals.files import ARRAYS, Format, suffixes_of
from pe_lightning.signals.raw import BLOCK_VALUES, AnyArray, Decoded, RawSignals, join_scalings, value_scaling
from pe_lightning.signals.sources.clips import Clip
from pe_lightning.signals.sources.declared import NOTHING, Declared
from pe_lightning.signals.sources.paths import SourceFile, distinct_names, format_of, numbered, reading
from pe_lightning.signals.validation import check_claim, check_memory, check_numbers, in_common, number_range, one_length

if TYPE_CHECKING:
    from pe_lightning.signals.blocks import Block

Channels: TypeAlias = Literal["auto", "last", "none"]
"""Meaning of the last axis of an array of D + 1 axes, see :func:`read_arrays`."""

MAX_LEVELS = 100
"""Most nested groups in an HDF5 file."""


@dataclass(frozen=True)
class ArrayFile:
    """Header of an array in a file, and the meaning of its axes.

    Args:
        file: The file.
        format: Its format.
        key: Name in the file; empty for a ``.npy`` file.
        shape: ``(S, N_1, ..., N_D, C)`` once the axes are named; the file may lack the first and the last.
        dtype: Dtype in the byte order of this machine, at most 64 bits.
        chunks: Chunk shape of the file, in its own axes.
        counted: Whether the first axis of the file counts signals.
        with_channels: Whether the last axis of the file is channels.
        declared: Values of missing samples, which are read as NaN.
        version: Numbers that change when the file is replaced or written to.
        is_only: Whether the file has no other array.
    """

    file: SourceFile
    format: Format
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    counted: bool = True
    with_channels: bool = True
    declared: Declared = NOTHING
    version: tuple[int, ...] = ()
    is_only: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """One name per signal: the file's, and the array's where the file has several."""
        stem = self.file.stem if self.is_only else f"{self.file.stem}-{self.key.replace('/', '-')}"
        return numbered(stem, self.shape[0])

    @property
    def label(self) -> str:
        return f"{self.key!r} in {self.file.given!r}" if self.key else repr(self.file.given)

    @property
    def read_as(self) -> np.dtype[Any]:
        return self.declared.read_as(self.dtype)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Opens an array that is read by slices; an array of an ``.npz`` file is decoded."""
        if _version(self.file) != self.version:
            raise InputError(f"{self.file.given!r} was changed while it was in use: run again with the file as it is now")
        with _opened(self.file, self.format) as container:
            yield container[self.key] if self.key else container

    def load(self) -> AnyArray:
        check_memory(self.label, self.shape, self.dtype.itemsize, "Save a part of it, or use a coarser one")
        with self.open() as array:
            return np.array(array, dtype=self.dtype)

    def read(self, array: Any, index: Block) -> AnyArray:
        """Contiguous copy of a block ``(s, n_1, ..., n_D, c)`` of the opened array."""
        # negative and open ends are resolved here, because ``length`` may leave out the end of the file
        index = tuple(slice(*part.indices(size)) for part, size in zip(index, self.shape, strict=True))
        inner = index[0 if self.counted else 1 : len(index) if self.with_channels else -1]
        values = self.declared.with_nan(np.array(array[inner], dtype=self.dtype))
        values = values if self.counted else values[None]
        return np.ascontiguousarray(values if self.with_channels else values[..., None][..., index[-1]])

    def decode(self, numbers: Sequence[int], signals: Sequence[int] | None = None) -> Iterator[AnyArray]:
        """Samples at equal distances along the first grid axis, in blocks of whole chunks ``(n, N_2, ..., C)``."""
        step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
        chunk = self.chunks[self.counted] if self.chunks and self.format == "hdf5" else 1
        rows = max(1, BLOCK_VALUES // (math.prod(self.shape[2:]) * chunk)) * chunk
        with self.open() as array:
            every = range(self.shape[0]) if signals is None else signals
            for signal, first in itertools.product(every, range(0, len(numbers), rows)):
                part = numbers[first : first + rows]
                index = (slice(signal, signal + 1), slice(part[0], part[-1] + 1, step))
                yield self.read(array, (*index, *[slice(None)] * (len(self.shape) - 2)))[0]

    def blocks(self) -> Iterator[AnyArray]:
        return self.decode(range(self.shape[1]))


def _version(file: SourceFile) -> tuple[int, ...]:
    with reading(file.given):
        found = file.path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _opened(file: SourceFile, format: Format) -> Iterator[Any]:
    with reading(file.given):
        if format == "npy":
            yield np.load(file.path, mmap_mode="r", allow_pickle=False)
        elif format == "npz":
            with file.path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                yield archive
        else:
            import h5py  # imported late: .npy files do not need it

            with h5py.File(file.path, "r", locking=False) as h5:
                yield h5


class FileArrays:
    """Arrays of several files as one, ``(S, N_1, ..., N_D, C)``, read by slices; no file stays open between reads."""

    def __init__(self, files: Sequence[ArrayFile]) -> None:
        self.files = tuple(files)
        first = self.files[0]
        self.shape = (sum(file.shape[0] for file in files), *first.shape[1:])
        self.dtype = first.read_as
        self.chunks: tuple[int, ...] | None = None
        if first.chunks is not None:
            inner = first.chunks[first.counted : len(first.chunks) - first.with_channels]
            self.chunks = (1, *map(min, inner, first.shape[1:-1]), first.shape[-1])

    def __getitem__(self, index: Block) -> AnyArray:
        """Contiguous copy of a block, in the byte order of this machine."""
        index = (*index, *[slice(None)] * (len(self.shape) - len(index)))
        wanted = range(*index[0].indices(self.shape[0]))
        found, first = [], 0
        for file in self.files:
            here = [signal - first for signal in wanted if first <= signal < first + file.shape[0]]
            first += file.shape[0]
            if here:
                with file.open() as array:
                    found.append(file.read(array, (slice(here[0], here[-1] + 1, wanted.step), *index[1:])))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def decode(self, numbers: Sequence[int]) -> Iterator[AnyArray]:
        return (block for file in self.files for block in file.decode(numbers))

    def blocks(self) -> Iterator[AnyArray]:
        """All values in order, in blocks of whole chunks ``(n, N_2, ..., N_D, C)``."""
        return self.decode(range(self.shape[1]))


def read_arrays(
    files: Sequence[SourceFile],
    num_axes: int,
    key: str | None = None,
    value_range: Sequence[float] | None = None,
    channels: Channels = "auto",
    length: int | None = None,
    fills: Sequence[float] = (),
) -> RawSignals:
    """Describes array files of one shape and dtype as signals of D = ``num_axes`` axes, without loading them.

    Floating-point files, and all files if ``value_range`` is given, are read once in blocks to find their range. An array of
    D axes is one signal of one channel; D + 2 axes are signals, grid and channels. ``channels`` is the meaning of the last
    of D + 1 axes. ``last``: channels. ``none``: a grid axis, and the first axis counts signals. ``auto``: channels if it is
    at most 4. ``key`` names an array such as ``volumes/ct``; ``fills`` are values of missing samples besides declared ones.
    """
    limits = number_range("value_range", value_range)
    arrays = [find_array(file, key, num_axes, channels, fills) for file in files]
    remedy = "Save them alike, or fit them in separate runs"
    in_common("dtypes", [(array.file.given, array.dtype.name) for array in arrays], remedy)
    shapes = [(array.file.given, array.shape[1 if num_axes > 1 else 2 :]) for array in arrays]
    in_common("shapes of a signal (samples per axis, then channels)", shapes, remedy)
    samples = one_length([(array.file.given, array.shape[1]) for array in arrays], length)
    arrays = [replace(array, shape=(array.shape[0], samples, *array.shape[2:])) for array in arrays]
    scalings = [(array.label, value_scaling(array.label, array.dtype, array.blocks, limits)) for array in arrays]
    each = [scaling for array, scaling in zip(arrays, scalings, strict=True) for _ in range(array.shape[0])]
    in_common("declarations of missing values", [(array.file.given, array.read_as.name) for array in arrays], remedy)
    values = FileArrays(arrays)
    return RawSignals(
        values if in_place(files) else Decoded(values.shape, values.dtype, values.decode),
        names=distinct_names([(array.file, stem) for array in arrays for stem in array.names]),
        scaling=join_scalings(each, notify=limits is None),
    )


def in_place(files: Sequence[SourceFile]) -> bool:
    """Whether all files are ``.npy`` or HDF5 by their content, which are read by slices without decoding."""
    return all(file.path.is_file() and format_of(file.path) in ("npy", "hdf5") for file in files)


def find_array(
    file: SourceFile,
    key: str | None = None,
    num_axes: int | None = None,
    channels: Channels = "auto",
    fills: Sequence[float] = (),
) -> ArrayFile:
    """Describes one array of a file without loading it; arguments as for :func:`read_arrays`.

    Without ``num_axes`` the meaning of its axes is left open.
    """
    format = format_of(file.path)
    if format not in ARRAYS or format is None:
        raise InputError(f"{file.given!r} is not an array file; array files are {', '.join(suffixes_of(ARRAYS))}")
    if format == "npy" and key is not None:
        raise InputError(f"{file.given!r} holds one array without a name: leave key out, which is for .npz and HDF5 files")
    version = _version(file)
    with _opened(file, format) as container:
        name, is_only = ("", True) if format == "npy" else _choose(file, key, container)
        if format == "npz":
            shape, dtype, chunks = *_npz_header(container, name), None
        else:
            array = container[name] if name else container
            shape, dtype, chunks = tuple(array.shape or ()), array.dtype, getattr(array, "chunks", None)
        if format == "hdf5":
            check_dataset(array, file.path, file.given)
        if format == "npy" and not array.flags.c_contiguous:  # the first axis varies fastest
            chunks = (*shape[:-1], 1)
        # extended precision is converted to float64
        native = np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize > 8 else dtype.newbyteorder("=")
        declared = Declared.by_attributes(array.attrs, native) if format == "hdf5" else NOTHING
        declared = declared.plus(fills, native)
        found = ArrayFile(file, format, name, shape, native, chunks, declared=declared, version=version, is_only=is_only)
        if format == "npz":  # an archive is decoded as a whole
            check_claim(found.label, shape, dtype.itemsize, file.path.stat().st_size)
            check_memory(found.label, shape, dtype.itemsize, "Save it as .npy or HDF5, which are read in blocks")
    check_numbers(found.label, dtype, " (save complex numbers as two channels, and objects as plain arrays)", "biuf")
    return found if num_axes is None else _named(found, num_axes, channels)


def _npz_header(archive: Any, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array of an ``.npz`` archive, without decoding its values."""
    members = archive.zip.namelist()
    with archive.zip.open(name if name in members else f"{name}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
    return shape, dtype


def _named(array: ArrayFile, num_axes: int, channels: Channels) -> ArrayFile:
    shape, extra = array.shape, len(array.shape) - num_axes
    last = extra == 2 or (extra == 1 and (channels == "last" or (channels == "auto" and shape[-1] <= MAX_CHANNELS)))
    counted = extra == 2 or (extra == 1 and not last)
    named = (*(() if counted else (1,)), *shape, *(() if last else (1,)))
    if extra not in {"auto": (0, 1, 2), "last": (1, 2), "none": (0, 1)}[channels] or 0 in named or min(named[1:-1]) < 2:
        grid = ", ".join(f"N{axis + 1}" for axis in range(num_axes))
        layouts = {"none": f"({grid}) or (signals, {grid})", "last": f"({grid}, channels) or (signals, {grid}, channels)"}
        raise InputError(
            f"{array.label} has shape {shape}, but signals of {num_axes} axes with channels: {channels} are "
            f"{layouts.get(channels) or ' or '.join(layouts.values())}, of at least 2 samples on each axis. Save it in one "
            "of these shapes, or fit it as signals with another number of axes"
        )
    return replace(array, shape=named, counted=counted, with_channels=last)


def _choose(file: SourceFile, key: str | None, container: Any) -> tuple[str, bool]:
    """Name of the array that ``key`` names, and whether the file has no other."""
    names: list[str] = []
    if hasattr(container, "visititems"):  # HDF5
        visit_hdf5(container, file.given, lambda name, item: names.append(name) if hasattr(item, "dtype") else None)
        key = key and key.strip("/")
        if key and hasattr(container.get(key), "dtype"):
            return key, {key} >= set(names)  # visititems() does not follow links
    else:
        names = list(container.files)
    if key in names or (key is None and len(names) == 1):
        return key or names[0], len(names) == 1
    near = did_you_mean(key, names) if key else ""
    asked = f"there is no array {key!r}{near}" if key else "choose one array by key"
    shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    raise InputError(f"{file.given!r} holds {len(names)} arrays: {asked}. It holds: {shown or 'none'}")


def array_clips(
    file: SourceFile, key: str | None, limits: tuple[float, float] | None, num_axes: int = 3, fills: Sequence[float] = ()
) -> list[Clip]:
    """Describes the signals of an array file as clips, of one frame for two axes."""
    array = find_array(file, key, num_axes, fills=fills)
    scaling = value_scaling(array.label, array.dtype, array.blocks, limits)
    shape = (1, *array.shape[1:]) if num_axes == 3 else (1, 1, *array.shape[1:])

    def decode(signal: int, frames: Sequence[int]) -> Iterator[AnyArray]:
        if num_axes == 3:
            return array.decode(frames, [signal])
        return iter([np.concatenate(list(array.decode(range(array.shape[1]), [signal])))[None]])

    every = [Decoded(shape, array.read_as, partial(decode, signal)) for signal in range(array.shape[0])]
    named = zip(every, array.names, strict=True)
    return [Clip(values=values, names=(name,), scaling=scaling, file=file) for values, name in named]


def check_dataset(dataset: Any, path: Path, given: str) -> None:
    """Refuses an ``h5py.Dataset`` that is stored in other files, claims too much, or has too large chunks."""
    label = f"{dataset.name!r} of {given!r}"
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{label} is stored in other files, which are not read")
    check_claim(label, dataset.shape, dataset.dtype.itemsize, path.stat().st_size)
    if dataset.chunks is not None:
        check_memory(f"a chunk of {label}", dataset.chunks, dataset.dtype.itemsize, "Save it in smaller chunks")


def visit_hdf5(file: Any, given: str, visit: Callable[[str, Any], None]) -> None:
    """Calls a function with every group and array in an ``h5py.File``: its name, and the object."""

    def limited(name: str, item: Any) -> None:
        if name.count("/") >= MAX_LEVELS:  # each is opened from the root: the time grows with the square of the levels
            raise InputError(f"{given!r} has more than {MAX_LEVELS} levels of groups: save its arrays in fewer")
        visit(name, item)

    file.visititems(limited)


def check_hdf5(path: Path, given: str) -> None:
    """Refuses an HDF5 file with links to other files, or with a dataset that :func:`check_dataset` refuses."""
    import h5py

    def check(name: str, item: Any) -> None:
        dict(item.attrs)  # damaged ones raise here, where the file is closed properly
        if isinstance(item, h5py.Dataset):
            check_dataset(item, path, given)
        elif any(isinstance(item.get(child, getlink=True), h5py.ExternalLink) for child in item):
            raise InputError(f"{item.name!r} of {given!r} has links to other files, which are not read")

    with h5py.File(path, locking=False) as file:
        check("/", file)
        visit_hdf5(file, given, check)

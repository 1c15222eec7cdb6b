"""One array in one ``.npy``, ``.npz`` or HDF5 file: described by its header alone, opened to be read by slices."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from pe_lightning.data.sources.sources import Source
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["ARRAY_SUFFIXES", "Kind", "StoredArray", "close", "file_kind", "find_array", "reading"]

ARRAY_SUFFIXES = frozenset({".npy", ".npz", ".h5", ".hdf5"})
"""What counts as an array file inside a folder."""

Kind: TypeAlias = Literal["npy", "npz", "h5"]

_MAGIC: dict[bytes, Kind] = {b"\x93NUMPY": "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"\x89HDF\r\n\x1a\n": "h5"}
_BY_SUFFIX: dict[str, Kind] = {".npy": "npy", ".npz": "npz", ".h5": "h5", ".hdf5": "h5"}
_LISTED = 20  # arrays that a message lists


@dataclass(frozen=True)
class StoredArray:
    """An array in a file, as its header describes it.

    Args:
        path: The file.
        given: How the user named it, for messages.
        kind: Its format.
        key: Its name in the file; empty in a ``.npy`` file.
        shape: At least one axis, none of them empty.
        dtype: In the byte order of this machine; booleans, integers or floating point of at most 64 bits.
        fortran: Whether the first axis varies fastest in the file.
        chunks: Its pieces, if the file stores it in pieces.
    """

    path: Path
    given: str
    kind: Kind
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False
    chunks: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"{self.key!r} in {self.given!r}" if self.key else repr(self.given)

    def open(self) -> Any:
        """Something to read by slices: a memory map, an HDF5 dataset, or the decoded array of an ``.npz`` file.

        Raises:
            InputError: If the file has changed since it was described, or cannot be read.
        """
        with reading(self.given):
            handle: Any
            if self.kind == "npy":
                handle = np.load(self.path, mmap_mode="r", allow_pickle=False)
            elif self.kind == "npz":
                with np.load(self.path, allow_pickle=False) as file:
                    handle = file[self.key]
            else:
                import h5py

                handle = h5py.File(self.path, "r", locking=False)[self.key]
            if handle.shape != self.shape or _native(handle.dtype) != self.dtype:
                close(handle)
                raise InputError(f"{self.given!r} was changed while it was read; start again")
            return handle


def close(handle: Any) -> None:
    """Closes the file of an HDF5 dataset; memory maps and arrays need nothing."""
    if not isinstance(handle, np.ndarray):
        handle.file.close()


def file_kind(path: Path) -> Kind | None:
    """The format of a file by its content, or by its suffix where the content says nothing; ``None``: another one.

    Raises:
        InputError: If the file cannot be opened.
    """
    with reading(str(path)), path.open("rb") as file:
        header = file.read(8)
    found = next((kind for magic, kind in _MAGIC.items() if header.startswith(magic)), None)
    return found or _BY_SUFFIX.get(path.suffix.lower())


def find_array(source: Source, key: str | None) -> StoredArray:
    """Describes one array of a file without loading it.

    Args:
        source: The file.
        key: Which array of an ``.npz`` file, or dataset of an HDF5 file such as ``volumes/ct``; it may be left out where
            there is only one.

    Raises:
        InputError: If the file is none of the three formats or damaged, there is no such array, several and no key, or
            the array is empty or holds anything but real numbers.
    """
    kind = file_kind(source.path)
    if kind is None:
        raise InputError(f"{source.given!r} is not an array file; those are {', '.join(sorted(ARRAY_SUFFIXES))}")
    if kind == "npy" and key is not None:
        raise InputError(f"{source.given!r} holds one array without a name: leave key out (it is for .npz and HDF5 files)")
    with reading(source.given):
        described = {"npy": _npy, "npz": _npz, "h5": _h5}[kind](source, key)
    if not described.shape:
        raise InputError(f"{described.label} holds a single number; a signal needs at least 2 samples on each axis")
    if 0 in described.shape:
        raise InputError(f"{described.label} is empty: its shape is {described.shape}")
    return described


@contextmanager
def reading(given: str) -> Iterator[None]:
    """Turns whatever a library raises on an unreadable file into an :class:`InputError` that names the file."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except OSError as error:
        if error.errno is not None:  # the operating system sets it; HDF5's own "truncated file" has none
            raise InputError(f"cannot open {given!r}: {error.strerror or error}") from error
        raise _damaged(given, error) from error
    except Exception as error:  # zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, RuntimeError, ...
        raise _damaged(given, error) from error


def _damaged(given: str, error: Exception) -> InputError:
    return InputError(
        f"cannot read {given!r}; it seems to be truncated or damaged ({type(error).__name__}: {error}). "
        "Copy or download it again, or remove it from the paths"
    )


def _npy(source: Source, _: str | None) -> StoredArray:
    with source.path.open("rb") as file:
        shape, fortran, dtype = _header(file)
    known = _checked(dtype, repr(source.given))  # before NumPy sees it: it refuses objects with another message
    if 0 not in shape:
        np.load(source.path, mmap_mode="r", allow_pickle=False)  # raises if the file is shorter than its header says
    return StoredArray(source.path, source.given, "npy", "", shape, known, fortran and len(shape) > 1)


def _npz(source: Source, key: str | None) -> StoredArray:
    headers: dict[str, tuple[tuple[int, ...], bool, np.dtype[Any]]] = {}
    with zipfile.ZipFile(source.path) as file:
        for name in file.namelist():
            if name.endswith(".npy"):
                with file.open(name) as member:
                    headers[name.removesuffix(".npy")] = _header(member)
    key = _choose(source, key, {name: shape for name, (shape, _, _) in headers.items()})
    shape, fortran, dtype = headers[key]
    known = _checked(dtype, f"{key!r} in {source.given!r}")
    return StoredArray(source.path, source.given, "npz", key, shape, known, fortran and len(shape) > 1)


def _h5(source: Source, key: str | None) -> StoredArray:
    import h5py  # late: whoever reads .npy files does not wait for it

    with h5py.File(source.path, "r", locking=False) as file:
        shapes: dict[str, tuple[int, ...]] = {}

        def visit(name: str, item: Any) -> None:
            if isinstance(item, h5py.Dataset):
                shapes[name] = item.shape or ()

        file.visititems(visit)
        if key is not None and key.strip("/") not in shapes and isinstance(file.get(key), h5py.Dataset):
            dataset, name = file[key], key  # behind a link, which the listing does not follow
        else:
            name = _choose(source, None if key is None else key.strip("/"), shapes)
            dataset = file[name]
        known = _checked(dataset.dtype, f"{name!r} in {source.given!r}")
        return StoredArray(source.path, source.given, "h5", name, tuple(dataset.shape or ()), known, chunks=dataset.chunks)


def _header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version} of the format, which is for tables with named columns")


def _choose(source: Source, key: str | None, shapes: Mapping[str, tuple[int, ...]]) -> str:
    if not shapes:
        raise InputError(f"{source.given!r} holds no array")
    listed = ", ".join(f"{name} {shape}" for name, shape in list(shapes.items())[:_LISTED])
    more = f" and {len(shapes) - _LISTED} more" if len(shapes) > _LISTED else ""
    if key is None and len(shapes) == 1:
        return next(iter(shapes))
    if key is None:
        example = next(iter(shapes))
        raise InputError(
            f"{source.given!r} holds {len(shapes)} arrays; choose one by key, such as key: {example}. "
            f"It holds: {listed}{more}"
        )
    if key in shapes:
        return key
    inside = any(name.startswith(f"{key}/") for name in shapes)
    what = f"{key!r} is a group, not an array, in" if inside else f"there is no array {key!r} in"
    near = "" if inside else did_you_mean(key, shapes)
    raise InputError(f"{what} {source.given!r}{near or '.'} It holds: {listed}{more}")


def _checked(dtype: np.dtype[Any], label: str) -> np.dtype[Any]:
    if dtype.kind == "O":
        raise InputError(
            f"{label} holds Python objects, which are never loaded: unpickling runs whatever code the file brings. Save "
            "the numbers as one plain array, such as numpy.save(path, numpy.stack(arrays))"
        )
    if dtype.kind == "c":
        raise InputError(
            f"{label} holds complex numbers; a signal is real. Save the two parts as channels, such as "
            "numpy.stack([a.real, a.imag], -1)"
        )
    if dtype.kind not in "biuf":
        raise InputError(f"{label} holds {dtype} values; a signal holds booleans, integers or floating point")
    return _native(dtype)


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f" and dtype.itemsize > 8:  # extended precision, which nothing here computes in
        return np.dtype(np.float64)
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native

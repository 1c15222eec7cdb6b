"""HDF5 files: written without crashes on a full disk, and checked before they are read."""

from __future__ import annotations

from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError, show_bytes

__all__ = ["MAX_COMPRESSION_RATIO", "PatientFile", "check_contained"]

MAX_UNCHECKED_BYTES = 1 << 30
"""Bytes that a dataset may have, however small its file is."""
MAX_COMPRESSION_RATIO = 2000
"""Largest ratio of the bytes of a dataset to those of its file; deflate reaches 1032."""


class PatientFile(FileIO):
    """A new file for HDF5 to write to, which keeps its first error: :meth:`check` raises it, and so does leaving ``with``.

    HDF5 cannot close a file whose disk is full, and crashes the process when it ends. So it does not learn of the error.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")

    error: OSError | None = None

    def write(self, content: Any, /) -> int:
        """Writes all of it, if nothing failed before."""
        rest = memoryview(content).cast("B")
        size = len(rest)
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the size, which reserves nothing: only writes can fail for good."""
        with suppress(OSError):
            return super().truncate(size)
        return size or 0

    def check(self) -> None:
        """Raises what went wrong."""
        if self.error is not None:
            raise self.error

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.check()


def check_contained(dataset: Any, path: Path, given: str) -> None:
    """Refuses an HDF5 dataset of a file that is stored in other files, or claims far more than its file can hold.

    Args:
        dataset: Of h5py.
        path: The file.
        given: What messages call it.
    """
    claimed, stored = dataset.size * dataset.dtype.itemsize, path.stat().st_size
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{dataset.name!r} of {given!r} is stored in other files, which are not read")
    if claimed > max(MAX_UNCHECKED_BYTES, MAX_COMPRESSION_RATIO * stored):
        raise InputError(
            f"{dataset.name!r} of {given!r} claims shape {dataset.shape}, {show_bytes(claimed)}, in a file of "
            f"{show_bytes(stored)}: it is empty, or damaged"
        )

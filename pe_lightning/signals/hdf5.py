"""HDF5 files: written without crashes on a full disk, edited in memory, and checked before they are read."""

from __future__ import annotations

import math
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError
from pe_lightning.signals.validation import check_claim, check_memory

_SHUFFLE, _FLETCHER32 = 2, 3  # HDF5's numbers of these filters
_OPTIONAL = 1  # HDF5's flag of a filter that may be skipped where it fails


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


def check_file(path: Path, given: str) -> None:
    """Refuses an HDF5 file that has links to other files, or a dataset that :func:`check_dataset` refuses.

    Args:
        path: The file.
        given: What messages call it.
    """
    import h5py

    def check(name: str, item: Any) -> None:
        dict(item.attrs)  # damaged ones raise here, where the file is closed properly
        if isinstance(item, h5py.Dataset):
            check_dataset(item, path, given)
        elif any(isinstance(item.get(child, getlink=True), h5py.ExternalLink) for child in item):
            raise InputError(f"{item.name!r} of {given!r} has links to other files, which are not read")

    with h5py.File(path, locking=False) as file:
        check("/", file)
        file.visititems(check)


def check_dataset(dataset: Any, path: Path, given: str) -> None:
    """Refuses an HDF5 dataset that is stored in other files, claims too much, or has chunks with skipped filters.

    Args:
        dataset: An ``h5py.Dataset``.
        path: The file it was opened from.
        given: What messages call the file.
    """
    label = f"{dataset.name!r} of {given!r}"
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{label} is stored in other files, which are not read")
    check_claim(label, dataset.shape, dataset.dtype.itemsize, path.stat().st_size)
    if dataset.chunks is None:
        return
    check_memory(f"a chunk of {label}", dataset.chunks, dataset.dtype.itemsize, "Save it in smaller chunks")
    if _damaged_chunks(dataset):
        raise InputError(
            f"{label} has chunks whose filters were skipped: its index is damaged. Copy the file again, or save it again "
            "from its source"
        )


def _damaged_chunks(dataset: Any) -> int:
    """Number of chunks with a filter mask that no writer leaves.

    A writer skips an optional compression that does not make a chunk smaller (LZF does on noise): the chunk then has its
    decoded size, plus the four bytes of a Fletcher checksum.
    """
    plist = dataset.id.get_create_plist()
    filters = [plist.get_filter(number)[:2] for number in range(plist.get_nfilters())]
    may_skip = sum(
        1 << bit for bit, (code, flags) in enumerate(filters) if flags & _OPTIONAL and code not in (_SHUFFLE, _FLETCHER32)
    )
    checksum = 4 * any(code == _FLETCHER32 for code, _ in filters)
    unfiltered, damaged = math.prod(dataset.chunks) * dataset.dtype.itemsize + checksum, 0

    def check(chunk: Any) -> None:
        nonlocal damaged
        damaged += bool(chunk.filter_mask and (chunk.filter_mask & ~may_skip or chunk.size != unfiltered))

    if filters and hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(check)
    elif filters:  # HDF5 before 1.12.3: each look-up searches the index
        for number in range(dataset.id.get_num_chunks()):
            check(dataset.id.get_chunk_info(number))
    return damaged

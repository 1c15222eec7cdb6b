"""HDF5 files are checked before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pe_lightning.errors import InputError
from pe_lightning.signals.validation import check_claim, check_memory


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
    """Refuses an HDF5 dataset that is stored in other files, claims too much, or has chunks larger than the free memory.

    Args:
        dataset: An ``h5py.Dataset``.
        path: The file it was opened from.
        given: What messages call the file.
    """
    label = f"{dataset.name!r} of {given!r}"
    if dataset.external or dataset.is_virtual or Path(dataset.file.filename).resolve() != path.resolve():
        raise InputError(f"{label} is stored in other files, which are not read")
    check_claim(label, dataset.shape, dataset.dtype.itemsize, path.stat().st_size)
    if dataset.chunks is not None:
        check_memory(f"a chunk of {label}", dataset.chunks, dataset.dtype.itemsize, "Save it in smaller chunks")

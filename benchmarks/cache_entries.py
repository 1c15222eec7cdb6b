"""Files in the place of an entry of the cache that are not what the cache writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py

from pe_lightning.signals.entries import chunk_shape


def _virtual(old: h5py.Dataset, new: h5py.File) -> h5py.Dataset:
    layout = h5py.VirtualLayout(old.shape, old.dtype)
    layout[...] = h5py.VirtualSource("old", "values", old.shape, old.dtype)  # a path may not hold %
    return new.create_virtual_dataset("values", layout)


def _external(old: h5py.Dataset, new: h5py.File) -> h5py.Dataset:
    raw = Path(f"{old.file.filename}.raw")
    raw.write_bytes(old[()].tobytes())
    return new.create_dataset("values", old.shape, old.dtype, external=str(raw))


def _dataset(**changes: Any) -> Callable[[h5py.Dataset, h5py.File], h5py.Dataset]:
    def create(old: h5py.Dataset, new: h5py.File) -> h5py.Dataset:
        options = {"data": old[()], "chunks": old.chunks, "fletcher32": True}
        return new.create_dataset("values", **{**options, **changes})

    return create


def _shorter(old: h5py.Dataset, new: h5py.File) -> h5py.Dataset:
    shape = (old.shape[0], old.shape[1] - 1, *old.shape[2:])
    return _dataset(data=old[:, :-1], chunks=chunk_shape(shape, old.dtype.itemsize))(old, new)


def _linked(old: h5py.Dataset, new: h5py.File) -> None:
    new["values"] = h5py.ExternalLink(old.file.filename, "values")


def _described(old: h5py.Dataset, new: h5py.File) -> None:
    old.file.copy("values", new)
    new["values"].attrs["source_high"] *= 2


DATASETS: dict[str, Callable[[h5py.Dataset, h5py.File], h5py.Dataset | None]] = {
    "virtual": _virtual,
    "external": _external,
    "external link": _linked,
    "other range": _described,
    "other shape": _shorter,
    "without checksums": _dataset(fletcher32=False),
    "with a filter": _dataset(compression=1),
    "without numbers": lambda old, new: _dataset(data=None, shape=old.shape, dtype=old.dtype)(old, new),
    "group": lambda old, new: new.create_group("values"),
}
"""What makes ``values`` of a new file from those of the entry; the attributes are copied."""
FILES: dict[str, Callable[[Path, Path], Any]] = {
    "FIFO": lambda path, old: os.mkfifo(path),
    "link": lambda path, old: path.symlink_to(old),
}
"""What makes another file at the path of the entry, which was moved."""
KINDS = (*DATASETS, *FILES)


def replace_entry(path: Path, kind: str) -> None:
    """Puts another file in the place of an entry."""
    old = path.rename(path.with_name("old"))
    if kind in FILES:
        FILES[kind](path, old)
        return
    with h5py.File(old) as before, h5py.File(path, "w", libver=("v110", "v110")) as new:
        if (made := DATASETS[kind](before["values"], new)) is not None:
            made.attrs.update(before["values"].attrs)

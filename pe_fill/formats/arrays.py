"""Array files, ``.npy`` and HDF5, written back with other values."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np

from pe_fill.formats.editable import EditableFile, marked_values, valid_values
from pe_fill.formats.layouts import array_as_signals, signals_as_array
from pe_lightning.signals.raw import AnyArray, Mask
from pe_lightning.signals.sources.arrays import ArrayFile, find_array
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile


def edit_array(file: SourceFile, missing: Missing, axes: int | None = None, key: str | None = None) -> EditableFile:
    """An array of a ``.npy`` file, whose copy has its byte order and order of axes, or of an HDF5 file, which is copied."""
    missing.check("arrays")
    found = find_array(file, key)
    array = found.load()
    signals = array_as_signals(array, found.label, axes)
    names = file.names(len(signals))
    marked = marked_values(signals, found.declared.plus(missing.values, found.dtype))
    suffixes = (".npy",) if found.format == "npy" else (file.path.suffix.lower(), ".h5", ".hdf5")
    write = partial(_write_array, found, signals.shape)
    return EditableFile(names, signals, marked, suffixes, write, resizes=found.format == "npy", marks_left=True)


def _write_array(found: ArrayFile, signals: tuple[int, ...], path: Path, values: AnyArray, left: Mask | None = None) -> None:
    with found.open() as stored:
        dtype, by_columns = stored.dtype, found.format == "npy" and not stored.flags.c_contiguous
    result = signals_as_array(valid_values(values, found.dtype, found.declared, left), found.shape, signals).astype(dtype)
    content = io.BytesIO()  # on a full disk NumPy loses the end of an array, and the HDF5 library ends the process
    if found.format == "npy":
        np.save(content, np.asfortranarray(result) if by_columns else result)
    else:
        import h5py

        content.write(found.file.path.read_bytes())
        with h5py.File(content, "r+") as opened:
            opened[found.key][...] = result
    path.write_bytes(content.getbuffer())

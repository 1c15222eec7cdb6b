"""Array files, ``.npy`` and HDF5, written back with other values."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from pe_fill.formats.editable import EditableFile, marked_values, valid_values
from pe_lightning.errors import InputError
from pe_lightning.signals.axes import describe_layouts, plausible_layouts
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
    path.write_bytes(content.getvalue())


def array_as_signals(values: AnyArray, label: str, axes: int | None = None) -> AnyArray:
    """A view of an array as signals ``(S, N_1, ..., N_D, C)``, if its shape has one plausible reading."""
    layouts = [each for each in plausible_layouts(values.shape) if axes in (None, len(each.grid))]
    if not layouts and axes is not None and values.ndim == axes + 2:
        return values
    if not layouts and values.ndim == axes and min(values.shape) > 1:  # such as three frames, which are no colours
        return values[None, ..., None]
    if len(layouts) != 1:
        advice = "say how many axes a signal has, such as axes: 2" if axes is None else f"got axes {axes}"
        raise InputError(f"{describe_layouts(label, values.shape)}; {advice}")
    return values.reshape(layouts[0].shape)


def signals_as_array(values: AnyArray, shape: Sequence[int], signals: Sequence[int]) -> AnyArray:
    """Signals ``(S, N_1, ..., N_D, C)``, of any number of samples, in the axes of the array that they come from."""
    axes = len(signals) - 2
    channels = [] if tuple(shape[len(shape) - axes :]) == tuple(signals[1:-1]) else [values.shape[-1]]
    return values.reshape(*shape[: len(shape) - axes - len(channels)], *values.shape[1:-1], *channels)

"""Labelled arrays filled: as ``xarray.DataArray``, and written back as NetCDF."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.editable import EditableFile, valid_values
from pe_fill.formats.labelled import as_signals, axes_among, is_classic, open_labelled
from pe_lightning.errors import require
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import user_path
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.declared import Declared
from pe_lightning.signals.sources.missing import Missing, MissingLike


def edit_labelled(
    path: str, variable: str | None = None, dims: Sequence[str] | None = None, missing: MissingLike = "nan"
) -> EditableFile:
    """A variable of a NetCDF or Zarr file as signals to fill; numbers mark missing values besides declared ones.

    The copy is NetCDF, with filled cells packed as the others, and standard deviations as a variable ``<name>_std``.
    """
    array = open_labelled(path, variable, Missing(missing).only_values("NetCDF and Zarr"))
    original = original_of(array, dims)
    write = partial(_write_variable, path, array, dims, original)
    return replace(original, suffixes=(".nc", ".nc4"), write=write, holds_std=True, path=Path(path))


def _write_variable(
    path: str,
    array: Any,
    dims: Sequence[str] | None,
    original: EditableFile,
    target: Path,
    values: AnyArray,
    std: AnyArray | None = None,
) -> None:
    differs = (original.missing | (values != original.values)) & np.isfinite(values)  # others stay missing
    changed = refilled(array, dims, differs).values.astype(bool)
    buffer = io.BytesIO(_as_netcdf(path))  # in memory, since HDF5 crashes on a full disk
    with require("h5netcdf", "NetCDF").File(buffer, "r+") as file:
        variable, name = file.variables[str(array.name)], str(array.name)
        stored = np.asarray(variable[...])
        stored[changed] = packed_values(refilled(array, dims, values).values[changed], stored.dtype, variable.attrs)
        variable[...] = stored
        if std is not None:
            data, options = refilled(array, dims, std).values, {"compression": "gzip", "shuffle": True}
            while (name := f"{name}_std") in file.variables:
                pass
            made = file.create_variable(name, variable.dimensions, data.dtype, data=data, **options)
            kept = ("units", "coordinates", "grid_mapping")
            made.attrs.update({key: variable.attrs[key] for key in kept if key in variable.attrs})
            made.attrs["long_name"] = f"standard deviation of filled values of {variable.name.rpartition('/')[2]}"
            if "standard_name" in variable.attrs:
                made.attrs["standard_name"] = f"{variable.attrs['standard_name']} standard_error"
    target.write_bytes(buffer.getvalue())


def original_of(array: Any, dims: Sequence[str] | None) -> EditableFile:
    """A ``DataArray`` as signals to fill."""
    values, axes, names = as_signals(array, dims)
    signals = values[..., None]
    return EditableFile(names, signals, ~np.isfinite(signals), axes=axes)


def refilled(array: Any, dims: Sequence[str] | None, stack: AnyArray) -> Any:
    """A copy of a ``DataArray`` with the values of signals ``(S, N_1, ..., N_D, 1)``, in their dtype."""
    moved = array.transpose(..., *axes_among(array, dims))
    return moved.copy(data=stack[..., 0].reshape(moved.shape)).transpose(*array.dims)


def _as_netcdf(path: str) -> bytes:
    """A file or a Zarr store, with its groups and stored numbers, as the content of a NetCDF 4 file."""
    file = user_path(path)
    if file.is_file() and not is_classic(file, path):
        return file.read_bytes()
    xarray = require("xarray", "NetCDF")
    if file.is_dir():
        names = xarray.open_groups(file, engine="zarr", decode_cf=False)  # decoded in spite of decode_cf
        return netcdf_bytes({n: xarray.open_dataset(file, engine="zarr", group=n, decode_cf=False) for n in names})
    rank_zero_info(f"{path!r} is NetCDF 3, and the result NetCDF 4")
    with xarray.open_dataset(file, engine="scipy", decode_cf=False) as dataset:
        return netcdf_bytes({"/": dataset})


def packed_values(values: AnyArray, dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> AnyArray:
    """Values ``(P,)`` as stored by a NetCDF variable of these attributes (CF conventions, Sec. 2.5.1 and 8.1)."""
    stored = values.astype(np.float64)
    stored = (stored - float(attributes.get("add_offset", 0))) / float(attributes.get("scale_factor", 1))
    return valid_values(stored, dtype, Declared.by_attributes(attributes, dtype))


def netcdf_bytes(groups: Mapping[str, Any]) -> bytes:
    """The content of a NetCDF file with an ``xarray.Dataset`` per group, made in memory: HDF5 crashes on a full disk."""
    h5netcdf, content = require("h5netcdf", "NetCDF"), io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        for name, dataset in groups.items():
            group = file if name == "/" else file.create_group(name)
            copied, marks = dataset.copy(), dict[str, Any]()
            for key, array in copied.variables.items():
                if "missing_value" in array.attrs:  # which the library refuses beside another _FillValue
                    marks[key] = array.dtype.type(array.attrs.pop("missing_value"))
            copied.dump_to_store(require("xarray", "NetCDF").backends.H5NetCDFStore(group))
            for key, mark in marks.items():
                group.variables[key].attrs["missing_value"] = mark
    return content.getvalue()

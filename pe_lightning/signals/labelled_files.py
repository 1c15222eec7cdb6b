"""NetCDF and Zarr files whose missing values can be replaced: a copy in which only these cells are other ones."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.errors import InputError, require
from pe_lightning.signals.originals import EditableFile
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.labelled import open_labelled, stacked


def read_labelled(path: str, variable: str | None = None, dims: Sequence[str] | None = None) -> EditableFile:
    """A variable of a NetCDF or Zarr file as signals to fill.

    The result is NetCDF: a copy of the file with values in the missing cells of the variable, packed as the others, and
    their standard deviations as a second variable, ``<name>_std``.
    """
    array = open_labelled(path, variable)
    original = original_of(array, dims)

    def write(target: Path, values: AnyArray, std: AnyArray | None = None) -> None:
        changed = refilled(array, dims, original.missing | (values != original.values)).values.astype(bool)
        filled = refilled(array, dims, values).values
        deviations = None if std is None else refilled(array, dims, std).values
        target.write_bytes(_edited(_as_netcdf(path), str(array.name), filled, changed, deviations))

    return original_of(array, dims, suffixes=(".nc", ".nc4"), write=write, holds_std=True, path=Path(path))


def original_of(array: Any, dims: Sequence[str] | None, **written: Any) -> EditableFile:
    """A ``DataArray`` as signals to fill.

    Args:
        array: The array.
        dims: The axes.
        **written: ``suffixes`` and ``write`` of the result, if it comes from a file.
    """
    values, axes, names = stacked(array, dims)
    signals = values[..., None]
    return EditableFile(names, signals, ~np.isfinite(signals), axes=axes, **{"suffixes": (), "write": _no_file, **written})


def refilled(array: Any, dims: Sequence[str] | None, stack: AnyArray) -> Any:
    """A copy of a ``DataArray`` with the values of signals ``(S, N_1, ..., N_D, 1)``, in their dtype."""
    known = [str(name) for name in array.dims]
    wanted = [name for name in known if array.sizes[name] > 1] if dims is None else list(dims)
    order = [*(name for name in known if name not in wanted), *wanted]
    moved = array.transpose(*order)
    return moved.copy(data=stack[..., 0].reshape(moved.shape)).transpose(*known)


def _no_file(path: Any, values: AnyArray) -> None:
    raise InputError("a filled DataArray is returned, not written: save it by its method to_netcdf")


def _as_netcdf(path: str) -> bytes:
    """The content of a NetCDF file: the file itself, or a Zarr store with its groups and stored numbers as they are."""
    file = Path(path).expanduser()
    if file.is_file():
        return file.read_bytes()
    return netcdf_bytes(require("xarray", "NetCDF").open_groups(file, engine="zarr", decode_cf=False))


def _edited(content: bytes, name: str, values: AnyArray, changed: AnyArray, std: AnyArray | None) -> bytes:
    """A NetCDF file with other values in some cells of a variable; in memory, since HDF5 crashes on a full disk.

    Args:
        content: The file.
        name: Name of the variable.
        values: Its values as users read them.
        changed: Which cells to write.
        std: Standard deviations, which become a variable of their own.
    """
    buffer = io.BytesIO(content)
    with require("h5netcdf", "NetCDF").File(buffer, "r+") as file:
        variable = file.variables[name]
        stored = np.asarray(variable[...])
        stored[changed] = packed(values[changed], stored.dtype, variable.attrs)
        variable[...] = stored
        if std is not None:
            while (name := f"{name}_std") in file.variables:
                pass
            made = file.create_variable(name, variable.dimensions, std.dtype, data=std, compression="gzip", shuffle=True)
            kept = ("units", "coordinates", "grid_mapping")
            made.attrs.update({key: variable.attrs[key] for key in kept if key in variable.attrs})
            made.attrs["long_name"] = f"standard deviation of filled values of {variable.name.rpartition('/')[2]}"
            if "standard_name" in variable.attrs:
                made.attrs["standard_name"] = f"{variable.attrs['standard_name']} standard_error"
    return buffer.getvalue()


def packed(values: AnyArray, dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> AnyArray:
    """Values as a NetCDF variable stores them: scaled, rounded and clipped to its valid range, and no fill value.

    Args:
        values: ``(P,)`` as users read them.
        dtype: How they are stored.
        attributes: Attributes of the variable (CF conventions, Sec. 2.5.1 and 8.1).
    """
    stored = values.astype(np.float64)
    stored = (stored - float(attributes.get("add_offset", 0))) / float(attributes.get("scale_factor", 1))
    if dtype.kind not in "iu":
        return stored.astype(dtype)
    unsigned = str(attributes.get("_Unsigned", "")).lower() == "true"
    real = np.dtype(f"u{dtype.itemsize}") if unsigned else dtype

    def numbers(*keys: str) -> list[int]:
        given = [np.asarray(attributes[key]).astype(dtype).view(real) for key in keys if key in attributes]
        return [int(number) for each in given for number in each.ravel()]

    taken, limits = sorted(numbers("_FillValue", "missing_value")), numbers("valid_range")
    low = (limits[:1] or numbers("valid_min") or [int(np.iinfo(real).min)])[0]
    high = (limits[1:] or numbers("valid_max") or [int(np.iinfo(real).max)])[0]
    while low in taken:
        low += 1
    while high in taken:
        high -= 1
    top = float(high) if int(float(high)) <= high else float(np.nextafter(float(high), 0))  # 2^63 - 1 rounds up in float64
    result = np.rint(np.clip(stored, float(low), top)).astype(real)
    for fill in taken:
        result[result == fill] += 1
    return result.view(dtype)


def netcdf_bytes(groups: Mapping[str, Any]) -> bytes:
    """The content of a NetCDF file of ``xarray.Dataset`` by group, made in memory: HDF5 crashes on a full disk."""
    h5netcdf, content = require("h5netcdf", "NetCDF"), io.BytesIO()
    with h5netcdf.File(content, "w") as file:
        for name, dataset in groups.items():
            store = require("xarray", "NetCDF").backends.H5NetCDFStore(file if name == "/" else file.create_group(name))
            dataset.dump_to_store(store)
    return content.getvalue()

"""Missing samples of labelled arrays filled: :func:`fill` for ``xarray.DataArray`` (extra ``geo``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.data.signals import AnyArray
from pe_lightning.data.sources.labelled import open_labelled, stacked
from pe_lightning.errors import InputError
from pe_lightning.extras import require
from pe_lightning.filling import fill as fill_signals
from pe_lightning.media.originals import Original

__all__ = ["fill", "original_of", "read_file", "refilled"]

KEPT_ENCODING = frozenset({"dtype", "scale_factor", "add_offset", "_FillValue", "units", "calendar"})
"""How a variable is stored in a file that the result keeps; chunks and compression are those of the writer."""


def fill(array: Any, dims: Sequence[str] | None = None, **options: Any) -> Any:
    """Fills the missing values (NaN) of an ``xarray.DataArray``, at its own coordinates.

    Args:
        array: The array.
        dims: Names of 1 to 3 dimensions that are the axes; the others count signals, each filled by itself. ``None``: all.
        **options: Arguments of :func:`pe_lightning.fill`, such as ``model="exact"``, ``smooth=True`` or ``folds="none"``.

    Returns:
        The array with the same dtype, dimensions, coordinates, name and attributes. Known values are unchanged.

    Raises:
        InputError: If it is no ``DataArray``, nothing or everything is missing, or an argument is not valid.

    Example:
        >>> import xarray
        >>> x = np.array([0.0, 1.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        >>> series = xarray.DataArray(np.where(x == 3, np.nan, 2 * x), {"x": x}, ("x",), attrs={"units": "m"})
        >>> filled = fill(series, folds="none")
        >>> filled.sel(x=3.0).round(1).item(), filled.attrs
        (6.0, {'units': 'm'})
    """
    xarray = require("xarray", "pe_lightning.xarray.fill")
    if not isinstance(array, xarray.DataArray):
        raise InputError(f"fill takes an xarray.DataArray, got {type(array).__name__}; of a Dataset give one variable")
    if options.get("upscale", 1) != 1:
        raise InputError("upscale is for arrays without coordinates: use pe_lightning.fill, or array.interp of the result")
    return refilled(array, dims, fill_signals(original_of(array, dims), **options).stack)


def read_file(path: str, variable: str | None = None, dims: Sequence[str] | None = None) -> Original:
    """A variable of a NetCDF or Zarr file as signals to fill; the result is NetCDF, with everything else that the file has.

    Raises:
        InputError: If the file cannot be read, or has no such variable or dimension.
    """
    array = open_labelled(path, variable)
    engine = "zarr" if Path(path).suffix.lower() == ".zarr" else "h5netcdf"

    def write(target: Path, values: AnyArray) -> None:
        with require("xarray", "NetCDF").open_dataset(path, engine=engine) as dataset:
            whole = dataset.load()
        changed = refilled(array, dims, values)
        encoding = {key: entry for key, entry in array.encoding.items() if key in KEPT_ENCODING}
        changed.encoding = encoding
        whole[array.name] = changed
        whole.to_netcdf(target, engine="h5netcdf")

    return original_of(array, dims, suffixes=(".nc", ".nc4"), write=write)


def original_of(array: Any, dims: Sequence[str] | None, **written: Any) -> Original:
    """A ``DataArray`` as signals to fill.

    Args:
        array: The array.
        dims: The axes.
        **written: ``suffixes`` and ``write`` of the result, if it comes from a file.
    """
    values, axes, names = stacked(array, dims)
    signals = values[..., None]
    return Original(names, signals, ~np.isfinite(signals), axes=axes, **{"suffixes": (), "write": _no_file, **written})


def refilled(array: Any, dims: Sequence[str] | None, stack: AnyArray) -> Any:
    """A copy of a ``DataArray`` with the values of signals ``(S, N_1, ..., N_D, 1)`` where it has none."""
    known = [str(name) for name in array.dims]
    wanted = [name for name in known if array.sizes[name] > 1] if dims is None else list(dims)
    order = [*(name for name in known if name not in wanted), *wanted]
    moved = array.transpose(*order)
    return moved.copy(data=stack[..., 0].reshape(moved.shape).astype(array.dtype)).transpose(*known)


def _no_file(path: Any, values: AnyArray) -> None:
    raise InputError("a filled DataArray is returned, not written: save it by its method to_netcdf")

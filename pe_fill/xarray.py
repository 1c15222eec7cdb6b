"""Missing samples of labelled arrays filled: :func:`fill` for ``xarray.DataArray`` (extra ``geo``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_fill.filling import fill as fill_signals
from pe_fill.formats.netcdf import original_of, refilled
from pe_lightning.errors import InputError, require


def fill(array: Any, dims: Sequence[str] | None = None, **options: Any) -> Any:
    """Fills the missing values (NaN) of an ``xarray.DataArray``, at its own coordinates.

    Args:
        array: The array.
        dims: Names of 1 to 3 dimensions that are the axes; the others count signals, each filled by itself. ``None``: all.
        **options: Arguments of :func:`pe_fill.fill`, such as ``model="exact"``, ``smooth=True`` or ``folds="none"``.

    Returns:
        The array with the same dtype, dimensions, coordinates, name and attributes. Known values are unchanged.

    Example:
        >>> import numpy as np, xarray
        >>> x = np.array([0.0, 1.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        >>> series = xarray.DataArray(np.where(x == 3, np.nan, 2 * x), {"x": x}, ("x",), attrs={"units": "m"})
        >>> filled = fill(series, folds="none")
        >>> filled.sel(x=3.0).round(1).item(), filled.attrs
        (6.0, {'units': 'm'})
    """
    xarray = require("xarray", "pe_fill.xarray.fill")
    if not isinstance(array, xarray.DataArray):
        raise InputError(f"fill takes an xarray.DataArray, got {type(array).__name__}; of a Dataset give one variable")
    if options.get("upscale", 1) != 1:
        raise InputError("upscale is for arrays without coordinates: use pe_fill.fill, or array.interp of the result")
    stack = fill_signals(original_of(array, dims), **options).stack
    return refilled(array, dims, stack.astype(array.dtype))

"""Maps: values on a grid with coordinates in the user's units, as NetCDF, GeoTIFF, CSV or NPY."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_fill.formats.netcdf import netcdf_bytes
from pe_fill.formats.point_axes import EAST_NAMES, NORTH_NAMES
from pe_lightning.errors import InputError, require
from pe_lightning.signals.files import save_figure, write_atomically
from pe_lightning.signals.raw import AnyArray

MAP_SUFFIXES = (".nc", ".tif", ".tiff", ".csv", ".npy")
"""Suffixes of the files that :meth:`PointMap.write` writes."""
STD_SUFFIX = "_std"
"""End of the names of standard deviations."""
LONGITUDES, LATITUDES = EAST_NAMES[1:4], NORTH_NAMES[1:3]


@dataclass
class PointMap:
    """Values on a grid.

    Args:
        axes: Coordinates of the samples per axis in the user's units, ``(N_a,)``, by name.
        values: Values ``(N_1, ..., N_D)`` by name.
        std: Their standard deviations, the same shape, by the name of the value; may be empty.
        attributes: Attributes of the values, which NetCDF files have.
        crs: Coordinate reference system of the axes as GDAL reads it; longitudes and latitudes without one are in WGS 84.
    """

    axes: dict[str, AnyArray]
    values: dict[str, npt.NDArray[np.float64]]
    std: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    crs: str | None = None

    @property
    def variables(self) -> dict[str, npt.NDArray[np.float64]]:
        """Values, each followed by its standard deviation ``<name>_std``."""
        found: dict[str, npt.NDArray[np.float64]] = {}
        for name, values in self.values.items():
            found[name] = values
            if name in self.std:
                found[name + STD_SUFFIX] = self.std[name]
        return found

    def to_xarray(self) -> Any:
        """The map as an ``xarray.Dataset`` of ``(..., lat, lon)``, with attributes of the CF conventions."""
        xarray = require("xarray", "a labelled map")
        names = list(self.axes)
        dims = [*names[:-2], *reversed(east_and_north(names[-2:]))] if len(names) > 1 else names
        lower = {name.lower() for name in names}
        geographic = bool(lower & {*LONGITUDES} and lower & {*LATITUDES})
        crs = self.crs or ("EPSG:4326" if geographic else None)
        attributes = {**self.attributes, **({"grid_mapping": "crs"} if crs else {})}
        made = xarray.Dataset(attrs={"Conventions": "CF-1.11"})
        for name, column in self.axes.items():
            made[name] = ((name,), column, _axis_attributes(name, column, self.crs is not None and not geographic))
        for name, values in self.variables.items():
            about = {"ancillary_variables": name + STD_SUFFIX} if name in self.std else {}
            if name not in self.values:
                about = {"long_name": f"standard deviation of {name.removesuffix(STD_SUFFIX)}"}
            made[name] = xarray.DataArray(values, dims=names, attrs=attributes | about).transpose(*dims)
        if crs:
            made["crs"] = ((), 0, _crs_attributes(crs, geographic))
        return made

    def write(self, path: str | Path, force: bool = True) -> Path:
        """Writes the map atomically, in the format of the suffix of the path; ``force`` replaces a file of this name.

        - ``.nc``: NetCDF, a variable per value, with coordinates (extra ``geo``).
        - ``.tif``: GeoTIFF of two numeric axes, a band per value, north up (extra ``geo``).
        - ``.csv``: a row per sample: its coordinates, then the values.
        - ``.npy``: a structured array of the shape of the grid, with a field per coordinate and per value.
        """
        target = Path(path)
        check_map(target, self.axes)
        if target.suffix in (".csv", ".npy"):
            places = np.meshgrid(*self.axes.values(), indexing="ij")
            return write_table(target, {**dict(zip(self.axes, places, strict=True)), **self.variables}, force)
        # in memory: neither HDF5 nor GDAL reports a full disk
        content = netcdf_bytes({"/": self.to_xarray()}) if target.suffix == ".nc" else self._geotiff()
        write_atomically(target, content, force)
        return target

    def _geotiff(self) -> bytes:
        rasterio = require("rasterio", "GeoTIFF")
        east, north = east_and_north(list(self.axes))
        data = self.to_xarray().sortby(north, ascending=False).sortby(east)
        x, y = data[east].values, data[north].values
        width, height = (float(column[-1] - column[0]) / (len(column) - 1) for column in (x, y))
        options = {
            "height": len(y),
            "width": len(x),
            "count": len(self.variables),
            "dtype": "float64",
            "crs": self.crs or ("EPSG:4326" if "crs" in data else None),
            "transform": rasterio.Affine(width, 0.0, x[0] - width / 2, 0.0, height, y[0] - height / 2),
        }
        if any(np.isnan(values).any() for values in self.variables.values()):
            options["nodata"] = np.nan
        with rasterio.MemoryFile() as file:
            with file.open(driver="GTiff", **options) as tiff:
                for number, name in enumerate(self.variables, 1):
                    tiff.write(data[name].values, number)
                    tiff.set_band_description(number, name)
            return bytes(file.getbuffer())


def _axis_attributes(name: str, column: AnyArray, projected: bool) -> dict[str, str]:
    """Attributes of a coordinate by its name (CF conventions, Sec. 4 and 5.6)."""
    lower, metres = name.lower(), {"units": "m"} if projected else {}
    if column.dtype.kind == "M":
        return {"standard_name": "time", "axis": "T"}
    if lower in LONGITUDES:
        return {"standard_name": "longitude", "units": "degrees_east", "axis": "X"}
    if lower in LATITUDES:
        return {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"}
    if lower in EAST_NAMES:
        return {"standard_name": "projection_x_coordinate", "axis": "X", **metres}
    return {"standard_name": "projection_y_coordinate", "axis": "Y", **metres} if lower in NORTH_NAMES else {}


def _crs_attributes(crs: str, geographic: bool) -> dict[str, Any]:
    """Attributes of a grid mapping (CF conventions, Sec. 5.6 and appendix F)."""
    if crs == "EPSG:4326":
        ellipsoid = {"semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563}
        return {"grid_mapping_name": "latitude_longitude", "horizontal_datum_name": "WGS84", **ellipsoid}
    text = {"crs_wkt": crs, "spatial_ref": crs}
    return {"grid_mapping_name": "latitude_longitude", **text} if geographic else text


def check_map(path: Path, axes: Mapping[str, AnyArray] | None = None) -> None:
    """Checks before anything is computed that a map, of these coordinates by name, can be written to a path."""
    if path.suffix not in MAP_SUFFIXES:
        raise InputError(f"a map is written as {', '.join(MAP_SUFFIXES)}, by its suffix; got {str(path)!r}")
    if path.suffix == ".nc":
        require("xarray", "NetCDF")
        require("h5netcdf", "NetCDF")
    if path.suffix not in (".tif", ".tiff"):
        return
    require("xarray", "GeoTIFF")
    require("rasterio", "GeoTIFF")
    columns = [] if axes is None else list(axes.values())
    numeric = len(columns) in (0, 2) and all(column.dtype.kind != "M" and len(column) > 1 for column in columns)
    if not numeric or not all(np.allclose(np.diff(x), np.diff(x).mean(), rtol=1e-3) for x in columns):
        raise InputError(
            f"GeoTIFF takes two numeric axes of at least 2 samples at equal distances, unlike {', '.join(axes or ())}: "
            "write .nc, .csv or .npy"
        )


def write_table(path: Path, columns: Mapping[str, Sequence[Any] | AnyArray], force: bool = True) -> Path:
    """Writes columns of text, numbers or ``datetime64``, of one shape, atomically as ``.csv`` or a structured ``.npy``.

    In CSV numbers have as many digits as they need, and missing numbers are empty cells. ``force`` replaces a file.
    """
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    if path.suffix == ".npy":
        plain = [column.astype(str) if column.dtype.kind == "O" else column for column in arrays.values()]
        content = io.BytesIO()
        types = [(name, column.dtype) for name, column in zip(arrays, plain, strict=True)]
        np.save(content, np.rec.fromarrays(plain, dtype=types))
        write_atomically(path, content.getvalue(), force)
        return path
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(text_of(column.ravel()) for column in arrays.values()), strict=True))
    write_atomically(path, text.getvalue(), force)
    return path


def text_of(column: Sequence[Any] | AnyArray) -> list[str]:
    """The cells of a column; a missing number is empty."""
    array = np.asarray(column)
    if array.dtype.kind == "M":
        return ["" if np.isnat(entry) else str(entry).removesuffix("T00:00:00.000") for entry in array]
    if array.dtype.kind == "f":
        return ["" if np.isnan(entry) else repr(entry) for entry in array.tolist()]
    return [str(entry) for entry in array.tolist()]


def write_places(
    path: Path,
    columns: Mapping[str, AnyArray],
    known: npt.NDArray[np.bool_],
    values: Mapping[str, npt.NDArray[np.float64]],
    std: Mapping[str, npt.NDArray[np.float64]],
    force: bool = True,
) -> Path:
    """Writes columns of places, and values and standard deviations at the ``known`` ones ``(P,)``, as CSV or NPY."""
    found: dict[str, AnyArray] = dict(columns)
    for name, column in PointMap({}, dict(values), dict(std)).variables.items():
        own = name if name not in columns else f"{name}_predicted"
        found[own] = np.full(len(known), np.nan)
        found[own][known] = column
    return write_table(path, found, force)


def east_and_north(names: list[str]) -> tuple[str, str]:
    """The axis to the right and the axis up: by their names, else the first and the second."""
    first, second = (name.lower() for name in names)
    swapped = first in NORTH_NAMES or second in EAST_NAMES
    return (names[1], names[0]) if swapped else (names[0], names[1])


def plot_map(
    path: Path, found: PointMap, places: Mapping[str, AnyArray], points: Mapping[str, AnyArray], caption: str
) -> Path:
    """Plots each value of a map as a PNG, its standard deviation, and the points that it was made from.

    Of three axes the middle of the first is drawn. ``places`` are coordinates ``(P,)`` by axis, ``points`` values by name.
    """
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    names = list(found.axes)
    columns = 3 if found.std and len(names) > 1 else 2 if len(names) > 1 else 1
    figure = Figure(figsize=(3.6 * columns if columns > 1 else 9, 3.2 * len(found.values)), layout="constrained")
    panels = figure.subplots(len(found.values), columns, squeeze=False)
    for row, (name, values) in zip(panels, found.values.items(), strict=True):
        known, std = points[name], found.std.get(name)
        if len(names) == 1:
            (x,) = found.axes.values()
            row[0].plot(places[names[0]], known, ".", markersize=4, label=name)
            row[0].plot(x, values, color="tab:orange", linewidth=1, label="predicted")
            if std is not None:
                row[0].fill_between(
                    x, values - 1.645 * std, values + 1.645 * std, alpha=0.3, color="tab:orange", label="90 %"
                )
            row[0].set_xlabel(names[0])
            row[0].set_xlim(x.min(), x.max())  # margins may leave the years 1 to 9999 that matplotlib knows
            row[0].legend(fontsize=8)
            continue
        if len(names) == 3:
            middle = len(next(iter(found.axes.values()))) // 2
            values, std = values[middle], None if std is None else std[middle]
        across, up = names[-2:]
        if east_and_north([across, up]) != (across, up):
            across, up = up, across
        else:
            values, std = values.T, None if std is None else std.T
        colours: dict[str, Any] = {"vmin": float(np.min(known)), "vmax": float(np.max(known)), "cmap": "viridis"}
        drawn = row[0].scatter(places[across], places[up], c=known, s=6, linewidths=0, **colours)
        x, y = found.axes[across], found.axes[up]
        row[0].set(xlim=(x.min(), x.max()), ylim=(y.min(), y.max()))
        figure.colorbar(drawn, ax=row[0])
        each = [(row[1], f"{name}, predicted", values, colours)]
        if std is not None:
            each.append((row[2], f"{name}, standard deviation", std, {"cmap": "magma"}))
        for panel, title, image, options in each:
            drawn = panel.pcolormesh(x, y, image, shading="nearest", rasterized=True, **options)
            panel.set_title(title, fontsize=11)
            figure.colorbar(drawn, ax=panel)
        row[0].set_title(f"{name}, {len(known)} points", fontsize=11)
        for panel in row:
            panel.set(xlabel=across, ylabel=up)
            for axis, label in ((panel.xaxis, across), (panel.yaxis, up)):
                if found.axes[label].dtype.kind == "M":
                    locator: Any = AutoDateLocator(minticks=3, maxticks=5)  # type: ignore[no-untyped-call]
                    axis.set_major_locator(locator)
                    axis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
                else:
                    axis.set_major_locator(MaxNLocator(5))
    figure.suptitle(caption, fontsize=11)
    return save_figure(path, figure)

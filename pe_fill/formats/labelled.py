"""Labelled arrays: NetCDF, Zarr and GeoTIFF, with the coordinates of their samples (extra ``geo``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pe_fill.formats.point_axes import periods_of_grid
from pe_fill.formats.points import names_of
from pe_fill.formats.volumes import turned_raster
from pe_lightning.errors import InputError, check_known, refuse, require
from pe_lightning.signals import Axis, RawSignals, ValueRange
from pe_lightning.signals.axes import as_numbers, origin_of
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import check_readable, user_path
from pe_lightning.signals.raw import AnyArray, Mask, is_one_of
from pe_lightning.signals.repeated import REMEDY, note_repeated
from pe_lightning.signals.sources import Source
from pe_lightning.signals.sources.arrays import check_hdf5
from pe_lightning.signals.sources.declared import FILL_ATTRIBUTES, Declared
from pe_lightning.signals.sources.missing import Missing, MissingLike
from pe_lightning.signals.sources.paths import SourceFile, numbered, reading
from pe_lightning.signals.sources.tables import file_name_of
from pe_lightning.signals.sources.tiff import declared_by_page, mask_of, open_tiff, orientation_of
from pe_lightning.signals.validation import check_memory, check_numbers

CF_ATTRIBUTES = ("bounds", "climatology", "coordinates", "grid_mapping", "ancillary_variables", "cell_measures")
"""Attributes of the CF conventions by which a variable names others."""
LABELLED_SUFFIXES = (".nc", ".nc4", ".zarr", ".tif", ".tiff")
MAX_AXES = 3


@dataclass(eq=False)
class LabelledSource(Source):
    """A variable of a NetCDF, Zarr or GeoTIFF file at its coordinates, which need not be at equal distances.

    Args:
        paths: The file, or the folder of a Zarr store.
        variable: Name of the variable, or number of a band of a GeoTIFF from 1; needed if the file has several.
        dims: Names of 1 to 3 dimensions that are the axes, in their order, as a list or with commas: ``time,lat,lon``; all
            by default. The others count signals.
        missing: Numbers that mark missing values besides declared ones, in the units of the variable: ``-9999,-999``.
        periodic: Axes that repeat, whose samples cover the period: ``lon`` (degrees), ``hour=24``, of dates ``time=24h``.
    """

    suffixes = (".nc", ".nc4", ".zarr")
    trained_range = "measured"
    chosen_by = frozenset({"variable", "dims"})
    datamodule = "LabelledDataModule"

    paths: str | list[str]
    variable: str | None = None
    dims: str | list[str] | None = None
    missing: MissingLike = "nan"
    periodic: str | list[str] | None = None

    @classmethod
    def claims(cls, path: Path) -> bool:
        return path.suffix.lower() in cls.suffixes  # a Zarr store is a folder

    def __post_init__(self) -> None:
        given = [self.paths] if isinstance(self.paths, str) else list(self.paths)
        if len(given) != 1:
            raise InputError(f"a labelled array is one file, or one Zarr store; got {len(given)} paths")
        self.paths = given
        self.dims = None if self.dims is None else names_of("dims", self.dims, MAX_AXES)
        self._fills = Missing(self.missing).only_values("a labelled array")

    def read(self) -> RawSignals:
        assert isinstance(self.paths, list)
        array = open_labelled(self.paths[0], self.variable, self._fills)
        values, axes, names = as_signals(array, self.dims)
        seasons, axes = periods_of_grid(self.periodic or "none", axes, len(axes))
        if seasons != ():
            raise InputError(
                f"periodic {self.periodic!r} is a season, which a fit has of the points of a table (--data.coordinates NAME "
                "--data.values NAME): leave it out, or fill the file, which takes seasons"
            )
        known = np.isfinite(values)
        low, high = (float(values.min(where=known, initial=np.inf)), float(values.max(where=known, initial=-np.inf)))
        if low >= high:
            what = f"{low:g} everywhere" if known.any() else "missing everywhere"
            raise InputError(f"{self.paths[0]!r}: {array.name} is {what}, so that there is nothing to fit")
        stored = np.where(known, values, np.nan)[..., None].astype(np.float64, copy=False)
        return RawSignals(stored, names, ValueRange("float64", (low,), (high,)), axes=axes)


def open_labelled(path: str, variable: str | None = None, fills: Sequence[float] = ()) -> Any:
    """A variable of a file as an ``xarray.DataArray`` in memory, with NaN for missing values and for ``fills``."""
    file = user_path(path)
    check_readable(path)
    xarray = require("xarray", f"reading {path!r}")
    if file.suffix.lower() in (".tif", ".tiff"):
        array, missing = _geotiff(file, path, variable, xarray)
    else:
        array, missing = _variable(file, path, variable, xarray)
    missing |= is_one_of(array.values, fills)
    note_repeated(f"{array.name!r} in {path!r}", [array.values[~missing]])
    return array.where(~missing) if missing.any() else array


def _variable(file: Path, path: str, variable: str | None, xarray: Any) -> tuple[Any, Mask]:
    """A variable of a NetCDF file or a Zarr store, and where its attributes declare it missing."""
    with _opened(file, path, xarray) as dataset:
        found = [str(name) for name, array in dataset.data_vars.items() if array.ndim]
        data = [name for name in found if name not in _described_by(dataset.variables.values())]
        if variable is None and len(data) != 1:
            held = f"It holds: {', '.join(data)}" if data else _held_in_groups(file, path, xarray)
            raise InputError(f"{path!r} holds {len(data)} variables: choose one by variable. {held}")
        name = data[0] if variable is None else variable
        if not found:
            raise InputError(f"{path!r} has no variable {name!r}. {_held_in_groups(file, path, xarray)}")
        check_known(f"{path!r} has no variable", name, found, "It has")
        check_memory(f"{name!r} in {path!r}", dataset[name].shape, 8, "Save a part of it, or use a coarser one")
        stored = dataset[name].load()
        declared = _declared(stored, file, path)
        # decoded here: the library takes a declaration that the dtype cannot represent for another number
        dataset[name].attrs = {key: value for key, value in stored.attrs.items() if key not in FILL_ATTRIBUTES}
        located = [other for other in sorted(_described_by([dataset[name]])) if other in found and other != name]
        return _decoded(dataset[[name, *located]], path, xarray)[name].load(), declared.marks(stored.values)


def _described_by(arrays: Iterable[Any]) -> set[str]:
    """The variables that others name by the attributes of the CF conventions: coordinates and bounds are no data."""
    texts = (str(array.attrs.get(attribute, "")) for array in arrays for attribute in CF_ATTRIBUTES)
    return {word for text in texts for word in text.split() if not word.endswith(":")}


def _held_in_groups(file: Path, path: str, xarray: Any) -> str:
    """The variables of the groups of a file whose root has none, and what to type."""
    engine = "zarr" if file.suffix.lower() == ".zarr" else "h5netcdf"
    with reading(path), xarray.open_datatree(file, engine=engine, decode_cf=False) as tree:
        groups = {
            node.path: ", ".join(map(str, node.data_vars)) for node in tree.subtree if node.path != "/" and node.data_vars
        }
    if not groups:
        return "It holds none"
    listed = "; ".join(f"{group} ({names})" for group, names in groups.items())
    first = next(iter(groups))
    return (
        f"Its groups do: {listed}. Save one as a file: "
        f"xarray.open_dataset({path!r}, group={first!r}).to_netcdf({Path(first).name + '.nc'!r})"
    )


@contextmanager
def _opened(file: Path, path: str, xarray: Any) -> Iterator[Any]:
    """The dataset of a file or a store, with the stored numbers."""
    if file.suffix.lower() not in LABELLED_SUFFIXES:
        raise InputError(f"{path!r} is no labelled array; these are {', '.join(LABELLED_SUFFIXES)}, by their suffix")
    options: dict[str, Any] = {"engine": "zarr"} if file.suffix.lower() == ".zarr" else {"engine": "h5netcdf"}
    require(options["engine"], f"reading {path!r}")
    with reading(path):
        if options["engine"] == "h5netcdf" and is_classic(file, path):
            options["engine"] = "scipy"
        elif options["engine"] == "h5netcdf":
            check_hdf5(file, path)
            options["phony_dims"] = "sort"  # names for dimensions of plain HDF5
        with xarray.open_dataset(file, decode_cf=False, **options) as dataset:
            yield dataset


def is_classic(file: Path, path: str) -> bool:
    """Whether a file is NetCDF 3, of the kinds that SciPy reads."""
    with file.open("rb") as stream:
        beginning = stream.read(4)
    if beginning == b"CDF\x05":
        raise InputError(f"{path!r} is NetCDF 3 of 64-bit data: convert it by nccopy -k nc4 {path} NEW.nc")
    return beginning in (b"CDF\x01", b"CDF\x02")


def _declared(stored: Any, file: Path, path: str) -> Declared:
    declared = Declared.by_attributes(stored.attrs, stored.dtype)
    is_default = file.is_dir() and not (file / "zarr.json").exists() and stored.attrs.get("_FillValue") == 0
    if is_default:  # the library's default in Zarr 2, which has no other place for a declaration
        if count := int((stored.values == 0).sum()):
            rank_zero_info(
                f"{stored.name!r} in {path!r}: {count} values are 0, the default fill value of Zarr 2, and are known; if "
                f"they are missing, {REMEDY.format(0)}"
            )
        declared = replace(declared, values=tuple(value for value in declared.values if value != 0))
    return declared


def _decoded(dataset: Any, path: str, xarray: Any) -> Any:
    """A dataset with unpacked values in float64, and dates, or numbers for dates of other calendars."""
    for array in dataset.variables.values():
        array.attrs |= {key: float(array.attrs[key]) for key in ("scale_factor", "add_offset") if key in array.attrs}
    try:
        times = xarray.coders.CFDatetimeCoder(time_unit="us")
        decoded = xarray.decode_cf(dataset, decode_times=times, decode_timedelta=False)
        foreign = [str(name) for name, array in decoded.coords.items() if array.dtype.kind == "O"]
    except (ValueError, ImportError):  # calendars other than ours need a package of their own
        foreign = [str(name) for name, array in dataset.coords.items() if "calendar" in array.attrs]
        if not foreign:
            raise
    if foreign:
        rank_zero_info(f"{path!r}: {', '.join(foreign)} has dates of another calendar, and is read as plain numbers")
        return xarray.decode_cf(dataset, decode_times=False)
    return decoded


def _geotiff(file: Path, path: str, band: str | None, xarray: Any) -> tuple[Any, Mask]:
    """A band of a GeoTIFF ``(y, x)`` at the centres of its pixels, and where it is missing."""
    rasterio = require("rasterio", f"reading {path!r}")
    source = SourceFile(file, path)
    with open_tiff(source) as stored, rasterio.open(file, driver="GTiff") as tiff:
        page, mask = stored.pages[0], mask_of(source, stored)
        refuse((orientation_of(page) > 1, turned_raster(source, page)))
        chosen = band or ("1" if tiff.count == 1 else "")
        number = int(chosen) if chosen.isdecimal() else 0
        if not 1 <= number <= tiff.count:
            raise InputError(f"{path!r} has bands 1 to {tiff.count}: choose one by variable; got {band!r}")
        check_memory(repr(path), (tiff.height, tiff.width), 8, "Save a part of it, or a coarser one")
        values = tiff.read(number)
        missing = declared_by_page(source, page).marks(values)
        if mask is not None:
            missing |= mask[..., number - 1 if mask.shape[-1] > 1 else 0]
        if rasterio.enums.MaskFlags.alpha in tiff.mask_flag_enums[number - 1]:
            missing |= tiff.read_masks(number) == 0
        x, y = pixel_centres(tiff, path)
        name = tiff.descriptions[number - 1] or (file.stem if tiff.count == 1 else f"band{number}")
        return xarray.DataArray(values.astype(np.float64), {"y": y, "x": x}, ("y", "x"), name), missing


def pixel_centres(tiff: Any, path: str) -> tuple[AnyArray, AnyArray]:
    """Coordinates ``x`` and ``y`` of the centres of the pixels of an open raster."""
    turn = tiff.transform
    if turn.b or turn.d:
        raise InputError(f"{path!r} is rotated against its coordinates; warp it first, such as by gdalwarp")
    return turn.c + turn.a * (np.arange(tiff.width) + 0.5), turn.f + turn.e * (np.arange(tiff.height) + 0.5)


def as_signals(
    array: Any, dims: Sequence[str] | None = None
) -> tuple[npt.NDArray[np.float64], tuple[Axis, ...], tuple[str, ...]]:
    """A ``DataArray`` as signals ``(S, N_1, ..., N_D)`` float64, with their axes and names.

    The axes are ``dims``, by default all dimensions of more than one sample; the others count signals.
    """
    check_numbers(repr(array.name), array.dtype, kinds="biuf")
    known, wanted = [str(name) for name in array.dims], axes_among(array, dims)
    for name in wanted:
        check_known(f"{array.name!r} has no dimension", name, known, "It has")
        if array.sizes[name] < 2:
            raise InputError(
                f"dimension {name!r} of {array.name!r} has one sample; an axis needs at least 2: leave it out of dims"
            )
    if not 1 <= len(wanted) <= MAX_AXES:
        raise InputError(
            f"{array.name!r} has the dimensions {', '.join(known)}: name 1 to {MAX_AXES} of them as axes by dims; the "
            "others count signals"
        )
    values = array.transpose(..., *wanted).values.astype(np.float64)
    values = values.reshape(-1, *values.shape[-len(wanted) :])
    return values, axes_of(array, wanted), numbered(file_name_of(str(array.name or "values")), len(values))


def axes_of(array: Any, dims: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of a ``DataArray``: its coordinates, or the numbers of samples where it has none."""
    axes = []
    for name in dims:
        size = array.sizes[name]
        column: AnyArray = np.asarray(array[name].values) if name in array.coords else np.arange(size)
        along = sorted(str(other) for other, found in array.coords.items() if found.ndim > 1 and name in found.dims)
        if along and name not in array.coords:
            rank_zero_info(
                f"dimension {name!r} of {array.name!r} has coordinates of several dimensions ({', '.join(along)}): its axis "
                "is the number of the sample"
            )
        numbers = as_numbers(name, column, column.dtype.kind == "M", origin_of(column))
        steps = np.diff(numbers)
        missing, same = int((~np.isfinite(numbers)).sum()), np.flatnonzero(steps == 0).tolist()
        label = f"coordinates {name!r}"
        refuse(
            (missing, f"{label}: {missing} of {size} are missing: give them, or drop these samples"),
            (len(same) == size - 1, f"{label}: they have one value: drop the dimension"),
            (same, f"{label}: samples {same[:1]} and the next are equal: each needs its own"),
            (not (steps > 0).all() and not (steps < 0).all(), f"{label}: they neither ascend nor descend: sort by them"),
        )
        axes.append(Axis.from_values(name, column))
    return tuple(axes)


def axes_among(array: Any, dims: Sequence[str] | None) -> list[str]:
    """The dimensions that are axes: by default those of more than one sample."""
    return [str(name) for name in array.dims if array.sizes[name] > 1] if dims is None else list(dims)

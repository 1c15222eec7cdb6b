"""Declarations of missing values: what each format declares, read by fit and by fill, and written back."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import soundfile
import tifffile
import xarray
from attempts import Row, folder
from numpy.typing import NDArray

from pe_fill.estimators.filling import read_file
from pe_fill.formats.editable import EditableFile
from pe_fill.formats.labelled import LabelledSource, edit_labelled
from pe_lightning.errors import InputError
from pe_lightning.signals.distributed import NOTICES
from pe_lightning.signals.raw import RawSignals
from pe_lightning.signals.sources.kinds import source_of
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.signals.sources.pictures import declared_by_tiff

Array = NDArray[Any]
SHAPE, PAGES = (18, 24), 6
DTYPES = ("uint8", "int16", "uint16", "int32", "float32", "float64")
TEXTS = ("0", "255", "-9999", "-9999.0", "65535", "nan", "-3.4028234663852886e+38", "-1.7976931348623157e+308", "none", "")
"""Texts of the tag ``GDAL_NODATA``."""
NUMBERS = [text for text in TEXTS if text not in ("nan", "none", "")]
SENTINEL = -9999


@dataclass
class Case:
    """A file: its stored values ``(H, W)``, where they are missing, and how both verbs read it."""

    name: str
    values: Array
    missing: Array
    edit: Callable[[str], EditableFile]
    read: Callable[[str], RawSignals]
    declaration: Callable[[Path], Any] = field(default=lambda path: None)


def stored_values(dtype: str, rng: random.Random) -> Array:
    """A smooth field from 20 to 120, with some valid zeros."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    values = (70 + 50 * np.sin(x / 5) * np.cos(y / 4)).astype(dtype)
    values.ravel()[rng.sample(range(values.size), 8)] = 0
    return values


def with_holes(values: Array, numbers: Iterable[float], rng: random.Random) -> tuple[Array, Array]:
    """Values with holes of these numbers, where the dtype has them, and NaN in floating point; and where they are."""
    values = values.copy()
    for number in numbers:
        with np.errstate(all="ignore"):
            held = np.asarray(number).astype(values.dtype)
        info = np.iinfo(values.dtype) if values.dtype.kind in "iu" else np.finfo(values.dtype)
        if np.isfinite(held) and info.min <= number <= info.max:
            values.ravel()[rng.sample(range(values.size), 9)] = held
    if values.dtype.kind == "f":
        values.ravel()[rng.sample(range(values.size), 5)] = np.nan
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    for number in numbers:
        with np.errstate(all="ignore"):
            missing |= values == (values.dtype.type(number) if values.dtype.kind == "f" else number)
    return values, missing


def by_source(path: str, missing: str, **options: Any) -> RawSignals:
    """What a fit reads from a file."""
    return source_of(path, missing=missing, **options).read()


def by_labels(path: str, missing: str) -> RawSignals:
    """What a fit reads from a labelled array."""
    return LabelledSource(path, missing=missing).read()


def tag(path: Path) -> Any:
    """What the tag declares for the dtype of a file; a text that declares nothing may be left out of a copy."""
    return declared_by_tiff(SourceFile(path, path.name)).values


def tiffs(rng: random.Random) -> Iterator[Case]:
    """Pictures, stacks and rasters with every text of the tag."""
    import rasterio

    for dtype in DTYPES:
        for text in TEXTS:
            values, missing = with_holes(stored_values(dtype, rng), [float(text)] if text in NUMBERS else [], rng)
            extra = [(42113, "s", 0, text, True)] if text else []
            options: dict[str, Any] = {"photometric": "minisblack", "metadata": None, "extratags": extra}
            tifffile.imwrite("picture.tif", values, **options)
            yield Case(f"picture.tif {dtype} {text!r}", values, missing, read_file, lambda path: by_source(path, "nan"), tag)
            tifffile.imwrite("stack.tif", np.stack([values] * PAGES), **options)
            limits = None if np.dtype(dtype).itemsize < 4 else [-1e39, 1e39]
            pages, lost = np.stack([values] * PAGES), np.stack([missing] * PAGES)
            in_stack = partial(by_source, missing="nan", value_range=limits)
            yield Case(f"stack.tif {dtype} {text!r}", pages, lost, partial(read_file, axes=3), in_stack, tag)
            profile = {"driver": "GTiff", "height": SHAPE[0], "width": SHAPE[1], "count": 1, "dtype": dtype}
            place = {"crs": "EPSG:4326", "transform": rasterio.Affine(0.5, 0, 5, 0, -0.5, 60)}
            try:
                declared = {} if not text or text == "none" else {"nodata": float(text)}
                with rasterio.open("raster.tif", "w", **profile, **place, **declared) as file:
                    file.write(values, 1)
            except ValueError:  # GDAL does not write what the dtype cannot hold
                continue
            yield Case(f"raster.tif {dtype} {text!r}", values, missing, read_file, lambda path: by_labels(path, "nan"), tag)


def attributed(rng: random.Random) -> Iterator[tuple[str, Array, Array, dict[str, Any]]]:
    """Stored values, where they are missing, and attributes, for every dtype."""
    for dtype in DTYPES:
        kind = np.dtype(dtype).type
        plain = stored_values(dtype, rng)
        for fill in (0, 111, 200):
            values, missing = with_holes(plain, [fill], rng)
            yield f"{dtype} _FillValue {fill}", values, missing, {"_FillValue": kind(fill)}
            yield f"{dtype} missing_value {fill}", values, missing, {"missing_value": kind(fill)}
        values, missing = with_holes(plain, [200, 201], rng)
        yield f"{dtype} both", values, missing, {"_FillValue": kind(200), "missing_value": kind(201)}
        values, missing = with_holes(plain, [130, 2], rng)
        missing = missing | (plain == 0) & (values == 0)
        limits = {"valid_min": kind(10), "valid_max": kind(125)}
        yield f"{dtype} valid_range", values, missing, {"valid_range": np.array([10, 125], dtype)}
        yield f"{dtype} valid_min, valid_max", values, missing, limits
        declared = {} if plain.dtype.kind == "u" else {"_FillValue": kind(SENTINEL)}
        yield f"{dtype} _FillValue -9999", plain, np.isnan(plain), declared
        if np.dtype(dtype).kind == "i":
            yield f"{dtype} packed", values, missing, {"scale_factor": 0.5, "add_offset": 3.0} | limits
            real = {"scale_factor": 0.5, "add_offset": 3.0, "valid_range": np.array([8.0, 65.5])}
            yield f"{dtype} packed, limits of values", values, missing, real
            turned = {"scale_factor": -0.5, "add_offset": 3.0, "valid_range": np.array([-59.5, -2.0])}
            yield f"{dtype} packed by a negative scale", values, missing, turned


def attributes_of(path: Path) -> Any:
    """What the attributes of a variable declare."""
    with h5py.File(path) as file:
        names = ("_FillValue", "missing_value", "valid_range", "valid_min", "valid_max", "scale_factor", "add_offset")
        return [np.ravel(file["v"].attrs[name]).tolist() for name in names if name in file["v"].attrs]


def labelled(rng: random.Random) -> Iterator[Case]:
    """NetCDF 4 and 3, Zarr 2 and 3, and plain HDF5."""
    for name, values, missing, attributes in attributed(rng):
        dataset = xarray.Dataset({"v": (("y", "x"), values, attributes)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dataset.to_netcdf("a.nc", engine="h5netcdf")
            own = attributes_of(Path("a.nc"))
            common = (values, missing, edit_labelled, lambda path: by_labels(path, "nan"))
            yield Case(f"NetCDF {name}", *common, attributes_of)
            if values.dtype.kind != "u":
                dataset.to_netcdf("classic.nc", engine="scipy")
                yield Case(f"classic.nc {name}", *common, lambda path, own=own: own if path.name == "classic.nc" else None)
            for form in (2, 3):
                if form == 2 and attributes.get("_FillValue") == 0:  # which is also the default of Zarr 2
                    continue
                dataset.to_zarr(f"z{form}.zarr", mode="w", zarr_format=form, consolidated=False)
                yield Case(f"z{form}.zarr {name}", *common)
        with h5py.File("a.h5", "w") as file:
            file["v"] = values
            file["v"].attrs.update(attributes)
        limits = None if values.dtype.itemsize < 4 else [-1e39, 1e39]
        plain = partial(by_source, missing="nan", value_range=limits)
        yield Case(f"HDF5 {name}", values, missing, partial(read_file, axes=2), plain, attributes_of)


def nans(raw: RawSignals, shape: tuple[int, ...]) -> Array:
    """Where signals are missing."""
    values = np.concatenate([block.reshape(-1) for block in raw.blocks()])
    return np.isnan(values.astype(np.float64)).reshape(shape)


PATHS = {"NetCDF": "a.nc", "HDF5": "a.h5"}


def check(case: Case, reads: Row, fills: Row, copies: Row) -> None:
    """Counts whether both verbs take what is declared, and whether a copy declares the same and has nothing missing."""
    first = case.name.split()[0]
    path = Path(PATHS.get(first, first))
    shape = case.values.shape
    try:
        found = nans(case.read(str(path)), shape)
        reads.add(bool((found == case.missing).all()), f"{case.name}: {found.sum()} missing, not {case.missing.sum()}")
    except InputError as error:  # int16 pictures and integers of unknown range
        reads.add("unknown range" in str(error) or "far wider" in str(error), f"{case.name}: {error}")
    original = case.edit(str(path))
    found = original.missing.reshape(shape)
    fills.add(bool((found == case.missing).all()), f"{case.name}: {found.sum()} missing, not {case.missing.sum()}")
    target = Path(f"copy{path.suffix if path.suffix != '.zarr' else '.nc'}")
    for predicted in (0, 111, 200, 1e30):
        info = np.iinfo(original.values.dtype) if original.values.dtype.kind in "iu" else None
        number = predicted if info is None else int(np.clip(predicted, info.min, info.max))
        values = np.where(original.missing, np.asarray(number, original.values.dtype), original.values)
        target.unlink(missing_ok=True)
        original.write(target, values)
        again = case.edit(str(target))
        known = again.values[~original.missing] == original.values[~original.missing]
        before, after = case.declaration(path), case.declaration(target)
        held = not again.missing.any() and bool(known.all()) and (path.name == "classic.nc" or str(before) == str(after))
        about = f"{again.missing.sum()} missing, {(~known).sum()} known values differ, declared {before} and {after}"
        copies.add(held, f"{case.name}, filled by {predicted:g}: {about}")


@contextmanager
def notices() -> Iterator[list[str]]:
    """The notices that are printed meanwhile."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    NOTICES.addHandler(handler)
    try:
        yield found
    finally:
        NOTICES.removeHandler(handler)


def undeclared(rng: random.Random) -> Row:
    """A number that repeats far outside the others is named, and what is to be typed takes it."""
    row = Row("-9999 without a declaration: named, and taken as said")
    values, missing = with_holes(stored_values("float32", rng), [], rng)
    holes = rng.sample(range(values.size), 9)
    values.ravel()[holes] = SENTINEL
    missing.ravel()[holes] = True
    line, lost = values[0].copy(), missing[0].copy()
    line[3:6], lost[3:6] = SENTINEL, True
    np.save("a.npy", values)
    tifffile.imwrite("a.tif", values, photometric="minisblack")
    tifffile.imwrite("stack.tif", np.stack([values] * PAGES), photometric="minisblack")
    xarray.Dataset({"v": (("y", "x"), values)}).to_netcdf("a.nc", engine="h5netcdf")
    xarray.Dataset({"v": (("y", "x"), values)}).to_netcdf("classic.nc", engine="scipy")
    nibabel.Nifti1Image(np.stack([values] * PAGES, -1), np.eye(4)).to_filename("a.nii.gz")
    np.savetxt("a.csv", line[:, None], header="v", comments="", fmt="%.6g")
    soundfile.write("a.wav", line, 8000, subtype="FLOAT")
    with h5py.File("a.h5", "w") as file:
        file["v"] = values
    for name in ("a.npy", "a.tif", "stack.tif", "a.nc", "classic.nc", "a.nii.gz", "a.csv", "a.wav", "a.h5"):
        is_labelled = name.endswith(".nc")
        edit = edit_labelled if is_labelled else read_file
        read = by_labels if is_labelled else by_source
        is_volume = name in ("stack.tif", "a.nii.gz")
        expected = (lost if name in ("a.csv", "a.wav") else missing).sum() * (PAGES if is_volume else 1)
        axes = {} if is_labelled else {"axes": 3 if is_volume else None}
        for verb in ("fill", "fit"):
            if verb == "fit" and name == "a.wav":  # whose range is the peak; --missing is not for sound
                continue
            with notices() as before:
                edit(name, **axes) if verb == "fill" else read(name, "nan")
            with notices() as after:
                told = edit(name, missing=str(SENTINEL), **axes) if verb == "fill" else read(name, str(SENTINEL))
                found = int((told.missing if verb == "fill" else nans(told, (-1,))).sum())
            named = [text for text in before if "far outside" in text and "--missing=-9999" in text]
            still = [text for text in after if "far outside" in text]
            held = bool(named) and not still and found == expected
            row.add(held, f"{verb} {name}: {before}, {found} of {expected}, {still}")
    return row


def declarations(rng: random.Random) -> Iterator[Row]:
    """Every declaration in every format and dtype: only what it marks is missing, for both verbs, and in copies nothing."""
    NOTICES.addHandler(logging.NullHandler())
    with folder():
        for name, cases in (("TIFF", tiffs), ("NetCDF, Zarr and HDF5", labelled)):
            reads, fills = Row(f"declarations in {name}, by fit"), Row("the same, by fill")
            copies = Row("copies of these, with filled values that are declared or not")
            for case in cases(rng):
                check(case, reads, fills, copies)
            yield from (reads, fills, copies)
        yield undeclared(rng)

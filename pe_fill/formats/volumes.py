"""TIFF files (pictures, stacks, rasters with coordinates) and NIfTI volumes, written back with other values."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.editable import EditableFile, marked_values, valid_values
from pe_fill.formats.layouts import array_as_signals, signals_as_array
from pe_lightning.errors import require
from pe_lightning.signals.axes import MAX_CHANNELS
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask
from pe_lightning.signals.sources.declared import NOTHING, Declared
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.pictures import declared_by_tiff, open_tiff
from pe_lightning.signals.sources.volumes import open_nifti
from pe_lightning.signals.validation import check_numbers

TIFF_TAGS = ("Artist", "Copyright", "GDAL_NODATA")
"""Tags of a TIFF file that are copied, besides tags that tifffile writes by name."""
LOSSLESS_CODECS = (1, 8, 32946, 5, 32773, 34925, 50000)
"""Compressions of TIFF that a copy has too."""
LOSSY_COMPRESSION = ("jpeg", "ycbcr jpeg", "webp", "jxl", "lerc", "lerc_deflate", "lerc_zstd")
"""Names of GDAL for the compressions of GeoTIFF that may change pixels."""


def edit_tiff(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A TIFF picture or stack of integers or floating point; rasters with coordinates or a fill value by rasterio."""
    missing.check("TIFF files", "alpha", "colour")
    with open_tiff(file) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        if (page.is_geotiff or page.is_gdal) and len(series.pages) == 1:
            return _read_raster(file, missing)
        array, opaque, declared = series.asarray(), bool(page.extrasamples), declared_by_tiff(file)
        array = np.moveaxis(array, 0, -1) if _is_planar(tiff) else array
    signals = array_as_signals(array, repr(file.given), axes)
    is_picture = signals.ndim == 4 and len(signals) == 1
    return EditableFile(
        file.names(len(signals)),
        signals,
        _marked_tiff(signals, missing, file.given, opaque, declared),
        (".tif", ".tiff"),
        partial(_write_tiff, file, signals.shape, declared),
        "image" if is_picture else "array",
        resizes=is_picture,
        marks_left=True,
    )


def _is_planar(tiff: Any) -> bool:
    """Whether the channels are the first axis of an open file."""
    return bool(tiff.pages[0].samplesperpixel > 1 and tiff.series[0].axes.startswith("S"))


def _write_tiff(
    file: SourceFile, signals: Sequence[int], declared: Declared, path: Path, values: AnyArray, left: Mask | None = None
) -> None:
    import tifffile

    content = io.BytesIO()  # NumPy does not report a full disk
    with open_tiff(file) as tiff, tifffile.TiffWriter(content, byteorder=tiff.byteorder) as written:
        series, page, planar = tiff.series[0], tiff.pages[0], _is_planar(tiff)
        shape = (*series.shape[1:], series.shape[0]) if planar else series.shape
        result = signals_as_array(_valid(values, declared, bool(page.extrasamples), left), shape, signals)
        common: dict[str, Any] = {
            "compression": page.compression if page.compression in LOSSLESS_CODECS else None,
            "metadata": {} if tiff.is_shaped else None,
        }
        written.write(
            np.ascontiguousarray(np.moveaxis(result, -1, 0) if planar else result),
            photometric=page.photometric,
            planarconfig=page.planarconfig if page.samplesperpixel > 1 else None,
            extrasamples=page.extrasamples or None,
            tile=page.tile or None,
            description=page.description or None,
            software=page.software or False,
            datetime=page.tags.valueof("DateTime"),
            iccprofile=page.tags.valueof("InterColorProfile"),
            resolution=page.resolution if "XResolution" in page.tags else None,
            resolutionunit=page.resolutionunit if "XResolution" in page.tags else None,
            extratags=[(t.code, t.dtype, t.count, t.value, True) for name in TIFF_TAGS if (t := page.tags.get(name))],
            **common,
        )
        for other in (*series.levels[1:], *tiff.series[1:]):  # of another size, such as thumbnails
            first = other.pages[0]
            written.write(other.asarray(), photometric=first.photometric, subfiletype=first.subfiletype, **common)
    path.write_bytes(content.getbuffer())


def _marked_tiff(signals: AnyArray, missing: Missing, given: str, extra: bool, declared: Declared) -> Mask:
    """Missing values of pictures and stacks ``(S, ..., C)``, whose last channel may be opacity."""
    check_numbers(repr(given), signals.dtype)
    marked = marked_values(signals, declared.plus(missing.values, signals.dtype))
    if missing.kind in ("alpha", "colour"):
        marked |= np.stack([np.isnan(missing.in_picture(image, given)).any(-1, keepdims=True) for image in signals])
    if _has_opacity(signals, extra) and missing.kind != "alpha":
        marked[..., -1] = False
    return marked


def _has_opacity(signals: AnyArray, extra: bool) -> bool:
    return extra and signals.shape[-1] in (2, 4) and signals.ndim == 4


def _valid(values: AnyArray, declared: Declared, extra: bool, left: Mask | None) -> AnyArray:
    """Values ``(S, ..., C)`` that are not declared missing unless they are ``left`` so; opacity is unchanged."""
    found = valid_values(values, values.dtype, declared, left)
    return np.concatenate([found[..., :-1], values[..., -1:]], -1) if _has_opacity(values, extra) else found


def _read_raster(file: SourceFile, missing: Missing) -> EditableFile:
    """A GeoTIFF: up to 4 bands are channels of one signal, more are signals of their own."""
    rasterio = require("rasterio", f"filling {file.given!r}, a raster with coordinates or a fill value")
    with reading(file.given), _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff:
        bands, declared, opaque = tiff.read(), declared_by_raster(file, tiff), _is_opaque(tiff)
        codec, point = tiff.profile.get("compress"), tiff.tags().get("AREA_OR_POINT", "").lower() == "point"
    if str(codec).lower() in LOSSY_COMPRESSION:
        rank_zero_info(f"{file.given!r} is compressed by {codec}, which may change known pixels: the result is, by deflate")
    together = len(bands) <= MAX_CHANNELS
    signals = np.ascontiguousarray(np.moveaxis(bands, 0, -1)[None] if together else bands[..., None])
    return EditableFile(
        file.names(len(signals)),
        signals,
        _marked_tiff(signals, missing, file.given, opaque, declared),
        (".tif", ".tiff"),
        partial(_write_raster, file, declared),
        "image" if together else "array",
        resizes=True,
        located=True,
        points=point,
        marks_left=True,
    )


def _is_opaque(raster: Any) -> bool:
    """Whether a band of an open raster is opacity."""
    return "alpha" in {meaning.name for meaning in raster.colorinterp}


def declared_by_raster(file: SourceFile, raster: Any) -> Declared:
    """Missing values that an open raster declares, by the tag of the file or a file of GDAL beside it."""
    declared, beside = declared_by_tiff(file), Path(f"{raster.name}.aux.xml")
    if declared.is_empty and beside.exists() and b"NoDataValue" in beside.read_bytes() and np.isfinite(raster.nodata):
        return NOTHING.plus([raster.nodata], np.dtype(raster.dtypes[0]))
    return declared


def _write_raster(
    file: SourceFile,
    declared: Declared,
    path: Path,
    values: AnyArray,
    deviations: bool = False,
    points: bool = False,
    left: Mask | None = None,
) -> None:
    rasterio = require("rasterio", "writing a raster with coordinates")
    with _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff, rasterio.MemoryFile() as memory:
        options = dict(tiff.profile)
        values = values if deviations else _valid(values, declared, _is_opaque(tiff), left)
        bands = np.moveaxis(values[0], -1, 0) if tiff.count <= MAX_CHANNELS else values[..., 0]
        scales = tiff.width / bands.shape[2], tiff.height / bands.shape[1]
        shift = [(1 - scale) / 2 if points else 0.0 for scale in scales]  # the centre of the first pixel stays
        place = tiff.transform @ rasterio.Affine.translation(*shift) @ rasterio.Affine.scale(*scales)
        options |= {"height": bands.shape[1], "width": bands.shape[2], "transform": place}
        if str(options.get("compress")).lower() in LOSSY_COMPRESSION:
            options |= {"compress": "deflate", "photometric": None}
        if declared.is_empty and options["nodata"] is not None and np.isfinite(options["nodata"]):
            options["nodata"] = None  # which GDAL takes for a text that is no number, or for a number beyond the dtype
        if deviations:
            options |= {"dtype": "float32", "nodata": None, "photometric": None}
        # in memory: GDAL does not report a full disk
        with memory.open(**{name: value for name, value in options.items() if value is not None}) as result:
            result.write(bands)
            if not deviations:
                _copy_tags(tiff, result)
        path.write_bytes(memory.read())


def _copy_tags(old: Any, new: Any) -> None:
    """Copies descriptions, units and tags of an open raster to another."""
    for name in ("descriptions", "colorinterp", "scales", "offsets", "units"):
        setattr(new, name, getattr(old, name))
    spaces = [space for space in old.tag_namespaces() if space not in ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS")]
    for number in range(old.count + 1):
        for space in (None, *spaces):
            new.update_tags(number, space, **old.tags(number, space))


@contextmanager
def _unlocated() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Dataset has no geotransform")
        yield


def edit_nifti(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A NIfTI volume; the copy has the header of the file, with its slope and intercept."""
    missing.check("volumes")
    image = open_nifti(file)
    with reading(file.given):
        stored = np.asanyarray(image.dataobj.get_unscaled())
    signals = array_as_signals(stored, repr(file.given), axes or 3)
    real = signals * image.dataobj.slope + image.dataobj.inter if missing.values else signals
    marked = marked_values(real, NOTHING.plus(missing.values, real.dtype))
    suffix = ".nii.gz" if file.path.name.lower().endswith(".nii.gz") else ".nii"
    return EditableFile(file.names(len(signals)), signals, marked, (suffix,), partial(_write_nifti, file), xyz=True)


def _write_nifti(file: SourceFile, path: Path, values: AnyArray) -> None:
    image = open_nifti(file)
    copied = type(image)(values.reshape(image.shape), image.affine, image.header)
    copied.header.set_slope_inter(image.dataobj.slope, image.dataobj.inter)
    content = copied.to_bytes()
    path.write_bytes(gzip.compress(content) if path.name.lower().endswith(".gz") else content)

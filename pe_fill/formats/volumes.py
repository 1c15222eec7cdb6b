"""TIFF files (pictures, stacks, rasters with coordinates) and NIfTI volumes, written back with other values."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.editable import EditableFile, marked_values
from pe_fill.formats.layouts import array_as_signals, signals_as_array
from pe_lightning.errors import require
from pe_lightning.signals.axes import MAX_CHANNELS
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask, Media
from pe_lightning.signals.sources.declared import GDAL_NODATA, NOTHING, Declared
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.pictures import declared_by_tiff
from pe_lightning.signals.sources.volumes import open_nifti
from pe_lightning.signals.validation import check_numbers

TIFF_TAGS = ("Artist", "Copyright", "GDAL_NODATA")
"""Tags of a TIFF file that are copied beside those that tifffile writes by name."""
LOSSY_COMPRESSION = ("jpeg", "ycbcr jpeg", "webp", "jxl", "lerc", "lerc_deflate", "lerc_zstd")
"""Names of GDAL for the compressions of GeoTIFF that may change pixels."""


def edit_tiff(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A TIFF picture or stack of integers or floating point; rasters with coordinates or a fill value by rasterio."""
    import tifffile

    missing.check("TIFF files", "alpha", "colour")
    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        if (page.is_geotiff or page.is_gdal) and len(series.pages) == 1:
            return _read_raster(file, missing)
        array, planar = series.asarray(), page.planarconfig
        options = {
            "photometric": page.photometric,
            "compression": page.compression if page.compression in (1, 8, 32946, 5, 32773, 34925, 50000) else None,
            "planarconfig": planar if page.samplesperpixel > 1 else None,
            "extrasamples": page.extrasamples or None,
            "tile": page.tile or None,
            "byteorder": tiff.byteorder,
            "description": page.description or None,
            "software": page.software or False,
            "datetime": page.tags.valueof("DateTime"),
            "iccprofile": page.tags.valueof("InterColorProfile"),
            "resolution": page.resolution if "XResolution" in page.tags else None,
            "resolutionunit": page.resolutionunit if "XResolution" in page.tags else None,
            "metadata": {} if tiff.is_shaped else None,
            "extratags": [
                (tag.code, tag.dtype, tag.count, tag.value, True) for name in TIFF_TAGS if (tag := page.tags.get(name))
            ],
        }
        separate = page.samplesperpixel > 1 and series.axes.startswith("S")
        others = [  # of another size, such as thumbnails
            (other.asarray(), {"photometric": other.pages[0].photometric, "subfiletype": other.pages[0].subfiletype})
            for other in (*series.levels[1:], *tiff.series[1:])
        ]
        declared = Declared.by_tag(page.tags.valueof(GDAL_NODATA), array.dtype, repr(file.given))
    view = np.moveaxis(array, 0, -1) if separate else array
    signals = array_as_signals(view, repr(file.given), axes)
    marked = _marked_tiff(signals, missing, file.given, bool(page.extrasamples), declared)

    is_picture = signals.ndim == 4 and len(signals) == 1
    media: Media = "image" if is_picture else "array"
    write = partial(_write_tiff, options, others, (view.shape, signals.shape), separate, declared, bool(page.extrasamples))
    return EditableFile(file.names(len(signals)), signals, marked, (".tif", ".tiff"), write, media, resizes=is_picture)


def _write_tiff(
    options: Mapping[str, Any],
    others: Sequence[tuple[AnyArray, Mapping[str, Any]]],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    separate: bool,
    declared: Declared,
    opaque: bool,
    path: Path,
    values: AnyArray,
) -> None:
    result = signals_as_array(_valid(values, declared, opaque), *shapes)
    result = np.moveaxis(result, -1, 0) if separate else result
    import tifffile

    byteorder, metadata, content = options["byteorder"], options["metadata"], io.BytesIO()
    with tifffile.TiffWriter(content, byteorder=byteorder) as tiff:  # NumPy does not report a full disk
        tiff.write(np.ascontiguousarray(result), **{key: value for key, value in options.items() if key != "byteorder"})
        for array, kept in others:
            tiff.write(array, compression=options["compression"], metadata=metadata, **kept)
    path.write_bytes(content.getbuffer())


def _marked_tiff(signals: AnyArray, missing: Missing, given: str, extra: bool, declared: Declared) -> Mask:
    """Missing values of pictures and stacks ``(S, ..., C)``, of which the last channel may be opacity."""
    check_numbers(repr(given), signals.dtype)
    marked = marked_values(signals, declared.plus(missing.values, signals.dtype))
    if missing.kind in ("alpha", "colour"):
        marked |= np.stack([np.isnan(missing.in_picture(image, given)).any(-1, keepdims=True) for image in signals])
    if _has_opacity(signals, extra) and missing.kind != "alpha":
        marked[..., -1] = False
    return marked


def _has_opacity(signals: AnyArray, extra: bool) -> bool:
    return extra and signals.shape[-1] in (2, 4) and signals.ndim == 4


def _valid(values: AnyArray, declared: Declared, extra: bool) -> AnyArray:
    """Values ``(S, ..., C)`` that are not declared missing; opacity is unchanged."""
    found = declared.valid(values, values.dtype)
    return np.concatenate([found[..., :-1], values[..., -1:]], -1) if _has_opacity(values, extra) else found


def _read_raster(file: SourceFile, missing: Missing) -> EditableFile:
    """A GeoTIFF: up to 4 bands are channels of one signal, more are signals of their own."""
    rasterio = require("rasterio", f"filling {file.given!r}, a raster with coordinates or a fill value")
    with reading(file.given), _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff:
        bands, profile, declared = tiff.read(), dict(tiff.profile), declared_by_raster(file, tiff)
        kept = {name: getattr(tiff, name) for name in ("descriptions", "colorinterp", "scales", "offsets", "units")}
        spaces = [space for space in tiff.tag_namespaces() if space not in ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS")]
        tags = [(space, number, tiff.tags(number, space)) for number in range(len(bands) + 1) for space in (None, *spaces)]
        opaque = rasterio.enums.ColorInterp.alpha in tiff.colorinterp
        point = tiff.tags().get("AREA_OR_POINT", "").lower() == "point"
    if str(codec := profile.get("compress")).lower() in LOSSY_COMPRESSION:
        rank_zero_info(f"{file.given!r} is compressed by {codec}, which may change known pixels: the result is, by deflate")
        profile |= {"compress": "deflate", "photometric": None}
    if declared.is_empty and profile["nodata"] is not None and np.isfinite(profile["nodata"]):
        profile["nodata"] = None  # which GDAL takes for a text that is no number, or for a number beyond the dtype
    together = len(bands) <= MAX_CHANNELS
    signals = np.moveaxis(bands, 0, -1)[None] if together else bands[..., None]

    return EditableFile(
        file.names(len(signals)),
        np.ascontiguousarray(signals),
        _marked_tiff(signals, missing, file.given, opaque, declared),
        (".tif", ".tiff"),
        partial(_write_raster, profile, kept, tags, together, declared, opaque),
        "image" if together else "array",
        resizes=True,
        located=True,
        points=point,
    )


def declared_by_raster(file: SourceFile, raster: Any) -> Declared:
    """What an open raster of ``rasterio`` declares: by the tag of the file, or by a file of GDAL beside it."""
    declared, beside = declared_by_tiff(file), Path(f"{raster.name}.aux.xml")
    if declared.is_empty and beside.exists() and b"NoDataValue" in beside.read_bytes() and np.isfinite(raster.nodata):
        return NOTHING.plus([raster.nodata], np.dtype(raster.dtypes[0]))
    return declared


def _write_raster(
    profile: Mapping[str, Any],
    kept: Mapping[str, Any],
    tags: Sequence[tuple[str | None, int, dict[str, str]]],
    together: bool,
    declared: Declared,
    opaque: bool,
    path: Path,
    values: AnyArray,
    deviations: bool = False,
    points: bool = False,
) -> None:
    rasterio = require("rasterio", "writing a raster with coordinates")
    values = values if deviations else _valid(values, declared, opaque)
    written = np.moveaxis(values[0], -1, 0) if together else values[..., 0]
    height, width = written.shape[1:]
    scales = profile["width"] / width, profile["height"] / height
    shift = [(1 - scale) / 2 if points else 0.0 for scale in scales]  # the centre of the first pixel stays
    transform = profile["transform"] @ rasterio.Affine.translation(*shift) @ rasterio.Affine.scale(*scales)
    changed = {**profile, "height": height, "width": width, "transform": transform}
    if deviations:
        changed |= {"dtype": "float32", "nodata": None, "photometric": None}
    with _unlocated(), rasterio.MemoryFile() as memory:  # GDAL does not report a full disk
        with memory.open(**{name: value for name, value in changed.items() if value is not None}) as result:
            result.write(written)
            for name, value in kept.items() if not deviations else ():
                setattr(result, name, value)
            for space, number, entries in tags if not deviations else ():
                result.update_tags(number, space, **entries)
        path.write_bytes(memory.read())


@contextmanager
def _unlocated() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Dataset has no geotransform")
        yield


def edit_nifti(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A NIfTI volume; the header of the copy is that of the file, with its slope and intercept."""
    missing.check("volumes")
    image = open_nifti(file)
    with reading(file.given):
        stored = np.asanyarray(image.dataobj.get_unscaled())
        slope, intercept = image.dataobj.slope, image.dataobj.inter
    signals = array_as_signals(stored, repr(file.given), axes or 3)
    real = signals * slope + intercept if missing.values else signals
    marked = marked_values(real, NOTHING.plus(missing.values, real.dtype))

    suffix = ".nii.gz" if file.path.name.lower().endswith(".nii.gz") else ".nii"
    write = partial(_write_nifti, image, stored.shape, (slope, intercept))
    return EditableFile(file.names(len(signals)), signals, marked, (suffix,), write, xyz=True)


def _write_nifti(image: Any, shape: tuple[int, ...], scale: tuple[float, float], path: Path, values: AnyArray) -> None:
    header = image.header.copy()
    header.set_slope_inter(*scale)
    copied = type(image)(values.reshape(shape), image.affine, header)
    copied.header.set_slope_inter(*scale)
    content = copied.to_bytes()
    path.write_bytes(gzip.compress(content) if path.name.lower().endswith(".gz") else content)

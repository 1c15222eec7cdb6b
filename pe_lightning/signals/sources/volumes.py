"""TIFF files (stacks, pictures that are filled, rasters with coordinates) and NIfTI volumes: read, and written back."""

from __future__ import annotations

import gzip
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pe_lightning.errors import InputError, require
from pe_lightning.signals.axes import MAX_CHANNELS, in_shape, signals_of
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, EditableFile, Mask, Media, value_scaling
from pe_lightning.signals.sources.arrays import marked_values
from pe_lightning.signals.sources.clips import Clip, in_parts
from pe_lightning.signals.sources.declared import GDAL_NODATA, NOTHING, Declared
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.pictures import declared_by_tiff
from pe_lightning.signals.validation import check_area, check_claim, check_memory, check_numbers

Limits: TypeAlias = "tuple[float, float] | None"

DEPTH_AXES = "ZTQI"  # letters of tifffile for the axis along which pages are stacked; Q and I are unnamed axes
PHOTOMETRIC_GREY_OR_RGB = (0, 1, 2)  # TIFF PhotometricInterpretation
TIFF_TAGS = ("Artist", "Copyright", "GDAL_NODATA")
"""Tags of a TIFF file that are copied beside those that tifffile writes by name."""
LOSSY_COMPRESSION = ("jpeg", "ycbcr jpeg", "webp", "jxl", "lerc", "lerc_deflate", "lerc_zstd")
"""Names of GDAL for the compressions of GeoTIFF that may change pixels."""


def is_stack(file: SourceFile) -> bool:
    """Whether a TIFF file has more than one picture; :class:`InputError` if it is damaged."""
    import tifffile

    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        return len(tiff.pages) > 1 or bool(tiff.series[0].size > tiff.pages[0].size)


def read_tiff(file: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing) -> Clip:
    """Describes a TIFF stack: pages, or one image of three axes, with up to 4 channels.

    Values are unchanged, also those of inverted grey. ``limits`` are the values that become 0 and 1.
    """
    with _opened(file) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        sizes = [(letter, size) for letter, size in zip(series.axes, series.shape, strict=True) if size > 1]
        axes = "".join("Z" if letter in DEPTH_AXES else "C" if letter == "S" else letter for letter, _ in sizes)
        shape, dtype = [size for _, size in sizes], series.dtype
        num_channels = shape[axes.index("C")] if "C" in axes else 1
        known = sorted(axes) in (["X", "Y", "Z"], ["C", "X", "Y", "Z"]) and num_channels <= 4
        if len(tiff.series) > 1 or not known or int(page.photometric) not in PHOTOMETRIC_GREY_OR_RGB:
            raise InputError(
                f"{file.given!r} holds {len(tiff.series)} image series; the first has the axes {series.axes} of sizes "
                f"{series.shape}, stored as {page.photometric!s}. A TIFF stack is one series of (Z, Y, X), grey or RGB, "
                "with up to 4 channels; a single picture is read by ImageDataModule"
            )
        # read page by page if each page is one slice with its channels last
        paged = len(series.pages) == shape[0] and axes in ("ZYX", "ZYXC")
    order = [axes.index(letter) for letter in "ZYXC" if letter in axes]
    depth, height, width, channels = ([shape[place] for place in order] + [1])[:4]
    check_area(file.given, height, width, max_pixels)
    check_claim(repr(file.given), shape, dtype.itemsize, file.path.stat().st_size)

    def read(frames: range) -> Iterator[AnyArray]:
        with _opened(file) as tiff:
            series = tiff.series[0]
            if not paged:
                check_memory(repr(file.given), shape, dtype.itemsize, "Save it with one page per slice")
            whole = None if paged else series.asarray().reshape(shape).transpose(order)
            for part in in_parts(frames, height * width * channels * dtype.itemsize):
                pages = [series.pages[number].asarray() for number in part] if whole is None else whole[list(part)]
                yield _native(np.asarray(pages).reshape(len(part), height, width, channels))

    if dtype.kind == "b" and limits is None:
        limits = (0.0, 1.0)
    native = _native(np.empty(0, dtype)).dtype
    declared = declared_by_tiff(file).plus(missing.values, native)
    return _clip(file, (depth, height, width, channels), native, read, limits, True, declared)


@contextmanager
def _opened(file: SourceFile) -> Iterator[Any]:
    """Opens a TIFF file. Errors that tifffile only logs, such as missing pages, are raised."""
    import tifffile

    reports: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: reports.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tifffile").addHandler(handler)
    try:
        with reading(file.given), tifffile.TiffFile(file.path) as tiff:
            if not tiff.series or reports:
                raise ValueError(*reports)
            yield tiff
    finally:
        logging.getLogger("tifffile").removeHandler(handler)


def read_nifti(file: SourceFile, max_pixels: int | None, limits: Limits, missing: Missing) -> Clip:
    """Describes a NIfTI volume, transposed from ``(x, y, z)`` to ``(Z, Y, X)``; its orientation matrix is not applied.

    Slope and intercept of the header are applied, which gives float32; without them the dtype is unchanged. The minimum and
    the maximum become 0 and 1, also of integers. A fourth axis of at most 4 is channels.
    """
    volume = _load_nifti(file, max_pixels)

    def read(frames: range) -> Iterator[AnyArray]:
        whole = _load_nifti(file, max_pixels)
        for part in in_parts(frames, whole[:1].nbytes):
            yield np.ascontiguousarray(whole[part.start : part.stop : part.step])

    return _clip(file, volume.shape, volume.dtype, read, limits, False, NOTHING.plus(missing.values, volume.dtype))


def open_nifti(file: SourceFile) -> Any:
    """A NIfTI file of ``nibabel``; refused if it claims more than it can hold, or than the free memory."""
    nibabel: Any = require("nibabel", f"reading {file.given!r}")
    with reading(file.given):
        image = nibabel.load(file.path)
        shape, itemsize = tuple(int(size) for size in image.shape), image.get_data_dtype().itemsize
        check_claim(repr(file.given), shape, itemsize, file.path.stat().st_size)
        # nibabel scales in float64
        check_memory(repr(file.given), shape, 8 if _is_scaled(image) else itemsize, "Save a part of it, or a coarser one")
        return image


def _is_scaled(image: Any) -> bool:
    return (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)


def _load_nifti(file: SourceFile, max_pixels: int | None) -> AnyArray:
    """``(Z, Y, X, C)``."""
    image = open_nifti(file)
    shape = tuple(int(size) for size in image.shape)
    trimmed = (*shape[:3], *(size for size in shape[3:] if size > 1))
    if len(trimmed) not in (3, 4) or (len(trimmed) == 4 and trimmed[3] > 4):
        raise InputError(
            f"{file.given!r} has the shape {shape}; a volume has three axes, or four with at most 4 channels last. Save "
            "one volume of the series as a separate file"
        )
    check_area(file.given, shape[1], shape[0], max_pixels)
    with reading(file.given):
        volume = np.asanyarray(image.dataobj).reshape(*trimmed[:3], -1).transpose(2, 1, 0, 3)
    return volume.astype(np.float32) if _is_scaled(image) else _native(volume)


def _native(values: AnyArray) -> AnyArray:
    """Converts to the byte order of this machine, and booleans to 0 and 1."""
    return values.astype(np.uint8 if values.dtype.kind == "b" else values.dtype.newbyteorder("="), copy=False)


def _clip(
    file: SourceFile,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    read: Callable[[range], Iterator[AnyArray]],
    limits: Limits,
    full_range: bool,
    declared: Declared,
) -> Clip:
    check_numbers(repr(file.given), dtype)
    every, stored = range(shape[0]), declared.read_as(dtype).name

    def marked(frames: range) -> Iterator[AnyArray]:
        return map(declared.with_nan, read(frames))

    scaling = value_scaling(repr(file.given), dtype, partial(marked, every), limits, full_range)
    return Clip(file, every, (shape[1], shape[2]), shape[3], stored, scaling, "array", marked)


# -- written back ---------------------------------------------------------------------------------------------------------


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
    signals = signals_of(view, repr(file.given), axes)
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
    result = in_shape(_valid(values, declared, opaque), *shapes)
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
    signals = signals_of(stored, repr(file.given), axes or 3)
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

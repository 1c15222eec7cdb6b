"""TIFF files (pictures, stacks, rasters with coordinates) and NIfTI volumes, written back with other values."""

from __future__ import annotations

import gzip
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_fill.formats.arrays import array_as_signals, signals_as_array
from pe_fill.formats.editable import EditableFile, marked_values, valid_values
from pe_lightning.errors import refuse, require
from pe_lightning.signals.axes import MAX_CHANNELS
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.raw import AnyArray, Mask
from pe_lightning.signals.sources.declared import NOTHING, Declared
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.tiff import (
    PALETTE,
    PICTURE_AXES,
    REDUCED,
    RGB,
    YCBCR,
    colours_of,
    declared_by_page,
    has_opacity,
    holds_stack,
    mask_of,
    missing_among,
    open_tiff,
    orientation_of,
    read_pixels,
    read_stack,
    series_of_stack,
    subfile_type,
)
from pe_lightning.signals.sources.volumes import open_nifti, shape_of_volume
from pe_lightning.signals.validation import check_numbers

LOSSLESS_CODECS = (1, 8, 32946, 5, 32773, 34925, 50000)
"""Compressions of TIFF that a copy has too, where they can be written."""
LOSSY_COMPRESSION = ("jpeg", "ycbcr jpeg", "webp", "jxl", "lerc", "lerc_deflate", "lerc_zstd")
"""Names of GDAL for the compressions of GeoTIFF that may change pixels."""
DESCRIPTION, ORIENTATION, RESOLUTION, COLOR_MAP, XMP = 270, 274, (282, 283, 296), 320, 700
FORM_TAGS = {*range(254, 260), 262, 266, 273, *range(277, 280), 284, 317, *range(322, 326), 330, 338, 339}
FORM_TAGS |= {347, *range(512, 522), *range(529, 533)}  # of JPEG and YCbCr
"""Tags of the stored form, which a copy has of its own."""
GDAL_TAGS = {269, 270, 274, *range(280, 284), 296, 305, 306, 315, 316, 700, 33432, 33550, 33922, 34264, 34675}
GDAL_TAGS |= {34735, 34736, 34737, 42112, 42113, 50674, 50844}
"""Tags that rasterio copies."""
GDAL_COLOURS = {0: "miniswhite", 1: "minisblack", 2: "rgb", 5: "cmyk", 6: "rgb"}
GDAL_OPACITY = {1: "premultiplied", 2: "non-premultiplied"}
"""Creation options of GDAL for PhotometricInterpretation and ExtraSamples."""
POINTER_TAGS = (34665, 34853, 40965, 33628, 33629, 33630, 33631, 34412)
"""Tags with offsets in the file, which a copy cannot have: EXIF, GPS, and metadata of STK and LSM."""


def edit_tiff(file: SourceFile, missing: Missing, axes: int | None = None) -> EditableFile:
    """A TIFF picture or stack of integers or floating point; rasters with coordinates, a fill value or a mask by rasterio.

    A palette becomes RGB, and a picture is turned upright. Tags are kept to the byte; reduced copies, and tags that a copy
    cannot have, are named in a notice.
    """
    missing.check("TIFF files", "alpha", "colour")
    with open_tiff(file) as tiff:
        page, located = tiff.pages[0], False
        bits, is_palette = page.bitspersample, int(page.photometric) == PALETTE
        refuse(
            (
                bits != 8 * page.dtype.itemsize and not is_palette,
                f"{file.given!r} is stored with {bits} bits per sample, and fill writes 8, 16, 32 or 64: convert it first, "
                "such as by gdal_translate -scale -co NBITS=16 IN OUT",
            ),
        )
        is_picture = page.axes in PICTURE_AXES and not holds_stack(tiff)
        if is_picture:
            array, extras = read_pixels(file, page)
            marked = missing_among(file, tiff, array, extras)
            colours = colours_of(page, array) if is_palette else array
            located = page.is_geotiff or page.is_gdal or mask_of(file, tiff) is not None
            orientation, is_planar = orientation_of(page), page.axes.startswith("S")
        else:
            series, extras, orientation = series_of_stack(file, tiff), [int(each) for each in page.extrasamples], 1
            array = read_stack(file, series)
            is_planar = page.samplesperpixel > 1 and series.axes.startswith("S")
            array = np.moveaxis(array, 0, -1) if is_planar else array
            marked = declared_by_page(file, page).marks(array)
        declared, opaque = declared_by_page(file, page), has_opacity(extras)
        options = _options_of(file, tiff, extras, orientation, located)
    if located:
        refuse((axes, f"axes says how the shape of an array is read, and {file.given!r} is a raster: leave it out"))
        return _edit_raster(file, missing, array, marked, declared, page, extras)
    if is_palette:
        rank_zero_info(f"{file.given!r} has a palette: its colours are filled, and the copy is RGB")
        array, marked, declared = colours, np.repeat(marked, 3, -1), NOTHING
    array = array[..., 0] if is_picture and array.shape[-1] == 1 else array
    signals = array_as_signals(array, repr(file.given), axes)
    is_picture = signals.ndim == 4 and len(signals) == 1
    return EditableFile(
        file.names(len(signals)),
        signals,
        _marked_tiff(signals, marked.reshape(signals.shape), missing, file.given, opaque),
        (".tif", ".tiff"),
        partial(_write_tiff, array.shape, signals.shape, declared, opaque, is_planar, options),
        "image" if is_picture else "array",
        resizes=is_picture,
        orientation=orientation,
        marks_left=True,
    )


def _options_of(file: SourceFile, tiff: Any, extras: list[int], orientation: int, located: bool) -> dict[str, Any]:
    """Arguments of ``tifffile.imwrite`` for a copy of an open file; what it cannot have is named."""
    page, lost, tags = tiff.pages[0], [], []
    if levels := sum(subfile_type(each) & REDUCED for each in tiff.pages[1:]) + len(page.subifds or ()):
        lost.append(f"{levels} reduced pages (overviews)")
    becomes_rgb = int(page.photometric) in (PALETTE, YCBCR)
    replaced = {*FORM_TAGS, *RESOLUTION, ORIENTATION if orientation > 1 else 0, COLOR_MAP if becomes_rgb else 0}
    description = None
    for tag in page.tags:
        tiff.filehandle.seek(tag.valueoffset)
        content = tiff.filehandle.read(tag.valuebytecount)
        if tag.code in POINTER_TAGS or (located and tag.code not in FORM_TAGS | GDAL_TAGS):
            lost.append(f"tag {tag.name}")
        elif tag.code == DESCRIPTION:
            description = description if content.startswith(b'{"shape":') else content
        elif tag.code not in replaced:
            if tag.code == XMP and orientation > 1:
                content = re.sub(rb"(tiff:Orientation\W+)[2-8]", rb"\g<1>1", content)
            tags.append((tag.code, tag.dtype, tag.count, content, True))
    codec, resolution = page.compression, page.resolution if "XResolution" in page.tags else None
    if not located and (codec not in LOSSLESS_CODECS or not _is_written(codec)):
        why = "is not written here (pip install imagecodecs)" if codec in LOSSLESS_CODECS else "may change known pixels"
        rank_zero_info(f"{file.given!r} is compressed by {codec.name}, which {why}: the result is, by deflate")
        codec = 8
    if lost:
        rank_zero_info(f"{file.given!r} has {', '.join(lost)}, which the copy has not")
    return {
        "byteorder": tiff.byteorder,
        "photometric": RGB if becomes_rgb else page.photometric,
        "planarconfig": page.planarconfig if page.samplesperpixel > 1 else None,
        "extrasamples": extras or None,
        "tile": page.tile or None,
        "description": description,
        "software": False,
        "resolution": resolution[::-1] if resolution and orientation > 4 else resolution,
        "resolutionunit": page.resolutionunit if resolution else None,
        "compression": codec,
        "metadata": {} if tiff.is_shaped else None,
        "extratags": tags,
    }


def _is_written(codec: int) -> bool:
    """Whether tifffile can write a compression, which may need a package."""
    import tifffile

    try:
        tifffile.imwrite(io.BytesIO(), np.zeros((2, 2), np.uint8), compression=codec)
    except (ImportError, KeyError, ValueError):
        return False
    return True


def _write_tiff(
    shape: Sequence[int],
    signals: Sequence[int],
    declared: Declared,
    opaque: bool,
    is_planar: bool,
    options: Mapping[str, Any],
    path: Path,
    values: AnyArray,
    left: Mask | None = None,
) -> None:
    import tifffile

    content = io.BytesIO()  # NumPy does not report a full disk
    result = signals_as_array(_valid(values, declared, opaque, left), shape, signals)
    tifffile.imwrite(content, np.ascontiguousarray(np.moveaxis(result, -1, 0) if is_planar else result), **options)
    path.write_bytes(content.getvalue())


def _marked_tiff(signals: AnyArray, declared: Mask, missing: Missing, given: str, opaque: bool) -> Mask:
    """Missing values of pictures and stacks ``(S, ..., C)``, whose last channel may be opacity."""
    check_numbers(repr(given), signals.dtype)
    marked = declared | marked_values(signals, NOTHING.plus(missing.values, signals.dtype))
    if missing.kind in ("alpha", "colour"):
        marked |= np.stack([np.isnan(missing.in_picture(image, given)).any(-1, keepdims=True) for image in signals])
    if _has_opacity(signals, opaque) and missing.kind != "alpha":
        marked[..., -1] = False
    return marked


def _has_opacity(signals: AnyArray, opaque: bool) -> bool:
    return opaque and signals.shape[-1] in (2, 4) and signals.ndim == 4


def _valid(values: AnyArray, declared: Declared, opaque: bool, left: Mask | None) -> AnyArray:
    """Values ``(S, ..., C)`` that are not declared missing unless they are ``left`` so; opacity is unchanged."""
    found = valid_values(values, values.dtype, declared, left)
    return np.concatenate([found[..., :-1], values[..., -1:]], -1) if _has_opacity(values, opaque) else found


def _edit_raster(
    file: SourceFile, missing: Missing, pixels: AnyArray, marked: Mask, declared: Declared, page: Any, extras: list[int]
) -> EditableFile:
    """A GeoTIFF ``(H, W, C)``: up to 4 bands are channels of one signal, more are signals of their own."""
    rasterio = require("rasterio", f"filling {file.given!r}, a raster with coordinates, a fill value or a mask")
    refuse(
        (
            int(page.photometric) == PALETTE,
            f"{file.given!r} holds numbers of a colour table, between which there is nothing: to fill its colours, give the "
            "file that gdal_translate -expand rgb IN OUT writes",
        ),
        (page.is_geotiff and orientation_of(page) > 1, turned_raster(file, page)),
    )
    with reading(file.given), _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff:
        codec, point = tiff.profile.get("compress"), tiff.tags().get("AREA_OR_POINT", "").lower() == "point"
    if str(codec).lower() in LOSSY_COMPRESSION:
        rank_zero_info(f"{file.given!r} is compressed by {codec}, which may change known pixels: the result is, by deflate")
    together = pixels.shape[-1] <= MAX_CHANNELS
    colours = {"photometric": GDAL_COLOURS.get(int(page.photometric), "minisblack")}
    colours |= {"alpha": GDAL_OPACITY.get(extras[0], "unspecified")} if extras else {}
    signals, marks = (each[None] if together else np.moveaxis(each, -1, 0)[..., None] for each in (pixels, marked))
    return EditableFile(
        file.names(len(signals)),
        np.ascontiguousarray(signals),
        _marked_tiff(signals, marks, missing, file.given, has_opacity(extras)),
        (".tif", ".tiff"),
        partial(_write_raster, file, declared, has_opacity(extras), colours),
        "image" if together else "array",
        resizes=True,
        located=True,
        points=point,
        orientation=orientation_of(page),
        marks_left=True,
    )


def turned_raster(file: SourceFile, page: Any) -> str:
    """The message on a raster with coordinates whose tag Orientation is not 1."""
    return (
        f"{file.given!r} has coordinates, which are of its stored rows, and the tag Orientation {orientation_of(page)}, by "
        "which it would be turned: remove one of them, such as by tiffset -u 274 FILE"
    )


def _write_raster(
    file: SourceFile,
    declared: Declared,
    opaque: bool,
    colours: Mapping[str, str],
    path: Path,
    values: AnyArray,
    deviations: bool = False,
    points: bool = False,
    left: Mask | None = None,
) -> None:
    rasterio = require("rasterio", "writing a raster with coordinates")
    with _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff, rasterio.MemoryFile() as memory:
        options = {name: value for name, value in tiff.profile.items() if name != "photometric"}
        values = values if deviations else _valid(values, declared, opaque, left)
        bands = np.moveaxis(values[0], -1, 0) if tiff.count <= MAX_CHANNELS else values[..., 0]
        scales = tiff.width / bands.shape[2], tiff.height / bands.shape[1]
        shift = [(1 - scale) / 2 if points else 0.0 for scale in scales]  # the centre of the first pixel stays
        place = tiff.transform @ rasterio.Affine.translation(*shift) @ rasterio.Affine.scale(*scales)
        options |= {"height": bands.shape[1], "width": bands.shape[2], "transform": place}
        if tiff.transform.is_identity:
            del options["transform"]
        if str(options.get("compress")).lower() in LOSSY_COMPRESSION:
            options["compress"] = "deflate"
        if declared.is_empty and options["nodata"] is not None and np.isfinite(options["nodata"]):
            options["nodata"] = None  # which GDAL takes for a text that is no number, or for a number beyond the dtype
        if deviations:
            options |= {"dtype": "float32", "nodata": None}
        else:
            options |= colours  # the defaults of GDAL depend on the number of bands and bits
        # in memory: GDAL does not report a full disk
        with memory.open(**{name: value for name, value in options.items() if value is not None}) as result:
            result.write(bands)
            control, system = tiff.gcps
            if control:
                for point in control:
                    point.row, point.col = point.row / scales[1], point.col / scales[0]
                result.gcps = control, system
            if not deviations:
                _copy_tags(tiff, result)
            if left is not None and declared.is_empty and left.any():
                with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
                    result.write_mask(~left.any(axis=(0, -1)))
        path.write_bytes(memory.read())


def _copy_tags(old: Any, new: Any) -> None:
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
    shape = shape_of_volume(file, image)
    is_volume = axes == 3 or (axes is None and min(shape[:3]) > 1)  # a slice is a picture
    signals = stored.reshape(1, *shape[:3], -1) if is_volume else array_as_signals(stored, repr(file.given), axes)
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

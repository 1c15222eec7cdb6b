"""Files whose missing values can be replaced: their signals in the dtype of the file, and a writer of changed copies.

:data:`ORIGINALS` holds one reader per format. A reader returns an :class:`EditableFile`, whose ``write`` keeps the format,
dtype, range and metadata of the file.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import png
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps
from PIL.PngImagePlugin import PngInfo
from scipy.ndimage import binary_dilation

from pe_lightning.errors import InputError, require, show_bytes
from pe_lightning.signals.axes import Axis
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import PICTURES
from pe_lightning.signals.raw import AnyArray
from pe_lightning.signals.sources.arrays import MAX_CHANNELS, declared_fills, find_array
from pe_lightning.signals.sources.checks import is_one_of
from pe_lightning.signals.sources.kinds import describe_layouts, plausible_layouts
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, format_of, reading, visible_files
from pe_lightning.signals.sources.pictures import decode_image
from pe_lightning.signals.sources.sound import Sound
from pe_lightning.signals.sources.stacks import open_nifti
from pe_lightning.signals.sources.tables import Table
from pe_lightning.signals.sources.video_files import lossless_suffixes, read_stored_frames, write_lossless
from pe_lightning.signals.validation import free_memory

Mask = NDArray[np.bool_]
Reader = Callable[[SourceFile, Missing, int | None], "EditableFile"]

PICTURE_FORMATS = {".png": "PNG", ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""Formats of Pillow in which a picture is written, by suffix; the first is that of results without a suffix of their own."""
SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "TIFF": {},  # libtiff, which compresses, does not take all EXIF data
    "WEBP": {"lossless": True, "exact": True},
    "JPEG": {"quality": 95, "subsampling": 0},
}
TIFF_TAGS = ("Artist", "Copyright", "GDAL_NODATA")
"""Tags of a TIFF file that are copied beside those that tifffile writes by name."""
JPEG_GROWTH = 3
"""Pixels by which missing samples of a JPEG grow by default: the codec spreads damage within its blocks."""
LOSSY_COMPRESSION = ("jpeg", "ycbcr jpeg", "webp", "jxl", "lerc", "lerc_deflate", "lerc_zstd")
"""Names of GDAL for the compressions of GeoTIFF that may change pixels."""
SOUND_SUBTYPES = ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")
ADAPTIVE_SAMPLE_BYTES = 600
"""Memory that the adaptive fit takes for each known sample where others are missing."""


@dataclass(frozen=True)
class EditableFile:
    """The signals of a file, with the values that it stores.

    Args:
        names: One name per signal.
        values: ``(S, N_1, ..., N_D, C)`` in the dtype of the file.
        missing: Where a value is missing, of the same shape.
        suffixes: Suffixes of the files that :attr:`write` writes, the first by default.
        write: ``write(path, values)`` writes a copy of the file with other values of the same shape, or of more samples
            per axis where ``resizes``, and standard deviations as third argument where ``holds_std``. The suffix of the path
            chooses among the formats.
        media: Medium for pictures beside the result: ``image``, ``video``, ``audio`` or ``array``.
        resizes: Whether ``write`` takes values of another number of samples.
        axes: The axes in the user's units, if the file has coordinates.
        holds_std: Whether the file has a place for standard deviations of the filled values.
        write_std: ``write_std(path, std)`` writes float32 values with the coordinates of the file, if it has some.
        write_points: ``write`` for more samples than in the file that are values at points: the first keeps its place.
        points: Whether the file declares that its samples are values at points.
        jpeg: Whether it is a JPEG, or frames of which one is.
        orientation: EXIF orientation of a picture, which is applied to ``values``.
        grown: Pixels by which the missing samples that a mask marks were grown.
        path: The file, which is never replaced.
    """

    names: tuple[str, ...]
    values: AnyArray
    missing: Mask
    suffixes: tuple[str, ...]
    write: Callable[..., None]
    media: str = "array"
    resizes: bool = False
    axes: tuple[Axis, ...] = ()
    holds_std: bool = False
    write_std: Callable[[Path, AnyArray], None] | None = None
    write_points: Callable[[Path, AnyArray], None] | None = None
    points: bool = False
    jpeg: bool = False
    orientation: int = 1
    grown: int = 0
    path: Path | None = None


def read_original(file: SourceFile, missing: Missing, axes: int | None = None, grow: int | None = None) -> EditableFile:
    """The signals of a file, with its missing values.

    Args:
        file: The file.
        missing: What marks them.
        axes: Number of axes of a signal, where the shape of an array does not say it.
        grow: Pixels by which missing samples of pictures and frames grow; ``None``: :data:`JPEG_GROWTH` of a JPEG, else 0.
    """
    form = "frames" if file.path.is_dir() else format_of(file.path)
    reader = ORIGINALS.get(str(form))
    if reader is None:
        raise InputError(f"fill cannot write files as {file.given!r}; it fills {', '.join(sorted(ORIGINALS))}")
    found = replace(reader(file, missing, axes), path=file.path)
    if missing.kind in ("mask", "frames"):  # beside what the reader marked
        masks = missing.marks(found.values.shape[1:-1], len(found.values), found.orientation)
        for signal, marked in enumerate(found.missing):
            marked |= masks[signal if len(masks) > 1 else 0][..., None]
    pixels = (JPEG_GROWTH if found.jpeg else 0) if grow is None else grow
    if not pixels or not found.missing.any():
        return found
    if found.media not in ("image", "video"):
        raise InputError(f"missing samples of pictures and frames grow, and {file.given!r} is neither: leave out grow")
    return replace(found, missing=grown_mask(found.missing, pixels), grown=pixels)


def grown_mask(mask: Mask, pixels: int) -> Mask:
    """Missing samples ``(..., H, W, C)`` and all samples within a distance in the plane of their picture."""
    steps = np.arange(-pixels, pixels + 1)
    disc = np.hypot(steps[:, None], steps) <= pixels
    grown: Mask = binary_dilation(mask, disc.reshape(*[1] * (mask.ndim - 3), *disc.shape, 1))
    return grown


def check_fit_memory(known: int) -> None:
    """Refuses more known samples than the adaptive fit holds in the free memory."""
    needed, free = known * ADAPTIVE_SAMPLE_BYTES, free_memory()
    if needed > free:
        raise InputError(
            f"the adaptive fit of {known:,} known samples takes about {show_bytes(needed)}, and {show_bytes(free)} are "
            "free: fill a part of the file, such as a crop or the frames around those that are lost"
        )


def signals_of(values: AnyArray, label: str, axes: int | None = None) -> AnyArray:
    """An array as signals ``(S, N_1, ..., N_D, C)``, a view.

    Args:
        values: Of any shape that has one plausible reading, or that ``axes`` makes clear: ``(N_1, ..., N_D)`` is one signal,
            with a last axis of at most 4 its channels, with a longer one a first axis that counts signals.
        label: What messages call it.
        axes: Number of axes of a signal.
    """
    layouts = [each for each in plausible_layouts(values.shape) if axes in (None, len(each.grid))]
    if not layouts and axes is not None and values.ndim == axes + 2:
        return values
    if len(layouts) != 1:
        raise InputError(f"{describe_layouts(label, values.shape)}; say how many axes a signal has, such as axes: 2")
    return values.reshape(layouts[0].shape)


def _in_shape(values: AnyArray, shape: Sequence[int], signals: Sequence[int]) -> AnyArray:
    """Signals ``(S, N_1, ..., N_D, C)``, of any number of samples, in the axes of the array that they come from.

    Args:
        values: The signals.
        shape: Shape of the array.
        signals: Shape of its signals.
    """
    axes = len(signals) - 2
    channels = [] if tuple(shape[len(shape) - axes :]) == tuple(signals[1:-1]) else [values.shape[-1]]
    return values.reshape(*shape[: len(shape) - axes - len(channels)], *values.shape[1:-1], *channels)


def _mark(values: AnyArray, missing: Missing, fills: Sequence[float] = ()) -> Mask:
    """Values that are not finite, or equal to a fill value."""
    marked = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    return marked | is_one_of(values, [*fills, *missing.values])


# -- pictures -----------------------------------------------------------------------------------------------------------


def read_picture(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A picture of 8 or 16 bits. Opacity is copied, and full at samples that alpha marked."""
    image = decode_image(file)
    if image.dtype.kind == "f":
        raise InputError(
            f"fill writes pictures of 8 or 16 bits, and {file.given!r} has another number; save it as TIFF or .npy"
        )
    opacity = image[..., -1:] if image.shape[-1] in (2, 4) else None
    marked: Mask = np.asarray(np.isnan(missing.in_picture(image, file.given)).any(-1))
    colours = image if opacity is None else image[..., :-1]
    with reading(file.given), Image.open(file.path) as opened:
        jpeg, orientation = opened.format in ("JPEG", "MPO"), int(opened.getexif().get(ExifTags.Base.Orientation, 1))
        ImageOps.exif_transpose(opened, in_place=True)  # also takes the orientation out of EXIF and XMP data
        info = dict(opened.info)

    def write(path: Path, values: AnyArray) -> None:
        pixels = values[0]
        if opacity is not None:
            alpha = np.where(marked[..., None], np.iinfo(image.dtype).max, opacity) if missing.kind == "alpha" else opacity
            pixels = np.concatenate([pixels, _resized_opacity(alpha[..., 0], pixels.shape).astype(image.dtype)], -1)
        _write_picture(path, pixels, info)

    names, shape = (file.stem,), colours.shape
    refused = {"JPEG", "WEBP"} if image.dtype == np.uint16 else {"JPEG"} if opacity is not None else set()
    return EditableFile(
        names,
        np.ascontiguousarray(colours)[None],
        np.broadcast_to(marked[..., None], shape).copy()[None],
        tuple(suffix for suffix, form in PICTURE_FORMATS.items() if form not in refused),
        write,
        "image",
        resizes=True,
        jpeg=jpeg,
        orientation=orientation,
    )


def _resized_opacity(opacity: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    """Opacity ``(h, w)`` of as many pixels as a picture ``(H, W, C)`` has: ``(H, W, 1)``."""
    if opacity.shape != shape[:2]:
        enlarged = Image.fromarray(opacity.astype(np.float32)).resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
        opacity = np.rint(np.asarray(enlarged).clip(0, np.iinfo(opacity.dtype).max))
    return opacity[..., None]


def _write_picture(path: Path, pixels: AnyArray, info: dict[str, Any]) -> None:
    """Writes ``(H, W, C)`` uint8 or uint16 in the format of the suffix.

    Args:
        path: The file.
        pixels: The pixels.
        info: What Pillow read beside the pixels of another picture: EXIF and XMP data, colour profile, resolution, texts.
    """
    form, squeezed = PICTURE_FORMATS[path.suffix.lower()], pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    kept = {key: info[key] for key in ("exif", "icc_profile", "dpi", "xmp") if info.get(key)}
    if form == "PNG":
        kept["pnginfo"] = _png_info(info)
    simple = pixels.dtype == np.uint8 or pixels.shape[-1] == 1  # Pillow writes no colour of 16 bits
    if simple or form == "PNG":
        buffer = io.BytesIO()
        shown = Image.fromarray(squeezed) if simple else Image.new("RGB", (1, 1))
        shown.save(buffer, form, **kept, **SAVE_OPTIONS[form])
        path.write_bytes(buffer.getvalue() if simple else _deep_png(pixels, buffer.getvalue()))
        return
    import tifffile

    options: dict[str, Any] = {"iccprofile": info.get("icc_profile"), "resolution": info.get("dpi"), "compression": "zlib"}
    extra = ["unassalpha"] if pixels.shape[-1] in (2, 4) else None
    tifffile.imwrite(
        path, squeezed, photometric="rgb" if pixels.shape[-1] > 2 else "minisblack", extrasamples=extra, **options
    )


def _png_info(info: dict[str, Any]) -> PngInfo:
    """Texts of a PNG file, and the colour space that its pixels are in."""
    found = PngInfo()
    for key, value in info.items():
        if isinstance(value, str):
            found.add_text(key, value)
    if "xmp" in info and "XML:com.adobe.xmp" not in info:
        found.add_itxt("XML:com.adobe.xmp", info["xmp"].decode())
    if "gamma" in info:
        found.add(b"gAMA", struct.pack(">I", round(info["gamma"] * 100_000)))
    if "srgb" in info:
        found.add(b"sRGB", bytes([info["srgb"]]))
    if "chromaticity" in info:
        found.add(b"cHRM", struct.pack(">8I", *(round(value * 100_000) for value in info["chromaticity"])))
    return found


def _deep_png(pixels: AnyArray, other: bytes) -> bytes:
    """A PNG file of ``(H, W, C)`` uint16, with what another PNG file has beside its pixels."""
    buffer, (height, width, channels) = io.BytesIO(), pixels.shape
    writer = png.Writer(width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
    writer.write_packed(buffer, (np.ascontiguousarray(row.astype(">u2")).tobytes() for row in pixels))
    header, *own = png.Reader(bytes=buffer.getvalue()).chunks()
    kept = [chunk for chunk in png.Reader(bytes=other).chunks() if bytes(chunk[0]) not in (b"IHDR", b"IDAT", b"IEND")]
    result = io.BytesIO()
    png.write_chunks(result, [header, *kept, *own])
    return result.getvalue()


def read_tiff(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
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
        fills = [page.nodata] if "GDAL_NODATA" in page.tags else []
    view = np.moveaxis(array, 0, -1) if separate else array
    signals = signals_of(view, repr(file.given), axes)
    marked = _marked_tiff(signals, missing, file.given, bool(page.extrasamples), fills)

    def write(path: Path, values: AnyArray) -> None:
        result = _in_shape(values, view.shape, signals.shape)
        result = np.moveaxis(result, -1, 0) if separate else result
        byteorder, metadata = options["byteorder"], options["metadata"]
        with tifffile.TiffWriter(path, byteorder=byteorder) as tiff:
            tiff.write(np.ascontiguousarray(result), **{key: value for key, value in options.items() if key != "byteorder"})
            for array, kept in others:
                tiff.write(array, compression=options["compression"], metadata=metadata, **kept)

    media = "image" if signals.ndim == 4 and len(signals) == 1 else "array"
    return EditableFile(
        _names(file, len(signals)), signals, marked, (".tif", ".tiff"), write, media, resizes=media == "image"
    )


def _marked_tiff(signals: AnyArray, missing: Missing, given: str, extra: bool, fills: Sequence[float] = ()) -> Mask:
    """Missing values of pictures and stacks ``(S, ..., C)``, of which the last channel may be opacity."""
    if signals.dtype.kind not in "iuf":
        raise InputError(f"{given!r} holds {signals.dtype} values; fill takes integers and floating point")
    marked = _mark(signals, missing, fills)
    if missing.kind in ("alpha", "colour"):
        marked |= np.stack([np.isnan(missing.in_picture(image, given)).any(-1, keepdims=True) for image in signals])
    if extra and signals.shape[-1] in (2, 4) and signals.ndim == 4 and missing.kind != "alpha":
        marked[..., -1] = False
    return marked


def _read_raster(file: SourceFile, missing: Missing) -> EditableFile:
    """A GeoTIFF: up to 4 bands are channels of one signal, more are signals of their own."""
    rasterio = require("rasterio", f"filling {file.given!r}, a raster with coordinates or a fill value")
    with reading(file.given), _unlocated(), rasterio.open(file.path, driver="GTiff") as tiff:
        bands, profile, fills = tiff.read(), dict(tiff.profile), [fill for fill in tiff.nodatavals if fill is not None]
        kept = {name: getattr(tiff, name) for name in ("descriptions", "colorinterp", "scales", "offsets", "units")}
        spaces = [space for space in tiff.tag_namespaces() if space not in ("IMAGE_STRUCTURE", "DERIVED_SUBDATASETS")]
        tags = [(space, number, tiff.tags(number, space)) for number in range(len(bands) + 1) for space in (None, *spaces)]
        opaque = rasterio.enums.ColorInterp.alpha in tiff.colorinterp
        point = tiff.tags().get("AREA_OR_POINT", "").lower() == "point"
    if str(codec := profile.get("compress")).lower() in LOSSY_COMPRESSION:
        rank_zero_info(f"{file.given!r} is compressed by {codec}, which may change known pixels: the result is, by deflate")
        profile |= {"compress": "deflate", "photometric": None}
    together = len(bands) <= MAX_CHANNELS
    signals = np.moveaxis(bands, 0, -1)[None] if together else bands[..., None]

    def write(path: Path, values: AnyArray, std: bool = False, points: bool = False) -> None:
        written = np.moveaxis(values[0], -1, 0) if together else values[..., 0]
        height, width = written.shape[1:]
        scales = profile["width"] / width, profile["height"] / height
        shift = [(1 - scale) / 2 if points else 0.0 for scale in scales]  # the centre of the first pixel stays
        transform = profile["transform"] @ rasterio.Affine.translation(*shift) @ rasterio.Affine.scale(*scales)
        changed = {**profile, "height": height, "width": width, "transform": transform}
        if std:
            changed |= {"dtype": "float32", "nodata": None, "photometric": None}
        with _unlocated(), rasterio.MemoryFile() as memory:  # GDAL does not report a full disk
            with memory.open(**{name: value for name, value in changed.items() if value is not None}) as result:
                result.write(written)
                for name, value in kept.items() if not std else ():
                    setattr(result, name, value)
                for space, number, entries in tags if not std else ():
                    result.update_tags(number, space, **entries)
            path.write_bytes(memory.read())

    return EditableFile(
        _names(file, len(signals)),
        np.ascontiguousarray(signals),
        _marked_tiff(signals, missing, file.given, opaque, fills),
        (".tif", ".tiff"),
        write,
        "image" if together else "array",
        resizes=True,
        write_std=partial(write, std=True),
        write_points=partial(write, points=True),
        points=point,
    )


@contextmanager
def _unlocated() -> Iterator[None]:
    """Allows rasters without coordinates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Dataset has no geotransform")
        yield


def _names(file: SourceFile, count: int) -> tuple[str, ...]:
    return (file.stem,) if count == 1 else tuple(f"{file.stem}-{number}" for number in range(count))


# -- arrays -------------------------------------------------------------------------------------------------------------


def read_npy(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A ``.npy`` file; the copy has its byte order and order of axes."""
    missing.check("arrays")
    found = find_array(file)
    array = found.load()
    signals = signals_of(array, found.label, axes)
    with found.open() as stored:
        dtype, by_columns = stored.dtype, not stored.flags.c_contiguous

    def write(path: Path, values: AnyArray) -> None:
        with path.open("wb") as stream:
            result = _in_shape(values, array.shape, signals.shape).astype(dtype)
            np.save(stream, np.asfortranarray(result) if by_columns else result)

    return EditableFile(_names(file, len(signals)), signals, _mark(signals, missing), (".npy",), write, resizes=True)


def read_hdf5(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """An HDF5 file with one dataset; a copy of the file with other values in it."""
    import h5py

    missing.check("arrays")
    found = find_array(file)
    array = found.load()
    signals = signals_of(array, found.label, axes)
    with found.open() as dataset:
        fills = declared_fills(dataset)

    def write(path: Path, values: AnyArray) -> None:
        content = io.BytesIO(file.path.read_bytes())  # the HDF5 library ends the process on a full disk
        with h5py.File(content, "r+") as stream:
            stream[found.key][...] = values.reshape(array.shape)
        path.write_bytes(content.getbuffer())

    suffix = file.path.suffix.lower()
    names = _names(file, len(signals))
    return EditableFile(names, signals, _mark(signals, missing, fills), (suffix, ".h5", ".hdf5"), write)


# -- tables and sound ---------------------------------------------------------------------------------------------------


def read_table(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A text table: every column of numbers is a signal. Lines without a missing number are unchanged."""
    missing.check("tables")
    table = Table.open(file)
    columns = table.columns(fills=missing.values)
    values = np.stack([column.values for column in columns])[..., None]
    marked = ~np.isfinite(values)

    def write(path: Path, changed: AnyArray) -> None:
        different = (changed != np.where(marked, np.nan, values))[..., 0]
        table.write(
            path,
            {
                column.place: {int(row): float(series[row, 0]) for row in np.flatnonzero(rows)}
                for column, series, rows in zip(columns, changed, different, strict=True)
            },
        )

    suffix = file.path.suffix.lower()
    names = tuple(column.name or file.stem for column in columns)
    return EditableFile(names, values, marked, tuple(dict.fromkeys([suffix, ".csv", ".tsv", ".txt"])), write)


def read_sound(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A sound file without loss (WAV, FLAC, AIFF), in its own sample format."""
    missing.check("sound")
    sound = Sound.open(file)
    if sound.format not in ("WAV", "WAVEX", "FLAC", "AIFF", "RF64") or sound.subtype not in SOUND_SUBTYPES:
        raise InputError(
            f"{file.given!r} is {sound.format} {sound.subtype}; fill takes PCM and floating-point WAV, FLAC, AIFF"
        )
    values = sound.read()[None]

    def write(path: Path, changed: AnyArray) -> None:
        sound.write(path, changed[0])

    return EditableFile((file.stem,), values, _mark(values, missing), (file.path.suffix.lower(),), write, "audio")


# -- cubes --------------------------------------------------------------------------------------------------------------


def read_nifti(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A NIfTI volume; the header of the copy is that of the file, with its slope and intercept."""
    missing.check("volumes")
    image = open_nifti(file)
    with reading(file.given):
        stored = np.asanyarray(image.dataobj.get_unscaled())
        slope, intercept = image.dataobj.slope, image.dataobj.inter
    signals = signals_of(stored, repr(file.given), axes or 3)
    marked = _mark(signals * slope + intercept if missing.values else signals, missing)

    def write(path: Path, values: AnyArray) -> None:
        header = image.header.copy()
        header.set_slope_inter(slope, intercept)
        copied = type(image)(values.reshape(stored.shape), image.affine, header)
        copied.header.set_slope_inter(slope, intercept)
        content = copied.to_bytes()
        path.write_bytes(gzip.compress(content) if suffix == ".nii.gz" else content)

    suffix = ".nii.gz" if file.path.name.lower().endswith(".nii.gz") else ".nii"
    return EditableFile(_names(file, len(signals)), signals, marked, (suffix,), write)


def read_frames(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A folder of frames as pictures with numbers in their names; missing numbers are lost frames.

    Frames that are not changed are copied; others are written as PNG.
    """
    paths = [path for path in visible_files(file.path) if format_of(path, by_content=False) in PICTURES]
    numbered = {}
    for path in paths:
        found = re.search(r"(\d+)(?=\D*$)", path.stem)
        if found is None:
            raise InputError(
                f"a folder is read as the frames of a clip, with a number in each name; {path.name!r} in {file.given!r} has "
                f"none. To fill each picture: pe-lightning fill {file.given}/* --out FOLDER"
            )
        numbered[int(found[1])] = path
    if len(numbered) < len(paths) or len(paths) < 2:
        raise InputError(f"{file.given!r} needs at least two frames, each with a number of its own in its name")
    frames = {number: read_picture(SourceFile(path, str(path)), missing, None) for number, path in numbered.items()}
    kinds = {(frame.values.shape, frame.values.dtype) for frame in frames.values()}
    if len(kinds) > 1:
        raise InputError(f"the frames in {file.given!r} differ in size, channels or dtype; save them alike")
    every, some = range(min(frames), max(frames) + 1), next(iter(frames.values()))
    values = np.zeros((1, len(every), *some.values.shape[1:]), some.values.dtype)
    marked = np.ones(values.shape, bool)
    for place, number in enumerate(every):
        if number in frames:
            values[0, place], marked[0, place] = frames[number].values[0], frames[number].missing[0]

    def name_of(number: int) -> str:
        near = numbered[min(numbered, key=lambda other: abs(other - number))].name
        digits = re.search(r"(\d+)(?=\D*$)", Path(near).stem)
        assert digits is not None
        return f"{Path(near).stem[: digits.start()]}{number:0{len(digits[1])}d}{Path(near).stem[digits.end() :]}.png"

    def write(path: Path, changed: AnyArray) -> None:
        path.mkdir()
        for place, number in enumerate(every):
            same = changed.shape == values.shape and (changed[0, place] == values[0, place]).all()
            if number in frames and not marked[0, place].any() and same:
                shutil.copy2(numbered[number], path)
            elif number in frames:
                frames[number].write(path / name_of(number), changed[:, place])
            else:
                _write_picture(path / name_of(number), changed[0, place], {})

    jpeg = any(frame.jpeg for frame in frames.values())
    return EditableFile((file.stem,), values, marked, ("",), write, "video", resizes=True, jpeg=jpeg)


def read_clip(file: SourceFile, missing: Missing, axes: int | None) -> EditableFile:
    """A video; frames that its times leave out are lost. Written without loss, with the sound and tags of the file."""
    missing.check("videos", "colour")
    clip, places = read_stored_frames(file)
    check_fit_memory(math.prod(clip.grid))  # before the frames are decoded
    shape = (1, int(places[-1]) + 1, *clip.size, clip.channels)
    values, marked = np.zeros(shape, clip.stored), np.ones(shape, bool)
    for place, frame in zip(places, (frame for block in clip.blocks() for frame in block), strict=True):
        values[0, place] = frame
        marked[0, place] = missing.kind in ("colour", "value") and np.isnan(missing.in_picture(frame, file.given))
    rate = clip.rate or 1.0

    def write(path: Path, changed: AnyArray) -> None:
        write_lossless(path, changed[0], rate, file.path)

    suffixes = lossless_suffixes(file.path, values.dtype)
    return EditableFile((file.stem,), values, marked, suffixes, write, "video", resizes=True)


ORIGINALS: dict[str, Reader] = {
    "picture": read_picture,
    "tiff": read_tiff,
    "npy": read_npy,
    "hdf5": read_hdf5,
    "table": read_table,
    "sound": read_sound,
    "nifti": read_nifti,
    "frames": read_frames,
    "video": read_clip,
}
"""Readers of files by their format (:func:`~pe_lightning.signals.sources.paths.format_of`); ``frames`` is a folder."""

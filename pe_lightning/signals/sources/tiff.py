"""Pictures of TIFF files as they are stored, and their missing samples: the rules of all readers and writers.

Pages that the tag NewSubfileType calls reduced are copies of the picture, and pages that it calls masks mark its missing
pixels; so does the file ``.msk`` that GDAL writes beside it. tifffile decodes; Pillow and rasterio, where it is installed,
decode compressions that tifffile lacks without the package imagecodecs.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from pe_lightning.errors import InputError, require
from pe_lightning.signals.files import format_of_suffix
from pe_lightning.signals.raw import AnyArray, Mask
from pe_lightning.signals.sources.declared import GDAL_NODATA, Declared
from pe_lightning.signals.sources.paths import SourceFile, format_of, reading

MIN_IS_WHITE, MIN_IS_BLACK, RGB, PALETTE, CMYK, YCBCR = 0, 1, 2, 3, 5, 6  # PhotometricInterpretation
PREMULTIPLIED, STRAIGHT = 1, 2  # ExtraSamples
REDUCED, MASK = 1, 4  # NewSubfileType
PILLOW_CODECS = (1, 2, 3, 4, 5, 6, 7, 8, 32773, 32946)
PICTURE_AXES = ("YX", "YXS", "SYX")
"""Axes of tifffile of a page that is one picture."""


@contextmanager
def open_tiff(file: SourceFile) -> Iterator[Any]:
    """Opens a TIFF file by tifffile."""
    import tifffile

    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        yield tiff


def full_pages(tiff: Any) -> Iterator[Any]:
    """The first page, and other pages that are neither masks nor reduced copies."""
    return (page for number, page in enumerate(tiff.pages) if not (number and subfile_type(page) & (REDUCED | MASK)))


def subfile_type(page: Any) -> int:
    """The bits of the tag NewSubfileType of a page: :data:`REDUCED`, :data:`MASK`."""
    keyframe = page.keyframe  # pages with the same tags may be read as frames, which have none
    return 0 if keyframe is None else int(keyframe.subfiletype)


def is_stack(file: SourceFile) -> bool:
    """Whether a file is a TIFF, by its suffix, of more than one picture; :class:`InputError` if it is damaged."""
    if format_of_suffix(file.path) != "tiff" or not file.path.is_file():
        return False
    with open_tiff(file) as tiff:
        return holds_stack(tiff)


def holds_stack(tiff: Any) -> bool:
    """Whether an open file has several pictures, or one page of several."""
    pages = full_pages(tiff)
    first = next(pages)
    return next(pages, None) is not None or bool(tiff.series[0].size > first.size)


def series_of_stack(file: SourceFile, tiff: Any) -> Any:
    """The only series of pictures of an open file; :class:`InputError` if there are more, a palette or masks."""
    found = [series for series in tiff.series if not subfile_type(series) & (REDUCED | MASK)]
    series, masks = tiff.series[0], any(subfile_type(page) & MASK for page in tiff.pages)
    if len(found) > 1 or masks or int(series.keyframe.photometric) == PALETTE:
        raise InputError(
            f"{file.given!r} holds {len(found)} image series{' with masks' if masks else ''}; the first has the axes "
            f"{series.axes} of sizes {series.shape}, stored as {series.keyframe.photometric!s}. A TIFF stack is one series "
            "without masks and palette: save it so, or each picture as a file of its own"
        )
    return series


def read_stack(file: SourceFile, series: Any) -> AnyArray:
    """The values of a series, in its axes."""
    try:
        return np.asarray(series.asarray())
    except (ImportError, KeyError, NotImplementedError, ValueError) as error:
        raise _without_codec(file, series.keyframe, error) from error


def read_pixels(file: SourceFile, page: Any) -> tuple[AnyArray, list[int]]:
    """Stored numbers ``(H, W, C)`` of a page, upright, and the meaning of the channels after the colours (ExtraSamples).

    Booleans are 0 and 1, and YCbCr becomes RGB.
    """
    extras = [int(sample) for sample in page.extrasamples]
    if int(page.photometric) != YCBCR:
        try:
            array = page.asarray()
        except (ImportError, KeyError, NotImplementedError, ValueError) as error:
            missing = _without_codec(file, page, error)
        else:
            array = np.moveaxis(array, 0, -1) if page.axes == "SYX" else array.reshape(*array.shape[:2], -1)
            array = upright(array, orientation_of(page))
            return array.astype(np.uint8 if array.dtype.kind == "b" else array.dtype.newbyteorder("="), copy=False), extras
    else:
        missing = _codec_error(file, page)
    if page.index == 0:
        if (found := _by_pillow(file, page)) is not None:
            is_straight = extras == [PREMULTIPLIED] and found.shape[-1] == 4  # Pillow divides colours by opacity
            return found, [STRAIGHT] if is_straight else extras
        if (found := _by_rasterio(file, page)) is not None:
            return upright(found, orientation_of(page)), extras
    raise missing


def _without_codec(file: SourceFile, page: Any, error: Exception) -> InputError:
    """The error of a compression that needs a package; other errors are raised."""
    if not isinstance(error, ImportError) and "imagecodecs" not in str(error):
        raise error
    return _codec_error(file, page)


def _codec_error(file: SourceFile, page: Any) -> InputError:
    compression = getattr(page.compression, "name", page.compression)
    return InputError(
        f"{file.given!r} is stored by the compression {compression}, {page.bitspersample} bits per sample, which needs the "
        "package imagecodecs: pip install imagecodecs"
    )


def _by_pillow(file: SourceFile, page: Any) -> AnyArray | None:
    """Upright stored numbers as Pillow decodes them; ``None`` if it does not, or not all bits."""
    if page.compression not in PILLOW_CODECS:
        return None
    try:
        with unlimited(), Image.open(file.path, formats=["TIFF"]) as image:
            image.load()  # which turns the picture and removes the tag
            turn = image.getexif().get(ExifTags.Base.Orientation, 1)
            array = np.asarray(image.convert("RGB") if int(page.photometric) == YCBCR else image)
            mode = image.mode
    except UnidentifiedImageError:
        return None
    array = array.reshape(*array.shape[:2], -1)
    if array.itemsize < page.dtype.itemsize or array.shape[-1] != page.samplesperpixel or mode == "LAB":
        return None
    if mode == "L" and int(page.photometric) == MIN_IS_WHITE:  # which Pillow inverts
        array = 255 - array
    if mode == "1" and int(page.photometric) == MIN_IS_WHITE:
        array = ~array
    if mode == "L" and page.bitspersample < 8:  # which Pillow scales
        array = array // (255 // (2**page.bitspersample - 1))
    return upright(array.astype(np.uint8 if page.dtype.kind == "b" else page.dtype.newbyteorder("=")), turn)


def _by_rasterio(file: SourceFile, page: Any) -> AnyArray | None:
    """Stored numbers as rasterio decodes them; ``None`` if it is not installed, or converts them."""
    if find_spec("rasterio") is None or int(page.photometric) == YCBCR:
        return None
    rasterio = require("rasterio", f"reading {file.given!r}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no coordinates
        with rasterio.open(file.path, driver="GTiff") as raster:
            bands = np.moveaxis(raster.read(), 0, -1)
    exact = bands.itemsize >= page.dtype.itemsize and bands.shape[-1] == page.samplesperpixel
    return bands if exact else None


@contextmanager
def unlimited() -> Iterator[None]:
    """Opens pictures of any size by Pillow: ``max_pixels`` replaces its limit."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def colours_of(page: Any, indices: AnyArray) -> AnyArray:
    """RGB ``(H, W, 3)`` uint8 of the indices ``(H, W, 1)`` of a palette."""
    return np.asarray((page.colormap >> 8).astype(np.uint8)[:, indices[..., 0]].transpose(1, 2, 0), order="C")


def orientation_of(page: Any) -> int:
    """The EXIF orientation of a page, from 1 to 8; 1 is upright."""
    return int(page.tags.valueof(ExifTags.Base.Orientation, 1))


def upright(array: AnyArray, orientation: int) -> AnyArray:
    """Applies the EXIF orientation."""
    turns = {3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}  # by 90 degrees, counterclockwise
    if orientation in (2, 4, 5, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(np.rot90(array, turns.get(orientation, 0)))


def declares_missing(file: SourceFile) -> bool:
    """Whether a file is a TIFF that declares a missing value, or has a mask."""
    if format_of(file.path) != "tiff":
        return False
    with open_tiff(file) as tiff:
        return not declared_by_page(file, tiff.pages[0]).is_empty or mask_of(file, tiff) is not None


def declared_missing(file: SourceFile) -> Mask | None:
    """Upright pixels ``(H, W)`` of which a TIFF picture declares a colour missing; ``None`` without a declaration."""
    if not declares_missing(file):
        return None
    with open_tiff(file) as tiff:
        return np.asarray(missing_among(file, tiff, *read_pixels(file, tiff.pages[0])).any(-1))


def missing_among(file: SourceFile, tiff: Any, pixels: AnyArray, extras: list[int]) -> Mask:
    """Where the stored colours of ``(H, W, C)`` are declared missing or masked, of the same shape; opacity is known."""
    marked, mask = declared_by_page(file, tiff.pages[0]).marks(pixels), mask_of(file, tiff)
    marked |= False if mask is None else mask
    if has_opacity(extras):
        marked[..., -1] = False
    return marked


def has_opacity(extras: list[int]) -> bool:
    """Whether the last channel of a picture is opacity."""
    return extras in ([PREMULTIPLIED], [STRAIGHT])


def mask_of(file: SourceFile, tiff: Any) -> Mask | None:
    """Upright pixels ``(H, W, 1 or C)`` that are hidden by a mask in the open file, or in the file ``.msk`` beside it."""
    page, beside = tiff.pages[0], SourceFile(Path(f"{file.path}.msk"), f"{file.given}.msk")
    masks = [other for other in tiff.pages[1:] if subfile_type(other) & (REDUCED | MASK) == MASK]
    if masks:
        mask = read_pixels(file, masks[0])[0]
    elif beside.path.is_file():
        with open_tiff(beside) as other:
            mask = read_pixels(beside, other.pages[0])[0]
    else:
        return None
    if mask.shape[:2] != (page.imagelength, page.imagewidth) or mask.shape[-1] not in (1, page.samplesperpixel):
        raise InputError(
            f"the mask of {file.given!r} has {mask.shape} samples, which are not those of the picture; remove it"
        )
    return np.asarray(upright(mask == 0, orientation_of(page)))


def declared_by_page(file: SourceFile, page: Any) -> Declared:
    """The missing value of the tag GDAL_NODATA, or of the file ``.aux.xml`` that GDAL writes beside a file."""
    text, beside = page.tags.valueof(GDAL_NODATA), Path(f"{file.path}.aux.xml")
    if text is None and beside.is_file():
        found = re.search(rb"<NoDataValue[^>]*>([^<]*)<", beside.read_bytes())
        text = None if found is None else found[1].decode(errors="replace")
    return Declared.by_tag(text, page.dtype, repr(file.given))

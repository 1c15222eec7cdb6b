"""One picture as an exact array, of all bits and with the EXIF orientation applied.

Pillow reads files of 8 bits and 16-bit grey, pypng colour PNG files of 16 bits, and tifffile the TIFF files that Pillow does
not read exactly. JPEG 2000, AVIF and colour PPM files of more than 8 bits are read at 8 bits. Colour profiles are not
applied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import ExifTags, Image, TiffImagePlugin, UnidentifiedImageError

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import AnyArray, Mask, full_value, to_unit
from pe_lightning.signals.sources.declared import GDAL_NODATA, NOTHING, Declared
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, reading
from pe_lightning.signals.validation import MAX_PIXELS, check_area, check_claim, check_memory

PILLOW_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
BLOCK_PIXELS = 1 << 20
GREY_MODES = frozenset({"1", "F", "I", "L", "LA", "La"})
MIN_IS_WHITE, RGB = 0, 2  # TIFF PhotometricInterpretation
PREMULTIPLIED, STRAIGHT = 1, 2  # TIFF ExtraSamples
AS_NUMBERS = "fit the numbers of a band: --data LabelledDataModule --data.variable 1"


class Header(NamedTuple):
    """Size of a picture after the EXIF orientation is applied, and bits per channel (32: floating point)."""

    height: int
    width: int
    bits: int
    grey: bool

    @property
    def dtype(self) -> str:
        return "uint8" if self.bits <= 8 else "uint16" if self.bits <= 16 else "float32"


def decode_image(file: SourceFile, max_pixels: int | None = MAX_PIXELS) -> AnyArray:
    """Reads one image, in the format of its content, as ``(H, W, C)``: grey or RGB, and opacity if there is some.

    Palettes, CMYK and other colour spaces become RGB. The dtype is uint8 or uint16 if the file uses their full range, else
    float32: in [0, 1] for integers, unchanged for floating point. A header of more than ``max_pixels`` is refused.
    """
    with reading(file.given):
        try:
            with _opened(file) as image:
                if image.format == "PNG":
                    image.verify()  # checksums, which decoding does not verify
            with _opened(file) as image:
                array = _decode(file, image, max_pixels)
        except UnidentifiedImageError:
            if format_of(file.path) != "tiff":
                raise
            array = _decode_tiff(file, max_pixels)  # Pillow reads no 64-bit and no multi-channel floating-point TIFF
    if min(array.shape[:2]) < 2:
        raise InputError(
            f"{file.given!r} is {array.shape[0]}x{array.shape[1]} (height x width): a signal needs at least 2 samples on "
            "each axis. Remove it from the paths"
        )
    return array


@contextmanager
def open_tiff(file: SourceFile) -> Iterator[Any]:
    """Opens a TIFF file by tifffile."""
    import tifffile

    with reading(file.given), tifffile.TiffFile(file.path) as tiff:
        yield tiff


def declared_missing(file: SourceFile) -> Mask | None:
    """Upright pixels ``(H, W)`` that the tag ``GDAL_NODATA`` of a TIFF picture declares missing; ``None`` without one."""
    if (declared := declared_by_tiff(file)).is_empty:
        return None
    with open_tiff(file) as tiff:
        page = tiff.pages[0]
        stored = np.moveaxis(page.asarray(), 0, -1) if page.axes == "SYX" else page.asarray()
        colours = stored.reshape(*stored.shape[:2], -1)[..., : page.samplesperpixel - len(page.extrasamples)]
        turn = page.tags.valueof(ExifTags.Base.Orientation, 1)
        marked = np.asarray(declared.marks(colours).any(-1, keepdims=True), np.uint8)
        return np.asarray(upright(marked, turn)[..., 0] > 0)


def declared_by_tiff(file: SourceFile) -> Declared:
    """The missing values that the first page of a TIFF file declares; none of other files."""
    if format_of(file.path) != "tiff":
        return NOTHING
    with open_tiff(file) as tiff:
        page = tiff.pages[0]
        return Declared.by_tag(page.tags.valueof(GDAL_NODATA), page.dtype, repr(file.given))


def header_of(file: SourceFile) -> Header:
    """Header of an image; the file is decoded if Pillow cannot read it."""
    try:
        with reading(file.given), _opened(file) as image:
            tags: Any = getattr(image, "tag_v2", {})  # some versions of Pillow swap the size of a rotated TIFF
            height = tags.get(TiffImagePlugin.IMAGELENGTH, image.height)
            width = tags.get(TiffImagePlugin.IMAGEWIDTH, image.width)
            if image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8):
                height, width = width, height
            return Header(height, width, _bits(image, file.path), image.mode in GREY_MODES or image.mode.startswith("I;16"))
    except InputError:
        array = decode_image(file)
        return Header(array.shape[0], array.shape[1], 32, array.shape[-1] <= 2)


def read_pictures(paths: Sequence[str]) -> Iterator[tuple[str, AnyArray]]:
    """Paths and values ``(H, W, 1 or 3)``, nominally in [0, 1], of pictures of any sizes, composited over white."""
    for file in expand(paths, ("picture", "tiff"), "image"):
        yield file.given, to_unit(over_white(decode_image(file)))


def over_white(image: AnyArray) -> AnyArray:
    """Composites a picture with an opacity channel over white, in the same dtype (integers are rounded)."""
    if image.shape[-1] not in (2, 4):
        return image
    values, opacity = np.split(to_unit(image), [-1], axis=-1)
    # written so that opaque pixels are unchanged to the last bit
    laid: AnyArray = np.minimum(values * opacity + (1 - opacity), 1)
    return laid if image.dtype.kind == "f" else np.rint(laid * np.float32(full_value(image.dtype))).astype(image.dtype)


@contextmanager
def _opened(file: SourceFile) -> Iterator[Image.Image]:
    """Opens a picture of any size: ``max_pixels`` replaces Pillow's limit of pixels."""
    Image.init()  # registers the formats of this build of Pillow
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(file.path, formats=[name for name in PILLOW_FORMATS if name in Image.OPEN]) as image:
            yield image
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def _bits(image: Image.Image, path: Path) -> int:
    """Stored bits per channel; 32 for floating point."""
    if image.format == "PNG":
        with path.open("rb") as file:
            return file.read(25)[24]
    tags: Any = getattr(image, "tag_v2", None)
    if tags is not None:
        return 32 if 3 in tags.get(TiffImagePlugin.SAMPLEFORMAT, ()) else max(tags.get(TiffImagePlugin.BITSPERSAMPLE, (1,)))
    return 32 if image.mode == "F" else 16 if image.mode.startswith("I") else 8


def _decode(file: SourceFile, image: Image.Image, max_pixels: int | None) -> AnyArray:
    # JPEG files of phones may have a depth or gain map as second frame (MPO); the picture is the first
    bits, grey = _bits(image, file.path), image.mode == "F" or image.mode.startswith("I")
    shape, pictures = (image.height, image.width, len(image.getbands())), getattr(image, "n_frames", 1)
    _check(file, shape, bits, 1 if image.format == "MPO" else pictures, max_pixels)
    if image.format == "TIFF" and bits > 8 and image.mode != "F" and not image.mode.startswith("I;16"):
        return _decode_tiff(file, max_pixels)
    array: AnyArray
    if image.format == "PNG" and bits > 8 and not grey:
        array = _decode_png16(file.path)
    elif grey:
        raw = np.asarray(image)[..., None]  # Pillow reads grey of 9 to 16 bits and floating point exactly
        # TIFF of 9 to 15 bits is not scaled to 16 bits; other formats are
        array = raw.astype(np.float32) if image.mode == "F" else _whole_range(raw, bits)
        if "transparency" in image.info:  # PNG only: the transparent grey level as a 16-bit number
            array = _with_opacity(array, raw != image.info["transparency"])
        if getattr(image, "tag_v2", {}).get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == MIN_IS_WHITE:
            array = full_value(array.dtype) - array
    else:
        mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        mode = {"L": "LA", "RGB": "RGBA"}[mode] if image.has_transparency_data else mode
        image.load()  # before the size is read: Pillow turns TIFF files when it loads them, and removes the tag
        array = np.empty((image.height, image.width, len(mode)), np.uint8)
        rows = max(1, BLOCK_PIXELS // image.width)
        for top in range(0, image.height, rows):  # in blocks, because the copies made by Pillow take three times the memory
            part = array[top : top + rows]
            part[:] = np.asarray(image.crop((0, top, image.width, top + len(part))).convert(mode)).reshape(part.shape)
    return upright(array, image.getexif().get(ExifTags.Base.Orientation, 1))


def _check(file: SourceFile, shape: tuple[int, int, int], bits: int, pictures: int, max_pixels: int | None) -> None:
    check_area(file.given, *shape[:2], max_pixels)
    itemsize = -(-bits // 8)
    check_claim(repr(file.given), shape, itemsize, file.path.stat().st_size)
    check_memory(repr(file.given), shape, itemsize, "Save it smaller")
    if pictures > 1:
        raise InputError(f"{file.given!r} holds {pictures} pictures, not one; save the one to fit as a separate file")


def _whole_range(raw: AnyArray, bits: int) -> AnyArray:
    """Integers of 8 or 16 bits unchanged, others as float32 in [0, 1]."""
    stored = np.dtype(np.uint8 if bits == 8 else np.uint16)
    return raw.astype(stored, copy=False) if bits in (8, 16) else raw.astype(np.float32) / np.float32(2**bits - 1)


def _decode_png16(path: Path) -> AnyArray:
    import png

    with path.open("rb") as file:
        # not asDirect(), which shifts samples by the sBIT chunk although they are stored at full scale
        width, height, rows, info = png.Reader(file=file).read()
        raw = np.empty((height, width, info["planes"]), np.uint16)
        for place, row in zip(raw, rows, strict=True):
            place.reshape(-1)[:] = row
    if "transparent" not in info:
        return raw
    return _with_opacity(raw, (raw != np.asarray(info["transparent"])).any(axis=-1, keepdims=True))


def _with_opacity(array: AnyArray, opaque: Mask) -> AnyArray:
    """Appends an opacity channel: full where ``opaque``, ``(H, W, 1)``, and 0 elsewhere."""
    return np.concatenate([array, opaque.astype(array.dtype) * array.dtype.type(full_value(array.dtype))], axis=-1)


def _decode_tiff(file: SourceFile, max_pixels: int | None) -> AnyArray:
    with open_tiff(file) as tiff:
        page = tiff.pages[0]
        shape = (page.imagelength, page.imagewidth, page.samplesperpixel)
        _check(file, shape, page.bitspersample, len(tiff.pages), max_pixels)
        photometric, extra = int(page.photometric), [int(sample) for sample in page.extrasamples]
        colors = {MIN_IS_WHITE: 1, 1: 1, RGB: 3}.get(photometric)
        known = page.samplesperpixel - len(extra) == colors and extra in ([], [PREMULTIPLIED], [STRAIGHT])
        if not known or page.axes not in ("YX", "YXS", "SYX"):
            raise InputError(
                f"{file.given!r} is an unsupported kind of TIFF ({page.photometric!s}, axes {page.axes}, "
                f"{len(extra)} extra channel(s)); save it as grey, RGB or RGBA, or {AS_NUMBERS}"
            )
        raw, bits, turn = page.asarray(), page.bitspersample, page.tags.valueof(ExifTags.Base.Orientation, 1)
        raw = np.moveaxis(raw, 0, -1) if page.axes == "SYX" else raw.reshape(*raw.shape[:2], -1)
    if raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers that stand for missing values may be beyond float32
            array: AnyArray = raw.astype(np.float32)
    elif raw.dtype in (np.uint8, np.uint16):
        array = _whole_range(raw, max(bits, 8))
    else:
        raise InputError(
            f"{file.given!r} holds {raw.dtype} values of unknown range; save it as 16-bit unsigned or floating point, or "
            f"{AS_NUMBERS}"
        )
    if photometric == MIN_IS_WHITE:
        array = array.copy()
        array[..., 0] = full_value(array.dtype) - array[..., 0]
    if extra == [PREMULTIPLIED]:
        array = to_unit(array)
        alpha = array[..., -1:]
        array[..., :-1] = np.minimum(array[..., :-1] / np.where(alpha > 0, alpha, 1), 1)
    return upright(array, turn)


def upright(array: AnyArray, orientation: int) -> AnyArray:
    """Applies the EXIF orientation."""
    turns = {3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}  # by 90 degrees, counterclockwise
    if orientation in (2, 4, 5, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(np.rot90(array, turns.get(orientation, 0)))


def deep_png(pixels: AnyArray) -> bytes:
    """The content of a PNG file of ``(H, W, C)`` uint16."""
    import png

    buffer, (height, width, channels) = io.BytesIO(), pixels.shape
    writer = png.Writer(width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
    writer.write_packed(buffer, (row.tobytes() for row in pixels.astype(">u2")))
    return buffer.getvalue()

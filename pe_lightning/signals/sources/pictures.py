"""One picture as an exact array, of all bits and with the EXIF orientation applied.

Pillow reads files of 8 bits and 16-bit grey, pypng colour PNG files of 16 bits, and the module ``tiff`` TIFF. JPEG 2000,
AVIF and colour PPM files of more than 8 bits are read at 8 bits. Colour profiles are not applied.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image

from pe_lightning.errors import InputError
from pe_lightning.signals.raw import AnyArray, Mask, full_value, to_unit
from pe_lightning.signals.sources.paths import SourceFile, expand, format_of, reading
from pe_lightning.signals.sources.tiff import (
    CMYK,
    MIN_IS_BLACK,
    MIN_IS_WHITE,
    PALETTE,
    PICTURE_AXES,
    PREMULTIPLIED,
    RGB,
    YCBCR,
    colours_of,
    full_pages,
    has_opacity,
    open_tiff,
    orientation_of,
    read_pixels,
    unlimited,
    upright,
)
from pe_lightning.signals.validation import MAX_PIXELS, check_area, check_claim, check_memory

PILLOW_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "WEBP")
BLOCK_PIXELS = 1 << 20
GREY_MODES = frozenset({"1", "F", "I", "L", "LA", "La"})
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
        if format_of(file.path) == "tiff":
            array = _decode_tiff(file, max_pixels)
        else:
            with _opened(file) as image:
                if image.format == "PNG":
                    image.verify()  # checksums, which decoding does not verify
            with _opened(file) as image:
                array = _decode(file, image, max_pixels)
    if min(array.shape[:2]) < 2:
        raise InputError(
            f"{file.given!r} is {array.shape[0]}x{array.shape[1]} (height x width): a signal needs at least 2 samples on "
            "each axis. Remove it from the paths"
        )
    return array


def header_of(file: SourceFile) -> Header:
    """Header of an image."""
    if format_of(file.path) == "tiff":
        with open_tiff(file) as tiff:
            page = tiff.pages[0]
            height, width, photometric = page.imagelength, page.imagewidth, int(page.photometric)
            bits = 32 if page.dtype.kind == "f" else 8 if photometric == PALETTE else page.bitspersample
            turn, grey = orientation_of(page), photometric in (MIN_IS_WHITE, MIN_IS_BLACK)
    else:
        with reading(file.given), _opened(file) as image:
            height, width, bits = image.height, image.width, _bits(image, file.path)
            turn = image.getexif().get(ExifTags.Base.Orientation, 1)
            grey = image.mode in GREY_MODES or image.mode.startswith("I;16")
    return Header(*((width, height) if turn in (5, 6, 7, 8) else (height, width)), bits, grey)


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
    with unlimited(), Image.open(file.path, formats=[name for name in PILLOW_FORMATS if name in Image.OPEN]) as image:
        yield image


def _bits(image: Image.Image, path: Path) -> int:
    """Stored bits per channel; 32 for floating point."""
    if image.format == "PNG":
        with path.open("rb") as file:
            return file.read(25)[24]
    return 32 if image.mode == "F" else 16 if image.mode.startswith("I") else 8


def _decode(file: SourceFile, image: Image.Image, max_pixels: int | None) -> AnyArray:
    # JPEG files of phones may have a depth or gain map as second frame (MPO); the picture is the first
    bits, grey = _bits(image, file.path), image.mode == "F" or image.mode.startswith("I")
    shape, pictures = (image.height, image.width, len(image.getbands())), getattr(image, "n_frames", 1)
    _check(file, shape, bits, 1 if image.format == "MPO" else pictures, max_pixels)
    array: AnyArray
    if image.format == "PNG" and bits > 8 and not grey:
        array = _decode_png16(file.path)
    elif grey:
        raw = np.asarray(image)[..., None]  # Pillow reads grey of 9 to 16 bits and floating point exactly
        array = raw.astype(np.float32) if image.mode == "F" else _whole_range(raw, bits)
        if "transparency" in image.info:  # PNG only: the transparent grey level as a 16-bit number
            array = _with_opacity(array, raw != image.info["transparency"])
    else:
        mode = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
        mode = {"L": "LA", "RGB": "RGBA"}[mode] if image.has_transparency_data else mode
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
    """Integers of 1, 2, 4, 8 or 16 bits in the full range of uint8 or uint16, others as float32 in [0, 1]."""
    if bits in (1, 2, 4):
        return np.asarray(raw * np.uint8(255 // (2**bits - 1)))
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
        page, pictures = tiff.pages[0], sum(1 for _ in full_pages(tiff))
        shape = (page.imagelength, page.imagewidth, page.samplesperpixel)
        _check(file, shape, page.bitspersample, pictures, max_pixels)
        photometric, extra = int(page.photometric), [int(sample) for sample in page.extrasamples]
        colors = {MIN_IS_WHITE: 1, MIN_IS_BLACK: 1, RGB: 3, PALETTE: 1, YCBCR: 3}.get(photometric)
        colors = 4 if photometric == CMYK and page.bitspersample == 8 else colors
        known = page.samplesperpixel - len(extra) == colors and (not extra or (has_opacity(extra) and photometric < PALETTE))
        if not known or page.axes not in PICTURE_AXES:
            raise InputError(
                f"{file.given!r} is an unsupported kind of TIFF ({page.photometric!s}, axes {page.axes}, "
                f"{len(extra)} extra channel(s)); save it as grey, RGB or RGBA, or {AS_NUMBERS}"
            )
        raw, extra = read_pixels(file, page)
        if photometric == PALETTE:
            return colours_of(page, raw)
    if raw.dtype.kind == "f":
        with np.errstate(over="ignore"):  # numbers that stand for missing values may be beyond float32
            return raw.astype(np.float32)
    if raw.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"{file.given!r} holds {raw.dtype} values of unknown range; save it as 16-bit unsigned or floating point, or "
            f"{AS_NUMBERS}"
        )
    if photometric == CMYK:
        return np.asarray(Image.fromarray(raw, "CMYK").convert("RGB"))
    array = _whole_range(raw, page.bitspersample)
    if photometric == MIN_IS_WHITE:
        array = array.copy()
        array[..., 0] = full_value(array.dtype) - array[..., 0]
    if extra == [PREMULTIPLIED]:
        array = to_unit(array)
        alpha = array[..., -1:]
        array[..., :-1] = np.minimum(array[..., :-1] / np.where(alpha > 0, alpha, 1), 1)
    return array


def deep_png(pixels: AnyArray) -> bytes:
    """The content of a PNG file of ``(H, W, C)`` uint16."""
    import png

    buffer, (height, width, channels) = io.BytesIO(), pixels.shape
    writer = png.Writer(width, height, greyscale=channels < 3, alpha=channels in (2, 4), bitdepth=16)
    writer.write_packed(buffer, (row.tobytes() for row in pixels.astype(">u2")))
    return buffer.getvalue()

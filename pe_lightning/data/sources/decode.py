"""One image file to an exact array: float32 in [0, 1], its full bit depth, the right way up.

Pillow reads 8-bit files. It silently keeps only 8 of the 16 bits of a colour PNG, so those go through pypng, and TIFFs
of more than 8 bits that it cannot hold go through tifffile. Other formats of more than 8 bits of colour (JPEG 2000,
AVIF, PPM) are read at the 8 bits that Pillow keeps. Colour profiles are not applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from pe_lightning.errors import InputError

__all__ = ["MAX_PIXELS", "SUFFIXES", "FloatArray", "check_max_pixels", "decode_image"]

FloatArray = NDArray[np.float32]

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""What counts as an image inside a folder."""

MAX_PIXELS = 178_956_970
"""More pixels than this are refused by default, as by Pillow: a file of some kilobytes can claim any number."""

_PNG = b"\x89PNG\r\n\x1a\n"
_TIFFS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_GREY_TAGS, _RGB_TAG, _MIN_IS_WHITE = (0, 1), 2, 0  # TIFF PhotometricInterpretation
_PREMULTIPLIED, _STRAIGHT = 1, 2  # TIFF ExtraSamples
_ORIENTATION, _PHOTOMETRIC, _BITS_PER_SAMPLE = 274, 262, 258  # tag numbers


def decode_image(path: Path, name: str | None = None, max_pixels: int | None = MAX_PIXELS) -> FloatArray:
    """Reads one image.

    Integers are divided by the largest value of their bit depth (255, 65535). Palettes, CMYK and other colour spaces
    become RGB; the EXIF orientation is applied; transparency is a last channel. Floating-point files must already
    lie in [0, 1].

    Args:
        path: The file; its content decides the format, not its suffix.
        name: How messages call it; the path by default.
        max_pixels: Refuse a file whose header claims more, before any pixel is decoded; ``None`` for no limit. Pillow's
            own limit, ``PIL.Image.MAX_IMAGE_PIXELS``, plays no part.

    Returns:
        ``(H, W, C)``: C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.

    Raises:
        InputError: If the file is not an image, is damaged, holds several pictures or too many pixels, or has values
            that cannot be placed in [0, 1].
    """
    name = name or str(path)
    check_max_pixels(max_pixels)
    try:
        with path.open("rb") as file:
            header = file.read(32)
        with _without_pillows_limit():
            array = _decode(path, header, max_pixels)
    except (InputError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name!r} is not an image, whatever its suffix says: {_looks_like(header)}. Remove it from the paths, "
            "or save it again as PNG, JPEG or TIFF"
        ) from error
    except OSError as error:
        if error.errno is None:  # the operating system sets it; Pillow's own "image file is truncated" has none
            raise _damaged(name, error) from error
        raise InputError(f"cannot open {name!r}: {error.strerror}") from error
    except Exception as error:  # decoders raise anything at all on damaged files: SyntaxError, zlib.error, struct.error
        raise _damaged(name, error) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{name!r} {array}")
    if min(array.shape[:2]) < 2:
        raise InputError(
            f"{name!r} is {array.shape[0]}x{array.shape[1]} (height x width): a signal needs at least 2 samples on "
            "each axis. Remove it from the paths"
        )
    return array


def check_max_pixels(max_pixels: int | None) -> None:
    """Raises :class:`InputError` unless ``max_pixels`` is a positive integer or ``None``."""
    if max_pixels is None:
        return
    if isinstance(max_pixels, bool) or not isinstance(max_pixels, int) or max_pixels < 1:
        raise InputError(f"max_pixels must be an integer >= 1, or null for no limit; got {max_pixels!r}")


def _decode(path: Path, header: bytes, max_pixels: int | None) -> FloatArray | str:
    """The array, or what is wrong with the file as the rest of a sentence."""
    is_tiff = header.startswith(_TIFFS)
    try:
        image = Image.open(path)
    except UnidentifiedImageError:
        if is_tiff:  # 64-bit and multi-channel floating-point TIFFs are beyond Pillow
            return _decode_tiff(path, max_pixels)
        raise
    with image:
        if isinstance(image, ImageFile.StubImageFile):  # Pillow knows these formats, HDF5 among them, by name only
            return f"is of the format {image.format}, which is not read as an image; save it as PNG, JPEG or TIFF"
        if too_many := _over_limit(image.height, image.width, max_pixels):
            return too_many
        # a phone's JPEG may carry a depth or gain map as a second "frame" (MPO): the picture is the first
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
        if frames > 1:
            return f"holds {frames} pictures, not one; save the one you mean as a file of its own"
        if header.startswith(_PNG) and header[24] == 16 and image.mode not in ("I", "I;16"):
            array = _decode_png16(path)
            return _orient(array, image.getexif().get(_ORIENTATION, 1))
        if is_tiff and max(_bits(image)) > 8 and not image.mode.startswith(("I;16", "F")):
            return _decode_tiff(path, max_pixels)
        decoded = _decode_pillow(image)
        if isinstance(decoded, str):
            return decoded
        # after loading: Pillow turns TIFFs by itself and then drops the tag
        return _orient(decoded, image.getexif().get(_ORIENTATION, 1))


def _over_limit(height: int, width: int, max_pixels: int | None) -> str | None:
    if max_pixels is None or height * width <= max_pixels:
        return None
    return (
        f"claims {height}x{width} (height x width), {height * width} pixels, more than max_pixels, {max_pixels}; nothing "
        f"was decoded. If the file is genuine, set max_pixels: {height * width} (--data.max_pixels), or shrink it first"
    )


_lock = Lock()
_decoding = 0  # calls under way, in all threads
_pillows_limit: int | None = None


@contextmanager
def _without_pillows_limit() -> Iterator[None]:
    """Lets Pillow open headers of any size: the limit is ours, and Pillow's is the same for the whole process."""
    global _decoding, _pillows_limit
    with _lock:
        if _decoding == 0:
            _pillows_limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        _decoding += 1
    try:
        yield
    finally:
        with _lock:
            _decoding -= 1
            if _decoding == 0:
                Image.MAX_IMAGE_PIXELS = _pillows_limit


def _bits(image: Image.Image) -> tuple[int, ...]:
    tags: Any = getattr(image, "tag_v2", {})
    return tuple(tags.get(_BITS_PER_SAMPLE, (1,)))


def _decode_pillow(image: Image.Image) -> FloatArray | str:
    mode = image.mode
    if mode.startswith("I;16") or mode == "F" or (mode == "I" and image.format in ("PNG", "PPM")):
        return _decode_deep_grey(image)
    if mode == "I":
        return "holds 32-bit integers, whose largest value is unknown; save it as 16-bit, or as float in [0, 1]"
    if mode == "LAB":
        return "is in the Lab colour space, which is not read; save it as RGB"
    if image.has_transparency_data:
        target = "LA" if mode in ("1", "L", "LA", "La") else "RGBA"
    else:
        target = "L" if mode in ("1", "L") else "RGB"
    eight_bit = np.asarray(image if mode == target else image.convert(target))
    array: FloatArray = eight_bit.astype(np.float32) / np.float32(255)
    return array[..., None] if array.ndim == 2 else array


def _decode_deep_grey(image: Image.Image) -> FloatArray | str:
    """Grey of 9 to 16 bits, or floating point, which Pillow keeps exactly."""
    tags: Any = getattr(image, "tag_v2", {})
    raw = np.asarray(image)[..., None]
    if image.mode == "F":
        checked = _check_float(raw)
        if isinstance(checked, str):
            return checked
        array = checked
    else:  # a TIFF of 9 to 15 bits is stored unscaled; every other format fills 16 bits
        array = raw.astype(np.float32) / np.float32(2 ** (_bits(image)[0] if tags else 16) - 1)
    if "transparency" in image.info:  # only PNG has it: this grey level, as a 16-bit number, is transparent
        opaque = raw != image.info["transparency"]
        array = np.concatenate([array, opaque.astype(np.float32)], axis=-1)
    if tags.get(_PHOTOMETRIC) == _MIN_IS_WHITE:
        array = np.subtract(1, array)
    return array


def _decode_png16(path: Path) -> FloatArray:
    import png

    with path.open("rb") as file:
        # read(), not asDirect(): the latter shifts samples by the sBIT chunk, although they are stored at full scale
        width, height, rows, info = png.Reader(file=file).read()
        raw = np.array([np.asarray(row, dtype=np.uint16) for row in rows]).reshape(height, width, info["planes"])
    array: FloatArray = raw.astype(np.float32) / np.float32(65535)
    if "transparent" in info:
        opaque = (raw != np.asarray(info["transparent"])).any(axis=-1, keepdims=True)
        array = np.concatenate([array, opaque.astype(np.float32)], axis=-1)
    return array


def _decode_tiff(path: Path, max_pixels: int | None) -> FloatArray | str:
    import tifffile

    with tifffile.TiffFile(path) as file:
        if len(file.pages) > 1:
            return f"holds {len(file.pages)} pictures, not one; save the one you mean as a file of its own"
        page = file.pages[0]
        if too_many := _over_limit(page.imagelength, page.imagewidth, max_pixels):
            return too_many
        photometric, axes = int(page.photometric), page.axes
        extra = [int(sample) for sample in page.extrasamples]
        colours = page.samplesperpixel - len(extra)
        is_grey = photometric in _GREY_TAGS and colours == 1
        if not (is_grey or (photometric == _RGB_TAG and colours == 3)) or axes not in ("YX", "YXS", "SYX"):
            return f"is a TIFF of a kind that is not read ({page.photometric!s}, axes {axes}); save it as grey or RGB"
        if extra not in ([], [_PREMULTIPLIED], [_STRAIGHT]):
            return f"has {len(extra)} extra channel(s) whose meaning the file does not state; save it as grey, RGB or RGBA"
        try:
            raw = page.asarray()
        except ValueError as error:
            if "imagecodecs" not in str(error):
                raise
            return f"is compressed in a way that needs another package ({error}); save it uncompressed or as 16-bit PNG"
        turn = page.tags.valueof(_ORIENTATION, 1)
    raw = np.moveaxis(raw, 0, -1) if axes == "SYX" else raw.reshape(*raw.shape[:2], -1)
    if raw.dtype.kind == "f":
        array = _check_float(raw)
    elif raw.dtype in (np.uint8, np.uint16):
        array = raw.astype(np.float32) / np.float32(2 ** max(page.bitspersample, 8) - 1)
    else:
        array = f"holds {raw.dtype} values, whose largest is unknown; save it as 16-bit unsigned, or as float in [0, 1]"
    if isinstance(array, str):
        return array
    if photometric == _MIN_IS_WHITE:
        array[..., 0] = 1 - array[..., 0]
    if extra == [_PREMULTIPLIED]:
        alpha = array[..., -1:]
        array[..., :-1] = np.minimum(array[..., :-1] / np.where(alpha > 0, alpha, 1), 1)
    return _orient(array, turn)


def _check_float(raw: NDArray[Any]) -> FloatArray | str:
    if not np.isfinite(raw).all():
        return f"holds {np.count_nonzero(~np.isfinite(raw))} values that are not finite (NaN or infinite); repair it first"
    low, high = float(raw.min()), float(raw.max())
    if low < 0 or high > 1:
        return (
            f"holds floating-point values from {low:g} to {high:g}; they must lie in [0, 1], because PSNR takes 1 as "
            f"the peak. Subtract {low:g} and divide by {high - low:g}, or save integers of 8 or 16 bits"
        )
    return raw.astype(np.float32)


def _orient(array: FloatArray, orientation: object) -> FloatArray:
    """Turns rows and columns as the EXIF orientation (1 to 8) says; anything else means upright."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return np.ascontiguousarray(array)


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(
        f"cannot read the image {name!r}; it seems to be truncated or damaged ({type(error).__name__}: {error}). "
        "Copy or download it again, or remove it from the paths"
    )


def _looks_like(header: bytes) -> str:
    if not header:
        return "it is empty"
    text = header.decode("latin-1")
    if text.isprintable() or all(char.isprintable() or char in "\t\r\n" for char in text):
        return f"it is a text file that begins {text[:20].strip()!r}"
    return f"it begins with the bytes {header[:8].hex(' ')}"

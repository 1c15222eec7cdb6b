"""A folder of pictures as one signal: its frames, sorted by name as a person would (``2.png`` before ``10.png``)."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pe_lightning.data.signals import AnyArray, Scaling
from pe_lightning.data.sources.clips import Clip, frames_per_slab
from pe_lightning.data.sources.decode import MAX_PIXELS, SUFFIXES, FloatArray, decode_image
from pe_lightning.data.sources.sources import Source
from pe_lightning.errors import InputError

__all__ = ["natural_key", "read_frames"]

_EIGHT_BIT = frozenset({"1", "CMYK", "HSV", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "YCbCr"})
_GREY = frozenset({"1", "F", "I", "I;16", "I;16B", "I;16L", "L", "LA", "La"})
_TURNED = frozenset({5, 6, 7, 8})  # EXIF orientations that swap height and width
_ORIENTATION = 274  # EXIF tag
_PNG_BITS = 24  # where a PNG's header has the bits per channel
_PEAK = {"uint8": 255, "uint16": 65535}


def read_frames(source: Source, fps: float | None = None, max_pixels: int | None = MAX_PIXELS) -> Clip:
    """Describes the pictures of a folder; they are decoded as :func:`~pe_lightning.data.sources.decode.decode_image` does.

    They are kept at 8 bits if all have 8, at 16 if the others are 16-bit PNG, else as float32 in [0, 1]. Transparent
    pictures are laid over white. Subfolders, hidden files and files that are not pictures are left out.

    Args:
        source: The folder.
        fps: Frames per second; a folder does not say.
        max_pixels: Refuse pictures that claim more; ``None`` for no limit.

    Raises:
        InputError: If there are fewer than 2 pictures, or they differ in size.
    """
    found = (path for path in source.path.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)
    paths = sorted((path for path in found if not path.name.startswith(".")), key=natural_key)
    if len(paths) < 2:
        raise InputError(
            f"the frame folder {source.given!r} holds {len(paths)} picture(s), and a signal needs at least 2 frames; for "
            "pictures that are signals by themselves use ImageDataModule"
        )
    headers = [_header(path, max_pixels) for path in paths]
    sizes = [header[0] for header in headers]
    if len(set(sizes)) > 1:
        raise InputError(_mixed(source, paths, sizes))
    depths = {header[1] for header in headers}
    stored = "float32" if "float32" in depths else max(depths, key=lambda depth: _PEAK[depth])
    channels = 1 if all(header[2] for header in headers) else 3
    return Clip(
        source=source,
        frames=range(len(paths)),
        height=sizes[0][0],
        width=sizes[0][1],
        channels=channels,
        stored=stored,
        scaling=Scaling(stored) if stored == "float32" else Scaling.of_integers(stored),
        unit=stored == "float32",
        media="video",
        read=partial(_decode, paths, (*sizes[0], channels), stored, max_pixels),
        rate=fps,
    )


def natural_key(path: Path) -> tuple[Any, ...]:
    """Sorts numbers in names by their value.

    >>> [path.name for path in sorted(map(Path, ["f10.png", "F9.png", "f1.png"]), key=natural_key)]
    ['f1.png', 'F9.png', 'f10.png']
    """
    parts = re.split(r"([0-9]+)", path.name.casefold())
    return (*((int(part), part) if part.isdecimal() else (0, part) for part in parts), path.name)


def _header(path: Path, max_pixels: int | None) -> tuple[tuple[int, int], str, bool]:
    """Height and width, the dtype that holds the picture exactly, and whether it is grey; not decoded where possible."""
    with warnings.catch_warnings(), suppress(OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is max_pixels
        with path.open("rb") as file, Image.open(file) as image:
            size, mode, kind = (image.height, image.width), image.mode, image.format
            if image.getexif().get(_ORIENTATION, 1) in _TURNED:
                size = size[::-1]
            file.seek(_PNG_BITS)
            deep = kind == "PNG" and file.read(1) == b"\x10"
        if kind != "TIFF":
            return size, "uint16" if deep else "uint8" if mode in _EIGHT_BIT else "float32", mode in _GREY
    # a TIFF, of which Pillow knows only some kinds, or a file that decode_image finds the words for
    array = decode_image(path, max_pixels=max_pixels)
    exact = np.array_equal(np.rint(array * np.float32(255)) / np.float32(255), array)
    return (array.shape[0], array.shape[1]), "uint8" if exact else "float32", array.shape[2] <= 2


def _mixed(source: Source, paths: Sequence[Path], sizes: Sequence[tuple[int, int]]) -> str:
    by_size: dict[tuple[int, int], list[str]] = {}
    for path, size in zip(paths, sizes, strict=True):
        by_size.setdefault(size, []).append(path.name)
    listed = "; ".join(
        f"{height}x{width}: {len(names)} ({names[0]}{', …' if len(names) > 1 else ''})"
        for (height, width), names in list(by_size.items())[:6]
    )
    return (
        f"the frame folder {source.given!r} mixes {len(by_size)} sizes (height x width): {listed}. Frames of one signal "
        "have one size: move the others out, or use ImageDataModule if each picture is a signal"
    )


def _decode(
    paths: Sequence[Path], shape: tuple[int, int, int], stored: str, max_pixels: int | None, frames: range
) -> Iterator[AnyArray]:
    limit = frames_per_slab(4 * shape[0] * shape[1] * shape[2])
    chosen = [paths[number] for number in frames]
    for start in range(0, len(chosen), limit):
        yield np.stack([_frame(path, shape, stored, max_pixels) for path in chosen[start : start + limit]])


def _frame(path: Path, shape: tuple[int, int, int], stored: str, max_pixels: int | None) -> AnyArray:
    array: FloatArray = decode_image(path, max_pixels=max_pixels)
    if array.shape[-1] in (2, 4):
        values, opacity = array[..., :-1], array[..., -1:]
        array = np.minimum(values * opacity + (1 - opacity), 1)
    if array.shape[-1] == 1 and shape[2] == 3:
        array = np.repeat(array, 3, axis=-1)
    if array.shape != shape:
        raise InputError(f"{str(path)!r} decodes to {array.shape}, but its header says {shape} (height, width, channels)")
    return np.rint(array * np.float32(_PEAK[stored])).astype(stored) if stored in _PEAK else array

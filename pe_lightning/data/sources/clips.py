"""Videos, frame folders and volumes that are described, but not read: which frames, and what is done to each.

Frame folders are read through Pillow, TIFF stacks through tifffile and NIfTI through nibabel.
"""

from __future__ import annotations

import gzip
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from pe_lightning.data.signals import AnyArray, Media, Scaling
from pe_lightning.data.sources.arrays import find_array
from pe_lightning.data.sources.checks import check_area, in_common, value_scaling
from pe_lightning.data.sources.paths import PICTURES, SourceFile, format_of, reading, visible_files
from pe_lightning.data.sources.pictures import decode_image, header_of, over_white, to_unit
from pe_lightning.errors import InputError
from pe_lightning.limits import check_claim, check_memory

__all__ = ["Clip", "check_frames", "frames_at_once", "read_frames", "read_nifti", "read_stack_arrays", "read_tiff"]

Edit: TypeAlias = Callable[[AnyArray], AnyArray]

Limits: TypeAlias = "tuple[float, float] | None"

_DEPTH = "ZTQI"  # the letters that tifffile gives to the axis that pages are stacked along; Q and I are unnamed ones
_HEADER_BYTES = 1 << 20  # at most, of a NIfTI file with its extensions
_GREY_OR_RGB = (0, 1, 2)  # TIFF PhotometricInterpretation

BLOCK_BYTES = 2**24
"""About how much is decoded at a time."""

_LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601, as images


def frames_at_once(frame_bytes: int) -> int:
    """How many frames are decoded at a time."""
    return max(1, BLOCK_BYTES // max(1, frame_bytes))


def check_frames(frames: object) -> None:
    """Raises :class:`InputError` unless ``frames`` are the arguments of a ``slice`` with a positive step, or ``None``."""
    if frames is None or (
        isinstance(frames, (list, tuple))
        and len(frames) in (2, 3)
        and all(number is None or (isinstance(number, int) and not isinstance(number, bool)) for number in frames)
        and (len(frames) == 2 or frames[2] is None or frames[2] > 0)
    ):
        return
    raise InputError(
        f"frames must be [start, stop] or [start, stop, step] of integers or null, the step at least 1; got {frames!r}"
    )


@dataclass(frozen=True)
class Clip:
    """A video, a frame folder or a volume: ``T`` frames of ``H`` x ``W`` values of ``C`` channels.

    Args:
        file: Where it is read from.
        frames: Which of its frames, ascending.
        size: ``(H, W)``; it, ``channels`` and ``stored``, the dtype, are those after ``edits``.
        scaling: Range and dtype of the source.
        read: Decodes some of the file's frames: ``(n, H', W', C')`` arrays that follow one another.
        rate: Frames per second of ``frames``, if known.
        unit: Whether the values are in [0, 1] already.
        stem: The stem of its name; the file's by default.
        edits: What is done to every decoded array, in order; each returns as many frames.
    """

    file: SourceFile
    frames: range
    size: tuple[int, int]
    channels: int
    stored: str
    scaling: Scaling
    media: Media
    read: Callable[[range], Iterator[AnyArray]]
    rate: float | None = None
    unit: bool = False
    stem: str = ""
    edits: tuple[Edit, ...] = ()

    @property
    def grid(self) -> tuple[int, int, int]:
        """``(T, H, W)``."""
        return len(self.frames), *self.size

    def blocks(self) -> Iterator[AnyArray]:
        """The chosen frames, edited: ``(n, H, W, C)`` arrays that follow one another."""
        for block in self.read(self.frames):
            for edit in self.edits:
                block = edit(block)
            yield block

    def picked(self, frames: Sequence[int | None]) -> Clip:
        """``clip[start:stop:step]`` along the first axis; :class:`InputError` if it reaches outside."""
        total, span = len(self.frames), slice(*frames)
        if not all(edge is None or -total <= edge <= total for edge in (span.start, span.stop)):
            raise InputError(f"frames {list(frames)} is beyond {self.file.given!r}, which has {total} frames or slices")
        rate = None if self.rate is None else self.rate / (span.step or 1)
        return replace(self, frames=self.frames[span], rate=rate)

    def cropped(self, size: tuple[int | None, int, int]) -> Clip:
        """The central ``(t, h, w)``; all frames where ``t`` is ``None``; :class:`InputError` if the clip is smaller."""
        wanted = (len(self.frames) if size[0] is None else size[0], size[1], size[2])
        if any(part > whole for part, whole in zip(wanted, self.grid, strict=True)):
            raise InputError(
                f"the central {'x'.join(map(str, wanted))} was asked of {self.file.given!r}, which has "
                f"{'x'.join(map(str, self.grid))} samples (first axis x height x width); set a smaller center_crop"
            )
        first, top, left = ((whole - part) // 2 for part, whole in zip(wanted, self.grid, strict=True))

        def crop(block: AnyArray) -> AnyArray:
            return block[:, top : top + wanted[1], left : left + wanted[2]]

        frames = self.frames[first : first + wanted[0]]
        return replace(self, frames=frames, size=wanted[1:], edits=(*self.edits, crop))

    def resized(self, size: tuple[int, int]) -> Clip:
        """Every frame resampled to ``(h, w)`` by Pillow's bicubic filter, widened where it shrinks (so it is anti-aliased).

        The dtype stays: integers are rounded. Values are clipped to the range of their frame.
        """

        def resize(block: AnyArray) -> AnyArray:
            return np.stack([_resampled(frame, size) for frame in block])

        return self if self.size == size else replace(self, size=size, edits=(*self.edits, resize))

    def recolored(self, channels: int) -> Clip:
        """From one channel to three equal ones, or from RGB to luma (0.299 R + 0.587 G + 0.114 B)."""

        def repeat(block: AnyArray) -> AnyArray:
            return np.repeat(block, 3, axis=-1)

        def luma(block: AnyArray) -> AnyArray:
            grey: AnyArray = (block @ _LUMA)[..., None]
            return (np.rint(grey) if block.dtype.kind in "iu" else grey).astype(block.dtype)

        if self.channels == channels:
            return self
        return replace(self, channels=channels, edits=(*self.edits, repeat if channels == 3 else luma))

    def converted(self, dtype: str) -> Clip:
        """8-bit values as ``uint16`` or ``float32``, 16-bit ones as ``float32``; each has the same place in the range."""
        if self.stored == dtype:
            return self
        peak = np.iinfo(self.stored).max

        def widen(block: AnyArray) -> AnyArray:
            wide: AnyArray = block.astype(dtype) * np.uint16(257) if dtype == "uint16" else block / np.float32(peak)
            return wide

        scaling = Scaling.of_integers(dtype) if dtype == "uint16" else Scaling(dtype)
        return replace(self, stored=dtype, scaling=scaling, unit=dtype == "float32", edits=(*self.edits, widen))


def _resampled(frame: AnyArray, size: tuple[int, int]) -> AnyArray:
    """``(H, W, C)`` to ``(*size, C)``."""
    turned = (size[1], size[0])  # Pillow's (width, height)
    if frame.dtype == np.uint8 and frame.shape[-1] == 3:
        pixels: AnyArray = np.asarray(Image.fromarray(np.ascontiguousarray(frame)).resize(turned, Image.Resampling.BICUBIC))
    else:
        planes = [Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32)) for plane in np.moveaxis(frame, -1, 0)]
        pixels = np.stack([np.asarray(plane.resize(turned, Image.Resampling.BICUBIC)) for plane in planes], axis=-1)
    if frame.dtype.kind in "iu":
        pixels = np.rint(pixels)
    return np.clip(pixels, frame.min(), frame.max()).astype(frame.dtype)


def read_frames(folder: SourceFile, fps: float | None, max_pixels: int | None) -> Clip:
    """Describes the pictures of a folder, sorted by name as a person would; transparent ones are laid over white.

    They are stored with 8 bits if all have 8, with 16 if the others have 16, else as float32 in [0, 1].
    """
    paths = [path for path in visible_files(folder.path) if format_of(path, by_content=False) in PICTURES]
    if len(paths) < 2:
        raise InputError(
            f"the frame folder {folder.given!r} holds {len(paths)} picture(s), and a signal needs at least 2 frames; use "
            "ImageDataModule for a single picture"
        )
    files = [SourceFile(path, str(path)) for path in sorted(paths, key=_natural_key)]
    headers = [header_of(file) for file in files]
    sizes = [(file.path.name, (header.height, header.width)) for file, header in zip(files, headers, strict=True)]
    size = in_common("sizes (height x width) of frames", sizes, "Use ImageDataModule if each picture is a signal")
    bits = {max(header.bits, 8) for header in headers}
    stored = "uint8" if bits == {8} else "uint16" if bits <= {8, 16} else "float32"
    channels = 1 if all(header.grey for header in headers) else 3
    return Clip(
        file=folder,
        frames=range(len(files)),
        size=size,
        channels=channels,
        stored=stored,
        scaling=Scaling(stored) if stored == "float32" else Scaling.of_integers(stored),
        media="video",
        read=partial(_decode, files, (*size, channels), stored, max_pixels),
        rate=fps,
        unit=stored == "float32",
    )


def _natural_key(path: Path) -> list[Any]:
    """Sorts numbers in names by their value: ``2.png`` before ``10.png``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", path.name.casefold())]


def _decode(
    files: Sequence[SourceFile], shape: tuple[int, int, int], stored: str, max_pixels: int | None, frames: range
) -> Iterator[AnyArray]:
    for part in _parts(frames, 4 * shape[0] * shape[1] * shape[2]):
        images = [over_white(decode_image(files[number], max_pixels)) for number in part]
        values = np.stack([np.broadcast_to(to_unit(image), shape) for image in images])  # grey pictures among RGB ones
        yield values if stored == "float32" else np.rint(values * np.float32(np.iinfo(stored).max)).astype(stored)


def _parts(frames: range, frame_bytes: int) -> Iterator[range]:
    limit = frames_at_once(frame_bytes)
    return (frames[start : start + limit] for start in range(0, len(frames), limit))


def read_tiff(file: SourceFile, limits: Limits, max_pixels: int | None) -> Clip:
    """Describes a TIFF stack: its pages, or one image of three axes, with up to 4 channels.

    Values stay as stored, those of inverted grey too. ``limits`` are the values that become 0 and 1.
    """
    with _opened(file) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        sizes = [(letter, size) for letter, size in zip(series.axes, series.shape, strict=True) if size > 1]
        axes = "".join("Z" if letter in _DEPTH else "C" if letter == "S" else letter for letter, _ in sizes)
        shape, dtype = [size for _, size in sizes], series.dtype
        num_channels = shape[axes.index("C")] if "C" in axes else 1
        known = sorted(axes) in (["X", "Y", "Z"], ["C", "X", "Y", "Z"]) and num_channels <= 4
        if len(tiff.series) > 1 or not known or int(page.photometric) not in _GREY_OR_RGB:
            raise InputError(
                f"{file.given!r} holds {len(tiff.series)} image series; the first has the axes {series.axes} of sizes "
                f"{series.shape}, stored as {page.photometric!s}. A TIFF stack is one series of (Z, Y, X), grey or RGB, "
                "with up to 4 channels; a single picture is read by ImageDataModule"
            )
        # page by page where each page is one slice with its channels last
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
            for part in _parts(frames, height * width * channels * dtype.itemsize):
                pages = [series.pages[number].asarray() for number in part] if whole is None else whole[list(part)]
                yield _native(np.asarray(pages).reshape(len(part), height, width, channels))

    if dtype.kind == "b" and limits is None:
        limits = (0.0, 1.0)
    return _clip(file, (depth, height, width, channels), _native(np.empty(0, dtype)).dtype, read, limits, True)


@contextmanager
def _opened(file: SourceFile) -> Iterator[Any]:
    """The open file; what tifffile reports in its log (missing pages, say) is an error here."""
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


def read_nifti(file: SourceFile, limits: Limits, max_pixels: int | None) -> Clip:
    """Describes a NIfTI volume, from ``(x, y, z)`` as stored to ``(Z, Y, X)``; the orientation in its header is not applied.

    Where the header has a slope and an intercept they are applied, which makes float32; else the stored dtype stays. The
    least and the greatest value become 0 and 1, of integers too. A fourth axis of up to 4 becomes channels.
    """
    volume = _load_nifti(file, max_pixels)
    if file.path.suffix.lower() == ".gz":
        with reading(file.given), gzip.open(file.path) as stream:  # to the checksum at its end, which nibabel does not reach
            while stream.tell() < _HEADER_BYTES + 8 * volume.size and stream.read(BLOCK_BYTES):
                pass

    def read(frames: range) -> Iterator[AnyArray]:
        whole = _load_nifti(file, max_pixels)
        for part in _parts(frames, whole[:1].nbytes):
            yield np.ascontiguousarray(whole[part.start : part.stop : part.step])

    return _clip(file, volume.shape, volume.dtype, read, limits, False)


def _load_nifti(file: SourceFile, max_pixels: int | None) -> AnyArray:
    """``(Z, Y, X, C)``."""
    try:
        nibabel: Any = importlib.import_module("nibabel")
    except ImportError as error:
        raise InputError(
            f'reading NIfTI ({file.given!r}) needs nibabel, which is not installed: pip install "pe-lightning[nifti]"'
        ) from error
    with reading(file.given):
        image = nibabel.load(file.path)
        shape = tuple(int(size) for size in image.shape)
        trimmed = (*shape[:3], *(size for size in shape[3:] if size > 1))
        if len(trimmed) not in (3, 4) or (len(trimmed) == 4 and trimmed[3] > 4):
            raise InputError(
                f"{file.given!r} has the shape {shape}: a volume has three axes, or a fourth of at most 4 channels; save "
                "one volume of the series by itself"
            )
        check_area(file.given, shape[1], shape[0], max_pixels)
        scaled = (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)
        itemsize = 8 if scaled else image.get_data_dtype().itemsize  # nibabel scales in float64
        check_claim(repr(file.given), shape, image.get_data_dtype().itemsize, file.path.stat().st_size)
        check_memory(repr(file.given), shape, itemsize, "Save a part of the volume, or a coarser one")
        volume = np.asanyarray(image.dataobj).reshape(*trimmed[:3], -1).transpose(2, 1, 0, 3)
        return volume.astype(np.float32) if scaled else _native(volume)


def _native(values: AnyArray) -> AnyArray:
    """In the byte order of this machine; booleans as 0 and 1."""
    return values.astype(np.uint8 if values.dtype.kind == "b" else values.dtype.newbyteorder("="), copy=False)


def _clip(
    file: SourceFile,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    read: Callable[[range], Iterator[AnyArray]],
    limits: Limits,
    full_range: bool,
) -> Clip:
    if dtype.kind not in "iuf":
        raise InputError(f"{file.given!r} holds {dtype} values; integers and floating point are read")
    every = range(shape[0])
    scaling = value_scaling(repr(file.given), dtype, partial(read, every), limits, full_range)
    return Clip(file, every, (shape[1], shape[2]), shape[3], dtype.name, scaling, "array", read)


def read_stack_arrays(file: SourceFile, key: str | None, limits: Limits) -> list[Clip]:
    """Describes the signals of an array file as clips."""
    array = find_array(file, key, 3)
    scaling = value_scaling(array.label, array.dtype, array.blocks, limits)
    return [
        Clip(
            file=file,
            frames=range(array.shape[1]),
            size=(array.shape[2], array.shape[3]),
            channels=array.shape[4],
            stored=array.dtype.name,
            scaling=scaling,
            media="array",
            read=partial(array.frames, range(signal, signal + 1)),
            stem=stem,
        )
        for signal, stem in enumerate(array.stems)
    ]

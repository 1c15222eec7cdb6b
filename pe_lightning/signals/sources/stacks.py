"""Frame folders, TIFF stacks, NIfTI volumes and arrays as clips."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from pe_lightning.errors import InputError, require
from pe_lightning.signals.files import PICTURES
from pe_lightning.signals.raw import AnyArray, ValueRange
from pe_lightning.signals.sources.arrays import ArrayFile, find_array
from pe_lightning.signals.sources.checks import check_area, in_common, value_scaling
from pe_lightning.signals.sources.clips import Clip, frames_at_once
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, format_of, reading, visible_files
from pe_lightning.signals.sources.pictures import decode_image, full_value, header_of, over_white, range_of_integers, to_unit
from pe_lightning.signals.validation import check_claim, check_memory

Limits: TypeAlias = "tuple[float, float] | None"

DEPTH_AXES = "ZTQI"  # letters of tifffile for the axis along which pages are stacked; Q and I are unnamed axes
PHOTOMETRIC_GREY_OR_RGB = (0, 1, 2)  # TIFF PhotometricInterpretation


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


def read_frames(
    folder: SourceFile,
    limits: Limits,
    fps: float | None,
    max_pixels: int | None,
    missing: Missing = Missing(),  # noqa: B008  (frozen)
) -> Clip:
    """Describes the pictures of a folder, numbers in their names sorted by value, as frames composited over white.

    The dtype is uint8 if all pictures have 8 bits, uint16 if all have 8 or 16, else float32. Floating point beyond [0, 1] is
    scaled by the minimum and maximum of all frames, or by ``limits``.
    """
    paths = [path for path in visible_files(folder.path) if format_of(path, by_content=False) in PICTURES]
    if len(paths) < 2:
        raise InputError(
            f"the frame folder {folder.given!r} holds {len(paths)} picture(s), but a signal needs at least 2 frames; use "
            "ImageDataModule for a single picture"
        )
    files = [SourceFile(path, str(path)) for path in sorted(paths, key=_natural_key)]
    headers = [header_of(file) for file in files]
    sizes = [(file.path.name, (header.height, header.width)) for file, header in zip(files, headers, strict=True)]
    size = in_common("sizes (height x width) of frames", sizes, "Use ImageDataModule if each picture is a signal")
    bits = {max(header.bits, 8) for header in headers}
    stored = range_dtype = "uint8" if bits == {8} else "uint16" if bits <= {8, 16} else "float32"
    if missing.kind in ("alpha", "colour", "value"):
        stored = "float32"
    channels = 1 if all(header.grey for header in headers) else 3
    read, every = partial(_decode, files, (*size, channels), stored, max_pixels, missing), range(len(files))
    scaling = ValueRange(stored) if range_dtype == "float32" else ValueRange.of_integers(range_dtype)
    if 32 in bits:
        scaling = value_scaling(repr(folder.given), np.dtype(stored), partial(read, every), limits)
    elif limits is not None:
        raise range_of_integers(folder)
    unit = stored == "float32" and (range_dtype != "float32" or scaling == ValueRange(stored))
    return Clip(folder, every, size, channels, stored, scaling, "video", read, fps, unit)


def _natural_key(path: Path) -> list[Any]:
    """Sort key that orders numbers in names by value: ``2.png`` before ``10.png``."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", path.name.casefold())]


def _decode(
    files: Sequence[SourceFile],
    shape: tuple[int, int, int],
    stored: str,
    max_pixels: int | None,
    missing: Missing,
    frames: range,
) -> Iterator[AnyArray]:
    for part in _parts(frames, 4 * shape[0] * shape[1] * shape[2]):
        some = [files[number] for number in part]
        images = [over_white(missing.in_picture(decode_image(file, max_pixels), file.given)) for file in some]
        values = np.stack([np.broadcast_to(to_unit(image), shape) for image in images])  # grey pictures among RGB ones
        yield values if stored == "float32" else np.rint(values * np.float32(full_value(stored))).astype(stored)


def _parts(frames: range, frame_bytes: int) -> Iterator[range]:
    limit = frames_at_once(frame_bytes)
    return (frames[start : start + limit] for start in range(0, len(frames), limit))


def read_tiff(
    file: SourceFile,
    limits: Limits,
    max_pixels: int | None,
    missing: Missing = Missing(),  # noqa: B008  (frozen)
) -> Clip:
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
            for part in _parts(frames, height * width * channels * dtype.itemsize):
                pages = [series.pages[number].asarray() for number in part] if whole is None else whole[list(part)]
                yield _native(np.asarray(pages).reshape(len(part), height, width, channels))

    if dtype.kind == "b" and limits is None:
        limits = (0.0, 1.0)
    return _clip(file, (depth, height, width, channels), _native(np.empty(0, dtype)).dtype, read, limits, True, missing)


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


def read_nifti(
    file: SourceFile,
    limits: Limits,
    max_pixels: int | None,
    missing: Missing = Missing(),  # noqa: B008  (frozen)
) -> Clip:
    """Describes a NIfTI volume, transposed from ``(x, y, z)`` to ``(Z, Y, X)``; its orientation matrix is not applied.

    Slope and intercept of the header are applied, which gives float32; without them the dtype is unchanged. The minimum and
    the maximum become 0 and 1, also of integers. A fourth axis of at most 4 is channels.
    """
    volume = _load_nifti(file, max_pixels)

    def read(frames: range) -> Iterator[AnyArray]:
        whole = _load_nifti(file, max_pixels)
        for part in _parts(frames, whole[:1].nbytes):
            yield np.ascontiguousarray(whole[part.start : part.stop : part.step])

    return _clip(file, volume.shape, volume.dtype, read, limits, False, missing)


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
    missing: Missing,
) -> Clip:
    if dtype.kind not in "iuf":
        raise InputError(f"{file.given!r} holds {dtype} values; supported are integers and floating point")
    every, stored = range(shape[0]), missing.stored(dtype).name

    def marked(frames: range) -> Iterator[AnyArray]:
        return map(missing.in_values, read(frames))

    scaling = value_scaling(repr(file.given), dtype, partial(marked, every), limits, full_range)
    return Clip(file, every, (shape[1], shape[2]), shape[3], stored, scaling, "array", marked)


def read_stack_arrays(
    file: SourceFile, key: str | None, limits: Limits, num_axes: int = 3, fills: Sequence[float] = ()
) -> list[Clip]:
    """Describes the signals of an array file as clips; those of two axes have one frame."""
    array = find_array(file, key, num_axes, fills=fills)
    scaling = value_scaling(array.label, array.dtype, array.blocks, limits)
    height, width, channels = array.shape[-3:]
    return [
        Clip(
            file=file,
            frames=range(array.shape[1] if num_axes == 3 else 1),
            size=(height, width),
            channels=channels,
            stored=array.read_as.name,
            scaling=scaling,
            media="array",
            read=partial(array.frames if num_axes == 3 else partial(_picture, array), range(signal, signal + 1)),
            stem=stem,
        )
        for signal, stem in enumerate(array.stems)
    ]


def _picture(array: ArrayFile, signal: range, frames: range) -> Iterator[AnyArray]:
    """A signal of two axes as one frame, ``(1, H, W, C)``."""
    yield np.concatenate(list(array.frames(signal, range(array.shape[1]))))[None]

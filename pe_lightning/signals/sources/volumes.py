"""Stacks of pictures in TIFF files, and NIfTI volumes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pe_lightning.errors import InputError, require
from pe_lightning.signals.axes import MAX_CHANNELS
from pe_lightning.signals.raw import AnyArray, Decoded, value_scaling
from pe_lightning.signals.sources.clips import Clip, Limits, in_parts
from pe_lightning.signals.sources.declared import NOTHING, Declared
from pe_lightning.signals.sources.paths import SourceFile, reading
from pe_lightning.signals.sources.tiff import RGB, declared_by_page, open_tiff, read_stack, series_of_stack
from pe_lightning.signals.validation import check_area, check_claim, check_memory, check_numbers

DEPTH_AXES = "ZTQI"  # letters of tifffile for the axis along which pages are stacked; Q and I are unnamed axes


def read_tiff(file: SourceFile, max_pixels: int | None, limits: Limits, fills: Sequence[float]) -> Clip:
    """Describes a TIFF stack: pages, or one image of three axes, with up to 4 channels. Inverted grey is left as it is."""
    with _opened(file) as tiff:
        series = series_of_stack(file, tiff)
        sizes = [(letter, size) for letter, size in zip(series.axes, series.shape, strict=True) if size > 1]
        axes = "".join("Z" if letter in DEPTH_AXES else "C" if letter == "S" else letter for letter, _ in sizes)
        shape, dtype = [size for _, size in sizes], series.dtype
        num_channels = shape[axes.index("C")] if "C" in axes else 1
        known = sorted(axes) in (["X", "Y", "Z"], ["C", "X", "Y", "Z"]) and num_channels <= 4
        if not known or int(series.keyframe.photometric) > RGB:
            raise InputError(
                f"{file.given!r} has the axes {series.axes} of sizes {series.shape}, stored as "
                f"{series.keyframe.photometric!s}. A TIFF stack is one series of (Z, Y, X), grey or RGB, with up to 4 "
                "channels; a single picture is read by ImageDataModule"
            )
        # read page by page if each page is one slice with its channels last
        paged = len(series.pages) == shape[0] and axes in ("ZYX", "ZYXC")
        native = _native(np.empty(0, dtype)).dtype
        declared = declared_by_page(file, series.keyframe).plus(fills, native)
    order = [axes.index(letter) for letter in "ZYXC" if letter in axes]
    depth, height, width, channels = ([shape[place] for place in order] + [1])[:4]
    check_area(file.given, height, width, max_pixels)
    check_claim(repr(file.given), shape, dtype.itemsize, file.path.stat().st_size)

    def decode(frames: Sequence[int]) -> Iterator[AnyArray]:
        with _opened(file) as tiff:
            series = tiff.series[0]
            if not paged:
                check_memory(repr(file.given), shape, dtype.itemsize, "Save it with one page per slice")
            whole = None if paged else read_stack(file, series).reshape(shape).transpose(order)
            for part in in_parts(frames, height * width * channels * dtype.itemsize):
                pages = [read_stack(file, series.pages[number]) for number in part] if whole is None else whole[list(part)]
                yield _native(np.asarray(pages).reshape(len(part), height, width, channels))

    if dtype.kind == "b" and limits is None:
        limits = (0.0, 1.0)
    return _clip(file, (depth, height, width, channels), native, decode, limits, True, declared)


@contextmanager
def _opened(file: SourceFile) -> Iterator[Any]:
    """Opens a TIFF file. Errors that tifffile only logs, such as missing pages, are raised."""
    reports: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: reports.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tifffile").addHandler(handler)
    try:
        with open_tiff(file) as tiff:
            if not tiff.series or reports:
                raise ValueError(*reports)
            yield tiff
    finally:
        logging.getLogger("tifffile").removeHandler(handler)


def read_nifti(file: SourceFile, max_pixels: int | None, limits: Limits, fills: Sequence[float]) -> Clip:
    """Describes a NIfTI volume, transposed from ``(x, y, z)`` to ``(Z, Y, X)``; its orientation matrix is not applied.

    Slope and intercept of the header are applied, in float32. The minimum and the maximum become 0 and 1, also of integers.
    A fourth axis of at most 4 is channels.
    """
    volume = _load_nifti(file, max_pixels)

    def decode(frames: Sequence[int]) -> Iterator[AnyArray]:
        whole = _load_nifti(file, max_pixels)
        for part in in_parts(frames, whole[:1].nbytes):
            yield np.ascontiguousarray(whole[list(part)])

    return _clip(file, volume.shape, volume.dtype, decode, limits, False, NOTHING.plus(fills, volume.dtype))


def open_nifti(file: SourceFile) -> Any:
    """Opens a NIfTI file of numbers by ``nibabel``; refused if it claims more than it can hold, or than the free memory."""
    nibabel: Any = require("nibabel", f"reading {file.given!r}")
    with reading(file.given):
        image = nibabel.load(file.path)
        hint = ". Save colours, and complex numbers, as channels along a fourth axis"
        check_numbers(repr(file.given), image.get_data_dtype(), hint)
        shape, itemsize = tuple(int(size) for size in image.shape), image.get_data_dtype().itemsize
        check_claim(repr(file.given), shape, itemsize, file.path.stat().st_size)
        # nibabel scales in float64
        check_memory(repr(file.given), shape, 8 if _is_scaled(image) else itemsize, "Save a part of it, or a coarser one")
        return image


def shape_of_volume(file: SourceFile, image: Any) -> tuple[int, ...]:
    """``(X, Y, Z)``, or with channels ``(X, Y, Z, C)``, of an open NIfTI file; series of volumes are refused."""
    shape = tuple(int(size) for size in image.shape)
    trimmed = (*shape[:3], *(size for size in shape[3:] if size > 1))
    if len(trimmed) not in (3, 4) or (len(trimmed) == 4 and trimmed[3] > MAX_CHANNELS):
        raise InputError(
            f"{file.given!r} has the shape {shape}; a volume has three axes, or four with at most 4 channels last. Save "
            "one volume of the series as a separate file"
        )
    return trimmed


def _is_scaled(image: Any) -> bool:
    return (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)


def _load_nifti(file: SourceFile, max_pixels: int | None) -> AnyArray:
    """``(Z, Y, X, C)``."""
    image = open_nifti(file)
    width, height, *_ = shape = shape_of_volume(file, image)
    check_area(file.given, height, width, max_pixels)
    with reading(file.given):
        volume = np.asanyarray(image.dataobj).reshape(*shape[:3], -1).transpose(2, 1, 0, 3)
    return volume.astype(np.float32) if _is_scaled(image) else _native(volume)


def _native(values: AnyArray) -> AnyArray:
    """Values in the byte order of this machine, and booleans as 0 and 1."""
    return values.astype(np.uint8 if values.dtype.kind == "b" else values.dtype.newbyteorder("="), copy=False)


def _clip(
    file: SourceFile,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    decode: Callable[[Sequence[int]], Iterator[AnyArray]],
    limits: Limits,
    full_range: bool,
    declared: Declared,
) -> Clip:
    check_numbers(repr(file.given), dtype)
    stored = Decoded((1, *shape), dtype, decode).edited(declared.with_nan, dtype=declared.read_as(dtype).name)
    scaling = value_scaling(repr(file.given), dtype, stored.blocks, limits, full_range)
    return Clip(values=stored, names=(file.stem,), scaling=scaling, file=file)

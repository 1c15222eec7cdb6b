"""Volumes: TIFF stacks through tifffile and NIfTI through nibabel, ``(Z, Y, X, C)``."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pe_lightning.data.signals import AnyArray
from pe_lightning.data.sources.checks import check_area
from pe_lightning.data.sources.clips import Clip, frames_at_once
from pe_lightning.data.sources.paths import SourceFile, reading
from pe_lightning.data.sources.ranges import value_scaling
from pe_lightning.errors import InputError

__all__ = ["read_nifti", "read_tiff"]

_DEPTH = "ZTQI"  # the letters that tifffile gives to the axis that pages are stacked along; Q and I are unnamed ones
_GREY_OR_RGB = (0, 1, 2)  # TIFF PhotometricInterpretation

Limits = tuple[float, float] | None


def read_tiff(file: SourceFile, limits: Limits, max_pixels: int | None) -> Clip:
    """Describes a TIFF stack: its pages, or one image of three axes, with up to 4 channels.

    Values stay as stored, those of inverted grey too. ``limits`` are the values that become 0 and 1.
    """
    with _opened(file) as tiff:
        series, page = tiff.series[0], tiff.pages[0]
        sizes = [(letter, size) for letter, size in zip(series.axes, series.shape, strict=True) if size > 1]
        axes = "".join("Z" if letter in _DEPTH else "C" if letter == "S" else letter for letter, _ in sizes)
        shape, dtype = [size for _, size in sizes], series.dtype
        if len(tiff.series) > 1:
            raise InputError(f"{file.given!r} holds {len(tiff.series)} image series; save the one you mean by itself")
        if sorted(axes) not in (["X", "Y", "Z"], ["C", "X", "Y", "Z"]) or ("C" in axes and shape[axes.index("C")] > 4):
            raise InputError(
                f"{file.given!r} has the axes {series.axes} of sizes {series.shape}; a TIFF stack has (Z, Y, X), and a "
                "channel axis C or S of up to 4. A single picture is read by ImageDataModule"
            )
        if int(page.photometric) not in _GREY_OR_RGB:
            raise InputError(f"{file.given!r} is stored as {page.photometric!s}; save it as grey or RGB")
        # page by page where each page is one slice with its channels last
        paged = len(series.pages) == shape[0] and axes in ("ZYX", "ZYXC")
    order = [axes.index(letter) for letter in "ZYXC" if letter in axes]
    depth, height, width, channels = ([shape[place] for place in order] + [1])[:4]
    check_area(file.given, height, width, max_pixels)

    def read(frames: range) -> Iterator[AnyArray]:
        with _opened(file) as tiff:
            series = tiff.series[0]
            whole = None if paged else series.asarray().reshape(shape).transpose(order)
            limit = frames_at_once(height * width * channels * dtype.itemsize)
            for start in range(0, len(frames), limit):
                part = frames[start : start + limit]
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

    def read(frames: range) -> Iterator[AnyArray]:
        whole = _load_nifti(file, max_pixels)
        limit = frames_at_once(whole[:1].nbytes)
        for start in range(0, len(frames), limit):
            part = frames[start : start + limit]
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
                f"{file.given!r} has the shape {shape}: a volume has three axes, or a fourth of at most 4 channels. Choose "
                "one volume of the series and save it: nibabel.load(file).slicer[..., 0].to_filename('one.nii.gz')"
            )
        check_area(file.given, shape[1], shape[0], max_pixels)
        scaled = (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)
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

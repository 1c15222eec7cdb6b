"""Volumes: TIFF stacks through tifffile and NIfTI through nibabel, ``(Z, Y, X, C)``."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.signals import AnyArray, Scaling
from pe_lightning.data.sources.arrays import value_limits
from pe_lightning.data.sources.clips import Clip, check_area, frames_per_slab
from pe_lightning.data.sources.decode import MAX_PIXELS
from pe_lightning.data.sources.sources import Source
from pe_lightning.errors import InputError

__all__ = ["NIFTI_SUFFIXES", "TIFF_SUFFIXES", "count_pages", "read_nifti", "read_tiff"]

TIFF_SUFFIXES = frozenset({".tif", ".tiff"})
NIFTI_SUFFIXES = frozenset({".nii", ".nii.gz"})

_DEPTH = "ZTQI"  # the letters that tifffile gives to the axis that pages are stacked along; Q and I are unnamed ones
_GREY_OR_RGB = (0, 1, 2)  # TIFF PhotometricInterpretation

Reader = Callable[[range], Iterator[AnyArray]]


def read_tiff(source: Source, value_range: Sequence[float] | None = None, max_pixels: int | None = MAX_PIXELS) -> Clip:
    """Describes a TIFF stack: its pages, or one image of three axes, with up to 4 channels.

    Integers of 8 and 16 bits take the full range of their dtype; wider ones need ``value_range``. Floating point in
    [0, 1] is kept; otherwise the smallest and the largest value of the whole stack become 0 and 1, with a notice.
    Values stay as stored, those of inverted grey too.

    Args:
        source: The file.
        value_range: ``[low, high]``, the values that become 0 and 1; none may lie outside.
        max_pixels: Refuse slices that claim more; ``None`` for no limit.

    Raises:
        InputError: If it is not a stack, is damaged, or has values that are not finite.
    """
    import tifffile

    with _described(source) as file:
        series, page = file.series[0], file.pages[0]
        sizes = [(letter, size) for letter, size in zip(series.axes, series.shape, strict=True) if size > 1]
        shape, axes, dtype = [size for _, size in sizes], "".join(letter for letter, _ in sizes), series.dtype
        grouped, photometric = len(file.series), int(page.photometric)
        paged = len(series.pages) == shape[0] and len(shape) > 2
    if grouped > 1:
        raise InputError(
            f"{source.given!r} holds {grouped} image series of different kinds; save the one you mean by itself"
        )
    order = _order(axes, shape)
    if order is None:
        raise InputError(
            f"{source.given!r} has the axes {series.axes} of sizes {series.shape}; a TIFF stack has (Z, Y, X), and a "
            "channel axis C or S of up to 4. A single picture is read by ImageDataModule"
        )
    if photometric not in _GREY_OR_RGB:
        raise InputError(f"{source.given!r} is stored as {page.photometric!s}; save it as grey or RGB")
    depth, height, width = (shape[place] for place in order[:3])
    channels = shape[order[3]] if len(order) == 4 else 1
    check_area(source.given, height, width, max_pixels)

    def read(frames: range) -> Iterator[AnyArray]:
        limit = frames_per_slab(height * width * channels * dtype.itemsize)
        try:
            with tifffile.TiffFile(source.path) as file:
                series = file.series[0]
                # page by page where each page is one slice with its channels last
                whole = None if paged and order in ((0, 1, 2), (0, 1, 2, 3)) else series.asarray().reshape(shape)
                for start in range(0, len(frames), limit):
                    part = frames[start : start + limit]
                    if whole is None:
                        slab = np.stack([series.pages[number].asarray().reshape(shape[1:]) for number in part])
                    else:
                        slab = whole.transpose(order)[part.start : part.stop : part.step]
                    yield _native(slab.reshape(len(part), height, width, channels))
        except Exception as error:
            raise _damaged(source, "TIFF", error) from error

    if dtype.kind == "b" and value_range is None:
        value_range = (0, 1)
    return _clip(source, (depth, height, width, channels), _native(np.empty(0, dtype)).dtype, read, value_range, True)


def count_pages(source: Source) -> int:
    """Number of pictures in a TIFF file.

    Raises:
        InputError: If it is damaged.
    """
    with _described(source) as file:
        return max(len(file.pages), int(file.series[0].size // file.pages[0].size))


@contextmanager
def _described(source: Source) -> Iterator[Any]:
    """The open file, to read its headers; what tifffile complains of in its log (missing pages, say) is an error here."""
    import tifffile

    complaints: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tifffile")
    log.addHandler(handler)
    try:
        with tifffile.TiffFile(source.path) as file:
            yield file
            pages = len(file.pages)
        if complaints:
            raise ValueError(f"{pages} pages found; {complaints[0]}")
    except MemoryError:
        raise
    except Exception as error:  # tifffile raises anything at all on damaged files
        raise _damaged(source, "TIFF", error) from error
    finally:
        log.removeHandler(handler)


def read_nifti(source: Source, value_range: Sequence[float] | None = None, max_pixels: int | None = MAX_PIXELS) -> Clip:
    """Describes a NIfTI volume, from ``(x, y, z)`` as stored to ``(Z, Y, X)``; the orientation in its header is not applied.

    Where the header has a slope and an intercept they are applied, which makes float32; else the stored dtype is kept.
    Values in [0, 1] are kept; otherwise the smallest and the largest become 0 and 1, with a notice. A fourth axis of up
    to 4 becomes channels.

    Args:
        source: The file, ``.nii`` or ``.nii.gz``.
        value_range: ``[low, high]``, the values that become 0 and 1; none may lie outside.
        max_pixels: Refuse slices that claim more; ``None`` for no limit.

    Raises:
        InputError: If nibabel is missing, or the file is damaged, has other axes, or values that are not finite.
    """
    load = partial(_load_nifti, source, max_pixels)
    volume = load()
    shape = (volume.shape[0], volume.shape[1], volume.shape[2], volume.shape[3])

    def read(frames: range) -> Iterator[AnyArray]:
        whole = load()
        limit = frames_per_slab(whole[:1].nbytes)
        for start in range(0, len(frames), limit):
            part = frames[start : start + limit]
            yield np.ascontiguousarray(whole[part.start : part.stop : part.step])

    return _clip(source, shape, volume.dtype, read, value_range, False)


def _load_nifti(source: Source, max_pixels: int | None) -> AnyArray:
    """``(Z, Y, X, C)``."""
    try:
        nibabel: Any = importlib.import_module("nibabel")
    except ImportError as error:
        raise InputError(
            f'reading NIfTI ({source.given!r}) needs nibabel, which is not installed: pip install "pe-lightning[nifti]"'
        ) from error
    try:
        image = nibabel.load(source.path)
        shape = tuple(int(size) for size in image.shape)
    except Exception as error:  # nibabel, gzip and zlib raise their own
        raise _damaged(source, "NIfTI file", error) from error
    trimmed = (*shape[:3], *(size for size in shape[3:] if size > 1))
    if len(trimmed) not in (3, 4) or (len(trimmed) == 4 and trimmed[3] > 4):
        raise InputError(
            f"{source.given!r} has the shape {shape}: a volume has three axes, or a fourth of at most 4 channels. Choose "
            "one volume of the series and save it: nibabel.load(file).slicer[..., 0].to_filename('one.nii.gz')"
        )
    check_area(source.given, shape[1], shape[0], max_pixels)
    try:
        scaled = (image.dataobj.slope, image.dataobj.inter) != (1.0, 0.0)
        values = np.asanyarray(image.dataobj).reshape(*trimmed[:3], -1)
    except Exception as error:
        raise _damaged(source, "NIfTI file", error) from error
    volume = values.transpose(2, 1, 0, 3)
    return volume.astype(np.float32) if scaled else _native(volume)


def _order(axes: str, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Where Z, Y, X and, if there is one, the channel axis are; ``None`` if the axes are others."""
    names = "".join("Z" if letter in _DEPTH else "C" if letter == "S" else letter for letter in axes)
    if sorted(names) == ["X", "Y", "Z"]:
        return names.index("Z"), names.index("Y"), names.index("X")
    if sorted(names) == ["C", "X", "Y", "Z"] and shape[names.index("C")] <= 4:
        return names.index("Z"), names.index("Y"), names.index("X"), names.index("C")
    return None


def _native(values: AnyArray) -> AnyArray:
    """In the byte order of this machine; truth values as 0 and 1."""
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _clip(
    source: Source,
    shape: tuple[int, int, int, int],
    dtype: np.dtype[Any],
    read: Reader,
    value_range: Sequence[float] | None,
    full_range: bool,
) -> Clip:
    if dtype.kind not in "iuf":
        raise InputError(f"{source.given!r} holds {dtype} values; integers and floating point are read")
    limits = value_limits(value_range)
    whole_dtype = full_range and dtype.kind in "iu"
    if whole_dtype and not limits and dtype.itemsize > 2:
        raise InputError(f"{source.given!r} holds {dtype} values, whose range is unknown; set value_range: [low, high]")
    if limits or not whole_dtype:
        least, greatest = _finite_limits(source, read(range(shape[0])))
        if limits and not limits[0] <= least <= greatest <= limits[1]:
            raise InputError(
                f"{source.given!r} holds values from {least:g} to {greatest:g}, outside value_range {list(limits)}; widen it"
            )
        limits = limits or _own_range(source, least, greatest)
    scaling = Scaling(dtype.name, (limits[0],), (limits[1],)) if limits else Scaling.of_integers(dtype)
    return Clip(source, range(shape[0]), *shape[1:], dtype.name, scaling, False, "array", read)


def _finite_limits(source: Source, slabs: Iterator[AnyArray]) -> tuple[float, float]:
    """The least and the greatest value of a volume, all of which must be finite."""
    low, high, start, wrong = np.inf, -np.inf, 0, 0
    where: list[int] = []
    for slab in slabs:
        bad = ~np.isfinite(slab)
        if bad.any():
            wrong += int(np.count_nonzero(bad))
            first = [int(number) for number in np.argwhere(bad)[0]]
            where = where or [first[0] + start, *first[1:]]
        else:
            low, high = min(low, float(slab.min())), max(high, float(slab.max()))
        start += len(slab)
    if wrong:
        raise InputError(
            f"{source.given!r} holds {wrong} value(s) that are not finite (NaN or infinite), the first at [z, y, x, channel]"
            f" = {where}; repair it first, for example with numpy.nan_to_num"
        )
    return low, high


def _own_range(source: Source, low: float, high: float) -> tuple[float, float]:
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    if low == high:
        raise InputError(f"all values of {source.given!r} are {low:g}: nothing to fit; set value_range to fit it anyway")
    rank_zero_info(
        f"{source.given!r} holds values from {low:g} to {high:g}, which become 0 and 1; set value_range to choose"
    )
    return low, high


def _damaged(source: Source, kind: str, error: Exception) -> InputError:
    if "imagecodecs" in str(error):
        return InputError(
            f"{source.given!r} is compressed in a way that needs another package ({error}); save it uncompressed"
        )
    return InputError(
        f"cannot read the {kind} {source.given!r}; it seems to be truncated or damaged ({type(error).__name__}: {error}). "
        "Copy or download it again, or remove it from the paths"
    )

"""The signals of a file that can be written back."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.errors import InputError, refuse
from pe_lightning.signals import Axis
from pe_lightning.signals.raw import AnyArray, Mask, Media
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources.declared import Declared
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, format_of


def _no_file(path: Path, values: AnyArray) -> None:
    """An array in memory has no file to write; :meth:`Filled.write` says what to type."""


@dataclass(frozen=True)
class EditableFile:
    """The signals of a file, with the values that it stores, and a writer of copies with other values.

    Args:
        names: One name per signal.
        values: ``(S, N_1, ..., N_D, C)`` in the dtype of the file.
        missing: Where a value is missing, of the same shape.
        suffixes: Suffixes of the files that :attr:`write` writes, the first by default; none of an array in memory.
        write: ``write(path, values)`` writes a copy of the file, in the format of the suffix, with other values of the same
            shape, or of more samples per axis where ``resizes``; with ``std=`` where ``holds_std``. Where ``located``,
            ``points=True`` keeps the place of the first sample, and ``deviations=True`` takes float32 deviations.
        media: Medium for pictures beside the result.
        resizes: Whether ``write`` takes values of another number of samples.
        axes: The axes in the user's units, if the file has coordinates.
        holds_std: Whether the copy holds standard deviations of the filled values.
        located: Whether the file has coordinates of its pixels.
        points: Whether the file declares that its samples are values at points.
        jpeg: Whether the file, or a frame of it, is a JPEG.
        orientation: EXIF orientation of a picture, which is applied to ``values``.
        xyz: Whether the axes are x, y, z, as in a NIfTI file.
        grown: Pixels by which missing samples were grown.
        marks_left: Whether ``write`` takes ``left=``, the values that stay missing, because they may be other than NaN.
        path: The file, which is never replaced; ``write`` may read it again.
    """

    names: tuple[str, ...]
    values: AnyArray
    missing: Mask
    suffixes: tuple[str, ...] = ()
    write: Callable[..., None] = _no_file
    media: Media = "array"
    resizes: bool = False
    axes: tuple[Axis, ...] = ()
    holds_std: bool = False
    located: bool = False
    points: bool = False
    jpeg: bool = False
    orientation: int = 1
    xyz: bool = False
    grown: int = 0
    marks_left: bool = False
    path: Path | None = None


def marked_values(values: AnyArray, declared: Declared) -> Mask:
    """Where values are not finite, or declared missing."""
    return (~np.isfinite(values) if values.dtype.kind == "f" else False) | declared.marks(values)


def valid_values(values: AnyArray, dtype: np.dtype[Any], declared: Declared, left: Mask | None = None) -> AnyArray:
    """The nearest stored values of a dtype that are not declared missing.

    Values that are ``left`` missing become a declared one, if there is one, and else are unchanged.
    """
    if left is not None:
        valid, stays = valid_values(values, dtype, declared), values[left]
        is_marked = marked_values(stays, declared) | (not declared.values)
        valid[left] = np.where(is_marked, stays, declared.values[0] if declared.values else 0)
        return valid
    if declared == Declared() and values.dtype == dtype:
        return values
    real = declared.real(dtype)
    if real.kind not in "iu":
        least, most = np.clip((declared.low, declared.high), np.finfo(real).min, np.finfo(real).max).astype(real)
        result: AnyArray = np.clip(values.astype(real), least, most)
        for fill in map(real.type, declared.values):
            result[result == fill] = np.nextafter(fill, least if fill > least else most)
        return result
    low, high = int(np.iinfo(real).min), int(np.iinfo(real).max)
    low, high = max(low, math.ceil(max(declared.low, low))), min(high, math.floor(min(declared.high, high)))
    while low in declared.values:
        low += 1
    while high in declared.values:
        high -= 1
    if values.dtype.kind == "f":
        top = float(high) if int(float(high)) <= high else float(np.nextafter(float(high), 0))  # 2^63 - 1 rounds up
        result = np.rint(np.clip(values, float(low), top)).astype(real)
    else:
        result = np.clip(values.view(real), real.type(low), real.type(high))
    for fill in sorted(declared.values):
        result[result == int(fill)] += 1
    return result.view(dtype)


EDITORS = {
    "frames": "images.edit_frames",
    "hdf5": "arrays.edit_array",
    "nifti": "volumes.edit_nifti",
    "npy": "arrays.edit_array",
    "picture": "images.edit_picture",
    "sound": "sound.edit_sound",
    "table": "tables.edit_table",
    "tiff": "volumes.edit_tiff",
    "video": "video.edit_video",
}
"""Module and function that read a file to be written back, by its format; ``frames`` is a folder."""
SHAPED = ("hdf5", "nifti", "npy", "tiff")
"""Formats of arrays, whose shape leaves open how many axes a signal has."""
JPEG_GROWTH = 3
"""Pixels by which missing samples of a JPEG grow by default: the codec spreads damage within its blocks."""


def read_original(
    file: SourceFile, missing: Missing, axes: int | None = None, grow: int | None = None, key: str | None = None
) -> EditableFile:
    """The signals of a file, or of a folder of frames, that can be written back, with its missing samples.

    ``axes``: number of axes of a signal, where the shape of an array leaves it open. ``grow``: pixels by which missing
    samples of pictures grow; ``None``: :data:`JPEG_GROWTH` for a JPEG, else 0. ``key``: name of an array of an HDF5 file.
    """
    form = "frames" if file.path.is_dir() else str(format_of(file.path))
    refuse(
        (form not in EDITORS, f"fill cannot write files as {file.given!r}; it fills {', '.join(EDITORS)}"),
        (
            axes is not None and form not in SHAPED,
            f"axes says how the shape of an array is read, and {file.given!r} is none: leave it out",
        ),
        (key and form != "hdf5", f"key chooses an array of an HDF5 file, and {file.given!r} is none: leave it out"),
    )
    module, _, name = EDITORS[form].partition(".")
    edit: Callable[..., EditableFile] = getattr(importlib.import_module(f".{module}", __package__), name)
    shaped = {"axes": axes} if form in SHAPED else {}
    found = replace(edit(file, missing, **shaped, **({} if key is None else {"key": key})), path=file.path)
    for name, signal, marked in zip(found.names, found.values, found.missing, strict=True):
        note_repeated(f"{name!r} in {file.given!r}" if len(found.names) > 1 else repr(file.given), [signal[~marked]])
    masks = missing.in_grid(found.values.shape[1:-1], len(found.values), found.orientation, found.xyz)
    if masks:  # beside what the reader marked
        np.bitwise_or(found.missing, np.stack(masks)[..., None], out=found.missing)
        if found.values.dtype.kind == "f":  # samples that are not filled stay missing
            found = replace(found, values=np.where(np.stack(masks)[..., None], np.nan, found.values))
    pixels = (JPEG_GROWTH if found.jpeg else 0) if grow is None else grow
    if not pixels or not found.missing.any():
        return found
    if found.media not in ("image", "video"):
        raise InputError(f"missing samples of pictures and frames grow, and {file.given!r} is neither: leave out grow")
    return replace(found, missing=grown_mask(found.missing, pixels), grown=pixels)


def grown_mask(mask: Mask, pixels: int) -> Mask:
    """Missing samples ``(..., H, W, C)`` and all within a distance in pixels of the same picture."""
    from scipy.ndimage import binary_dilation

    steps = np.arange(-pixels, pixels + 1)
    disc = np.hypot(steps[:, None], steps) <= pixels
    grown: Mask = binary_dilation(mask, disc.reshape(*[1] * (mask.ndim - 3), *disc.shape, 1))
    return grown

"""The signals of a file that can be written back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pe_lightning.signals import Axis
from pe_lightning.signals.raw import AnyArray, Mask, Media
from pe_lightning.signals.sources.declared import Declared


@dataclass(frozen=True)
class EditableFile:
    """The signals of a file, with the values that it stores, and a writer of copies with other values.

    Args:
        names: One name per signal.
        values: ``(S, N_1, ..., N_D, C)`` in the dtype of the file.
        missing: Where a value is missing, of the same shape.
        suffixes: Suffixes of the files that :attr:`write` writes, the first by default.
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
    suffixes: tuple[str, ...]
    write: Callable[..., None]
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
        least, most = np.clip((declared.low, declared.high), np.finfo(real).min, np.finfo(real).max).tolist()
        result: AnyArray = np.clip(values.astype(real), least, most)
        for fill in map(real.type, declared.values):
            result[result == fill] = np.nextafter(fill, real.type(least if fill > least else most))
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

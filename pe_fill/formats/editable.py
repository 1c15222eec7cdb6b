"""The signals of a file that can be written back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
        write: ``write(path, values)`` writes a copy of the file with other values of the same shape, or of more samples
            per axis where ``resizes``; with ``std=`` where ``holds_std``. Where ``located``, ``points=True``: the values are
            more samples at points, of which the first keeps its place; ``deviations=True``: the values are float32 standard
            deviations. The suffix of the path chooses among the formats.
        media: Medium for pictures beside the result.
        resizes: Whether ``write`` takes values of another number of samples.
        axes: The axes in the user's units, if the file has coordinates.
        holds_std: Whether the file has a place for standard deviations of the filled values.
        located: Whether the file has coordinates of its pixels.
        points: Whether the file declares that its samples are values at points.
        jpeg: Whether it is a JPEG, or frames of which one is.
        orientation: EXIF orientation of a picture, which is applied to ``values``.
        xyz: Whether the axes are x, y, z, as in a NIfTI file.
        grown: Pixels by which the missing samples that a mask marks were grown.
        path: The file, which is never replaced.
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
    path: Path | None = None


def marked_values(values: AnyArray, declared: Declared) -> Mask:
    """Values that are not finite, or declared missing."""
    return (~np.isfinite(values) if values.dtype.kind == "f" else False) | declared.marks(values)

"""Files read to be written back: the editor of their format, their missing samples and what a mask adds."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pe_fill.formats.editable import EditableFile
from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.raw import Mask
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources.missing import Missing
from pe_lightning.signals.sources.paths import SourceFile, format_of

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

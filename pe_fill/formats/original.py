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
from pe_lightning.signals.sources.masks import missing_masks
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
JPEG_GROWTH = 3
"""Pixels by which missing samples of a JPEG grow by default: the codec spreads damage within its blocks."""


def read_original(
    file: SourceFile, missing: Missing, axes: int | None = None, grow: int | None = None, key: str | None = None
) -> EditableFile:
    """The signals of a file that can be written back, with its missing values.

    Args:
        file: The file, or a folder of frames.
        missing: What marks them.
        axes: Number of axes of a signal, where the shape of an array does not say it.
        grow: Pixels by which missing samples of pictures and frames grow; ``None``: :data:`JPEG_GROWTH` of a JPEG, else 0.
        key: Name of the array of an HDF5 file that has several.
    """
    form = "frames" if file.path.is_dir() else str(format_of(file.path))
    refuse(
        (form not in EDITORS, f"fill cannot write files as {file.given!r}; it fills {', '.join(EDITORS)}"),
        (key and form != "hdf5", f"key chooses an array of an HDF5 file, and {file.given!r} is none: leave it out"),
    )
    module, _, name = EDITORS[form].partition(".")
    edit: Callable[..., EditableFile] = getattr(importlib.import_module(f".{module}", __package__), name)
    found = replace(edit(file, missing, axes, **({} if key is None else {"key": key})), path=file.path)
    for name, signal, marked in zip(found.names, found.values, found.missing, strict=True):
        note_repeated(f"{name!r} in {file.given!r}" if len(found.names) > 1 else repr(file.given), [signal[~marked]])
    if missing.kind in ("mask", "frames"):  # beside what the reader marked
        masks = missing_masks(missing, found.values.shape[1:-1], len(found.values), found.orientation, found.xyz)
        for signal, marked in enumerate(found.missing):
            marked |= masks[signal if len(masks) > 1 else 0][..., None]
    pixels = (JPEG_GROWTH if found.jpeg else 0) if grow is None else grow
    if not pixels or not found.missing.any():
        return found
    if found.media not in ("image", "video"):
        raise InputError(f"missing samples of pictures and frames grow, and {file.given!r} is neither: leave out grow")
    return replace(found, missing=grown_mask(found.missing, pixels), grown=pixels)


def grown_mask(mask: Mask, pixels: int) -> Mask:
    """Missing samples ``(..., H, W, C)`` and all samples within a distance in the plane of their picture."""
    from scipy.ndimage import binary_dilation

    steps = np.arange(-pixels, pixels + 1)
    disc = np.hypot(steps[:, None], steps) <= pixels
    grown: Mask = binary_dilation(mask, disc.reshape(*[1] * (mask.ndim - 3), *disc.shape, 1))
    return grown

"""The kind of signals in files, and the source or the editor that reads it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from pe_lightning.errors import InputError, refuse
from pe_lightning.signals.axes import Kind, describe_layouts, plausible_layouts
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, Format, check_readable, suffixes_of, user_path
from pe_lightning.signals.raw import EditableFile
from pe_lightning.signals.repeated import note_repeated
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.missing import Missing, grown_mask
from pe_lightning.signals.sources.paths import (
    SCHEME,
    Paths,
    SourceFile,
    as_list,
    expand,
    format_of,
    image_samples,
    video_samples,
    visible_files,
)
from pe_lightning.signals.sources.volumes import is_stack

EDITORS = {
    "frames": "images.edit_frames",
    "hdf5": "arrays.edit_array",
    "nifti": "volumes.edit_nifti",
    "npy": "arrays.edit_array",
    "picture": "images.edit_picture",
    "sound": "sound.edit_sound",
    "table": "tables.edit_table",
    "tiff": "volumes.edit_tiff",
    "video": "video_files.edit_video",
}
"""The function that reads a file to be written back, by its format; ``frames`` is a folder."""
JPEG_GROWTH = 3
"""Pixels by which missing samples of a JPEG grow by default: the codec spreads damage within its blocks."""


class UnclearKind(InputError):
    """The files may hold several kinds of signals, or none that is known; callers add how to specify the kind."""


def kind_of(*paths: str, key: str | None = None) -> Kind:
    """The registered source that reads files, folders or samples.

    The kind is found by the suffix, for TIFF by the number of pages, and for arrays (of which ``key`` chooses one of
    several) by the shape, with a notice. In a folder, arrays count only without pictures, videos and sound, and tables only
    without arrays, too.

    Raises:
        UnclearKind: If a path is of unknown kind, an array has several plausible layouts, or the kinds differ.
        InputError: If a path does not exist, or an array or a TIFF cannot be read.
    """
    kinds: dict[Kind, str] = {}
    for path in paths:
        kinds |= dict.fromkeys(_kinds_in(path, key), path)
    if len(kinds) > 1:
        listed = " and ".join(f"{kind} ({path!r})" for kind, path in sorted(kinds.items()))
        raise UnclearKind(f"signals that are fitted together are of one kind, these are {listed}; give files of one kind")
    return next(iter(kinds))


def _kinds_in(path: str, key: str | None) -> set[Kind]:
    if path.startswith(SCHEME):
        return {"video" if path.removeprefix(SCHEME) in video_samples() else "images"}
    given = user_path(path)
    if given.is_dir():
        check_readable(path)
    files = visible_files(given) if given.is_dir() else [given]
    formats = {file: format_of(file, by_content=False) for file in files}
    kinds: dict[Format | None, Kind] = {**dict.fromkeys(("video", "nifti"), "video"), "sound": "rows", "picture": "images"}
    media = {kinds[format] for format in formats.values() if format in kinds}
    for file in (file for file, format in formats.items() if format == "tiff"):
        media.add("video" if file.is_file() and is_stack(SourceFile(file, str(file))) else "images")
    if media:
        return media
    if arrays := [file for file in files if formats[file] in ARRAYS]:
        return {_kind_of_array(expand([str(arrays[0])], ARRAYS, "array")[0], key)}
    if "table" in formats.values():
        return {"rows"}
    check_readable(path, image_samples())
    raise UnclearKind(
        f"{path!r} {'holds no file' if given.is_dir() else 'is no file'} of a known kind; the kinds are "
        f"{', '.join(suffixes_of({*PICTURES, *ARRAYS, 'sound', 'table', 'video', 'nifti'}))}"
    )


def _kind_of_array(file: SourceFile, key: str | None) -> Kind:
    array = find_array(file, key)
    layouts = plausible_layouts(array.shape)
    if len(layouts) != 1:
        raise UnclearKind(describe_layouts(array.label, array.shape))
    rank_zero_info(
        f"{array.label} of shape {array.shape} is read as {layouts[0]}; for another reading: --config row/closed_form, "
        "image/closed_form or volume/closed_form"
    )
    return layouts[0].kind


def source_of(signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any) -> Source:
    """The source for the kind of the signals.

    Args:
        signals: Files, folders or ``samples://NAME``, of the kind that ``kind_of`` finds; or an array or a picture,
            for :class:`~pe_lightning.signals.sources.tensor.TensorSource`.
        **arguments: Arguments of that source.
    """
    values = pixels_of(signals) if isinstance(signals, Image.Image) else signals
    if isinstance(values, (Tensor, np.ndarray)):
        return sources.create("tensor", values=values, **arguments)
    paths = as_list(values)
    source = sources.get(clear_kind(paths, arguments.get("key")))
    return source(paths, **sources.arguments(source, arguments))  # type: ignore[call-arg]


def clear_kind(paths: Sequence[str], key: str | None = None) -> Kind:
    """The kind of files; where it is not clear, the error names the DataModules."""
    try:
        return kind_of(*paths, key=key)
    except UnclearKind as error:
        raise InputError(f"{error}; or use one of ImageDataModule, RowDataModule, VideoDataModule") from error


def pixels_of(picture: Image.Image) -> np.ndarray[Any, Any]:
    """The pixels of a picture of Pillow, ``(1, H, W, C)``, upright."""
    upright = ImageOps.exif_transpose(picture)
    simple = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(upright.mode)
    pixels = np.asarray(upright if simple is None else upright.convert(simple))
    return pixels[None] if pixels.ndim == 3 else pixels[None, ..., None]


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
    edit: Callable[..., EditableFile] = getattr(importlib.import_module(f"pe_lightning.signals.sources.{module}"), name)
    found = replace(edit(file, missing, axes, **({} if key is None else {"key": key})), path=file.path)
    for name, signal, marked in zip(found.names, found.values, found.missing, strict=True):
        note_repeated(f"{name!r} in {file.given!r}" if len(found.names) > 1 else repr(file.given), [signal[~marked]])
    if missing.kind in ("mask", "frames"):  # beside what the reader marked
        masks = missing.marks(found.values.shape[1:-1], len(found.values), found.orientation, found.xyz)
        for signal, marked in enumerate(found.missing):
            marked |= masks[signal if len(masks) > 1 else 0][..., None]
    pixels = (JPEG_GROWTH if found.jpeg else 0) if grow is None else grow
    if not pixels or not found.missing.any():
        return found
    if found.media not in ("image", "video"):
        raise InputError(f"missing samples of pictures and frames grow, and {file.given!r} is neither: leave out grow")
    return replace(found, missing=grown_mask(found.missing, pixels), grown=pixels)

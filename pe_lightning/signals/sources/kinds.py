"""The kind of signals in files, and the source that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import Kind, describe_layouts, plausible_layouts
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, PICTURES, Format, check_readable, suffixes_of, user_path
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.base import Source, sources
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

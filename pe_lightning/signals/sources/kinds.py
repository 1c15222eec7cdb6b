"""The kind of signals in files, and the source that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.axes import Kind, describe_layouts, plausible_layouts
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.signals.files import ARRAYS, check_readable, suffixes_of, user_path
from pe_lightning.signals.sources.arrays import find_array
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.paths import (
    SCHEME,
    Paths,
    SourceFile,
    as_list,
    format_of,
    image_samples,
    video_samples,
)

BY_SHAPE = tuple(get_args(Kind))
"""The sources that read arrays, by their shape."""


class UnclearKind(InputError):
    """The files may hold several kinds of signals, or no known one; callers add how to specify the kind."""


def kind_of(*paths: str, **arguments: Any) -> str:
    """The registered name of the source that reads files, folders or samples.

    An argument that only one source has, such as ``coordinates``, chooses that source; else each source is asked which files
    it claims, sources of other packages last. The shape of an array decides, with a notice. In a folder, arrays count only
    without files of other kinds, and tables only without arrays too.

    Args:
        *paths: Files, folders or ``samples://NAME``.
        **arguments: Arguments of the source by name.

    Raises:
        UnclearKind: If a path is of unknown kind, an array has several plausible layouts, or the kinds differ.
        InputError: If a path does not exist, or an array or a TIFF cannot be read.
    """
    if arguments.keys() - {name for kind in BY_SHAPE for name in sources.parameters(sources.get(kind))}:
        for kind in sources:
            if sources.get(kind).chosen_by & arguments.keys():
                return kind
    kinds: dict[str, str] = {}
    for path in paths:
        kinds |= dict.fromkeys(_kinds_in(path, arguments.get("key")), path)
    if len(kinds) > 1:
        listed = " and ".join(f"{kind} ({path!r})" for kind, path in sorted(kinds.items()))
        raise UnclearKind(f"signals that are fitted together are of one kind, these are {listed}; give files of one kind")
    return next(iter(kinds))


def _claiming(files: Sequence[Path]) -> set[str]:
    """The sources that claim some of the files; sources of other packages if no other does."""
    for names in (BY_SHAPE, sources):
        if found := {name for file in files for name in names if sources.get(name).claims(file)}:
            return found
    return set()


def _kinds_in(path: str, key: str | None) -> set[str]:
    if path.startswith(SCHEME):
        return {"video" if path.removeprefix(SCHEME) in video_samples() else "images"}
    given = user_path(path)
    if given.is_dir():
        check_readable(path)
    files = SourceFile(given, path).content()
    formats = {file: format_of(file, by_content=False) for file in files}
    if found := _claiming([file for file in files if formats[file] not in {*ARRAYS, "table"}]):
        return found
    if arrays := [file for file in files if formats[file] in ARRAYS]:
        check_readable(str(arrays[0]), image_samples())
        return {_kind_of_array(SourceFile(arrays[0], str(arrays[0])), key)}
    for others in ([file for file in files if formats[file] == "table"], [given]):
        if found := _claiming(others):
            return found
    check_readable(path, image_samples())
    known = {*suffixes_of(ARRAYS), *(suffix for kind in sources for suffix in sources.get(kind).suffixes)}
    raise UnclearKind(
        f"{path!r} {'holds no file' if given.is_dir() else 'is no file'} of a known kind; the kinds are "
        f"{', '.join(sorted(known))}"
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
    """The source of files, folders or ``samples://NAME`` by their kind, or of an array or a picture in memory.

    Args:
        signals: Files, or values for :class:`~pe_lightning.signals.sources.tensor.TensorSource`.
        **arguments: Arguments of the source.
    """
    if (values := values_of(signals)) is not None:
        return sources.create("tensor", values=values, **arguments)
    paths = as_list(signals)  # type: ignore[arg-type]
    source = sources.get(clear_kind(paths, **arguments))
    return source(paths, **sources.arguments(source, arguments))  # type: ignore[call-arg]


def clear_kind(paths: Sequence[str], **arguments: Any) -> str:
    """The kind of files; where it is not clear, the error names the DataModules."""
    try:
        return kind_of(*paths, **arguments)
    except UnclearKind as error:
        raise InputError(f"{error}; or use one of ImageDataModule, RowDataModule, VideoDataModule") from error


def values_of(signals: object) -> Tensor | np.ndarray[Any, Any] | None:
    """The values of a tensor, an array, a list of numbers or arrays, or a picture of Pillow, upright; else ``None``."""
    if isinstance(signals, Image.Image):
        upright = ImageOps.exif_transpose(signals)
        simple = {"1": "L", "P": "RGB", "CMYK": "RGB"}.get(upright.mode)
        pixels = np.asarray(upright if simple is None else upright.convert(simple))
        return pixels[None] if pixels.ndim == 3 else pixels[None, ..., None]
    if not isinstance(signals, (list, tuple)) or not signals or any(isinstance(one, (str, PathLike)) for one in signals):
        return signals if isinstance(signals, (Tensor, np.ndarray)) else None
    try:
        return np.stack([np.asarray(one) for one in signals])
    except ValueError as error:
        raise InputError(f"signals that are given as a list need arrays of one shape: {error}") from error

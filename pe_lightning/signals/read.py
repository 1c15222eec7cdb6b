"""Signals read from files, arrays or pictures, split into trained and held-out samples."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.signals.options import Storage
from pe_lightning.signals.sampling import FoldSampling
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.signals.sources.kinds import Kind, UnclearKind, kind_of
from pe_lightning.signals.sources.paths import Paths, as_list
from pe_lightning.signals.sources.rows import RowSource
from pe_lightning.signals.sources.tensor import TensorSource
from pe_lightning.signals.sources.video import VideoSource
from pe_lightning.signals.split_signals import Signals, Splitting

SOURCES_BY_KIND: dict[Kind, type[Source]] = {"images": ImageSource, "rows": RowSource, "video": VideoSource}
"""The source of each kind of files."""


def source_of(signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any) -> Source:
    """The source for the kind of the signals.

    Args:
        signals: Files, folders or ``samples://NAME``, of the kind that ``kind_of`` finds; or an array or a picture,
            for :class:`~pe_lightning.signals.sources.tensor.TensorSource`.
        **arguments: Arguments of that source.
    """
    values = pixels_of(signals) if isinstance(signals, Image.Image) else signals
    if isinstance(values, (Tensor, np.ndarray)):
        return TensorSource(values, **sources.arguments(TensorSource, arguments))
    paths = as_list(values)
    source = SOURCES_BY_KIND[clear_kind(paths, arguments.get("key"))]
    return source(paths, **sources.arguments(source, arguments))  # type: ignore[call-arg]


def clear_kind(paths: Sequence[str], key: str | None = None) -> Kind:
    """The kind of files; where it is not clear, the error names the DataModules.

    Args:
        paths: Files, folders or ``samples://NAME``.
        key: Name of the array in a file of several.
    """
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


def read_signals(
    signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any
) -> tuple[Signals, FoldSampling | None]:
    """Reads and splits signals.

    Args:
        signals: As of :func:`source_of`.
        **arguments: Arguments of :meth:`Splitting.of <pe_lightning.signals.split_signals.Splitting.of>` and of the source.

    Returns:
        The signals, and the folds by which they are scored, if there are some.
    """
    splitting = {name: arguments.pop(name) for name in inspect.signature(Splitting.of).parameters if name in arguments}
    if not isinstance(signals, (str, PathLike, Sequence)):
        splitting.setdefault("storage", Storage(in_memory=True))
    source, options = source_of(signals, **arguments), Splitting.of(**splitting)
    return Signals.read(source, options), options.folds

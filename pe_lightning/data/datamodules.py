"""The DataModules by name: :class:`SignalDataModule` with the arguments of one source in front.

The arguments are documented where they are used, in the source and in :class:`SignalDataModule`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.options import Batching, Storage
from pe_lightning.data.registry import datamodules
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.sources.arrays import Channels
from pe_lightning.data.sources.base import Source
from pe_lightning.data.sources.checks import MAX_PIXELS
from pe_lightning.data.sources.clips import Color
from pe_lightning.data.sources.images import Alpha, ImageSource
from pe_lightning.data.sources.kinds import Kind, UnclearKind, kind_of
from pe_lightning.data.sources.paths import Paths, as_list
from pe_lightning.data.sources.rows import RowSource
from pe_lightning.data.sources.tensor import TensorSource
from pe_lightning.data.sources.video import Preset, VideoSource
from pe_lightning.data.splits import Protocol
from pe_lightning.errors import InputError

__all__ = ["ImageDataModule", "RowDataModule", "TensorDataModule", "VideoDataModule", "make_datamodule"]

D = TypeVar("D", bound=type[SignalDataModule])


def _with_arguments_of(source: type[Source]) -> Callable[[D], D]:
    """Adds the descriptions of the arguments to the docstring of a DataModule, for ``--help``."""

    def complete(cls: D) -> D:
        described = [inspect.getdoc(of) or "" for of in (source, SignalDataModule)]
        front, common = (text.partition("Args:\n")[2].partition("\n\n")[0] for text in described)
        common = common[common.index("    sampling: ") :]
        cls.__doc__ = f"{inspect.getdoc(cls)}\n\nArgs:\n{front}\n{common}\n"
        return cls

    return complete


@datamodules.register("ImageDataModule")
@_with_arguments_of(ImageSource)
class ImageDataModule(SignalDataModule):
    """Images as signals of two axes: any number of files, 8- or 16-bit, fitted together.

    Example:
        >>> data = ImageDataModule("samples://astronaut", center_crop=256)
        >>> tuple(data.values.shape)
        (1, 256, 256, 3)
    """

    def __init__(
        self,
        paths: str | list[str],
        center_crop: int | list[int] | None = None,
        resize: int | list[int] | None = None,
        color: Color = "auto",
        alpha: Alpha = "composite",
        max_pixels: int | None = MAX_PIXELS,
        key: str | None = None,
        value_range: list[float] | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
    ) -> None:
        source = ImageSource(paths, center_crop, resize, color, alpha, max_pixels, key, value_range)
        super().__init__(source, sampling, protocol, batching, storage)


@datamodules.register("RowDataModule")
@_with_arguments_of(RowSource)
class RowDataModule(SignalDataModule):
    """Signals of one axis, fitted together: rows and columns of images, arrays, columns of tables, sound.

    Example:
        >>> data = RowDataModule("samples://astronaut", rows=[100, 200])
        >>> tuple(data.values.shape)
        (2, 512, 3)
    """

    def __init__(
        self,
        paths: str | list[str],
        rows: list[int] | None = None,
        columns: list[int] | None = None,
        num_rows: int | None = None,
        num_columns: int | None = None,
        seed: int = 0,
        center_crop: int | list[int] | None = None,
        resize: int | list[int] | None = None,
        color: Color = "auto",
        max_pixels: int | None = MAX_PIXELS,
        select: list[str | int] | None = None,
        key: str | None = None,
        channels: Channels = "auto",
        value_range: list[float] | None = None,
        seconds: list[float] | None = None,
        length: int | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
    ) -> None:
        source = RowSource(
            paths, rows, columns, num_rows, num_columns, seed, center_crop, resize, color, max_pixels, select, key, channels,
            value_range, seconds, length,
        )  # fmt: skip
        super().__init__(source, sampling, protocol, batching, storage)


@datamodules.register("VideoDataModule")
@_with_arguments_of(VideoSource)
class VideoDataModule(SignalDataModule):
    """Videos ``(T, H, W, C)`` and volumes ``(Z, Y, X, C)`` as signals of three axes, fitted together.

    What is set happens in the order ``fps``, ``frames``, ``resize``, ``center_crop``.

    Example:
        >>> data = VideoDataModule("samples://bigbuckbunny", frames=[0, 8], resize=[36, 64])
        >>> tuple(data.values.shape)
        (1, 8, 36, 64, 3)
    """

    def __init__(
        self,
        paths: str | list[str],
        frames: list[int | None] | None = None,
        center_crop: int | list[int] | None = None,
        resize: int | list[int] | None = None,
        fps: float | None = None,
        color: Color = "auto",
        preset: Preset | None = None,
        key: str | None = None,
        value_range: list[float] | None = None,
        max_pixels: int | None = MAX_PIXELS,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
    ) -> None:
        source = VideoSource(paths, frames, center_crop, resize, fps, color, preset, key, value_range, max_pixels)
        super().__init__(source, sampling, protocol, batching, storage)


@datamodules.register("TensorDataModule")
@_with_arguments_of(TensorSource)
class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Example:
        >>> import torch
        >>> data = TensorDataModule(torch.rand(1, 64, 64, 3), sampling="random")
        >>> tuple(data.train_batch().values.shape)
        (1, 1024, 3)
    """

    def __init__(
        self,
        values: Tensor | np.ndarray[Any, Any],
        names: list[str] | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(in_memory=True),
    ) -> None:
        super().__init__(TensorSource(values, names), sampling, protocol, batching, storage)


MODULES_BY_KIND: dict[Kind, Callable[..., SignalDataModule]] = {
    "images": ImageDataModule,
    "rows": RowDataModule,
    "video": VideoDataModule,
}


def make_datamodule(signals: Paths | Tensor | np.ndarray[Any, Any], **arguments: Any) -> SignalDataModule:
    """The DataModule that suits some signals.

    Args:
        signals: Files, folders or ``samples://NAME``, whose kind :func:`~pe_lightning.data.sources.kinds.kind_of` finds;
            or an array, for :class:`TensorDataModule`.
        **arguments: Arguments of that DataModule.

    Raises:
        InputError: If the kind is not clear.

    Example:
        >>> make_datamodule("samples://astronaut", center_crop=64).info.grid
        (64, 64)
    """
    if isinstance(signals, (Tensor, np.ndarray)):
        return TensorDataModule(signals, **arguments)
    paths = as_list(signals)
    try:
        kind = kind_of(*paths, key=arguments.get("key"))
    except UnclearKind as error:
        raise InputError(f"{error}; or use one of ImageDataModule, RowDataModule, VideoDataModule") from error
    return MODULES_BY_KIND[kind](paths, **arguments)

"""The DataModules of images, rows, videos and volumes, and tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jsonargparse.typing import register_type
from PIL import Image
from torch import Tensor

from pe_lightning.registry import Described
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.loaders import Batching
from pe_lightning.signals.sampling import FoldsLike, Sampling
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.signals.sources.kinds import clear_kind, values_of
from pe_lightning.signals.sources.missing import MissingLike
from pe_lightning.signals.sources.paths import Paths, as_list
from pe_lightning.signals.sources.rows import RowSource
from pe_lightning.signals.sources.tensor import Array, TensorSource
from pe_lightning.signals.sources.video import VideoSource
from pe_lightning.signals.splits import EvalMask, ValidationShare
from pe_lightning.training.datamodule import COMMON_ARGUMENTS, SignalDataModule, datamodules


class FileDataModule(SignalDataModule, ABC):
    """Base of the DataModules of files: the arguments of :class:`SignalDataModule` and of a source.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        **source: The other arguments of the source, by which jsonargparse extends the command line.
    """

    def __init__(
        self,
        paths: str | list[str],
        *,
        sampling: Described[Sampling] = "grid",
        eval_mask: EvalMask = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
        folds: FoldsLike | None = None,
        validation: ValidationShare | None = None,
        samples: SampleKind = "points",
        added_noise: float = 0.0,
        **source: Any,
    ) -> None:
        files = self.make_source(paths, **source)
        super().__init__(files, sampling, eval_mask, batching, storage, folds, validation, samples, added_noise)

    @staticmethod
    @abstractmethod
    def make_source(paths: str | list[str], **source: Any) -> Source:
        """The source of the files."""


@datamodules.register("ImageDataModule")
class ImageDataModule(FileDataModule):
    """Images as signals of two axes: any number of files, 8- or 16-bit, fitted together.

    Args:
        **source: The other arguments of :class:`~pe_lightning.signals.sources.images.ImageSource`.

    Example:
        >>> data = ImageDataModule("samples://astronaut", center_crop=256)
        >>> tuple(data.values.shape)
        (1, 256, 256, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> ImageSource:
        return ImageSource(paths, **source)


@datamodules.register("RowDataModule")
class RowDataModule(FileDataModule):
    """Signals of one axis, fitted together: rows and columns of images, arrays, columns of tables, sound.

    Args:
        **source: The other arguments of :class:`~pe_lightning.signals.sources.rows.RowSource`.

    Example:
        >>> data = RowDataModule("samples://astronaut", rows=[100, 200])
        >>> tuple(data.values.shape)
        (2, 512, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> RowSource:
        return RowSource(paths, **source)


@datamodules.register("VideoDataModule")
class VideoDataModule(FileDataModule):
    """Videos ``(T, H, W, C)`` and volumes ``(Z, Y, X, C)`` as signals of three axes, fitted together.

    The arguments ``fps``, ``frames``, ``resize``, ``center_crop`` apply in this order.

    Args:
        paths: Videos, TIFF stacks, NIfTI volumes, array files, folders of them, frame folders, or ``samples://NAME``.
        **source: The other arguments of :class:`~pe_lightning.signals.sources.video.VideoSource`.

    Example:
        >>> data = VideoDataModule("samples://bigbuckbunny", frames=[0, 8], resize=[36, 64])
        >>> tuple(data.values.shape)
        (1, 8, 36, 64, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> VideoSource:
        return VideoSource(paths, **source)


@datamodules.register("TensorDataModule")
class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, or one signal; see :class:`~pe_lightning.signals.sources.tensor.TensorSource`.
        names: One name per signal; ``signal0``, ``signal1``, ... by default.
        sampling: As of :class:`SignalDataModule`; or an array of the shape of the grid that is not zero at trained samples.
        missing: Array that is not zero at missing samples, or a number at them; NaN is missing anyway.
        value_range: ``(low, high)``, the values that become 0 and 1, of arrays beyond [0, 1].
        **options: The other arguments of :class:`SignalDataModule`.

    Example:
        >>> import torch
        >>> data = TensorDataModule(torch.rand(1, 64, 64, 3), sampling="random")
        >>> tuple(data.train_batch().values.shape)
        (1, 1024, 3)
    """

    def __init__(
        self,
        values: Tensor | Array,
        names: list[str] | None = None,
        sampling: Described[Sampling] | Tensor | Array = "grid",
        missing: MissingLike | Tensor | Array = "nan",
        value_range: list[float] | None = None,
        **options: Any,
    ) -> None:
        source = TensorSource(values, names, missing=missing, value_range=value_range)
        super().__init__(source, sampling, **options)  # type: ignore[arg-type]  # configurations have no arrays


def _refuse_array(value: object) -> Any:
    raise ValueError("arrays and tensors do not come from configurations: name files, or use TensorDataModule in Python")


for _array in (Tensor, np.ndarray):  # the parser would instantiate any class that is named in place of one
    register_type(_array, deserializer=_refuse_array, fail_already_registered=False)


def make_datamodule(signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any) -> SignalDataModule:
    """Makes the DataModule for the kind of the signals, with its arguments.

    Args:
        signals: Files, folders or ``samples://NAME``, whose kind :func:`~pe_lightning.signals.sources.kinds.kind_of` finds;
            or an array or a picture of Pillow, for :class:`TensorDataModule`.
        **arguments: Arguments of that DataModule.

    Example:
        >>> make_datamodule("samples://astronaut", center_crop=64).info.grid
        (64, 64)
    """
    if (values := values_of(signals)) is not None:
        return TensorDataModule(values, **arguments)
    paths = as_list(signals)  # type: ignore[arg-type]
    options = {name: value for name, value in arguments.items() if name not in COMMON_ARGUMENTS}
    kind = clear_kind(paths, **options)
    module: Callable[..., SignalDataModule] = datamodules.get(sources.get(kind).datamodule)  # type: ignore[assignment]
    if module is not SignalDataModule:
        return module(paths, **arguments)
    common = {name: value for name, value in arguments.items() if name in COMMON_ARGUMENTS}
    return SignalDataModule(sources.create(kind, paths=paths, **options), **common)

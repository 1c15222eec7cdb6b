"""The DataModules by name: :class:`SignalDataModule` with the arguments of one source in front."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.options import Batching, Storage
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.sources.arrays import Channels
from pe_lightning.data.sources.checks import MAX_PIXELS
from pe_lightning.data.sources.images import Alpha, Color, ImageSource
from pe_lightning.data.sources.rows import RowSource
from pe_lightning.data.sources.tensor import TensorSource
from pe_lightning.data.sources.video import Preset, VideoSource
from pe_lightning.data.splits import Protocol

__all__ = ["ImageDataModule", "RowDataModule", "TensorDataModule", "VideoDataModule"]


class ImageDataModule(SignalDataModule):
    """Images as signals of two axes: any number of files, 8- or 16-bit, fitted together.

    Args:
        paths: Images, array files, folders of them (subfolders are not searched) or ``samples://NAME``.
        center_crop: Keep the central part: n for n x n, or [height, width].
        resize: Resample to n x n, or to [height, width], after the crop; it does not keep the aspect ratio.
        color: ``auto`` keeps one channel if every image is grey and takes RGB otherwise; ``rgb`` or ``grey`` forces it.
        alpha: ``composite`` lays transparent images over white; ``keep`` fits the opacity as a last channel.
        max_pixels: Refuse images whose header claims more; the default is Pillow's limit, null is none.
        key: Of array files: the dataset of an ``.h5`` or the array of an ``.npz``, where there are several.
        value_range: Of array files: ``[low, high]`` that become 0 and 1; by default the full range of an integer dtype,
            and the range of the data for floating point outside [0, 1].
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd``, ``all``, or ``none``.
        batching: What one training step sees.
        storage: Where values are held.

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


class RowDataModule(SignalDataModule):
    """Signals of one axis, fitted together: rows and columns of images, arrays, columns of tables, sound.

    Args:
        paths: One or more files, folders or ``samples://NAME``, all of one kind: images, arrays (``.npy``, ``.npz``,
            HDF5), sound (``.wav``) or tables (``.csv``, ``.tsv``, ``.txt``).
        rows: Images: positions of the rows to take, from 0 at the top.
        columns: Images: positions of the columns to take, from 0 at the left.
        num_rows: Images: how many rows to choose at random, each image its own. If none of these four is given, 16 rows
            and, if all images are square, 16 columns (the papers' protocol).
        num_columns: Images: how many columns to choose at random.
        seed: Images: of the random choice, a non-negative integer.
        center_crop: Images: the central part to keep first, n or [height, width].
        resize: Images: the size to resample to first, after the crop, n or [height, width].
        color: Images: ``auto``, ``rgb`` or ``grey``.
        max_pixels: Images: refuse a file whose header claims more; null for no limit.
        select: Tables: names or positions (from 0) of the columns to take; by default all that hold numbers.
        key: Arrays: which one of an ``.npz`` or HDF5 file (``volumes/ct``); not needed where there is only one.
        channels: Arrays of 2 axes: ``last``: (samples, channels); ``none``: (signals, samples); ``auto``: channels if
            there are at most 4.
        value_range: Arrays and tables: [low, high], the numbers that become 0 and 1.
        seconds: Sound: [start, stop] of the part to keep.
        length: Keep only the first n samples of each signal.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd``, ``all``, or ``none``.
        batching: What one training step sees.
        storage: Where values are held.

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


class VideoDataModule(SignalDataModule):
    """Videos ``(T, H, W, C)`` and volumes ``(Z, Y, X, C)`` as signals of three axes, fitted together.

    What is set happens in the order ``fps``, ``frames``, ``resize``, ``center_crop``.

    Args:
        paths: Videos, TIFF stacks, NIfTI volumes, array files (``.npy``, ``.npz``, HDF5), folders of them, folders of
            frames (one signal each), or ``samples://bigbuckbunny``.
        frames: ``[start, stop]`` or ``[start, stop, step]`` along the first axis, as in a Python slice.
        center_crop: n or [height, width] of every frame, or [frames, height, width]: the central part to keep.
        resize: n or [height, width] to resample every frame to; it does not keep the aspect ratio.
        fps: Frames per second to resample videos to. For what has no clock (frame folders, volumes), its rate.
        color: ``auto``: one channel if all are grey, else RGB; ``rgb`` or ``grey`` forces it.
        preset: ``papers``: the central square of every frame at 256 x 256, of which the central cube of 128 x 128 x 128
            is kept (Zheng et al., ECCV 2022).
        key: Which array of an ``.npz`` or HDF5 file.
        value_range: [low, high] of volumes and arrays, the numbers that become 0 and 1; by default the full range of an
            8- or 16-bit integer, and the range of the data for floating point outside [0, 1].
        max_pixels: Refuse frames that claim more; null for no limit.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd``, ``all``, or ``none``.
        batching: What one training step sees.
        storage: Where values are held.

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


class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``: signals, samples along each axis, channels. Floating point in [0, 1], kept as
            float32; or uint8 or uint16, divided by 255 or 65535. It is copied.
        names: One name per signal, distinct and usable as file names; ``signal0``, ``signal1``, ... by default.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd``, ``all``, or ``none``.
        batching: What one training step sees.

    Raises:
        InputError: If the array has another layout or dtype, values that are not finite or outside [0, 1], or the
            names do not fit.

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
    ) -> None:
        super().__init__(TensorSource(values, names), sampling, protocol, batching, Storage(in_memory=True))

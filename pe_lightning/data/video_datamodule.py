"""Videos, frame folders and volumes as 3-D signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.checks import MAX_PIXELS
from pe_lightning.data.sources.images import Color
from pe_lightning.data.sources.video import Preset, VideoSource
from pe_lightning.data.splits import Protocol

__all__ = ["VideoDataModule"]


class VideoDataModule(SignalDataModule):
    """Videos ``(T, H, W, C)`` and volumes ``(Z, Y, X, C)`` as signals of three axes, fitted together.

    What is set happens in the order ``fps``, ``frames``, ``resize``, ``center_crop``. A clip whose frames are shown at
    uneven times is resampled to its mean rate, with a notice; a rotated clip is turned upright; sound is ignored.

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
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``.
        batch: What one step sees: ``full`` (all trained samples), ``points`` (``batch_size`` random ones) or ``blocks``
            (a part of the trained grid).
        batch_size: For ``points``, how many per signal; for ``blocks``, trained samples per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100 of full batches, else one pass.
        in_memory: Whether signals are loaded, or stay in their file; ``auto`` loads what fits in a quarter of the free
            memory.
        cache: ``auto`` keeps decoded signals for the next run, ``off`` does not.
        cache_dir: Where; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.

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
        batch: BatchKind = "full",
        batch_size: int | list[int] | None = None,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
        in_memory: bool | Literal["auto"] = "auto",
        cache: Literal["auto", "off"] = "auto",
        cache_dir: str | None = None,
    ) -> None:
        super().__init__(sampling, protocol, batch, batch_size, shuffle, steps_per_epoch, in_memory, cache, cache_dir)
        self.paths = paths
        self._source = VideoSource(paths, frames, center_crop, resize, fps, color, preset, key, value_range, max_pixels)

    def read(self) -> RawSignals:
        """Describes the signals, ``(S, T, H, W, C)``, and their names."""
        return self._source.read()

    def source_files(self) -> list[Path]:
        """The files; none where arrays are read in place."""
        return self._source.files()

    def describe_source(self) -> dict[str, Any]:
        """The arguments, as given."""
        return self._source.describe()

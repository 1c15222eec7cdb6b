"""Photographs, drawings and scans as 2-D signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.checks import MAX_PIXELS
from pe_lightning.data.sources.images import Alpha, Color, ImageSource
from pe_lightning.data.splits import Protocol

__all__ = ["ImageDataModule"]


class ImageDataModule(SignalDataModule):
    """Images as signals: any number of files, 8- or 16-bit, fitted together.

    Array files (``.npy``, ``.npz``, ``.h5``) are images too: ``(H, W)``, ``(H, W, C)`` or ``(S, H, W, C)``. Palettes and
    CMYK become RGB, the EXIF orientation is applied, integers are divided by the largest value of their
    bit depth. Images of different sizes need ``center_crop`` or ``resize``.

    Args:
        paths: One or more files, folders (their images sorted by name; subfolders are not searched) or
            ``samples://NAME``, the images that scikit-image ships.
        center_crop: Keep the central part: n for n x n, or [height, width].
        resize: Resample to n x n, or to [height, width], after the crop; it does not keep the aspect ratio.
        color: ``auto`` keeps one channel if every image is grey and takes RGB otherwise; ``rgb`` or ``grey`` forces it.
        alpha: ``composite`` lays transparent images over white; ``keep`` fits the opacity as a last channel.
        max_pixels: Refuse images whose header claims more; the default is Pillow's limit, null is none.
        key: Of array files: the dataset of an ``.h5`` or the array of an ``.npz``, where there are several.
        value_range: Of array files: ``[low, high]`` that become 0 and 1; by default the full range of an integer dtype,
            and the range of the data for floating point outside [0, 1].
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
        self._source = ImageSource(paths, center_crop, resize, color, alpha, max_pixels, key, value_range)

    def read(self) -> RawSignals:
        """Decodes the images, or opens the arrays: ``(S, H, W, C)`` and their names."""
        return self._source.read()

    def source_files(self) -> list[Path]:
        """The image files, or the compressed arrays; arrays that are read in place are not decoded."""
        return self._source.files()

    def describe_source(self) -> dict[str, Any]:
        """The arguments, as given."""
        return self._source.describe()

"""Photographs, drawings and scans as 2-D signals."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.arrays import ARRAY_SUFFIXES, direct, read_arrays
from pe_lightning.data.sources.decode import MAX_PIXELS, SUFFIXES, check_max_pixels
from pe_lightning.data.sources.depth import scaling_of
from pe_lightning.data.sources.images import Alpha, Color, as_size, check_choice, read_images
from pe_lightning.data.sources.sources import as_list, expand
from pe_lightning.data.splits import Protocol
from pe_lightning.errors import InputError

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
        as_size("center_crop", center_crop)
        as_size("resize", resize)
        check_choice("color", color, Color)
        check_choice("alpha", alpha, Alpha)
        check_max_pixels(max_pixels)
        self.paths = paths
        self.center_crop = center_crop
        self.resize = resize
        self.color = color
        self.alpha = alpha
        self.max_pixels = max_pixels
        self.key = key
        self.value_range = value_range

    def read(self) -> RawSignals:
        """Decodes the images, or opens the arrays: ``(S, H, W, C)`` and their names."""
        if self._are_arrays():
            if self.center_crop is not None or self.resize is not None:
                raise InputError("center_crop and resize are for image files; crop the array itself")
            return read_arrays(self.paths, 2, self.key, self.value_range)
        if self.key is not None or self.value_range is not None:
            raise InputError("key and value_range are for array files (.npy, .npz, .h5); leave them out for images")
        values, names = read_images(self.paths, self.center_crop, self.resize, self.color, self.alpha, self.max_pixels)
        return RawSignals.in_memory(values, names, scaling_of(self.source_files()), "image")

    def source_files(self) -> list[Path]:
        """The image files, or the compressed arrays; arrays that are read in place are not decoded."""
        if self._are_arrays():
            return [] if direct(self.paths) else [source.path for source in expand(self.paths, ARRAY_SUFFIXES, "array")]
        return [source.path for source in expand(self.paths, SUFFIXES)]

    def _are_arrays(self) -> bool:
        paths = [self.paths] if isinstance(self.paths, (str, PathLike)) else list(self.paths)
        suffixes = {Path(fspath(path)).suffix.lower() for path in paths if isinstance(path, (str, PathLike))}
        return bool(suffixes) and suffixes <= ARRAY_SUFFIXES

    def describe_source(self) -> dict[str, Any]:
        """The arguments, as given."""
        return {
            "paths": as_list(self.paths),
            "center_crop": self.center_crop,
            "resize": self.resize,
            "color": self.color,
            "alpha": self.alpha,
            "key": self.key,
            "value_range": self.value_range,
        }

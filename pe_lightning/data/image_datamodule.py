"""Photographs, drawings and scans as 2-D signals."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

import torch
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.images import Alpha, Color, as_size, check_choice, read_images
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.splits import Protocol

__all__ = ["ImageDataModule"]


class ImageDataModule(SignalDataModule):
    """Images as signals: any number of files, 8- or 16-bit, fitted together.

    Palettes and CMYK become RGB, the EXIF orientation is applied, integers are divided by the largest value of their
    bit depth. Images of different sizes need ``center_crop`` or ``resize``.

    Args:
        paths: One or more files, folders (their images sorted by name; subfolders are not searched) or
            ``samples://NAME``, the images that scikit-image ships.
        center_crop: Keep the central part: n for n x n, or [height, width].
        resize: Resample to n x n, or to [height, width], after the crop; it does not keep the aspect ratio.
        color: ``auto`` keeps one channel if every image is grey and takes RGB otherwise; ``rgb`` or ``grey`` forces it.
        alpha: ``composite`` lays transparent images over white; ``keep`` fits the opacity as a last channel.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th) or ``random`` (a ``fraction``).
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``.
        steps_per_epoch: Optimiser steps that make one epoch; each sees all trained samples.

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
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        steps_per_epoch: int = 100,
    ) -> None:
        super().__init__(sampling=sampling, protocol=protocol, steps_per_epoch=steps_per_epoch)
        as_size("center_crop", center_crop)
        as_size("resize", resize)
        check_choice("color", color, Color)
        check_choice("alpha", alpha, Alpha)
        self.paths = paths
        self.center_crop = center_crop
        self.resize = resize
        self.color = color
        self.alpha = alpha

    def load(self) -> tuple[Tensor, tuple[str, ...]]:
        """Reads the images: ``(S, H, W, C)`` and their names."""
        values, names = read_images(self.paths, self.center_crop, self.resize, self.color, self.alpha)
        return torch.from_numpy(values), names

    def describe_source(self) -> dict[str, Any]:
        """The arguments, as given."""
        paths = [self.paths] if isinstance(self.paths, (str, PathLike)) else self.paths
        return {
            "paths": [fspath(path) for path in paths],
            "center_crop": self.center_crop,
            "resize": self.resize,
            "color": self.color,
            "alpha": self.alpha,
        }

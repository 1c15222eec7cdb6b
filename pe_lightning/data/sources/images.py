"""Photographs, drawings and scans as 2-D signals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from lightning.pytorch.utilities import rank_zero_info

from pe_lightning.data.signals import AnyArray, RawSignals, Scaling
from pe_lightning.data.sources.arrays import in_place, read_arrays
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.data.sources.checks import (
    MAX_PIXELS,
    Size,
    as_size,
    check_choice,
    check_count,
    in_common,
    number_range,
    resized,
)
from pe_lightning.data.sources.paths import ARRAYS, PICTURES, Paths, SourceFile, as_list, distinct_names, expand, format_of
from pe_lightning.data.sources.pictures import FloatArray, decode_image, header_of, over_white, to_unit
from pe_lightning.errors import InputError

__all__ = ["Alpha", "Color", "ImageSource", "read_picture", "same_channels"]

Color: TypeAlias = Literal["auto", "rgb", "grey"]
Alpha: TypeAlias = Literal["composite", "keep"]

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601, as Pillow and JPEG


@sources.register("images")
@dataclass(eq=False)
class ImageSource(Source):
    """Image files, or arrays ``(H, W)``, ``(H, W, C)`` or ``(S, H, W, C)``, as signals of two axes.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        center_crop: ``n`` or ``[height, width]`` of the central part to take.
        resize: ``[height, width]`` to resample to, after the crop; or ``n`` for the shorter side, the aspect ratio kept.
            Cubic, smoothed first where it shrinks, clipped to the range of the image, each channel for itself.
        color: ``"auto"``: one channel if every image is grey, else RGB. ``"rgb"``: always three. ``"grey"``: always
            one, the luma 0.299 R + 0.587 G + 0.114 B.
        alpha: ``"composite"``: transparent images are laid over white. ``"keep"``: if any image has transparency, every
            image gets an opacity channel, the last one.
        max_pixels: Refuse a file whose header claims more, before it is decoded; ``None`` for no limit.
        key: Of array files: the dataset of an ``.h5`` or the array of an ``.npz``, where there are several.
        value_range: Of array files: ``[low, high]`` that become 0 and 1.

    Raises:
        InputError: If an argument is malformed; at :meth:`read`, if a path is missing or not a readable image, or the
            images differ in size.
    """

    paths: Paths
    center_crop: Size | None = None
    resize: Size | None = None
    color: Color = "auto"
    alpha: Alpha = "composite"
    max_pixels: int | None = MAX_PIXELS
    key: str | None = None
    value_range: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.paths = as_list(self.paths)
        crop, size = as_size("center_crop", self.center_crop), as_size("resize", self.resize)
        check_choice("color", self.color, Color)
        check_choice("alpha", self.alpha, Alpha)
        check_count("max_pixels", self.max_pixels, 1)
        limits = number_range("value_range", self.value_range)
        self._are_arrays = all(format_of(Path(path), by_content=False) in ARRAYS for path in self.paths)
        if self._are_arrays and (crop or size):
            raise InputError("center_crop and resize are for image files; crop the array itself")
        if not self._are_arrays and (self.key is not None or limits):
            raise InputError("key and value_range are for array files (.npy, .npz, .h5); leave them out for images")

    def read(self) -> RawSignals:
        """Decodes the images, or opens the arrays: ``(S, H, W, C)``."""
        files = self._found
        if self._are_arrays:
            return read_arrays(files, 2, self.key, self.value_range)
        images = [read_picture(file, self.center_crop, self.resize, self.alpha == "keep", self.max_pixels) for file in files]
        common = [min(image.shape[axis] for image in images) for axis in (0, 1)]
        in_common(
            "sizes (height x width)",
            [(file.given, image.shape[:2]) for file, image in zip(files, images, strict=True)],
            f"Set center_crop (the largest that all of them have is {common}) or resize: [height, width]",
        )
        dtypes = {header_of(file).dtype for file in files}
        dtype = next(name for name in ("float32", "uint16", "uint8") if name in dtypes)  # so that no range is cut
        images = same_channels(images, self.color)
        dtype = dtype if images[0].dtype.kind == "f" else images[0].dtype.name
        return RawSignals.in_memory(
            images[0][None] if len(images) == 1 else np.stack(images),
            distinct_names([(file, file.stem) for file in files]),
            Scaling(dtype) if dtype == "float32" else Scaling.of_integers(dtype),
            "image",
        )

    def files(self) -> list[Path]:
        """The image files, or the compressed arrays; arrays that are read in place are not decoded."""
        files = self._found
        return [] if self._are_arrays and in_place(files) else [file.path for file in files]

    @cached_property
    def _found(self) -> list[SourceFile]:
        return expand(self.paths, ARRAYS, "array") if self._are_arrays else expand(self.paths, PICTURES, "image")


def read_picture(
    file: SourceFile, center_crop: Size | None, resize: Size | None, keep_alpha: bool, max_pixels: int | None
) -> AnyArray:
    """One picture, cropped and resized, ``(H, W, C)``; integers as in :func:`decode_image` where nothing is computed."""
    image = decode_image(file, max_pixels)
    if not keep_alpha and image.shape[-1] in (2, 4):
        if not (to_unit(image[..., -1]) == 1).all():
            rank_zero_info(
                f"{file.given!r} is transparent: it is laid over white. For its opacity as a channel set alpha: keep."
            )
        image = over_white(image)
    crop = as_size("center_crop", center_crop)
    if crop is not None:
        height, width = image.shape[:2]
        if crop[0] > height or crop[1] > width:
            raise InputError(
                f"center_crop {crop[0]}x{crop[1]} is larger than {file.given!r}, which is {height}x{width} (height x width)"
            )
        top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
        image = image[top : top + crop[0], left : left + crop[1]].copy()  # so that the whole image is freed
    size = image.shape[:2] if resize is None else resized(resize, image.shape[:2])
    if image.shape[:2] == size:
        return image
    from skimage import transform  # late: it brings in SciPy, which takes longer than reading an image

    image = to_unit(image)
    resample: Any = transform.resize  # scikit-image is not typed
    options = {"order": 3, "mode": "reflect", "anti_aliasing": True, "clip": True, "preserve_range": True}
    # one channel at a time: the same result three times as fast, because nothing is interpolated between channels
    channels = [resample(image[..., channel], size, **options) for channel in range(image.shape[-1])]
    resampled: FloatArray = np.stack(channels, axis=-1).astype(np.float32)
    return resampled


def same_channels(images: Sequence[AnyArray], color: Color) -> list[AnyArray]:
    """Images in the same channels and one dtype: grey or RGB, and an opacity channel if one of them has it."""
    any_alpha = any(image.shape[-1] in (2, 4) for image in images)
    to_rgb = color == "rgb" or (color == "auto" and any(image.shape[-1] in (3, 4) for image in images))
    to_grey = not to_rgb and any(image.shape[-1] in (3, 4) for image in images)
    if any_alpha or to_grey or len({image.dtype for image in images}) > 1:
        images = [to_unit(image) for image in images]
    result = []
    for image in images:
        values, opacity = (image[..., :-1], image[..., -1:]) if image.shape[-1] in (2, 4) else (image, None)
        if to_rgb and values.shape[-1] == 1:
            values = np.repeat(values, 3, axis=-1)
        elif not to_rgb and values.shape[-1] == 3:
            values = np.minimum(values @ _LUMA, 1)[..., None]
        if any_alpha:
            opaque = np.ones((*values.shape[:2], 1), dtype=np.float32)
            values = np.concatenate([values, opaque if opacity is None else opacity], axis=-1)
        result.append(values)
    return result

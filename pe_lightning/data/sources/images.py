"""A set of image files to one array: the same channels and the same size for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from pe_lightning.data.sources.decode import MAX_PIXELS, SUFFIXES, FloatArray, check_max_pixels, decode_image
from pe_lightning.data.sources.sources import Source, distinct_names, expand
from pe_lightning.errors import InputError

__all__ = ["Alpha", "Color", "Size", "as_size", "check_choice", "read_images"]

Color: TypeAlias = Literal["auto", "rgb", "grey"]
Alpha: TypeAlias = Literal["composite", "keep"]
Size: TypeAlias = "int | Sequence[int]"

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601, as Pillow and JPEG


def read_images(
    paths: str | Sequence[str],
    center_crop: Size | None = None,
    resize: Size | None = None,
    color: Color = "auto",
    alpha: Alpha = "composite",
    max_pixels: int | None = MAX_PIXELS,
) -> tuple[FloatArray, tuple[str, ...]]:
    """Reads image files, folders and ``samples://NAME`` as one array of values in [0, 1].

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        center_crop: ``n`` or ``[height, width]`` of the central part to keep.
        resize: ``n`` (``n`` x ``n``) or ``[height, width]`` to resample to, after the crop: cubic, smoothed first where
            it shrinks, clipped to the range of the image, each channel for itself. It does not keep the aspect ratio.
        color: ``"auto"``: one channel if every image is grey, else RGB. ``"rgb"``: always three. ``"grey"``: always
            one, the luma 0.299 R + 0.587 G + 0.114 B.
        alpha: ``"composite"``: transparent images are laid over white. ``"keep"``: if any image has transparency, every
            image gets an opacity channel, the last one.
        max_pixels: Refuse a file whose header claims more, before it is decoded; ``None`` for no limit.

    Returns:
        ``(S, H, W, C)`` and the names of the ``S`` images.

    Raises:
        InputError: If a path is missing or not a readable image, or the images differ in size.
    """
    crop, size = as_size("center_crop", center_crop), as_size("resize", resize)
    check_choice("color", color, Color)
    check_choice("alpha", alpha, Alpha)
    check_max_pixels(max_pixels)
    sources = expand(paths, SUFFIXES)
    images: list[FloatArray] = []
    for source in sources:
        image = decode_image(source.path, source.given, max_pixels)
        if alpha == "composite" and image.shape[-1] in (2, 4):
            image = _over_white(image)
        if crop is not None:
            image = _center_crop(image, crop, source.given)
        if size is not None:
            image = _resize(image, size)
        images.append(image)
    _check_sizes(images, sources)
    return np.stack(_same_channels(images, color)), distinct_names(sources)


def as_size(name: str, value: Size | None) -> tuple[int, int] | None:
    """``(height, width)`` from ``n`` or ``[height, width]``.

    Raises:
        InputError: If it is neither, or less than 2.
    """
    if value is None:
        return None
    sides = [value, value] if isinstance(value, int) else list(value) if isinstance(value, (list, tuple)) else []
    if len(sides) != 2 or any(isinstance(side, bool) or not isinstance(side, int) or side < 2 for side in sides):
        raise InputError(f"{name} must be an integer >= 2 or [height, width] of two such integers; got {value!r}")
    return sides[0], sides[1]


def check_choice(name: str, value: object, choices: object) -> None:
    """Raises :class:`InputError` unless ``value`` is one of the strings of the ``Literal`` type ``choices``."""
    allowed = get_args(choices)
    if value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def _over_white(image: FloatArray) -> FloatArray:
    values, opacity = image[..., :-1], image[..., -1:]
    # in this form an opaque pixel keeps its value to the last bit
    laid: FloatArray = np.minimum(values * opacity + (1 - opacity), 1)
    return laid


def _center_crop(image: FloatArray, crop: tuple[int, int], name: str) -> FloatArray:
    height, width = image.shape[:2]
    if crop[0] > height or crop[1] > width:
        raise InputError(
            f"center_crop {crop[0]}x{crop[1]} is larger than {name!r}, which is {height}x{width} (height x width); set "
            f"center_crop to at most [{min(crop[0], height)}, {min(crop[1], width)}], or leave the image out"
        )
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    part: FloatArray = image[top : top + crop[0], left : left + crop[1]].copy()  # so that the whole image is freed
    return part


def _resize(image: FloatArray, size: tuple[int, int]) -> FloatArray:
    if image.shape[:2] == size:
        return image
    from skimage import transform  # late: it brings in SciPy, which takes longer than reading an image

    resample: Any = transform.resize  # scikit-image is not typed
    options = {"order": 3, "mode": "reflect", "anti_aliasing": True, "clip": True, "preserve_range": True}
    # one channel at a time: the same result three times as fast, because nothing is interpolated between channels
    channels = [resample(image[..., channel], size, **options) for channel in range(image.shape[-1])]
    resampled: FloatArray = np.stack(channels, axis=-1).astype(np.float32)
    return resampled


def _check_sizes(images: Sequence[FloatArray], sources: Sequence[Source]) -> None:
    sizes: dict[tuple[int, ...], list[str]] = {}
    for image, source in zip(images, sources, strict=True):
        sizes.setdefault(image.shape[:2], []).append(source.given)
    if len(sizes) == 1:
        return
    listed = "; ".join(
        f"{height}x{width}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for (height, width), names in list(sizes.items())[:8]
    )
    more = f"; and {len(sizes) - 8} more sizes" if len(sizes) > 8 else ""
    common = [min(size[axis] for size in sizes) for axis in (0, 1)]
    raise InputError(
        f"the {len(images)} images have {len(sizes)} different sizes (height x width), but signals are fitted together "
        f"and share one grid. {listed}{more}. Set center_crop (the largest that all of them have is {common}) or resize"
    )


def _same_channels(images: Sequence[FloatArray], color: Color) -> list[FloatArray]:
    any_rgb = any(image.shape[-1] in (3, 4) for image in images)
    any_alpha = any(image.shape[-1] in (2, 4) for image in images)
    to_rgb = color == "rgb" or (color == "auto" and any_rgb)
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

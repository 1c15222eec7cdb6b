"""Signals as pictures to look at: alone, and beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.runs import replacing

__all__ = ["FRAMES", "comparison", "comparison_frames", "error_map", "stacked", "to_image", "to_levels", "write_png"]

Array = npt.NDArray[np.float32]

ERROR_FULL_SCALE = 0.2
"""The absolute error that an error map shows in its last colour."""
FRAMES = 4
"""How many frames of a video, or slices of a volume, are compared."""

_HEADER, _GAP = 22, 4  # pixels of a comparison


def to_levels(values: Array, dtype: type[np.unsignedinteger[Any]] = np.uint8) -> npt.NDArray[Any]:
    """Values of [0, 1] as all the integers of ``dtype``, clamped; not-a-number, which has no colour, is black."""
    levels: npt.NDArray[Any] = np.rint(np.nan_to_num(np.clip(values, 0, 1)) * np.iinfo(dtype).max).astype(dtype)
    return levels


def to_image(values: Array) -> Image.Image:
    """``(H, W, C)`` in [0, 1] as an 8-bit image, clamped; 1 to 4 channels are grey, grey + alpha, RGB, RGB + alpha.

    Of more channels, which no picture has, it is the first, in grey.
    """
    levels = to_levels(values if values.shape[-1] <= 4 else values[..., :1])
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)


def write_png(path: Path, image: Image.Image) -> Path:
    """Writes an image atomically and returns its path."""
    with replacing(path) as file:
        image.save(file, "PNG")
    return path


def error_map(prediction: Array, truth: Array) -> Image.Image:
    """Mean absolute error over the channels in matplotlib's ``magma``: black at 0, pale at :data:`ERROR_FULL_SCALE`."""
    difference = np.abs(prediction.astype(np.float64) - truth).mean(-1)
    scaled = np.nan_to_num(difference, nan=1.0, posinf=1.0) / ERROR_FULL_SCALE  # NaN is as wrong as can be
    return Image.fromarray(matplotlib.colormaps["magma"](np.minimum(scaled, 1.0), bytes=True)[..., :3])


def comparison(prediction: Array, truth: Array, caption: str, title: str = "ground truth") -> Image.Image:
    """Ground truth, reconstruction and error map of a picture side by side, with their names above.

    Args:
        prediction: ``(H, W, C)``.
        truth: Same shape.
        caption: Text above the prediction.
        title: Text above the truth.
    """
    channel = "" if truth.shape[-1] <= 4 else f", channel 1 of {truth.shape[-1]}"
    panels = [
        (title + channel, to_image(truth)),
        (caption, to_image(prediction)),
        (f"absolute error, 0 to {ERROR_FULL_SCALE:g}", error_map(prediction, truth)),
    ]
    # tiny signals are enlarged, pixels kept square, so that captions fit and pixels can be seen
    zoom = max(1, round(256 / max(truth.shape[:2])))
    width, height = truth.shape[1] * zoom, truth.shape[0] * zoom
    sheet = Image.new("RGB", (3 * width + 2 * _GAP, height + _HEADER), "white")
    longest = max(ImageFont.load_default(14).getlength(name) for name, _ in panels)
    font = ImageFont.load_default(min(14, max(7, 14 * (width - 4) / longest)))  # captions fit, where still legible
    for number, (name, panel) in enumerate(panels):
        left = number * (width + _GAP)
        header = Image.new("RGB", (width, _HEADER), "white")
        ImageDraw.Draw(header).text((2, 2), name, fill="black", font=font)
        sheet.paste(header, (left, 0))
        sheet.paste(panel.convert("RGB").resize((width, height), Image.Resampling.NEAREST), (left, _HEADER))
    return sheet


def comparison_frames(prediction: Array, truth: Array, caption: str, frames: Sequence[int], count: int) -> Image.Image:
    """:func:`comparison` of frames of a cube, one below the other.

    Args:
        prediction: ``(n, H, W, C)``: some frames of a video, or slices of a volume.
        truth: Same shape.
        caption: Text above the predicted frames.
        frames: Which frames these are.
        count: Of how many.
    """
    titles = [f"ground truth, {frame + 1} of {count}" for frame in frames]
    rows = zip(prediction, truth, titles, strict=True)
    return stacked([comparison(made, known, caption, title) for made, known, title in rows])


def stacked(images: Sequence[Image.Image]) -> Image.Image:
    """Pictures of one size, one below the other."""
    width, height = images[0].size
    sheet = Image.new(images[0].mode, (width, (height + _GAP) * len(images) - _GAP), "white")
    for number, image in enumerate(images):
        sheet.paste(image, (0, number * (height + _GAP)))
    return sheet

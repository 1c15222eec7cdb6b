"""Predictions as files one can look at."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.runs import slug, write_atomically

__all__ = ["comparison", "error_map", "file_names", "is_picture", "to_image", "write_png", "write_signal"]

Array = npt.NDArray[np.float32]

ERROR_FULL_SCALE = 0.2
"""The absolute error that an error map shows in its last colour."""

_HEAT = np.array([[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]], dtype=np.float64)


def is_picture(values: npt.NDArray[np.generic]) -> bool:
    """Whether an array ``(*grid, C)`` is an image that PNG can hold: two axes, 1 to 4 channels."""
    return values.ndim == 3 and 1 <= values.shape[-1] <= 4


def to_image(values: Array) -> Image.Image:
    """``(H, W, C)`` in [0, 1] as an 8-bit image, clamped; 1 to 4 channels are grey, grey + alpha, RGB, RGB + alpha."""
    # NaN has no colour; it is shown black
    eight_bit = np.rint(np.nan_to_num(np.clip(values, 0, 1)) * 255).astype(np.uint8)
    return Image.fromarray(eight_bit[..., 0] if eight_bit.shape[-1] == 1 else eight_bit)


def error_map(prediction: Array, truth: Array) -> Image.Image:
    """Mean absolute error over the channels, black at 0 to pale yellow at :data:`ERROR_FULL_SCALE` and above."""
    difference = np.abs(prediction.astype(np.float64) - truth).mean(-1)
    # NaN is as wrong as can be
    position = np.clip(np.nan_to_num(difference, nan=1.0), 0, ERROR_FULL_SCALE) / ERROR_FULL_SCALE * (len(_HEAT) - 1)
    stops = np.arange(len(_HEAT))
    colours = np.stack([np.interp(position, stops, _HEAT[:, channel]) for channel in range(3)], -1)
    return Image.fromarray(np.rint(colours).astype(np.uint8))


def comparison(prediction: Array, truth: Array, caption: str) -> Image.Image:
    """Ground truth, reconstruction and error map side by side, with their names above."""
    panels = [
        ("ground truth", to_image(truth)),
        (caption, to_image(prediction)),
        (f"absolute error, 0 to {ERROR_FULL_SCALE:g}", error_map(prediction, truth)),
    ]
    # tiny signals are enlarged, pixels kept square, so that captions fit and pixels can be seen
    zoom = max(1, round(256 / max(truth.shape[:2])))
    size = truth.shape[1] * zoom, truth.shape[0] * zoom
    header, gap = 22, 4
    sheet = Image.new("RGB", (3 * size[0] + 2 * gap, size[1] + header), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(14)
    for place, (title, panel) in enumerate(panels):
        left = place * (size[0] + gap)
        draw.text((left + 2, 2), title, fill="black", font=font)
        sheet.paste(panel.convert("RGB").resize(size, Image.Resampling.NEAREST), (left, header))
    return sheet


def write_signal(path: Path, values: Array) -> Path:
    """Writes one signal ``(*grid, C)`` atomically: PNG for pictures, else NPY with the values as they are.

    Args:
        path: Where to, without a suffix.
        values: Values in [0, 1].

    Returns:
        The path with its suffix.
    """
    if is_picture(values):
        return write_png(path.with_name(path.name + ".png"), to_image(values))
    buffer = io.BytesIO()
    np.save(buffer, values)
    target = path.with_name(path.name + ".npy")
    write_atomically(target, buffer.getvalue())
    return target


def write_png(path: Path, image: Image.Image) -> Path:
    """Writes an image atomically and returns its path."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    write_atomically(path, buffer.getvalue())
    return path


def file_names(names: tuple[str, ...]) -> list[str]:
    """Distinct stems of files for signals of these names, on file systems that do not tell upper from lower case too.

    No stem is another's with ``_comparison`` behind it either: that is the name of the sheet of :func:`comparison`.
    """
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        base = slug(name)
        candidates = (base if number == 1 else f"{base}-{number}" for number in itertools.count(1))
        stem = next(c for c in candidates if taken.isdisjoint({c.casefold(), f"{c.casefold()}_comparison"}))
        taken |= {stem.casefold(), f"{stem.casefold()}_comparison"}
        result.append(stem)
    return result

"""Pictures of a file before and after its missing samples were filled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from pe_fill.formats.editable import EditableFile
from pe_fill.formats.point_axes import EAST_NAMES, NORTH_NAMES
from pe_lightning.results.pictures import (
    COMPARED_FRAMES,
    Array,
    marked_image,
    montage,
    row_plot,
    stacked,
)
from pe_lightning.results.runs import frames_of
from pe_lightning.signals import Axis
from pe_lightning.signals.raw import AnyArray

MAX_SIGNALS = 8
"""Most signals in a picture."""


def draw_before_after(original: EditableFile, values: AnyArray) -> Image.Image | None:
    """Draws signals of up to three axes with missing samples marked beside the filled ones; north is up.

    ``values`` are the filled signals, ``(S, N_1, ..., N_D, C)``, of as many samples as the original or more.
    """
    if values.ndim > 5:
        return None
    sheets: list[Image.Image] = []
    for name, before, missing, after in zip(original.names, original.values, original.missing, values, strict=True):
        if len(sheets) == MAX_SIGNALS:
            break
        if not missing.any() and before.shape == after.shape and (before == after).all():
            continue
        known = before[~missing]
        whole = before.dtype.kind in "iu" and before.dtype.itemsize <= 2 and original.media in ("image", "video")
        low, high = (0, np.iinfo(before.dtype).max) if whole else (float(known.min()), float(known.max()))
        shown, filled = (
            ((signal.astype(np.float64) - low) / (high - low or 1)).astype(np.float32)
            for signal in (np.where(missing, 0, before), after)
        )
        shown[missing.any(-1)] = np.nan
        sheets += _sheets(name, _north_up(shown, original.axes), _north_up(filled, original.axes))
    if not sheets:
        return None
    wide = max(sheet.width for sheet in sheets)
    return stacked([sheet for sheet in sheets if sheet.width == wide])


def _north_up(values: Array, axes: Sequence[Axis]) -> Array:
    """``(*frames, H, W, C)`` with north at the top and east at the right, by the names of the axes; others unchanged."""
    if len(axes) < 2:
        return values
    rows, columns = axes[-2:]
    if rows.name.lower() in EAST_NAMES or columns.name.lower() in NORTH_NAMES:
        values, rows, columns = values.swapaxes(-3, -2), columns, rows
    if rows.name.lower() in NORTH_NAMES and rows.high > rows.low:
        values = np.flip(values, -3)
    if columns.name.lower() in EAST_NAMES and columns.high < columns.low:
        values = np.flip(values, -2)
    return values


def _sheets(name: str, before: Array, after: Array) -> list[Image.Image]:
    """A picture of a row, of an image, or of the frames of a cube with most missing samples."""
    if before.ndim == 3:
        return [_picture(before, after)]
    if before.shape != after.shape:
        return []
    if before.ndim == 2:
        return [row_plot(after, before, np.asarray(~np.isnan(before).any(-1)), name, names=("known", "filled"))]
    missing, count = np.isnan(before).any(-1).mean((1, 2)), COMPARED_FRAMES
    worst = np.argsort(-missing, kind="stable")[:count] if missing.any() else frames_of(len(before), count)
    return [_picture(before[frame], after[frame]) for frame in sorted(worst)]


def _picture(before: Array, after: Array) -> Image.Image:
    times = len(after) // len(before)
    captions = ("missing samples marked", "filled") if np.isnan(before).any() else ("given", "smoothed")
    if times > 1:
        before, captions = before.repeat(times, 0).repeat(times, 1), ("pixels repeated", "enlarged")
    return montage([(captions[0], marked_image(before)), (captions[1], marked_image(after))])

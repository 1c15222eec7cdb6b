"""Pictures of filled signals: before, with missing samples marked, and after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pe_lightning.results.pictures import before_after, row_plot, stacked
from pe_lightning.results.runs import frames_of
from pe_lightning.signals.axes import EAST_NAMES, NORTH_NAMES, Axis
from pe_lightning.signals.originals import Original
from pe_lightning.signals.raw import AnyArray

MAX_SIGNALS = 8
"""Most signals of a file in a picture."""
SHOWN_FRAMES = 4
"""Frames of a cube in a picture: those with most missing samples."""


def draw_before_after(original: Original, values: AnyArray) -> Image.Image | None:
    """Draws signals with missing samples marked beside the filled ones; latitudes and longitudes north up.

    Args:
        original: The file with missing samples.
        values: Its filled signals, ``(S, N_1, ..., N_D, C)``, of as many samples or more.

    Returns:
        The picture; ``None`` for signals of more than three axes.
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
        shown = _scaled(np.where(missing, 0, before), low, high)
        shown[missing.any(-1)] = np.nan
        sheets += _sheets(name, _north_up(shown, original.axes), _north_up(_scaled(after, low, high), original.axes))
    if not sheets:
        return None
    wide = max(sheet.width for sheet in sheets)
    return stacked([sheet for sheet in sheets if sheet.width == wide])


def _scaled(values: AnyArray, low: float, high: float) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = ((values.astype(np.float64) - low) / (high - low or 1)).astype(np.float32)
    return scaled


def _north_up(values: NDArray[np.float32], axes: Sequence[Axis]) -> NDArray[np.float32]:
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


def _sheets(name: str, before: NDArray[np.float32], after: NDArray[np.float32]) -> list[Image.Image]:
    if before.ndim == 2:
        if before.shape != after.shape:
            return []
        return [row_plot(after, before, np.asarray(~np.isnan(before).any(-1)), name, names=("known", "filled"))]
    if before.ndim == 3:
        return [before_after(before, after)]
    missing = np.isnan(before).any(-1).mean((1, 2))
    worst = np.argsort(-missing, kind="stable")[:SHOWN_FRAMES] if missing.any() else frames_of(len(before), SHOWN_FRAMES)
    if before.shape != after.shape:
        return []
    return [before_after(before[frame], after[frame]) for frame in sorted(worst)]

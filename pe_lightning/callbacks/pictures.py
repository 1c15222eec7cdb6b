"""Truth and prediction beside each other, as pictures to look at."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.callbacks.media import to_levels

__all__ = ["comparison", "comparison_frames", "error_map", "row_plot", "to_image"]

Array = npt.NDArray[np.float32]

ERROR_FULL_SCALE = 0.2
"""The absolute error that an error map shows in its last colour."""
FRAMES = 4
"""How many frames of a video, or slices of a volume, are compared."""
DETAIL = 400
"""How many samples of a row are shown one by one."""
ROWS = 4
"""How many channels of a row are shown."""

_HEAT = np.array([[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]], dtype=np.float64)
_HEADER, _GAP = 22, 4  # pixels of a comparison


def to_image(values: Array) -> Image.Image:
    """``(H, W, C)`` in [0, 1] as an 8-bit image, clamped; 1 to 4 channels are grey, grey + alpha, RGB, RGB + alpha.

    Of more channels, which no picture has, it is the first, in grey.
    """
    levels = to_levels(values if values.shape[-1] <= 4 else values[..., :1])
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)


def error_map(prediction: Array, truth: Array) -> Image.Image:
    """Mean absolute error over the channels, black at 0 to pale yellow at :data:`ERROR_FULL_SCALE` and above."""
    difference = np.abs(prediction.astype(np.float64) - truth).mean(-1)
    # NaN is as wrong as can be
    position = np.clip(np.nan_to_num(difference, nan=1.0), 0, ERROR_FULL_SCALE) / ERROR_FULL_SCALE * (len(_HEAT) - 1)
    stops = np.arange(len(_HEAT))
    colours = np.stack([np.interp(position, stops, _HEAT[:, channel]) for channel in range(3)], -1)
    return Image.fromarray(np.rint(colours).astype(np.uint8))


def comparison(prediction: Array, truth: Array, caption: str, title: str = "ground truth") -> Image.Image:
    """Ground truth, reconstruction and error map side by side, with their names above."""
    channel = "" if truth.shape[-1] <= 4 else f", channel 1 of {truth.shape[-1]}"
    panels = [
        (title + channel, to_image(truth)),
        (caption, to_image(prediction)),
        (f"absolute error, 0 to {ERROR_FULL_SCALE:g}", error_map(prediction, truth)),
    ]
    # tiny signals are enlarged, pixels kept square, so that captions fit and pixels can be seen
    zoom = max(1, round(256 / max(truth.shape[:2])))
    size = truth.shape[1] * zoom, truth.shape[0] * zoom
    sheet = Image.new("RGB", (3 * size[0] + 2 * _GAP, size[1] + _HEADER), "white")
    longest = max(ImageFont.load_default(14).getlength(name) for name, _ in panels)
    font = ImageFont.load_default(min(14, max(7, 14 * (size[0] - 4) / longest)))  # captions fit, where still legible
    for place, (name, panel) in enumerate(panels):
        left = place * (size[0] + _GAP)
        header = Image.new("RGB", (size[0], _HEADER), "white")
        ImageDraw.Draw(header).text((2, 2), name, fill="black", font=font)
        sheet.paste(header, (left, 0))
        sheet.paste(panel.convert("RGB").resize(size, Image.Resampling.NEAREST), (left, _HEADER))
    return sheet


def comparison_frames(prediction: Array, truth: Array, caption: str) -> Image.Image:
    """:func:`comparison` of evenly spaced frames, one below the other: the middles of :data:`FRAMES` equal parts.

    Args:
        prediction: ``(F, H, W, C)``: a video, or a volume of F slices.
        truth: Same shape.
        caption: What stands above the predicted frames.
    """
    count = len(truth)
    chosen = sorted({(2 * part + 1) * count // (2 * FRAMES) for part in range(FRAMES)})
    rows = [comparison(prediction[k], truth[k], caption, f"ground truth, {k + 1} of {count}") for k in chosen]
    height = rows[0].height + _GAP
    sheet = Image.new("RGB", (rows[0].width, height * len(rows) - _GAP), "white")
    for place, row in enumerate(rows):
        sheet.paste(row, (0, place * height))
    return sheet


def row_plot(
    prediction: Array, truth: Array, trained: npt.NDArray[np.bool_] | None, caption: str, rate: float | None = None
) -> Image.Image:
    """Truth, reconstruction and trained samples of a row as lines, one line of panels per channel.

    A long row is shown whole, as the range of every so many samples, and beside that the :data:`DETAIL` samples in its
    middle. The vertical axis reaches a quarter of the truth's range beyond it; a prediction outside lies on its edge.

    Args:
        prediction: ``(N, C)``; of more than :data:`ROWS` channels, the first are shown.
        truth: Same shape.
        trained: Which samples were trained on, ``(N,)``.
        caption: The title.
        rate: Samples per second, for an axis in seconds.
    """
    count, channels = truth.shape
    shown, start = min(channels, ROWS), max(0, (count - DETAIL) // 2)
    parts = [slice(0, count)] if count <= DETAIL else [slice(0, count), slice(start, start + DETAIL)]
    figure = Figure(figsize=(6 * len(parts), 0.6 + 2.4 * shown), layout="constrained")
    figure.suptitle(caption if shown == channels else f"{caption}; channels 1 to {shown} of {channels}", fontsize=10)
    panels = figure.subplots(shown, len(parts), squeeze=False)
    for channel in range(shown):
        for panel, part in zip(panels[channel], parts, strict=True):
            known = None if trained is None else trained[part]
            _draw_row(panel, prediction[part, channel], truth[part, channel], known, part.start, rate)
        panels[channel][0].set_ylabel("value" if channels == 1 else f"channel {channel + 1}")
    figure.legend(*panels[0][-1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("sample" if rate is None else "seconds")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return Image.open(buffer).convert("RGB")


def _draw_row(
    axes: Axes, prediction: Array, truth: Array, trained: npt.NDArray[np.bool_] | None, start: int, rate: float | None
) -> None:
    low, high = float(truth.min()), float(truth.max())
    margin = max((high - low) / 4, 0.01)
    bounds = low - margin, high + margin
    axes.set_ylim(*bounds)
    axes.grid(alpha=0.3)
    times = (start + np.arange(len(truth))) / (rate or 1)
    lines = [("ground truth", truth, "black", 1.8), ("reconstruction", np.clip(prediction, *bounds), "tab:orange", 1.0)]
    if len(truth) > DETAIL:
        starts = np.arange(0, len(truth), -(-len(truth) // DETAIL))
        for _, line, colour, _ in lines:
            ranges = (np.minimum.reduceat(line, starts), np.maximum.reduceat(line, starts))
            axes.fill_between(times[starts], *ranges, step="post", color=colour, alpha=0.5, linewidth=0.5)
        return
    for name, line, colour, width in lines:
        axes.plot(times, line, label=name, color=colour, linewidth=width)
    if trained is not None:
        axes.plot(times[trained], truth[trained], ".", label="trained on", color="tab:blue", markersize=4)

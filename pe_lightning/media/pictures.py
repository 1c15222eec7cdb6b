"""Signals as pictures to look at, alone and beside the truth; plots of rows, of a choice, and of curves over steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.files import figure_bytes, replacing, save_figure

__all__ = [
    "FRAMES",
    "comparison",
    "comparison_frames",
    "error_map",
    "plot_choice",
    "plot_curves",
    "row_plot",
    "stacked",
    "to_image",
    "to_levels",
    "write_png",
]

Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

ERROR_FULL_SCALE = 0.2
"""The absolute error that an error map shows in its last colour."""
FRAMES = 4
"""How many frames of a video, or slices of a volume, are compared."""

DETAIL = 120
"""How many samples of a row are shown one by one."""
ROWS = 4
"""How many channels of a row are shown."""

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


def comparison(
    prediction: Array,
    truth: Array,
    caption: str,
    title: str = "ground truth",
    trained: Mask | None = None,
    interpolation: tuple[str, Array] | None = None,
) -> Image.Image:
    """Pictures side by side with their names above: what was trained on, truth, reconstruction, interpolation, error.

    Args:
        prediction: ``(H, W, C)``.
        truth: Same shape.
        caption: Text above the prediction.
        title: Text above the truth.
        trained: Which samples were trained on, ``(H, W)``; the others are black.
        interpolation: Text above what interpolation makes of them, and that, ``(H, W, C)``.
    """
    channel = "" if truth.shape[-1] <= 4 else f", channel 1 of {truth.shape[-1]}"
    panels = [(title + channel, to_image(truth)), (caption, to_image(prediction))]
    if trained is not None:
        panels.insert(0, (f"trained on: {100 * trained.mean():.3g} %", to_image(truth * trained[..., None])))
    if interpolation is not None:
        panels.append((interpolation[0], to_image(interpolation[1])))
    panels.append((f"absolute error, 0 to {ERROR_FULL_SCALE:g}", error_map(prediction, truth)))
    # tiny signals are enlarged, pixels kept square, so that captions fit and pixels can be seen
    zoom = max(1, round(256 / max(truth.shape[:2])))
    width, height = truth.shape[1] * zoom, truth.shape[0] * zoom
    sheet = Image.new("RGB", (len(panels) * (width + _GAP) - _GAP, height + _HEADER), "white")
    longest = max(ImageFont.load_default(14).getlength(name) for name, _ in panels)
    font = ImageFont.load_default(min(14, max(7, 14 * (width - 4) / longest)))  # captions fit, where still legible
    for number, (name, panel) in enumerate(panels):
        left = number * (width + _GAP)
        header = Image.new("RGB", (width, _HEADER), "white")
        ImageDraw.Draw(header).text((2, 2), name, fill="black", font=font)
        sheet.paste(header, (left, 0))
        sheet.paste(panel.convert("RGB").resize((width, height), Image.Resampling.NEAREST), (left, _HEADER))
    return sheet


def comparison_frames(
    prediction: Array,
    truth: Array,
    caption: str,
    frames: Sequence[int],
    count: int,
    trained: Mask | None = None,
    interpolation: tuple[str, Array] | None = None,
) -> Image.Image:
    """:func:`comparison` of frames of a cube, one below the other.

    Args:
        prediction: ``(n, H, W, C)``: some frames of a video, or slices of a volume.
        truth: Same shape.
        caption: Text above the predicted frames.
        frames: Which frames these are.
        count: Of how many.
        trained: Which of their samples were trained on, ``(n, H, W)``.
        interpolation: A text, and the frames as interpolation makes them.
    """
    sheets = []
    for place, frame in enumerate(frames):
        mask = None if trained is None else trained[place]
        other = None if interpolation is None else (interpolation[0], interpolation[1][place])
        title = f"ground truth, {frame + 1} of {count}"
        sheets.append(comparison(prediction[place], truth[place], caption, title, mask, other))
    return stacked(sheets)


def stacked(images: Sequence[Image.Image]) -> Image.Image:
    """Pictures of one size, one below the other."""
    width, height = images[0].size
    sheet = Image.new(images[0].mode, (width, (height + _GAP) * len(images) - _GAP), "white")
    for number, image in enumerate(images):
        sheet.paste(image, (0, number * (height + _GAP)))
    return sheet


# -- plots --------------------------------------------------------------------------------------------------------------


def row_plot(
    prediction: Array,
    truth: Array,
    trained: Mask | None,
    caption: str,
    rate: float | None = None,
    interpolation: tuple[str, Array] | None = None,
) -> Image.Image:
    """Truth, reconstruction, interpolation and trained samples of a row as lines, one line of panels per channel.

    A long row is shown whole, a very long one as the range of every so many samples, and beside that the :data:`DETAIL`
    samples in its middle. The vertical axis reaches a quarter of the truth's range beyond it; a prediction outside lies on
    its edge.

    Args:
        prediction: ``(N, C)``; of more than :data:`ROWS` channels, the first are shown.
        truth: Same shape.
        trained: Which samples were trained on, ``(N,)``.
        caption: The title.
        rate: Samples per second, for an axis in seconds.
        interpolation: Its name in the legend, and what it makes of the trained samples, ``(N, C)``.
    """
    count, channels = truth.shape
    shown, start = min(channels, ROWS), max(0, (count - DETAIL) // 2)
    ranges = [slice(0, count)] if count <= DETAIL else [slice(0, count), slice(start, start + DETAIL)]
    figure = Figure(figsize=(6 * len(ranges), 0.6 + 2.4 * shown), layout="constrained")
    figure.suptitle(caption if shown == channels else f"{caption}; channels 1 to {shown} of {channels}", fontsize=10)
    panels = figure.subplots(shown, len(ranges), squeeze=False)
    lines = [("ground truth", truth, "black", 2.2, "-"), ("reconstruction", prediction, "tab:orange", 1.2, "-")]
    if interpolation is not None:
        lines.append((*interpolation, "tab:green", 1.2, ":"))
    for channel in range(shown):
        for panel, where in zip(panels[channel], ranges, strict=True):
            _draw_row(
                panel, where, [(name, line[where, channel], *style) for name, line, *style in lines], trained, rate or 1
            )
        panels[channel][0].set_ylabel("value" if channels == 1 else f"channel {channel + 1}")
    figure.legend(*panels[0][-1].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("sample" if rate is None else "seconds")
    return Image.open(io.BytesIO(figure_bytes(figure))).convert("RGB")


def _draw_row(axes: Axes, where: slice, lines: Sequence[tuple[Any, ...]], trained: Mask | None, rate: float) -> None:
    truth, times = lines[0][1], np.arange(where.start, where.stop) / rate
    margin = max(float(np.ptp(truth)) / 4, 0.01)
    low, high = float(truth.min()) - margin, float(truth.max()) + margin
    axes.set_ylim(low, high)
    axes.grid(alpha=0.3)
    very_long = len(truth) > 8 * DETAIL
    for name, line, colour, width, style in lines:
        line = np.clip(line, low, high)
        if not very_long:
            axes.plot(times, line, style, label=name, color=colour, linewidth=width)
            continue
        starts = np.arange(0, len(line), -(-len(line) // (2 * DETAIL)))
        low_line, high_line = np.minimum.reduceat(line, starts), np.maximum.reduceat(line, starts)
        if name == "reconstruction":  # filled, between the truth's least and greatest values
            axes.fill_between(
                times[starts], low_line, high_line, step="post", color=colour, alpha=0.6, linewidth=0.5, zorder=1
            )
        elif name == "ground truth":
            axes.plot(times[starts], np.stack([low_line, high_line], 1), color=colour, linewidth=0.6)
    if trained is not None and len(truth) <= DETAIL:
        known = trained[where]
        axes.plot(times[known], truth[known], ".", label="trained on", color="tab:blue", markersize=5)


def plot_choice(path: Path, choice: Mapping[str, Any]) -> Path | None:
    """Held-out PSNR against the ridge, and against the width where it was chosen too.

    Args:
        path: The PNG to write.
        choice: ``curve``: (ridge, PSNR) per ridge; ``factors``: (relative width, PSNR), may be empty; ``ridge`` and
            ``factor``, which were chosen.

    Returns:
        The path, or ``None`` if nothing was chosen.
    """
    named = [("relative ridge", choice.get("curve")), ("width, times the rule's", choice.get("factors"))]
    panels = [(title, points) for title, points in named if points and len(points) > 1]
    if not panels:
        return None
    figure = Figure(figsize=(5 * len(panels), 3.5), layout="constrained")
    chosen = {"relative ridge": choice["ridge"], named[1][0]: choice["factor"]}
    for axes, (title, points) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = [point for point in points if point[0] > 0]
        axes.plot(*zip(*shown, strict=True), marker=".")
        axes.set(xscale="log", xlabel=title, ylabel="PSNR on held-out training samples (dB)")
        axes.ticklabel_format(axis="y", useOffset=False)
        if axes.dataLim.height < 0.2:  # a flat curve looks flat
            axes.set_ylim(axes.dataLim.y0 - 0.1, axes.dataLim.y1 + 0.1)
        if chosen[title] > 0:
            axes.axvline(chosen[title], color="tab:orange", label=f"chosen: {chosen[title]:.2g}")
            axes.legend()
        axes.grid(alpha=0.3)
    return save_figure(path, figure)


def plot_curves(path: Path, steps: Sequence[int], curves: Mapping[str, Sequence[float]], label: str) -> None:
    """Curves over optimiser steps on a logarithmic axis; the one called ``features`` is dashed."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, values in curves.items():
        style: dict[str, Any] = {"linestyle": "--", "color": "black"} if name == "features" else {}
        axes.plot(steps, values, marker=".", label=name, **style)
    axes.set(xlabel="optimiser steps", ylabel=label, yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save_figure(path, figure)

"""Pictures of signals and of comparisons with the truth; plots of rows, of a choice, and of curves over steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.signals.blocks import row_blocks
from pe_lightning.signals.files import replacing, save_figure

if TYPE_CHECKING:  # Matplotlib is imported where something is plotted: it takes as long as SciPy
    from matplotlib.axes import Axes

    from pe_lightning.signals.batches import SignalInfo

Array = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

ERROR_FULL_SCALE = 0.2
"""Absolute error at the end of the colour scale of an error map."""
PNG_COMPRESSION = 3  # photographs become no smaller at Pillow's default of 6, which takes more than twice the time
COMPARED_FRAMES = 4
"""Number of frames of a video, or slices of a volume, in a comparison."""
DETAIL_SAMPLES = 120  # of a row in its detail view
MAX_ROW_CHANNELS = 4  # in a plot
MISSING_COLOUR = (255, 0, 255)
"""Colour of missing samples, which is rare in photographs."""
GAP_PIXELS = 4  # between the pictures of a comparison


def to_levels(values: Array, dtype: type[np.unsignedinteger[Any]] = np.uint8) -> npt.NDArray[Any]:
    """Converts [0, 1] to the full range of an integer dtype, clipped; NaN becomes 0."""
    levels: npt.NDArray[Any] = np.empty(values.shape, dtype)
    for rows in row_blocks(values.shape):
        levels[rows] = np.rint(np.nan_to_num(np.clip(values[rows], 0, 1)) * np.iinfo(dtype).max).astype(dtype)
    return levels


def to_image(values: Array) -> Image.Image:
    """``(H, W, C)`` in [0, 1] as an 8-bit image, clipped; of more than 4 channels the first in grey."""
    levels = to_levels(values if values.shape[-1] <= 4 else values[..., :1])
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels)


def write_png(path: Path, image: Image.Image) -> Path:
    """Writes an image atomically."""
    with replacing(path) as file:
        image.save(file, "PNG", compress_level=PNG_COMPRESSION)
    return path


def error_map(prediction: Array, truth: Array) -> Image.Image:
    """Mean absolute error over the channels in matplotlib's ``magma``; 0 where the truth is missing, NaN."""
    import matplotlib

    colours, levels = matplotlib.colormaps["magma"], np.empty((*truth.shape[:2], 3), np.uint8)
    for rows in row_blocks(truth.shape):
        difference = np.abs(prediction[rows].astype(np.float64) - truth[rows]).mean(-1)
        difference[np.isnan(truth[rows]).any(-1)] = 0
        scaled = np.nan_to_num(difference, nan=1.0, posinf=1.0) / ERROR_FULL_SCALE  # NaN is shown as the largest error
        levels[rows] = colours(np.minimum(scaled, 1.0), bytes=True)[..., :3]
    return Image.fromarray(levels)


def comparison(
    prediction: Array,
    truth: Array,
    caption: str,
    title: str = "ground truth",
    trained: Mask | None = None,
    interpolation: tuple[str, Array] | None = None,
) -> Image.Image:
    """Trained samples on black; truth, with its ``title``; prediction, interpolation, error; side by side.

    Values are ``(H, W, C)``, ``trained`` is a mask ``(H, W)``. Missing samples are shown in :data:`MISSING_COLOUR`.
    """
    channel = "" if truth.shape[-1] <= 4 else f", channel 1 of {truth.shape[-1]}"
    panels = [(title + channel, marked_image(truth)), (caption, to_image(prediction))]
    if trained is not None:
        shown = np.where(trained[..., None] | np.isnan(truth), truth, 0)  # missing samples are marked here too
        panels.insert(0, (f"trained on: {100 * trained.mean():.3g} %", marked_image(shown)))
    if interpolation is not None:
        panels.append((interpolation[0], to_image(interpolation[1])))
    panels.append((f"absolute error, 0 to {ERROR_FULL_SCALE:g}", error_map(prediction, truth)))
    return montage(panels)


def marked_image(values: Array) -> Image.Image:
    """:func:`to_image` with missing samples, NaN in a channel, in :data:`MISSING_COLOUR`; unchanged without any."""
    missing = np.isnan(values).any(-1)
    if not missing.any():
        return to_image(values)
    pixels = np.array(to_image(values).convert("RGB"))
    pixels[missing] = MISSING_COLOUR
    return Image.fromarray(pixels)


def montage(panels: Sequence[tuple[str, Image.Image]], columns: int | None = None) -> Image.Image:
    """Pictures of one size, ``columns`` in a row or all, with captions above them, whose font grows with the pictures."""
    columns = min(columns or len(panels), len(panels))
    rows = -(-len(panels) // columns)
    # small signals are enlarged by an integer factor, so that captions fit and pixels are visible
    zoom = max(1, round(256 / max(panels[0][1].size)))
    width, height = (zoom * side for side in panels[0][1].size)
    size = max(14, width // 12)
    font = ImageFont.load_default(size)
    captions = [[row for line in caption.split("\n") for row in _wrapped(line, font, width)] for caption, _ in panels]
    line = int(1.3 * size)
    header = line * max(len(lines) for lines in captions) + GAP_PIXELS
    whole = columns * (width + GAP_PIXELS) - GAP_PIXELS, rows * (header + height + GAP_PIXELS) - GAP_PIXELS
    sheet = Image.new("RGB", whole, "white")
    for number, (lines, (_, panel)) in enumerate(zip(captions, panels, strict=True)):
        row, column = divmod(number, columns)
        left, top = column * (width + GAP_PIXELS), row * (header + height + GAP_PIXELS)
        above = Image.new("RGB", (width, header), "white")  # cuts wide words
        for place, text in enumerate(lines):
            ImageDraw.Draw(above).text((2, place * line), text, fill="black", font=font)
        sheet.paste(above, (left, top))
        sheet.paste(panel.convert("RGB").resize((width, height), Image.Resampling.NEAREST), (left, top + header))
    return sheet


def _wrapped(line: str, font: Any, width: int) -> list[str]:
    """Rows of a caption in this many pixels, by the mean width of its characters."""
    share = (width - 4) / max(font.getlength(line), 1)
    return wrap(line, max(1, len(line) if share >= 1 else int(0.9 * share * len(line)))) or [""]


def comparison_frames(
    prediction: Array,
    truth: Array,
    caption: str,
    frames: Sequence[int],
    count: int,
    trained: Mask | None = None,
    interpolation: tuple[str, Array] | None = None,
) -> Image.Image:
    """:func:`comparison` of several frames ``(n, H, W, C)`` of a cube of ``count``, stacked vertically."""
    sheets = []
    for place, frame in enumerate(frames):
        mask = None if trained is None else trained[place]
        other = None if interpolation is None else (interpolation[0], interpolation[1][place])
        title = f"ground truth, {frame + 1} of {count}"
        sheets.append(comparison(prediction[place], truth[place], caption, title, mask, other))
    return stacked(sheets)


def stacked(images: Sequence[Image.Image]) -> Image.Image:
    """Pictures of one width, stacked vertically."""
    heights = [image.height + GAP_PIXELS for image in images]
    sheet = Image.new(images[0].mode, (images[0].width, sum(heights) - GAP_PIXELS), "white")
    for number, image in enumerate(images):
        sheet.paste(image, (0, sum(heights[:number])))
    return sheet


def row_plot(
    prediction: Array,
    truth: Array,
    trained: Mask | None,
    caption: str,
    info: SignalInfo | None = None,
    interpolation: tuple[str, Array] | None = None,
    names: tuple[str, str] = ("ground truth", "reconstruction"),
    index: int = 0,
) -> Image.Image:
    """Plot of truth, reconstruction, interpolation and trained samples of a row, one line of panels per channel.

    A long row is shown whole, a very long one as ranges, and beside that the samples in its middle. The vertical axis
    reaches a quarter of the truth's range beyond it; a prediction outside lies on its edge.

    Args:
        prediction: ``(N, C)``; the first 4 channels are shown.
        truth: Same shape.
        trained: Mask of the trained samples, ``(N,)``.
        caption: Title of the plot.
        info: Its axes or its rate, and its range of values, for axes in the user's units; ``None``: numbers of samples, and
            values as given.
        interpolation: Name in the legend and values of an interpolation, ``(N, C)``.
        names: Of truth and prediction in the legend.
        index: Number of the signal in ``info``.
    """
    low, high = (0.0, 1.0) if info is None else info.shown_range(index)
    truth, prediction = (low + (high - low) * values for values in (truth, prediction))
    x, label = _coordinates(len(truth), info)
    count, channels = truth.shape
    shown, start = min(channels, MAX_ROW_CHANNELS), max(0, (count - DETAIL_SAMPLES) // 2)
    ranges = [slice(0, count)] if count <= DETAIL_SAMPLES else [slice(0, count), slice(start, start + DETAIL_SAMPLES)]
    width, height = 6.0 * len(ranges), 0.6 + 2.4 * shown
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110)
    # margins in inches: a layout that measures every label takes longer than the drawing
    figure.subplots_adjust(0.8 / width, 0.85 / height, 1 - 0.25 / width, 1 - 0.35 / height, 0.7 / 5.5, 0.35 / 2.2)
    title = caption if shown == channels else f"{caption}; channels 1 to {shown} of {channels}"
    figure.suptitle(title, fontsize=10, y=1 - 0.08 / height)
    panels = figure.subplots(shown, len(ranges), squeeze=False)
    lines = [(names[0], truth, "black", 2.2, "-"), (names[1], prediction, "tab:orange", 1.2, "-")]
    if interpolation is not None:
        lines.append((interpolation[0], low + (high - low) * interpolation[1], "tab:green", 1.2, ":"))
    for channel in range(shown):
        for panel, where in zip(panels[channel], ranges, strict=True):
            shown_lines = [(name, line[where, channel], *style) for name, line, *style in lines]
            _draw_row(panel, where, shown_lines, trained, x, 0.01 * (high - low))
        panels[channel][0].set_ylabel("value" if channels == 1 else f"channel {channel + 1}")
    figure.legend(*panels[0][-1].get_legend_handles_labels(), loc="lower center", ncols=4, fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel(label)
    canvas: Any = FigureCanvasAgg(figure)  # Matplotlib declares no types of its methods
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])


def _coordinates(count: int, info: SignalInfo | None) -> tuple[npt.NDArray[Any], str]:
    """The coordinates of the samples of a row, in the user's units, and the name of the axis."""
    if info is not None and info.axes:
        return info.axes[0].restore(info.axes[0].grid()), info.axes[0].name
    if info is not None and info.rate is not None:
        return np.arange(count) / info.rate, "seconds"
    return np.arange(count), "sample"


def _draw_row(
    axes: Axes,
    where: slice,
    lines: Sequence[tuple[Any, ...]],
    trained: Mask | None,
    x: npt.NDArray[Any],
    least_margin: float,
) -> None:
    truth, x = lines[0][1], x[where]
    if x.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    least, most = float(np.nanmin(truth)), float(np.nanmax(truth))
    margin = max((most - least) / 4, least_margin)
    low, high = least - margin, most + margin
    axes.set_ylim(low, high)
    axes.grid(alpha=0.3)
    very_long = len(truth) > 8 * DETAIL_SAMPLES
    for name, line, colour, width, style in lines:
        line = np.clip(line, low, high)
        if not very_long:
            axes.plot(x, line, style, label=name, color=colour, linewidth=width)
            continue
        size = -(-len(line) // (2 * DETAIL_SAMPLES))
        starts = np.arange(0, len(line), size)
        low_line, high_line = np.minimum.reduceat(line, starts), np.maximum.reduceat(line, starts)
        middles = x[np.minimum(starts + size // 2, len(line) - 1)]  # of truth and prediction alike
        if colour == "tab:orange":  # filled between minimum and maximum of each bin
            axes.fill_between(middles, low_line, high_line, color=colour, alpha=0.6, linewidth=0.5, zorder=1)
        elif colour == "black":
            axes.plot(middles, np.stack([low_line, high_line], 1), color=colour, linewidth=0.6)
    if trained is not None and len(truth) <= DETAIL_SAMPLES:
        known = trained[where]
        axes.plot(x[known], truth[known], ".", label="trained on", color="tab:blue", markersize=5)


def plot_choice(path: Path, choice: Mapping[str, Any]) -> Path | None:
    """Plots held-out PSNR against the ridge, and against the width if it was chosen too; ``None`` if nothing was chosen.

    ``choice``: ``curve``, (ridge, PSNR) per ridge; ``factors``, (relative width, PSNR); the chosen ``ridge`` and ``factor``.
    """
    named = [("relative ridge", choice.get("curve")), ("width, times the rule's", choice.get("factors"))]
    panels = [(title, points) for title, points in named if points and len(points) > 1]
    if not panels:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 3.5))
    # margins in inches: a layout that measures every label takes longer than the drawing
    figure.subplots_adjust(0.75 / figure.get_figwidth(), 0.16, 1 - 0.15 / figure.get_figwidth(), 0.96, wspace=0.22)
    chosen = {"relative ridge": choice["ridge"], named[1][0]: choice["factor"]}
    for axes, (title, points) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = [point for point in points if point[0] > 0]
        axes.plot(*zip(*shown, strict=True), marker=".")
        axes.set(xscale="log", xlabel=title, ylabel="PSNR on held-out training samples (dB)")
        axes.ticklabel_format(axis="y", useOffset=False)
        if axes.dataLim.height < 0.2:  # no zoom into a flat curve
            axes.set_ylim(axes.dataLim.y0 - 0.1, axes.dataLim.y1 + 0.1)
        if chosen[title] > 0:
            axes.axvline(chosen[title], color="tab:orange", label=f"chosen: {chosen[title]:.2g}")
            axes.legend()
        axes.grid(alpha=0.3)
    return save_figure(path, figure)

"""Plots: rows beside their truth, the curve of a choice, curves over steps."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from pe_lightning.runs import write_atomically

__all__ = ["plot_choice", "plot_curves", "row_plot"]

Array = npt.NDArray[np.float32]

DETAIL = 400
"""How many samples of a row are shown one by one."""
ROWS = 4
"""How many channels of a row are shown."""


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
    ranges = [slice(0, count)] if count <= DETAIL else [slice(0, count), slice(start, start + DETAIL)]
    figure = Figure(figsize=(6 * len(ranges), 0.6 + 2.4 * shown), layout="constrained")
    figure.suptitle(caption if shown == channels else f"{caption}; channels 1 to {shown} of {channels}", fontsize=10)
    panels = figure.subplots(shown, len(ranges), squeeze=False)
    for channel in range(shown):
        for panel, where in zip(panels[channel], ranges, strict=True):
            known = None if trained is None else trained[where]
            times = np.arange(where.start, where.stop) / (rate or 1)
            _draw_row(panel, times, prediction[where, channel], truth[where, channel], known)
        panels[channel][0].set_ylabel("value" if channels == 1 else f"channel {channel + 1}")
    figure.legend(*panels[0][-1].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    for panel in panels[-1]:
        panel.set_xlabel("sample" if rate is None else "seconds")
    return Image.open(io.BytesIO(_as_png(figure))).convert("RGB")


def _draw_row(
    axes: Axes, times: npt.NDArray[Any], prediction: Array, truth: Array, trained: npt.NDArray[np.bool_] | None
) -> None:
    margin = max(float(np.ptp(truth)) / 4, 0.01)
    low, high = float(truth.min()) - margin, float(truth.max()) + margin
    axes.set_ylim(low, high)
    axes.grid(alpha=0.3)
    lines = [("ground truth", truth, "black", 1.8), ("reconstruction", np.clip(prediction, low, high), "tab:orange", 1.0)]
    if len(truth) > DETAIL:
        starts = np.arange(0, len(truth), -(-len(truth) // DETAIL))
        for _, line, colour, _ in lines:
            bounds = (np.minimum.reduceat(line, starts), np.maximum.reduceat(line, starts))
            axes.fill_between(times[starts], *bounds, step="post", color=colour, alpha=0.5, linewidth=0.5)
        return
    for name, line, colour, width in lines:
        axes.plot(times, line, label=name, color=colour, linewidth=width)
    if trained is not None:
        axes.plot(times[trained], truth[trained], ".", label="trained on", color="tab:blue", markersize=4)


def plot_choice(path: Path, choice: Mapping[str, Any]) -> Path | None:
    """Held-out PSNR against the ridge, and against the width where it was chosen too.

    Args:
        path: The PNG to write.
        choice: ``curve``: (ridge, PSNR) per ridge; ``factors``: (relative width, PSNR), may be empty; ``ridge``.

    Returns:
        The path, or ``None`` if nothing was chosen.
    """
    named = [("relative ridge", choice.get("curve")), ("width, times the rule's", choice.get("factors"))]
    panels = [(title, points) for title, points in named if points and len(points) > 1]
    if not panels:
        return None
    figure = Figure(figsize=(5 * len(panels), 3.5), layout="constrained")
    for axes, (title, points) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        shown = [point for point in points if point[0] > 0]
        axes.plot(*zip(*shown, strict=True), marker=".")
        axes.set(xscale="log", xlabel=title, ylabel="PSNR on held-out training samples (dB)")
        if title == "relative ridge" and choice["ridge"] > 0:
            axes.axvline(choice["ridge"], color="tab:orange", label=f"chosen: {choice['ridge']:.2g}")
            axes.legend()
        axes.grid(alpha=0.3)
    write_atomically(path, _as_png(figure))
    return path


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
    write_atomically(path, _as_png(figure))


def _as_png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()

"""PSNR against steps, seconds and parameters, as PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.figure import Figure

from pe_lightning.experiments.compare.curves import Curve
from pe_lightning.experiments.compare.reading import Run
from pe_lightning.experiments.compare.scores import Row, Scores, complete_mean

__all__ = ["plot"]

MOST_NAMES = 20
"""A legend with more entries than this is longer than its plot."""
LONG_NAME = 40
"""Names of more characters stand below one another in a legend; of twice as many, they are cut."""
HEIGHT = 3.6
"""Inches, without the legend."""
STYLES = ("-", "--", ":", "-.")


def plot(scores: Scores, curves: Mapping[Run, Curve]) -> dict[str, bytes]:
    """The plots of a table that have something to show: name -> PNG.

    Args:
        scores: The table.
        curves: The curves of those of its runs that logged one.
    """
    drawn = {
        "psnr_vs_step": _against_steps(scores, curves),
        "psnr_vs_seconds": _against_seconds(scores, curves),
        "psnr_vs_parameters": _against_parameters(scores),
    }
    return {name: _png(figure) for name, figure in drawn.items() if figure is not None}


def _against_steps(scores: Scores, curves: Mapping[Run, Curve]) -> Figure | None:
    if not any(run in curves for run in scores.runs):
        return None
    panel = _Panel("step")
    for row, look in _fitted(scores):
        for run in row.runs:
            curve, end = curves.get(run), _mean(run)
            if curve is not None:
                panel.line(row.name, [step + 1 for step in curve.steps], curve.psnr, look)
            elif not run.metrics.get("steps") and end is not None:
                panel.end(row.name, 0, end, look)
    return panel.finish(scores)


def _against_seconds(scores: Scores, curves: Mapping[Run, Curve]) -> Figure | None:
    panel, spread = _Panel("seconds of the fit"), False
    for row, look in _fitted(scores):
        for run in row.runs:
            curve, end, seconds = curves.get(run), _mean(run), run.metrics.get("fit_seconds")
            if curve is not None and curve.seconds is not None:
                spread = spread or not curve.measured
                panel.line(row.name, curve.seconds, curve.psnr, look)
            if end is not None and seconds:
                panel.end(row.name, seconds, end, look)
    panel.axes.set_xscale("log")
    if spread:
        panel.axes.set_title("curves: the seconds of the fit spread evenly over its steps", fontsize="small", color="grey")
    return panel.finish(scores) if panel.named else None


def _against_parameters(scores: Scores) -> Figure | None:
    panel = _Panel("parameters per signal")
    for row, look in _fitted(scores):
        if row.mean is not None and row.deviation is not None and row.params is not None and row.params[0] > 0:
            middle = sum(row.params) / 2
            width = [[middle - row.params[0]], [row.params[1] - middle]]
            panel.named[row.name] = panel.axes.errorbar(
                [middle], [row.mean], [row.deviation], width, marker="o", capsize=3, **look
            )
    panel.axes.set_xscale("log")
    return panel.finish(scores) if panel.named else None


class _Panel:
    """A figure with one plot and a legend of its own.

    A legend that matplotlib collects reads ``$`` in names as formulas and leaves out names that start with an underscore.
    """

    def __init__(self, label: str) -> None:
        self.figure = Figure(figsize=(6.4, HEIGHT), layout="constrained")
        self.axes = self.figure.add_subplot()
        self.axes.set(xlabel=label, ylabel="held-out PSNR (dB)")
        self.axes.grid(alpha=0.3)
        self.named: dict[str, Any] = {}

    def line(self, name: str, x: Sequence[float], y: Sequence[float], look: dict[str, Any]) -> None:
        (self.named[name],) = self.axes.plot(x, y, marker=".", **look)

    def end(self, name: str, x: float, y: float, look: dict[str, Any]) -> None:
        (handle,) = self.axes.plot([x], [y], marker="o", **look)
        self.named.setdefault(name, handle)

    def finish(self, scores: Scores) -> Figure:
        """Adds the best interpolation as a line, and the legend."""
        best = next((row for row in scores.rows if row.interpolation and row.mean is not None), None)
        if best is not None and best.mean is not None:
            self.named[best.name] = self.axes.axhline(best.mean, color="grey", linewidth=1, dashes=(4, 3))
        if len(self.named) <= MOST_NAMES:
            columns = 2 if max(map(len, self.named)) < LONG_NAME else 1
            self.figure.set_figheight(HEIGHT + 0.2 * -(-len(self.named) // columns))
            handles, blank = list(self.named.values()), ["-"] * len(self.named)
            legend = self.figure.legend(handles, blank, loc="outside lower center", ncols=columns, fontsize="small")
            for text, name in zip(legend.get_texts(), self.named, strict=True):
                text.set_parse_math(False)
                text.set_text(name if len(name) < 2 * LONG_NAME else f"{name[: 2 * LONG_NAME]}…")
        return self.figure


def _fitted(scores: Scores) -> list[tuple[Row, dict[str, Any]]]:
    colours = colormaps["tab10"]
    rows = [row for row in scores.rows if not row.interpolation]
    return [
        (row, {"color": colours(place % 10), "linestyle": STYLES[place // 10 % len(STYLES)]})
        for place, row in enumerate(rows)
    ]


def _mean(run: Run) -> float | None:
    return complete_mean(run.scores("test/psnr").values())


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()

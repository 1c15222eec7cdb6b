"""Curves of held-out scores during a fit, read from the CSV log of a run, and their plots."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from pe_lightning.signals.files import figure_bytes
from pe_lightning.studies.compare.reading import Run, mean
from pe_lightning.studies.compare.scores import ScoreTable

MAX_LEGEND_ENTRIES = 20
"""Longest legend that is drawn; a longer one would be larger than the plot."""
STYLES = ("-", "--", ":", "-.")

Line = tuple[int, Sequence[float], Sequence[float], dict[str, Any]]
"""Index of a row in the table, x and y of its points, and the lengths of its error bars, if any."""


class Curve(NamedTuple):
    """Held-out score, averaged over signals, against steps (from 0) and seconds of a fit.

    If the log has no seconds, the duration of the fit, without that of an initial exact solution, is divided evenly among
    its steps, and ``measured`` is false. If the duration is unknown, ``seconds`` is empty.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    seconds: tuple[float, ...]
    measured: bool = False


def read_curve(run: Run) -> Curve | None:
    """The curve of a run; ``None`` if no held-out score was logged.

    Raises:
        ValueError: If a log cannot be read.
    """
    column = f"val/{run.metric.name}"
    points: dict[int, tuple[float, float | None]] = {}
    # a resumed fit logs to version_1 and so on, from the step of its checkpoint; later points of earlier logs are void
    for path in sorted((run.path / "logs").glob("*/metrics.csv"), key=lambda path: (len(path.parent.name), path)):
        try:
            rows = [row for row in csv.DictReader(path.read_text("utf-8").splitlines()) if row.get(column)]
            seconds = [float(row["seconds"]) if row.get("seconds") else None for row in rows]
            more = {int(row["step"]): (float(row[column]), time) for row, time in zip(rows, seconds, strict=True)}
        except (OSError, ValueError, csv.Error) as error:
            raise ValueError(f"{path.name} of {path.parent.name} cannot be read: {error}") from error
        points = {step: point for step, point in points.items() if not more or step < min(more)}
        points |= {step: point for step, point in more.items() if math.isfinite(point[0])}
    if not points:
        return None
    steps = tuple(sorted(points))
    values, logged = zip(*(points[step] for step in steps), strict=True)
    if None not in logged:
        return Curve(steps, values, logged, measured=True)
    total, start, end = (run.metrics.get(key) or 0.0 for key in ("fit_seconds", "solve_seconds", "steps"))
    if not total or not end:
        return Curve(steps, values, ())
    start = min(start, total)
    return Curve(steps, values, tuple(start + (total - start) * min(1.0, (step + 1) / end) for step in steps))


def plot(table: ScoreTable, curves: Mapping[Run, Curve | None]) -> dict[str, bytes]:
    """The plots of a table that have data: quantity on the x axis -> PNG."""
    lines: dict[str, list[Line]] = {"step": [], "seconds": [], "parameters": []}
    note = ""
    for place, row in enumerate(table.fitted):
        for run in row.runs:
            curve, end = curves.get(run), mean(run.test.values())
            if curve is not None:
                lines["step"].append((place, [step + 1 for step in curve.steps], curve.values, {}))
            elif not run.metrics.get("steps"):
                lines["step"].append((place, [0], [end], {}))
            if curve is not None and curve.seconds:
                note = note if curve.measured else "curves: the duration of the fit divided evenly among its steps"
                lines["seconds"].append((place, curve.seconds, curve.values, {}))
            if run.metrics.get("fit_seconds"):
                lines["seconds"].append((place, [run.metrics["fit_seconds"]], [end], {}))
        fewest, most = row.params
        if fewest > 0:
            errors = {"xerr": (most - fewest) / 2, "yerr": row.deviation}
            lines["parameters"].append((place, [(fewest + most) / 2], [row.mean], errors))
    if not any(curves.get(run) for run in table.runs):
        del lines["step"]
    if len({x[0] for _, x, _, _ in lines["parameters"]}) < 2:
        del lines["parameters"]  # all points would lie on one vertical line
    shown = {against: drawn for against, drawn in lines.items() if any(np.isfinite(y).any() for _, _, y, _ in drawn)}
    return {against: _draw(table, against, drawn, note) for against, drawn in shown.items()}


def _draw(table: ScoreTable, against: str, lines: Sequence[Line], note: str) -> bytes:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    label = {"step": "step", "seconds": "seconds of the fit", "parameters": "parameters per signal"}[against]
    axes.set(xlabel=label, ylabel=f"held-out {table.metric.title}")
    axes.set_title(note if against == "seconds" else "", fontsize="small", color="grey")
    axes.grid(alpha=0.3)
    named: dict[str, Any] = {}
    for place, x, y, errors in lines:
        style = f"{'o' if len(x) == 1 else '.'}{STYLES[place // 10 % len(STYLES)]}"
        handle = axes.errorbar(x, y, **errors, fmt=style, color=f"C{place % 10}", capsize=3)
        named.setdefault(table.fitted[place].name, handle)
    extent = [value for _, x, _, _ in lines for value in x if value > 0]
    axes.set_xscale("log" if against != "step" and max(extent) > 10 * min(extent) else "linear")
    best = next((row for row in table.rows if row.interpolation and not math.isnan(row.mean)), None)
    if best is not None:
        named[best.name] = axes.axhline(best.mean, color="grey", linewidth=1, dashes=(4, 3))
    if len(named) <= MAX_LEGEND_ENTRIES:
        figure.set_figheight(3.6 + 0.2 * len(named))
        # Matplotlib reads a dollar as a formula, and leaves out names that start with an underscore
        names = [f" {name[:80]}".replace("$", r"\$") for name in named]
        figure.legend(list(named.values()), names, loc="outside lower center", fontsize="small")
    return figure_bytes(figure, dpi=120)

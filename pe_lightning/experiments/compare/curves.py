"""Held-out scores during a fit, from the CSV log of a run, and their plots."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.figure import Figure

from pe_lightning.experiments.compare.reading import Run, mean
from pe_lightning.experiments.compare.scores import ScoreTable

__all__ = ["Curve", "plot", "read_curve"]

MOST_NAMES = 20
"""A legend with more entries than this is longer than its plot."""
LONG_NAME = 40
"""Names of more characters stand below one another in a legend; of twice as many, they are cut."""
HEIGHT = 3.6
"""Inches, without the legend."""
STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """Held-out score, the mean over signals, after steps of a fit.

    Args:
        steps: Increasing, counted from 0 as in the log.
        values: One per step, finite.
        seconds: One value per step; ``None`` where the run does not tell.
        measured: Whether the seconds are from the log. Logs of other loggers, and of versions that wrote none, have no
            such column: the seconds of the fit are spread evenly over its steps, after those of an exact solution before
            the first.
    """

    steps: tuple[int, ...]
    values: tuple[float, ...]
    seconds: tuple[float, ...] | None
    measured: bool = False


def read_curve(run: Run) -> Curve | None:
    """The curve of a run; ``None`` if no held-out score was logged.

    Raises:
        ValueError: If a log cannot be read.
    """
    points: dict[int, tuple[float, float | None]] = {}
    # a resumed fit logs to version_1 and so on, from the step of its checkpoint: what had come after that is void
    for path in sorted((run.path / "logs").glob("*/metrics.csv"), key=_version):
        more = _points(path, f"val/{run.metric.name}")
        points = {step: point for step, point in points.items() if not more or step < min(more)} | more
    if not points:
        return None
    steps = tuple(sorted(points))
    values, logged = zip(*(points[step] for step in steps), strict=True)
    if None not in logged:
        return Curve(steps, values, logged, measured=True)
    total, solve, end = (run.metrics.get(key) for key in ("fit_seconds", "solve_seconds", "steps"))
    if total is None or not end:
        return Curve(steps, values, None)
    start = min(solve, total) if isinstance(solve, (int, float)) else 0.0
    return Curve(steps, values, tuple(start + (total - start) * min(1.0, (step + 1) / end) for step in steps))


def _version(path: Path) -> tuple[int, str]:
    number = re.fullmatch(r"version_(\d+)", path.parent.name)
    return (int(number[1]) if number else -1, path.parent.name)


def _points(path: Path, column: str) -> dict[int, tuple[float, float | None]]:
    """Step -> score, and seconds where the log has a column ``seconds``."""
    found: dict[int, tuple[float, float | None]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row.get(column) and row.get("step"):
                    value, seconds = float(row[column]), row.get("seconds")
                    if math.isfinite(value):
                        found[int(row["step"])] = value, float(seconds) if seconds else None
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise ValueError(f"{path.name} of {path.parent.name} cannot be read: {error}") from error
    return found


class _Line(NamedTuple):
    """Points of a row of the table, with error bars where there are any."""

    row: int
    x: Sequence[float]
    y: Sequence[float]
    x_error: Any = None
    y_error: Any = None


def plot(table: ScoreTable, curves: Mapping[Run, Curve | None]) -> dict[str, bytes]:
    """The plots of a table that have something to show: what the score is plotted against -> PNG.

    Args:
        table: The table.
        curves: The curves of those of its runs that logged one.
    """
    steps, seconds, parameters, spread = [], [], [], False
    for place, row in enumerate(table.fitted):
        for run in row.runs:
            curve, fit_seconds = curves.get(run), run.metrics.get("fit_seconds")
            end = mean(run.test.values())
            if curve is not None:
                steps.append(_Line(place, [step + 1 for step in curve.steps], curve.values))
            elif not run.metrics.get("steps") and not math.isnan(end):
                steps.append(_Line(place, [0], [end]))
            if curve is not None and curve.seconds is not None:
                spread = spread or not curve.measured
                seconds.append(_Line(place, curve.seconds, curve.values))
            if fit_seconds and not math.isnan(end):
                seconds.append(_Line(place, [fit_seconds], [end]))
        if row.params[0] > 0 and not math.isnan(row.mean):
            middle = sum(row.params) / 2
            width = [[middle - row.params[0]], [row.params[1] - middle]]
            parameters.append(_Line(place, [middle], [row.mean], width, [row.deviation]))
    found: dict[str, bytes] = {}
    if any(curves.get(run) for run in table.runs):
        found["step"] = _draw(table, "step", steps, log=False)
    if seconds:
        note = "curves: the seconds of the fit spread evenly over its steps" if spread else ""
        found["seconds"] = _draw(table, "seconds of the fit", seconds, note)
    if parameters:
        found["parameters"] = _draw(table, "parameters per signal", parameters)
    return found


def _draw(table: ScoreTable, label: str, lines: Sequence[_Line], note: str = "", log: bool = True) -> bytes:
    figure = Figure(figsize=(6.4, HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=label, ylabel=f"held-out {table.metric.title}")
    axes.set_title(note, fontsize="small", color="grey")
    axes.grid(alpha=0.3)
    named: dict[str, Any] = {}
    for line in lines:
        colour, style = colormaps["tab10"](line.row % 10), STYLES[line.row // 10 % len(STYLES)]
        form = f"{'o' if len(line.x) == 1 else '.'}{style}"
        handle = axes.errorbar(line.x, line.y, line.y_error, line.x_error, form, color=colour, capsize=3)
        named.setdefault(table.fitted[line.row].name, handle)
    axes.set_xscale("log" if log else "linear")
    best = next((row for row in table.rows if row.interpolation and not math.isnan(row.mean)), None)
    if best is not None:
        named[best.name] = axes.axhline(best.mean, color="grey", linewidth=1, dashes=(4, 3))
    if len(named) <= MOST_NAMES:
        columns = 2 if max(map(len, named)) < LONG_NAME else 1
        figure.set_figheight(HEIGHT + 0.2 * -(-len(named) // columns))
        # a dollar would begin a formula, and names that start with an underscore would be left out
        names = [f" {name[: 2 * LONG_NAME]}".replace("$", r"\$") for name in named]
        figure.legend(list(named.values()), names, loc="outside lower center", ncols=columns, fontsize="small")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()

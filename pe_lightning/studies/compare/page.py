"""The files of ``pe-lightning compare --out``: tables, plots of curves, and the page with a viewer of reconstructions.

The page is one file, which loads nothing and is readable without scripts. The template escapes all text, and a content
security policy allows only the script and the style of the page.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from pe_lightning import __version__
from pe_lightning.errors import printable, say, show_metric
from pe_lightning.results.comparisons import Comparison, open_comparison
from pe_lightning.results.run import MISSING, Run
from pe_lightning.results.runs import RECONSTRUCTIONS, file_names, frames_of, slug
from pe_lightning.signals.files import figure_bytes
from pe_lightning.signals.sources.arrays import check_dataset
from pe_lightning.studies.compare.scores import ScoreTable, why_several
from pe_lightning.studies.compare.texts import as_csv, as_json, as_latex, as_markdown
from pe_lightning.studies.statistics import mean

STYLES = ("-", "--", ":", "-.")


class Line(NamedTuple):
    """Index of a row in the table, its points, the lengths of their error bars, half the height of a band around them."""

    place: int
    x: Sequence[float]
    y: Sequence[float]
    errors: dict[str, Any] = {}  # noqa: RUF012
    band: Sequence[float] = ()


def make_report(
    tables: Sequence[ScoreTable], most: int, frames: int, megapixels: float, form: str = "png"
) -> dict[str, str | bytes]:
    """The content of all files by name, with plots of a format; other arguments as in :func:`collect`.

    Logs that cannot be read are warned of.
    """
    single = [table for table in tables if table.data_sets == 1]
    runs = [run for table in single for run in table.runs]
    curves: dict[Run, Curve | None] = {}
    for run in runs:
        try:
            curves[run] = read_curve(run)
        except ValueError as error:
            say(f"pe-lightning: warning: {run.label}: {error}", file=sys.stderr)
    viewers, contents = collect(tables, most, frames, megapixels)
    report: dict[str, str | bytes] = {
        "table.csv": as_csv(tables),
        "table.json": as_json(tables),
        "table.md": as_markdown(tables),
        "table.tex": as_latex(tables),
    }
    sections: list[dict[str, Any]] = []
    for number, (table, viewer) in enumerate(zip(tables, viewers, strict=True), 1):
        plots = {}
        for against, figure in (plot(table, curves) if table in single else {}).items():
            png = figure_bytes(figure, "png", dpi=120)
            name = f"{slug(table.metric.name)}_vs_{against}{f'_{number}' * (number > 1)}.{form}"
            report[name] = png if form == "png" else figure_bytes(figure, form)
            plots[f"Held-out {show_metric(table.metric.name)} against {against}"] = base64.b64encode(png).decode()
        sections.append({"table": table, "plots": plots, "viewer": viewer})
    template, style, script = (
        files(__package__).joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js")
    )
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    report["index.html"] = page.from_string(template).render(
        title=f"{len(runs)} run{'s' * (len(runs) != 1)} compared",
        sections=sections,
        why_several=why_several(tables),
        configured=[run.label for run in runs if run.config is not None],
        differences=_differences(runs),
        signals=[list(viewer.signals.items()) for viewer in viewers],
        contents=contents,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        version=__version__,
        now=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return report


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    configs = [run.settings for run in runs if run.config is not None]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = {printable(key): [printable(str(config.get(key, MISSING))) for config in configs] for key in keys}
    return {key: row for key, row in rows.items() if len(set(row)) > 1}


class Curve(NamedTuple):
    """Held-out score, averaged over signals, after so many steps and seconds of a fit, which are empty if not logged."""

    steps: tuple[int, ...]
    values: tuple[float, ...]
    seconds: tuple[float, ...]


def read_curve(run: Run) -> Curve | None:
    """The curve of a run, whose last point is the score after the fit.

    ``None`` if no held-out score was logged; ValueError if a log cannot be read.
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
    last, score = run.metrics.get("steps") or 0, mean(run.test.values())
    if last > 0 and math.isfinite(score):  # the last logged step of a fit is one below the number of its steps
        timed = all(time is not None for _, time in points.values())
        points = {step: point for step, point in points.items() if step < last - 1}
        points[last] = score, run.metrics.get("fit_seconds") if timed else None
    steps = tuple(sorted(points))
    values, logged = zip(*(points[step] for step in steps), strict=True)
    return Curve(steps, values, () if None in logged else logged)


def mean_curve(curves: Sequence[Curve | None]) -> tuple[Curve, tuple[float, ...]] | None:
    """The mean of the curves of a row's runs, with standard deviations; ``None`` if they are not of the same steps."""
    known = [curve for curve in curves if curve is not None]
    if len(known) < len(curves) or len({curve.steps for curve in known}) != 1:
        return None
    timed = all(curve.seconds for curve in known)
    values, seconds = (
        np.array([getattr(curve, name) for curve in known]) for name in ("values", "seconds" if timed else "steps")
    )
    spread = values.std(0, ddof=1) if len(known) > 1 else np.zeros(len(known[0].steps))
    mean_seconds = tuple(seconds.mean(0).tolist()) if timed else ()
    return Curve(known[0].steps, tuple(values.mean(0).tolist()), mean_seconds), tuple(spread.tolist())


def plot(table: ScoreTable, curves: Mapping[Run, Curve | None]) -> dict[str, Figure]:
    """The plots of a table that have data, by the quantity on the x axis.

    A row of several runs is their mean, with the standard deviation over the runs as a band or as an error bar.
    """
    lines: dict[str, list[Line]] = {"step": [], "seconds": [], "parameters": []}
    for place, row in enumerate(table.fitted):
        each = [curves.get(run) for run in row.runs]
        of_row = mean_curve(each)
        shown = [of_row] if of_row is not None else [(curve, ()) for curve in each if curve is not None]
        for curve, spread in shown:
            lines["step"].append(Line(place, curve.steps, curve.values, band=spread))
            if curve.seconds:
                lines["seconds"].append(Line(place, curve.seconds, curve.values, band=spread))
        over_runs = {} if math.isnan(row.run_deviation) else {"yerr": row.run_deviation}
        if not shown and not any(run.metrics.get("steps") for run in row.runs):
            lines["step"].append(Line(place, [0], [row.mean], over_runs))
        if (seconds := mean(run.metrics.get("fit_seconds") for run in row.runs)) > 0:
            lines["seconds"].append(Line(place, [seconds], [row.mean], over_runs))
        fewest, most = row.params
        if fewest > 0:
            errors = {"yerr": row.deviation, **(over_runs if len(row.test) == 1 else {})}
            lines["parameters"].append(
                Line(place, [(fewest + most) / 2], [row.mean], errors | {"xerr": (most - fewest) / 2})
            )
    if not any(curves.get(run) for run in table.runs):
        del lines["step"]
    if len({line.x[0] for line in lines["parameters"]}) < 2:
        del lines["parameters"]  # all points would lie on one vertical line
    drawn = {against: found for against, found in lines.items() if any(np.isfinite(line.y).any() for line in found)}
    return {against: _draw(table, against, found) for against, found in drawn.items()}


def _draw(table: ScoreTable, against: str, lines: Sequence[Line]) -> Figure:
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    label = {"step": "step", "seconds": "seconds of the fit", "parameters": "parameters per signal"}[against]
    axes.set(xlabel=label, ylabel=f"held-out {table.metric.title}")
    axes.grid(alpha=0.3)
    named: dict[str, Any] = {}
    for line in lines:
        style, colour = f"{'o' if len(line.x) == 1 else '.'}{STYLES[line.place // 10 % len(STYLES)]}", f"C{line.place % 10}"
        handle = axes.errorbar(line.x, line.y, **line.errors, fmt=style, color=colour, capsize=3)
        if any(line.band):
            low, high = np.subtract(line.y, line.band), np.add(line.y, line.band)
            axes.fill_between(line.x, low, high, color=colour, alpha=0.2, linewidth=0)
        named.setdefault(table.fitted[line.place].name, handle)
    extent = [value for line in lines for value in line.x if value > 0]
    if against != "step" and max(extent) > 10 * min(extent):
        _scale_logarithmically(axes, max(extent) / min(extent))
    best = next((row for row in table.rows if row.interpolation and math.isfinite(row.mean)), None)
    if best is not None:
        named[best.name] = axes.axhline(best.mean, color="grey", linewidth=1, dashes=(4, 3))
    if len(named) <= 20:  # a longer legend would be larger than the plot
        figure.set_figheight(3.6 + 0.2 * len(named))
        # Matplotlib reads a dollar as a formula, and leaves out names that start with an underscore
        names = [f" {name[:80]}".replace("$", r"\$") for name in named]
        figure.legend(list(named.values()), names, loc="outside lower center", fontsize="small")
    return figure


def _scale_logarithmically(axes: Axes, ratio: float) -> None:
    """A logarithmic axis with plain numbers: Matplotlib would label 2, 3, 4 and 6 of a decade, one over the other."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ratio < 300 else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


MAX_CHANNELS = 8
"""Channels of a row that are shown."""
DATASETS = ("truth", "reconstruction", "interpolation")
Tile = dict[str, Any]
"""The data that the script needs to show a reconstruction, or the ``reason`` why there is none."""


class Viewer(NamedTuple):
    """The reconstructions of a table: a tile per run for every signal, the first readable tile, and notes."""

    signals: dict[str, list[Tile]]
    first: Tile
    notes: list[str]


def collect(tables: Sequence[ScoreTable], most: int, frames: int, megapixels: float) -> tuple[list[Viewer], dict[str, str]]:
    """Reads the reconstructions of the first signals of every run.

    Args:
        tables: The tables of runs of the same data.
        most: Largest number of signals per run.
        frames: Largest number of frames of a cube.
        megapixels: Limit of all pictures together, by fewer frames, then by scaling. Rows take at most as many bytes.

    Returns:
        A viewer per table, and the pictures (``data:`` URI) and arrays (base64) by the keys in the viewers.
    """
    runs = [run for table in tables for run in table.runs]
    jobs = [(run, *job) for run in runs for job in enumerate(file_names(tuple(run.metrics["signals"]))[:most])]
    contents = _Contents([job[0] for job in jobs], frames, megapixels)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # Pillow releases the interpreter lock while encoding
        tiles = pool.map(lambda job: contents.tile(*job), jobs)  # results are in the order of the jobs
        found = {run: dict(zip(run.signals[:most], tiles, strict=False)) for run in runs}
    return [_viewer(table, found, contents.scale) for table in tables], contents.texts


class _Contents:
    def __init__(self, runs: Sequence[Run], frames: int, megapixels: float) -> None:
        self.texts: dict[str, str] = {}
        cubes = [(1, *run.grid)[-3:] for run in runs if len(run.grid) > 1]

        def pixels(most: int) -> int:
            return sum(min(most, count) * height * width for count, height, width in cubes)

        fitting = (n for n in range(frames, 4, -1) if pixels(n) <= megapixels * 1e6)
        self.frames = next(fitting, min(frames, 4))
        self.scale = min(1.0, (megapixels * 1e6 / max(1, pixels(self.frames))) ** 0.5)
        # truth, reconstruction and error of every channel of a row; 281,250 values take 1.5 MB in base64, like a megapixel
        lines = sum(3 * min(run.metrics["channels"], MAX_CHANNELS) for run in runs if len(run.grid) == 1)
        self.row_values = int(min(65_536, max(512, megapixels * 281_250 / max(1, lines))))

    def picture(self, levels: npt.NDArray[np.uint8]) -> str:
        def encode() -> str:
            image = Image.fromarray(levels[..., 0] if levels.shape[-1] < 3 else levels[..., :3]).convert("RGB")
            if self.scale < 1:
                width, height = (max(1, round(side * self.scale)) for side in image.size)
                image = image.resize((width, height), Image.Resampling.BOX)
            buffer = io.BytesIO()
            # lossless: nobody takes artefacts of a codec for artefacts of a fit; smaller and faster than PNG
            image.save(buffer, "WEBP", lossless=True, method=2, quality=20)
            return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"

        return self._add(levels, encode)

    def array(self, values: npt.NDArray[Any]) -> str:
        return self._add(values, lambda: base64.b64encode(values.tobytes()).decode())

    def _add(self, values: npt.NDArray[Any], encode: Callable[[], str]) -> str:
        key = "p" + hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()[:20]
        if key not in self.texts:
            self.texts[key] = encode()
        return key

    def tile(self, run: Run, index: int, stem: str) -> Tile:
        if len(run.grid) not in (1, 2, 3):
            return {"reason": f"signals of {len(run.grid) or 'unknown'} axes are not shown"}
        name = f"{stem}_comparison.h5"
        try:
            with open_comparison(run.path / RECONSTRUCTIONS, stem, index) as file:
                for dataset in file.datasets.values():
                    path = Path(dataset.file.filename)
                    name = path.name
                    check_dataset(dataset, path, name)
                tile = self._row(file) if len(run.grid) == 1 else self._frames(file, (1, *run.grid)[-3])
                rate = file.attrs.get("rate")
                return tile | {"rate": None if rate is None else float(rate)}
        except FileNotFoundError:
            return {"reason": f"no {name}"}
        except (OSError, ValueError, LookupError, RuntimeError) as error:  # raised by h5py for damaged files
            return {"reason": printable(f"{name} cannot be read: {error}")}

    def _frames(self, file: Comparison, count: int) -> Tile:
        stored, held = {name: file[name] for name in DATASETS if name in file}, file.attrs["frames"]
        truth = stored["truth"]
        parts = min(len(held), self.frames)
        places = [(2 * part + 1) * len(held) // (2 * parts) for part in range(parts)]  # the file may have uneven spacing
        if len(held) == count:
            places = frames_of(count, parts)
        return {
            **{name: [self.picture(pictures[place]) for place in places] for name, pictures in stored.items()},
            "frames": [int(held[place]) for place in places],
            "count": count,
            "what": "frame" if file.attrs.get("media") == "video" else "slice",
            "size": [truth.shape[2], truth.shape[1]],
        }

    def _row(self, file: Comparison) -> Tile:
        count, channels = file["truth"].shape
        lines = {name: file[name][:, :MAX_CHANNELS].T for name in DATASETS if name in file}
        step = 1 if count <= self.row_values else -(-2 * count // self.row_values)
        with np.errstate(invalid="ignore", over="ignore"):
            lines["error"] = lines["reconstruction"] - lines["truth"]
            if "interpolation" in lines:
                lines["interpolation_error"] = lines["interpolation"] - lines["truth"]
        keys = {name: self.array(line if step == 1 else ranges(line, step)) for name, line in lines.items()}
        if step == 1 and "trained" in file:
            keys["trained"] = self.array(file["trained"][()].astype(np.uint8))
        axis, rate = json.loads(file.attrs.get("axis", "null")), file.attrs.get("rate")
        x = {"name": "sample", "start": 1, "delta": 1, "time": False}
        if axis is not None:
            delta = (axis["high"] - axis["low"]) / (axis["size"] - (not axis["periodic"]))
            x = {"name": printable(axis["name"]), "start": axis["low"], "delta": delta, "time": axis["time"]}
        elif rate is not None:
            x = {"name": "seconds", "start": 0, "delta": 1 / float(rate), "time": False}
        low, high = map(float, file.get("range", (0, 1)))
        about = {"count": count, "step": step, "channels": len(lines["truth"]), "all_channels": channels}
        return {**keys, **about, "x": x, "low": low, "high": high}


def ranges(lines: npt.NDArray[np.float32], step: int) -> npt.NDArray[np.float32]:
    """``(C, N)`` -> ``(C, 2, ceil(N / step))``: minimum and maximum of every ``step`` values, without NaN."""
    starts = np.arange(0, lines.shape[1], step)
    return np.stack([np.fmin.reduceat(lines, starts, axis=1), np.fmax.reduceat(lines, starts, axis=1)], axis=1)


def _viewer(table: ScoreTable, found: dict[Run, dict[str, Tile]], scale: float) -> Viewer:
    first = next((tile for run in table.runs for tile in found[run].values() if "reason" not in tile), None)
    signals: dict[str, list[Tile]] = {}
    for row in table.fitted:
        for run in row.runs:
            for name, tile in found[run].items():
                about = {"run": run.label, "group": row.name, "score": run.metric.text(run.test[name], unit=True)}
                signals.setdefault(name, []).append(about | tile)
    for row in [row for row in table.rows if row.interpolation][:1]:  # the best one, which every file contains
        for name, tiles in signals.items():
            holders = [tile for tile in tiles if "interpolation" in tile]
            if holders and name in row.test:
                score, tile = table.metric.text(row.test[name], unit=True), holders[0]
                made = {"reconstruction": tile["interpolation"], "error": tile.get("interpolation_error")}
                tiles.append(tile | made | {"run": row.name, "group": row.name, "score": score})
    if first is None:
        reasons = dict.fromkeys(tile["reason"] for tiles in signals.values() for tile in tiles)
        return Viewer({}, {}, [f"No reconstructions: {', '.join(reasons)}."] if reasons else [])
    total = max(len(run.signals) for run in table.runs)
    notes = [f"{len(signals)} of {total} signals."] if len(signals) < total else []
    if "frames" in first:
        if len(first["frames"]) < first["count"]:
            what = "frames" if first["what"] == "frame" else "slices along the first axis"
            numbers = ", ".join(str(frame + 1) for frame in first["frames"])
            notes.append(f"{len(first['frames'])} of {first['count']} {what}: {numbers}.")
        if scale < 1:
            notes.append(f"Shown at {scale:.0%} of their size; --megapixels raises the limit.")
        notes.append("Error maps are computed from the pictures as shown: clamped to [0, 1], 8 bits.")
    else:
        notes.append("Values are as fitted, not clamped; error is reconstruction − ground truth.")
        if first["step"] > 1:
            notes.append(f"Drawn as the range of every {first['step']} samples, without markers of trained samples.")
        if first["channels"] < first["all_channels"]:
            notes.append(f"Channels 1 to {first['channels']} of {first['all_channels']}.")
    readable = {name: tiles for name, tiles in signals.items() if any("reason" not in tile for tile in tiles)}
    return Viewer(readable, first, notes)

"""Figures of a definition, in the layout of the paper: tables as bars, curves, galleries of signals.

A definition lists its figures under ``layout``; each may name the ``blocks`` that it shows, and so may a panel of curves.
Figures and panels without results are left out. Kinds and their keys:

- ``table``: a panel per block, the value of the paper beside ours, interpolation as lines. ``y``: the result (``psnr``).
- ``curves``: ``panels``, each with ``x``, ``y``, ``series`` (labels or results; a result may be a list), ``title``,
  ``xlabel``, ``ylabel``, ``ylim``, ``log`` (``x``, ``y`` or ``xy``), ``dashed`` (a result, drawn as a dashed line of the
  same colour) and ``marks`` (series -> values of x marked by a star). Rows with the same x and series are averaged, with a
  band of two standard deviations; ``panel`` makes a panel for each value of a label.
- ``gallery``: ``rows`` and ``columns`` are labels, ``rows`` may be ``signal``; a cell shows the result ``image``, or the
  reconstruction of signal number ``signal`` (0), with its score. ``truth: false`` omits the column of the ground truth.
- ``points``: a panel per block of the result ``points``, with the dashed line ``hull``: two lists of coordinates each.
- ``seeds``: a panel per block, of attention tasks: bars of the mean over seeds on each test set, with 95 % t intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullLocator

from pe_lightning.errors import InputError, check_known, show_interpolation
from pe_lightning.results import runs
from pe_lightning.results.comparisons import open_comparison
from pe_lightning.signals.files import save_figure
from pe_lightning.studies.statistics import t_interval
from pe_papers.reproduce.definition import Definition
from pe_papers.reproduce.run import Row

PAPER_COLOUR, OUR_COLOUR = "0.72", "tab:blue"

K = TypeVar("K", bound=Hashable)


def check_layouts(definition: Definition) -> None:
    """Raises InputError for a layout that is invalid for all results."""
    labels = {"signal", *(label for entry in definition.entries() for label in entry.labels)}
    for layout in definition.layout:
        kind = layout.get("kind", "")
        check_known(f"{definition.name}: unknown layout", kind, KINDS, "Kinds")
        definition.check_blocks(_blocks(definition, layout))
        if kind == "curves" and not all({"x", "y"} <= panel.keys() for panel in layout.get("panels") or [{}]):
            raise InputError(f"{definition.name}: a layout of curves has panels, each with x and y")
        for key in ("rows", "columns") if kind == "gallery" else ():
            check_known(f"{definition.name}: {key} of a gallery are no label", layout.get(key, ""), sorted(labels), "Labels")


def draw(definition: Definition, rows: Sequence[Row], folder: Path, remark: str) -> list[Path]:
    """Draws the figures ``NAME.png``, ``NAME-2.png``, ... and the same as PDF.

    Args:
        definition: The definition, which has the layouts.
        rows: The results.
        folder: The output folder.
        remark: Text below each figure.

    Returns:
        The files.
    """
    files = []
    for number, layout in enumerate(definition.layout, 1):
        shown = [row for row in rows if row["block"] in _blocks(definition, layout)]
        if not shown:
            continue
        figure = KINDS[layout["kind"]](definition, layout, shown)
        figure.suptitle(f"{definition.source}: {definition.title}", fontsize=10, wrap=True)
        figure.supxlabel(remark, fontsize=7, wrap=True)
        stem = folder / (definition.name if number == 1 else f"{definition.name}-{number}")
        files += [save_figure(stem.with_name(f"{stem.name}.{form}"), figure) for form in ("png", "pdf")]
    return files


def _blocks(definition: Definition, layout: Mapping[str, Any]) -> list[str]:
    """The blocks that a figure shows: its own, or else the blocks of its panels."""
    return list(
        layout.get("blocks")
        or [name for panel in layout.get("panels") or [{}] for name in panel.get("blocks", definition.blocks)]
    )


def _table(definition: Definition, layout: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    y = layout.get("y", "psnr")
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    figure = Figure(figsize=(1.5 + 3.6 * len(blocks), 4.2), layout="constrained")
    panels = figure.subplots(1, len(blocks), sharey=True, squeeze=False)[0]
    low = min(0.0, *(row[y] for row in rows))
    for axes, block in zip(panels, blocks, strict=True):
        own = [row for row in rows if row["block"] == block]
        for number, row in enumerate(own):
            for side, (key, colour) in enumerate((("paper", PAPER_COLOUR), (y, OUR_COLOUR))):
                value = row.get(key)
                if value is None:
                    continue
                std = row.get("paper_std" if key == "paper" else f"{y}_std")
                at = number + 0.4 * side - 0.2
                axes.bar(at, value, 0.38, color=colour, yerr=std, error_kw={"alpha": 0.4, "lw": 0.8})
                axes.annotate(
                    f"{value:.1f}",
                    (at, max(value, 0)),
                    ha="center",
                    va="bottom",
                    fontsize=6,
                    rotation=90,
                    xytext=(0, 2),
                    textcoords="offset points",
                    bbox={"fc": "white", "ec": "none", "alpha": 0.6, "pad": 0.5},
                )
        scores = {name: entry["test/psnr"] for name, entry in interpolation_of(own).items()}
        for name, score in sorted(scores.items(), key=lambda item: item[1])[-1:]:
            axes.axhline(score, color="black", lw=0.6, ls="--")
            axes.annotate(name, (1, score), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=6)
        axes.set_title(definition.block_title(block), fontsize=8)
        axes.set_xticks(range(len(own)), [_label(row) for row in own], fontsize=8)
    panels[0].set_ylim(low - 1 if low < 0 else 0, 1.12 * panels[0].get_ylim()[1])  # shared, with room for numbers
    panels[0].set_ylabel("held-out PSNR (dB): grey the paper, blue ours", fontsize=8)
    return figure


def interpolation_of(rows: Sequence[Row]) -> dict[str, Row]:
    """Scores of interpolation by method; empty if the rows have different samples, or all samples are known."""
    baselines = [row["baselines"] for row in rows if row.get("baselines") and row.get("protocol") != "all"]
    if not baselines:
        return {}
    same, num_axes = all(entry == baselines[0] for entry in baselines), len(rows[0].get("grid") or ())
    found = {name: entry for name, entry in baselines[0].items() if same and entry.get("test/psnr") is not None}
    return {show_interpolation(name, num_axes): entry for name, entry in found.items()}


def _label(row: Row) -> str:
    hidden = ("block", "seed")
    labels = list(row)[: list(row).index("folder")]
    return "/".join(str(row[key]) for key in labels if key not in hidden and not key.startswith("paper"))


def _curves(definition: Definition, layout: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    panels = []
    for panel in layout["panels"]:
        split, shown = panel.get("panel"), panel.get("blocks", definition.blocks)
        drawn = [row for row in rows if row["block"] in shown]
        values = dict.fromkeys(row[split] if split else None for row in drawn)
        panels += [(panel, value, [row for row in drawn if split is None or row[split] == value]) for value in values]
    columns = min(len(panels), layout.get("columns", 3))
    height = math.ceil(len(panels) / columns)
    figure = Figure(figsize=(1 + 4.2 * columns, 0.8 + 3.4 * height), layout="constrained")
    grid = figure.subplots(height, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes, (panel, value, own) in zip(grid, panels, strict=False):
        log = panel.get("log", "")
        series = panel.get("series")
        curves = points_of(own, panel["x"], panel["y"], series)
        if not curves:
            known = ", ".join(sorted({key for row in own for key in row}))
            raise InputError(
                f"{definition.name}: no result has both {panel['x']!r} and {panel['y']!r}. Results have {known}"
            )
        for name, points in curves.items():
            x, mean, std = np.array(sorted(points), dtype=float).T if _numeric(points) else np.array(points).T
            mean, std = mean.astype(float), std.astype(float)
            (line,) = axes.plot(x, mean, marker="." if len(x) < 60 else None, lw=1, label=definition.shown(series, name))
            if std.any():
                axes.fill_between(x, mean - 2 * std, mean + 2 * std, alpha=0.2, color=line.get_color())
            stars = [star for star in panel.get("marks", {}).get(name, []) if x.min() <= star <= x.max()]
            if stars:
                axes.plot(stars, np.interp(stars, x, mean), "*", ms=9, color=line.get_color())
            if "dashed" in panel:
                theory = points_of(own, panel["x"], panel["dashed"], panel.get("series")).get(name, [])
                axes.plot([x for x, _, _ in theory], [y for _, y, _ in theory], ls="--", lw=1, color=line.get_color())
        axes.set(xlabel=panel.get("xlabel", panel["x"]), ylabel=panel.get("ylabel", panel["y"]))
        axes.set(**{f"{axis}scale": "log" for axis in log})  # a linear scale would replace words by numbers
        if "y" in log:  # 1.2, not 1.2 x 10^0
            axes.yaxis.set_major_formatter(LogFormatter())
            axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
        places = sorted({point for line in axes.get_lines() for point in np.asarray(line.get_xdata()).tolist()})
        numeric = _numeric([(place, 0.0, 0.0) for place in places])
        few = len(places) < 9 and "marks" not in panel and numeric
        # characters of all tick labels of an axis, above which a tick at each value would overlap the next
        few = few and sum(len(f"{place:g}") for place in places) <= 40
        if few and ("x" in log or all(float(place).is_integer() for place in places)):  # a tick at each value
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.xaxis.set_minor_locator(NullLocator())  # minor ticks of a logarithmic y stay
        axes.set_ylim(*panel.get("ylim", (None, None)))
        title = panel.get("title", "")
        title = title if value is None else ", ".join(filter(None, [definition.heading(panel["panel"], value), title]))
        axes.set_title(title, fontsize=9)
        axes.grid(alpha=0.3)
        if panel.get("series"):
            axes.legend(fontsize=7, title=panel["series"], title_fontsize=7)
    return figure


def _numeric(points: Sequence[tuple[Any, float, float]]) -> bool:
    return all(isinstance(x, (int, float)) for x, _, _ in points)


def over_seeds(rows: Sequence[Row]) -> dict[str, Row]:
    """Runs of a task that differ only in their seed, averaged: label -> results.

    ``scores`` has the mean and the half-width of its t interval for each test set (NaN for one seed), ``steps_per_second``
    the mean, ``seeds`` the number of runs, ``paper`` the value of the paper.
    """
    averaged = {}
    for label, group in group_rows(rows, _label).items():
        sets = group[0]["signals"]
        scores = {name: t_interval([row[f"{row['metric']} {name}"] for row in group]) for name in sets}
        # seconds are per test set
        speed = float(np.mean([row["steps"] / (row["seconds"] * len(row["signals"])) for row in group]))
        averaged[label] = {"scores": scores, "steps_per_second": speed, "seeds": len(group), "paper": group[0].get("paper")}
    return averaged


def group_rows(rows: Iterable[Row], key: Callable[[Row], K]) -> dict[K, list[Row]]:
    """Rows by the value of a key, in the order in which the values occur."""
    groups: dict[K, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _seeds(definition: Definition, layout: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    figure = Figure(figsize=(1 + 5.5 * len(blocks), 4.2), layout="constrained")
    for axes, block in zip(figure.subplots(1, len(blocks), squeeze=False)[0], blocks, strict=True):
        own = [row for row in rows if row["block"] == block]
        averaged, sets = over_seeds(own), own[0]["signals"]
        for number, name in enumerate(sets):
            means, halves = zip(*(result["scores"][name] for result in averaged.values()), strict=True)
            at = np.arange(len(averaged)) + 0.8 * (number + 0.5) / len(sets) - 0.4
            axes.bar(at, means, 0.8 / len(sets), yerr=np.nan_to_num(halves), label=name, error_kw={"lw": 0.8})
        axes.set_xticks(range(len(averaged)), list(averaged), fontsize=7, rotation=60, ha="right")
        axes.set_title(definition.block_title(block), fontsize=8)
        axes.set_ylabel(own[0]["metric"], fontsize=8)
        axes.set_ylim(0, 1.15 * axes.get_ylim()[1])  # room for the names of the test sets
        axes.legend(fontsize=7, ncols=len(sets), loc="upper center")
    return figure


def points_of(rows: Sequence[Row], x: str, y: str, series: str | None) -> dict[str, list[tuple[Any, float, float]]]:
    """Points of curves: series -> x, mean and standard deviation of y over the rows with that x."""
    known = [row for row in exploded(rows) if row.get(y) is not None and row.get(x) is not None]
    curves = {}
    for name, own in group_rows(known, lambda row: str(row.get(series)) if series else "").items():
        values = {at: [row[y] for row in group] for at, group in group_rows(own, lambda row: row[x]).items()}
        curves[name] = [(at, float(np.mean(ys)), float(np.std(ys))) for at, ys in values.items()]
    return curves


def exploded(rows: Sequence[Row]) -> list[Row]:
    """One row per entry of results that are lists of equal length; without pictures and results per signal."""
    result = []
    for row in rows:
        plain = {key: value for key, value in row.items() if not isinstance(value, (list, dict, Path))}
        hidden = (*(key for key in row if key.endswith("_per_signal")), "signals", "grid", "image", "points", "hull")
        lists = {key: value for key, value in row.items() if isinstance(value, list) and key not in hidden}
        if lists:
            result += [{**plain, **dict(zip(lists, point, strict=True))} for point in zip(*lists.values(), strict=True)]
        else:
            result.append(plain)
    return result


def _gallery(definition: Definition, layout: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    if layout["rows"] == "signal":
        rows = [{**row, "signal": signal} for row in rows for signal in range(len(row["signals"]))]
    across, down = (list(dict.fromkeys(row[layout[key]] for row in rows)) for key in ("columns", "rows"))
    truth = layout.get("truth", "image" not in rows[0])
    line = "image" not in rows[0] and len(rows[0]["grid"]) == 1
    width, height = (3.2, 1.8) if line else (1.9, 2.05)
    figure = Figure(figsize=(0.5 + width * (len(across) + truth), 0.6 + height * len(down)), layout="constrained")
    grid = figure.subplots(len(down), len(across) + truth, squeeze=False)
    for axes in grid.ravel():
        axes.set(xticks=[], yticks=[])
        axes.set_frame_on(False)
    for row in rows:
        y, x = down.index(row[layout["rows"]]), across.index(row[layout["columns"]])
        signal = row.get("signal", layout.get("signal", 0))
        _show(grid[y, x + truth], row, "reconstruction", signal)
        if truth and (y == 0 or layout["rows"] == "signal"):
            _show(grid[y, 0], row, "truth", signal)
            grid[y, 0].set_title("ground truth", fontsize=8)
        if "psnr_per_signal" in row:
            score = row["psnr_per_signal"][signal]
            grid[y, x + truth].set_xlabel(
                f"PSNR: {score:.2f}" + (f" (paper {row['paper']:.2f})" if row.get("paper") else ""), fontsize=7
            )
    for x, name in enumerate(across):
        grid[0, x + truth].set_title(definition.heading(layout["columns"], name), fontsize=8)
    for y, name in enumerate(down):
        grid[y, int(truth)].set_ylabel(f"{name}", fontsize=8)
    return figure


def _points(definition: Definition, layout: Mapping[str, Any], rows: Sequence[Row]) -> Figure:
    figure = Figure(figsize=(1 + 3.4 * len(rows), 3.6), layout="constrained")
    for axes, row in zip(figure.subplots(1, len(rows), sharex=True, sharey=True, squeeze=False)[0], rows, strict=True):
        axes.plot(*row["points"], ".", ms=3)
        axes.plot(*row["hull"], "--", color="tab:red", lw=1)
        axes.set_title(definition.block_title(row["block"]), fontsize=8)
        axes.set_aspect("equal")
    return figure


def _show(axes: Axes, row: Row, what: str, signal: int) -> None:
    if "image" in row:
        axes.imshow(np.array(row["image"], dtype=float), cmap="viridis")
        return
    stem = runs.file_names(tuple(row["signals"]))[signal]
    with open_comparison(row["folder"] / runs.RECONSTRUCTIONS, stem, signal) as file:
        values = np.array(file[what])
        if values.ndim == 2:
            x = np.arange(len(values)) / len(values)
            axes.plot(x, np.array(file["truth"])[:, 0], lw=0.8, color="0.5")
            if what != "truth":
                axes.plot(x, values[:, 0], lw=0.8)
            axes.set_ylim(-0.2, 1.2)
            return
    picture = values[len(values) // 2]
    axes.imshow(picture[..., 0] if picture.shape[-1] == 1 else picture, cmap="gray", vmin=0, vmax=255)


KINDS: dict[str, Callable[[Definition, Mapping[str, Any], Sequence[Row]], Figure]] = {
    "table": _table,
    "curves": _curves,
    "gallery": _gallery,
    "points": _points,
    "seeds": _seeds,
}

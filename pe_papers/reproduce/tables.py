"""Results as CSV and as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from pe_papers.reproduce.definition import Definition
from pe_papers.reproduce.layout import exploded, group_rows, interpolation_of, over_seeds, points_of
from pe_papers.reproduce.run import Row


def with_interpolation(rows: Sequence[Row]) -> list[Row]:
    """The rows with their difference from the paper, followed by rows of interpolation, for each set of signals."""
    result = [
        {**row, "difference": row["psnr"] - row["paper"]} if row.get("paper") and row.get("psnr") else row for row in rows
    ]
    sets = group_rows((row for row in rows if row.get("baselines")), lambda row: str(row["signals"]))
    for own in sets.values():
        of = f", {own[0]['block']}" if len(sets) > 1 else ""
        result += [
            {"block": f"{name} interpolation{of}", "psnr": entry["test/psnr"], "psnr_std": entry["test/psnr_std"]}
            for name, entry in interpolation_of(own).items()
        ]
    return result


def as_csv(rows: Sequence[Row], remark: dict[str, Any]) -> str:
    """All results as CSV: one line per row, or one line per entry of results that are lists.

    Args:
        rows: Labels and results.
        remark: Columns with the same value in every line.
    """
    lines = [{**remark, **row} for row in exploded(rows)]
    return str(pd.DataFrame(lines, dtype=object).to_csv(index=False, lineterminator="\n"))


def as_markdown(definition: Definition, rows: Sequence[Row], remarks: Sequence[str]) -> str:
    """The title, the remarks and a table per layout: values of the paper, ours and their differences, or curves."""
    parts = [f"## {definition.source}: {definition.title}", *remarks]
    for layout in definition.layout:
        shown = [row for row in rows if "folder" not in row or row["block"] in layout.get("blocks", definition.blocks)]
        if layout["kind"] == "curves":
            of = ", ".join(map(definition.block_title, layout.get("blocks", ())))
            for panel in layout["panels"]:
                parts += _curve_tables(definition, shown, panel, f"{of}: " if of else "")
        elif layout["kind"] == "seeds":
            parts += [part for block in definition.blocks for part in _seed_table(definition, block, shown)]
        elif any("psnr" in row for row in shown) and (scores := _scores(definition, shown)) not in parts:
            parts.append(scores)  # a gallery and a table can show the same cells
    return "\n\n".join(parts) + "\n"


def _scores(definition: Definition, rows: Sequence[Row]) -> str:
    known = ("paper", "paper_std", "paper_seconds", "folder", "seed")
    labels = list(dict.fromkeys(k for row in rows if "folder" in row for k in list(row)[: list(row).index("folder")]))
    labels = [key for key in labels if key not in known]
    titles = [*labels, "paper (dB)", "ours (dB)", "difference", "parameters", "seconds per signal", "paper (s)"]
    lines = []
    for row, seeds in _over_seeds(rows, labels):
        block = row["block"]
        row = row | {"block": definition.block_title(block) if block in definition.blocks else block}
        lines.append(
            [
                *(str(row.get(key, "")) for key in labels),
                _number(row.get("paper"), row.get("paper_std")),
                _number(row.get("psnr"), row.get("psnr_std")) + (f" ({seeds})" if seeds else ""),
                "" if row.get("difference") is None else f"{row['difference']:+.2f}",
                f"{row['parameters']:,}" if row.get("parameters") else "",
                "" if row.get("seconds") is None else f"{row['seconds']:.2f}",
                "" if row.get("paper_seconds") is None else f"{row['paper_seconds']:.2f}",
            ]
        )
    return _markdown(titles, lines)


def _over_seeds(rows: Sequence[Row], labels: Sequence[str]) -> list[tuple[Row, str]]:
    """Rows that differ only in their seed, averaged, each with the range of their scores as text."""
    averaged = []
    for group in group_rows(rows, lambda row: tuple(str(row.get(label)) for label in labels)).values():
        row = dict(group[0])
        for key in ("psnr", "psnr_std", "difference", "seconds"):
            values = [other[key] for other in group if other.get(key) is not None]
            row[key] = math.fsum(values) / len(values) if values else None
        scores = [other["psnr"] for other in group if other.get("psnr") is not None]
        spread = f"{min(scores):.2f} to {max(scores):.2f}, {len(scores)} seeds" if len(scores) > 1 else ""
        averaged.append((row, spread))
    return averaged


def _seed_table(definition: Definition, block: str, rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["block"] == block]
    if not own:
        return []
    titles = [str(own[0]["metric"]), *own[0]["signals"], "seeds", "steps per second", "paper"]
    lines = [
        [
            label,
            *(f"{mean:.3f}" + f" ± {half:.3f}" * (not math.isnan(half)) for mean, half in found["scores"].values()),
            str(found["seeds"]),
            f"{found['steps_per_second']:.1f}",
            _number(found["paper"], None),
        ]
        for label, found in over_seeds(own).items()
    ]
    return [f"{definition.block_title(block)}:", _markdown(titles, lines)]


def _curve_tables(definition: Definition, rows: Sequence[Row], panel: dict[str, Any], of: str) -> list[str]:
    """A table per panel: a line per x, or a selection of them, a column per series, and the deviation from theory."""
    rows = [row for row in rows if "folder" in row]
    split, theory = panel.get("panel"), panel.get("dashed")
    parts = []
    for value in dict.fromkeys(row[split] for row in rows if split in row) if split else [None]:
        own = [row for row in rows if value is None or row.get(str(split)) == value]
        curves = points_of(own, panel["x"], panel["y"], panel.get("series"))
        at = {name: {x: _number(mean, std) for x, mean, std in points} for name, points in curves.items()}
        if not curves:  # cells of other layouts, or not run yet
            continue
        xs = list(dict.fromkeys(x for points in at.values() for x in points))
        if not any(isinstance(x, str) for x in xs):
            xs.sort()
        # lines of the table of a curve; the CSV file has all points
        xs = xs[:: math.ceil(len(xs) / 25)]
        one = "" if value is None else f", {definition.heading(str(split), value)}"
        parts.append(f"{of}{panel.get('title') or panel['y']}{one}:")
        lines = [
            [f"{x:.4g}" if isinstance(x, float) else str(x), *(points.get(x, "") for points in at.values())] for x in xs
        ]
        if theory:
            expected = points_of(own, panel["x"], theory, panel.get("series"))
            lines.append(["largest deviation from theory", *(_deviation(curves[name], expected.get(name)) for name in at)])
        first = panel.get("xlabel", panel["x"])
        names = [definition.shown(panel.get("series"), name or panel["y"]) for name in at]
        parts.append(_markdown([first, *names], lines))
    return parts


def _deviation(measured: Sequence[tuple[Any, float, float]], expected: Sequence[tuple[Any, float, float]] | None) -> str:
    if not expected:
        return "–"
    known = {x: mean for x, mean, _ in expected}
    far = max(abs(mean - known[x]) for x, mean, _ in measured if x in known)
    return f"{100 * far / max(map(abs, known.values())):.1f} %"


def _number(value: float | None, deviation: float | None) -> str:
    if value is None:
        return "–"
    exact = not deviation or deviation < 1e-9 * abs(value)  # the mean of equal numbers
    return f"{value:.2f}" if exact else f"{value:.2f} ± {deviation:.2f}"


def _markdown(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table without empty columns."""
    filled = [index for index, column in enumerate(zip(*lines, strict=True)) if set(column) - {"", "–"}]
    rows = [[row[index] for index in filled] for row in (titles, ["---"] * len(titles), *lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)

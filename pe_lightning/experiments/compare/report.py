"""The files of ``--out``: tables, plots and the page.

The page is one file, which fetches nothing and can be read without scripts. The template escapes everything that comes from
a run, and a content security policy lets only the page's own script and style run.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from pe_lightning import __version__
from pe_lightning.errors import InputError
from pe_lightning.experiments.compare.curves import Curve, plot, read_curve
from pe_lightning.experiments.compare.keys import differences
from pe_lightning.experiments.compare.reading import Run
from pe_lightning.experiments.compare.reconstructions import collect
from pe_lightning.experiments.compare.scores import Row, ScoreTable, why_several
from pe_lightning.experiments.compare.table import as_csv, as_markdown, cells, footnotes
from pe_lightning.runs import slug, write_atomically

__all__ = ["write_report"]

FOREST_WIDTH = 112
"""Pixels from the lowest to the highest end of the intervals of a table."""


def write_report(
    folder: Path, tables: Sequence[ScoreTable], by: str | None, pictures: int, frames: int, megapixels: float
) -> tuple[str, ...]:
    """Writes ``index.html``, ``table.csv``, ``table.md`` and ``<metric>_vs_*.png``, each at once or not at all.

    Of an earlier report, plots that this one does not have are removed; other files are left alone.

    Args:
        folder: Where to; made if need be.
        tables: At least one.
        by: What rows are grouped by.
        pictures: How many signals per run are shown.
        frames: How many frames of a video, or slices of a volume.
        megapixels: How much of them.

    Returns:
        What could not be read.

    Raises:
        InputError: If the files cannot be written.
    """
    curves: dict[Run, Curve] = {}
    problems = []
    runs = [run for table in tables for run in table.runs]
    for run in runs:
        try:
            curve = read_curve(run)
        except ValueError as error:
            problems.append(f"{run.label}: {error}")
        else:
            curves |= {run: curve} if curve is not None else {}
    plots: dict[str, bytes] = {}
    sections = []
    viewers, contents = collect(tables, pictures, frames, megapixels)
    for number, (table, viewer) in enumerate(zip(tables, viewers, strict=True), 1):
        figures = {}
        for against, content in plot(table, curves).items():
            plots[f"{slug(table.metric.name)}_vs_{against}{f'_{number}' * (number > 1)}.png"] = content
            figures[f"Held-out {table.metric.name.upper()} against {against}"] = base64.b64encode(content).decode()
        rows = [(row, cells(table, row, by), _forest(table, row)) for row in table.rows]
        sections.append({"table": table, "rows": rows, "plots": figures, "viewer": viewer})
    page = _render(sections, tables, by, contents, runs)
    written: dict[str, str | bytes] = {"table.csv": as_csv(tables), "table.md": as_markdown(tables, by), **plots}
    ours = "|".join({"psnr", *(re.escape(slug(table.metric.name)) for table in tables)})
    try:
        for name, text in {**written, "index.html": page}.items():
            write_atomically(folder / name, text)
        for entry in folder.iterdir():
            if re.fullmatch(rf"({ours})_vs_(step|seconds|parameters)(_\d+)?\.png", entry.name) and entry.name not in plots:
                entry.unlink()
    except OSError as error:
        raise InputError(f"cannot write the report to {str(folder)!r}: {error.strerror or error}") from error
    return tuple(problems)


def _render(
    sections: Sequence[Mapping[str, Any]],
    tables: Sequence[ScoreTable],
    by: str | None,
    contents: Mapping[str, str],
    runs: Sequence[Run],
) -> str:
    template, style, script = (
        files(__package__).joinpath(f"page.{suffix}").read_text("utf-8") for suffix in ("html", "css", "js")
    )
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(
        sections=sections,
        by=by,
        footnotes=footnotes,
        why_several=why_several(tables) if len(tables) > 1 else "",
        count=f"{len(runs)} run{'s' * (len(runs) != 1)}",
        configured=[run.label for run in runs if run.config is not None],
        differences=differences(runs),
        signals=[list(section["viewer"].signals.items()) for section in sections],
        contents=contents,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        version=__version__,
        now=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _forest(table: ScoreTable, row: Row) -> dict[str, float]:
    """Where the interval of a row is drawn beside the line of no difference, in pixels; nothing if it has none."""
    ends = [0.0]
    for found in filter(None, table.differences.values()):
        width = 0 if math.isnan(found.half_width) else found.half_width
        ends += [found.mean - width, found.mean + width]
    difference, low, high = table.differences[row.name], min(ends), max(ends)
    if difference is None or high <= low:
        return {}
    width = 0 if math.isnan(difference.half_width) else difference.half_width
    values = {"zero": 0.0, "low": difference.mean - width, "mean": difference.mean, "high": difference.mean + width}
    return {name: round(4 + FOREST_WIDTH * (value - low) / (high - low), 1) for name, value in values.items()}

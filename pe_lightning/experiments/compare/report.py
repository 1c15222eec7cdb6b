"""The files of ``--out``: tables, plots and the page.

The page is one file, which fetches nothing and can be read without scripts. The template escapes everything that comes from
a run, and a content security policy lets only the page's own script and style run.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
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
from pe_lightning.experiments.compare.scores import Difference, Row, ScoreTable, why_several
from pe_lightning.experiments.compare.table import as_csv, as_markdown, cells
from pe_lightning.runs import slug, write_atomically

__all__ = ["write_report"]

FOREST_WIDTH = 112
"""Pixels from the lowest to the highest end of the intervals of a table."""


def write_report(
    folder: Path, tables: Sequence[ScoreTable], by: str | None, pictures: int, frames: int, megapixels: float
) -> tuple[str, ...]:
    """Writes ``index.html``, ``table.csv``, ``table.md`` and ``<metric>_vs_*.png``, each at once or not at all.

    Of an earlier report, plots that this one does not have are removed; other files are left alone. The options are those of
    the verb.

    Returns:
        What could not be read.

    Raises:
        InputError: If the files cannot be written.
    """
    runs = [run for table in tables for run in table.runs]
    curves: dict[Run, Curve | None] = {}
    problems = []
    for run in runs:
        try:
            curves[run] = read_curve(run)
        except ValueError as error:
            problems.append(f"{run.label}: {error}")
    viewers, contents = collect(tables, pictures, frames, megapixels)
    plots: dict[str, bytes] = {}
    sections: list[dict[str, Any]] = []
    for number, (table, viewer) in enumerate(zip(tables, viewers, strict=True), 1):
        figures = {}
        for against, png in plot(table, curves).items():
            plots[f"{slug(table.metric.name)}_vs_{against}{f'_{number}' * (number > 1)}.png"] = png
            figures[f"Held-out {table.metric.name.upper()} against {against}"] = base64.b64encode(png).decode()
        rows = [(row, cells(table, row, by), _forest(table, row)) for row in table.rows]
        sections.append({"table": table, "rows": rows, "plots": figures, "viewer": viewer})
    template, style, script = (
        files(__package__).joinpath(f"page.{end}").read_text("utf-8") for end in ("html", "css", "js")
    )
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    html = page.from_string(template).render(
        sections=sections,
        by=by,
        why_several=why_several(tables),
        count=f"{len(runs)} run{'s' * (len(runs) != 1)}",
        configured=[run.label for run in runs if run.config is not None],
        differences=differences(runs),
        signals=[list(viewer.signals.items()) for viewer in viewers],
        contents=contents,
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}",
        version=__version__,
        now=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    written: dict[str, str | bytes] = {"table.csv": as_csv(tables), "table.md": as_markdown(tables, by), **plots}
    written["index.html"] = html
    names = "|".join({"psnr", *(re.escape(slug(table.metric.name)) for table in tables)})
    try:
        for name, content in written.items():
            write_atomically(folder / name, content)
        for entry in folder.iterdir():
            if re.fullmatch(rf"({names})_vs_(step|seconds|parameters)(_\d+)?\.png", entry.name) and entry.name not in plots:
                entry.unlink()
    except OSError as error:
        raise InputError(f"cannot write the report to {str(folder)!r}: {error.strerror or error}") from error
    return tuple(problems)


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _forest(table: ScoreTable, row: Row) -> dict[str, float]:
    """Where the interval of a row is drawn beside the line of no difference, in pixels; nothing if it has none."""

    def ends(difference: Difference) -> tuple[float, float]:
        width = difference.half_width if difference.signals > 1 else 0.0
        return difference.mean - width, difference.mean + width

    difference = table.difference(row)
    every = [0.0, *(end for found in map(table.difference, table.rows) if found is not None for end in ends(found))]
    if difference is None or min(every) == max(every):
        return {}
    low, high = ends(difference)
    scale = FOREST_WIDTH / (max(every) - min(every))
    places = {"zero": 0.0, "low": low, "mean": difference.mean, "high": high}
    return {name: round(4 + scale * (value - min(every)), 1) for name, value in places.items()}

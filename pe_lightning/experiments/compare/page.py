"""The page of a report: one file, nothing fetched, readable without scripts.

Everything that comes from a run is escaped where it is put in: :func:`_text` in HTML, :func:`_json` inside a script element.
What is shown of reconstructions is put together in :mod:`pe_lightning.experiments.compare.viewers`.
A content security policy lets only the page's own script and style run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.resources import files

from pe_lightning import __version__
from pe_lightning.experiments.compare.album import Album
from pe_lightning.experiments.compare.reading import Run, printable
from pe_lightning.experiments.compare.scores import Row, Scores, why_several
from pe_lightning.experiments.compare.table import COLUMNS, footnotes
from pe_lightning.experiments.compare.viewers import about, viewers_of, why_none

__all__ = ["render"]

PLOT_TITLES = {
    "psnr_vs_step": "Held-out PSNR against steps",
    "psnr_vs_seconds": "Held-out PSNR against seconds",
    "psnr_vs_parameters": "Held-out PSNR against parameters",
}
SCRIPTS = ("page.js", "pictures.js", "lines.js", "rows.js")
"""One script, in this order."""
SORTED_BY = "test PSNR (dB)"


def render(
    tables: Sequence[Scores],
    by: str | None,
    plots: Sequence[Mapping[str, bytes]],
    album: Album,
    differences: Mapping[str, Sequence[str]],
    runs: Sequence[Run],
) -> str:
    """The page as text.

    Args:
        tables: At least one.
        by: What rows are grouped by.
        plots: For every table its plots, by file name.
        album: The reconstructions.
        differences: Configuration keys with one value per run that has a configuration.
        runs: All runs.
    """
    style, *scripts = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", *SCRIPTS))
    script = '"use strict";\n' + "\n".join(scripts)
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}"
    count = f"{len(runs)} run" + "s" * (len(runs) != 1)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
        f"<title>{count} compared</title><style>{style}</style></head><body>",
        f"<header><h1>{count} compared</h1><p>pe-lightning {__version__}, {_now()}</p></header><main>",
    ]
    if len(tables) > 1:
        parts.append(f'<p class="warning">{_text(why_several(tables))}</p>')
    viewers: list[dict[str, object]] = []
    for number, scores in enumerate(tables):
        own = viewers_of(scores, album)
        numbers = range(len(viewers), len(viewers) + len(own))
        viewers += own
        parts += _section(numbers, scores, by, plots[number], album)
    parts += _settings(differences, [run for run in runs if run.config is not None])
    parts.append("</main>")
    parts.append(f'<script type="application/json" id="viewers">{_json(viewers)}</script><script>{script}</script>')
    # last, so that the tables can be read and sorted while the pictures are still coming in
    parts += [f'<script type="text/plain" id="{key}">{content}</script>' for key, content in album.contents.items()]
    return "\n".join(parts) + "\n</body></html>\n"


def _section(viewers: Sequence[int], scores: Scores, by: str | None, plots: Mapping[str, bytes], album: Album) -> list[str]:
    data = f"data <code>{_text(printable(scores.fingerprint or 'unknown'))}</code>"
    parts = [f'<section><h2>{_text(scores.title)}</h2><p class="data">{data}</p>', *_table(scores, by)]
    parts.append("<ul class=notes>" + "".join(f"<li>{_text(note)}</li>" for note in footnotes(scores)) + "</ul>")
    if plots:
        parts.append('<div class="plots">')
        for name, content in plots.items():
            title = next(title for stem, title in PLOT_TITLES.items() if name.startswith(stem))
            uri = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            parts.append(f'<figure><img src="{uri}" alt="{title}"><figcaption>{title}</figcaption></figure>')
        parts.append("</div>")
    if viewers:
        parts.append("<h3>Reconstructions</h3>")
        noscript = "<noscript><p>The reconstructions need JavaScript.</p></noscript>"
        parts += [f'<div class="viewer" data-viewer="{number}">{noscript}</div>' for number in viewers]
        parts.append(f'<p class="data">{_text(about(scores, album))}</p>')
    else:
        reasons = why_none(scores, album)
        parts += [f'<p class="data">No reconstructions: {_text(reasons)}.</p>'] if reasons else []
    return [*parts, "</section>"]


def _table(scores: Scores, by: str | None) -> list[str]:
    columns = [column for column in COLUMNS if by is not None or column.title != "runs"]
    heads = [_head(by or "run", "none", "name")]
    heads += [_head(column.title, "descending" if column.title == SORTED_BY else "none", "number") for column in columns]
    parts = ['<div class="scroll"><table class="scores"><thead><tr>', *heads, "</tr></thead><tbody>"]
    bounds = _bounds(scores)
    for row in scores.rows:
        kind = "interpolation" if row.interpolation else "baseline" if row is scores.baseline else ""
        members = "" if by is None or row.interpolation else "\n".join(run.label for run in row.runs)
        title = f' title="{_text(members)}"' if members else ""
        parts.append(f'<tr class="{kind}"><th scope="row" data-order="{_text(row.name)}"{title}>{_text(row.name)}</th>')
        for column in columns:
            order = column.order(scores, row)
            value = "" if order is None else f"{order:.17g}"
            text = _text(column.text(scores, row))
            if column.title.startswith("difference"):
                text = f'<div class="cell">{_forest(scores, row, bounds)}<span>{text}</span></div>'
            parts.append(f'<td data-order="{value}">{text}</td>')
        parts.append("</tr>")
    return [*parts, "</tbody></table></div>"]


def _head(title: str, order: str, kind: str) -> str:
    return f'<th scope="col" class="{kind}" aria-sort="{order}"><button type="button">{_text(title)}</button></th>'


def _bounds(scores: Scores) -> tuple[float, float]:
    ends = [0.0]
    for found in scores.differences.values():
        if found is not None:
            ends += [found.mean - (found.half_width or 0), found.mean + (found.half_width or 0)]
    return min(ends), max(ends)


def _forest(scores: Scores, row: Row, bounds: tuple[float, float]) -> str:
    """The interval as a line with a dot at the mean, beside a line at no difference."""
    found, (low, high) = scores.differences[row.name], bounds
    if found is None or high <= low:
        return ""

    def place(value: float) -> str:
        return f"{4 + 112 * (value - low) / (high - low):.1f}"

    width, zero = found.half_width or 0, place(0)
    ends = f'x1="{place(found.mean - width)}" x2="{place(found.mean + width)}"'
    return (
        '<svg class="forest" viewBox="0 0 120 16" width="120" height="16" aria-hidden="true">'
        f'<line class="zero" x1="{zero}" x2="{zero}" y1="0" y2="16"/><line class="interval" {ends} y1="8" y2="8"/>'
        f'<circle cx="{place(found.mean)}" cy="8" r="3"/></svg>'
    )


def _settings(differences: Mapping[str, Sequence[str]], runs: Sequence[Run]) -> list[str]:
    if len(runs) < 2:
        return []
    parts = ["<section><h2>Configuration, where it differs</h2>"]
    if not differences:
        return [*parts, "<p>Nowhere.</p></section>"]
    heads = "".join(f'<th scope="col">{_text(name)}</th>' for name in ["key", *(run.label for run in runs)])
    parts.append(f'<div class="scroll"><table class="settings"><thead><tr>{heads}</tr></thead><tbody>')
    for key, values in differences.items():
        cells = "".join(f"<td>{_text(value)}</td>" for value in values)
        parts.append(f'<tr><th scope="row">{_text(key)}</th>{cells}</tr>')
    return [*parts, "</tbody></table></div></section>"]


def _text(value: str) -> str:
    return html.escape(value, quote=True)


def _json(value: object) -> str:
    """JSON that cannot end or nest a script element: ``<`` is not left in it."""
    return json.dumps(value).replace("<", "\\u003c")


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")

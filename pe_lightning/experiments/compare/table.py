"""A table of scores in the terminal, as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.experiments.compare.reading import MISSING, mean, printable
from pe_lightning.experiments.compare.scores import CONFIDENCE, Row, ScoreTable, why_several

__all__ = ["Cell", "as_csv", "as_markdown", "cells", "print_scores"]


class Cell(NamedTuple):
    """A cell of a table.

    Args:
        key: Its column in CSV.
        heading: Its column elsewhere.
        text: What is shown.
        value: The number that rows are sorted by; NaN if there is none.
        in_terminal: Whether the column is shown in a terminal, too.
    """

    key: str
    heading: str
    text: str
    value: float
    in_terminal: bool = True


def cells(table: ScoreTable, row: Row, by: str | None) -> list[Cell]:
    """What stands behind the name of a row: the same columns for all rows of a table; the first one only for groups."""
    metric, difference = table.metric, table.difference(row)
    spread = f" ± {metric.text(row.deviation)}" if len(row.test) > 1 and not math.isnan(row.mean) else ""
    ssim, train = (mean(row.scores(key).values()) for key in ("test/ssim", f"train/{metric.name}"))
    fewest, most = row.params
    runs = math.nan if row.interpolation else len(row.runs)
    interval = f" [{metric.text(difference.low, '+')}, {metric.text(difference.high, '+')}]" * (difference.signals > 1)
    change = "baseline" if row is table.baseline else f"{metric.text(difference.mean, '+')}{interval}"
    units = ", ".join(filter(None, [metric.unit, f"{CONFIDENCE:.0%} CI"]))
    found = [
        Cell("runs", "runs", _number(runs, "d"), runs),
        Cell(f"test_{metric.name}", f"test {metric.title}", f"{metric.text(row.mean)}{spread}", row.mean),
        Cell("difference", f"difference ({units})", change, difference.mean),
        Cell("test_ssim", "SSIM", _number(ssim, ".4f"), ssim, in_terminal=False),
        Cell(f"train_{metric.name}", f"train {metric.title}", metric.text(train), train, in_terminal=False),
        Cell("num_params_min", "parameters", _number(fewest, ",") + (f" to {most:,}" if most > fewest else ""), fewest),
        Cell("fit_seconds", "fit seconds", _number(row.seconds, ".2f"), row.seconds),
    ]
    return found if by is not None else found[1:]


def _number(value: float, form: str) -> str:
    return MISSING if math.isnan(value) else format(value, form)


def print_scores(tables: Sequence[ScoreTable], by: str | None) -> None:
    """Prints every table, its notes below it; ``by`` is what rows are grouped by."""
    console = Console() if Console().is_terminal else Console(width=160)
    console.width = max(console.width, 80)
    if why_several(tables):
        console.print(Text(f"{why_several(tables)}\n"), style="yellow")
    for scores in tables:
        console.print(Text(f"{scores.title}; data {scores.fingerprint}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(Text(by or "run"), overflow="fold")
        for cell in cells(scores, scores.baseline, by):
            if cell.in_terminal:
                heading = Text(cell.heading.replace(" ", "\n", 1))
                table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
        for row in scores.rows:
            texts = [Text(cell.text) for cell in cells(scores, row, by) if cell.in_terminal]
            style = "dim" if row.interpolation else "bold" if row is scores.baseline else ""
            table.add_row(Text(row.name), *texts, style=style)
        console.print(table, *map(Text, scores.notes), "", sep="\n")


def as_csv(tables: Sequence[ScoreTable]) -> str:
    """All tables with all digits, one row each, numbers in columns of their own; empty where there is none."""
    records = []
    for number, table in enumerate(tables, 1):
        for row in table.rows:
            difference = table.difference(row)
            record = {
                "table": number,
                "data_fingerprint": table.fingerprint,
                "name": row.name,
                "interpolation": row.interpolation,
                "signals": len(row.test),
                **{cell.key: cell.value for cell in cells(table, row, "run")},
                f"test_{table.metric.name}_std": row.deviation,
                "num_params_max": row.params[1],
                "baseline": table.baseline.name,
                "difference_low": difference.low,
                "difference_high": difference.high,
                "difference_signals": difference.signals,
                "reason": row.reason,
                "run_dirs": "" if row.interpolation else ";".join(printable(run.path) for run in row.runs),
            }
            records.append({key: "" if value != value else value for key, value in record.items()})  # NaN
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for record in records for key in record)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()


def as_markdown(tables: Sequence[ScoreTable], by: str | None) -> str:
    """All tables as in the terminal, with every column."""
    lines = [f"{_escaped(why_several(tables))}\n"] if why_several(tables) else []
    for table in tables:
        headings = [_escaped(by or "run"), *(cell.heading for cell in cells(table, table.baseline, by or "run"))]
        lines += [f"### {_escaped(table.title)}; data {_escaped(table.fingerprint)}", ""]
        lines += [f"| {' | '.join(headings)} |", f"| --- |{' ---: |' * (len(headings) - 1)}"]
        for row in table.rows:
            name = f"*{_escaped(row.name)}*" if row.interpolation else _escaped(row.name)
            lines.append(f"| {' | '.join([name, *(cell.text for cell in cells(table, row, by or 'run'))])} |")
        lines += ["", *(f"- {_escaped(note)}" for note in table.notes), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Text that neither ends a cell nor is read as HTML or emphasis."""
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

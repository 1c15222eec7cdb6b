"""Tables of scores as text: in the terminal, as CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pe_lightning import errors
from pe_lightning.errors import printable
from pe_lightning.studies.compare.scores import Row, ScoreTable, why_several
from pe_lightning.studies.statistics import standard_error


def print_score_tables(tables: Sequence[ScoreTable]) -> None:
    """Prints every table with its notes."""
    console = errors.console()
    console.width = max(console.width, 80)
    if why_several(tables):
        console.print(Text(f"{why_several(tables)}\n"), style="yellow")
    for scores in tables:
        console.print(Text(f"{scores.title}; data {scores.fingerprint}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for key in scores.headings:
            table.add_column(Text(key), overflow="fold")
        for cell in scores.cells(scores.baseline):
            if cell.in_terminal:
                heading = Text(cell.heading.replace(" ", "\n", 1))
                table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
        for row in scores.rows:
            texts = [Text(cell.text) for cell in scores.cells(row) if cell.in_terminal]
            style = "dim" if row.interpolation else "bold" if row is scores.baseline else ""
            table.add_row(*map(Text, scores.names(row)), *texts, style=style)
        console.print(table, *map(Text, scores.notes), "", sep="\n")


def _record(number: int, table: ScoreTable, row: Row) -> dict[str, Any]:
    """A row in full precision; missing numbers are ``None``."""
    difference, spread = table.difference(row), f"test_{table.metric.name}_std"
    record = {
        **dict(zip(table.by, table.names(row), strict=False)),
        "table": number,
        "data_fingerprint": table.fingerprint,
        "name": row.name,
        "interpolation": row.interpolation,
        "signals": len(row.test),
        **{cell.key: cell.value for cell in table.cells(row)},
        spread: row.deviation,
        f"{spread}_runs": row.run_deviation if table.data_sets == 1 else None,
        "num_params_max": row.params[1],
        "baseline": table.baseline.name,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "difference_pairs": difference.pairs,
        "reason": row.reason,
    }
    if table.data_sets > 1:
        record[f"{spread}_error"] = standard_error(list(row.test.values()))
    return {key: None if value != value else value for key, value in record.items()}  # NaN


def as_csv(tables: Sequence[ScoreTable]) -> str:
    """All tables as CSV in full precision, one line per row; missing numbers are empty."""
    records = []
    for number, table in enumerate(tables, 1):
        for row in table.rows:
            folders = "" if row.interpolation else ";".join(printable(run.path) for run in row.runs)
            records.append({**_record(number, table, row), "run_dirs": folders})
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(dict.fromkeys(key for record in records for key in record)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()


def as_json(tables: Sequence[ScoreTable]) -> str:
    """All tables as JSON: the content of the CSV file, titles, notes, scores per signal, scores and seeds of the runs."""
    content = []
    for number, table in enumerate(tables, 1):
        rows = []
        for row in table.rows:
            scores = {signal: None if math.isnan(value) else value for signal, value in row.test.items()}
            each = zip(row.runs, row.run_means, strict=True)
            runs = [
                {"run_dir": printable(run.path), "seed": run.seed, "score": None if math.isnan(score) else score}
                for run, score in each
                if not row.interpolation
            ]
            rows.append({**_record(number, table, row), "scores": scores, "run_scores": runs})
        content.append({"title": table.title, "by": table.by, "notes": list(table.notes), "rows": rows})
    return json.dumps({"schema": 1, "tables": content}, indent=2, allow_nan=False) + "\n"


def as_markdown(tables: Sequence[ScoreTable]) -> str:
    """All tables as Markdown, with all columns."""
    lines = [f"{_escaped(why_several(tables))}\n"] if why_several(tables) else []
    for table in tables:
        names = [_escaped(heading) for heading in table.headings]
        headings = [*names, *(cell.heading for cell in table.cells(table.baseline))]
        lines += [f"### {_escaped(table.title)}; data {_escaped(table.fingerprint)}", ""]
        lines += [f"| {' | '.join(headings)} |", f"|{' --- |' * len(names)}{' ---: |' * (len(headings) - len(names))}"]
        for row in table.rows:
            style = "*" if row.interpolation else ""
            texts = [f"{style}{_escaped(text)}{style}" if text else "" for text in table.names(row)]
            lines.append(f"| {' | '.join([*texts, *(cell.text for cell in table.cells(row))])} |")
        lines += ["", *(f"- {_escaped(note)}" for note in table.notes), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

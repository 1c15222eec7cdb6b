"""Tables of scores as text: in the terminal, as CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.text import Text

from pe_lightning import errors
from pe_lightning.errors import printable
from pe_lightning.studies.compare.scores import Row, ScoreTable, why_several
from pe_lightning.studies.statistics import standard_error
from pe_lightning.studies.tables import in_markdown, latex_table, markdown_table, print_table


def print_score_tables(tables: Sequence[ScoreTable]) -> None:
    """Prints every table with its notes."""
    console = errors.console()
    console.width = max(console.width, 80)
    if why_several(tables):
        console.print(Text(f"{why_several(tables)}\n"), style="yellow")
    for scores in tables:
        console.print(Text(f"{scores.title}; data {scores.fingerprint}", style="italic"))
        styles = ["dim" if row.interpolation else "bold" if row is scores.baseline else "" for row in scores.rows]
        print_table(console, scores.texts.loc[:, [cell.in_terminal for cell in scores.cells(scores.baseline)]], styles)
        console.print(*map(Text, scores.notes), "", sep="\n")


def _record(number: int, table: ScoreTable, row: Row) -> dict[str, Any]:
    """A row in full precision; numbers that are missing or not finite are ``None``."""
    difference, spread = table.difference(row), f"test_{table.metric.name}_std"
    record = {
        **dict(zip(table.by, table.names(row), strict=False)),
        "table": number,
        "data_fingerprint": table.fingerprint,
        "name": row.name,
        "interpolation": row.interpolation,
        "signals": len(row.test),
        **{cell.key: cell.value for cell in table.all_cells(row)},
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
    return {key: _finite(value) if isinstance(value, float) else value for key, value in record.items()}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def as_csv(tables: Sequence[ScoreTable]) -> str:
    """All tables as CSV in full precision, one line per row; missing numbers are empty, and empty columns are left out."""
    records = []
    for number, table in enumerate(tables, 1):
        for row in table.rows:
            folders = "" if row.interpolation else ";".join(printable(run.path) for run in row.runs)
            records.append({**_record(number, table, row), "run_dirs": folders})
    frame = pd.DataFrame(records, dtype=object)  # integers stay integers where some are missing
    return str(frame.loc[:, (frame.notna() & (frame != "")).any()].to_csv(index=False, lineterminator="\n"))


def as_json(tables: Sequence[ScoreTable]) -> str:
    """All tables as JSON: the content of the CSV file, titles, notes, scores per signal, scores and seeds of the runs."""
    content = []
    for number, table in enumerate(tables, 1):
        rows = []
        for row in table.rows:
            scores = {signal: _finite(value) for signal, value in row.test.items()}
            runs = [
                {"run_dir": printable(run.path), "seed": run.seed, "score": _finite(score)}
                for run, score in zip(row.runs, row.run_means, strict=True)
                if not row.interpolation
            ]
            rows.append({**_record(number, table, row), "scores": scores, "run_scores": runs})
        content.append({"title": table.title, "by": table.by, "notes": list(table.notes), "rows": rows})
    return json.dumps({"schema": 1, "tables": content}, indent=2, allow_nan=False) + "\n"


def as_markdown(tables: Sequence[ScoreTable]) -> str:
    """All tables as Markdown, with their notes."""
    parts = [f"{in_markdown(why_several(tables))}\n"] if why_several(tables) else []
    for table in tables:
        rows = markdown_table(table.texts, ["*" * row.interpolation for row in table.rows])
        notes = "\n".join(f"- {in_markdown(note)}" for note in table.notes)
        parts.append(f"### {in_markdown(table.title)}; data {in_markdown(table.fingerprint)}\n\n{rows}\n\n{notes}\n")
    return "\n".join(parts)


def as_latex(tables: Sequence[ScoreTable]) -> str:
    """All tables for LaTeX's ``booktabs``, with titles and notes as comments."""
    parts = []
    for table in tables:
        comments = [f"{table.title}; data {table.fingerprint}", *table.notes]
        parts.append("".join(f"% {printable(text)}\n" for text in comments) + latex_table(table.texts))
    return "\n".join(parts)

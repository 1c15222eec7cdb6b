"""Tables of scores in the terminal, as CSV and as Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.experiments.compare.keys import MISSING
from pe_lightning.experiments.compare.reading import printable
from pe_lightning.experiments.compare.scores import CONFIDENCE, Row, Scores, complete_mean, why_several

__all__ = ["COLUMNS", "Column", "as_csv", "as_markdown", "footnotes", "print_scores"]

PERCENT = f"{CONFIDENCE:.0%}"


class Column(NamedTuple):
    """A column: title, text of a row, number that rows are sorted by, and title in a terminal, empty if it is not there."""

    title: str
    text: Callable[[Scores, Row], str]
    order: Callable[[Scores, Row], float | None]
    short: str = ""


def _number(value: float | None, form: str) -> str:
    return MISSING if value is None else format(value, form)


def _spread(row: Row) -> str:
    if row.mean is None or row.deviation is None:
        return MISSING
    return f"{row.mean:.2f} ± {row.deviation:.2f}" if len(row.psnr) > 1 else f"{row.mean:.2f}"


def _difference(scores: Scores, row: Row) -> str:
    found = scores.differences[row.name]
    if row is scores.baseline:
        return "baseline"
    if found is None:
        return MISSING
    if found.half_width is None:
        return f"{found.mean:+.2f}"
    return f"{found.mean:+.2f} [{found.mean - found.half_width:+.2f}, {found.mean + found.half_width:+.2f}]"


def _difference_mean(scores: Scores, row: Row) -> float | None:
    found = scores.differences[row.name]
    return None if found is None else found.mean


def _params(row: Row) -> str:
    if row.params is None:
        return MISSING
    fewest, most = row.params
    return f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"


COLUMNS = (
    Column(
        "runs",
        lambda _, row: MISSING if row.interpolation else str(len(row.runs)),
        lambda _, row: None if row.interpolation else len(row.runs),
        "runs",
    ),
    Column("test PSNR (dB)", lambda _, row: _spread(row), lambda _, row: row.mean, "test PSNR\n(dB)"),
    Column(f"difference (dB, {PERCENT} CI)", _difference, _difference_mean, f"difference\n(dB, {PERCENT} CI)"),
    Column(
        "SSIM",
        lambda _, row: _number(complete_mean(row.ssim.values()), ".4f"),
        lambda _, row: complete_mean(row.ssim.values()),
    ),
    Column(
        "train PSNR (dB)",
        lambda _, row: _number(complete_mean(row.train_psnr.values()), ".2f"),
        lambda _, row: complete_mean(row.train_psnr.values()),
    ),
    Column("parameters", lambda _, row: _params(row), lambda _, row: row.params and row.params[0], "params"),
    Column("fit seconds", lambda _, row: _number(row.seconds, ".2f"), lambda _, row: row.seconds, "fit\nseconds"),
)
"""What follows the name of a row."""
LEAST_WIDTH = 80
"""A table is not made narrower than this; a narrower terminal breaks its lines."""


def print_scores(tables: Sequence[Scores], by: str | None) -> None:
    """Prints every table, its notes below it.

    Args:
        tables: At least one.
        by: What rows are grouped by.
    """
    console = Console() if Console().is_terminal else Console(width=160)
    console.width = max(console.width, LEAST_WIDTH)
    columns = [column for column in COLUMNS if column.short and (by is not None or column.title != "runs")]
    if len(tables) > 1:
        console.print(Text(why_several(tables)), style="yellow")
        console.print()
    for scores in tables:
        console.print(Text(f"{scores.title}; data {_fingerprint(scores)}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(Text(by or "run"), overflow="fold")
        for column in columns:
            table.add_column(column.short, justify="right", no_wrap=True, vertical="bottom")
        for row in scores.rows:
            cells = [Text(row.name), *(Text(column.text(scores, row)) for column in columns)]
            table.add_row(*cells, style="dim" if row.interpolation else "bold" if row is scores.baseline else "")
        console.print(table)
        for note in footnotes(scores):
            console.print(Text(note))
        console.print()


def _fingerprint(scores: Scores) -> str:
    return printable(scores.fingerprint or "unknown")


def footnotes(scores: Scores) -> list[str]:
    """How to read a table, and its notes."""
    count = len(scores.baseline.psnr)
    against = f"Differences: against {scores.baseline.name}, paired by signal"
    if count > 1:
        against += f", with {PERCENT} t intervals over {count} signals"
    else:
        against += "; a single signal gives no interval"
    return [f"{against}. Means ± standard deviation over signals.", *scores.notes]


def as_csv(tables: Sequence[Scores]) -> str:
    """All tables with all digits, one row each, numbers in columns of their own."""
    records = [_record(number, scores, row) for number, scores in enumerate(tables, 1) for row in scores.rows]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue()


def _record(number: int, scores: Scores, row: Row) -> dict[str, object]:
    found = scores.differences[row.name]
    half = None if found is None else found.half_width
    fewest, most = row.params or (None, None)
    return {
        "table": number,
        "data_fingerprint": scores.fingerprint,
        "name": row.name,
        "interpolation": row.interpolation,
        "runs": 0 if row.interpolation else len(row.runs),
        "signals": len(row.psnr),
        "test_psnr": row.mean,
        "test_psnr_std": row.deviation,
        "baseline": scores.baseline.name,
        "difference": None if found is None else found.mean,
        "difference_low": None if found is None or half is None else found.mean - half,
        "difference_high": None if found is None or half is None else found.mean + half,
        "difference_signals": 0 if found is None else found.count,
        "test_ssim": complete_mean(row.ssim.values()),
        "train_psnr": complete_mean(row.train_psnr.values()),
        "num_params_min": fewest,
        "num_params_max": most,
        "fit_seconds": row.seconds,
        "reason": row.reason,
        "run_dirs": "" if row.interpolation else ";".join(printable(run.path) for run in row.runs),
    }


def as_markdown(tables: Sequence[Scores], by: str | None) -> str:
    """All tables as in the terminal, with every column."""
    parts = [f"{_cell(why_several(tables))}\n"] if len(tables) > 1 else []
    for scores in tables:
        lines = [f"### {_cell(scores.title)}; data {_cell(_fingerprint(scores))}", ""]
        lines.append("| " + " | ".join([_cell(by or "run"), *(column.title for column in COLUMNS)]) + " |")
        lines.append("| --- |" + " ---: |" * len(COLUMNS))
        for row in scores.rows:
            name = f"*{_cell(row.name)}*" if row.interpolation else _cell(row.name)
            lines.append("| " + " | ".join([name, *(column.text(scores, row) for column in COLUMNS)]) + " |")
        lines += ["", *(f"- {_cell(note)}" for note in footnotes(scores)), ""]
        parts.append("\n".join(lines))
    return "\n".join(parts)


def _cell(text: str) -> str:
    """Text that neither ends a cell nor is read as HTML or emphasis."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\|`*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text

"""Tables of scores with paired differences and confidence intervals; their text in the terminal, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from pe_lightning import errors
from pe_lightning.errors import InputError, check_known, did_you_mean, printable
from pe_lightning.results.runs import flatten
from pe_lightning.signals.files import real_path
from pe_lightning.studies.compare.reading import MISSING, Metric, Run, as_text, look_up, mean
from pe_lightning.studies.statistics import CONFIDENCE, t_interval

TABLE_KEYS = ("data_fingerprint", "protocol", "sampling", "metric")
"""Keys of ``metrics.json`` that agree for all runs of a table; otherwise scores are not comparable."""


class Difference(NamedTuple):
    """Mean paired difference with its confidence interval, NaN for one signal, and the number of signals."""

    mean: float
    low: float
    high: float
    signals: int


@dataclass(frozen=True, eq=False)
class Row:
    """A row of a table: a run, the mean of a group of runs, or an interpolation, which is not fitted."""

    name: str
    runs: tuple[Run, ...]
    interpolation: bool = False

    def scores(self, key: str) -> dict[str, float]:
        """A metric per signal, averaged over the runs; NaN where the value of a run is missing."""
        found = [run.scores(key) for run in self.runs]
        signals = dict.fromkeys(signal for scores in found for signal in scores)
        return {signal: mean(scores.get(signal) for scores in found) for signal in signals}

    @cached_property
    def test(self) -> dict[str, float]:
        return self.scores(f"test/{self.runs[0].metric.name}")

    @property
    def mean(self) -> float:
        """Mean held-out score over the signals; NaN unless every signal has a finite value."""
        return mean(self.test.values())

    @property
    def deviation(self) -> float:
        """Population standard deviation over the signals, as in ``metrics.json``."""
        return math.nan if math.isnan(self.mean) else statistics.pstdev(self.test.values())

    @property
    def params(self) -> tuple[float, float]:
        """Smallest and largest number of parameters per signal over the runs; NaN if unknown."""
        found = [run.metrics["num_params"] for run in self.runs if run.metrics.get("num_params") is not None]
        return (min(found), max(found)) if found else (math.nan, math.nan)

    @property
    def reason(self) -> str:
        """Reasons why signals have no held-out score; empty if all have one."""
        texts = []
        for run in self.runs:
            if any(map(math.isnan, run.test.values())):
                reason = printable(run.metrics.get(f"test/{run.metric.name}_reason") or "no reason recorded")
                texts.append(f"{run.label}: {reason}" if len(self.runs) > 1 else reason)
        return "; ".join(texts)

    def is_called(self, name: str) -> bool:
        """Whether ``name`` is the name of the row, the path of its run, or the method of its interpolation."""
        if self.interpolation:
            return self.name in (name, f"{name} interpolation")
        return name == self.name or real_path(name) in [run.path for run in self.runs]


class TableCell(NamedTuple):
    """A cell: its key in the CSV file, the heading of its column, its text and its numeric value, NaN if missing."""

    key: str
    heading: str
    text: str
    value: float
    in_terminal: bool = True


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Rows with the same signals, samples, protocol and metric, best mean first; differences are against the baseline.

    All texts of a table (terminal, CSV, Markdown, page) are made of its :meth:`cells` and :attr:`notes`.
    """

    rows: tuple[Row, ...]
    baseline: Row
    by: str | None = None
    """The key by which runs are grouped."""
    missing_baseline: str = ""
    """The requested baseline, if this table does not have it."""

    @property
    def fitted(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.interpolation)

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for row in self.fitted for run in row.runs)

    @property
    def metric(self) -> Metric:
        return self.runs[0].metric

    @property
    def fingerprint(self) -> str:
        return as_text(self.runs[0].metrics.get("data_fingerprint") or "unknown")

    @property
    def title(self) -> str:
        run = self.runs[0]
        names = ", ".join(run.signals[:3]) + (f" and {len(run.signals) - 3} more" if len(run.signals) > 3 else "")
        size = f" ({' x '.join(map(str, run.grid))})" if run.grid else ""
        sampling = dict(run.metrics.get("sampling") or {"name": "unknown"})
        words = [f"{as_text(sampling.pop('name'))} sampling"]
        words += [f"{printable(key)} {as_text(value)}" for key, value in sampling.items()]
        return f"{names}{size}, protocol {as_text(run.metrics.get('protocol'))}, {', '.join(words)}"

    @property
    def notes(self) -> Iterator[str]:
        count = len(self.baseline.test)
        over = f"with {CONFIDENCE:.0%} t intervals over {count} signals"
        interval = over if count > 1 else "without intervals, which need two signals or more"
        yield f"Differences: against {self.baseline.name}, paired by signal, {interval}."
        yield "Means ± standard deviation over signals."
        if self.missing_baseline:
            requested = printable(self.missing_baseline)
            yield f"the baseline {requested} is not in this table; differences are against its best row"
        if self.runs[0].metrics.get("data_fingerprint") is None:
            yield "alone in its table: data_fingerprint is null, so other runs cannot be shown to have the same data"
        for row in self.fitted:
            exact = [run.metrics.get("solve_seconds") is not None and not run.metrics.get("steps") for run in row.runs]
            if 0 < sum(exact) < len(exact):
                yield f"{row.name} averages {sum(exact)} exact and {len(exact) - sum(exact)} trained fits"
        for row in self.rows:
            if row.reason:
                yield f"{row.name} has no mean: {row.reason}"
            shared = self.difference(row).signals
            if shared < count:
                yield f"{row.name}: {shared} of {count} signals have a value both in it and in {self.baseline.name}"

    def difference(self, row: Row) -> Difference:
        """Mean of row - baseline over the signals with both values, with its paired t interval."""
        both = [value - self.baseline.test.get(signal, math.nan) for signal, value in row.test.items()]
        paired = [difference for difference in both if not math.isnan(difference)]
        middle, half_width = t_interval(paired)
        return Difference(middle, middle - half_width, middle + half_width, len(paired))

    def cells(self, row: Row) -> list[TableCell]:
        """The cells of a row after its name: the same columns for all rows."""
        metric, difference = self.metric, self.difference(row)
        spread = f" ± {metric.text(row.deviation)}" if len(row.test) > 1 and not math.isnan(row.mean) else ""
        ssim, train = (mean(row.scores(key).values()) for key in ("test/ssim", f"train/{metric.name}"))
        fewest, most = row.params
        seconds, size = (mean(run.metrics.get(key) for run in row.runs) for key in ("fit_seconds", "checkpoint_bytes"))
        runs = math.nan if row.interpolation else len(row.runs)
        interval = f" [{metric.text(difference.low, '+')}, {metric.text(difference.high, '+')}]" * (difference.signals > 1)
        change = "baseline" if row is self.baseline else f"{metric.text(difference.mean, '+')}{interval}"
        units = ", ".join(filter(None, [metric.unit, f"{CONFIDENCE:.0%} CI"]))
        parameters = _number(fewest, ",") + (f" to {most:,}" if most > fewest else "")
        # without held-out samples, the terminal compares runs by scores of trained samples
        held_out = any(not math.isnan(other.mean) for other in self.rows)
        return [
            TableCell("runs", "runs", _number(runs, "d"), runs, self.by is not None),
            TableCell(f"test_{metric.name}", f"held-out {metric.title}", metric.text(row.mean) + spread, row.mean, held_out),
            TableCell("difference", f"difference ({units})", change, difference.mean, held_out),
            TableCell("test_ssim", "SSIM of all samples", _number(ssim, ".4f"), ssim, not held_out),
            TableCell(f"train_{metric.name}", f"train {metric.title}", metric.text(train), train, not held_out),
            TableCell("num_params_min", "parameters", parameters, fewest),
            TableCell("checkpoint_bytes", "bytes of the file", _number(size, ",.0f"), size, not held_out),
            TableCell("fit_seconds", "fit seconds", _number(seconds, ".2f"), seconds),
        ]


def compare(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[ScoreTable]:
    """One table per kind of data, protocol, sampling and metric, largest first.

    Args:
        runs: At least one.
        by: Dotted key of ``metrics.json``; runs with the same value are one row.
        baseline: Name of a row or path of a run; by default, and in tables without it, the best run or group.
    """
    if by is not None and all(look_up(run.metrics, by) is MISSING for run in runs):
        flat = (entry for run in runs for entry in flatten(run.metrics))
        keys = sorted({printable(name) for name, value in flat if "/" not in name and not isinstance(value, list)})
        check_known("--by: no metrics.json has the key", by, keys, "Available")
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_conditions(run), []).append(run)
    tables = []
    for group in sorted(groups.values(), key=len, reverse=True):
        rows = _rows(group, by)
        chosen = next((row for row in rows if baseline is not None and row.is_called(baseline)), None)
        best = next(row for row in rows if not row.interpolation)
        tables.append(ScoreTable(rows, chosen or best, by, "" if chosen or baseline is None else baseline))
    if baseline is not None and all(table.missing_baseline for table in tables):
        names = list(dict.fromkeys(row.name for table in tables for row in table.rows))
        raise InputError(
            f"--baseline {printable(baseline)!r} is not a row{did_you_mean(baseline, names) or '.'} Rows: {', '.join(names)}"
        )
    return tables


def why_several(tables: Sequence[ScoreTable]) -> str:
    """The reason for more than one table; empty if there is one."""
    conditions = zip(*(_conditions(table.runs[0]) for table in tables), strict=True)
    differing = [key for key, values in zip(TABLE_KEYS, conditions, strict=True) if len(set(values)) > 1]
    reason = f"{len(tables)} tables: the runs differ in {', '.join(differing)}."
    return f"{reason} Across tables nothing is averaged, paired or ranked." if differing else ""


def _conditions(run: Run) -> tuple[str, ...]:
    # a run without a data fingerprint gets a table of its own
    known = run.metrics if run.metrics.get("data_fingerprint") else run.metrics | {"data_fingerprint": str(run.path)}
    return tuple(json.dumps(known.get(key), sort_keys=True) for key in TABLE_KEYS)


def _row_names(runs: Sequence[Run], by: str | None) -> list[str]:
    """The row of each run. Runs of one encoder but of several networks are one row per network: ``identity, sine``."""
    if by is None:
        return [run.label for run in runs]
    names = [f"no {by}" if (value := look_up(run.metrics, by)) is MISSING else as_text(value) for run in runs]
    networks = ["" if (value := look_up(run.metrics, "network.name")) is MISSING else as_text(value) for run in runs]
    several = [name for name, _ in set(zip(names, networks, strict=True))] if by == "encoder.name" else []
    return [
        f"{name}, {network}" if network and several.count(name) > 1 else name
        for name, network in zip(names, networks, strict=True)
    ]


def _rows(runs: Sequence[Run], by: str | None) -> tuple[Row, ...]:
    groups: dict[str, list[Run]] = {}
    for run, name in zip(runs, _row_names(runs, by), strict=True):
        groups.setdefault(name, []).append(run)
    rows = [Row(name, tuple(group)) for name, group in groups.items()]
    for run in runs:  # all runs of a table have the same interpolations
        for method, scores in run.metrics.get("baselines", {}).items():
            name = f"{printable(method)} interpolation"
            if name not in [row.name for row in rows]:
                shared = {key: run.metrics[key] for key in ("signals", "metric")}
                rows.append(Row(name, (Run(run.path, name, shared | scores),), interpolation=True))
    sign = 1 if runs[0].metric.higher_is_better else -1
    rows.sort(key=lambda row: -math.inf if math.isnan(row.mean) else sign * row.mean, reverse=True)
    return tuple(rows)


def _number(value: float, form: str) -> str:
    return MISSING if math.isnan(value) else format(value, form)


def print_score_tables(tables: Sequence[ScoreTable]) -> None:
    """Prints every table with its notes."""
    console = errors.console()
    console.width = max(console.width, 80)
    if why_several(tables):
        console.print(Text(f"{why_several(tables)}\n"), style="yellow")
    for scores in tables:
        console.print(Text(f"{scores.title}; data {scores.fingerprint}", style="italic"))
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(Text(scores.by or "run"), overflow="fold")
        for cell in scores.cells(scores.baseline):
            if cell.in_terminal:
                heading = Text(cell.heading.replace(" ", "\n", 1))
                table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
        for row in scores.rows:
            texts = [Text(cell.text) for cell in scores.cells(row) if cell.in_terminal]
            style = "dim" if row.interpolation else "bold" if row is scores.baseline else ""
            table.add_row(Text(row.name), *texts, style=style)
        console.print(table, *map(Text, scores.notes), "", sep="\n")


def as_csv(tables: Sequence[ScoreTable]) -> str:
    """All tables as CSV in full precision, one line per row; missing numbers are empty."""
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
                **{cell.key: cell.value for cell in table.cells(row)},
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


def as_markdown(tables: Sequence[ScoreTable]) -> str:
    """All tables as Markdown, with all columns."""
    lines = [f"{_escaped(why_several(tables))}\n"] if why_several(tables) else []
    for table in tables:
        headings = [_escaped(table.by or "run"), *(cell.heading for cell in table.cells(table.baseline))]
        lines += [f"### {_escaped(table.title)}; data {_escaped(table.fingerprint)}", ""]
        lines += [f"| {' | '.join(headings)} |", f"| --- |{' ---: |' * (len(headings) - 1)}"]
        for row in table.rows:
            name = f"*{_escaped(row.name)}*" if row.interpolation else _escaped(row.name)
            lines.append(f"| {' | '.join([name, *(cell.text for cell in table.cells(row))])} |")
        lines += ["", *(f"- {_escaped(note)}" for note in table.notes), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))

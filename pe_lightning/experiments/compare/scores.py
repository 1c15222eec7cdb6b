"""Tables of scores: what may stand in one table, means over signals, paired differences with their intervals."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scipy.special import stdtrit

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.experiments.compare.keys import as_text, check_key, look_up
from pe_lightning.experiments.compare.reading import MISSING, Metric, Run, mean, printable

__all__ = ["CONFIDENCE", "Difference", "Row", "ScoreTable", "compare", "paired", "why_several"]

CONFIDENCE = 0.95
SAME = ("data_fingerprint", "protocol", "sampling", "metric")
"""Runs share a table if all of these agree in metrics.json; otherwise a difference says nothing about the models."""


class Difference(NamedTuple):
    """Mean paired difference, half the width of its interval, NaN for fewer than two signals, and their number."""

    mean: float
    half_width: float
    signals: int


@dataclass(frozen=True, eq=False)
class Row:
    """A run, a group of runs, or an interpolation.

    Args:
        name: What it is called.
        runs: The runs of which it is the mean; those that report it, for an interpolation.
        test: Test score per signal, the mean over the runs; NaN where a run has none.
        ssim: Test SSIM per signal, likewise.
        train: Training score per signal, likewise.
        reason: Why a signal has no test score.
        interpolation: Whether nothing was fitted.
    """

    name: str
    runs: tuple[Run, ...]
    test: Mapping[str, float]
    ssim: Mapping[str, float] = field(default_factory=dict)
    train: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    interpolation: bool = False

    @property
    def mean(self) -> float:
        """Mean test score over the signals; NaN unless every one of them has a finite value."""
        return mean(self.test.values())

    @property
    def deviation(self) -> float:
        """Standard deviation over the signals at hand, as in ``metrics.json``."""
        return math.nan if math.isnan(self.mean) else statistics.pstdev(self.test.values())

    @property
    def params(self) -> tuple[int, int] | None:
        """Fewest and most parameters per signal."""
        found = [run.metrics["num_params"] for run in self.runs if run.metrics.get("num_params") is not None]
        return None if self.interpolation or not found else (min(found), max(found))

    @property
    def seconds(self) -> float:
        """Mean seconds of the fits; NaN unless all are known."""
        return math.nan if self.interpolation else mean(run.metrics.get("fit_seconds") for run in self.runs)


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Rows on the same signals, samples, protocol and metric, best first.

    Args:
        title: Signals, protocol and sampling in words.
        metric: What the rows are scored with.
        fingerprint: The fingerprint of the data.
        rows: Best mean first; those without a mean last.
        baseline: The row that differences are taken against.
        differences: By name of row; ``None`` where no signal has both values.
        notes: What a reader has to know.
    """

    title: str
    metric: Metric
    fingerprint: str
    rows: tuple[Row, ...]
    baseline: Row
    differences: Mapping[str, Difference | None]
    notes: tuple[str, ...]

    @property
    def fitted(self) -> tuple[Row, ...]:
        """The rows that are no interpolations."""
        return tuple(row for row in self.rows if not row.interpolation)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of the rows."""
        return tuple(run for row in self.fitted for run in row.runs)


def paired(values: Mapping[str, float], baseline: Mapping[str, float]) -> Difference | None:
    """Mean of ``values - baseline`` over the signals that have both, with the paired t interval of :data:`CONFIDENCE`.

    >>> paired({"a": 30.0, "b": 32.0}, {"a": 29.0, "b": 29.0}).mean
    2.0
    """
    both = [value - baseline.get(signal, math.nan) for signal, value in values.items()]
    found = [difference for difference in both if not math.isnan(difference)]
    if not found:
        return None
    count = len(found)
    if count == 1:
        return Difference(found[0], math.nan, 1)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Difference(statistics.fmean(found), quantile * statistics.stdev(found) / count**0.5, count)


def compare(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[ScoreTable]:
    """One table per kind of data, protocol, sampling and metric, largest first.

    Args:
        runs: At least one.
        by: Dotted key of ``metrics.json``: runs that agree in it are one row.
        baseline: Name of a row or path of a run; tables that do not have it, and all tables if it is ``None``, take their
            best run or group.

    Raises:
        InputError: If no run has the key, or no table has the baseline.
    """
    if by is not None:
        check_key(runs, by)
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_conditions(run), []).append(run)
    members = sorted(groups.values(), key=len, reverse=True)
    rows = [_rows(group, by) for group in members]
    chosen = [_find(table, baseline) for table in rows]
    if baseline is not None and not any(chosen):
        names = list(dict.fromkeys(row.name for table in rows for row in table))
        raise InputError(
            f"--baseline {printable(baseline)!r} is no row{did_you_mean(baseline, names) or '.'} Rows: {', '.join(names)}"
        )
    return [_table(group, table, row, baseline) for group, table, row in zip(members, rows, chosen, strict=True)]


def why_several(tables: Sequence[ScoreTable]) -> str:
    """Why there is more than one table."""
    conditions = zip(*(_conditions(table.runs[0]) for table in tables), strict=True)
    differing = [key for key, values in zip(SAME, conditions, strict=True) if len(set(values)) > 1]
    return (
        f"{len(tables)} tables: the runs differ in {', '.join(differing)}. "
        "Across tables nothing is averaged, paired or ranked."
    )


def _conditions(run: Run) -> tuple[str, ...]:
    """The values of :data:`SAME`. Data without a fingerprint cannot be shown to be that of another run."""
    known = run.metrics | {"metric": run.metric.name}
    if known.get("data_fingerprint") is None:
        known["data_fingerprint"] = str(run.path)
    return tuple(json.dumps(known.get(key), sort_keys=True) for key in SAME)


def _rows(runs: list[Run], by: str | None) -> list[Row]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        value = run.label if by is None else look_up(run.metrics, by)
        groups.setdefault(f"no {by}" if value is MISSING else as_text(value), []).append(run)
    rows = [_average(name, group) for name, group in groups.items()]
    metric = runs[0].metric
    for name in dict.fromkeys(name for run in runs for name in run.baselines):
        members = tuple(run for run in runs if name in run.baselines)
        test = members[0].scores(f"test/{metric.name}", name)
        title = f"{printable(name)} interpolation"
        title += " of the data" if title in groups else ""  # a group may have any name
        reason = _reason(test, members[0].baselines[name], metric)
        rows.append(Row(title, members, test, reason=reason, interpolation=True))
    sign = 1 if metric.higher_is_better else -1
    # Python's sort is stable, so equals stay in the order of the arguments
    return sorted(rows, key=lambda row: -math.inf if math.isnan(row.mean) else sign * row.mean, reverse=True)


def _average(name: str, runs: list[Run]) -> Row:
    metric, signals = runs[0].metric, dict.fromkeys(signal for run in runs for signal in run.signals)
    keys = f"test/{metric.name}", "test/ssim", f"train/{metric.name}"
    found = [[run.scores(key) for run in runs] for key in keys]
    test, ssim, train = ({s: mean(scores.get(s) for scores in values) for s in signals} for values in found)
    reasons = {run.label: _reason(run.test, run.metrics, metric) for run in runs}
    texts = [f"{label}: {reason}" if len(runs) > 1 else reason for label, reason in reasons.items() if reason]
    if len({frozenset(run.signals) for run in runs}) > 1:
        texts.append("its runs do not name the same signals")
    return Row(name, tuple(runs), test, ssim, train, "; ".join(texts))


def _reason(scores: Mapping[str, float], entry: Mapping[str, Any], metric: Metric) -> str:
    """Why one of the scores is missing; empty if none is."""
    missing = any(map(math.isnan, scores.values()))
    return printable(entry.get(f"test/{metric.name}_reason") or "no reason recorded") if missing else ""


def _find(rows: list[Row], baseline: str | None) -> Row | None:
    if baseline is None:
        return None
    path = Path(baseline).resolve()
    for row in rows:
        if baseline in (row.name, row.name.removesuffix(" interpolation") if row.interpolation else row.name):
            return row
        if not row.interpolation and path in [run.path for run in row.runs]:
            return row
    return None


def _table(runs: list[Run], rows: list[Row], baseline: Row | None, wanted: str | None) -> ScoreTable:
    against = baseline or next(row for row in rows if not row.interpolation)
    differences = {row.name: paired(row.test, against.test) for row in rows}
    fingerprint = runs[0].metrics.get("data_fingerprint")
    notes: list[str] = []
    if wanted is not None and baseline is None:
        notes.append(f"the baseline {printable(wanted)} is not in this table; differences are against its best row")
    if fingerprint is None:
        notes.append("alone in its table: data_fingerprint is null, so nothing shows that another run saw the same data")
    notes += [f"{row.name} has no mean: {row.reason}" for row in rows if row.reason]
    for name, difference in differences.items():
        count = 0 if difference is None else difference.signals
        if count < len(against.test):
            notes.append(f"{name}: {count} of {len(against.test)} signals have a value in it and in {against.name}")
    shown = printable("unknown" if fingerprint is None else str(fingerprint))
    return ScoreTable(_title(runs[0]), runs[0].metric, shown, tuple(rows), against, differences, tuple(notes))


def _title(run: Run) -> str:
    names = ", ".join(run.signals[:3]) + (f" and {len(run.signals) - 3} more" if len(run.signals) > 3 else "")
    grid, sampling = run.metrics.get("grid"), run.metrics.get("sampling")
    size = f" ({' x '.join(map(as_text, grid))})" if isinstance(grid, list) and grid else ""
    if isinstance(sampling, Mapping) and "name" in sampling:
        rest = [f"{printable(key)} {as_text(value)}" for key, value in sampling.items() if key != "name"]
        words = ", ".join([f"{as_text(sampling['name'])} sampling", *rest])
    else:
        words = "sampling unknown" if sampling is None else f"sampling {as_text(sampling)}"
    return f"{names}{size}, protocol {as_text(run.metrics.get('protocol'))}, {words}"

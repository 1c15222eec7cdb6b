"""Tables of scores: what may stand in one table, means over signals, paired differences with their intervals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scipy.special import stdtrit

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.experiments.compare.keys import MISSING, check_key, look_up, shown
from pe_lightning.experiments.compare.reading import PER_SIGNAL, Run, Signal, printable

__all__ = ["CONFIDENCE", "Difference", "Row", "Scores", "compare", "complete_mean", "paired", "why_several"]

CONFIDENCE = 0.95
SAME = ("data_fingerprint", "protocol", "sampling")
"""Runs share a table if all of these agree in metrics.json; otherwise a difference says nothing about the models."""
TOLERANCE = 0.005
"""Interpolation of the same samples that differs by more dB between runs is reported; tables show two digits."""


@dataclass(frozen=True)
class Difference:
    """Mean paired difference over signals, and half the width of its interval: ``None`` for fewer than two signals."""

    mean: float
    half_width: float | None
    count: int


@dataclass(frozen=True, eq=False)
class Row:
    """A run, a group of runs, or an interpolation.

    Args:
        name: What it is called.
        runs: The runs of which it is the mean; those that report it, for an interpolation.
        psnr: Test PSNR per signal, the mean over the runs; ``None`` where a run has none.
        ssim: Test SSIM per signal, likewise.
        train_psnr: Training PSNR per signal, likewise.
        reason: Why a signal has no test PSNR.
        interpolation: Whether nothing was fitted.
    """

    name: str
    runs: tuple[Run, ...]
    psnr: Mapping[Signal, float | None]
    ssim: Mapping[Signal, float | None] = field(default_factory=dict)
    train_psnr: Mapping[Signal, float | None] = field(default_factory=dict)
    reason: str | None = None
    interpolation: bool = False

    @property
    def mean(self) -> float | None:
        """Mean test PSNR over the signals; ``None`` unless every one of them has a finite value."""
        return complete_mean(self.psnr.values())

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the signals at hand, as in ``metrics.json``."""
        finite = [value for value in self.psnr.values() if value is not None]
        return statistics.pstdev(finite) if self.mean is not None else None

    @property
    def params(self) -> tuple[int, int] | None:
        """Fewest and most parameters per signal."""
        found = [run.metrics["num_params"] for run in self.runs if run.metrics.get("num_params") is not None]
        return None if self.interpolation or not found else (min(found), max(found))

    @property
    def seconds(self) -> float | None:
        """Mean seconds of the fits; ``None`` unless all are known."""
        return None if self.interpolation else complete_mean(run.metrics.get("fit_seconds") for run in self.runs)


@dataclass(frozen=True, eq=False)
class Scores:
    """One table: rows on the same signals, samples and protocol, best first.

    Args:
        title: Signals, protocol and sampling in words.
        fingerprint: The fingerprint of the data.
        rows: Best mean first; those without a mean last.
        baseline: The row that differences are taken against.
        differences: By name of row; ``None`` where no signal has both values.
        notes: What a reader has to know.
    """

    title: str
    fingerprint: str | None
    rows: tuple[Row, ...]
    baseline: Row
    differences: Mapping[str, Difference | None]
    notes: tuple[str, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of the rows."""
        return tuple(run for row in self.rows if not row.interpolation for run in row.runs)


def paired(values: Mapping[Signal, float | None], baseline: Mapping[Signal, float | None]) -> Difference | None:
    """Mean of ``values - baseline`` over the signals that have both, with the paired t interval of :data:`CONFIDENCE`.

    >>> a, b = Signal("a"), Signal("b")
    >>> paired({a: 30.0, b: 32.0}, {a: 29.0, b: 29.0}).mean
    2.0
    """
    found: list[float] = []
    for signal, value in values.items():
        other = baseline.get(signal)
        if value is not None and other is not None:
            found.append(value - other)
    if not found:
        return None
    mean, count = statistics.fmean(found), len(found)
    if count == 1:
        return Difference(mean, None, 1)
    quantile = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return Difference(mean, quantile * statistics.stdev(found) / count**0.5, count)


def compare(runs: Sequence[Run], by: str | None = None, baseline: str | None = None) -> list[Scores]:
    """One table per kind of data, protocol and sampling, largest first.

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
    tables: dict[str, list[Run]] = {}
    for run in runs:
        tables.setdefault(_table_key(run), []).append(run)
    members = sorted(tables.values(), key=len, reverse=True)
    rows = [_rows(group, by) for group in members]
    chosen = [_find(table, baseline) for table in rows]
    if baseline is not None and not any(chosen):
        names = list(dict.fromkeys(row.name for table in rows for row in table))
        raise InputError(
            f"--baseline {printable(baseline)!r} is no row{did_you_mean(baseline, names) or '.'} Rows: {', '.join(names)}"
        )
    return [_scores(group, table, row, baseline) for group, table, row in zip(members, rows, chosen, strict=True)]


def why_several(tables: Sequence[Scores]) -> str:
    """Why there is more than one table."""
    first = [scores.runs[0].metrics for scores in tables]
    differing = [key for key in SAME if len({json.dumps(metrics.get(key), sort_keys=True) for metrics in first}) > 1]
    return (
        f"{len(tables)} tables: the runs differ in {', '.join(differing) or 'data that has no fingerprint'}. "
        "Across tables nothing is averaged, paired or ranked."
    )


def _table_key(run: Run) -> str:
    # data without a fingerprint cannot be shown to be anyone else's: a table of its own
    unknown = str(run.path) if run.metrics.get("data_fingerprint") is None else None
    return json.dumps([unknown, *(run.metrics.get(key) for key in SAME)], sort_keys=True)


def _rows(runs: list[Run], by: str | None) -> list[Row]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label if by is None else _group(run, by), []).append(run)
    rows = [_average(name, group) for name, group in groups.items()]
    taken = {row.name for row in rows}
    for name in dict.fromkeys(name for run in runs for name in run.metrics.get("baselines", {})):
        title = f"{printable(name)} interpolation"
        title += " of the data" if title in taken else ""  # a group may have any name
        rows.append(_interpolation(title, name, [run for run in runs if name in run.metrics.get("baselines", {})]))
    # best first; Python's sort is stable, so equals stay in the order of the arguments
    return sorted(rows, key=lambda row: -float("inf") if row.mean is None else row.mean, reverse=True)


def _group(run: Run, by: str) -> str:
    value = look_up(run.metrics, by)
    return f"no {by}" if value is MISSING else shown(value)


def _average(name: str, runs: list[Run]) -> Row:
    def per_signal(key: str) -> dict[Signal, float | None]:
        scores = [run.scores(key) for run in runs]
        signals = dict.fromkeys(signal for score in scores for signal in score)
        return {signal: complete_mean(score.get(signal) for score in scores) for signal in signals}

    reasons = dict.fromkeys(
        _reason(run.metrics, len(runs) > 1 and run.label) for run in runs if None in run.scores("test/psnr").values()
    )
    if len({frozenset(run.signals) for run in runs}) > 1:
        reasons["its runs do not name the same signals"] = None
    psnr, ssim, train = (per_signal(key) for key in PER_SIGNAL)
    return Row(name, tuple(runs), psnr, ssim, train, "; ".join(reasons) or None)


def _reason(entry: Mapping[str, Any], label: str | bool = False) -> str:
    reason = printable(entry.get("test/psnr_reason") or "no reason recorded")
    return f"{label}: {reason}" if label else reason


def _interpolation(title: str, name: str, runs: list[Run]) -> Row:
    entry = runs[0].metrics["baselines"][name]
    values = entry.get("test/psnr_per_signal") or [None] * len(runs[0].signals)
    reason = _reason(entry) if None in values else None
    return Row(title, tuple(runs), dict(zip(runs[0].signals, values, strict=True)), reason=reason, interpolation=True)


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


def _scores(runs: list[Run], rows: list[Row], baseline: Row | None, wanted: str | None) -> Scores:
    fitted = [row for row in rows if not row.interpolation]
    against = baseline or fitted[0]
    notes: list[str] = []
    if wanted is not None and baseline is None:
        notes.append(f"the baseline {printable(wanted)} is not in this table; differences are against its best row")
    if runs[0].metrics.get("data_fingerprint") is None:
        notes.append("alone in its table: data_fingerprint is null, so nothing shows that another run saw the same data")
    notes += [f"{row.name} has no mean: {row.reason}" for row in rows if row.reason]
    notes += _disagreements(runs)
    differences = {row.name: paired(row.psnr, against.psnr) for row in rows}
    for row in rows:
        difference = differences[row.name]
        count = difference.count if difference else 0
        if count < len(against.psnr):
            notes.append(f"{row.name}: {count} of {len(against.psnr)} signals have a value in it and in {against.name}")
    return Scores(_title(runs[0]), runs[0].metrics.get("data_fingerprint"), tuple(rows), against, differences, tuple(notes))


def _disagreements(runs: list[Run]) -> Iterable[str]:
    """Interpolations that are not the same for all runs, which they are for the same samples and code."""
    for name in dict.fromkeys(name for run in runs for name in run.metrics.get("baselines", {})):
        entries = [run.metrics["baselines"][name] for run in runs if name in run.metrics.get("baselines", {})]
        means = [complete_mean(entry.get("test/psnr_per_signal") or [None]) for entry in entries]
        finite = [mean for mean in means if mean is not None]
        if finite and max(finite) - min(finite) > TOLERANCE:
            yield (
                f"{printable(name)} interpolation differs between runs, {min(finite):.2f} to {max(finite):.2f} dB; "
                "shown is the first run's. Were they made by different versions?"
            )


def _title(run: Run) -> str:
    signals = [str(signal) for signal in run.signals]
    names = ", ".join(signals[:3]) + (f" and {len(signals) - 3} more" if len(signals) > 3 else "")
    grid = run.metrics.get("grid")
    size = f" ({' x '.join(map(shown, grid))})" if isinstance(grid, list) and grid else ""
    sampling = run.metrics.get("sampling")
    if isinstance(sampling, Mapping) and "name" in sampling:
        rest = [f"{printable(key)} {shown(value)}" for key, value in sampling.items() if key != "name"]
        words = ", ".join([f"{shown(sampling['name'])} sampling", *rest])
    else:
        words = "sampling unknown" if sampling is None else f"sampling {shown(sampling)}"
    return f"{names}{size}, protocol {shown(run.metrics.get('protocol'))}, {words}"


def complete_mean(values: Iterable[float | None]) -> float | None:
    """The mean; ``None`` if a value is missing, or all are."""
    found = list(values)
    finite = [value for value in found if value is not None]
    return statistics.fmean(finite) if finite and len(finite) == len(found) else None

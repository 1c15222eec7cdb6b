"""Tables of scores with paired differences and confidence intervals."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from pe_lightning.errors import InputError, did_you_mean, printable, show_interpolation, show_protocol
from pe_lightning.results.run import MISSING, Metric, Run, as_text
from pe_lightning.results.runs import flatten
from pe_lightning.signals.files import real_path
from pe_lightning.studies import statistics
from pe_lightning.studies.statistics import CONFIDENCE, mean, standard_error, t_interval, welch_interval

TABLE_KEYS = ("data_fingerprint", "protocol", "sampling", "metric")
"""Keys of ``metrics.json`` that agree for all runs of a table; otherwise scores are not comparable."""


BASELINE = "baseline"
"""Text in place of the difference of the baseline from itself."""


class Difference(NamedTuple):
    """Mean difference with its confidence interval, NaN where there is none, and the number of pairs; 0: not paired."""

    mean: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, eq=False)
class Row:
    """A row of a table: a run, the mean of a group of runs, or an interpolation, which is not fitted.

    Args:
        name: The values of the keys that runs are grouped by, or the label of a run.
        runs: The runs.
        interpolation: Whether the row is an interpolation.
        groups: The values of the keys, one text each.
        signals: The signals that the row is to have scores of; none: the signals of its runs.
    """

    name: str
    runs: tuple[Run, ...]
    interpolation: bool = False
    groups: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()

    def scores(self, key: str, seeds: Collection[Any] | None = None) -> dict[str, float]:
        """A metric per signal, averaged over the runs, or the runs of some seeds; NaN where a value is missing."""
        found = [run.scores(key) for run in self.runs if seeds is None or run.seed in seeds]
        signals = self.signals or dict.fromkeys(signal for scores in found for signal in scores)
        return {signal: mean(scores[signal] for scores in found if signal in scores) for signal in signals}

    @property
    def key(self) -> str:
        """Key of the held-out score."""
        return f"test/{self.runs[0].metric.name}"

    @cached_property
    def test(self) -> dict[str, float]:
        return self.scores(self.key)

    @property
    def mean(self) -> float:
        """Mean held-out score over the signals; NaN unless every signal has a finite value."""
        return mean(self.test.values())

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the signals, as in ``metrics.json``: zero of a single signal."""
        values = list(self.test.values())
        return 0.0 if len(values) == 1 and not math.isnan(self.mean) else statistics.deviation(values)

    @cached_property
    def run_means(self) -> list[float]:
        """Mean held-out score over the signals of each run."""
        return [mean(run.test.values()) for run in self.runs]

    @property
    def run_deviation(self) -> float:
        """Sample standard deviation over the runs, of the mean over the signals; NaN of a single run."""
        return statistics.deviation(self.run_means)

    @cached_property
    def by_seed(self) -> dict[Any, float]:
        """Mean held-out score over the runs of each seed; runs without a known seed are left out."""
        found: dict[Any, list[float]] = {}
        for run, value in zip(self.runs, self.run_means, strict=True):
            if run.seed is not None:
                found.setdefault(run.seed, []).append(value)
        return {seed: mean(values) for seed, values in found.items()}

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
                reason = printable(run.metrics.get(f"{self.key}_reason") or "no reason recorded")
                texts.append(f"{run.label}: {reason}" if len(self.runs) > 1 else reason)
        fitted = {signal for run in self.runs for signal in run.signals}
        if missing := [signal for signal in self.signals if signal not in fitted]:
            texts.append(f"it has no scores of {', '.join(missing)}")
        return "; ".join(texts)

    def varied(self, by: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The conditions in which the runs differ, apart from the keys ``by``, with their values."""
        configured = all(run.config is not None for run in self.runs)
        each = [run.conditions if configured else run.described for run in self.runs]
        named = tuple(name for key in by for name in (key, key.removeprefix("model.")))
        found = {}
        for setting in dict.fromkeys(key for conditions in each for key in conditions):
            given = [conditions.get(setting, MISSING) for conditions in each]
            if given.count(given[0]) == len(given):
                continue
            key = next((name for run in self.runs if (name := run.metrics_key(setting)) != setting), setting)
            values = {as_text(value) for value in given}
            if len(values) > 1 and not any(key == name or key.startswith(f"{name}.") for name in named):
                found[key] = tuple(sorted(values, key=lambda text: (len(text) if text.isdigit() else 99, text)))
        return found

    def is_called(self, name: str) -> bool:
        """Whether ``name`` is the name of the row, the path of its run, or the method of its interpolation."""
        if self.interpolation:
            axes = len(self.runs[0].grid)
            return self.name in (name, f"{name} interpolation", f"{show_interpolation(name, axes)} interpolation")
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

    All texts of a table (terminal, CSV, JSON, Markdown, LaTeX, page) are made of its :meth:`cells` and :attr:`notes`.
    """

    rows: tuple[Row, ...]
    baseline: Row
    by: tuple[str, ...] = ()
    """The keys by which runs are grouped."""
    missing_baseline: str = ""
    """The requested baseline, if this table does not have it."""
    data_sets: int = 1
    """Number of data sets whose signals are in the table; of several, rows have the mean over all of them."""

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns of names."""
        return self.by or ("run",)

    def names(self, row: Row) -> tuple[str, ...]:
        """The texts of a row in the columns of names."""
        return row.groups or (row.name, *[""] * (len(self.headings) - 1))

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
    def repeated(self) -> tuple[Row, ...]:
        """The rows of several runs of the same data."""
        return tuple(row for row in self.fitted if len(row.runs) > 1 and self.data_sets == 1)

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, a line per row, run and signal; ``row`` has the texts of :meth:`names`."""
        lines = [
            (self.names(row), row.interpolation, run.label, run.seed, signal, score)
            for row in self.rows
            for run in row.runs
            for signal, score in run.test.items()
        ]
        return pd.DataFrame(lines, columns=["row", "interpolation", "run", "seed", "signal", "score"])

    @property
    def texts(self) -> pd.DataFrame:
        """The :meth:`cells` as text, with the :meth:`names` as index."""
        index = pd.MultiIndex.from_tuples([self.names(row) for row in self.rows], names=self.headings)
        headings = [cell.heading for cell in self.cells(self.baseline)]
        return pd.DataFrame([[cell.text for cell in self.cells(row)] for row in self.rows], index, headings, dtype=str)

    @property
    def fingerprint(self) -> str:
        return "several" if self.data_sets > 1 else as_text(self.runs[0].metrics.get("data_fingerprint") or "unknown")

    @property
    def title(self) -> str:
        run = self.runs[0]
        names = ", ".join(run.signals[:3]) + (f" and {len(run.signals) - 3} more" if len(run.signals) > 3 else "")
        size = f" ({' x '.join(map(str, run.grid))})" if run.grid else ""
        if self.data_sets > 1:
            names, size = f"Mean over {len(self.baseline.test)} signals of {self.data_sets} data sets", ""
        sampling = dict(run.metrics.get("sampling") or {"name": "unknown"})
        words = [f"{as_text(sampling.pop('name'))} sampling"]
        words += [f"{printable(key)} {as_text(value)}" for key, value in sampling.items()]
        scored = show_protocol(as_text(run.metrics.get("protocol") or "unknown samples"))
        return f"{names}{size}, scored on {scored}, {', '.join(words)}"

    @property
    def notes(self) -> Iterator[str]:
        count, repeated = len(self.baseline.test), self.repeated
        pairs, interval = "signal", f"with {CONFIDENCE:.0%} t intervals over {count} signals"
        if count == 1:
            interval = "without intervals, which need two signals, or --by and two seeds in each row"
            if any(not math.isnan(self.difference(row).low) for row in self.rows):
                pairs, interval = "seed", f"with {CONFIDENCE:.0%} t intervals over seeds"
        yield f"Differences: against {self.baseline.name}, paired by {pairs}, {interval}."
        if self.data_sets > 1:
            yield f"Means ± standard error over {count} signals."
        elif count > 1:
            yield "Means ± standard deviation (n - 1) over signals."
        if repeated:
            yield f"{'Means ±' if count == 1 else 'Over runs:'} standard deviation (n - 1) over the runs of a row."
        yield from self._averaged()
        same = [cell for cell in self.all_cells(self.baseline) if cell.key in self._same and (self.by or cell.key != "runs")]
        if same:
            yield f"The same in all rows: {', '.join(f'{cell.heading} {cell.text}' for cell in same)}."
        if self.missing_baseline:
            requested = printable(self.missing_baseline)
            yield f"the baseline {requested} is not in this table; differences are against its best row"
        if self.runs[0].metrics.get("data_fingerprint") is None:
            yield "alone in its table: data_fingerprint is null, so other runs cannot be shown to have the same data"
        for row in self.fitted:
            exact = sum(run.is_exact for run in row.runs)
            if 0 < exact < len(row.runs):
                yield f"{row.name} averages {exact} exact and {len(row.runs) - exact} trained fits"
        for row in self.rows:
            if row.reason:
                yield f"{row.name} has no mean: {row.reason}"
            shared = sum(not math.isnan(value) for value in self._by_signal(row))
            if shared < count:
                yield f"{row.name}: {shared} of {count} signals have a value both in it and in {self.baseline.name}"
            if self._is_independent(row):
                yield f"{row.name}: not paired, because fewer than two of its seeds are seeds of {self.baseline.name}"

    def _averaged(self) -> Iterator[str]:
        found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        several = [row for row in self.fitted if len(row.runs) > 1]
        for row in several:
            for condition in row.varied(self.by).items():
                found.setdefault(condition, []).append(row.name)
        for (key, values), names in found.items():
            where = "" if len(names) == len(several) else f"{', '.join(names)}: "
            shown = ", ".join(values[:8]) + (f" and {len(values) - 8} more" if len(values) > 8 else "")
            yield f"{where}averaged over {printable(key)}: {shown}"

    def difference(self, row: Row) -> Difference:
        """Mean of row - baseline with its interval: over signals, or over seeds if there is a single signal.

        Signals are paired by name, and runs by seed where two seeds or more agree; of several signals over the runs of these
        seeds. Otherwise the interval of a single signal is by Welch's test.
        """
        paired = self._by_signal(row)
        if self._is_independent(row):
            middle, half_width = welch_interval(list(row.by_seed.values()), list(self.baseline.by_seed.values()))
            return Difference(middle, middle - half_width, middle + half_width, 0)
        if len(self.baseline.test) == 1 and len(by_seed := self._by_seed(row)) > 1:
            paired = by_seed
        known = [difference for difference in paired if not math.isnan(difference)]
        middle, half_width = t_interval(known)
        return Difference(middle, middle - half_width, middle + half_width, len(known))

    def _is_independent(self, row: Row) -> bool:
        """Whether both rows have several seeds of a single signal, and these differ."""
        several = min(len(row.by_seed), len(self.baseline.by_seed)) > 1
        return len(self.baseline.test) == 1 and several and len(self._by_seed(row)) < 2

    def _by_signal(self, row: Row) -> list[float]:
        # an interpolation has no seeds: it is compared with all runs
        seeds = row.by_seed.keys() & self.baseline.by_seed.keys() or None
        base = self.baseline.scores(row.key, seeds)
        return [value - base.get(signal, math.nan) for signal, value in row.scores(row.key, seeds).items()]

    def _by_seed(self, row: Row) -> list[float]:
        first, second = row.by_seed, self.baseline.by_seed
        if row.interpolation or self.baseline.interpolation:  # the same for every seed
            first, second = first or dict.fromkeys(second, row.mean), second or dict.fromkeys(first, self.baseline.mean)
        return [value - second[seed] for seed, value in first.items() if seed in second]

    @cached_property
    def _columns(self) -> dict[str, set[str]]:
        """The texts of each column that is not empty, by its key."""
        found: dict[str, set[str]] = {}
        for cell in (cell for row in self.rows for cell in self.all_cells(row)):
            found.setdefault(cell.key, set()).add(cell.text)
        return {key: texts for key, texts in found.items() if texts - {"", MISSING, BASELINE}}

    @property
    def _same(self) -> set[str]:
        compared = (f"test_{self.metric.name}", "difference")
        return {key for key, texts in self._columns.items() if len(texts) == 1 < len(self.rows) and key not in compared}

    def cells(self, row: Row) -> list[TableCell]:
        """The cells of a row after its names, of the columns that are neither empty nor the same in all rows."""
        shown = self._columns.keys() - self._same
        return [cell for cell in self.all_cells(row) if cell.key in shown]

    def all_cells(self, row: Row) -> list[TableCell]:
        """The cells of a row after its names: the same columns for all rows."""
        metric, difference, count = self.metric, self.difference(row), len(self.baseline.test)
        over = row.run_deviation if count == 1 else row.deviation
        if self.data_sets > 1:
            over = standard_error(list(row.test.values()))
        spread = f" ± {metric.text(over)}" if not math.isnan(over) else ""
        ssim, train = (mean(row.scores(key).values()) for key in ("test/ssim", f"train/{metric.name}"))
        fewest, most = row.params
        seconds, size = (mean(run.metrics.get(key) for run in row.runs) for key in ("fit_seconds", "checkpoint_bytes"))
        runs = math.nan if row.interpolation else len(row.runs)
        bounded = not math.isnan(difference.low)
        interval = f" [{metric.text(difference.low, '+')}, {metric.text(difference.high, '+')}]" * bounded
        change = BASELINE if row is self.baseline else f"{metric.text(difference.mean, '+')}{interval}"
        units = ", ".join(filter(None, [metric.unit, f"{CONFIDENCE:.0%} CI"]))
        parameters = _number(fewest, ",") + (f" to {most:,}" if most > fewest else "")
        # without held-out samples, the terminal compares runs by scores of trained samples
        held_out = any(not math.isnan(other.mean) for other in self.rows)
        test, both = f"test_{metric.name}", held_out and count > 1 and len(self.repeated) > 0
        return [
            TableCell("runs", "runs", _number(runs, "d"), runs, bool(self.by)),
            TableCell(test, f"held-out {metric.title}", metric.text(row.mean) + spread, row.mean, held_out),
            *[TableCell(f"{test}_std_runs", "± over runs", metric.text(row.run_deviation), row.run_deviation)] * both,
            TableCell("difference", f"difference ({units})", change, difference.mean, held_out),
            TableCell("test_ssim", "SSIM of all samples", _number(ssim, ".4f"), ssim, not held_out),
            TableCell(f"train_{metric.name}", f"train {metric.title}", metric.text(train), train, not held_out),
            TableCell("num_params_min", "parameters", parameters, fewest),
            TableCell("checkpoint_bytes", "bytes of the file", _number(size, ",.0f"), size, not held_out),
            TableCell("fit_seconds", "fit seconds", _number(seconds, ".2f"), seconds),
        ]


def split_keys(by: str | Sequence[str] | None) -> tuple[str, ...]:
    """The keys of ``--by``: texts of keys, separated by commas.

    >>> split_keys(["encoder.name,seed", "[model, encoding]"])
    ('encoder.name', 'seed', 'model', 'encoding')
    """
    texts = [by] if isinstance(by, str) else by or ()
    keys = (key.strip(" '\"") for text in texts for key in text.strip().removeprefix("[").removesuffix("]").split(","))
    return tuple(dict.fromkeys(filter(None, keys)))


def compare(runs: Sequence[Run], by: str | Sequence[str] | None = None, baseline: str | None = None) -> list[ScoreTable]:
    """One table per kind of data, protocol, sampling and metric, largest first.

    With ``by``, a further table has the means over the signals of all tables that differ in their data alone.

    Args:
        runs: At least one.
        by: Dotted keys of ``metrics.json``, settings that a sweep varied, or options of the configuration, as a list or
            separated by commas; runs with the same values are one row.
        baseline: Name of a row or path of a run; by default, and in tables without it, the best run or group.

    Example:
        >>> from pathlib import Path
        >>> from pe_lightning.results.run import Run
        >>> def run(name, seed, psnr):
        ...     about = {"encoder": {"name": name}, "seed": seed, "data_fingerprint": "f"}
        ...     return Run(Path(), "", about | {"metric": "psnr", "signals": ["a"], "test/psnr_per_signal": [psnr]})
        >>> runs = [run("gau", 0, 30.0), run("gau", 1, 31.0), run("rff", 0, 28.0), run("rff", 1, 30.0)]
        >>> (table,) = compare(runs, "encoder.name")
        >>> [(row.name, len(row.runs), row.mean, round(row.run_deviation, 2)) for row in table.rows]
        [('gau', 2, 30.5, 0.71), ('rff', 2, 29.0, 1.41)]
    """
    keys = split_keys(by)
    for key in keys:
        if all(run.value(key) is MISSING for run in runs):
            flat = (entry for run in runs for entry in flatten({**run.metrics, **run.varied}))
            known = sorted({printable(name) for name, value in flat if "/" not in name and not isinstance(value, list)})
            near = did_you_mean(key, [*known, "method", *(name for run in runs for name in run.settings)]) or "."
            raise InputError(f"--by: no run has the key {printable(key)!r}{near} Available: {', '.join(known)}, and options")
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(_conditions(run), []).append(run)
    largest_first = sorted(groups.values(), key=len, reverse=True)
    tables = [make_table(group, names_of(group, keys), keys, baseline) for group in largest_first]
    if baseline is not None and all(table.missing_baseline for table in tables):
        names = list(dict.fromkeys(row.name for table in tables for row in table.rows))
        raise InputError(
            f"--baseline {printable(baseline)!r} is not a row{did_you_mean(baseline, names) or '.'} Rows: {', '.join(names)}"
        )
    alike: dict[tuple[str, ...], list[ScoreTable]] = {}
    for table in tables if keys else ():
        if table.runs[0].metrics.get("data_fingerprint"):
            alike.setdefault(_conditions(table.runs[0])[1:], []).append(table)
    # a mean needs a row that is in all of them
    shared = [
        several for several in alike.values() if set.intersection(*({row.name for row in one.fitted} for one in several))
    ]
    return [*tables, *(_over_data_sets(several, baseline) for several in shared if len(several) > 1)]


def why_several(tables: Sequence[ScoreTable]) -> str:
    """The reason for more than one table; empty if there is one."""
    single = [table for table in tables if table.data_sets == 1]
    conditions = zip(*(_conditions(table.runs[0]) for table in single), strict=True)
    differing = [key for key, values in zip(TABLE_KEYS, conditions, strict=True) if len(set(values)) > 1]
    reason = f"{len(single)} tables: the runs differ in {', '.join(differing)}."
    below = ", but in the means over data sets below" if len(single) < len(tables) else ""
    return f"{reason} Across tables nothing is averaged, paired or ranked{below}." if differing else ""


def _conditions(run: Run) -> tuple[str, ...]:
    # a run without a data fingerprint gets a table of its own
    known = run.metrics if run.metrics.get("data_fingerprint") else run.metrics | {"data_fingerprint": str(run.path)}
    return tuple(json.dumps(known.get(key), sort_keys=True) for key in TABLE_KEYS)


def names_of(runs: Sequence[Run], by: Sequence[str]) -> list[tuple[str, ...]]:
    """The values of the keys for each run, without keys its label.

    Runs of one encoder but of several networks are one row per network: ``identity, sine``.
    """
    if not by:
        return [(run.label,) for run in runs]

    def texts(key: str, missing: str) -> list[str]:
        return [missing if (value := run.value(key)) is MISSING else as_text(value) for run in runs]

    columns = [texts(key, f"no {key}") for key in by]
    if "encoder.name" in by and not any(key.startswith("network") for key in by):
        place, networks = by.index("encoder.name"), texts("network.name", "")
        several = [name for name, _ in set(zip(columns[place], networks, strict=True))]
        columns[place] = [
            f"{name}, {network}" if network and several.count(name) > 1 else name
            for name, network in zip(columns[place], networks, strict=True)
        ]
    return list(zip(*columns, strict=True))


def make_table(
    runs: Sequence[Run], names: Sequence[tuple[str, ...]], by: tuple[str, ...] = (), baseline: str | None = None
) -> ScoreTable:
    """The table of runs of the same data, samples and metric; runs with the same names are one row."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run, values in zip(runs, names, strict=True):
        groups.setdefault(values, []).append(run)
    rows = [Row(", ".join(values), tuple(group), groups=values if by else ()) for values, group in groups.items()]
    for run in runs:  # all runs of a table have the same interpolations
        for method, scores in run.metrics.get("baselines", {}).items():
            name = f"{show_interpolation(printable(method), len(run.grid))} interpolation"
            if name not in [row.name for row in rows]:
                shared = {key: run.metrics.get(key) for key in ("signals", "metric", "grid")}
                rows.append(Row(name, (Run(run.path, name, shared | scores),), interpolation=True))
    return _table(rows, by, baseline)


def _table(rows: list[Row], by: tuple[str, ...], baseline: str | None, data_sets: int = 1) -> ScoreTable:
    """The rows, best first, with their baseline."""
    sign = 1 if rows[0].runs[0].metric.higher_is_better else -1
    rows.sort(key=lambda row: -math.inf if math.isnan(row.mean) else sign * row.mean, reverse=True)
    chosen = next((row for row in rows if baseline is not None and row.is_called(baseline)), None)
    best = next(row for row in rows if not row.interpolation)
    return ScoreTable(tuple(rows), chosen or best, by, "" if chosen or baseline is None else baseline, data_sets)


def _over_data_sets(tables: Sequence[ScoreTable], baseline: str | None) -> ScoreTable:
    """The rows of several tables, each with the signals of all of them; a row without some signals has no mean."""
    known = Counter(signal for table in tables for signal in table.baseline.test)
    merged: dict[str, list[tuple[Row, Run]]] = {}
    signals: dict[str, None] = {}
    for number, table in enumerate(tables, 1):
        names = {name: name if known[name] == 1 else f"{name}, table {number}" for name in table.baseline.test}
        signals |= dict.fromkeys(names.values())
        for row in table.rows:
            for run in row.runs:
                renamed = [names.get(name, name) for name in run.signals]
                part = replace(run, metrics=run.metrics | {"signals": renamed})
                merged.setdefault(row.name, []).append((row, part))
    rows = [replace(parts[0][0], runs=tuple(run for _, run in parts), signals=tuple(signals)) for parts in merged.values()]
    return _table(rows, tables[0].by, baseline, len(tables))


def _number(value: float, form: str) -> str:
    return MISSING if math.isnan(value) else format(value, form)

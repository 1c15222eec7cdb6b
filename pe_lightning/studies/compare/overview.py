"""One table over several data sets and protocols: a row per group of runs, a column per combination of further keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator
from rich.text import Text

from pe_lightning import errors
from pe_lightning.errors import InputError
from pe_lightning.results.run import MISSING, Metric, Run, look_up
from pe_lightning.signals.files import figure_bytes
from pe_lightning.studies.compare.scores import make_table, names_of
from pe_lightning.studies.statistics import standard_error, t_interval
from pe_lightning.studies.tables import latex_table, markdown_table, print_table

INTERPOLATION = "best interpolation"
"""The row of the interpolation with the highest mean score of each column."""
COLUMN_WIDTH = 20
"""Characters of a column of scores in the terminal; of more columns than its width has, several tables are printed."""
MIN_RANKED = 5
"""Fewest rows whose order is compared with that of another key."""


@dataclass(frozen=True)
class Overview:
    """Scores of groups of runs, by column.

    Args:
        by: The keys of the rows.
        across: The keys of the columns.
        metric: The metric of all runs.
        scores: A line per row, column and signal: the columns ``row`` and ``column`` (tuples of texts),
            ``interpolation``, ``run``, ``seed``, ``signal``, ``score``, and ``gain``, the score above the best
            interpolation of the same signal.
        numbers: Values of further keys: ``row``, ``column``, ``key``, ``value``.
    """

    by: tuple[str, ...]
    across: tuple[str, ...]
    metric: Metric
    scores: pd.DataFrame
    numbers: pd.DataFrame

    @property
    def columns(self) -> list[tuple[str, ...]]:
        """The columns in the order of the runs."""
        return list(dict.fromkeys(self.scores["column"]))

    @property
    def has_gain(self) -> bool:
        """Whether any signal has a gain: interpolation reproduces trained samples."""
        return bool(self.scores["gain"].notna().any())

    @property
    def scored(self) -> str:
        """What is scored, before the name of the metric: nothing where trained samples are."""
        return "held-out " if self.has_gain else ""

    def _by_column(self, quantity: str) -> pd.DataFrame:
        """Means over signals of the means of each signal, rows by columns."""
        per_signal = self.scores.groupby(["row", "column", "signal"], sort=False)[quantity].mean()
        return per_signal.groupby(["row", "column"], sort=False).mean().unstack()[self.columns]

    def means(self) -> pd.DataFrame:
        """Mean scores, rows by columns, best first; a last column ``gain`` has the mean above interpolation.

        The best row has the highest gain, or mean of all columns where there is no gain.
        """
        table = self._by_column("score")
        table["gain"] = self.scores.groupby(["row", "column", "signal"])["gain"].mean().groupby("row").mean()
        order = table["gain"] if self.has_gain else table[self.columns].mean(axis=1, skipna=False)
        return table.loc[order.sort_values(ascending=not self.metric.higher_is_better, kind="stable").index]

    def errors(self) -> pd.DataFrame:
        """Standard errors of the means: over signals, of a single signal over seeds; NaN of a single value."""
        found = {}
        for (row, column), cell in self.scores.groupby(["row", "column"], sort=False):
            by_signal = cell.groupby("signal")["score"].mean()
            over = by_signal if len(by_signal) > 1 else cell.groupby("seed", dropna=False)["score"].mean()
            found[row, column] = standard_error([value for value in over if math.isfinite(value)])
        return pd.Series(found).unstack().reindex(index=self.means().index, columns=self.columns)

    def gain_interval(self, row: tuple[str, ...]) -> tuple[float, float]:
        """Mean gain over all signals of all columns, and half the width of its interval."""
        own = self.scores[self.scores["row"] == row]
        gains = own.groupby(["column", "signal"])["gain"].mean()
        return t_interval([value for value in gains if math.isfinite(value)])

    def _points(self, key: str) -> list[tuple[tuple[str, ...], tuple[str, ...], float, float]]:
        """Row, column, value of a key and mean score."""
        means = self.means()
        values = self.numbers[self.numbers["key"] == key].groupby(["row", "column"])["value"].mean()
        return [(row, column, value, means.loc[[row], [column]].iloc[0, 0]) for (row, column), value in values.items()]

    def correlation(self, key: str) -> pd.Series:
        """Spearman's rank correlation between the scores of the rows and the values of a key, by column."""
        from scipy.stats import spearmanr  # takes a while to import

        points, found = self._points(key), {}
        for column in self.columns:
            pairs = [(score, value) for _, where, value, score in points if where == column]
            known = [pair for pair in pairs if np.isfinite(pair).all()]
            several = len(known) >= MIN_RANKED and len({value for _, value in known}) > 1
            found[column] = float(spearmanr(*zip(*known, strict=True)).statistic) if several else math.nan
        return pd.Series(found)

    def texts(self) -> pd.DataFrame:
        """The table as text: ``27.65 ± 1.89`` for each column, and the gain with its interval."""
        means, spreads = self.means(), self.errors()
        shown = pd.DataFrame(index=means.index)
        for column in self.columns:
            shown[", ".join(column)] = [
                self.metric.text(mean) + (f" ± {self.metric.text(spread)}" if math.isfinite(spread) else "")
                for mean, spread in zip(means[column], spreads[column], strict=True)
            ]
        intervals = [self.gain_interval(row) for row in means.index]
        shown["above interpolation"] = [
            self.metric.text(mean, "+") + (f" ± {self.metric.text(half)}" if math.isfinite(half) else "")
            for mean, half in intervals
        ]
        shown.index = pd.MultiIndex.from_tuples(list(means.index), names=self.by)
        return shown.loc[:, (shown != MISSING).any()]

    def print(self) -> None:
        """Prints the table, with the correlations of further keys."""
        console, shown = errors.console(), self.texts()
        title = f"Mean {self.scored}{self.metric.title} of all data, by {', '.join(self.across)}"
        console.print(Text(title, style="italic"))
        styles = ["dim" if names[0] == INTERPOLATION else "" for names in shown.index]
        names_width = sum(max(map(len, level)) + 3 for level in shown.index.levels)
        together = max(1, (console.width - names_width) // COLUMN_WIDTH)
        for first in range(0, shown.shape[1], together):
            print_table(console, shown.iloc[:, first : first + together], styles)
        console.print(
            Text(
                "Means ± standard error over signals, of one signal over seeds; above interpolation: mean ± half of a 95% t "
                "interval over all signals, paired with the best interpolation of each column."
            )
        )
        for key in dict.fromkeys(self.numbers["key"]):
            found = self.correlation(key).dropna()
            values = "; ".join(f"{', '.join(column)} {value:+.2f}" for column, value in found.items())
            few = f"fewer than {MIN_RANKED} rows of a column have it"
            console.print(Text(f"Rank correlation of {key} with the score: {values or few}"))

    def plot(self, key: str) -> Figure:
        """The scores against the values of a key, a panel per column."""
        count = len(self.columns)
        wide = min(3, count)
        high = math.ceil(count / wide)
        figure = Figure(figsize=(3.2 * wide, 2.6 * high), layout="constrained")
        points, correlations = self._points(key), self.correlation(key)
        for place, column in enumerate(self.columns, 1):
            axes = figure.add_subplot(high, wide, place)
            shown = [(row, value, score) for row, where, value, score in points if where == column]
            for row, value, score in shown:
                axes.plot(value, score, ".", color="C0")
                axes.annotate(", ".join(row)[:20].replace("$", r"\$"), (value, score), fontsize=4)
            axes.set_title(f"{', '.join(column)}: {correlations[column]:+.2f}".replace("$", r"\$"), fontsize="small")
            # zero and negative values are drawn, without decades between them and the least of the others
            least = min((value for _, value, _ in shown if 0 < value < math.inf), default=1.0)
            threshold = 10.0 ** math.floor(math.log10(least))
            axes.set_xscale("symlog", linthresh=threshold)
            ticks = SymmetricalLogLocator(base=10, linthresh=threshold)
            ticks.set_params(numticks=6)
            axes.xaxis.set_major_locator(ticks)
            axes.tick_params(labelsize="x-small")
            axes.grid(alpha=0.3)
        figure.supxlabel(key.replace("_", " "), fontsize="small")
        figure.supylabel(f"{self.scored}{self.metric.title}", fontsize="small")
        return figure

    def plot_rows(self) -> Figure:
        """The rows, best first: a point per column, and the mean of all with its interval where it is a gain."""
        rows = self.means().index
        shown = self._by_column("gain" if self.has_gain else "score").reindex(index=rows)
        figure = Figure(figsize=(8, 1.4 + 0.19 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(rows))
        for number, column in enumerate(self.columns):
            axes.plot(shown[column], places, "o", ms=3, color=f"C{number % 10}", label=", ".join(column), alpha=0.8)
        if self.has_gain:
            middles, halves = zip(*map(self.gain_interval, rows), strict=True)
            axes.errorbar(middles, places, xerr=np.nan_to_num(halves), fmt="|k", ms=9, elinewidth=1, label="all, 95 %")
            axes.axvline(0, color="0.6", lw=0.8)
        axes.set_yticks(places, [", ".join(row).rstrip(", ").replace("$", r"\$") for row in rows], fontsize="x-small")
        axes.invert_yaxis()
        axes.set_xlabel(f"{self.metric.title}{' above the best interpolation' * self.has_gain}")
        axes.grid(alpha=0.3)
        figure.legend(loc="outside lower center", ncols=3, fontsize="x-small", frameon=False)
        return figure

    def files(self, form: str = "png") -> dict[str, str | bytes]:
        """``overview`` as CSV in full precision, Markdown, LaTeX for booktabs and a plot; one more plot for each key."""
        shown, means = self.texts(), self.means()
        plain = means.copy()
        plain.columns = [name if isinstance(name, str) else ", ".join(name) for name in means.columns]
        plain.index = shown.index
        content: dict[str, str | bytes] = {
            "overview.csv": plain.to_csv(lineterminator="\n"),
            "overview.md": markdown_table(shown, ["*" * (names[0] == INTERPOLATION) for names in shown.index]) + "\n",
            "overview.tex": latex_table(shown),
            f"overview.{form}": figure_bytes(self.plot_rows(), form, dpi=120),
        }
        for key in dict.fromkeys(self.numbers["key"]):
            content[f"score_vs_{key.replace('.', '_')}.{form}"] = figure_bytes(self.plot(key), form, dpi=120)
        return content


def make_overview(runs: Sequence[Run], by: Sequence[str], across: Sequence[str], against: Sequence[str] = ()) -> Overview:
    """The overview of runs.

    Args:
        runs: Runs of one metric.
        by: Keys whose values make a row (:func:`~pe_lightning.studies.compare.scores.compare`).
        across: Keys whose values make a column; runs of a column have the same data and the same scored samples.
        against: Numbers of ``metrics.json`` whose order is compared with that of the scores; of a curve its last value.
    """
    if len({run.metric.name for run in runs}) > 1:
        raise InputError("--across takes runs of one metric: name the folders of such runs")
    for key in (*by, *across, *against):
        if all(run.value(key) is MISSING for run in runs):
            raise InputError(
                f"no run has the key {key!r}: name keys of metrics.json, settings of a sweep, or options of fit"
            )
    columns: dict[tuple[str, ...], list[tuple[Run, tuple[str, ...]]]] = {}
    for run, column, names in zip(runs, names_of(runs, across), names_of(runs, by), strict=True):
        columns.setdefault(column, []).append((run, names))
    frames, numbers = [], []
    for column, members in columns.items():
        data = {(run.metrics.get("data_fingerprint"), str(run.metrics.get("protocol"))) for run, _ in members}
        if len(data) > 1:
            raise InputError(
                f"--across {','.join(across)}: the runs of {', '.join(column)} differ in their data or in the samples that "
                "are scored; add the key in which they differ, such as data.paths or data.sampling"
            )
        table = make_table([run for run, _ in members], [names for _, names in members], tuple(by))
        methods = [row for row in table.rows if row.interpolation and math.isfinite(row.mean)]
        # interpolation reproduces trained samples
        best = methods[0] if methods and members[0][0].metrics.get("protocol") != "all" else None
        frame = table.frame.assign(column=[column] * len(table.frame))
        frame["gain"] = (frame["score"] - frame["signal"].map({} if best is None else best.test)).where(np.isfinite)
        frame = frame[~frame["interpolation"] | frame["run"].eq(best and best.name)]
        interpolation = (INTERPOLATION, *[""] * (len(by) - 1))
        rows = [interpolation if other else row for row, other in zip(frame["row"], frame["interpolation"], strict=True)]
        frames.append(frame.assign(row=rows))
        found = [(names, column, key, last(look_up(run.metrics, key))) for run, names in members for key in against]
        numbers += [(*where, float(value)) for *where, value in found if isinstance(value, (int, float))]
    further = pd.DataFrame(numbers, columns=["row", "column", "key", "value"])
    return Overview(tuple(by), tuple(across), runs[0].metric, pd.concat(frames), further)


def last(value: Any) -> Any:
    """A value, or of a curve its last one."""
    return value[-1] if isinstance(value, list) and value else value

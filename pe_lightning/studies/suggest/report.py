"""The results of a search: the table in the terminal, and the configuration of the best encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.text import Text

from pe_lightning import errors
from pe_lightning.cli.recipes import FOLDER
from pe_lightning.errors import printable, show_metric
from pe_lightning.results.run import Metric
from pe_lightning.signals.files import user_path
from pe_lightning.signals.sources.paths import SCHEME
from pe_lightning.signals.splits import GridSplit
from pe_lightning.studies.statistics import deviation
from pe_lightning.studies.suggest.crop import ScoredSignals
from pe_lightning.studies.suggest.search import EncoderCandidate, EstimatorCandidate, SearchResult, Trial, TrialScore
from pe_lightning.studies.tables import print_table

TIE_DB = 0.05
"""Smaller differences are reported as a tie."""
EXACT = " exact"
"""End of the names of the study's methods that are solved exactly, after the name of the encoder."""


def _metric(result: SearchResult) -> Metric:
    return Metric.of(result.signals.data.info.metric)


def print_result(result: SearchResult, everything: bool = False) -> None:
    """Prints the ranked table, or all rows and columns of it, the candidates that were not tried, and the verdict."""
    console, metric = errors.console(140 if everything else 100), _metric(result)
    best, methods = result.of(interpolation=False)[:1], result.of(interpolation=True)[:1]
    trials = result.trials if everything else result.trials[:8]
    data, ranks = result.signals.data, study_ranks(result.signals)
    shown = [*trials, *(method for method in methods if method not in trials)]
    print_table(
        console,
        _texts(shown, result.signals, metric, ranks).drop(columns=[] if everything else "stable rank"),
        ["dim" if trial.candidate.interpolation else "bold" if trial in best else "" for trial in shown],
        ("chosen", "note"),
    )
    if data.info.num_signals > 1:
        console.print(Text(f"{show_metric(metric.name)}: mean ± standard deviation over {data.info.num_signals} signals."))
    if any(trial.candidate.name in ranks for trial in shown):
        column = study_column(result.signals)
        console.print(Text(f"Study: rank of the encoder among {len(ranks)} in the study of {column} (docs/which.md)."))
    for remark in filter(None, dict.fromkeys(trial.candidate.remark for trial in trials)):
        console.print(remark)
    if len(trials) < len(result.trials):
        console.print(Text(f"{len(result.trials)} candidates were tried; --all shows all."), style="dim")
    if result.signals.crop:
        console.print(Text(f"Scored on {result.signals.crop}."))
    for reason in dict.fromkeys(result.skipped.values()):
        labels = [label for label, other in result.skipped.items() if other == reason]
        console.print(Text(f"Not tried: {'; '.join(labels)} ({reason})"), style="dim")
    console.print(Text(verdict(result)), style="bold")


def study_column(signals: ScoredSignals) -> str:
    """The column of the study whose signals and samples are the most similar: ``photographs, every second``."""
    info = signals.data.info
    kinds = {1: "rows", 2: "photographs", 3: "video" if info.media == "video" else "volume"}
    samples = "every second" if isinstance(signals.data.split, GridSplit) else "a quarter at random"
    return f"{kinds.get(info.num_axes)}, {samples}"


def study_ranks(signals: ScoredSignals) -> dict[str, int]:
    """Ranks of the encoders that the study ``encodings`` solved exactly on similar signals, the best first."""
    scores = pd.read_csv(FOLDER / "studies/encodings.csv", index_col="method").get(study_column(signals))
    if scores is None:
        return {}
    exact = scores[scores.index.str.endswith(EXACT)].dropna().sort_values(ascending=False)
    return {name.removesuffix(EXACT): place for place, name in enumerate(exact.index, 1)}


def _texts(trials: Sequence[Trial], signals: ScoredSignals, metric: Metric, ranks: Mapping[str, int]) -> pd.DataFrame:
    cells = [
        {
            "chosen": _chosen(trial.found),
            f"held out\n({metric.unit or metric.name})": _score(metric, trial.found),
            "seconds": f"{trial.found.seconds:.2f}",
            "parameters": "–" if trial.found.params is None else f"{trial.found.params:,}",
            "stable rank": "–" if trial.found.stable_rank is None else f"{trial.found.stable_rank:,.1f}",
            "study": str(ranks.get(trial.candidate.name, "–")),
            "note": ", ".join(trial.found.notes),
        }
        for trial in trials
    ]
    return pd.DataFrame(
        cells, pd.MultiIndex.from_tuples([(trial.candidate.label(signals),) for trial in trials], names=["encoder"])
    )


def verdict(result: SearchResult) -> str:
    """The result in one or two sentences."""
    tried = result.of(interpolation=False)
    if not tried:
        return "No encoder could be tried."
    best, metric = tried[0], _metric(result)
    text = f"Best encoder: {best.candidate.label(result.signals)}, {metric.text(best.found.mean, unit=True)}."
    rivals = result.of(interpolation=True)
    if not rivals:
        return text
    rival, name = rivals[0].found.mean, rivals[0].candidate.label(result.signals)
    ahead = 0.0 if best.found.mean == rival else best.found.mean - rival  # both may be infinite
    theirs, by = (metric.text(value, unit=True) for value in (rival, abs(ahead)))
    if ahead == 0 or (metric.unit == "dB" and abs(ahead) < TIE_DB):
        return f"{text} It ties with {name} ({theirs})."
    if ahead < 0:
        return (
            f"{text} But {name} ({theirs}) beats every encoder by {by} and needs no fit: use it to fill in the samples "
            "between the given ones."
        )
    return f"{text} It beats the best interpolation, {name} ({theirs}), by {by}."


def _score(metric: Metric, found: TrialScore) -> str:
    if not math.isfinite(found.mean):
        return "not finite" if found.mean < 0 else "exact"
    spread = f" ± {metric.text(deviation(found.per_signal))}" if len(found.per_signal) > 1 else ""
    return f"{metric.text(found.mean)}{spread}"


def _chosen(found: TrialScore) -> str:
    """Such as ``sigma 0.0045/0.003, ridge 0.047``: equal widths of several axes once."""
    widths: dict[str, list[str]] = {}
    for encoder in found.encoders:
        if encoder.width is not None:
            name = encoder.width.argument
            widths.setdefault(name, []).append(f"{float(getattr(encoder, name)):.3g}")
    shown = [f"{name} {'/'.join(dict.fromkeys(values))}" for name, values in widths.items()]
    return ", ".join(shown if found.ridge is None else [*shown, f"ridge {found.ridge:.2g}"])


def configuration(result: SearchResult, tree: Mapping[str, Any], out: Path) -> str:
    """The text of ``out``: the best encoder and the data of ``tree``, as :func:`as_text` takes it."""
    best = result.of(interpolation=False)[0]
    candidate, found = best.candidate, best.found
    if isinstance(candidate, EstimatorCandidate):
        return as_text([verdict(result)], candidate.estimator.section(candidate.variant.arguments), tree, out)
    assert isinstance(candidate, EncoderCandidate)
    arguments: dict[str, Any] = {"ridge": found.ridge, "solver": "exact"}
    if result.signals.crop:
        arguments |= {"encoder": candidate.describe(result.signals, full=True), "ridge": "auto"}
        how = f"The fit chooses sigma and ridge from all samples; the encoder was scored on {result.signals.crop}."
    else:
        each = [{"name": encoder.name, **encoder.changed_arguments()} for encoder in found.encoders]
        arguments["encoder"] = each[0] if each[1:] == each[:-1] else each
        what = "sigma and ridge were" if candidate.width else "ridge was"
        how = f"{what} chosen on held-out training samples; write auto to choose again for other data."
    return as_text([verdict(result), how], {"class_path": "pe_lightning.ComplexLinear", "init_args": arguments}, tree, out)


def as_text(notes: Sequence[str], model: Mapping[str, Any], tree: Mapping[str, Any], out: Path) -> str:
    """A configuration that fits ``model``, with notes above it.

    Args:
        notes: Lines of comments; the first follows the name of the command.
        model: The section ``model``.
        tree: The configuration of the signals, without default values; relative paths of the data become absolute.
        out: The file, for the command in the last comment.
    """
    sections = {"model": dict(model), "data": _absolute(tree["data"]), "trainer": {"max_steps": 0}}
    if tree.get("seed_everything"):
        sections["seed_everything"] = tree["seed_everything"]
    said = [f"Written by pe-lightning suggest. {notes[0]}", *notes[1:], f"Run it: pe-lightning fit --config {out}"]
    text = yaml.safe_dump(sections, default_flow_style=None, width=10**6, allow_unicode=True, sort_keys=False)
    return "".join(f"# {printable(line)}\n" for line in said) + text


def _absolute(value: Any, key: str = "") -> Any:
    """A section with absolute paths of local files; a single path without a list."""
    if isinstance(value, dict):
        return {name: _absolute(entry, name) for name, entry in value.items()}
    if key not in ("path", "paths"):
        return value
    if isinstance(value, list):
        return _absolute(value[0], key) if len(value) == 1 else [_absolute(entry, key) for entry in value]
    return value if value.startswith(SCHEME) else str(user_path(value).absolute())

"""A run in plain values: its description, its scores beside interpolation of the same samples, and their table."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from rich.table import Table
from torch import Tensor

from pe_lightning import errors
from pe_lightning.errors import InputError, last_resort, say, show_bytes, show_metric
from pe_lightning.estimators.folds import interpolated_folds
from pe_lightning.evaluation.baselines import baselines, interpolate
from pe_lightning.evaluation.metrics import create, metrics, unit_of
from pe_lightning.evaluation.scores import summary
from pe_lightning.results import runs
from pe_lightning.results.comparisons import ALL_SIGNALS
from pe_lightning.results.metrics_file import SCHEMA
from pe_lightning.signals.batches import GridBatch, SignalInfo
from pe_lightning.signals.sources.paths import SourceFile
from pe_lightning.training.datamodule import SignalDataModule

Array = npt.NDArray[np.float32]


@runtime_checkable
class Describes(Protocol):
    """A LightningModule that can be recorded.

    After a test it also has ``scores``, a dictionary of values per signal ``(S,)`` by name, such as ``test/psnr`` and
    ``train/psnr``. If its ``test_step`` returns a dictionary with ``prediction``, that becomes the run's reconstructions.
    """

    monitor: str
    """Logged value by which fits are compared: ``val/<metric>``."""
    monitor_mode: Literal["max", "min"]

    def describe(self) -> dict[str, Any]:
        """Plain values for ``metrics.json``: at least ``model``, ``num_params`` and ``encoder`` (with ``name``, or None).

        ``data_name`` names run directories. Where the DataModule is not one of signals, ``data_fingerprint``, ``protocol``
        and ``sampling`` say which runs can be compared.
        """
        ...


def metric_of(module: Describes) -> str:
    """The metric by which fits of a module are compared."""
    return module.monitor.rpartition("/")[2]


def encoder_names(described: Mapping[str, Any]) -> str:
    """The distinct encoders of a description, joined by ``+``; empty for none."""
    entries = described["encoder"] if isinstance(described["encoder"], list) else [described["encoder"]]
    return "+".join(dict.fromkeys(entry["name"].rpartition(".")[2] for entry in entries if entry))


def run_name(described: Mapping[str, Any], data: SignalDataModule | None) -> str:
    """The name of a run: data, model, network and encoder, joined by dashes: ``camera-SimpleMLP-sine-identity``."""
    first = described.get("data_name") or data_name(described.get("signals", ["data"]), data)
    network = (described.get("network") or {}).get("name", "")
    return "-".join(filter(None, [first, described["model"], network, encoder_names(described)]))


def data_name(signals: Sequence[str], data: SignalDataModule | None) -> str:
    """One name for all signals: of the file or folder that holds several, else of the only signal, else their number."""
    paths = [] if data is None else data.source.describe().get("paths") or []
    if len(signals) > 1 and len(paths) == 1:
        return SourceFile(Path(paths[0]), paths[0]).stem
    return signals[0] if len(signals) == 1 else f"{len(signals)}-signals"


def describe(module: Describes, data: SignalDataModule | None) -> dict[str, Any]:
    """Description of data and module as plain values; a module that names no signals has one, called ``data``."""
    about = data.describe() if data is not None else {}
    known = {key: about.get(key) for key in ("protocol", "sampling", "paths")}
    known["data_fingerprint"] = about.get("fingerprint")
    known |= {key: about[key] for key in ("num_missing", "num_validation") if key in about}
    described = {"signals": ["data"], "solution": None, **known, **module.describe()}
    return {**described, "num_signals": len(described["signals"])}


def score(module: Describes, described: Mapping[str, Any]) -> dict[str, Any]:
    """The scores of a tested module, per signal and on average, as plain values."""
    metric, scores, signals = metric_of(module), getattr(module, "scores", {}), len(described["signals"])
    shapes = {key: tuple(values.shape) for key, values in scores.items()}
    if f"test/{metric}" not in shapes or set(shapes.values()) != {(signals,)}:
        raise InputError(
            f"{type(module).__name__}: a test must leave scores['test/{metric}'], and every score has the shape "
            f"({signals},), as describe()['signals'] names {signals}; got {shapes}"
        )
    found: dict[str, Any] = {"schema": SCHEMA, "metric": metric}
    for key, per_signal in scores.items():
        nothing = "no sample was trained on" if key.startswith("train/") else "nothing is held out (protocol none)"
        found |= summary(per_signal, key, nothing)
    return found


def rmse_in_units(scores: Mapping[str, Tensor], info: SignalInfo) -> dict[str, Any]:
    """The root mean squared error of held-out samples in the units of the source, from their PSNR, as plain values."""
    psnr = scores["test/psnr"].double()
    ranges = [info.scaling.of(signal) for signal in range(info.num_signals)]
    extents = torch.tensor([high - low for low, high in ranges], dtype=torch.float64)
    return summary(extents * 10 ** (-psnr / 20), "test/rmse", "nothing is held out (protocol none)")


Baselines = tuple[dict[str, dict[str, Any]], "tuple[str, Array] | None"]
_BASELINES: WeakKeyDictionary[SignalDataModule, dict[str, Baselines]] = WeakKeyDictionary()


def score_baselines(data: SignalDataModule | None, metric: str = "psnr") -> Baselines:
    """Scores of all baselines that apply, on the held-out samples.

    Computed once per DataModule and metric: the fits of a sweep share a DataModule. Empty without a DataModule of this
    package, if nothing is held out, or if ``metric`` is not registered in :data:`pe_lightning.evaluation.metrics.metrics`.

    Returns:
        The scores per baseline; and the name of the best one with its prediction ``(S, *grid, C)``.
    """
    if data is None:
        return {}, None
    known = _BASELINES.setdefault(data, {})
    if metric not in known:
        in_folds = data.folds is not None and metric == data.info.metric
        known[metric] = (_in_folds(data), None) if in_folds else _on_held_out(data, metric)
    return known[metric]


def _in_folds(data: SignalDataModule) -> dict[str, dict[str, Any]]:
    assert data.folds is not None
    scores, left_out = interpolated_folds(data.signals, data.folds)
    key = f"test/{data.info.metric}"
    found = {name: summary(score.values, key, "nothing is held out") for name, score in scores.items()}
    return found | {name: {key: None, f"{key}_reason": reason} for name, reason in left_out.items()}


def _on_held_out(data: SignalDataModule, metric: str) -> Baselines:
    if data.effective_eval_mask == "none" or metric not in metrics:
        return {}, None
    key, sign = f"test/{metric}", 1 if metrics.get(metric).higher_is_better else -1
    if data.streamed:
        return {"linear": {key: None, f"{key}_reason": "interpolation needs the signals in memory"}}, None
    train, evaluation = data.train_batch(), data.evaluation_batch()
    found: dict[str, dict[str, Any]] = {}
    best: tuple[str, Array] | None = None
    for name in baselines:
        scores = create(metric, data.info.num_signals, sync_on_compute=False)  # only rank 0 computes baselines
        try:
            if not baselines.create(name).applies_to(data.info, data.split):
                continue
            wanted = evaluation.axes if isinstance(evaluation, GridBatch) else evaluation.coords[0]
            prediction = interpolate(name, train, wanted)
            scores.update(prediction, evaluation.values, evaluation.mask)
        except Exception as error:  # an error in a baseline must not end a fit that has succeeded
            reason = str(error) if isinstance(error, InputError) else last_resort(error)[0]
            found[name] = {key: None, f"{key}_reason": f"left out: {reason}"}
            continue
        found[name] = summary(scores.per_signal(), key, "nothing is held out")
        mean = found[name][key]
        if mean is not None and (best is None or sign * mean > sign * found[best[0]][key]):
            best = name, prediction.float().numpy()
    return found, best


def advice(report: Mapping[str, Any], folder: Path, can_solve_exactly: bool = False) -> str:
    """A message with what to try if the result of a run is below the best baseline, else an empty string."""
    test = f"test/{report['metric']}"
    scores = {name: row[test] for name, row in report["baselines"].items() if row[test] is not None}
    if report[test] is None or not scores:  # there are baselines for registered metrics only
        return ""
    metric = metrics.get(report["metric"])
    sign = 1 if metric.higher_is_better else -1
    name = max(scores, key=lambda baseline: sign * scores[baseline])
    gap = sign * (scores[name] - report[test])
    if gap < (0.05 if metric.unit == "dB" else 0.005):
        return ""
    exact = "the exact fit (--model.solver exact --trainer.max_steps 0), or "
    is_trained = can_solve_exactly and report.get("solve_seconds") is None
    config = folder / runs.CONFIG
    other = f"pe-lightning suggest --config {shlex.quote(str(config))}" if config.is_file() else "another encoder or width"
    return f"{f'{gap:.2f} {metric.unit}'.rstrip()} below {name} interpolation. Try {exact * is_trained}{other}."


def print_fit_scores(
    report: Mapping[str, Any],
    run_dir: Path,
    durations: runs.Durations,
    can_solve_exactly: bool = False,
    of_pictures: Sequence[str] = (),
) -> None:
    """Prints the scores per signal beside interpolation, the seconds that everything took, and where the files are.

    A model that can be solved exactly is recommended to, where its trained fit is below interpolation. ``of_pictures`` are
    the keys of scores of all samples.
    """
    console, metric = errors.console(None), report["metric"]
    test, unit, word = f"test/{metric}", unit_of(metric), show_metric(metric) if metric in metrics else metric
    protocol = f"\n({report['protocol']})" * (report["protocol"] is not None)
    titles = {test: f"held-out {word}{protocol}", f"train/{metric}": f"train {word}"}
    titles |= {key: f"{show_metric(key.removeprefix('test/'))} of all samples" for key in of_pictures}
    titles["test/rmse"] = "held-out RMSE\n(units of the source)"
    shown = [key for key in titles if key in report and (key == test or report[key] is not None)]
    units = {key: unit if key in (test, f"train/{metric}") else "" for key in shown}
    per = " per signal" if "grid" in report else ""
    network = (report.get("network") or {}).get("name", "")
    method = ", ".join(filter(None, [report["model"], network, encoder_names(report)]))
    size = report.get("checkpoint_bytes")
    file = "" if size is None else f", file of {show_bytes(size)}"
    table = Table(title=f"{method}, {report['num_params']:,} parameters{per}{file}")
    table.add_column("signal")
    for key in units:
        table.add_column(titles[key], justify="right", overflow="fold")
    if report["num_signals"] <= 24:  # metrics.json has them all
        for index, name in enumerate(report["signals"]):
            table.add_row(name, *[_shown(report[f"{key}_per_signal"][index], of) for key, of in units.items()])
    if report["num_signals"] > 1:
        table.add_section()
        table.add_row("mean ± std", *[_shown(report[key], of, report[f"{key}_std"]) for key, of in units.items()])
    baselines = {name: row for name, row in report["baselines"].items() if row[test] is not None}
    table.add_section()
    for name, row in sorted(baselines.items(), key=lambda item: item[1][test]):
        deviation = row[f"{test}_std"] if report["num_signals"] > 1 else None
        table.add_row(f"{name} interpolation", _shown(row[test], unit, deviation), style="dim")
    console.print(table)
    if weights := (report.get("prior") or {}).get("weight"):
        mixed = f"Mixed with the network {report['prior']['name']!r}, which was trained on other pictures"
        console.print(f"{mixed}: weight {math.fsum(weights) / len(weights):.2f}", highlight=False, markup=False)
    for name, row in report["baselines"].items():
        if name not in baselines:
            console.print(f"{name} interpolation: {row[f'{test}_reason']}", highlight=False, markup=False)
    for key in units:
        if reason := report.get(f"{key}_reason"):
            console.print(f"{key}: {reason}", highlight=False)
    folder = Path(os.path.relpath(run_dir)) if run_dir.is_relative_to(Path.cwd()) else run_dir
    if hint := advice(report, folder, can_solve_exactly):
        console.print(hint, style="yellow", highlight=False, soft_wrap=True)
    if report["fit_seconds"] is not None:
        solved = report.get("solve_seconds") is not None
        parts = [solution_reached(report.get("solution") or {})] * solved + [f"{report['steps']} steps"] * (
            report["steps"] > 0 or not solved
        )
        every = ", ".join(f"{name} {seconds:.1f}" for name, seconds in durations.seconds.items())
        console.print(f"{', then '.join(parts)} in {report['fit_seconds']:.1f} s", highlight=False, soft_wrap=True)
        console.print(f"{durations.total:.1f} s in all: {every}", highlight=False)
    # printed without wrapping, so that the path can be copied
    if (run_dir / runs.RECONSTRUCTIONS).is_dir():
        together = folder / runs.RECONSTRUCTIONS / ALL_SIGNALS
        some = f"{ALL_SIGNALS}, and pictures of the first {runs.MAX_FILES} signals" if together.is_file() else ""
        say(f"reconstructions: {folder / runs.RECONSTRUCTIONS}{f' ({some})' if some else ''}")
    say(f"metrics:         {folder / runs.METRICS}")


def solution_reached(solution: Mapping[str, Any]) -> str:
    """How near to the least squared error a solution is, from its part of ``metrics.json``."""
    if solution.get("exact"):
        return "solved exactly"
    if (residual := solution.get("relative_residual")) is not None:
        reached = f", optimality {solution['optimality']:.1g}" if "optimality" in solution else ""
        return f"solved to a relative residual of {residual:.1g}{reached}"
    if (excess := solution.get("excess_error") or 0.0) > 0:
        return f"solved to {1 + excess:.3g} times the least squared error, the limit of the weights' precision"
    if (optimality := solution.get("optimality")) is not None:
        return f"solved to an optimality of {optimality:.1g}"
    return "solved directly"


def _shown(value: float | None, unit: str, deviation: float | None = None) -> str:
    digits = 2 if unit else 4
    numbers = [f"{number:.{digits}f}" for number in (value, deviation) if number is not None]
    return f"{' ± '.join(numbers) or '-'} {unit if numbers else ''}".rstrip()

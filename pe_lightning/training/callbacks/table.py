"""The table of a run: its scores beside interpolation, and what to try where interpolation is better."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from pe_lightning import errors
from pe_lightning.errors import say, show_bytes, show_interpolation, show_metric, show_protocol
from pe_lightning.evaluation.metrics import metrics, unit_of
from pe_lightning.results import runs
from pe_lightning.results.comparisons import ALL_SIGNALS
from pe_lightning.training.callbacks.scores import encoder_names


def advice(report: Mapping[str, Any], folder: Path, can_solve_exactly: bool = False) -> str:
    """What to try if the result of a run is below the best baseline, else an empty string."""
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
    return f"{f'{gap:.2f} {metric.unit}'.rstrip()} below {_interpolation(name, report)}. Try {exact * is_trained}{other}."


def print_fit_scores(
    report: Mapping[str, Any],
    run_dir: Path,
    durations: runs.Durations,
    can_solve_exactly: bool = False,
    of_pictures: Sequence[str] = (),
) -> None:
    """Prints the scores per signal beside interpolation, durations, and where the files are.

    ``of_pictures``: keys of scores of all samples. ``can_solve_exactly``: whether to recommend the exact fit.
    """
    console, metric = errors.console(None), report["metric"]
    test, unit, word = f"test/{metric}", unit_of(metric), show_metric(metric) if metric in metrics else metric
    titles = {test: f"held-out {word}", f"train/{metric}": f"train {word}"}
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
        table.add_row(_interpolation(name, report), _shown(row[test], unit, deviation), style="dim")
    console.print(table)
    if report["protocol"] is not None:
        console.print(f"held out: {show_protocol(report['protocol'])}", highlight=False, markup=False)
    weights = (report.get("prior") or {}).get("weight") or [0.0]
    if (weight := f"{math.fsum(weights) / len(weights):.2f}") != "0.00":
        mixed = f"Mixed with the network {report['prior']['name']!r}, which was trained on other pictures"
        console.print(f"{mixed}: weight {weight}", highlight=False, markup=False, soft_wrap=True)
    for name, row in report["baselines"].items():
        if name not in baselines:
            text = f"{_interpolation(name, report)}: {row[f'{test}_reason']}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
    for key in units:
        if reason := report.get(f"{key}_reason"):
            console.print(f"{key}: {reason}", highlight=False)
    folder = runs.in_short(run_dir)
    if hint := advice(report, folder, can_solve_exactly):
        console.print(hint, style="yellow", highlight=False, soft_wrap=True)
    if report["fit_seconds"] is not None:
        solved = report.get("solve_seconds") is not None
        parts = [solution_reached(report.get("solution") or {})] if solved else []
        parts += [f"{report['steps']} steps"] if report["steps"] > 0 or not solved else []
        every = ", ".join(f"{name} {seconds:.1f}" for name, seconds in durations.seconds.items())
        values = f": {', '.join(found)}" if (found := found_values(report)) else ""
        console.print(f"{', then '.join(parts)} in {report['fit_seconds']:.1f} s{values}", highlight=False, soft_wrap=True)
        console.print(f"{durations.total:.1f} s in all: {every}", highlight=False)
    # printed without wrapping, so that the path can be copied
    if (run_dir / runs.RECONSTRUCTIONS).is_dir():
        together = folder / runs.RECONSTRUCTIONS / ALL_SIGNALS
        some = f"{ALL_SIGNALS}, and pictures of the first {runs.MAX_FILES} signals" if together.is_file() else ""
        say(f"reconstructions: {folder / runs.RECONSTRUCTIONS}{f' ({some})' if some else ''}")
    say(f"metrics:         {folder / runs.METRICS}")


def solution_reached(solution: Mapping[str, Any]) -> str:
    """How near a solution is to the least squared error."""
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


def found_values(report: Mapping[str, Any]) -> list[str]:
    """The widths that a fit chose or learned, and the ridge that it chose: ``sigma 0.0236 (learned)``, ``ridge 0.157``."""
    choice = (report.get("solution") or {}).get("choice") or {}
    learned, widths = report.get("learned") or {}, dict[str, list[float]]()
    for key, value in learned.items():
        name = key.rpartition(".")[2]
        if name.startswith("log_") and not isinstance(value, Mapping):  # a long one is a summary
            widths.setdefault(name.removeprefix("log_"), []).extend(np.exp(np.ravel(value)).tolist())
    if not learned and choice.get("factors"):
        for name, value in zip(choice["parameter"], choice["value"], strict=True):
            if name is not None:  # an encoder without a width
                widths.setdefault(name, []).append(value)
    spans = {name: dict.fromkeys(f"{value:.3g}" for value in (min(every), max(every))) for name, every in widths.items()}
    found = [f"{name} {' to '.join(span)} ({'learned' if learned else 'chosen'})" for name, span in spans.items()]
    if choice.get("padding"):
        found.append(f"padding {choice['padding']} (chosen)")
    if choice.get("features_per_sample", 1) > 1:
        found.append(f"{choice['features_per_sample']} features per sample (chosen)")
    return [*found, f"ridge {report['ridge']:.3g}"] if choice and report.get("ridge") is not None else found


def _interpolation(name: str, report: Mapping[str, Any]) -> str:
    return f"{show_interpolation(name, len(report.get('grid', ())))} interpolation"


def _shown(value: float | None, unit: str, deviation: float | None = None) -> str:
    digits = 2 if unit else 4
    numbers = [f"{number:.{digits}f}" for number in (value, deviation) if number is not None]
    return f"{' ± '.join(numbers) or '-'} {unit if numbers else ''}".rstrip()

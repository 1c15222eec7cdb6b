"""What a search found: the table in the terminal and the configuration of the best encoder."""

from __future__ import annotations

import inspect
import math
import pydoc
import statistics
from pathlib import Path
from typing import Any

import yaml
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.data.sampling import samplings
from pe_lightning.data.sources.samples import SCHEME
from pe_lightning.experiments.suggest.candidates import width_of
from pe_lightning.experiments.suggest.search import SearchResult, TrialScore

__all__ = ["configuration", "print_result", "verdict"]

TIE = 0.05
"""Differences below this, in dB, are called a tie."""


def print_result(result: SearchResult) -> None:
    """Prints the ranked table, its verdict, and what was not tried."""
    console = Console() if Console().is_terminal else Console(width=140)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("encoder", no_wrap=True)
    table.add_column("chosen", overflow="fold")
    if result.signals is not None:
        table.add_column("held out\n(dB)", justify="right", no_wrap=True)
    if result.windows is not None:
        table.add_column("in windows\n(dB)", justify="right", no_wrap=True, style="dim" if result.signals else "")
    for title in ("seconds", "parameters", "stable rank"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    best = result.encoders()[:1]
    for trial in result.trials:
        found, measured = trial.best, result.measured(trial)
        scores = ([trial.whole] if result.signals else []) + ([trial.windows] if result.windows else [])
        cells = [
            trial.candidate.label(result.shown),
            _chosen(found) if measured else "",
            *map(_psnr, scores),
            f"{found.seconds:.2f}" if measured else "–",
            f"{found.params:,}" if measured and found.params is not None else "–",
            f"{found.stable_rank:,.1f}" if measured and found.stable_rank is not None else "–",
            ", ".join(found.notes),
        ]
        style = "dim" if trial.candidate.interpolation else "bold" if trial in best else ""
        table.add_row(*map(Text, cells), style=style)
    console.print(table)
    if result.shown.info.num_signals > 1:
        console.print(Text(f"PSNR: mean ± standard deviation over {result.shown.info.num_signals} signals."))
    if result.windows is not None:
        rest = "; what came close to the best there, on all samples" if result.signals is not None else ""
        console.print(Text(f"Judged on {result.windows.text}{rest}."))
    if any(trial.candidate.padding for trial in result.trials):
        console.print(Text("K = n + 2: with a shift past each end of an axis (padding: 1)."))
    reasons: dict[str, list[str]] = {}
    for label, reason in result.skipped.items():
        reasons.setdefault(reason, []).append(label)
    for reason, labels in reasons.items():
        console.print(Text(f"Not tried: {'; '.join(labels)} ({reason})"), style="dim")
    console.print(Text(verdict(result)), style="bold")


def verdict(result: SearchResult) -> str:
    """The result in a sentence or two."""
    if not result.encoders():
        return "No encoder could be tried."
    best = result.encoders()[0]
    text = f"Best encoder: {best.candidate.label(result.shown)}, {best.best.mean:.2f} dB."
    rivals = [trial for trial in result.interpolations() if (trial.whole is None) == (best.whole is None)]
    if not rivals:
        return text
    rival = max(rivals, key=lambda trial: trial.best.mean)
    ahead, name = best.best.mean - rival.best.mean, rival.candidate.label(result.shown)
    if abs(ahead) < TIE:
        return f"{text} It ties with {name} ({rival.best.mean:.2f} dB)."
    if ahead < 0:
        return (
            f"{text} But {name} ({rival.best.mean:.2f} dB) beats every encoder here, by {-ahead:.2f} dB, with nothing to "
            "fit: for filling in the samples between the given ones, use it."
        )
    return f"{text} It beats the best interpolation, {name} ({rival.best.mean:.2f} dB), by {ahead:.2f} dB."


def _psnr(found: TrialScore | None) -> str:
    if found is None:
        return "–"
    if not math.isfinite(found.mean):
        return "not finite" if found.mean < 0 else "exact"
    spread = f" ± {statistics.pstdev(found.psnr):.2f}" if len(found.psnr) > 1 else ""
    return f"{found.mean:.2f}{spread}"


def _chosen(found: TrialScore) -> str:
    """``sigma 0.0045/0.003, ridge 0.047``: the width of each axis, once where they are equal."""
    widths: dict[str, list[str]] = {}
    for encoder in found.encoders:
        name = width_of(encoder)
        if name is not None:
            widths.setdefault(name, []).append(f"{float(getattr(encoder, name)):.3g}")
    shown = [f"{name} {'/'.join(dict.fromkeys(values))}" for name, values in widths.items()]
    return ", ".join(shown if found.ridge is None else [*shown, f"ridge {found.ridge:.2g}"])


def configuration(result: SearchResult, data: dict[str, Any], seed: object, out: Path) -> str:
    """The configuration of the best encoder: short, commented, ready for ``pe-lightning fit``.

    Args:
        result: The search.
        data: The data's class path and arguments, complete.
        seed: ``seed_everything``.
        out: The file that the text is for.
    """
    best = result.encoders()[0]
    if best.whole is not None:
        found = [{key: _rounded(value) for key, value in encoder.spec().items()} for encoder in best.whole.encoders]
        encoder = found[0] if all(entry == found[0] for entry in found) else found
        ridge: object = _rounded(best.whole.ridge)
        what = "sigma and ridge were" if any(map(width_of, best.whole.encoders)) else "ridge was"
        how = f"{what} chosen on trained samples that were held out; write auto to choose again, for other data"
    else:
        encoder, ridge = best.candidate.describe(result.shown, full=True), "auto"
        how = "sigma and ridge are chosen when the fit sees all samples; the encoder was judged on windows of them"
    lines = [
        f"# Written by pe-lightning suggest. {verdict(result)}",
        f"# Run it: pe-lightning fit --config {out}",
        "model:",
        "  class_path: ComplexLinear",
        "  init_args:",
        f"    # {how}",
        f"    encoder: {_flow(encoder)}",
        f"    ridge: {_flow(ridge)}",
        "    warm_start: true # the exact fit, no training",
        "data:",
        f"  class_path: {data['class_path'].rpartition('.')[2]}",
        "  init_args:",
        *(f"    {key}: {_flow(value)}" for key, value in _given(data).items()),
        "trainer:",
        "  max_steps: 0 # more, to train on from the exact fit",
    ]
    return "\n".join([*lines, *([f"seed_everything: {_flow(seed)}"] if seed not in (0, None) else [])]) + "\n"


def _rounded(value: Any) -> Any:
    """Numbers of ten digits: at 80 dB a change in the seventh digit shows, one in the eleventh does not."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def _given(data: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a DataModule that are not their defaults; local paths absolute, to work from anywhere."""
    cls: Any = pydoc.locate(data["class_path"])
    defaults = {name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()}
    given = {key: value for key, value in data["init_args"].items() if value != defaults.get(key, inspect.Parameter.empty)}
    if "paths" in given:
        paths = [_absolute(path) for path in ([given["paths"]] if isinstance(given["paths"], str) else given["paths"])]
        given["paths"] = paths[0] if len(paths) == 1 else paths
    sampling = given.get("sampling")
    if isinstance(sampling, dict):
        sampled: Any = pydoc.locate(sampling["class_path"])
        arguments = {key: value for key, value in (sampling.get("init_args") or {}).items() if value is not None}
        given["sampling"] = {"name": samplings.name_of(sampled), **arguments}
        if given["sampling"] == samplings.create(str(defaults["sampling"])).spec():
            del given["sampling"]
        elif isinstance(arguments.get("path"), str):
            given["sampling"]["path"] = _absolute(arguments["path"])
    return given


def _absolute(path: str) -> str:
    return path if path.startswith(SCHEME) else str(Path(path).expanduser().absolute())


def _flow(value: Any) -> str:
    """YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")

"""What was found, for the terminal."""

from __future__ import annotations

import math
import statistics

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.experiments.compare.reading import printable
from pe_lightning.experiments.suggest.attempts import Interpolation, Score
from pe_lightning.experiments.suggest.candidates import Candidate
from pe_lightning.experiments.suggest.parts import Part
from pe_lightning.experiments.suggest.search import Found, Row
from pe_lightning.solvers.scaling import tunable

__all__ = ["print_found", "verdict"]

CLOSE = 0.05
"""Differences below this, in dB, are called a tie."""


def print_found(found: Found, whole: Part | None, windows: Part | None) -> None:
    """Prints the ranked table, what it says, and what was not tried."""
    console = Console() if Console().is_terminal else Console(width=140)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("encoder", no_wrap=True)
    table.add_column("chosen", overflow="fold")
    if whole is not None:
        table.add_column("held out\n(dB)", justify="right", no_wrap=True)
    if windows is not None:
        table.add_column("in windows\n(dB)", justify="right", no_wrap=True, style="dim" if whole is not None else "")
    for title in ("seconds", "parameters", "stable rank"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    best = found.encoders()[0] if found.encoders() else None
    for row in found.rows:
        scores = ([row.whole] if whole is not None else []) + ([row.windows] if windows is not None else [])
        cells = [
            label(row, found),
            _chosen(row.best) if _measured(row, found) else "",
            *map(_psnr, scores),
            *_rest(row, found),
        ]
        style = "dim" if isinstance(row.what, Interpolation) else "bold" if row is best else ""
        table.add_row(*map(Text, cells), style=style)
    console.print(table)
    signals = found.shown.info.num_signals
    if signals > 1:
        console.print(Text(f"PSNR: mean ± standard deviation over {signals} signals."))
    if windows is not None:
        rest = "; what came close to the best there, on all samples" if whole is not None else ""
        console.print(Text(f"Judged on {windows.words}{rest}."))
    if any(isinstance(row.what, Candidate) and row.what.padding for row in found.rows):
        console.print(Text("K = n + 2: with a shift past each end of an axis (padding: 1)."))
    for line in _left_out(found):
        console.print(Text(line), style="dim")
    console.print(Text(verdict(found)), style="bold")


def label(row: Row, found: Found) -> str:
    """The name of a row, with features per axis."""
    if isinstance(row.what, Interpolation):
        return f"{row.what.name} interpolation"
    return row.what.label(found.shown)


def verdict(found: Found) -> str:
    """What the table says, in a sentence or two."""
    encoders = found.encoders()
    if not encoders:
        return "No encoder could be tried."
    best = encoders[0]
    said = f"Best encoder: {label(best, found)}, {best.best.mean:.2f} dB."
    same = [row for row in found.rows if isinstance(row.what, Interpolation) and (row.whole is None) == (best.whole is None)]
    if not same:
        return said
    rival = max(same, key=lambda row: row.best.mean)
    ahead = best.best.mean - rival.best.mean
    name = f"{label(rival, found)} ({rival.best.mean:.2f} dB)"
    if abs(ahead) < CLOSE:
        return f"{said} It ties with {name}."
    if ahead < 0:
        return (
            f"{said} But {name} beats every encoder here, by {-ahead:.2f} dB, with nothing to fit: for filling in the "
            "samples between the given ones, use it."
        )
    return f"{said} It beats the best interpolation, {name}, by {ahead:.2f} dB."


def _psnr(score: Score | None) -> str:
    if score is None:
        return "–"
    if not math.isfinite(score.mean):
        return "not finite" if score.mean < 0 else "exact"
    spread = f" ± {statistics.pstdev(score.psnr):.2f}" if len(score.psnr) > 1 else ""
    return f"{score.mean:.2f}{spread}"


def _chosen(score: Score) -> str:
    """``sigma 0.0045/0.003, ridge 0.047``: the width of each axis, once where they are equal."""
    widths: dict[str, list[str]] = {}
    for encoder in score.encoders:
        name = tunable(encoder)
        if name is not None:
            widths.setdefault(name, []).append(f"{float(getattr(encoder, name)):.3g}")
    shown = [f"{name} {'/'.join(dict.fromkeys(values))}" for name, values in widths.items()]
    return ", ".join(shown if score.ridge is None else [*shown, f"ridge {score.ridge:.2g}"])


def _rest(row: Row, found: Found) -> list[str]:
    """Seconds, parameters, stable rank and notes; of the signals that are shown, so not those of windows of them."""
    score = row.best
    measured = _measured(row, found)
    return [
        f"{score.seconds:.2f}" if measured else "–",
        "–" if score.params is None else f"{score.params:,}" if measured else "–",
        "–" if score.stable_rank is None or not measured else f"{score.stable_rank:,.1f}",
        ", ".join(score.notes),
    ]


def _measured(row: Row, found: Found) -> bool:
    """Whether what was found on the way to the PSNR holds for the signals that are shown."""
    return row.whole is not None or found.streamed


def _left_out(found: Found) -> list[str]:
    """One line per reason."""
    reasons: dict[str, list[str]] = {}
    for entry in found.skipped:
        reasons.setdefault(entry.reason, []).append(entry.label)
    return [printable(f"Not tried: {'; '.join(labels)} ({reason})") for reason, labels in reasons.items()]

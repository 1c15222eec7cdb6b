"""Scores of a fill at the terminal: held-out samples of the fit beside interpolation of the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pe_fill.formats.point_axes import SECONDS
from pe_lightning.errors import console, say

if TYPE_CHECKING:
    from pe_lightning.estimators.folds import FoldScore


def print_fold_scores(
    title: str, scores: Mapping[str, FoldScore], unit: float, left_out: Mapping[str, str], verbose: bool = False
) -> None:
    """Prints the scores of one signal by method, the best first, and which one is ahead of the first, the fit.

    ``unit`` is an error of 1 in [0, 1], in the units of the source; ``left_out`` says why other methods have no score.
    """
    from rich.table import Table

    table = Table(title=title, min_width=60)
    table.add_column("method")
    for heading in ("PSNR", "RMSE"):
        table.add_column(heading, justify="right")
    ranked = sorted(scores.items(), key=lambda row: float(row[1].errors))
    for method, score in ranked:
        table.add_row(method, f"{float(score.values):.2f} dB", f"{float(score.errors) * unit:.4g}")
    output = console()
    output.print(table)
    own, best = next(iter(scores)), ranked[0][0]
    if best != own:
        ahead = f"{float(scores[best].values) - float(scores[own].values):.2f} dB"
        output.print(
            f"{best} is {ahead} ahead of {own} on these samples: {_how_to_get(best)}", highlight=False, markup=False
        )
    for method, reason in left_out.items() if verbose else ():
        output.print(f"{method}: {reason}", highlight=False, markup=False)


def say_periods(name: str, periods: Sequence[float], dated: bool) -> None:
    """Says the periods of values along an axis, of dates in seconds."""
    shown = [f"{period / SECONDS['d']:.6g} days" if dated else f"{period:.6g}" for period in periods]
    say(f"period along {name}: {', '.join(shown)} (--periodic none: none)")


def _how_to_get(method: str) -> str:
    from pe_lightning.evaluation.baselines import baselines

    if method.startswith("Pillow "):
        return f"image.resize(size, Image.Resampling.{method.removeprefix('Pillow ')}) of Pillow"
    return baselines.get(method).program or f"pe_lightning.evaluation.baselines.interpolate({method!r}, ...)"

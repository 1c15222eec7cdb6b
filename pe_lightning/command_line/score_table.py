"""The table of held-out scores that ``fill`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pe_lightning.command_line.verbs import console

if TYPE_CHECKING:
    from pe_lightning.folds import FoldScore

__all__ = ["print_scores"]


def print_scores(title: str, scores: Mapping[str, FoldScore], unit: float, left_out: Mapping[str, str]) -> None:
    """Prints the scores of methods, the best first, and why others have none.

    Args:
        title: Title of the table: what is held out.
        scores: Score of one signal by method.
        unit: What an error of 1 in [0, 1] is in the units of the source.
        left_out: Reasons by method.
    """
    from rich.table import Table

    table = Table(title=title, min_width=60)
    table.add_column("method")
    for heading in ("PSNR", "RMSE"):
        table.add_column(heading, justify="right")
    for method, score in sorted(scores.items(), key=lambda row: float(row[1].errors)):
        table.add_row(method, f"{float(score.values):.2f} dB", f"{float(score.errors) * unit:.4g}")
    output = console()
    output.print(table)
    for method, reason in left_out.items():
        output.print(f"{method}: {reason}", highlight=False, markup=False)

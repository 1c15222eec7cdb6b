"""The files of ``--out``: tables, plots and the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pe_lightning.errors import InputError
from pe_lightning.experiments.compare.album import collect
from pe_lightning.experiments.compare.curves import Curve, read_curve
from pe_lightning.experiments.compare.keys import differences
from pe_lightning.experiments.compare.page import render
from pe_lightning.experiments.compare.plots import plot
from pe_lightning.experiments.compare.reading import Run
from pe_lightning.experiments.compare.scores import Scores
from pe_lightning.experiments.compare.table import as_csv, as_markdown
from pe_lightning.runs import write_atomically

__all__ = ["write_report"]

PLOT = re.compile(r"psnr_vs_(step|seconds|parameters)(_\d+)?\.png")


def write_report(
    folder: Path, tables: Sequence[Scores], by: str | None, pictures: int, megapixels: float, frames: int
) -> tuple[Path, list[str]]:
    """Writes ``index.html``, ``table.csv``, ``table.md`` and ``psnr_vs_*.png``, each at once or not at all.

    Of an earlier report, plots that this one does not have are removed; other files are left alone.

    Args:
        folder: Where to; made if need be.
        tables: At least one.
        by: What rows are grouped by.
        pictures: How many signals per run are shown.
        megapixels: How much of them.
        frames: How many frames of a video, or slices of a volume.

    Returns:
        The path of the page, and what could not be read.

    Raises:
        InputError: If the files cannot be written.
    """
    runs = [run for scores in tables for run in scores.runs]
    curves, problems = _curves(runs)
    plots: dict[str, bytes] = {}
    titles: list[list[str]] = []
    for number, scores in enumerate(tables, 1):
        made = plot(scores, curves)
        names = {name: f"{name}.png" if number == 1 else f"{name}_{number}.png" for name in made}
        plots |= {names[name]: content for name, content in made.items()}
        titles.append(list(names.values()))
    album = collect(runs, pictures, megapixels, frames)
    html = render(tables, by, [{name: plots[name] for name in names} for names in titles], album, differences(runs), runs)
    files: dict[str, str | bytes] = {"table.csv": as_csv(tables), "table.md": as_markdown(tables, by), **plots}
    files["index.html"] = html
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
        for entry in folder.iterdir():
            if PLOT.fullmatch(entry.name) and entry.name not in plots:
                entry.unlink()
    except OSError as error:
        raise InputError(f"cannot write the report to {str(folder)!r}: {error.strerror or error}") from error
    return folder / "index.html", problems


def _curves(runs: Sequence[Run]) -> tuple[dict[Run, Curve], list[str]]:
    curves, problems = {}, []
    for run in runs:
        try:
            curve = read_curve(run)
        except ValueError as error:
            problems.append(f"{run.label}: {error}")
            continue
        if curve is not None:
            curves[run] = curve
    return curves, problems

"""The verb ``pe-lightning compare``: tables in the terminal, and the files of ``--out``."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt

from pe_lightning.errors import InputError, printable, say, show_metric
from pe_lightning.results.runs import flatten, slug
from pe_lightning.signals.files import check_results, replacing_results, write_atomically
from pe_lightning.studies.compare.reading import MISSING, Run, as_text, find_runs, look_up
from pe_lightning.studies.compare.scores import (
    ScoreTable,
    as_csv,
    as_markdown,
    cells,
    compare,
    print_score_tables,
    why_several,
)


def compare_runs(
    runs: list[str],
    /,
    by: str | None = None,
    baseline: str | None = None,
    out: Path | None = None,
    pictures: NonNegativeInt = 16,
    frames: PositiveInt = 16,
    megapixels: PositiveFloat = 24.0,
) -> int:
    """Compares runs: mean scores, paired differences with their intervals, reconstructions side by side.

    Runs with different data, protocol, sampling or metric are in different tables. Runs that cannot be read are listed on
    the standard error stream; the others are compared.

    Args:
        runs: Run directories, or folders that contain some.
        by: Group runs by this key of metrics.json, such as encoder.name or seed: one row per value.
        baseline: Run, group or interpolation that differences are taken against (default: the best).
        out: Folder for index.html, table.csv, table.md and plots; only files of an earlier comparison are replaced.
        pictures: Largest number of signals per run in index.html.
        frames: Largest number of frames of a video, or slices of a volume, in index.html.
        megapixels: Largest size of all pictures in index.html, 1.5 MB per megapixel; larger pictures are reduced.
    """
    if out is not None:
        check_results(out, "compare", ["index.html", "table.csv", "table.md"])
    found = find_runs(runs)
    _warn(found.problems)
    if not found.runs:
        raise InputError("there is no run to compare: give run directories, or folders with runs, such as runs/")
    tables = compare(found.runs, by, baseline)
    print_score_tables(tables, by)
    if out is not None:
        with replacing_results(out, "compare") as folder:
            _write_report(folder, tables, by, pictures, frames, megapixels)
        say(f"report: {out / 'index.html'}")
    return 0


def _warn(problems: Sequence[str]) -> None:
    for problem in problems:
        say(f"pe-lightning: warning: {problem}", file=sys.stderr)


def _write_report(
    folder: Path, tables: Sequence[ScoreTable], by: str | None, pictures: int, frames: int, megapixels: float
) -> None:
    """Writes all files."""
    from pe_lightning.studies.compare.page import Curve, collect, draw_page, plot, read_curve

    runs = [run for table in tables for run in table.runs]
    curves: dict[Run, Curve | None] = {}
    for run in runs:
        try:
            curves[run] = read_curve(run)
        except ValueError as error:
            _warn([f"{run.label}: {error}"])
    viewers, contents = collect(tables, pictures, frames, megapixels)
    written: dict[str, str | bytes] = {"table.csv": as_csv(tables), "table.md": as_markdown(tables, by)}
    sections: list[dict[str, Any]] = []
    for number, (table, viewer) in enumerate(zip(tables, viewers, strict=True), 1):
        figures = {}
        for against, png in plot(table, curves).items():
            written[f"{slug(table.metric.name)}_vs_{against}{f'_{number}' * (number > 1)}.png"] = png
            figures[f"Held-out {show_metric(table.metric.name)} against {against}"] = base64.b64encode(png).decode()
        rows = [(row, cells(table, row, by)) for row in table.rows]
        sections.append({"table": table, "rows": rows, "plots": figures, "viewer": viewer})
    written["index.html"] = draw_page(
        f"{len(runs)} run{'s' * (len(runs) != 1)} compared",
        sections,
        contents,
        by=by,
        why_several=why_several(tables),
        configured=[run.label for run in runs if run.config is not None],
        differences=_differences(runs),
    )
    for name, content in written.items():
        write_atomically(folder / name, content)


def _differences(runs: Sequence[Run]) -> dict[str, list[str]]:
    configs = [_settings(run) for run in runs if run.config is not None]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = {printable(key): [printable(str(config.get(key, MISSING))) for config in configs] for key in keys}
    return {key: row for key, row in rows.items() if len(set(row)) > 1}


def _settings(run: Run) -> dict[str, Any]:
    """The configuration of a run with dotted keys. Values left to the fit, such as a width, are those of the fit."""
    found = {}
    for key, value in flatten(run.config or {}):
        key = key.replace("init_args.", "")
        if value in (None, "auto") and key.startswith(("model.encoder.", "model.ridge")):
            resolved = look_up(run.metrics, key.removeprefix("model."))
            each = resolved if isinstance(resolved, list) else [resolved]  # one per axis
            if not {None, MISSING} & {*each}:
                value = as_text([f"{entry:.4g}" if isinstance(entry, float) else entry for entry in each])
        if key.endswith(".class_path"):
            key, value = key.removesuffix(".class_path"), str(value).rpartition(".")[2]
        found[key] = value
    return found

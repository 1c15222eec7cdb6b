"""The verb ``pe-lightning compare``: tables in the terminal, and the files of ``--out``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from jsonargparse.typing import NonNegativeInt, PositiveFloat, PositiveInt

from pe_lightning.errors import InputError, say
from pe_lightning.results.run import Run
from pe_lightning.signals.files import check_results, replacing_results, write_atomically
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare, split_keys
from pe_lightning.studies.compare.texts import print_score_tables


def compare_runs(
    runs: list[str] | None = None,
    /,
    by: list[str] | None = None,
    baseline: str | None = None,
    across: list[str] | None = None,
    against: list[str] | None = None,
    out: Path | None = None,
    format: Literal["png", "pdf", "svg"] = "png",
    pictures: NonNegativeInt = 16,
    frames: PositiveInt = 16,
    megapixels: PositiveFloat = 24.0,
) -> int:
    """Compares runs: mean scores, paired differences with their intervals, reconstructions side by side.

    Runs with different data, protocol, sampling or metric are in different tables. Runs that cannot be read are listed on
    the standard error stream; the others are compared.

    Args:
        runs: Run directories, or folders that contain some.
        by: Group runs by keys: of metrics.json, such as encoder.name,encoder.num_features, settings that a sweep varied,
            options of fit, or method, such as SIREN, rff MLP, gau exact. One row per combination of values has mean,
            standard deviation and number of its runs.
        baseline: Run, group or interpolation that differences are taken against (default: the best).
        across: Keys whose values become columns: one table with the mean scores of all data, and the gain over
            interpolation, in place of a table per kind of data.
        against: With across, numbers of metrics.json, such as stable_rank: the rank correlation of their values with the
            scores, and a plot in the folder out.
        out: Folder for index.html, table.csv, table.json, table.md, table.tex and plots; only files of an earlier
            comparison are replaced.
        format: Format of the plots: png, pdf or svg.
        pictures: Largest number of signals per run in index.html.
        frames: Largest number of frames of a video, or slices of a volume, in index.html.
        megapixels: Largest size of all pictures in index.html, 1.5 MB per megapixel; larger pictures are reduced.
    """
    if out is not None:
        check_results(out, "compare", ["index.html", "table.csv", "table.json", "table.md", "table.tex"])
    folders = [text for text in by or () if Path(text).is_dir()]  # as in: --by encoder.name runs/
    keys = [text for text in by or () if text not in folders]
    found = find_runs([*(runs or ()), *folders])
    say(*(f"pe-lightning: warning: {problem}" for problem in found.problems), file=sys.stderr)
    if not found.runs:
        raise InputError("there is no run to compare: give run directories, or folders with runs, such as runs/")
    if across or against:
        return _show_overview(found.runs, keys, split_keys(across), split_keys(against), out, format)
    tables = compare(found.runs, keys, baseline)
    print_score_tables(tables)
    if out is not None:
        from pe_lightning.studies.compare.page import make_report

        with replacing_results(out, "compare") as folder:
            for name, content in make_report(tables, pictures, frames, megapixels, format).items():
                write_atomically(folder / name, content)
        say(f"report: {out / 'index.html'}")
    return 0


def _show_overview(
    runs: Sequence[Run], by: Sequence[str], across: Sequence[str], against: Sequence[str], out: Path | None, form: str
) -> int:
    """Prints the table of ``--across``, and writes its files."""
    from pe_lightning.studies.compare.overview import make_overview

    if not by or not across:
        raise InputError("an overview has rows and columns: --by method --across signal,samples")
    overview = make_overview(runs, split_keys(by), across, against)
    overview.print()
    if out is not None:
        with replacing_results(out, "compare") as folder:
            for name, content in overview.files(form).items():
                write_atomically(folder / name, content)
        say(f"files: {out}")
    return 0

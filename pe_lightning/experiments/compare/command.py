"""The verb ``pe-lightning compare``."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from pe_lightning.errors import InputError
from pe_lightning.experiments.compare.reading import find_runs, printable
from pe_lightning.experiments.compare.scores import compare
from pe_lightning.experiments.compare.table import print_scores

__all__ = ["compare_runs"]


def compare_runs(
    runs: list[str],
    /,
    by: str | None = None,
    baseline: str | None = None,
    out: Path | None = None,
    pictures: int = 16,
    frames: int = 16,
    megapixels: float = 24.0,
) -> int:
    """Compares runs: mean scores, paired differences with their intervals, reconstructions side by side.

    Runs on other data, with another protocol, sampling or metric get tables of their own. What cannot be read is named on
    the standard error stream; the rest is compared.

    Args:
        runs: Run directories, or folders with some below them.
        by: One row per value of this key of metrics.json, such as encoder.name or seed.
        baseline: Run, group or interpolation to take differences against; default: the best.
        out: Also write index.html, table.csv, table.md and plots to this folder.
        pictures: Most signals per run in index.html.
        frames: Most frames of a video, or slices of a volume, there.
        megapixels: Most megapixels of pictures there, 1.5 MB each; more are made smaller.

    Returns:
        The exit status, 0.

    Raises:
        InputError: If an option is wrong, or there is no run to compare.
    """
    if pictures < 0:
        raise InputError(f"--pictures is at least 0, got {pictures}")
    if frames < 1:
        raise InputError(f"--frames is at least 1, got {frames}")
    if not 0 < megapixels < math.inf:
        raise InputError(f"--megapixels is a positive number, got {megapixels:g}")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {str(out)!r} is not a directory")
    found = find_runs(runs)
    _warn(found.problems)
    if not found.runs:
        raise InputError("there is no run to compare")
    tables = compare(found.runs, by, baseline)
    print_scores(tables, by)
    if out is not None:
        from pe_lightning.experiments.compare.report import write_report

        _warn(write_report(out, tables, by, pictures, frames, megapixels))
        print(f"report: {printable(out / 'index.html')}")
    return 0


def _warn(problems: tuple[str, ...]) -> None:
    for problem in problems:
        print(f"pe-lightning: warning: {problem}", file=sys.stderr)

"""The verb ``pe-lightning compare``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.experiments.compare.reading import find_runs, printable
from pe_lightning.experiments.compare.scores import compare
from pe_lightning.experiments.compare.table import print_scores

__all__ = ["compare_runs"]

OPTIONS = ("--by", "--baseline", "--out", "--pictures", "--megapixels", "--frames", "--help")


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print with its usage."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"compare: {message}")


def _parser() -> _Parser:
    parser = _Parser(
        prog="pe-lightning compare",
        description="Compares runs: mean test PSNR, paired differences with their intervals, pictures side by side.",
        epilog="Runs on other data, another protocol or another sampling get tables of their own.",
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN_DIR", help="run directories, or folders with some below them")
    parser.add_argument("--by", metavar="KEY", help="one row per value of this key of metrics.json: encoder.name, seed, …")
    parser.add_argument(
        "--baseline", metavar="ROW", help="run, group or interpolation to take differences against; default: the best"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="also write index.html, table.csv, table.md and plots there")
    parser.add_argument(
        "--pictures", metavar="N", type=int, default=16, help="signals per run in index.html (default: %(default)s)"
    )
    parser.add_argument(
        "--frames", metavar="N", type=int, default=16, help="most frames of a video or volume there (default: %(default)s)"
    )
    parser.add_argument(
        "--megapixels",
        metavar="M",
        type=float,
        default=24.0,
        help="most megapixels of pictures in index.html, 1.5 MB each; more are made smaller (default: %(default)g)",
    )
    return parser


def compare_runs(arguments: Sequence[str]) -> int:
    """Prints the tables, writes the report where one is asked for, and returns the exit status, 0.

    What cannot be read is named on the standard error stream; the rest is compared.

    Raises:
        InputError: If the arguments are wrong, or there is no run to compare.
    """
    parser = _parser()
    if any(argument in ("-h", "--help") for argument in arguments):
        parser.print_help()
        return 0
    options, unknown = parser.parse_known_args(list(arguments))
    for option in unknown:
        name = option.partition("=")[0]
        hint = did_you_mean(name, OPTIONS) or "."
        raise InputError(f"compare: unknown option {printable(name)!r}{hint} Options: {', '.join(OPTIONS)}")
    if not options.runs:
        raise InputError("compare needs run directories, or folders with some below them: pe-lightning compare runs/")
    if options.pictures < 0:
        raise InputError(f"--pictures is at least 0, got {options.pictures}")
    if options.frames < 1:
        raise InputError(f"--frames is at least 1, got {options.frames}")
    if not 0 < options.megapixels < float("inf"):
        raise InputError(f"--megapixels is a positive number, got {options.megapixels:g}")
    if options.out is not None and options.out.exists() and not options.out.is_dir():
        raise InputError(f"--out {str(options.out)!r} is not a directory")
    found = find_runs(options.runs)
    for problem in found.problems:
        print(f"pe-lightning: warning: {problem}", file=sys.stderr)
    if not found.runs:
        raise InputError("there is no run to compare")
    tables = compare(found.runs, options.by, options.baseline)
    print_scores(tables, options.by)
    if options.out is not None:
        from pe_lightning.experiments.compare.report import write_report

        page, problems = write_report(options.out, tables, options.by, options.pictures, options.megapixels, options.frames)
        for problem in problems:
            print(f"pe-lightning: warning: {problem}", file=sys.stderr)
        print(f"report: {printable(page)}")
    return 0

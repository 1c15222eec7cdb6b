"""The verb ``pe-lightning sweep``."""

from __future__ import annotations

import shlex
import statistics
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pe_lightning.experiments.compare.reading import find_runs
from pe_lightning.experiments.compare.scores import compare
from pe_lightning.experiments.compare.table import print_scores
from pe_lightning.experiments.sweep import ray_launcher
from pe_lightning.experiments.sweep.cells import Cell, plan
from pe_lightning.experiments.sweep.fits import Fits
from pe_lightning.experiments.sweep.launchers import Launcher, Process
from pe_lightning.experiments.sweep.options import Options, parse
from pe_lightning.experiments.sweep.record import RECORD, Record
from pe_lightning.experiments.sweep.running import run_cells

__all__ = ["sweep"]

HELP = """\
usage: pe-lightning sweep [--config FILE] --vary KEY=V1,V2,... [--vary ...] [--repeats N] [--out DIR] [options of fit]

Fits every combination of the varied settings, each a run directory of its own. The same command again skips what is finished
and goes on with the rest. Ctrl-C stops after the current fit, twice at once.

  --vary KEY=V1,V2,...  a setting as on the command line of fit and its values, YAML each:
                        model.encoder=gau,tri,rff   model.encoder.sigma=auto,0.003   data.sampling.fraction=0.1,0.25
  --repeats N           fit each combination with N seeds: seed_everything and the seed of the encoder count up
  --out DIR             where the runs go (default: sweeps/<configuration>-<settings>); sweep.json there is the record
  --launcher process    one after the other in this process (the default); or ray: side by side on a Ray cluster, the one
                        that RAY_ADDRESS names or one of this machine
  --cpus_per_cell N     with ray, CPUs of a cell (1), which is how many run at a time
  --gpus_per_cell N     with ray, GPUs of a cell: 0 (the default), 1, or a part of one
  anything else         an option of fit, see pe-lightning fit --help

Exit status: 0, 1 if a fit failed or was refused, 2 if none can be run, 130 after Ctrl-C.
"""


def sweep(arguments: Sequence[str]) -> int:
    """Runs a sweep, prints its table and returns the exit status.

    Raises:
        InputError: If the command line is wrong, no cell can be run, or the folder is not this sweep's.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(HELP, end="")
        return 0
    options = parse(arguments)
    if options.launcher == "ray":
        ray_launcher.require_ray()
    fits = Fits()
    cells = plan(options, fits.resolve)
    record = Record(options.out)
    # refuses another sweep's folder before data is read
    left = [cell.tree for cell in cells if record.finished(cell) is None and cell.tree is not None]
    if options.launcher == "ray":
        ray_launcher.check_cells(left, options.share)
    if len({cell.data_options for cell in cells if cell.tree is not None}) == 1:
        # data that no cell can be fitted to is an error of the command, not of each cell
        fits.load(next(cell.tree for cell in cells if cell.tree is not None))
    local = options.launcher == "process" or not left  # a finished sweep needs no cluster
    where: AbstractContextManager[Launcher] = nullcontext(Process(fits)) if local else ray_launcher.cluster(options.share)
    with where as launcher, record.locked():
        trainer = next(cell.tree for cell in cells if cell.tree is not None)["trainer"]
        run_cells(cells, record, launcher, trainer["enable_progress_bar"] is not False)
    _summary(cells, record, options)
    waiting = sum(record.entries[cell.name]["status"] == "waiting" for cell in cells)
    failed = [name for name in (cell.name for cell in cells) if record.entries[name]["status"] in ("failed", "refused")]
    if waiting:
        print(f"pe-lightning: interrupted with {waiting} cell(s) left; the same command goes on", file=sys.stderr)
        return 130
    if failed:
        print(f"pe-lightning: {len(failed)} of {len(cells)} cells failed; see {options.out / RECORD}", file=sys.stderr)
    return 1 if failed else 0


def _summary(cells: Sequence[Cell], record: Record, options: Options) -> None:
    done = [cell for cell in cells if record.entries[cell.name]["status"] == "done"]
    if not done:
        return
    found = find_runs([record.folder / cell.name for cell in done])
    for problem in found.problems:
        print(f"pe-lightning: warning: {problem}", file=sys.stderr)
    if found.runs:
        print_scores(compare(found.runs, None, None), None)
    if options.repeats > 1:
        _print_repeats(done, record, options)
    print(f"runs:    {options.out}")
    folder, report = (shlex.quote(str(path)) for path in (options.out, options.out / "report"))
    print(f"pages:   pe-lightning compare {folder} --out {report}")


def _print_repeats(done: Sequence[Cell], record: Record, options: Options) -> None:
    """Mean and standard deviation over the seeds of each combination, best first."""
    scores: dict[tuple[str, ...], list[float]] = {}
    for cell in done:
        value = record.entries[cell.name]["test/psnr"]
        if value is not None:
            scores.setdefault(tuple(cell.settings.values()), []).append(value)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for entry in options.varied:
        table.add_column(Text(entry.key), overflow="fold")
    table.add_column("seeds", justify="right")
    table.add_column("test PSNR\n(dB)", justify="right", no_wrap=True)
    for settings, values in sorted(scores.items(), key=lambda item: -statistics.fmean(item[1])):
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        table.add_row(*map(Text, settings), str(len(values)), f"{statistics.fmean(values):.2f}{spread}")
    console = Console() if Console().is_terminal else Console(width=160)
    console.print(table)
    console.print("Mean ± standard deviation over seeds, of the mean over signals.", highlight=False)

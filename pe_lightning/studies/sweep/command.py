"""The verb ``pe-lightning sweep``."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jsonargparse.typing import ClosedUnitInterval, NonNegativeInt, PositiveInt

from pe_lightning.cli.arguments import read
from pe_lightning.errors import InputError, say
from pe_lightning.results import runs
from pe_lightning.results.run import TRAINING_OPTIONS
from pe_lightning.studies.compare.reading import find_runs
from pe_lightning.studies.compare.scores import compare
from pe_lightning.studies.compare.texts import print_score_tables
from pe_lightning.studies.sweep.cells import Cell, make_cells, parse_varied
from pe_lightning.studies.sweep.matching import Goal, options_of_goals, parse_goals
from pe_lightning.studies.sweep.record import SweepRecord
from pe_lightning.studies.sweep.study import Study, read_study
from pe_lightning.training.interrupts import exit_status


def sweep(
    paths: list[str] | None = None,
    /,
    *options: str,
    vary: list[str] | None = None,
    match: list[str] | None = None,
    size: str | None = None,
    study: str | None = None,
    part: str | None = None,
    repeats: PositiveInt = 1,
    out: Path | None = None,
    launcher: Literal["process", "ray"] = "process",
    cpus_per_cell: PositiveInt | None = None,
    gpus_per_cell: ClosedUnitInterval | None = None,
    retries: NonNegativeInt | None = None,
) -> int:
    """Fits every combination of the varied settings, each in a run directory of its own.

    The same command again skips finished fits and resumes interrupted ones; other settings, or other content of the data,
    are refused where a fit with the old ones has begun. Ctrl-C stops after the current fit, twice at
    once; SIGTERM and SIGHUP stop the current fit after its step. Exit status: 0, 1 if a fit failed or was refused, 2 if none
    can be run, 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

    Args:
        paths: Files, folders or samples://NAME to fit, as for pe-lightning fit.
        options: options of pe-lightning fit, for all cells.
        vary: KEY=V1,V2,...: an option of fit and its values, each YAML: model.encoder=gau,tri,rff or
            model.encoder.sigma=auto,0.003; may be repeated, and left out with --repeats. Of a study, some of the values.
        match: GOAL=V1,V2,...: num_params=1e4,1e5 finds the size of the model of each cell, core_seconds=2,20 its number of
            training steps; the value any leaves them as they are.
        size: The option that num_params finds (default: model.hidden_size of SimpleMLP, model.encoder.num_features of
            ComplexLinear).
        study: A file of settings whose values stand for several options of fit, or its name, such as encodings.
        part: A part of the study that its file names, such as quick.
        repeats: Fit each combination with this many seeds: seed_everything and the seed of the encoder count up.
        out: Folder for the run directories and the record sweep.json (default: sweeps/<configuration>-<settings>).
        launcher: process runs the cells one after the other in this process; ray runs them in parallel with Ray, on the
            cluster that RAY_ADDRESS names or on this machine.
        cpus_per_cell: With ray, CPUs per cell (default: 1).
        gpus_per_cell: With ray, GPUs per cell: 0 (default), 1, or a fraction.
        retries: With ray, number of times a cell is resumed after its process died (default: 0).
    """
    options = (*(paths or ()), *options)
    if not (vary or match or study) and repeats == 1:
        raise InputError("give the settings to vary, --vary model.encoder=gau,tri, or a number of seeds, --repeats 3")
    if part is not None and study is None:
        raise InputError("--part is a part of a study: give --study too")
    described = Study() if study is None else read_study(study, part)
    goals = parse_goals(match or [])
    named = {**described.varied, **{goal: {value: () for value in values} for goal, values in goals.items()}}
    options = (*described.options, *options)
    varied = parse_varied(vary or [], options, named)
    stem = _stem(options) if study is None else "-".join([Path(study).stem, *([part] if part else [])])
    out = out or Path("sweeps") / _default_name(stem, [] if study else list(varied))
    of_ray = {"cpus_per_cell": cpus_per_cell, "gpus_per_cell": gpus_per_cell, "retries": retries}
    given = [f"--{name}" for name, value in of_ray.items() if value is not None]
    if given and launcher != "ray":
        raise InputError(f"{given[0]} needs --launcher ray; otherwise cells run one after the other in this process")
    # this imports Lightning, which takes seconds
    from pe_lightning.studies.sweep.running import CellRunner, run_cells

    runner = CellRunner()
    record = SweepRecord(out, runner.fingerprint)

    def matched_by(settings: Mapping[str, str], tree: Mapping[str, Any]) -> dict[str, Goal]:
        return options_of_goals(settings, size or described.size_option(settings), tree)

    cells = make_cells(varied, options, repeats, out.absolute().name, runner.resolve, described.without_goals, matched_by)
    accepted = [cell.tree for cell in cells if cell.tree is not None]
    if len({cell.data_options for cell in cells if cell.tree is not None}) == 1:
        runner.load(accepted[0])  # data that cannot be read is an error of the command, not of each cell
    bar = accepted[0]["trainer"]["enable_progress_bar"] is not False
    resources = cpus_per_cell or 1, gpus_per_cell or 0.0
    signum = run_cells(cells, record, runner, launcher, *resources, retries or 0, bar)
    _print_summary(cells, record, list(varied))
    statuses = [record.status(cell) for cell in cells]
    if "waiting" in statuses:
        left = statuses.count("waiting")
        say(f"pe-lightning: interrupted with {left} cell(s) left; the same command resumes the sweep", file=sys.stderr)
        return exit_status(signum or signal.SIGINT)
    failed = statuses.count("failed") + statuses.count("refused")
    if failed:
        say(f"pe-lightning: {failed} of {len(cells)} cells failed; see {out / runs.SWEEP}", file=sys.stderr)
    return 1 if failed else 0


def _stem(fixed: Sequence[str]) -> str:
    files, options = read(fixed)
    config = next((option.value for option in reversed(options) if option.key == "config"), files[0] if files else None)
    return "sweep" if not config or config.startswith("{") else Path(config).stem


def _default_name(stem: str, varied: Sequence[str]) -> str:
    # the same folder also with more values of a setting
    return runs.slug("-".join([stem, *([key.rpartition(".")[2] for key in varied] or ["repeats"])]))


def _print_summary(cells: Sequence[Cell], record: SweepRecord, varied: Sequence[str]) -> None:
    """Prints the tables of all finished runs by the varied settings, best first, with means over seeds and data sets."""
    done = [cell for cell in cells if record.status(cell) == "done"]
    if not done:
        return
    found = find_runs([record.folder / cell.name for cell in done])
    for problem in found.problems:
        say(f"pe-lightning: warning: {problem}", file=sys.stderr)
    # other data, and other samples of it, are other tables
    keys = [key for key in varied if not key.startswith("data.") or key.startswith(TRAINING_OPTIONS)]
    if found.runs:
        print_score_tables(compare(found.runs, keys))
    say(f"runs:    {record.folder}")
    folder, report = (shlex.quote(str(path)) for path in (record.folder, record.folder / "report"))
    by = f" --by {','.join(keys)}" if keys else ""
    say(f"pages:   pe-lightning compare {folder}{by} --out {report}")

"""Runs the cells of a definition that have no result yet, and collects all results as rows."""

from __future__ import annotations

import importlib
import json
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightning.pytorch import seed_everything

from pe_lightning import training as datamodules
from pe_lightning.cli import as_yaml, read
from pe_lightning.errors import InputError
from pe_lightning.results import runs
from pe_lightning.signals.files import write_atomically
from pe_lightning.studies.sweep.running import Cell, CellRunner, Launcher, Outcome, SweepRecord, checked, reseeded, run_cells
from pe_papers.reproduce.definition import Definition, Entry

Row = dict[str, Any]
"""Labels and results of a cell; ``folder`` is its run directory."""


def run_definition(
    definition: Definition,
    folder: Path,
    blocks: Sequence[str] = (),
    quick: bool = False,
    paths: Sequence[str] = (),
    options: Sequence[str] = (),
    launcher: Launcher = "process",
    gpus_per_cell: float = 0,
) -> tuple[list[Row], int | None]:
    """Runs the cells that have no result in the folder.

    Args:
        definition: What to reproduce.
        folder: Folder for the run directories.
        blocks: The blocks to run; all by default. Existing results of other blocks are collected too.
        quick: Whether to run the quick version.
        paths: Signals in place of the signals of the definition.
        options: Additional options of ``fit`` for all fits.
        launcher: ``process`` runs one cell after the other, ``ray`` in parallel.
        gpus_per_cell: With ``ray``.

    Returns:
        A row per cell with a result, and the number of the signal that stopped the run, if any.
    """
    runner = _Runner(pictures=False)
    entries: dict[str, Entry] = {}
    cells: list[Cell] = []
    others: list[Cell] = []
    for entry in definition.entries(quick, paths):
        cell = _cell(entry, options, runner, folder.absolute().name)
        entries[cell.name] = entry
        (cells if not blocks or entry.labels["block"] in blocks else others).append(cell)
    order = [cell.data_options for cell in cells]
    cells.sort(key=lambda cell: order.index(cell.data_options))  # fits that share data are consecutive
    record = SweepRecord(folder, runner.fingerprint)
    done = []
    for cell in others:
        try:
            done += [cell.name] if record.finished(cell) else []
        except InputError:  # results for other settings are an error only for the blocks to run
            continue
    missing = [cell for cell in cells if record.finished(cell) is None]
    if fitted := [cell for cell in missing if cell.arguments]:
        runner.load(fitted[0].tree or {})  # data that cannot be read is an error of the command, not of each cell
    signum = run_cells(cells, record, runner, launcher, 1, gpus_per_cell)
    done += [cell.name for cell in cells if record.status(cell) == "done"]
    rows = [_row(entry, record.folder / name) for name, entry in entries.items() if name in done]
    return rows, signum


class _Runner(CellRunner):
    def fingerprint(self, tree: Mapping[str, Any]) -> str | None:
        if "function" not in tree:
            return super().fingerprint(tree)
        return None if tree["data"] is None else str(_data_of(tree).fingerprint)

    def run(self, tree: Mapping[str, Any], folder: Path, *goals: Any) -> Outcome:
        return _call(tree, folder) if "function" in tree else super().run(tree, folder, *goals)


def _cell(entry: Entry, options: Sequence[str], runner: CellRunner, group: str) -> Cell:
    tree = entry.tree()
    arguments: tuple[str, ...] = ()
    if "function" in tree:
        for option in read(options)[1] if "data" in tree else ():
            inner, (_, *parts, last) = tree["data"]["init_args"], option.key.split(".")
            for part in parts:
                inner = inner.setdefault(part, {})
            inner[last] = yaml.safe_load(option.value or "null")
        tree |= {"model": {"class_path": tree["function"], "init_args": tree.pop("arguments", {})}}
        tree = reseeded({"data": None, "seed_everything": 0, **tree}, entry.repeat)
    else:
        # as options of fit, so that names and short forms have the same meaning as on the command line
        arguments = ("--config", as_yaml(tree), *options)
        try:
            tree = reseeded(checked(runner.resolve(arguments), repeats=1, name=group), entry.repeat)
        except InputError as error:
            raise InputError(f"{', '.join(map(str, entry.labels.values()))}: {error}") from error
    name = "-".join(runs.slug(str(label)) for label in entry.labels.values())
    return Cell(name, {key: str(label) for key, label in entry.labels.items()}, entry.repeat, arguments, tree)


def _call(tree: Mapping[str, Any], folder: Path) -> Outcome:
    began = time.perf_counter()
    module, _, name = tree["function"].rpartition(".")
    arguments = dict(tree["model"]["init_args"])
    seed_everything(tree["seed_everything"], verbose=False)  # which encoders without a seed follow
    try:
        if tree["data"] is not None:
            arguments["data"] = _data_of(tree)
        results = getattr(importlib.import_module(module), name)(**arguments)
        if tree["data"] is not None:
            results = {**results, "data_fingerprint": arguments["data"].fingerprint}
    except Exception as error:  # the other cells still run
        return Outcome(0.0, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / runs.CONFIG, yaml.safe_dump(dict(tree)))
    write_atomically(folder / runs.METRICS, json.dumps(results, indent=2, allow_nan=False) + "\n")
    return Outcome(time.perf_counter() - began, results)


def _data_of(tree: Mapping[str, Any]) -> Any:
    return getattr(datamodules, tree["data"]["class_path"])(**tree["data"]["init_args"])


def _row(entry: Entry, folder: Path) -> Row:
    metrics: dict[str, Any] = json.loads((folder / runs.METRICS).read_text())
    paper = dict(zip(("paper", "paper_std", "paper_seconds"), entry.paper, strict=False))
    row = {**entry.labels, **paper, "folder": folder}
    if "function" in entry.settings:
        return row | {key: value for key, value in metrics.items() if key != "data_fingerprint"}
    score = metrics["metric"]
    ranks = metrics.get("stable_rank", {}).get("features", [])
    if "grid" not in metrics:  # an attention task, whose "signals" are its test sets
        each = zip(metrics["signals"], metrics[f"test/{score}_per_signal"], strict=True)
        row |= {"metric": score, **{f"{score} {name}": value for name, value in each}}
    return row | {
        score: metrics[f"test/{score}"],
        f"{score}_std": metrics[f"test/{score}_std"],
        f"train_{score}": metrics.get(f"train/{score}"),
        f"{score}_per_signal": metrics[f"test/{score}_per_signal"],
        "parameters": metrics["num_params"],
        "seconds": None if metrics["fit_seconds"] is None else metrics["fit_seconds"] / metrics["num_signals"],
        "steps": metrics["steps"],
        "ridge": metrics.get("ridge"),
        "stable_rank": ranks[-1] if ranks else None,
        "psnr_of_last": metrics.get("psnr_of_last"),
        "signals": metrics["signals"],
        "grid": metrics.get("grid"),
        "protocol": metrics["protocol"],
        "baselines": metrics["baselines"],
    }

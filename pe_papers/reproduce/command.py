"""The verb ``pe-lightning reproduce`` and its Python function."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jsonargparse.typing import ClosedUnitInterval
from rich.table import Table

from pe_lightning.errors import InputError, console, say
from pe_lightning.signals.files import check_results, replacing_results, write_atomically
from pe_papers.reproduce.definition import Definition, load, names


@dataclass(frozen=True)
class Reproduction:
    """The results of :func:`reproduce`.

    Args:
        rows: Labels and results of every cell, with the paper's value and the difference from it.
        files: CSV, Markdown and pictures.
        markdown: The content of the Markdown file.
        failed: Number of cells without a result.
        signum: The number of the signal that stopped it; ``None`` if none did.
    """

    rows: list[dict[str, Any]]
    files: list[Path]
    markdown: str
    failed: int
    signum: int | None


def reproduce(
    name: str,
    *options: str,
    paths: Sequence[str] = (),
    blocks: Sequence[str] = (),
    quick: bool = False,
    out: str | Path | None = None,
    launcher: Literal["process", "ray"] = "process",
    gpus_per_cell: float = 0,
) -> Reproduction:
    """Fits the cells of a table or figure and writes a CSV, a figure (PNG and PDF) and a Markdown table.

    Cells with a result for the same settings in the folder are skipped; an interrupted fit is resumed.

    Args:
        name: ``t1``, ``r-fig5``, ... (:func:`pe_papers.reproduce.definition.names`), or a YAML file.
        options: Further options of ``fit`` for all cells, such as ``--trainer.accelerator gpu``.
        paths: Signals in place of the signals of the definition.
        blocks: Blocks of the table to run; all by default.
        quick: Whether to run the quick version: fewer and smaller signals, fewer steps.
        out: The folder; by default ``reproductions/NAME``, or ``NAME-quick``.
        launcher: ``process`` runs one cell after the other on one device, ``ray`` as many at a time as there are CPUs, or
            GPUs if a cell takes one.
        gpus_per_cell: With ``ray``, GPUs of a cell, or a part of one.

    Example:
        >>> found = reproduce("t1", blocks=["closed_form"], quick=True)  # doctest: +SKIP
        >>> [(row["encoder"], row["psnr"], row["paper"]) for row in found.rows]  # doctest: +SKIP
    """
    definition = load(name)
    if paths and not any("data" in entry.settings for entry in definition.entries(quick)):
        raise InputError(f"{definition.name} uses no signals; leave out --paths")
    if quick and not definition.quick:
        raise InputError(f"{definition.name} has no quick version; leave out --quick")
    if gpus_per_cell and launcher != "ray":
        raise InputError("gpus_per_cell needs launcher ray; without it, use --trainer.accelerator gpu")
    definition.check_blocks(blocks)
    definition.check_options(options, quick, blocks)
    folder = Path(out or Path("reproductions") / f"{definition.name}{'-quick' * quick}")
    check_results(folder, f"reproduce {definition.name}", [f"{definition.name}.csv", f"{definition.name}.md"])
    # these import Lightning, which takes seconds
    from pe_papers.reproduce.layout import check_layouts, draw
    from pe_papers.reproduce.run import run_definition
    from pe_papers.reproduce.tables import as_csv, as_markdown, with_interpolation

    check_layouts(definition)
    rows, signum = run_definition(definition, folder, blocks, quick, paths, options, launcher, gpus_per_cell)
    expected = [entry for entry in definition.entries(quick, paths) if not blocks or entry.labels["block"] in blocks]
    failed = len(expected) - sum(not blocks or row["block"] in blocks for row in rows)
    if not rows:
        return Reproduction([], [], "", failed, signum)
    remarks = _remarks(definition, rows, quick, paths, options)
    rows = with_interpolation(rows)
    markdown = as_markdown(definition, rows, remarks)
    common = {
        "definition": definition.name,
        "mode": "quick" if quick else "full",
        "signals_from": " ".join(paths) or "samples",
    }
    with replacing_results(folder, f"reproduce {definition.name}") as temporary:
        files = [temporary / f"{definition.name}.csv", temporary / f"{definition.name}.md"]
        write_atomically(files[0], as_csv(rows, common))
        write_atomically(files[1], markdown)
        files += draw(definition, [row for row in rows if "folder" in row], temporary, " ".join(remarks[:2]))
    return Reproduction(rows, [folder / file.name for file in files], markdown, failed, signum)


def _remarks(
    definition: Definition, rows: Sequence[dict[str, Any]], quick: bool, paths: Sequence[str], options: Sequence[str]
) -> list[str]:
    changed = f" Changed by options: {shlex.join(options)}." * bool(options)
    size = (
        "Full settings."
        if not quick
        else f"QUICK version, not the paper's settings: {' '.join(definition.quick.get('notes', []))}"
    )
    fitted = next((row for row in rows if row.get("grid")), None)
    about = ""
    if fitted is not None:
        grid = " x ".join(map(str, fitted["grid"]))
        which = "given by --paths" if paths else "samples of the package"
        about = (
            f"{len(fitted['signals'])} signal(s) of {grid}, {which}: not the signals of the paper, so compare differences "
            f"between rows. PSNR per signal of unclamped predictions, protocol {fitted['protocol']}."
        )
    return list(filter(None, [size + changed, about, *definition.notes]))


def reproduce_command(
    name: str,
    /,
    *options: str,
    paths: list[str] | None = None,
    blocks: list[str] | None = None,
    quick: bool = False,
    out: Path | None = None,
    launcher: Literal["process", "ray"] = "process",
    gpus_per_cell: ClosedUnitInterval = 0.0,
) -> int:
    """Regenerates a table or figure of the papers, with the published values.

    Writes a CSV, a figure, and a table with the published values and ours.

    The same command again skips finished cells and resumes interrupted fits. reproduce list shows all names.
    Exit status: 0, 1 if a cell failed, 2 if nothing can be run; after Ctrl-C 130, SIGTERM 143, SIGHUP 129.

    Args:
        name: list, or t1, t-fig7, r-fig5, ...
        options: options of pe-lightning fit, for all cells: --trainer.accelerator gpu, --wandb.project mine.
        paths: Files or folders that replace the samples. The pictures of the papers cannot be distributed.
        blocks: Blocks of a table to run, such as closed_form complex; existing results of other blocks are included.
        quick: Fewer, smaller signals and fewer steps; every output says so.
        out: Folder for runs and results (default: reproductions/NAME, or NAME-quick).
        launcher: process runs one cell after the other; ray runs them in parallel, on several GPUs or a cluster.
        gpus_per_cell: With ray, GPUs per cell: 0 (default), 1, or a fraction.
    """
    if name == "list":
        _print_list()
        return 0
    settings: dict[str, Any] = {"quick": quick, "out": out, "launcher": launcher, "gpus_per_cell": gpus_per_cell}
    reproduction = reproduce(name, *options, paths=paths or (), blocks=blocks or (), **settings)
    say(*reproduction.markdown.splitlines())
    for path in reproduction.files:
        say(path)
    if reproduction.signum is not None:
        return 128 + reproduction.signum
    if reproduction.failed:
        say(f"pe-lightning: {reproduction.failed} cells failed; the reasons are in sweep.json", file=sys.stderr)
    return 1 if reproduction.failed else 0


def _print_list() -> None:
    table = Table("name", "source", "title", "blocks")
    for name in names():
        definition = load(name)
        table.add_row(name, definition.source, definition.title, " ".join(definition.blocks))
    console().print(table)

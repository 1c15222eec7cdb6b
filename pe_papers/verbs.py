"""The verbs ``pe-lightning analyze`` and ``pe-lightning pages``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml
from jsonargparse.typing import NonNegativeInt, PositiveInt

from pe_lightning.cli import read
from pe_lightning.errors import InputError, check_known, console, say
from pe_lightning.signals.files import check_results, replacing_results, save_figure, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

    from pe_lightning.encoders import Encoder
    from pe_lightning.encodings import Encoding

OPTIONS = ["--encoder", "--against", "--samples", "--ckpt_path", "--signal", "--out"]
CORNERS = ((0.08, 0.08), (0.08, 0.92), (0.5, 0.5), (0.92, 0.08), (0.92, 0.92))
"""Positions of similarity maps in 2-D, about as in Li et al. 2021, Fig. 5; other axes are at their middle."""
MAP = 64
"""Positions per axis of a similarity map, at most."""

Maps: TypeAlias = "dict[str, list[tuple[tuple[float, ...], Tensor]]]"


def analyze(
    *options: str,
    against: list[str] | None = None,
    samples: PositiveInt = 512,
    ckpt_path: Path | None = None,
    signal: NonNegativeInt = 0,
    out: Path = Path("analysis"),
) -> None:
    """Compares encoders with theory: rank, similarity, distance preservation.

    Prints a table and writes analysis.json with every number and analysis.png. Of a checkpoint, also similarity.png (one
    position against all others, at the start and after training) and the stable rank of every layer; of lff, weights.png.

      pe-lightning analyze --encoder gau --encoder.sigma 0.01 --against rff "{name: tri, half_width: 0.02}"

    Args:
        options: --encoder NAME and its arguments, such as --encoder.sigma 0.01, as for pe-lightning fit. num_features is
            one per sample, if it is not given.
        against: Further encoders beside it: names, or YAML such as "{name: rff, sigma: 22}"; num_features as above.
        samples: Number of positions, i/N for i from 0 to N - 1.
        ckpt_path: A checkpoint of a fit, whose encoders are measured as they were learned.
        signal: Which signal's encoders, if each has its own.
        out: Folder to write to; only files of an earlier analysis are replaced.
    """
    check_results(out, "analyze", ["analysis.json", "analysis.png"])
    if signal and ckpt_path is None:
        raise InputError("--signal is for --ckpt_path")
    from pe_lightning.encoders import Samples, for_data
    from pe_papers.analysis import measures
    from pe_papers.analysis.figures import figure, similarity_figure, weight_figure

    reports: list[dict[str, Any]] = []
    maps: Maps = {}
    ranks: dict[str, float] = {}
    encoders = read_encoders(options, against or [])
    for made in encoders:
        sized = for_data(made, Samples((float(samples),) * made.num_axes))
        reports.append(measures.analyze(sized, samples, measures.label_of(made)))
        maps |= _maps(reports[-1]["label"], sized, [samples] * made.num_axes)
    if ckpt_path is not None:
        learned, of_checkpoint, ranks = _of_checkpoint(ckpt_path, signal, samples)
        reports, maps = reports + learned, {**maps, **of_checkpoint}
    if not reports:
        raise InputError("analyze needs an encoder: pe-lightning analyze --encoder gau, or --ckpt_path of a fit")
    _print(reports)
    for name, rank in ranks.items():
        say(f"stable rank of {name}: {rank:.4g}")
    similarities = {name: [{"position": at, "map": found.tolist()} for at, found in row] for name, row in maps.items()}
    found = {"encoders": reports, "layers": ranks, "similarity": similarities}
    with replacing_results(out, "analyze") as folder:
        write_atomically(folder / "analysis.json", json.dumps(found, allow_nan=False))
        figures = {"analysis.png": figure(*reports)}
        if any(report["weights"] for report in reports):
            figures["weights.png"] = weight_figure(*reports)
        if maps:
            title = "similarity of one position to all others"
            shown = {name: [(str(at), found) for at, found in row] for name, row in maps.items()}
            figures["similarity.png"] = similarity_figure(shown, title)
        for name, drawn in figures.items():
            save_figure(folder / name, drawn)
    for name in figures:
        say(f"wrote {out / name}")


def pages(folder: Path, /, *, scores: Path | None = None) -> None:
    """Writes a Markdown page with figures about each encoder and network.

    Args:
        folder: The output folder, in which only pages of an earlier command are replaced.
        scores: The overview.csv of compare --by method --across KEYS, with the scores of encoders for their pages.
    """
    from pe_papers.pages import write_pages

    say(f"wrote {len(write_pages(folder, scores))} pages to {folder}")


def read_encoders(options: Sequence[str], against: Sequence[str]) -> list[Encoder]:
    """The encoder of ``--encoder`` and ``--encoder.ARGUMENT``, if there is one, and those beside it."""
    from pe_lightning.encoders import registry

    _, given = read(options)
    described: dict[str, Any] = {}
    for option in given:
        if option.key.split(".")[:2] != ["model", "encoder"]:
            check_known("unknown option", option.name, OPTIONS, "analyze takes")
        described[option.key.removeprefix("model.encoder").removeprefix(".")] = _value(option.value)
    if described and "" not in described:
        raise InputError(f"{given[0].name} belongs to an encoder that is not named: --encoder gau {given[0].name} ...")
    named = described.pop("", None)
    with_arguments = {"name": named, **described} if isinstance(named, str) else {**(named or {}), **described}
    return [registry.resolve(encoder) for encoder in [*([with_arguments] if named else []), *map(_value, against)]]


def _value(text: str | None) -> Any:
    try:
        return yaml.safe_load(text or "")
    except yaml.YAMLError as error:
        raise InputError(f"{text!r} is neither a name nor YAML: {error}") from error


def _maps(name: str, encoding: Encoder | Encoding, grid: Sequence[int]) -> Maps:
    """Similarities over the first two axes of a grid, the other coordinates in the middle; nothing of a single axis."""
    import torch

    from pe_papers.analysis.measures import positions
    from pe_papers.analysis.similarity import similarity, without_mlp

    if len(grid) < 2:
        return {}
    rest = [0.5] * (len(grid) - 2)
    axes = [*(positions(min(count, MAP)) for count in grid[:2]), *(torch.tensor([x], dtype=torch.float64) for x in rest)]
    below = without_mlp(encoding)
    shape = [len(axis) for axis in axes[:2]]
    return {name: [(corner, similarity(below, [*corner, *rest], axes).reshape(shape)) for corner in CORNERS]}


def _of_checkpoint(path: Path, signal: int, samples: int) -> tuple[list[dict[str, Any]], Maps, dict[str, float]]:
    from pe_lightning import load
    from pe_lightning.training import CoordinateModule
    from pe_papers.analysis.measures import analyze, label_of
    from pe_papers.analysis.similarity import as_initialised, checkpoint_ranks, encoding_of

    module = load(path)
    encoding = encoding_of(module, signal)
    reports: list[dict[str, Any]] = []
    maps: Maps = {}
    trained = any(parameter.requires_grad for parameter in encoding.parameters())
    stages = {", initial": as_initialised(encoding), ", learned": encoding} if trained else {"": encoding}
    grid, ranks = [MAP] * encoding.num_axes, {}
    if isinstance(module, CoordinateModule):
        grid, ranks = list(module.require_info().grid), checkpoint_ranks(module)
    for stage, stage_encoding in stages.items():
        # axes and directions have encoders of their own, which are equal unless they learn
        distinct = {(stage and id(encoder)) or json.dumps(encoder.spec()): encoder for encoder in stage_encoding.encoders}
        for number, encoder in enumerate(distinct.values()):
            which = f" {number}" if len(distinct) > 1 else ""
            reports.append(analyze(encoder, samples, f"{label_of(encoder)}{which}{stage}"))
        maps |= _maps(f"checkpoint{stage}", stage_encoding, grid)
    return reports, maps, ranks


def _print(reports: Sequence[Mapping[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    def show(value: float | None, digits: str = ".4g") -> str:
        return "–" if value is None else f"{value:{digits}}"

    def pair(values: Mapping[str, float | None], digits: str = ".4g") -> str:
        return f"{show(values['measured'], digits)} / {show(values['theory'], digits)}"

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    titles = "encoder", "K", "stable rank /\ntheory", "its\ndeviation", "D(Δ):\ndeviation", "rank", "condition\nof Gram"
    for title in (*titles, "spread", "correlation /\ntheory", "interval /\ntheory"):
        table.add_column(title, justify="left" if title == "encoder" else "right")
    for report in reports:
        deviation = report["deviation"]
        table.add_row(
            report["label"],
            str(report["num_features"]),
            pair(report["stable_rank"]),
            show(deviation["stable_rank"], ".1%"),
            show(deviation["distance"], ".1%"),
            str(report["numerical_rank"]),
            "inf" if report["condition"] is None else show(report["condition"], ".2g"),
            show(report["spread"], ".2g"),
            pair(report["correlation"], ".3f"),
            pair(report["interval"], ".3g"),
        )
    console().print(table)
    say(f"{reports[0]['samples']} positions. Deviations are from theory, of D(Δ) the largest, relative to D(0). Spread: how")
    say("much similarities depend on the position; correlation: of D with -|Δ|; interval: Δ to which D > 0.025 D(0).")

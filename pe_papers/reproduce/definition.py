"""Definitions of tables and figures: YAML files of settings, and the cells that they describe.

Settings are dotted options of ``fit``, as on its command line; later settings override earlier ones::

    title: one line
    source: table or figure of the paper
    notes: [differences from the paper, one sentence each]
    base: {model: SimpleMLP, model.depth: 4, data: ImageDataModule, data.paths: samples://astronaut}
    vary:                                       # every combination is a cell
      encoder: {linf: {model.encoder: {name: linf, sigma: 5}}, gau: {model.encoder: {name: gau, sigma: 0.006}}}
      samples: {key: data.sampling.stride, values: [2, 4, 8]}
      sigma: {key: [model.encoder.sigma, model.optimizer.init_args.lr], values: [[0.01, 1.0e-3], [0.1, 1.0e-4]]}
    blocks:
      simple: {title: Simple encoding, base: {...}, vary: {...}, seeds: 3, paper: {linf: [24.46, 3.66, 60.61]}}
    quick: {notes: [...], base: {...}, blocks: {simple: {...}}, only: {samples: [2, 8]}, seeds: 2}
    layout: [{kind: table}]

A block may have ``base``, ``vary`` (in place of the common one), ``seeds`` (a number for all cells, or numbers of cells by
their labels, joined with ``/``), ``title`` and ``paper``: mean, standard deviation and seconds of each cell by its labels.
With ``--quick``, its settings come last, ``only`` leaves out labels, and ``seeds`` limits their number.

A cell that is not a fit names a Python function in ``function`` and its arguments as ``arguments.NAME``. It returns plain
values by name: numbers, lists of numbers of the same length, or ``image``, a list of rows. If the cell has ``data``, the
function gets the DataModule as ``data``. The layouts are in :mod:`pe_papers.reproduce.layout`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pe_lightning.cli import read
from pe_lightning.errors import InputError, check_known
from pe_lightning.results.runs import flatten

OPTIONS = ("--paths", "--blocks", "--quick", "--out", "--launcher", "--gpus_per_cell")
FOLDER = Path(__file__).parent / "definitions"
KEYS = {
    "definition": {"title", "source", "notes", "base", "vary", "blocks", "quick", "layout"},
    "block": {"title", "base", "vary", "seeds", "paper"},
    "quick": {"notes", "base", "blocks", "only", "seeds"},
}


@dataclass(frozen=True)
class Entry:
    """One cell of a definition.

    Args:
        labels: ``block``, the varied labels, and ``seed`` if there are several seeds.
        settings: Dotted options.
        repeat: Index of the seed, from 0.
        paper: Mean, standard deviation and seconds of the paper, as far as they are published.
    """

    labels: dict[str, Any]
    settings: dict[str, Any]
    repeat: int = 0
    paper: Sequence[float | None] = ()

    def tree(self) -> dict[str, Any]:
        """The settings as a nested configuration."""
        tree: dict[str, Any] = {}
        for key, value in self.settings.items():
            first, *rest = key.split(".")
            if first in ("model", "data"):
                rest = ["init_args", *rest] if rest else ["class_path"]
            inner = tree
            for part in [first, *rest][:-1]:
                inner = inner.setdefault(part, {})
            inner[[first, *rest][-1]] = value
        return tree


@dataclass(frozen=True)
class Definition:
    """A table or figure of a paper; the docstring of the module describes the fields."""

    name: str
    title: str
    source: str
    blocks: Mapping[str, Mapping[str, Any]]
    layout: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    vary: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)

    def block_title(self, block: str) -> str:
        """The heading of a block."""
        return str(self.blocks[block].get("title", block))

    def shown(self, label: str | None, value: Any) -> str:
        """The text of a label's value; for a block, its title."""
        return self.block_title(value) if label == "block" else str(value)

    def heading(self, label: str, value: Any) -> str:
        """The heading of a label's value: the title of a block, else ``sigma 0.01``."""
        return self.block_title(value) if label == "block" else f"{label} {value}"

    def check_blocks(self, blocks: Iterable[str]) -> None:
        """Raises InputError for an unknown block."""
        for block in blocks:
            check_known(f"{self.name} has no block", block, self.blocks, "Blocks")

    def check_options(self, options: Sequence[str], quick: bool = False, blocks: Sequence[str] = ()) -> None:
        """Raises InputError for options of ``fit`` that no cell takes, or that would override a varied setting."""
        given = [option.key for option in read(options)[1]]
        entries = [entry for entry in self.entries(quick) if not blocks or entry.labels["block"] in blocks]
        if not any("model" in entry.settings for entry in entries):
            takes_data = any("data" in entry.settings for entry in entries)
            if wrong := [key for key in given if not (takes_data and key.startswith("data."))]:
                check_known(f"{self.name} has no fits to change by the option", f"--{wrong[0]}", OPTIONS, "It takes")
        for key in given:
            if key == "data.paths":
                raise InputError("--data.paths: give signals by --paths")
            if varied := [name for name in self._varied(blocks) if f"{name}.".startswith(f"{key}.")]:
                raise InputError(f"--{key}: {self.name} varies {varied[0]}; leave it out, or write your own definition")

    def _varied(self, blocks: Sequence[str]) -> list[str]:
        settings: list[str] = []
        for block in blocks or self.blocks:
            for values in self.blocks[block].get("vary", self.vary).values():
                if values.keys() == {"key", "values"}:
                    settings += [values["key"]] if isinstance(values["key"], str) else values["key"]
                else:
                    settings += [key for more in values.values() for key, _ in flatten(more)]
        return settings

    def entries(self, quick: bool = False, paths: Sequence[str] = ()) -> list[Entry]:
        """All cells, in the order of the definition.

        Args:
            quick: Whether to return the cells of the quick version.
            paths: Signals in place of the signals of the definition.
        """
        return [entry for name in self.blocks for entry in self._of_block(name, quick, paths)]

    def _of_block(self, name: str, quick: bool, paths: Sequence[str]) -> Iterable[Entry]:
        block, less = self.blocks[name], self.quick if quick else {}
        only = less.get("only", {})
        axes = []
        for axis, values in block.get("vary", self.vary).items():
            if values.keys() == {"key", "values"}:
                several = not isinstance(keys := values["key"], str)
                choices = [
                    (value[0], dict(zip(keys, value, strict=True))) if several else (value, {keys: value})
                    for value in values["values"]
                ]
            else:
                choices = list(values.items())
            axes.append([(axis, label, more) for label, more in choices if label in only.get(axis, [label])])
        small = [less.get("base", {}), less.get("blocks", {}).get(name, {})]
        for point in itertools.product(*axes):
            cell = "/".join(str(label) for _, label, _ in point)
            seeds = block.get("seeds", 1)
            seeds = seeds if isinstance(seeds, int) else seeds.get(cell, 1)
            seeds = min(seeds, less.get("seeds", seeds))
            settings: dict[str, Any] = {}
            for part in (self.base, block.get("base", {}), *(more for _, _, more in point), *small):
                for key, value in flatten(part):
                    settings = {old: kept for old, kept in settings.items() if not old.startswith(f"{key}.")}
                    settings[key] = value
            if paths and "data" in settings:
                settings["data.paths"] = list(paths)
            labels = {"block": name, **{axis: label for axis, label, _ in point}}
            paper = (block.get("paper") or {}).get(cell, ())
            for repeat in range(seeds):
                yield Entry(labels | ({"seed": repeat} if seeds > 1 else {}), settings, repeat, paper or ())


def names() -> list[str]:
    """The names of all tables and figures, figure 9 before figure 10."""
    stems = [re.split(r"(\d+)", path.stem) for path in FOLDER.glob("*.yaml")]
    return ["".join(parts) for parts in sorted(stems, key=lambda parts: [int(p) if p.isdigit() else p for p in parts])]


def load(name: str) -> Definition:
    """A definition by name, or from a YAML file."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.is_file():
        check_known("unknown table or figure", name, names(), "Or give a YAML file. Known")
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{str(path)!r} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or (missing := sorted({"title", "source", "blocks", "layout"} - content.keys())):
        words = f": it has no {', '.join(missing)}" if isinstance(content, dict) else ""
        raise InputError(f"{str(path)!r} is not a definition of a table or figure{words}")
    _check_form(str(path), content)
    definition = Definition(path.stem, **content)
    definition.check_blocks(definition.quick.get("blocks", {}))
    cells: dict[str, list[str]] = {}
    for entry in definition.entries():
        block, *labels = (str(value) for label, value in entry.labels.items() if label != "seed")
        cells.setdefault(block, []).append("/".join(labels))
    for name, part in definition.blocks.items():
        seeds = part.get("seeds", 1)
        for cell in (*(seeds if isinstance(seeds, dict) else ()), *(part.get("paper") or ())):
            check_known(f"{definition.name}: block {name} has no cell", str(cell), dict.fromkeys(cells[name]), "Cells")
    return definition


def _check_form(path: str, content: dict[str, Any]) -> None:
    """Raises InputError if a part of a file has another type, or names that nothing reads."""
    blocks, quick, layout = content["blocks"], content.get("quick", {}), content["layout"]
    mappings = [("blocks", blocks), ("quick", quick)]
    if isinstance(blocks, dict):
        mappings += [(f"block {name}", block) for name, block in blocks.items()]
    varied = [part.get("vary", {}) for part in (content, *dict(mappings).values()) if isinstance(part, dict)]
    mappings += [(f"vary: {axis}", values) for axes in varied for axis, values in axes.items()]
    for name, part in mappings:
        if not isinstance(part, dict):
            raise InputError(f"{path!r}: {name} must be names with values, {{NAME: ...}}, got {part!r}")
    if not blocks or not isinstance(layout, list) or not all(isinstance(kind, dict) for kind in layout):
        raise InputError(f"{path!r}: it needs at least one block, and layout is a list such as [{{kind: table}}]")
    for kind, parts in (("definition", [content]), ("block", blocks.values()), ("quick", [quick])):
        for key in (key for part in parts for key in part):
            check_known(f"{path!r}: a {kind} has no", key, sorted(KEYS[kind]), "It takes")
    axes = [axis for axes in varied for axis in axes]
    for axis in quick.get("only", {}):
        check_known(f"{path!r}: quick has only:", axis, axes, "Varied are")
    for block in blocks.values():
        for cell, values in (block.get("paper") or {}).items():
            if not isinstance(values, list):
                raise InputError(
                    f"{path!r}: paper is {{CELL: [mean, standard deviation, seconds]}}, got {cell!r}: {values!r}"
                )

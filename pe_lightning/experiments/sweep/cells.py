"""The cells of a sweep: combinations of settings, their names, and the complete configuration of each."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pe_lightning import runs
from pe_lightning.errors import InputError
from pe_lightning.experiments.sweep.options import MOST_CELLS, Options

__all__ = ["Cell", "plan"]

LONGEST_NAME = 120
PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
"""Values that are part of a folder's name as they are."""
RESULT_KEYS = ("trainer", "model", "data", "seed_everything", "weights_only", "float32_matmul_precision")
"""What a result depends on; how a run appears in W&B is not part of it."""


@dataclass
class Cell:
    """One combination of settings with one seed.

    Args:
        name: The folder of its run.
        settings: The varied settings, as typed.
        repeat: Which repetition it is, from 0.
        arguments: The options of ``fit``, without what a repetition changes.
        tree: The complete configuration; ``None`` if it was refused.
        error: Why it was refused.
    """

    name: str
    settings: dict[str, str]
    repeat: int
    arguments: tuple[str, ...]
    tree: dict[str, Any] | None = None
    error: str | None = None

    @property
    def data_options(self) -> str:
        """Equal for cells that can share a DataModule."""
        return "" if self.tree is None else json.dumps(self.tree["data"], sort_keys=True)


def plan(options: Options, resolve: Callable[[Sequence[str]], dict[str, Any]]) -> list[Cell]:
    """All cells, those with the same data next to each other.

    Args:
        options: The command line.
        resolve: The complete configuration of options of ``fit``; raises InputError.

    Raises:
        InputError: If every cell is refused, there are too many, or repetitions would change what is varied.
    """
    count = options.repeats * math.prod(len(entry.values) for entry in options.varied)
    if count > MOST_CELLS:
        raise InputError(f"a sweep of {count:,} cells; at most {MOST_CELLS:,} are run")
    _check_seeds(options)
    cells: list[Cell] = []
    for values in itertools.product(*(entry.values for entry in options.varied)):
        settings = {entry.key: value for entry, value in zip(options.varied, values, strict=True)}
        arguments = compose(options.fixed, settings)
        tree, error = None, None
        try:
            tree = _checked(resolve(arguments), options)
        except InputError as refused:
            error = str(refused)
        for repeat in range(options.repeats):
            name = cell_name(settings, repeat if options.repeats > 1 else None)
            cells.append(Cell(name, settings, repeat, arguments, tree and reseeded(tree, repeat), error))
    if all(cell.tree is None for cell in cells):
        raise InputError(_why_none(cells))
    first = {options: place for place, options in reversed(list(enumerate(cell.data_options for cell in cells)))}
    return sorted(cells, key=lambda cell: first[cell.data_options])


def compose(fixed: Sequence[str], settings: dict[str, str]) -> tuple[str, ...]:
    """Options of ``fit`` in an order in which none undoes another.

    Naming an encoder starts from its own defaults. So a setting that others are part of comes right after the
    configuration files, shorter keys first, ahead of the fixed options; single values come last.
    """
    last = -1
    for place, argument in enumerate(fixed):
        if argument in ("-c", "--config"):
            last = place + 1
        elif argument.startswith("--config="):
            last = place
    whole = sorted((key for key in settings if key in WHOLES), key=len)
    single = sorted((key for key in settings if key not in WHOLES), key=lambda key: key.count("."))
    front, back = ([f"--{key}={settings[key]}" for key in keys] for keys in (whole, single))
    return (*fixed[: last + 1], *front, *fixed[last + 1 :], *back)


WHOLES = ("model", "data", "model.encoder", "data.sampling", "model.optimizer", "model.lr_scheduler", "trainer.logger")
"""Settings that name a class, whose arguments are settings of their own."""


def cell_name(settings: dict[str, str], repeat: int | None) -> str:
    """A folder name that says what is varied, and never changes with what else is in the sweep.

    >>> cell_name({"model.encoder": "gau", "model.encoder.sigma": "0.01"}, None)
    'encoder-gau_sigma-0.01'
    """
    short = [key.rpartition(".")[2] for key in settings]
    parts = []
    for key, value in settings.items():
        last = key.rpartition(".")[2]
        plain = value
        if not PLAIN.fullmatch(value):  # several values can become the same plain text
            plain = f"{runs.slug(value)[:40]}-{_digest(value)}"
        parts.append(f"{last if short.count(last) == 1 else runs.slug(key)}-{plain}")
    if repeat is not None:
        parts.append(f"repeat-{repeat}")
    name = "_".join(parts)
    return name if len(name.encode()) <= LONGEST_NAME else f"{runs.slug(name[: LONGEST_NAME - 60])}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _check_seeds(options: Options) -> None:
    keys = [entry.key for entry in options.varied]
    if options.repeats > 1:
        for key in keys:
            if key == "seed_everything" or (key.startswith("model.encoder") and key.endswith(".seed")):
                raise InputError(f"--repeats sets the seeds itself; leave out --repeats, or --vary {key}")


def _checked(tree: dict[str, Any], options: Options) -> dict[str, Any]:
    """The configuration of a cell that can be run, and found again later, in this process."""
    seed, trainer = tree["seed_everything"], tree["trainer"]
    if seed is True or (seed is False and options.repeats > 1):
        raise InputError(
            f"a sweep needs a seed that it can repeat: give --seed_everything a number, not {str(seed).lower()}"
        )
    if trainer["devices"] in ("auto", -1, "-1"):
        trainer["devices"] = 1
    if str(trainer["devices"]) != "1" and (not isinstance(trainer["devices"], list) or len(trainer["devices"]) != 1):
        raise InputError(f"a sweep fits in one process: set --trainer.devices 1 (now {trainer['devices']!r})")
    if trainer["num_nodes"] != 1:
        raise InputError(f"a sweep fits in one process: set --trainer.num_nodes 1 (now {trainer['num_nodes']!r})")
    tree["wandb"]["group"] = tree["wandb"]["group"] or options.name
    return tree


def reseeded(tree: dict[str, Any], repeat: int) -> dict[str, Any]:
    """The configuration with the seed, and that of every encoder that has one, moved on by ``repeat``.

    The sampling keeps its seed: repetitions fit the same samples, so that ``compare`` can average them.
    """
    tree = copy.deepcopy(tree)
    if repeat:
        tree["seed_everything"] += repeat
        for encoder in _encoders(tree["model"]["init_args"].get("encoder")):
            if isinstance(encoder.get("seed"), int):
                encoder["seed"] += repeat
    return tree


def _encoders(value: Any) -> Iterator[dict[str, Any]]:
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, dict) and isinstance(entry.get("init_args"), dict):
            yield entry["init_args"]


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The settings in which two complete configurations would give different results: ``trainer.max_steps: 10, now 20``."""
    flat_one, flat_other = (dict(_flat({key: tree.get(key) for key in RESULT_KEYS})) for tree in (one, other))
    missing = object()
    keys = [key for key in {**flat_one, **flat_other} if flat_one.get(key, missing) != flat_other.get(key, missing)]
    return [f"{key}: {flat_one.get(key, 'nothing')}, now {flat_other.get(key, 'nothing')}" for key in keys]


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _flat(value, prefix if key == "init_args" else f"{prefix}.{key}".lstrip("."))
    else:
        yield prefix, tree


def _why_none(cells: Sequence[Cell]) -> str:
    reasons = list(dict.fromkeys(cell.error for cell in cells if cell.error))
    rest = f" (and {len(reasons) - 1} other reason(s))" if len(reasons) > 1 else ""
    return f"no cell of the sweep can be run: {reasons[0]}{rest}"

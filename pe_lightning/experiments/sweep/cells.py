"""The cells of a sweep: every combination of the varied settings, with its name and its complete configuration."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonargparse
import yaml

from pe_lightning import runs
from pe_lightning.errors import InputError

__all__ = ["Cell", "cell_name", "compose", "differences", "make_cells", "parse_varied", "reseeded", "split_values"]

MAX_CELLS = 10_000
"""A larger sweep is taken for a mistake."""
MAX_NAME = 120
PLAIN = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
"""Values that become part of a folder's name unchanged."""
REFUSED = {
    "config": "vary the settings in it one by one, or start a sweep for each file",
    "ckpt_path": "a sweep starts every fit from scratch, and resumes its own interrupted fits",
    "print_config": "config.yaml in each run directory has the complete configuration",
}
CLASS_KEYS = ("model", "data", "model.encoder", "data.sampling", "model.optimizer", "model.lr_scheduler", "trainer.logger")
"""Settings that name a class, whose arguments are settings of their own."""
RESULT_KEYS = ("trainer", "model", "data", "seed_everything", "weights_only", "float32_matmul_precision")
"""What a result depends on; how a run appears in W&B is not part of it."""


@dataclass(frozen=True)
class Cell:
    """One combination of settings with one seed.

    Args:
        name: The folder of its run.
        settings: The varied settings, as typed.
        repeat: Number of the repetition, from 0.
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


def parse_varied(texts: Sequence[str], fixed: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The varied settings and their values, from the texts after ``--vary``.

    Args:
        texts: ``KEY=V1,V2,...`` each.
        fixed: Options of ``fit``, none of which may be varied too.

    Raises:
        InputError: If a text cannot be read, a setting is given twice, or a sweep cannot vary it.
    """
    varied: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=") if not text.startswith("--") else text[2:].partition("=")
        key = key.strip().replace(".init_args", "")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise InputError(f"--vary takes KEY=V1,V2,..., got {text!r}: --vary model.encoder=gau,tri,rff")
        if key in REFUSED:
            raise InputError(f"--vary {key}: {REFUSED[key]}")
        if key in varied:
            raise InputError(f"--vary {key} is given twice; give all its values at once: --vary {key}=V1,V2,...")
        varied[key] = split_values(key, values)
    if not varied:
        raise InputError("a sweep varies something: --vary model.encoder=gau,tri,rff; a single fit is pe-lightning fit")
    for argument in fixed:
        key = argument.partition("=")[0].lstrip("-").replace(".init_args", "")
        if argument.startswith("-") and key in varied:
            raise InputError(f"{key} is varied and given as --{key} too; leave one of them out")
        if argument.startswith("-") and key in ("ckpt_path", "print_config"):
            raise InputError(f"sweep takes no --{key}: {REFUSED[key]}")
    return varied


def split_values(key: str, text: str) -> tuple[str, ...]:
    """Splits values, YAML each, at the commas outside of brackets, braces and quotes.

    >>> split_values("model.encoder", "gau, [tri, rff], {name: logf, sigma: 5}")
    ('gau', '[tri, rff]', '{name: logf, sigma: 5}')
    """
    try:
        nodes = getattr(yaml.compose(f"[{text}\n]", yaml.SafeLoader), "value", [])
        values = tuple(text[node.start_mark.index - 1 : node.end_mark.index - 1].strip() for node in nodes)
        meanings = [repr(jsonargparse.get_loader("yaml")(value)) for value in values]
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"--vary {key}: {text!r} does not parse: {problem}. Quote values that hold commas") from error
    if not all(values) or not values or text.rstrip().endswith(","):
        raise InputError(f"--vary {key}: an empty value in {text!r}; write null for none, and no comma at the end")
    for place, (value, meaning) in enumerate(zip(values, meanings, strict=True)):
        if meaning in meanings[:place]:
            raise InputError(f"--vary {key}: the value {value!r} is given twice")
    return values


def make_cells(
    varied: Mapping[str, Sequence[str]],
    fixed: Sequence[str],
    repeats: int,
    name: str,
    resolve: Callable[[Sequence[str]], dict[str, Any]],
) -> list[Cell]:
    """All cells, those with the same data next to each other.

    Args:
        varied: The varied settings and their values.
        fixed: Options of ``fit`` that all cells share.
        repeats: Seeds per combination.
        name: The sweep's name, which groups its runs in W&B.
        resolve: The complete configuration of options of ``fit``; raises InputError.

    Raises:
        InputError: If every cell is refused, there are too many, or repetitions would change what is varied.
    """
    count = repeats * math.prod(map(len, varied.values()))
    if count > MAX_CELLS:
        raise InputError(f"a sweep of {count:,} cells; at most {MAX_CELLS:,} are run")
    for key in varied:
        if repeats > 1 and (key == "seed_everything" or (key.startswith("model.encoder") and key.endswith(".seed"))):
            raise InputError(f"--repeats sets the seeds itself; leave out --repeats, or --vary {key}")
    cells: list[Cell] = []
    for values in itertools.product(*varied.values()):
        settings = dict(zip(varied, values, strict=True))
        arguments = compose(fixed, settings)
        tree, error = None, None
        try:
            tree = _checked(resolve(arguments), repeats, name)
        except InputError as refused:
            error = str(refused)
        for repeat in range(repeats):
            cell = cell_name(settings, repeat if repeats > 1 else None)
            cells.append(Cell(cell, settings, repeat, arguments, tree and reseeded(tree, repeat), error))
    if all(cell.tree is None for cell in cells):
        reasons = list(dict.fromkeys(str(cell.error) for cell in cells))
        others = f" (and {len(reasons) - 1} other reason(s))" if len(reasons) > 1 else ""
        raise InputError(f"no cell of the sweep can be run: {reasons[0]}{others}")
    order = list(dict.fromkeys(cell.data_options for cell in cells))
    return sorted(cells, key=lambda cell: order.index(cell.data_options))


def compose(fixed: Sequence[str], settings: Mapping[str, str]) -> tuple[str, ...]:
    """Options of ``fit`` in an order in which none undoes another.

    Naming an encoder resets its arguments. So a setting that names a class comes right after the configuration files,
    shorter keys first, before the fixed options; single values come last.
    """
    last = -1
    for place, argument in enumerate(fixed):
        if argument in ("-c", "--config"):
            last = place + 1
        elif argument.startswith("--config="):
            last = place
    classes = sorted((key for key in settings if key in CLASS_KEYS), key=len)
    values = sorted((key for key in settings if key not in CLASS_KEYS), key=lambda key: key.count("."))
    front, back = ([f"--{key}={settings[key]}" for key in keys] for keys in (classes, values))
    return (*fixed[: last + 1], *front, *fixed[last + 1 :], *back)


def cell_name(settings: Mapping[str, str], repeat: int | None) -> str:
    """A folder name that says what is varied, independent of the other cells of the sweep.

    >>> cell_name({"model.encoder": "gau", "model.encoder.sigma": "0.01"}, None)
    'encoder-gau_sigma-0.01'
    """
    last = [key.rpartition(".")[2] for key in settings]
    parts = []
    for key, value in settings.items():
        short = key.rpartition(".")[2]
        # values that differ only in special characters get different digests
        plain = value if PLAIN.fullmatch(value) else f"{runs.slug(value)[:40]}-{_digest(value)}"
        parts.append(f"{short if last.count(short) == 1 else runs.slug(key)}-{plain}")
    if repeat is not None:
        parts.append(f"repeat-{repeat}")
    name = "_".join(parts)
    return name if len(name.encode()) <= MAX_NAME else f"{runs.slug(name[: MAX_NAME - 60])}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _checked(tree: dict[str, Any], repeats: int, name: str) -> dict[str, Any]:
    """The configuration of a cell that can be run on one device and repeated later."""
    seed, trainer = tree["seed_everything"], tree["trainer"]
    if seed is True or (seed is False and repeats > 1):
        raise InputError(
            f"a sweep needs a seed that it can repeat: set --seed_everything to a number, not {str(seed).lower()}"
        )
    if trainer["devices"] in ("auto", -1, "-1"):
        trainer["devices"] = 1
    if str(trainer["devices"]) != "1" and (not isinstance(trainer["devices"], list) or len(trainer["devices"]) != 1):
        raise InputError(f"a cell is fitted on one device: set --trainer.devices 1 (now {trainer['devices']!r})")
    if trainer["num_nodes"] != 1:
        raise InputError(f"a cell is fitted in one process: set --trainer.num_nodes 1 (now {trainer['num_nodes']!r})")
    tree["wandb"]["group"] = tree["wandb"]["group"] or name
    return tree


def reseeded(tree: dict[str, Any], repeat: int) -> dict[str, Any]:
    """A copy whose seed, and that of every encoder that has one, is larger by ``repeat``.

    The sampling keeps its seed: repetitions fit the same samples, so that ``compare`` can average them.
    """
    tree = copy.deepcopy(tree)
    if repeat:
        tree["seed_everything"] += repeat
        encoders = tree["model"]["init_args"].get("encoder")
        for encoder in encoders if isinstance(encoders, list) else [encoders]:
            arguments = encoder.get("init_args") if isinstance(encoder, dict) else None
            if isinstance(arguments, dict) and isinstance(arguments.get("seed"), int):
                arguments["seed"] += repeat
    return tree


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings in which two complete configurations would give different results: ``trainer.max_steps: 10, now 20``."""
    old, new = (dict(_flat({key: tree.get(key) for key in RESULT_KEYS})) for tree in (one, other))
    missing = object()
    keys = [key for key in {**old, **new} if old.get(key, missing) != new.get(key, missing)]
    return [f"{key}: {old.get(key, 'nothing')}, now {new.get(key, 'nothing')}" for key in keys]


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _flat(value, prefix if key == "init_args" else f"{prefix}.{key}".lstrip("."))
    else:
        yield prefix, tree

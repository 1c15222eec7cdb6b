"""The cells of a sweep: one per combination of the varied settings and seed, with its name and complete configuration."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import yaml

from pe_lightning.cli.arguments import Option, read
from pe_lightning.errors import InputError, check_known
from pe_lightning.results import runs
from pe_lightning.results.runs import result_settings
from pe_lightning.signals.files import named_files, sha256_of, user_path
from pe_lightning.studies.sweep.matching import Goal

Options: TypeAlias = tuple[str, ...]
Varied: TypeAlias = Mapping[str, Mapping[str, Options]]
"""Settings of a sweep: the options of ``fit`` of each value, by the text of the value."""

MAX_NAME_BYTES = 120
"""Longest name of a cell, which is the name of a folder."""
MAX_GROUP, MAX_TAG = 128, 64
"""Most characters of a group and of a tag in W&B."""
PLAIN_VALUE = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
"""Values that are part of a folder name unchanged."""


@dataclass(frozen=True)
class Cell:
    """One combination of settings with one seed.

    Args:
        name: Name of its run directory.
        settings: The varied settings, as typed.
        repeat: Index of the repetition, from 0.
        arguments: Options of ``fit``, without the seeds of the repetition; none for a cell that is no fit.
        tree: The complete configuration; ``None`` if it was refused.
        error: The reason for the refusal.
        goals: The options that are found before the fit, and the goal of each; ``tree`` has other values of them.
    """

    name: str
    settings: dict[str, str]
    repeat: int
    arguments: tuple[str, ...]
    tree: dict[str, Any] | None = None
    error: str | None = None
    goals: dict[str, Goal] = field(default_factory=dict)

    @property
    def data_options(self) -> str:
        """The configuration of the data as JSON: cells with equal ones can share a DataModule."""
        return "" if self.tree is None else json.dumps(self.tree["data"], sort_keys=True)

    @cached_property
    def files(self) -> dict[str, str]:
        """SHA-256 of every file that the trainer or the model is made from, such as a pretrained model."""
        named = named_files([(self.tree or {}).get(key) for key in ("trainer", "model")])
        return {str(path): sha256_of(user_path(path)) for path in named}


def parse_varied(texts: Sequence[str], fixed: Sequence[str], named: Varied = MappingProxyType({})) -> Varied:
    """Settings with their values from texts ``KEY=V1,V2,...``.

    Args:
        texts: The texts.
        fixed: Options of ``fit`` for all cells.
        named: Settings with named values, of a study; a text chooses some of them.
    """
    varied: dict[str, Mapping[str, Options]] = {}
    for text in texts:
        option = Option((f"--{text.strip().removeprefix('--')}",))
        key, values = option.key.strip(), option.value
        if not values or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise InputError(f"--vary takes KEY=V1,V2,..., got {text!r}: --vary model.encoder=gau,tri,rff")
        if key in varied or key in ("config", "ckpt_path", "print_config"):
            why = "is given twice; give all its values at once" if key in varied else "cannot be varied"
            raise InputError(f"--vary {key} {why}: --vary KEY=V1,V2,...")
        chosen = split_values(key, values)
        if key in named:
            for value in chosen:
                check_known(f"--vary {key}: there is no", value, named[key], f"Values of {key}")
            varied[key] = {value: named[key][value] for value in chosen}
        else:
            varied[key] = {value: (f"--{key}={value}",) for value in chosen}
    for option in read(fixed)[1]:
        if option.key in (*varied, "ckpt_path", "print_config"):
            why = "is varied, too" if option.key in varied else "cannot be given: every cell is a fit of its own"
            raise InputError(f"--{option.key} {why}; leave it out")
    return {**named, **varied}


def split_values(key: str, text: str) -> tuple[str, ...]:
    """Splits a list of YAML values at the commas outside brackets, braces and quotes.

    >>> split_values("model.encoder", "gau, [tri, rff], {name: logf, sigma: 5}")
    ('gau', '[tri, rff]', '{name: logf, sigma: 5}')
    """
    try:
        nodes = getattr(yaml.compose(f"[{text}\n]", yaml.SafeLoader), "value", [])
    except yaml.YAMLError as error:
        raise InputError(f"--vary {key}: {text!r} does not parse as YAML; quote values that hold commas") from error
    values = tuple(text[node.start_mark.index - 1 : node.end_mark.index - 1].strip() for node in nodes)
    if not all(values) or not values or text.rstrip().endswith(",") or len(set(values)) < len(values):
        raise InputError(f"--vary {key}: an empty value, or one twice, in {text!r}; write null for none")
    return values


def make_cells(
    varied: Varied,
    fixed: Sequence[str],
    repeats: int,
    name: str,
    resolve: Callable[[Sequence[str]], dict[str, Any]],
    simplify: Callable[[dict[str, str]], dict[str, str]] = dict,
    matched_by: Callable[[Mapping[str, str], Mapping[str, Any]], dict[str, Goal]] = lambda *_: {},
) -> list[Cell]:
    """All cells of a sweep, grouped by their data.

    Args:
        varied: The settings.
        fixed: Options of ``fit`` for all cells.
        repeats: Number of seeds of each combination.
        name: Name of the sweep.
        resolve: Makes the complete configuration of options.
        simplify: Settings that stand for a combination, of which there is one cell for equal ones.
        matched_by: The options that are found for the goals of a combination, from its settings and configuration.
    """
    for key in varied:
        if repeats > 1 and (key == "seed_everything" or (key.startswith("model.encoder") and key.endswith(".seed"))):
            raise InputError(f"--repeats sets the seeds; leave out --repeats, or --vary {key}")
    by_data: dict[str, list[Cell]] = {}
    errors = []
    combinations = [simplify(dict(zip(varied, values, strict=True))) for values in itertools.product(*varied.values())]
    for settings in {tuple(each.values()): each for each in combinations}.values():
        arguments = (*fixed, *(word for key, value in settings.items() for word in varied[key].get(value, ())))
        goals: dict[str, Goal] = {}
        tree, error = None, None
        try:
            tree = checked(resolve(arguments), repeats, wandb_group(name, settings))
            goals = matched_by(settings, tree)
            wandb = runs.recorder_of(tree["trainer"]["callbacks"])["wandb"]
            wandb["tags"] = list(dict.fromkeys([*(wandb["tags"] or ()), *wandb_tags(name, settings)]))
        except InputError as refused:
            error = str(refused)
        errors.append(error)
        for repeat in range(repeats):
            folder = cell_name(settings, repeat if repeats > 1 else None)
            cell = Cell(folder, settings, repeat, arguments, tree and reseeded(tree, repeat), error, goals)
            by_data.setdefault(cell.data_options, []).append(cell)
    if None not in errors:
        raise InputError(f"no cell of the sweep can be run: {errors[0]}")
    return [cell for cells in by_data.values() for cell in cells]


def cell_name(settings: Mapping[str, str], repeat: int | None) -> str:
    """The name of a cell, made from its settings alone.

    >>> cell_name({"model.encoder": "gau", "model.encoder.sigma": "0.01"}, None)
    'encoder-gau_sigma-0.01'
    """
    last = [key.rpartition(".")[2] for key in settings]
    parts = []
    for key, value in settings.items():
        short = key.rpartition(".")[2]
        # the digest distinguishes values that differ only in special characters
        plain = value if PLAIN_VALUE.fullmatch(value) else f"{runs.slug(value)[:40]}-{_digest(value)}"
        parts.append(f"{short if last.count(short) == 1 else runs.slug(key)}-{plain}")
    if repeat is not None:
        parts.append(f"repeat-{repeat}")
    name = "_".join(parts)
    return name if len(name.encode()) <= MAX_NAME_BYTES else f"{runs.slug(name[: MAX_NAME_BYTES - 60])}-{_digest(name)}"


def wandb_group(name: str, settings: Mapping[str, str]) -> str:
    """The W&B group of the repetitions of a combination: grouped runs are shown as their mean and spread."""
    group = f"{name}/{cell_name(settings, None)}"
    return group if len(group) <= MAX_GROUP else f"{group[: MAX_GROUP - 9]}-{_digest(group)}"


def wandb_tags(name: str, settings: Mapping[str, str]) -> list[str]:
    """The W&B tags of a cell: the name of the sweep, and each setting."""
    tags = [name, *(f"{key.rpartition('.')[2]}={value}" for key, value in settings.items())]
    return [tag if len(tag) <= MAX_TAG else f"{tag[: MAX_TAG - 9]}-{_digest(tag)}" for tag in tags]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]


def checked(tree: dict[str, Any], repeats: int, name: str) -> dict[str, Any]:
    """A copy of a cell's configuration, with W&B group ``name``; InputError unless it has a fixed seed and one device."""
    tree = copy.deepcopy(tree)
    seed, trainer = tree["seed_everything"], tree["trainer"]
    if seed is True or (seed is False and repeats > 1):
        raise InputError("a sweep needs a fixed seed: set --seed_everything to a number")
    if trainer["devices"] in ("auto", -1, "-1"):
        trainer["devices"] = 1
    one = len(trainer["devices"]) == 1 if isinstance(trainer["devices"], list) else str(trainer["devices"]) == "1"
    if not one or trainer["num_nodes"] != 1:
        raise InputError("a cell is fitted on one device: set --trainer.devices 1 and --trainer.num_nodes 1")
    wandb = runs.recorder_of(trainer["callbacks"])["wandb"]
    wandb["group"] = wandb["group"] or os.environ.get("WANDB_RUN_GROUP") or name
    return tree


def reseeded(tree: dict[str, Any], repeat: int) -> dict[str, Any]:
    """A copy with ``repeat`` added to the seed of the fit, which encoders follow, and to seeds that are given to encoders.

    The seed of the sampling is unchanged: repetitions fit the same samples, so that ``compare`` can average them.
    """
    tree = copy.deepcopy(tree)
    if repeat:
        tree["seed_everything"] += repeat
        encoder = tree["model"]["init_args"].get("encoder")
        for described in encoder if isinstance(encoder, list) else [encoder]:  # one per axis
            arguments = (described, described.get("init_args") or {}) if isinstance(described, dict) else ()
            for given in arguments:
                if given.get("seed") is not None:
                    given["seed"] += repeat
    return tree


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The settings in which two configurations differ, as ``trainer.max_steps: 10, now 20``.

    An option that the package has gained since ``one`` is no difference if ``other`` has its default value.
    """
    old, new = result_settings(one), result_settings(other)
    if new.keys() - old.keys():
        old = result_settings(_with_defaults(one))
    keys = [key for key in {**old, **new} if old.get(key, "nothing") != new.get(key, "nothing")]
    return [f"{key}: {old.get(key, 'nothing')}, now {new.get(key, 'nothing')}" for key in keys]


def _with_defaults(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration of ``fit`` with the default value of every option that it lacks; others are returned as they are."""
    from pe_lightning.cli.parser import parse, plain_values, prepare  # imports Lightning, which takes seconds

    prepare()
    try:
        return plain_values("fit", parse("fit", tree))
    except InputError:  # a function that is not a fit, or an option that the package no longer has
        return tree

"""Registered names and short forms in YAML files and on the command line.

jsonargparse builds the options of a class from its signature and writes a class-typed value as ``class_path`` and
``init_args``. Here the shorter spellings are turned into that form before it parses: ``encoder: tri``,
``encoder: {name: gau, sigma: 0.004}``, ``--model.encoder tri``, ``--data.batch points``.

Naming a class starts from its own defaults. jsonargparse alone would carry every argument that the old and the new class
have in common over to the new one, so that gau's sigma of 0.004 became rff's. So a named class is written out with all
its arguments, except those that are to stay what they were.
"""

from __future__ import annotations

import inspect
import json
import pydoc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonargparse
import yaml
from lightning.pytorch import LightningDataModule, LightningModule

from pe_lightning import encoders
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.sampling import samplings
from pe_lightning.data.sources.base import sources
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.modules import CoordinateModule
from pe_lightning.registry import Registry

__all__ = ["MODE", "SHORT_FORMS", "expand", "expand_arguments", "expand_tree", "install"]

MODE = "pe_lightning"
"""Name of the parser mode whose loader knows the registered names."""


@dataclass(frozen=True)
class Named:
    """An option that holds an instance of a registered class.

    Args:
        registry: Where the names are.
        stays: Arguments that stay what they were when another class is named.
        default: The name in the signatures' default, if they have one.
    """

    registry: Registry[Any]
    stays: frozenset[str] = frozenset()
    default: str | None = None


NAMED = {
    "encoder": Named(encoders.registry, stays=frozenset({"num_features"})),
    "sampling": Named(samplings, default="grid"),
    "source": Named(sources),
}
"""By the last word of the option."""

SHORT_FORMS = {
    "batch": "batching.kind",
    "batch_size": "batching.size",
    "shuffle": "batching.shuffle",
    "steps_per_epoch": "batching.steps_per_epoch",
    "in_memory": "storage.in_memory",
    "cache": "storage.cache",
    "cache_dir": "storage.cache_dir",
}
"""Of the options of ``data``; a DataModule that has an argument of the short name itself gets it as it is."""

CLASSES: dict[str, tuple[type, type]] = {
    "model": (LightningModule, CoordinateModule),
    "data": (LightningDataModule, SignalDataModule),
}
"""Options that name a class: the base of those that are accepted, and of those that are offered for a misspelt name."""


def install() -> None:
    """Loads the plugins, and registers the loader as parser mode :data:`MODE`."""
    for named in NAMED.values():
        named.registry.load_plugins()
    jsonargparse.set_loader(MODE, lambda text: expand_tree(_load(text)), exceptions=(yaml.YAMLError,))


def expand(value: Any, key: str) -> Any:
    """The ``class_path`` form of one instance of a registered class; of each, if it is a list.

    Args:
        value: A name, or a mapping with a ``name`` or ``class_path``.
        key: One of :data:`NAMED`.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    if isinstance(value, list):
        return [expand(entry, key) for entry in value]
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        return value  # null, a number: the parser says what is wrong with it
    given = dict(value)
    name = given.pop("name", None) or given.pop("class_path", None)
    if name is None:
        return value  # arguments alone: they change the class named before
    given.update(given.pop("init_args", None) or {})
    registry = NAMED[key].registry
    cls: type[Any] = registry.get(name)
    registry.check_arguments(cls, given)
    defaults = {
        argument: parameter.default
        for argument, parameter in registry.parameters(cls).items()
        if argument not in NAMED[key].stays and parameter.default is not inspect.Parameter.empty
    }
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": {**defaults, **given}}


def expand_tree(tree: Any) -> Any:
    """A configuration with all names and short forms in it expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    found = _expand_names(tree)
    if not isinstance(found, dict):
        return found
    classes = {option: _find_class(option, found.get(option)) for option in CLASSES}
    if isinstance(data := found.get("data"), dict):
        arguments = data["init_args"] if isinstance(data.get("init_args"), dict) else data
        for word in [word for word in arguments if _is_short(word, classes["data"])]:
            group, _, key = SHORT_FORMS[word].partition(".")
            arguments[group] = {**(arguments.get(group) or {}), key: arguments.pop(word)}
    return found


def _expand_names(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: expand(value, key) if key in NAMED else _expand_names(value) for key, value in tree.items()}
    return [_expand_names(entry) for entry in tree] if isinstance(tree, list) else tree


def expand_arguments(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments with all names and short forms expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    expanded: list[str] = []
    rest = list(arguments)
    data: type[Any] | None = None
    chosen: set[str] = set()
    while rest:
        argument = rest.pop(0)
        option, equals, text = argument.partition("=")
        value = text if equals else rest[0] if rest else None
        parts = [part for part in option.lstrip("-").split(".") if part != "init_args"]
        if value is None or not option.startswith("-"):
            expanded.append(argument)
        elif parts in (["c"], ["config"]):
            tree = _configured_data(value)
            data = _find_class("data", tree) or data
            chosen |= {key for key in NAMED if (tree.get("init_args") or tree).get(key) is not None}
            expanded.append(argument)
        elif parts[0] not in CLASSES:
            expanded.append(argument)
        elif parts[1:] in ([], ["class_path"]):
            tree = _value(value)
            cls = _find_class(parts[0], tree)
            data = cls if parts[0] == "data" else data
            if isinstance(tree, dict):  # the class with its arguments
                rest = rest if equals else rest[1:]
                argument = f"{option}={json.dumps(expand_tree({parts[0]: tree})[parts[0]])}"
            expanded.append(argument)
        elif parts[-1] in NAMED:
            if not equals:
                rest.pop(0)
            chosen.add(parts[-1])
            expanded.append(f"{option}={json.dumps(expand(_value(value), parts[-1]))}")
        elif parts[0] == "data" and len(parts) == 2 and _is_short(parts[1], data):
            group, _, key = SHORT_FORMS[parts[1]].partition(".")
            if value.strip() == "null":  # jsonargparse takes the null of a nested option for a word, unless it is in a mapping
                rest = rest if equals else rest[1:]
                expanded.append(f'--data.{group}={{"{key}": null}}')
            else:
                expanded.append(f"--data.{group}.{key}{equals}{text}")
        else:
            named = NAMED.get(parts[1])
            if named is not None and named.default is not None and parts[1] not in chosen:
                # jsonargparse cannot change an argument of a class that only the signature's default names
                expanded.append(f"--{parts[0]}.{parts[1]}={json.dumps(expand(named.default, parts[1]))}")
                chosen.add(parts[1])
            expanded.append(argument)
    return expanded


def _find_class(option: str, value: Any) -> type[Any] | None:
    """The class that ``model`` or ``data`` names; ``None`` if the value names none, or is one for the parser to refuse.

    Raises:
        InputError: If it is a word that is no class.
    """
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return None
    if "." in name:
        try:
            found = pydoc.locate(name)
        except pydoc.ErrorDuringImport:
            return None
        return found if isinstance(found, type) else None
    accepted, ours = CLASSES[option]
    classes = {cls.__name__: cls for cls in _concrete(accepted)}
    if name not in classes:
        known = [cls.__name__ for cls in _concrete(ours)]
        raise InputError(f"unknown {option} {name!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")
    return classes[name]


def _concrete(base: type[Any]) -> list[type[Any]]:
    found = [] if inspect.isabstract(base) else [base]
    for cls in base.__subclasses__():
        found += _concrete(cls)
    return found


def _is_short(word: str, data: type[Any] | None) -> bool:
    """Whether an option of a DataModule is a short form; ``None``: of a class that is not known."""
    cls = data or SignalDataModule
    return word in SHORT_FORMS and issubclass(cls, SignalDataModule) and word not in inspect.signature(cls).parameters


def _configured_data(text: str) -> dict[str, Any]:
    """What a configuration file says about the data; a file that cannot be read is the parser's to refuse."""
    try:
        data = _load(text if text.startswith("{") else Path(text).read_text())["data"]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return {}
    return {"class_path": data} if isinstance(data, str) else dict(data or {})


def _value(text: str) -> Any:
    """The value of an option: YAML, or the content of a YAML file."""
    try:
        return _load(Path(text).read_text() if text.endswith((".yaml", ".yml", ".json")) else text)
    except OSError as error:
        raise InputError(f"cannot read {text!r}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{text!r} is neither a name nor YAML: {error}") from error


def _load(text: str) -> Any:
    return jsonargparse.get_loader("yaml")(text)

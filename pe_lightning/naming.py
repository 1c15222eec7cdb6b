"""Registered names and short forms in YAML files and on the command line.

jsonargparse writes a class-typed value as ``class_path`` and ``init_args``. Here the shorter spellings are turned into
that form before it parses: ``encoder: tri``, ``encoder: {name: gau, sigma: 0.004}``, ``--model.encoder tri``,
``--data.batch points``.

Naming a class starts from its own defaults. jsonargparse alone would carry every argument that the old and the new class
have in common over to the new one, so that gau's sigma of 0.004 became rff's. So a named class is written out with all
its arguments, except ``num_features``, which stays what it was; and a width that was ``auto`` stays ``auto``, whatever the
argument is called. ``width`` is a name for the argument of the width of any encoder.
"""

from __future__ import annotations

import inspect
import json
import os
import pydoc
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonargparse
import yaml
from lightning.pytorch import callbacks as lightning_callbacks

from pe_lightning import encoders, recipes
from pe_lightning.callbacks.registry import callbacks
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.registry import datamodules
from pe_lightning.data.sampling import samplings
from pe_lightning.data.sources.base import sources
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.modules.registry import models
from pe_lightning.registry import Registry
from pe_lightning.verbs import is_option, long_form

__all__ = ["MODE", "SHORT_FORMS", "expand", "expand_arguments", "expand_tree", "install"]

MODE = "pe_lightning"
"""Name of the parser mode whose loader knows the registered names."""

NAMED: dict[str, Registry[Any]] = {"encoder": encoders.registry, "sampling": samplings, "source": sources}
"""Options that hold an instance of a registered class, by their last word."""

DEFAULTS = {"sampling": "grid"}
"""Those of them that have a default in the signatures. jsonargparse cannot change an argument of it, unless it is named."""

WORDS = ("rope", "rope_mixed", "none")
"""What attention tasks take in the place of an encoder."""

AUTOMATIC = {"class_path": "gau", "init_args": {"sigma": "auto"}}
"""Some encoder whose width is chosen."""

KEPT = "num_features"
"""The argument that stays what it was when another class is named."""

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

CLASSES: dict[str, Registry[Any]] = {"model": models, "data": datamodules}
"""Options that name a class, and the registry of their names."""

MOST_VALUES, MOST_LEVELS = 100_000, 100
"""Of a configuration, repeated values included."""

_load = jsonargparse.get_loader("yaml")


def install() -> None:
    """Loads the plugins, and registers the loader as parser mode :data:`MODE`."""
    for registry in NAMED.values():
        registry.load_plugins()
    jsonargparse.set_loader(MODE, lambda text: expand_tree(_load_finite(text)), exceptions=(yaml.YAMLError,))


def expand(value: Any, key: str, before: Any = None) -> Any:
    """The ``class_path`` form of one instance of a registered class; of each, if it is a list.

    Args:
        value: A name, or a mapping with a ``name`` or ``class_path``.
        key: One of :data:`NAMED`.
        before: What was there before it, in the same form, if that is known.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    if isinstance(value, list):
        return [expand(entry, key, before) for entry in value]
    if key == "encoder" and value in WORDS:
        return value  # for other models to refuse
    given: dict[str, Any] = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    name = given.pop("name", None) or given.pop("class_path", None)
    if name is None:
        return value  # arguments of the class named before, or for the parser to refuse
    given.update(given.pop("init_args", None) or {})
    registry = NAMED[key]
    cls: type[Any] = registry.get(name)
    given = registry.arguments(cls, given)
    parameters = registry.parameters(cls)
    if key == "encoder" and _has_automatic_width(before) and cls.width is not None:
        given.setdefault(cls.width.argument, "auto")
    defaults = {
        argument: parameter.default
        for argument, parameter in parameters.items()
        if argument != KEPT and parameter.default is not parameter.empty
    }
    if KEPT in parameters and _arguments(before).get(KEPT) == "auto":  # not every class takes it
        defaults[KEPT] = parameters[KEPT].default
    return {"class_path": _path_of(cls), "init_args": {**defaults, **given}}


def _arguments(value: Any) -> dict[str, Any]:
    """The arguments of an instance of a registered class in the ``class_path`` form."""
    return value.get("init_args") or {} if isinstance(value, Mapping) else {}


def _has_automatic_width(value: Any) -> bool:
    """Whether an encoder in the ``class_path`` form, or the first of a list, is to have its width chosen."""
    first = value[0] if isinstance(value, list) and value else value
    name = first.get("class_path") if isinstance(first, Mapping) else None
    width = encoders.registry.get(name).width if name else None
    return width is not None and _arguments(first).get(width.argument) == "auto"


def expand_tree(tree: Any) -> Any:
    """A configuration with all names and short forms in it expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    found = _expand_names(tree)
    if isinstance(found, dict):
        classes = {option: _find_class(option, found.get(option)) for option in CLASSES}
        for option in CLASSES.keys() & found.keys():
            found[option] = _with_class_path(found[option], classes[option])
        if isinstance(trainer := found.get("trainer"), dict) and "callbacks" in trainer:
            trainer["callbacks"] = _expand_callbacks(trainer["callbacks"])
        data = found.get("data")
        arguments = data.get("init_args", data) if isinstance(data, dict) else {}
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
    data: type[Any] | None = None
    named: set[str] = set()
    encoder: Any = None  # of the model, as far as it is known
    automatic = False  # whether its width was, which an encoder without width does not say
    for word in _join_values(arguments):
        option, equals, text = word.partition("=")
        head, *path = option.lstrip("-").replace(".init_args", "").split(".")
        if equals and head in ("c", "config"):
            text = recipes.find(text)
            word, tree = f"{option}={text}", _read_config(text)
            part = _section(tree, "data")
            data = _find_class("data", part) or data
            named |= {key for key in NAMED if (part.get("init_args") or part).get(key) is not None}
            encoder = expand((_section(tree, "model").get("init_args") or {}).get("encoder"), "encoder") or encoder
        elif equals and re.fullmatch(r"--trainer\.callbacks\+?", option):
            found = _expand_callbacks(_read(text))
            word = f"{option}={found if isinstance(found, str) else json.dumps(found)}"
        elif not equals or head not in CLASSES:
            pass
        elif path in ([], ["class_path"]):
            tree = _read(text)
            cls = _find_class(head, tree)
            data = cls if head == "data" else data
            if isinstance(tree, dict):  # the class with its arguments
                word = f"{option}={json.dumps(expand_tree({head: tree})[head])}"
            elif cls is not None:
                word = f"{option}={_path_of(cls)}"
        elif path[-1] in NAMED:
            named.add(path[-1])
            found = expand(_read(text), path[-1], AUTOMATIC if automatic else encoder)
            word = f"{option}={found if isinstance(found, str) else json.dumps(found)}"
            encoder = found if path[-1] == "encoder" else encoder
        elif head == "data" and len(path) == 1 and _is_short(path[0], data):
            group, _, key = SHORT_FORMS[path[0]].partition(".")
            # jsonargparse takes the null of a nested option for a word, unless it is in a mapping
            word = f'--data.{group}={{"{key}": null}}' if text.strip() == "null" else f"--data.{group}.{key}={text}"
        elif path[0] in DEFAULTS.keys() - named:
            named.add(path[0])
            expanded.append(f"--{head}.{path[0]}={json.dumps(expand(DEFAULTS[path[0]], path[0]))}")
        elif path[:-1] == ["encoder"] and isinstance(encoder, Mapping):
            name = encoder["class_path"]
            found = encoders.registry.arguments(encoders.registry.get(name), {path[-1]: _read(text)})
            encoder = {"class_path": name, "init_args": {**_arguments(encoder), **found}}
            if path[-1] not in found:  # ``width``, which another argument is or none
                word = "".join(f"{option.removesuffix('width')}{key}={text}" for key in found)
        automatic = automatic or _has_automatic_width(encoder)
        expanded += [word] if word else []
    return expanded


def _join_values(arguments: Sequence[str]) -> list[str]:
    """``--option value`` as ``--option=value``, for the options that name a class or belong to one."""
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = long_form(rest.pop(0))
        named = re.fullmatch(r"-c|--(config|model|data|trainer\.callbacks)(\.[\w.]+)?\+?", word)
        if rest and named and not is_option(rest[0]):
            word = f"{word}={rest.pop(0)}"
        words.append(word)
    return words


def _find_class(option: str, value: Any) -> type[Any] | None:
    """The class that ``model`` or ``data`` names; ``None`` if it names none, or the parser is to refuse it.

    Raises:
        InputError: If the name is not registered.
    """
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return None
    if "." not in name:
        return CLASSES[option].get(name)
    try:
        found = pydoc.locate(name)
    except pydoc.ErrorDuringImport:
        return None
    return found if isinstance(found, type) else None


def _with_class_path(value: Any, cls: type[Any] | None) -> Any:
    """``value`` with the import path of the class in the place of its registered name."""
    if cls is None:
        return value
    return _path_of(cls) if isinstance(value, str) else {**value, "class_path": _path_of(cls)}


def _path_of(cls: type[Any]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _expand_callbacks(value: Any) -> Any:
    """Import paths in the place of the registered names of callbacks; Lightning's own are left to the parser.

    Raises:
        InputError: If a name is neither registered nor a callback of Lightning.
    """
    if isinstance(value, list):
        return [_expand_callbacks(entry) for entry in value]
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str) or "." in name or name in lightning_callbacks.__all__:
        return value
    if name not in callbacks:
        near = did_you_mean(name, [*lightning_callbacks.__all__, *callbacks]) or "."
        raise InputError(f"unknown callback {name!r}{near} Registered: {', '.join(callbacks)}, and Lightning's")
    return _with_class_path(value, callbacks.get(name))


def _is_short(word: str, data: type[Any] | None) -> bool:
    """Whether an option of a DataModule is a short form; ``None``: of a class that is not known."""
    cls = data or SignalDataModule
    return word in SHORT_FORMS and issubclass(cls, SignalDataModule) and word not in inspect.signature(cls).parameters


def _read_config(config: str) -> dict[str, Any]:
    """What a configuration file says; one of another form is the parser's to refuse."""
    try:
        return dict(_load_finite(config if config.startswith("{") else _text_of(config)))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        return {}


def _section(tree: Mapping[str, Any], option: str) -> dict[str, Any]:
    """What a configuration says about the model or the data."""
    section = tree.get(option)
    return {"class_path": section} if isinstance(section, str) else dict(section or {})


def _read(text: str) -> Any:
    """The value of an option: YAML, or the content of a YAML file."""
    try:
        return _load_finite(_text_of(text) if text.endswith((".yaml", ".yml", ".json")) else text)
    except yaml.YAMLError as error:
        raise InputError(f"{text!r} is neither a name nor YAML: {error}") from error


def _text_of(path: str) -> str:
    """The content of a configuration file."""
    try:
        if not os.path.isfile(path):
            raise InputError(f"cannot read {path!r}: there is no such file")
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or 'it is no text'}") from error


def _load_finite(text: str) -> Any:
    """YAML, refused if it refers to itself, or repeats itself without end."""
    refusal = InputError(
        f"a configuration has more than {MOST_VALUES} values or {MOST_LEVELS} levels, or refers to itself (YAML's & and *)"
    )
    try:
        tree = _load(text)
    except RecursionError as error:
        raise refusal from error
    rest, count = [(tree, 0)], 0
    while rest:
        (value, level), count = rest.pop(), count + 1
        if level > MOST_LEVELS or count > MOST_VALUES:
            raise refusal
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest += [(each, level + 1) for each in inner]
    return tree

"""Registered names and short forms in configurations, written out for jsonargparse.

jsonargparse describes an instance by ``class_path`` and ``init_args``. The functions here replace the shorter spellings by
that form before it parses: ``encoder: tri``, ``encoder: {name: gau, sigma: 0.004}``, ``data.batch: points``. The loader of
the parser mode :data:`MODE` calls them for configuration files, :mod:`pe_lightning.command_line.arguments` for the
command line.

A named class starts from its own defaults. jsonargparse alone would carry over every argument that the previous class and
the new one have in common: the sigma of gau would become that of rff. A named class is therefore written out with all its
arguments except ``num_features``, which keeps its value. A width that was ``auto`` stays ``auto``, whatever the argument is
called. ``width`` is an alias for the argument that holds the width of an encoder.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonargparse
import yaml
from lightning.pytorch import callbacks as lightning_callbacks

from pe_lightning import encoders
from pe_lightning.callbacks.base import callbacks
from pe_lightning.config_files import load_limited
from pe_lightning.data.datamodule import SignalDataModule, datamodules
from pe_lightning.data.sampling import samplings
from pe_lightning.data.sources.base import sources
from pe_lightning.errors import InputError, did_you_mean, import_reason
from pe_lightning.modules.base import models
from pe_lightning.registry import Registry

__all__ = [
    "AUTOMATIC_WIDTH",
    "DEFAULT_NAMES",
    "MODE",
    "NAMED_CLASSES",
    "NAMED_INSTANCES",
    "SHORT_FORMS",
    "expand",
    "expand_callbacks",
    "expand_tree",
    "find_class",
    "has_automatic_width",
    "install",
    "is_short_form",
    "path_of",
    "read_config",
    "read_value",
]

MODE = "pe_lightning"
"""Parser mode whose loader expands names and short forms."""

NAMED_INSTANCES: dict[str, Registry[Any]] = {"encoder": encoders.registry, "sampling": samplings, "source": sources}
"""Settings that hold an instance of a registered class, by the last part of their key."""

DEFAULT_NAMES = {"sampling": "grid"}
"""Registered names of instances that are defaults in signatures. jsonargparse changes their arguments only once named."""

ENCODER_WORDS = ("rope", "rope_mixed", "none")
"""Values that attention tasks take in place of an encoder."""

AUTOMATIC_WIDTH = {"class_path": "gau", "init_args": {"sigma": "auto"}}
"""An encoder with a width chosen from the data."""

PRESERVED_ARGUMENT = "num_features"
"""The argument that keeps its value when another class is named."""

SHORT_FORMS = {
    "batch": "batching.kind",
    "batch_size": "batching.size",
    "shuffle": "batching.shuffle",
    "steps_per_epoch": "batching.steps_per_epoch",
    "in_memory": "storage.in_memory",
    "cache": "storage.cache",
    "cache_dir": "storage.cache_dir",
}
"""Short forms of settings of ``data``, for DataModules that have no argument of that name themselves."""

NAMED_CLASSES: dict[str, Registry[Any]] = {"model": models, "data": datamodules}
"""Sections that name a class, with the registry of the names."""

IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""The import path of a class of any module."""

_load = jsonargparse.get_loader("yaml")


def install() -> None:
    """Loads the plugins of all registries and registers the loader of the parser mode :data:`MODE`."""
    for registry in NAMED_INSTANCES.values():
        registry.load_plugins()
    jsonargparse.set_loader(MODE, lambda text: expand_tree(_load_limited(text)), exceptions=(yaml.YAMLError,))


def expand(value: Any, key: str, before: Any = None) -> Any:
    """The ``class_path`` form of an instance of a registered class, or of each instance in a list.

    Args:
        value: A name, or a mapping with a ``name`` or ``class_path``.
        key: One of :data:`NAMED_INSTANCES`.
        before: The previous value of the setting in the ``class_path`` form, if it is known.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    if isinstance(value, list):
        return [expand(entry, key, before) for entry in value]
    if key == "encoder" and value in ENCODER_WORDS:
        return value  # other models than attention tasks refuse it
    given: dict[str, Any] = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    name = given.pop("name", None) or given.pop("class_path", None)
    if name is None:
        return value  # arguments of the class named before; the parser refuses anything else
    given.update(given.pop("init_args", None) or {})
    registry = NAMED_INSTANCES[key]
    cls: type[Any] = registry.get(name)
    given = registry.arguments(cls, given)
    parameters = registry.parameters(cls)
    if key == "encoder" and has_automatic_width(before) and cls.width is not None:
        given.setdefault(cls.width.argument, "auto")
    defaults = {
        argument: parameter.default
        for argument, parameter in parameters.items()
        if argument != PRESERVED_ARGUMENT and parameter.default is not parameter.empty
    }
    # a number of features can be kept from before, "auto" cannot: not every class takes it
    if PRESERVED_ARGUMENT in parameters and _arguments(before).get(PRESERVED_ARGUMENT) == "auto":
        defaults[PRESERVED_ARGUMENT] = parameters[PRESERVED_ARGUMENT].default
    return {"class_path": path_of(cls), "init_args": {**defaults, **given}}


def _arguments(value: Any) -> dict[str, Any]:
    """The arguments in the ``class_path`` form of an instance."""
    return value.get("init_args") or {} if isinstance(value, Mapping) else {}


def has_automatic_width(value: Any) -> bool:
    """Whether the width of an encoder in the ``class_path`` form, or of the first in a list, is ``auto``."""
    first = value[0] if isinstance(value, list) and value else value
    name = first.get("class_path") if isinstance(first, Mapping) else None
    width = encoders.registry.get(name).width if name else None
    return width is not None and _arguments(first).get(width.argument) == "auto"


def expand_tree(tree: Any) -> Any:
    """A configuration with all names and short forms in it expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    expanded = _expand_names(tree)
    if isinstance(expanded, dict):
        classes = {section: find_class(section, expanded.get(section)) for section in NAMED_CLASSES}
        for section in NAMED_CLASSES.keys() & expanded.keys():
            expanded[section] = _with_class_path(expanded[section], classes[section])
        if isinstance(trainer := expanded.get("trainer"), dict) and "callbacks" in trainer:
            trainer["callbacks"] = expand_callbacks(trainer["callbacks"])
        data = expanded.get("data")
        arguments = data.get("init_args", data) if isinstance(data, dict) else {}
        for word in [word for word in arguments if is_short_form(word, classes["data"])]:
            group, _, key = SHORT_FORMS[word].partition(".")
            arguments[group] = {**(arguments.get(group) or {}), key: arguments.pop(word)}
    return expanded


def _expand_names(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: expand(value, key) if key in NAMED_INSTANCES else _expand_names(value) for key, value in tree.items()}
    return [_expand_names(entry) for entry in tree] if isinstance(tree, list) else tree


def find_class(section: str, value: Any) -> type[Any] | None:
    """The class that ``model`` or ``data`` names; ``None`` if the value names none, or the parser has to refuse it.

    Raises:
        InputError: If the name is not registered, or is an import path whose module cannot be imported.
    """
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return None
    if "." not in name:
        return NAMED_CLASSES[section].get(name)
    try:
        found = pydoc.locate(name)
        if found is None and IMPORT_PATH.fullmatch(name) and not Path(name).is_file():
            importlib.import_module(name.rpartition(".")[0])
    except ImportError as error:
        raise InputError(f"unknown {section} {name!r}: {import_reason(error)}") from error
    except pydoc.ErrorDuringImport:
        return None
    return found if isinstance(found, type) else None


def expand_callbacks(value: Any) -> Any:
    """Import paths in place of the registered names of callbacks; those of Lightning are left to the parser.

    Raises:
        InputError: If a name is neither registered nor a callback of Lightning.
    """
    if isinstance(value, list):
        return [expand_callbacks(entry) for entry in value]
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str) or "." in name or name in lightning_callbacks.__all__:
        return value
    if name not in callbacks:
        near = did_you_mean(name, [*lightning_callbacks.__all__, *callbacks]) or "."
        raise InputError(f"unknown callback {name!r}{near} Registered: {', '.join(callbacks)}, and Lightning's")
    return _with_class_path(value, callbacks.get(name))


def _with_class_path(value: Any, cls: type[Any] | None) -> Any:
    """``value`` with the import path of the class in place of its registered name."""
    if cls is None:
        return value
    return path_of(cls) if isinstance(value, str) else {**value, "class_path": path_of(cls)}


def path_of(cls: type[Any]) -> str:
    """The import path of a class."""
    return f"{cls.__module__}.{cls.__qualname__}"


def is_short_form(word: str, data: type[Any] | None) -> bool:
    """Whether a setting of ``data`` is a short form. ``None`` stands for a DataModule whose class is not known."""
    cls = data or SignalDataModule
    return word in SHORT_FORMS and issubclass(cls, SignalDataModule) and word not in inspect.signature(cls).parameters


def read_config(config: str) -> dict[str, Any]:
    """The content of a configuration, a file or JSON; empty if it is not a mapping, which the parser refuses.

    Raises:
        InputError: If the file cannot be read, or exceeds the limits of a configuration.
    """
    try:
        return dict(_load_limited(config if config.startswith("{") else _text_of(config)))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        return {}


def read_value(text: str) -> Any:
    """The value of an option: YAML, or the content of a YAML file.

    Raises:
        InputError: If the text is not YAML, or the file cannot be read.
    """
    try:
        return _load_limited(_text_of(text) if text.endswith((".yaml", ".yml", ".json")) else text)
    except yaml.YAMLError as error:
        raise InputError(f"{text!r} is neither a name nor YAML: {error}") from error


def _text_of(path: str) -> str:
    """The content of a configuration file."""
    try:
        if not os.path.isfile(path):
            raise InputError(f"cannot read {path!r}: there is no such file")
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path!r}: {getattr(error, 'strerror', None) or 'it is not text'}") from error


def _load_limited(text: str) -> Any:
    """The content of a YAML text of limited size, as the parser reads it."""
    return load_limited(text, _load)

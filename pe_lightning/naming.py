"""Registered names in YAML files and on the command line.

jsonargparse builds the options of a class from its signature and writes a class-typed value as ``class_path`` and
``init_args``. Here the short forms are turned into that form before it parses: ``encoder: tri``,
``encoder: {name: gau, sigma: 0.004}`` and ``--model.encoder tri``.

Naming a class starts from its own defaults. jsonargparse alone would carry every argument that the old and the new class
have in common over to the new one, so that gau's sigma of 0.004 became rff's. So a named encoder is written out with all
its arguments, except ``num_features``, which stays what it was.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonargparse
import yaml

from pe_lightning import encoders
from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.sampling import samplings
from pe_lightning.errors import InputError, did_you_mean
from pe_lightning.modules import CoordinateModule
from pe_lightning.registry import Registry

__all__ = ["MODE", "expand", "expand_arguments", "expand_tree", "install"]

MODE = "pe_lightning"
"""Name of the parser mode whose loader knows the registered names."""

NAMED: dict[str, tuple[Registry[Any], frozenset[str]]] = {
    "encoder": (encoders.registry, frozenset({"num_features"})),
    "sampling": (samplings, frozenset()),
}
"""Options that hold a registered class: the registry, and the arguments that survive naming another class."""

CLASSES: dict[str, type] = {"model": CoordinateModule, "data": SignalDataModule}

OPTIONS = {"--model.encoder": "encoder", "--model.init_args.encoder": "encoder"}
SAMPLING_ARGUMENT = ("--data.sampling.", "--data.init_args.sampling.")
DEFAULT_SAMPLING = "grid"
OPTIONS |= {"--data.sampling": "sampling", "--data.init_args.sampling": "sampling"}


def expand(value: Any, key: str) -> Any:
    """The ``class_path`` form of one encoder or sampling; of each, if it is a list.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    registry, kept = NAMED[key]
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
    cls: type[Any] = registry.get(name)
    registry.check_arguments(cls, given)
    defaults = {
        argument: parameter.default
        for argument, parameter in registry.parameters(cls).items()
        if argument not in kept and parameter.default is not inspect.Parameter.empty
    }
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": {**defaults, **given}}


def check_class(option: str, value: Any) -> None:
    """Refuses a model or data class that does not exist, with the nearest names.

    Args:
        option: ``"model"`` or ``"data"``.
        value: A class name or path, or a mapping with a ``class_path``.
    """
    name = value.get("class_path") if isinstance(value, Mapping) else value
    if not isinstance(name, str) or "." in name or name.startswith("{"):
        return  # the parser reads full paths, files and JSON
    known = [cls.__name__ for cls in _concrete(CLASSES[option])]
    if name not in known:
        raise InputError(f"unknown {option} {name!r}{did_you_mean(name, known) or '.'} Known: {', '.join(known)}")


def _concrete(base: type[Any]) -> list[type[Any]]:
    found = [] if inspect.isabstract(base) else [base]
    for cls in base.__subclasses__():
        found += _concrete(cls)
    return found


def expand_tree(tree: Any) -> Any:
    """A configuration with every encoder and sampling in it expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    if isinstance(tree, dict):
        for option in CLASSES:
            check_class(option, tree.get(option))
        return {key: expand(value, key) if key in NAMED else expand_tree(value) for key, value in tree.items()}
    return [expand_tree(entry) for entry in tree] if isinstance(tree, list) else tree


def expand_arguments(arguments: Sequence[str]) -> list[str]:
    """Command-line arguments with the values of ``--model.encoder`` and ``--data.sampling`` expanded.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    expanded: list[str] = []
    rest = list(arguments)
    sampling_named = False
    while rest:
        argument = rest.pop(0)
        option, equals, text = argument.partition("=")
        follows = text if equals else rest[0] if rest else None
        if option[2:] in CLASSES and follows is not None:
            check_class(option[2:], follows)
        if option in ("-c", "--config") and follows is not None:
            sampling_named |= _names_sampling(follows)
        if option.startswith(SAMPLING_ARGUMENT) and not sampling_named:
            # jsonargparse cannot change an argument of a class that only the signature's default names
            expanded.append(f"--data.sampling={json.dumps(expand(DEFAULT_SAMPLING, 'sampling'))}")
            sampling_named = True
        if option in OPTIONS and follows is not None:
            if not equals:
                rest.pop(0)
            sampling_named |= OPTIONS[option] == "sampling"
            expanded.append(f"{option}={json.dumps(expand(_parse(follows), OPTIONS[option]))}")
        else:
            expanded.append(argument)
    return expanded


def _names_sampling(path: str) -> bool:
    """Whether a configuration file says which sampling it wants; a file that cannot be read is the parser's to refuse."""
    try:
        tree = jsonargparse.get_loader("yaml")(Path(path).read_text() if not path.startswith("{") else path)
        return (tree["data"].get("init_args") or {}).get("sampling") is not None
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        return False


def _parse(text: str) -> Any:
    """The value of an option: YAML, or the content of a YAML file."""
    try:
        if text.endswith((".yaml", ".yml", ".json")):
            text = Path(text).read_text()
        return jsonargparse.get_loader("yaml")(text)
    except OSError as error:
        raise InputError(f"cannot read {text!r}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{text!r} is neither a name nor YAML: {error}") from error


def _load(text: str) -> Any:
    return expand_tree(jsonargparse.get_loader("yaml")(text))


def install() -> None:
    """Registers the loader as parser mode :data:`MODE`."""
    jsonargparse.set_loader(MODE, _load, exceptions=(yaml.YAMLError,))

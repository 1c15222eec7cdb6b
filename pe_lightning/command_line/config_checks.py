"""Configurations: limits of their size, and what they may name."""

from __future__ import annotations

import inspect
import os
import pydoc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pe_lightning.errors import InputError, paragraph

__all__ = ["check_names", "load_limited", "read_config"]

MAX_VALUES = 100_000
"""Most values of a configuration, those that aliases repeat included."""
MAX_DEPTH = 100
"""Most levels of nested lists and mappings."""


def load_limited(text: str, load: Callable[[str], Any] = yaml.safe_load) -> Any:
    """The content of a YAML text of limited size.

    Args:
        text: The text.
        load: Parses it.

    Raises:
        InputError: If it is too large or too deep, as aliases that refer to themselves make it, or holds an integer of too
            many digits.
        yaml.YAMLError: If it is not YAML.
    """
    refusal = InputError(
        f"a configuration has more than {MAX_VALUES} values or {MAX_DEPTH} levels, or refers to itself (YAML's & and *)"
    )
    try:
        tree = load(text)
    except RecursionError as error:
        raise refusal from error
    except InputError:
        raise
    except ValueError as error:  # dates and integers that Python does not take
        raise InputError(f"a configuration holds a value that cannot be read: {paragraph(str(error), 200)}") from error
    rest, count = [(tree, 0)], 0
    while rest:
        (value, depth), count = rest.pop(), count + 1
        if depth > MAX_DEPTH or count > MAX_VALUES:
            raise refusal
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        rest += [(each, depth + 1) for each in inner]
    return tree


def read_config(path: Path) -> dict[str, Any]:
    """The content of a configuration file.

    Raises:
        InputError: If the file cannot be read, is not text or not YAML, or does not hold a mapping.
    """
    try:
        content = load_limited(path.read_text(encoding="utf-8"))
    except InputError as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"cannot read {str(path)!r}: it is not UTF-8 text") from error
    except yaml.YAMLError as error:
        raise InputError(f"cannot read {str(path)!r}: it is not YAML ({paragraph(str(error), 200)})") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"cannot read {str(path)!r}: it holds no settings by name")
    return content


def check_names(tree: Any, path: str = "") -> None:
    """Refuses a configuration that names anything but classes.

    The parser imports what is named in place of a class, an optimiser or any other callable, and calls functions. Default
    values of a class that is named may be functions.

    Args:
        tree: The parsed configuration, where a name has become what it names.
        path: Dotted key of ``tree``, for the message.

    Raises:
        InputError: If a ``class_path`` is not a class, or another value is a function.
    """
    if callable(tree) and not isinstance(tree, (type, os.PathLike)):  # the parser's paths are callable
        name = f"{getattr(tree, '__module__', None)}.{getattr(tree, '__qualname__', type(tree).__qualname__)}"
        raise InputError(
            f"{path or 'the configuration'}: {name!r} is not a class, and a configuration names classes only. Name a class, "
            "such as a callback of your own with this method, or set it in Python"
        )
    if isinstance(tree, (list, tuple)):
        for entry in tree:
            check_names(entry, path)
    if not isinstance(tree, Mapping):
        return
    path_of_class: Any = tree.get("class_path")
    cls: Any = pydoc.locate(path_of_class) if isinstance(path_of_class, str) else None
    if isinstance(path_of_class, str) and not isinstance(cls, type):
        raise InputError(f"class_path: {path_of_class!r} is not a class; a configuration names classes only")
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if key == "init_args" and isinstance(value, Mapping) and isinstance(cls, type):
            for argument, given in value.items():
                if not _is_default(cls, argument, given):
                    check_names(given, f"{path}.{argument}" if path else str(argument))
        else:
            check_names(value, inner)


def _is_default(cls: type, argument: str, value: Any) -> bool:
    """Whether a value is the default of an argument of a class or one of its bases."""
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        if inspect.isfunction(constructor):
            parameter = inspect.signature(constructor).parameters.get(argument)
            if parameter is not None and parameter.default is value:
                return True
    return False

"""What a configuration may name."""

from __future__ import annotations

import inspect
import os
import pydoc
import typing
from collections.abc import Mapping
from typing import Any

from pe_lightning.errors import InputError

__all__ = ["check_names"]


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
    if isinstance(cls, type):
        _refuse_untyped_classes(cls, tree.get("init_args") or {}, path)
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if key == "init_args" and isinstance(value, Mapping) and isinstance(cls, type):
            for argument, given in value.items():
                if not _is_default(cls, argument, given):
                    check_names(given, f"{path}.{argument}" if path else str(argument))
        else:
            check_names(value, inner)


def _refuse_untyped_classes(cls: type, arguments: Mapping[str, Any], path: str) -> None:
    """Refuses a ``class_path`` where an argument may be anything: a class stands where its type is declared."""
    for name, value in arguments.items():
        hint = _hint_of(cls, name)
        anything = {Any, object} & {hint, *typing.get_args(hint)}
        if anything and isinstance(value, Mapping) and "class_path" in value:
            raise InputError(
                f"{path or cls.__name__}: {cls.__name__} does not declare which class its argument {name!r} takes, so a "
                f"configuration cannot name {value['class_path']!r} there; make the object in Python"
            )


def _hint_of(cls: type, argument: str) -> Any:
    """The declared type of an argument of a class or one of its bases; ``object`` if there is none."""
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        if inspect.isfunction(constructor) and argument in inspect.signature(constructor).parameters:
            return typing.get_type_hints(constructor).get(argument, object)
    return object


def _is_default(cls: type, argument: str, value: Any) -> bool:
    """Whether a value is the default of an argument of a class or one of its bases."""
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        if inspect.isfunction(constructor):
            parameter = inspect.signature(constructor).parameters.get(argument)
            if parameter is not None and parameter.default is value:
                return True
    return False

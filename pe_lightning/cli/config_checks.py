"""What a configuration may name."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from typing import Any

from pe_lightning.errors import InputError


def check_names(tree: Any, path: str = "") -> None:
    """Refuses a configuration that names anything but classes.

    The parser imports what is named in place of a class, an optimiser or any other callable, and calls functions. Default
    values of a class that is named may be functions. Descriptions are resolved later, by the registries.

    Args:
        tree: The parsed configuration, where a name has become what it names.
        path: Dotted key of ``tree``, for the message.
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
    module, _, name = str(tree.get("class_path", "")).rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    if cls is not None and not isinstance(cls, type):
        raise InputError(f"class_path: {tree['class_path']!r} is not a class; a configuration names classes only")
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if key == "init_args" and isinstance(value, Mapping) and cls is not None:
            defaults = _defaults(cls)
            for argument, given in value.items():
                if defaults.get(argument) is not given:
                    check_names(given, f"{path}.{argument}" if path else str(argument))
        else:
            check_names(value, inner)


def _defaults(cls: type) -> dict[str, Any]:
    """Default values of the constructor's arguments of a class and its bases."""
    constructors = [vars(base)["__init__"] for base in reversed(cls.__mro__) if "__init__" in vars(base)]
    signatures = [inspect.signature(made) for made in constructors if inspect.isfunction(made)]
    return {name: value.default for signature in signatures for name, value in signature.parameters.items()}

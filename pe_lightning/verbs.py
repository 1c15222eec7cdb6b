"""A typed function as a verb of the command line."""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from docstring_parser import parse
from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter
from rich.console import Console

from pe_lightning.arguments import read
from pe_lightning.errors import InputError, explain

__all__ = ["call", "console"]


class _HelpFormatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Leaves the lines of the docstring as they are."""


def call(verb: str, function: Callable[..., int | None], arguments: Sequence[str]) -> int:
    """Parses the arguments of a verb by the signature of its function, and calls it.

    - A positional-only parameter is a positional argument, any other is an option.
    - A list takes any number of words; as an option it can be given several times.
    - A ``bool`` is a flag without a value.
    - ``*options: str`` receives the options that the signature does not name, each with its value.

    Help texts come from the docstring.

    Args:
        verb: What follows ``pe-lightning``.
        function: Returns the exit status, or ``None`` for 0.
        arguments: What follows the verb.

    Raises:
        InputError: If the arguments do not fit the signature.
    """
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function)
    text = (inspect.getdoc(function) or "").replace("``", "")
    helps = {entry.arg_name.lstrip("*"): entry.description for entry in parse(text).params}
    further = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    parser = ArgumentParser(
        prog=f"pe-lightning {verb}",
        description=re.split(r"\n\n(?:Args|Returns|Raises):\n", text)[0],
        epilog=None if further is None else f"further options: {helps.get(further)}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
    )
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    several, flags = set(), {"h", "help"}
    for parameter in parameters:
        name, hint, required = parameter.name, hints[parameter.name], parameter.default is parameter.empty
        lists = [kind for kind in (hint, *typing.get_args(hint)) if typing.get_origin(kind) is list]
        settings: dict[str, Any] = {"type": typing.get_args(lists[0])[0] if lists else hint, "help": helps.get(name)}
        if name == further:
            continue
        if not required:
            settings["default"] = parameter.default
        if name in positional:
            settings["nargs"] = ("+" if required else "*") if lists else None
        elif hint is bool:
            settings = {"action": "store_true", "help": helps.get(name)}
            flags.add(name)
        else:
            settings["required"] = required
            if lists:
                settings |= {"nargs": "+", "action": "extend"}
                several.add(name)
        parser.add_argument(name if name in positional else f"--{name}", **settings)
    names = hints.keys() | flags
    words, options = read(arguments, flags, several)
    own = [option for option in options if not further or option.key in names]
    others = [word for option in options if option not in own for word in option.words]
    try:
        given: dict[str, Any] = parser.parse_args([*words, *(word for option in own for word in option.words)]).as_dict()
    except ArgumentError as error:
        raise InputError(f"{verb}: {explain(str(error), [f'--{name}' for name in names])}") from error
    return function(*[given.pop(name) for name in positional], *others, **given) or 0


def console(width: int = 160) -> Console:
    """Where a verb prints its tables: as wide as the terminal, or ``width``, as a pipe has none of its own."""
    return Console() if Console().is_terminal else Console(width=width)

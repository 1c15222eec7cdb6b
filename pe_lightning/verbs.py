"""A typed function as a verb of the command line."""

from __future__ import annotations

import argparse
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from docstring_parser import parse
from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter

from pe_lightning.errors import InputError
from pe_lightning.explain import explain

__all__ = ["call"]


class _HelpFormatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Leaves the lines of the docstring as they are."""


def call(verb: str, function: Callable[..., int | None], arguments: Sequence[str]) -> int:
    """Parses the arguments of a verb by the signature of its function, and calls it.

    - A positional-only parameter is a positional argument, any other is an option.
    - A list takes any number of words; as an option it can be given several times.
    - A ``bool`` that is false by default is a flag without a value.
    - ``*options: str`` receives the options that the signature does not name, each with its value.

    Help texts come from the docstring.

    Args:
        verb: What follows ``pe-lightning``.
        function: Returns the exit status, or ``None`` for 0.
        arguments: What follows the verb.

    Raises:
        InputError: If the arguments do not fit the signature.
    """
    parameters = list(inspect.signature(function).parameters.values())
    hints = typing.get_type_hints(function)
    text = parse(inspect.getdoc(function) or "")
    helps = {entry.arg_name.lstrip("*"): (entry.description or "").replace("``", "") for entry in text.params}
    further = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    parser = ArgumentParser(
        prog=f"pe-lightning {verb}",
        description="\n\n".join(filter(None, [text.short_description, text.long_description])),
        epilog=None if further is None else f"further options: {helps.get(further)}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
    )
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    several, flags = set(), {"help"}
    for parameter in parameters:
        name, hint, element = parameter.name, hints[parameter.name], _element_type(hints[parameter.name])
        required = parameter.default is parameter.empty
        settings: dict[str, Any] = {"type": element or hint, "help": helps.get(name)}
        if name == further:
            continue
        if not required:
            settings["default"] = parameter.default
        if name in positional:
            settings["nargs"] = ("+" if required else "*") if element else (None if required else "?")
        elif element:
            settings |= {"nargs": "+", "action": "extend", "required": required}
            several.add(name)
        elif hint is bool and parameter.default is False:
            settings = {"action": "store_true", "help": helps.get(name)}
            flags.add(name)
        else:
            settings["required"] = required
        parser.add_argument(name if name in positional else f"--{name}", **settings)
    names = {p.name for p in parameters} | flags
    words, own, others = _split(arguments, None if further is None else names, several, flags)
    try:
        given: dict[str, Any] = parser.parse_args([*words, *own]).as_dict()
    except ArgumentError as error:
        raise InputError(f"{verb}: {explain(str(error))}") from error
    return function(*[given.pop(name) for name in positional], *others, **given) or 0


def _element_type(hint: Any) -> Any:
    """The type of the elements of a list, which may be optional; ``None`` for any other type."""
    lists = [candidate for candidate in (hint, *typing.get_args(hint)) if typing.get_origin(candidate) is list]
    return typing.get_args(lists[0])[0] if lists else None


def _split(
    arguments: Sequence[str], known: set[str] | None, several: set[str], flags: set[str]
) -> tuple[list[str], list[str], list[str]]:
    """Positional words, options of the verb and other options, so that they can be given in any order.

    Args:
        arguments: The command line.
        known: Names of the verb's own options; ``None``: all are its own.
        several: Those that take any number of words.
        flags: Those that take none.
    """
    words: list[str] = []
    own: list[str] = []
    others: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name = argument.lstrip("-").partition("=")[0]
        if not _is_option(argument):
            words.append(argument)
            continue
        target = own if known is None or name in known or argument == "-h" else others
        target.append(argument)
        takes_value = "=" not in argument and name not in flags
        while takes_value and rest and not _is_option(rest[0]):
            target.append(rest.pop(0))
            takes_value = name in several
    return words, own, others


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and not argument[1:2].isdigit()

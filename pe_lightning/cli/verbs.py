"""Verbs of the command line that are typed functions."""

from __future__ import annotations

import argparse
import inspect
import re
import typing
from collections.abc import Callable, Sequence
from typing import Any

from docstring_parser import parse
from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter

from pe_lightning.cli.arguments import accept_any_names, read
from pe_lightning.cli.messages import explain
from pe_lightning.errors import InputError


class _HelpFormatter(DefaultHelpFormatter, argparse.RawDescriptionHelpFormatter):
    pass


def call(verb: str, function: Callable[..., int | None], arguments: Sequence[str]) -> int:
    """Calls a function with the arguments of its verb, which are parsed by its signature.

    - A positional-only parameter is a positional argument; every other parameter is an option.
    - A list takes any number of words; a list option can be repeated.
    - A ``bool`` is a flag without a value.
    - ``*options: str`` receives all options that are not in the signature, each with its value.

    The docstring provides the help texts. The function returns the exit status, or ``None`` for 0.
    """
    accept_any_names()
    parameters = inspect.signature(function).parameters.values()
    hints = typing.get_type_hints(function)
    text = (inspect.getdoc(function) or "").replace("``", "")
    helps = {entry.arg_name.lstrip("*"): entry.description for entry in parse(text).params}
    others_name = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    parser = ArgumentParser(
        prog=f"pe-lightning {verb}",
        description=re.split(r"\n\n(?:Args|Returns|Raises):\n", text)[0],
        epilog=None if others_name is None else f"further options: {helps.get(others_name)}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
    )
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    multiple, flags = set(), {"h", "help"}
    for parameter in parameters:
        name, hint, required = parameter.name, hints[parameter.name], parameter.default is parameter.empty
        lists = [kind for kind in (hint, *typing.get_args(hint)) if typing.get_origin(kind) is list]
        settings: dict[str, Any] = {"type": typing.get_args(lists[0])[0] if lists else hint, "help": helps.get(name)}
        if name == others_name:
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
                multiple.add(name)
        parser.add_argument(name if name in positional else f"--{name}", **settings)
    names = hints.keys() | flags
    words, options = read(arguments, flags, multiple)
    own = [option for option in options if not others_name or option.key in names]
    others = [word for option in options if option not in own for word in option.words]
    # with =, so that -9999,-999 and -20,40,30,60 are values
    spelt = [word for option in own for word in [f"{option.name}={value}" for value in option.values] or option.words]
    try:
        given: dict[str, Any] = parser.parse_args([*words, *spelt]).as_dict()
    except ArgumentError as error:
        raise InputError(f"{verb}: {explain(str(error), [f'--{name}' for name in names - set(positional)])}") from error
    return function(*[given.pop(name) for name in positional], *others, **given) or 0

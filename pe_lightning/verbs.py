"""A typed function as a verb of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from pe_lightning.errors import InputError

__all__ = ["call"]


def call(verb: str, function: Callable[..., int | None], arguments: Sequence[str]) -> int:
    """Parses the arguments of a verb by the signature of its function, and calls it.

    Positional-only parameters are positional arguments, those of type ``list[str]`` take any number of words; all others
    are options. Help texts come from the docstring.

    Args:
        verb: What follows ``pe-lightning``.
        function: Returns the exit status, or ``None`` for 0.
        arguments: What follows the verb.

    Raises:
        InputError: If the arguments do not fit the signature.
    """
    parser = ArgumentParser(prog=f"pe-lightning {verb}", exit_on_error=False, allow_abbrev=False)
    positional = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_ONLY]
    parsed: set[str | int] = {p.name for p in positional}
    parser.description = (inspect.getdoc(function) or "").partition("\n\n")[0]
    for parameter in inspect.signature(function).parameters.values():
        several = "list[" in str(parameter.annotation)
        required = parameter.default is parameter.empty
        if parameter in positional:
            words: dict[str, Any] = {"nargs": ("+" if required else "*") if several else (None if required else "?")}
            parser.add_argument(parameter.name, type=str, **words)
        elif several:  # an option that may be repeated, each time with one word or more
            parser.add_argument(f"--{parameter.name}", type=str, nargs="+", action="extend", default=[])
            parsed.add(parameter.name)
    parser.add_function_arguments(function, skip=parsed, as_group=False)
    try:
        given: dict[str, Any] = parser.parse_args(list(arguments)).as_dict()
    except ArgumentError as error:
        raise InputError(str(error)) from error
    return function(*[given.pop(p.name) for p in positional], **given) or 0

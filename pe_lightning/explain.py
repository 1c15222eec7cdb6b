"""The parser's errors in the words of a user."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from collections.abc import Iterable
from typing import Any

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["explain", "root_message"]

LIST_OPTIONS = "--help lists the options"
CALLBACKS = ("PeakMemory", "Snapshots", "StableRank", "TimeToPSNR")
"""Our callbacks for ``--trainer.callbacks+``; the others are always there."""


def root_message(error: BaseException) -> str:
    """What a constructor said, without what jsonargparse put around it."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    while True:
        inner = error.__cause__ or error.__context__
        if isinstance(inner, MisconfigurationException):  # what a callback of Lightning refuses
            return str(inner)
        if isinstance(error, InputError) or not isinstance(inner, ValueError):
            return str(error) if isinstance(error, InputError) else explain(str(error))
        error = inner


def explain(message: str, options: Iterable[str] = ()) -> str:
    """The parser's message as one paragraph, with the nearest names for what it does not know.

    Args:
        message: Of jsonargparse.
        options: The options that can be misspelt, ``--name`` each.
    """
    # jsonargparse also tries the base class in the place of a callback
    message = re.sub(r"Problem with given class_path 'lightning\.Callback':\s+Option '\w+' is not accepted", "", message)
    noise = ("Does not validate against any of the Union subtypes", "Subtypes:", "Errors:")
    lines = [line.strip(" -") for line in message.splitlines()]
    rest = " ".join(line for line in lines if line and not line.startswith(noise))
    return _wrong_name(message, options) or _wrong_value(lines) or rest


def _wrong_name(message: str, options: Iterable[str]) -> str | None:
    """For a class, an argument or an option that does not exist, or is missing."""
    owner = re.findall(r"Problem with given class_path '([\w.]+)'", message)
    unknown = re.search(r"(?:Option|[Kk]ey) '([\w.+]+)' is not (?:accepted|expected)", message)
    if owner and unknown:
        cls: Any = pydoc.locate(owner[-1])
        allowed = list(inspect.signature(cls).parameters)
        short = [option[7:] for option in options if option.startswith("--data.") and "batching" in allowed]
        near = did_you_mean(unknown[1], [*allowed, *short]) or "."
        return f"{cls.__name__} has no argument {unknown[1]!r}{near} It takes: {', '.join(allowed)}"
    missing = re.search(r"the following arguments are required: ([\w., -]+)", message)
    if missing:
        names = re.sub(r"\w+\.", "", missing[1])
        return f"{owner[-1].rpartition('.')[2]} needs {names}" if owner else f"missing: {names}; {LIST_OPTIONS}"
    callback = re.search(r"trainer\.callbacks.*Expected a dot import path string: (\w+)", message, re.DOTALL)
    if callback:
        from lightning.pytorch import Callback

        near = did_you_mean(callback[1], [cls.__name__ for cls in _subclasses(Callback)]) or "."
        return f"unknown callback {callback[1]!r}{near} Ours: {', '.join(CALLBACKS)}"
    word = re.search(r"[Uu]nrecognized arguments?: ([^\s=]+)", message) or unknown
    if word is None:
        return None
    if not word[1].startswith("-"):  # a word too many, or a key of a file
        return f"unknown {'option' if word is unknown else 'argument'} {word[1]!r}; {LIST_OPTIONS}"
    return f"unknown option {word[1]!r}{did_you_mean(word[1], options) or '.'} {LIST_OPTIONS}"


def _wrong_value(lines: list[str]) -> str | None:
    """For a value of another type: the option, the type that is expected, what was given."""
    place = next((place for place, line in enumerate(lines) if line.startswith("Expected a")), None)
    if place is None:
        return None
    keys = [key for line in lines[:place] for key in re.findall(r'Parser key "([\w.]+)"', line)]
    wanted, _, given = lines[place].replace("Expected", "expected").partition(". Got value: ")
    later = [line[13:] for line in lines[place:] if line.startswith("Given value: ") and "NestedArg" not in line]
    given = given or next(iter(later), "something else")
    near = ""
    if choices := re.search(r"a typing\.Literal(\[.*\])", wanted):
        near = did_you_mean(given, map(str, ast.literal_eval(choices[1])))
        wanted = f"expected one of {choices[1].strip('[]')}"
    wanted = re.sub(r"\ba (?:<class ')?(?:\w+\.)*(\w+)'?>?$", r"\1", wanted)
    return f"{'.'.join(dict.fromkeys(keys))}: {wanted}, got {given}{near}"


def _subclasses(base: type[Any]) -> list[type[Any]]:
    return [found for cls in base.__subclasses__() for found in (cls, *_subclasses(cls))]

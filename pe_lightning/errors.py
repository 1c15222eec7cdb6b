"""The exception for wrong input, and messages for users.

Errors in a configuration, a file or an array are raised as :class:`InputError`; the command line prints them as one
paragraph and exits with status 2. Any other exception is a bug: the command line writes its traceback into a file and exits
with status 1.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import itertools
import math
import pydoc
import re
import tempfile
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = [
    "InputError",
    "argument_names",
    "did_you_mean",
    "explain",
    "import_reason",
    "last_resort",
    "paragraph",
    "printable",
    "root_message",
    "show_bytes",
    "show_metric",
]

LIST_OPTIONS = "--help lists the options"
MAX_MESSAGE = 1500
"""Most characters of a message."""


class InputError(ValueError):
    """Wrong input; the message says what was given, what is allowed, and what to type."""


def did_you_mean(word: str, allowed: Iterable[str], aliases: Mapping[str, str] | None = None) -> str:
    """The nearest of the allowed names as a clause of an error message, or an empty string.

    Args:
        word: The unknown word.
        allowed: The known words.
        aliases: Further known words, and the word to suggest in place of each.

    >>> did_you_mean("gua", ["gau", "tri"])
    "; did you mean 'gau'?"
    >>> did_you_mean("guassian", ["gau", "tri"], {"Gaussian": "gau"})
    "; did you mean 'gau'?"
    """
    suggestions = {**(aliases or {}), **{name: name for name in allowed}}
    by_folded = {name.lower(): suggestion for name, suggestion in suggestions.items()}
    close = difflib.get_close_matches(word.lower(), by_folded, n=3, cutoff=0.6)
    near = list(dict.fromkeys(by_folded[match] for match in close))
    return f"; did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def printable(text: object) -> str:
    """``text`` with a replacement character for control characters, line breaks and what is not UTF-8."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(text))


def paragraph(text: str, limit: int = MAX_MESSAGE) -> str:
    r"""``text`` as one line of printable characters, shortened in the middle of long words and at ``limit`` characters.

    >>> paragraph("a\n  b\x00" + 100 * "c ", 20)
    'a b�c c c ... c c'
    """
    words = re.sub(r"(\S{150})\S{150,}(\S{50})", r"\1...\2", printable(" ".join(text.split())))
    head = limit - limit // 4 - 5
    return words if len(words) <= limit else f"{words[:head].rstrip()} ... {words[-(limit // 4) :].lstrip()}"


def show_metric(name: str) -> str:
    """The name of a metric for display: names of at most four letters are abbreviations, in capitals.

    >>> show_metric("psnr"), show_metric("accuracy")
    ('PSNR', 'accuracy')
    """
    return name.upper() if len(name) <= 4 else name


def show_bytes(size: int) -> str:
    """A size in bytes with a decimal unit.

    >>> show_bytes(999), show_bytes(20_000_000_000)
    ('999 B', '20.0 GB')
    """
    if size < 1000:
        return f"{size} B"
    unit = min(int(math.log10(size)) // 3, 4)
    return f"{size / 1000**unit:.1f} {('kB', 'MB', 'GB', 'TB')[unit - 1]}"


def root_message(error: BaseException) -> str:
    """The message of the error that a constructor raised, without the text that jsonargparse adds."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    while not isinstance(error, InputError):
        inner = error.__cause__ or error.__context__
        if inner is not None and (words := _out_of_memory(inner)):
            return words
        if not isinstance(inner, (ValueError, MisconfigurationException)):
            return explain(str(error))
        if isinstance(inner, MisconfigurationException):  # raised by Lightning's callbacks
            return str(inner)
        error = inner
    return str(error)


def last_resort(error: Exception) -> tuple[str, int]:
    """The message and the exit status for an exception that is not an :class:`InputError`.

    Errors of the operating system (memory, files) and of Lightning's arguments have status 2. The traceback of any other
    exception is written to a file that the message names, with status 1.
    """
    text = " ".join(str(error).split())
    if words := _out_of_memory(error):
        return words, 2
    if isinstance(error, ValueError) and "embedded null" in text:
        return "a path holds a zero byte", 2
    if any(cls.__name__ == "MisconfigurationException" for cls in type(error).__mro__):  # raised by Lightning
        return text, 2
    if text.startswith("Early stopping conditioned on metric"):
        return (
            "EarlyStopping has no value to monitor: the fit ends before its first validation, which follows an epoch. Raise "
            "trainer.max_steps, or lower data.steps_per_epoch"
        ), 2
    if re.search(r"gloo|nccl", text, re.IGNORECASE) and re.search(r"[Cc]onnection (closed|reset|refused)|remote", text):
        return (
            "another process of this fit has ended, such as by a signal or for lack of memory: see what it printed, and "
            f"resume with --ckpt_path RUN/checkpoints/last.ckpt ({text[:120]})"
        ), 2
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.strerror or text}: {str(error.filename or 'a file')!r}", 2
    written = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pe-lightning-", suffix=".txt", delete=False) as file:
            file.write(written)
    except OSError:
        return f"{written}unexpected {type(error).__name__}: please report it with this traceback", 1
    return (
        f"unexpected {type(error).__name__}: {text[:300]}. This is a fault of the program, or of a class of your own; the "
        f"traceback is in {file.name}"
    ), 1


def _out_of_memory(error: BaseException) -> str | None:
    """The message for an error about memory; ``None`` for other errors."""
    text = " ".join(str(error).split())
    words = "out of memory|can't allocate memory|size calculation overflow"
    if not isinstance(error, MemoryError) and not re.search(words, text):
        return None
    import psutil

    free = psutil.virtual_memory().available
    asked = re.search(r"allocate ([\d.]+ ?\w+)", text)
    needed = re.sub(r"^(\d+) bytes$", lambda found: show_bytes(int(found[1])), asked[1]) if asked else "more"
    return (
        f"there is not enough memory: {needed} requested at once, {show_bytes(free)} free. Make the signals "
        "(resize, center_crop, frames, length), num_features or the output smaller"
    )


def import_reason(error: Exception) -> str:
    """Why a class cannot be imported, and what to type if its module lies in the current folder."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    here = name is not None and (Path(f"{name}.py").is_file() or Path(name, "__init__.py").is_file())
    return f"{error}; it is in this folder: type PYTHONPATH=. before the command" if here else str(error)


def explain(message: str, options: Iterable[str] = ()) -> str:
    """A message of jsonargparse as one paragraph, with suggestions for unknown names.

    Args:
        message: The message.
        options: Options to suggest, ``--name`` each.
    """
    # jsonargparse also tries the base class of callbacks
    message = re.sub(r"Problem with given class_path 'lightning\.Callback':\s+Option '\w+' is not accepted", "", message)
    noise = ("Does not validate against any of the Union subtypes", "Subtypes:", "Errors:")
    lines = [line for line in (line.strip(" -") for line in message.splitlines()) if line and not line.startswith(noise)]
    return _wrong_name(message, options) or _wrong_value(lines) or " ".join(lines)


def _wrong_name(message: str, options: Iterable[str]) -> str | None:
    """The message for a class, an argument or an option that does not exist or is missing."""
    owner = re.findall(r"Problem with given class_path '([\w.]+)'", message)
    unknown = re.search(r"(?:Option|[Kk]ey) '([\w.+]+)' is not (?:accepted|expected)", message)
    if owner and unknown:
        cls: Any = pydoc.locate(owner[-1])
        allowed = argument_names(cls)
        short = [option[7:] for option in options if option.startswith("--data.") and "batching" in allowed]
        near = did_you_mean(unknown[1], [*allowed, *short]) or "."
        return f"{cls.__name__} has no argument {unknown[1]!r}{near} It takes: {', '.join(allowed)}"
    if missing := re.search(r"the following arguments are required: ([\w., -]+)", message):
        names = re.sub(r"\w+\.", "", missing[1])
        if owner:
            return f"{owner[-1].rpartition('.')[2]} needs {names}"
        words = [f"--{name} {name.upper()}" if f"--{name}" in options else name.upper() for name in names.split(", ")]
        return f"give {' and '.join(words)}; {LIST_OPTIONS}"
    if word := re.search(r"[Uu]nrecognized arguments?: ([^\s=]+)", message) or unknown:
        kind = "option" if word[1].startswith("-") or word is unknown else "argument"
        # the given option itself is in the list if it belongs to another verb
        near = did_you_mean(word[1], set(options) - {word[1]}) if word[1].startswith("-") else ""
        return f"unknown {kind} {word[1]!r}{near or '.'} {LIST_OPTIONS}"
    return None


def argument_names(cls: type[Any]) -> list[str]:
    """The argument names of a class, including those of ``**kwargs``, which jsonargparse resolves."""
    parameters = inspect.signature(cls).parameters
    names = [name for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD]
    if len(names) < len(parameters):
        from jsonargparse import ArgumentParser

        behind = ArgumentParser().add_class_arguments(cls, fail_untyped=False)
        names += [name for name in behind if "." not in name and name not in names]
    return names


def _wrong_value(lines: list[str]) -> str | None:
    """The message for a value of the wrong type: the option, the expected type and the given value."""
    place = next((place for place, line in enumerate(lines) if line.startswith("Expected a")), None)
    if place is None:
        return None
    keys = [key for line in lines[:place] for key in re.findall(r'Parser key "([\w.]+)"', line)]
    wanted, _, given = lines[place].replace("Expected", "expected").partition(". Got value: ")
    later = [line[13:] for line in lines[place:] if line.startswith("Given value: ") and "NestedArg" not in line]
    given = given or next(iter(later), "something else")
    near = ""
    union = itertools.takewhile(lambda line: line.startswith("Expected a "), lines[place:])
    kinds = [re.match(r"Expected a (?:<class '(?:\w+\.)*(\w+)'>|typing\.Literal\[(.*)\])$", line) for line in union]
    names = [kind[1] or kind[2] for kind in kinds if kind is not None and kind[1] != "NoneType"]
    if len(names) > 1:
        wanted = f"expected {', '.join(names[:-1])} or {names[-1]}"
    elif choices := re.search(r"a typing\.Literal(\[.*\])", wanted):
        near = did_you_mean(given, map(str, ast.literal_eval(choices[1])))
        wanted = f"expected one of {choices[1].strip('[]')}"
    wanted = re.sub(r"\ba (?:<class ')?(?:\w+\.)*(\w+)'?>?$", r"\1", wanted)
    return f"{'.'.join(dict.fromkeys(keys))}: {wanted}, got {given}{near}"

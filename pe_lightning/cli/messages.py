"""Messages of jsonargparse as sentences that say what to type."""

from __future__ import annotations

import pydoc
from collections.abc import Iterable
from typing import Any

from pe_lightning.errors import InputError, did_you_mean, out_of_memory
from pe_lightning.hints import hint
from pe_lightning.registry import find_registry

LIST_OPTIONS = "--help lists the options"
EXPECTED = "Expected a "
DENIED = "Importing '"
"""Beginning of the message for what no configuration may import."""
UNINFORMATIVE = (
    *("Does not validate against any of the Union subtypes", "Subtypes:", "Errors:", "Given value type:"),
    *("Given value: NestedArg", "Expected a <class 'NoneType'>", "Expected a path but"),
)
"""Lines of jsonargparse's messages that say nothing to a user."""
UNKNOWN_NAME = (("Option '", "'"), ("Key '", "'"), ("unrecognized arguments: ", "="))
"""How lines about an unknown name begin, and what ends the name."""
OTHER_TYPE = "Problem with given class_path 'lightning.Callback'"
"""Beginning of the message about the second type of ``trainer.callbacks``, where an entry of the list is wrong."""
REQUIRED = "the following arguments are required: "


def root_message(error: BaseException) -> str:
    """The message of the error that a constructor raised, without the text that jsonargparse adds."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    while not isinstance(error, InputError):
        inner = error.__cause__ or error.__context__
        if inner is not None and (words := out_of_memory(inner)):
            return words
        if not isinstance(inner, (ValueError, MisconfigurationException)):
            return explain(str(error))
        if isinstance(inner, MisconfigurationException):  # raised by Lightning's callbacks
            return str(inner)
        error = inner
    return str(error)


def explain(message: str, options: Iterable[str] = ()) -> str:
    """A message of jsonargparse as one paragraph, with suggestions for unknown names.

    Args:
        message: The message: one line per key, and what each type of a union says about the value.
        options: Options to suggest, ``--name`` each.
    """
    lines = [line.strip(" -") for line in message.splitlines()]
    lines = [line for line in lines if line and not line.startswith(UNINFORMATIVE)]
    if any(line.startswith("Problem with given class_path") for line in lines[: _index(lines, OTHER_TYPE)]):
        del lines[_index(lines, OTHER_TYPE) :]
    keys = [line.split('"')[1] for line in lines if line.startswith('Parser key "')]
    owners = [line.split("'")[1] for line in lines if line.startswith("Problem with given class_path")]
    for line in lines:
        if "denied by" in line and DENIED in line:
            name = line.partition(DENIED)[2].partition("'")[0]
            return f"{'.'.join(dict.fromkeys(keys)) or 'the configuration'}: a configuration cannot name {name!r}"
        for before, end in UNKNOWN_NAME:
            if line.startswith(before):
                return _unknown_name(line.removeprefix(before).split()[0].partition(end)[0], owners, options)
        if line.startswith(REQUIRED):
            names = [name.rpartition(".")[2] for name in line.removeprefix(REQUIRED).split(", ")]
            if owners:
                return f"{owners[-1].rpartition('.')[2]} needs {', '.join(names)}"
            words = [f"--{name} {name.upper()}" if f"--{name}" in options else name.upper() for name in names]
            return f"give {' and '.join(words)}; {LIST_OPTIONS}"
    wanted = [line.removeprefix(EXPECTED).partition(". Got value: ") for line in lines if line.startswith(EXPECTED)]
    if not wanted:
        return " ".join(lines)
    types, choices = [], list[str]()
    for kind, _, _ in wanted:
        name = kind.removeprefix("<class '").removesuffix("'>").rpartition(".")[2]
        literal = kind.removeprefix("typing.Literal[").removesuffix("]")
        choices += [choice.strip("' ") for choice in literal.split(",")] if literal != kind else []
        types.append(f"one of {literal}" if "," in literal else literal if literal != kind else name)
    types = list(dict.fromkeys(types))
    given = [value for _, _, value in wanted if value]
    given += [line.removeprefix("Given value: ") for line in lines if line.startswith("Given value: ")]
    value = given[0] if given else "another value"
    return f"{'.'.join(dict.fromkeys(keys))}: expected {' or '.join(types)}, got {value}{did_you_mean(value, choices)}"


def _index(lines: list[str], beginning: str) -> int:
    """The place of the first line with this beginning; the number of lines if there is none."""
    return next((place for place, line in enumerate(lines) if line.startswith(beginning)), len(lines))


def _unknown_name(name: str, owners: list[str], options: Iterable[str]) -> str:
    """The message for an argument of a class, or an option, that does not exist."""
    from jsonargparse import ArgumentParser

    if owners:
        from lightning.pytorch import Callback

        cls: Any = pydoc.locate(owners[-1])  # of several, the innermost
        known = find_registry("callbacks")
        callbacks = known if issubclass(cls, Callback) else ()
        named = [callback for callback in callbacks if name in known.parameters(known.get(callback))]
        if named or cls is Callback:
            add = f"--trainer.callbacks+ {' or '.join(named) or 'NAME'}"
            return f"--trainer.callbacks.{name} is for a callback that is named before it: {add}"
        names = ArgumentParser().add_class_arguments(cls, fail_untyped=False)  # also those behind **kwargs
        allowed = [argument for argument in names if "." not in argument]
        models = find_registry("models")
        others = [f"--model {model}" for model in models if name in models.parameters(models.get(model))]
        has_it = f"; {' or '.join(others)} has it." if others and issubclass(cls, models.base) else "."
        near = did_you_mean(name, allowed) or has_it
        return f"{cls.__name__} has no argument {name!r}{near} It takes: {', '.join(allowed)}"
    if name.startswith("-") or "." in name:
        return unknown_option(name, options)
    return f"unknown argument {name!r}. {LIST_OPTIONS}"


def unknown_option(name: str, options: Iterable[str]) -> str:
    """The message for an option that a verb does not have.

    Args:
        name: The option as typed.
        options: Those of the verb.
    """
    known = set(options) - {name}  # the given option itself is in the list if it belongs to another verb
    if text := hint(name.lstrip("-"), known):
        return f"unknown option {name!r}; type {text}. {LIST_OPTIONS}"
    return f"unknown option {name!r}{did_you_mean(name, known) or '.'} {LIST_OPTIONS}"

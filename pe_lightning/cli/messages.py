"""Messages of jsonargparse as sentences that say what to type."""

from __future__ import annotations

import pydoc
import re
from collections.abc import Iterable
from typing import Any

from pe_lightning.errors import InputError, did_you_mean, out_of_memory
from pe_lightning.hints import hint
from pe_lightning.registry import find_registry

LIST_OPTIONS = "--help lists the options"
UNINFORMATIVE = (
    *("Does not validate against any of the Union subtypes", "Subtypes:", "Errors:", "Given value type:"),
    *("Given value: NestedArg", "Expected a <class 'NoneType'>", "Expected a path but"),
)
"""Lines of jsonargparse's messages that say nothing to a user."""
OTHER_TYPE = "Problem with given class_path 'lightning.Callback'"
"""Beginning of the message about the second type of ``trainer.callbacks``."""


def root_message(error: BaseException) -> str:
    """The message of the error that a constructor raised, without the text of jsonargparse."""
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
    """A message of jsonargparse as one paragraph, with suggestions for unknown names among ``options``."""
    lines = [line.strip(" -") for line in message.splitlines()]
    text = "\n".join(line for line in lines if line and not line.startswith(UNINFORMATIVE))
    first, _, _ = text.partition(OTHER_TYPE)
    text = first if "Problem with given class_path" in first else text

    def found(pattern: str) -> list[str]:
        return re.findall(pattern, text, re.MULTILINE)

    key = ".".join(dict.fromkeys(found(r'^Parser key "(.*?)"')))
    owners = found(r"^Problem with given class_path '(.*?)'")
    if denied := found(r"Importing '(.*?)'.*denied by"):
        return f"{key or 'the configuration'}: a configuration cannot name {denied[0]!r}"
    if unknown := found(r"^(?:Option '|Key '|unrecognized arguments: )([^\s'=]+)"):
        return _unknown_name(unknown[0], owners, options)
    if required := found("^the following arguments are required: (.*)"):
        names = [name.rpartition(".")[2] for name in required[0].split(", ")]
        if owners:
            return f"{owners[-1].rpartition('.')[2]} needs {', '.join(names)}"
        words = [f"--{name} {name.upper()}" if f"--{name}" in options else name.upper() for name in names]
        return f"give {' and '.join(words)}; {LIST_OPTIONS}"
    wanted = found(r"^Expected a (.*?)(?:\. Got value: .*)?$")
    if not wanted:
        return " ".join(text.splitlines())
    types, choices = [], list[str]()
    for kind in wanted:
        literal = re.fullmatch(r"typing\.Literal\[(.*)\]", kind)
        named = literal[1] if literal else re.sub(r"<class '(.*)'>", r"\1", kind).rpartition(".")[2]
        choices += [choice.strip("' ") for choice in literal[1].split(",")] if literal else []
        types.append(f"one of {named}" if literal and "," in named else named)
    value = next(iter([*found(r"^Expected a .*?\. Got value: (.*)"), *found("^Given value: (.*)")]), "another value")
    return f"{key}: expected {' or '.join(dict.fromkeys(types))}, got {value}{did_you_mean(value, choices)}"


def _unknown_name(name: str, owners: list[str], options: Iterable[str]) -> str:
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
    """The message for an option, as typed, that a verb with ``options`` does not have."""
    known = set(options) - {name}  # the given option itself is in the list if it belongs to another verb
    if text := hint(name.lstrip("-"), known):
        return f"unknown option {name!r}; type {text}. {LIST_OPTIONS}"
    return f"unknown option {name!r}{did_you_mean(name, known) or '.'} {LIST_OPTIONS}"

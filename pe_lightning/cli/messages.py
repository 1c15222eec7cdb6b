"""Messages of jsonargparse as sentences that say what to type."""

from __future__ import annotations

import importlib
import inspect
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
CLASSES: dict[str, tuple[str, str | None, str | None]] = {
    "model": ("model", "models", None),
    "data": ("DataModule", "datamodules", None),
    "callbacks": ("callback", "callbacks", "lightning.pytorch.callbacks"),
    "optimizer": ("optimiser", None, "torch.optim"),
    "lr_scheduler": ("learning-rate scheduler", None, "torch.optim.lr_scheduler"),
    "logger": ("logger", None, "lightning.pytorch.loggers"),
}
"""Settings that name a class: its kind for messages, and the registry and the module that have such classes."""
DESCRIBED_BY = {"encoder": "encoders", "sampling": "samplings"}
"""Arguments of models and DataModules that have arguments of their own, by the registries of their classes."""
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
    text = re.sub(r"Type typing\.Callable\[.*\] expects a function or a callable class: ", "(Callable)\n", text)
    first, _, _ = text.partition(OTHER_TYPE)
    text = first if "Problem with given class_path" in first else text

    def found(pattern: str) -> list[str]:
        return re.findall(pattern, text, re.MULTILINE)

    key = ".".join(dict.fromkeys(found(r'^Parser key "(.*?)"')))
    owners = found(r"^Problem with given class_path '(.*?)'")
    if made := found(r"^\(Callable\)[\s\S]*?Namespace\(class_path='(.*?)'"):
        owners.append(made[0])
    missing = found(r"^module '(.*?)' has no attribute '(.*?)'") or found(r"^No (\S+) attribute (\S+)")
    if missing:
        return unknown_class(key, ".".join(missing[0]))
    if (absent := found(r"^No module named '(.*?)'")) and owners:
        return unknown_class(key, owners[-1], f"no module named {absent[0]!r}")
    if several := found(r"^Multiple subclasses with name (\w+)\..*?: (.*)\.$"):
        return f"{key}: {several[0][0]!r} is the name of several classes; give one of {several[0][1]}"
    if short := found(r"^Expected a dot import path string: ([A-Za-z_]\w*)"):
        return unknown_class(key, short[0])
    if denied := found(r"Importing '(.*?)'.*denied by"):
        return f"{key or 'the configuration'}: a configuration cannot name {denied[0]!r}"
    if unknown := found(r"^(?:Option '|Key '|unrecognized arguments: )([^\s'=]+)"):
        return _unknown_name(unknown[0], owners, options, key)
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
    values = [*found(r"^Expected a .*?\. Got value: (.*)"), *found("^Given value: (.*)"), "another value"]
    value = values[0].partition(". Got value: ")[0]
    return f"{key}: expected {' or '.join(dict.fromkeys(types))}, got {value}{did_you_mean(value, choices)}"


def unknown_class(key: str, path: str, reason: str = "") -> str:
    """The message for the name or import path of a class that does not exist, as the setting ``key``."""
    kind, registry, _ = CLASSES.get(key.rpartition(".")[2], ("class", None, None))
    name = path.rpartition(".")[2]
    if registry is not None and (broken := find_registry(registry).broken().get(name)):
        return broken
    if registry is not None and (sentence := find_registry(registry).removed(path)):
        return sentence
    known = [cls.__name__ for cls in _classes(key)]
    near = did_you_mean(name, known)
    listed = f". Known: {', '.join(sorted(known))}; or an import path" if known else ". Give an import path: MODULE.CLASS"
    return f"{key}: unknown {kind} {path!r}{reason and f' ({reason})'}{near or listed}"


def _classes(key: str) -> list[type]:
    """The classes that a setting takes without their modules; none if they are not known."""
    _, registry, module = CLASSES.get(key.rpartition(".")[2], ("", None, None))
    public: Any = None if module is None else importlib.import_module(module)
    named = [] if public is None else [getattr(public, name, None) for name in public.__all__]
    known = [] if registry is None else [find_registry(registry).get(name) for name in find_registry(registry)]
    return [cls for cls in [*known, *named] if isinstance(cls, type)]


def _unknown_name(name: str, owners: list[str], options: Iterable[str], key: str) -> str:
    if owners:
        from lightning.pytorch import Callback
        from torch.optim import Optimizer

        cls: Any = pydoc.locate(owners[-1])  # of several, the innermost
        if not isinstance(cls, type) or cls is Optimizer:
            return f"--{key}.{name} is for a class that is named before it: --{key} NAME"
        callbacks = _classes("callbacks") if issubclass(cls, Callback) else ()
        named = [callback.__name__ for callback in callbacks if name in inspect.signature(callback).parameters]
        if named or cls is Callback:
            add = f"--trainer.callbacks+ {' or '.join(named) or 'NAME'}"
            return f"--trainer.callbacks.{name} is for a callback that is named before it: {add}"
        names = _arguments(cls)
        allowed = [argument for argument in names if "." not in argument]
        models = find_registry("models")
        others = [f"--model {model}" for model in models if name in models.parameters(models.get(model))]
        has_it = f"; {' or '.join(others)} has it." if others and issubclass(cls, models.base) else "."
        deeper = _deeper(key, cls, name)
        near = f"; type {' or '.join(deeper)}." if deeper else did_you_mean(name, allowed) or has_it
        return f"{cls.__name__} has no argument {name!r}{near} It takes: {', '.join(allowed)}"
    if name.startswith("-") or "." in name:
        return unknown_option(name, options)
    return f"unknown argument {name!r}. {LIST_OPTIONS}"


def _deeper(section: str, cls: type, name: str) -> list[str]:
    """The options below ``section`` whose last part is ``name``, for a class."""
    arguments = _arguments(cls)
    found = [f"--{section}.{argument}" for argument in arguments if argument.endswith(f".{name}")]
    for argument in arguments:
        registry = find_registry(DESCRIBED_BY[argument]) if argument in DESCRIBED_BY else None
        classes = [registry.get(known) for known in registry] if registry else _classes(argument)
        if any(name in inspect.signature(known).parameters for known in classes):
            option = f"--{section}.{argument}"
            found.append(f"{option}.{name}" if registry else f"{option} NAME {option}.{name} VALUE")
    return found


def _arguments(cls: type) -> list[str]:
    """Arguments of a class, also those behind ``**kwargs``; fields of dataclasses follow a dot."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser()
    parser.add_class_arguments(cls, fail_untyped=False)
    return list(parser.get_defaults(skip_validation=True).keys(branches=True))


def unknown_option(name: str, options: Iterable[str]) -> str:
    """The message for an option, as typed, that a verb with ``options`` does not have."""
    known = set(options) - {name}  # the given option itself is in the list if it belongs to another verb
    if text := hint(name.lstrip("-"), known):
        return f"unknown option {name!r}; type {text}. {LIST_OPTIONS}"
    word = name.lstrip("-")
    deeper = [option for option in known if option.endswith(f".{word}")]
    for section in ("model", "data") if "--trainer" in known and not deeper and "." not in word else ():
        own = any(word in _arguments(cls) for cls in _classes(section))
        deeper += [f"--{section}.{word}"] if own else [x for cls in _classes(section) for x in _deeper(section, cls, word)]
    if deeper:
        return f"unknown option {name!r}; type {' or '.join(sorted({*deeper}))}. {LIST_OPTIONS}"
    return f"unknown option {name!r}{did_you_mean(name, known) or '.'} {LIST_OPTIONS}"

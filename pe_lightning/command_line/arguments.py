"""Command-line arguments: split into files and options, and rewritten into what the parser of a verb takes.

``pe-lightning fit my.jpg --encoder tri`` is rewritten once, before jsonargparse parses it::

    --config=image/closed_form.yaml  --model.encoder={"class_path": "pe_lightning.encoders.Triangle", ...}
    --data.paths=["my.jpg"]

The rewriting adds the recipe that suits the files and the settings that a checkpoint holds, replaces registered names by
class paths with their defaults, and spells short forms out. No other module reads command-line arguments. In configuration
files the loader of :mod:`pe_lightning.command_line.naming` expands the same names and short forms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pe_lightning.errors import InputError

if TYPE_CHECKING:
    from pe_lightning.registry import Registry

__all__ = ["VERBOSE", "Known", "Option", "expand", "read", "rewrite"]

VERBOSE = frozenset({"-v", "--verbose"})
FLAGS = frozenset({"h", "help", "v", "verbose", "print_config"})
"""Options of ``fit``, ``validate``, ``test`` and ``predict`` that take no value."""
MULTIPLE = frozenset({"output_shape"})
"""Their options that take several values."""


@dataclass(frozen=True)
class Option:
    """One option with its values.

    Args:
        words: As typed: ``("--encoder", "tri")`` or ``("--encoder=tri",)``.
    """

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The option as typed: ``--encoder``."""
        return self.words[0].partition("=")[0]

    @cached_property
    def key(self) -> str:
        """The parser's key: ``model.encoder`` for ``--encoder``, ``config`` for ``-c``, without ``init_args``."""
        key = self.name.lstrip("-").replace(".init_args", "").removesuffix(".class_path")
        return "config" if key == "c" else re.sub(r"^encoder(?=\.|\+?$)", "model.encoder", key)

    @property
    def values(self) -> tuple[str, ...]:
        """The values; none of a flag."""
        _, equals, value = self.words[0].partition("=")
        return ((value,) if equals else ()) + self.words[1:]

    @property
    def value(self) -> str | None:
        """The only value; ``None`` without a value and with several."""
        return self.values[0] if len(self.values) == 1 else None


def is_option(word: str) -> bool:
    """Whether a word is an option, and no value such as -1 or -.5."""
    return word.startswith("-") and not re.match(r"-\.?\d", word)


def read(
    words: Sequence[str], flags: Collection[str] = FLAGS, multiple: Collection[str] = MULTIPLE
) -> tuple[list[str], list[Option]]:
    """Splits the words after a verb into positional arguments, such as files, and options.

    Args:
        words: The words, in any order.
        flags: Options that take no value, without dashes.
        multiple: Options that take all values up to the next option, without dashes.
    """
    positional: list[str] = []
    options: list[Option] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not is_option(word):
            positional.append(word)
            continue
        name, equals, _ = word.lstrip("-").partition("=")
        taken = [word]
        takes_value = not equals and name not in flags
        while takes_value and rest and not is_option(rest[0]):
            taken.append(rest.pop(0))
            takes_value = name in multiple
        options.append(Option(tuple(taken)))
    return positional, options


def rewrite(verb: str, words: Sequence[str], known: Known | None = None) -> list[str]:
    """The words after ``fit``, ``validate``, ``test`` or ``predict`` as the parser of that verb takes them.

    Args:
        verb: The verb.
        words: Files, options and short forms, in any order.
        known: Takes the classes and instances that the options name.

    Raises:
        InputError: If there are neither files nor a recipe for ``fit``, no checkpoint for another verb, the kind of the
            files is not clear, or a name or an argument is unknown.
    """
    # these import torch, which tables and help texts of other verbs do not need
    from pe_lightning.checkpoints import saved_settings
    from pe_lightning.command_line import recipes

    positional, options = read(words)
    options = [option for option in options if option.name not in VERBOSE]
    given = {option.key: option.value for option in options}
    asks_help = any(key in ("h", "help") or key.endswith(".help") for key in given)
    if verb == "fit":
        if positional:
            recipe = [] if "config" in given else [Option((f"--config={recipes.recipe_for(positional, given)}",))]
            # what is typed beside files changes the recipe, wherever the recipe stands
            recipe += [option for option in options if option.key == "config"]
            others = [option for option in options if option.key != "config"]
            options = [*recipe, *others, Option((f"--data.paths={json.dumps(positional)}",))]
            positional = []
        elif not (asks_help or given.keys() & {"config", "model", "data", "ckpt_path"}):
            raise InputError("fit needs signals, pe-lightning fit my.jpg, or a recipe, pe-lightning fit --config image/demo")
    if not (asks_help or "print_config" in given):
        path = given.get("ckpt_path")
        if path is not None:
            settings = saved_settings(path, verb, configured="config" in given)
            options = [Option((f"--config={json.dumps(settings)}",)), *options]
        elif verb != "fit":
            raise InputError(f"{verb} needs a checkpoint: pe-lightning {verb} --ckpt_path RUN/checkpoints/last.ckpt")
    return [*expand(options, known), *positional]


def expand(options: Iterable[Option], known: Known | None = None) -> list[str]:
    """Options with registered names, recipes and short forms replaced by what jsonargparse takes: ``--key=value`` each.

    Args:
        options: The options, in their order.
        known: Takes the classes and instances that the options name.

    Raises:
        InputError: If a name or an argument is unknown.
    """
    known = Known() if known is None else known
    return [word for option in options for word in _expanded(option, known)]


@dataclass
class Known:
    """The classes and instances that the options so far name, on which the meaning of later options depends.

    Args:
        classes: The classes of ``model`` and ``data``.
        named: The last ``encoder``, ``sampling`` and ``source``, in the ``class_path`` form.
        automatic_width: Whether the width of an encoder was ``auto``; an encoder without a width does not say it.
        short_help: Whether ``--help`` was given, and not ``--help=all``.
    """

    classes: dict[str, type[Any]] = field(default_factory=dict)
    named: dict[str, Any] = field(default_factory=dict)
    automatic_width: bool = False
    short_help: bool = False

    def remember(self, key: str, value: Any) -> None:
        """Remembers an instance of a registered class."""
        from pe_lightning.command_line import naming

        self.named[key] = value
        self.automatic_width = self.automatic_width or (key == "encoder" and naming.has_automatic_width(value))


def _expanded(option: Option, known: Known) -> list[str]:
    from pe_lightning.command_line import naming

    key, value = option.key, option.value
    head, *path = key.split(".")
    if key in ("h", "help"):
        known.short_help = value != "all"
        return ["--help"]
    if path[-1:] == ["help"] and path[-2:-1] and path[-2] in naming.NAMED_INSTANCES:
        kind = path[-2]
        listing = "encoders NAME" if kind == "encoder" else f"list {kind}s"
        raise InputError(f"--{key} is not an option; pe-lightning {listing} shows the arguments")
    if value is None or key.endswith(".help"):
        return [f"--{key}" if head in naming.NAMED_CLASSES else option.name, *option.values]
    if key == "config":
        return [f"--config={_read_config(value, known)}"]
    if re.fullmatch(r"trainer\.callbacks\+?", key):
        found = naming.expand_callbacks(naming.read_value(value))
        return [f"{option.name}={found if isinstance(found, str) else json.dumps(found)}"]
    if head not in naming.NAMED_CLASSES:
        return [f"{option.name}={value}"]
    if not path:
        tree = naming.read_value(value)
        cls = naming.find_class(head, tree)
        if cls is not None:
            known.classes[head] = cls
        if isinstance(tree, dict):  # the class with its arguments
            return [f"--{head}={json.dumps(naming.expand_tree({head: tree})[head])}"]
        return [f"--{head}={value if cls is None else naming.path_of(cls)}"]
    last = path[-1]
    if last in naming.NAMED_INSTANCES:
        before = naming.AUTOMATIC_WIDTH if known.automatic_width else known.named.get(last)
        found = naming.expand(naming.read_value(value), last, before)
        known.remember(last, found)
        return [f"--{key}={found if isinstance(found, str) else json.dumps(found)}"]
    if head == "data" and len(path) == 1 and naming.is_short_form(last, known.classes.get("data")):
        group, _, name = naming.SHORT_FORMS[last].partition(".")
        # jsonargparse takes the null of a nested option for a word, unless it is in a mapping
        return [f'--data.{group}={{"{name}": null}}' if value.strip() == "null" else f"--data.{group}.{name}={value}"]
    if len(path) == 2 and path[0] in naming.NAMED_INSTANCES:
        return _expanded_argument(option, path[0], last, value, known)
    if key == "data.missing" and value.startswith("#"):  # a colour; jsonargparse takes it for a comment
        value = json.dumps([value])
    return [f"--{key}={value}"]


def _expanded_argument(option: Option, key: str, argument: str, value: str, known: Known) -> list[str]:
    """An argument of an encoder, a sampling or a source: ``--model.encoder.sigma 0.1``."""
    from pe_lightning.command_line import naming

    words = []
    if key in naming.DEFAULT_NAMES and key not in known.named:  # jsonargparse cannot change an argument of a default
        default = naming.expand(naming.DEFAULT_NAMES[key], key)
        known.remember(key, default)
        words.append(f"--{option.key.rpartition('.')[0]}={json.dumps(default)}")
    current = known.named.get(key)
    if not isinstance(current, Mapping) or argument.endswith("+"):
        return [*words, f"--{option.key}={value}"]
    registry: Registry[Any] = naming.NAMED_INSTANCES[key]
    found = registry.arguments(registry.get(current["class_path"]), {argument: value})
    known.remember(key, {**current, "init_args": {**(current.get("init_args") or {}), **found}})
    # ``width`` is another argument of the class, or none
    return [*words, *(f"--{option.key.rpartition('.')[0]}.{name}={value}" for name in found)]


def _read_config(config: str, known: Known) -> str:
    """The file that a configuration is in, after remembering what it names."""
    from pe_lightning.command_line import naming, recipes

    found = recipes.find(config)
    tree = naming.read_config(found)
    for head in naming.NAMED_CLASSES:
        section = tree.get(head)
        section = {"class_path": section} if isinstance(section, str) else dict(section or {})
        arguments = section.get("init_args") or section
        if (cls := naming.find_class(head, section)) is not None:
            known.classes[head] = cls
        for key in naming.NAMED_INSTANCES.keys() & arguments.keys():
            if arguments[key] is not None:
                known.remember(key, naming.expand(arguments[key], key))
    return found

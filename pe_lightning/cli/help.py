"""The short help of the verbs of the Trainer, and descriptions of the arguments of a class, from its docstring."""

from __future__ import annotations

import inspect
import pydoc
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

from docstring_parser import DocstringStyle, parse
from jsonargparse import ArgumentParser

from pe_lightning.cli.arguments import Option, merged
from pe_lightning.hints import examples
from pe_lightning.registry import find_registry

INDENT = 30
"""Columns before the description of an option."""
MAX_TEXT = 200
"""Characters of a description that is shown whole."""

Entry = tuple[str, str]
"""An option with its value, and its description."""

PURPOSES = {
    "fit": "Fits signals, scores the held-out samples and writes reconstructions into runs/<data>-<model>-<encoder>/<n>/.",
    "validate": "Scores the held-out samples of a checkpoint.",
    "test": "Scores a checkpoint and writes its reconstructions beside it.",
    "predict": "Writes reconstructions of a checkpoint at any size; it needs no data.",
}
CHECKPOINT = "--ckpt_path RUN"
OUTPUT: list[tuple[str, str, Any, Any, str]] = [
    ("scale", "NUMBER", float, 1.0, "Samples per axis relative to the size of the fit: 2 for twice as many."),
    ("output_shape", "N N ...", int, [], "Samples per axis, such as 1024 1024, instead of --scale."),
    ("at", "FILE", str | None, None, "Scattered points: a table with columns of coordinates, at whose rows to predict."),
    ("output_std", "true", bool, False, "Standard deviations beside the signals, for models of one signal that have them."),
    ("output_format", "auto", str, "auto", "png, mp4, wav, npy, h5; of scattered points nc, tif, csv, npy."),
]
"""Options of ``predict`` for its output: name, value, type, default and help."""


def short_help(verb: str, files: Sequence[str], options: Sequence[Option]) -> str:
    """The help of a verb of the Trainer, with the arguments of the classes that the files or options choose."""
    from pe_lightning.cli import recipes  # imports Lightning, which descriptions do not need
    from pe_lightning.training.callbacks import WandbSettings

    given = {option.key: option.value for option in options}
    settings = merged([*(Option((word,)) for word in (recipes.words_for(files, given) if files else ())), *options])
    model = find_registry("models").get(settings.get("model") or "ComplexLinear")
    data = find_registry("datamodules").get(settings.get("data") or "ImageDataModule")
    fit, predict = verb == "fit", verb == "predict"
    usage = {"fit": "[FILE ...] [--config RECIPE] [--encoder NAME]", "predict": f"{CHECKPOINT} [--scale NUMBER]"}
    groups = ("model", "data", "trainer", "wandb") if fit else () if predict else ("data",)
    sections_of_usage = " ".join(f"[--{group}.OPTION VALUE]" for group in groups)
    names: list[Entry] = [
        ("FILE ...", "Files, folders or samples://NAME."),
        ("--config RECIPE", f"A configuration file or a recipe: {', '.join(recipes.names())}"),
        (
            "--encoder NAME",
            f"{', '.join(find_registry('encoders'))}. Arguments: --encoder.sigma 0.01 (pe-lightning encoders NAME)",
        ),
        ("--model NAME", _choices("models")),
        ("--data NAME", _choices("datamodules")),
    ]
    wandb = argument_descriptions(WandbSettings)
    run: list[Entry] = [
        (CHECKPOINT, f"{'Resume' if fit else 'Read'} the last checkpoint of a run, or this one."),
        *([("--init RUN", "Start a new fit, at step 0, from the weights of a run or of a file.")] if fit else []),
        ("--seed_everything 0", "Seed of all random generators; true draws one."),
        ("--trainer.max_steps 2000", "Optimiser steps; 0 for an exact fit."),
        ("--trainer.devices auto", "Number of devices, with --trainer.strategy ddp or independent_signals."),
        ("--trainer.accelerator auto", "cpu or gpu."),
        ("--trainer.callbacks+ NAME", _choices("callbacks")),
        *((f"--wandb.{name} {value}", text) for name, value, text in wandb if name in ("enabled", "project", "group")),
        ("--print_config", "Print the complete configuration, which --config takes, and exit."),
        ("-v", "Show the notes of Lightning."),
    ]
    training = ("--trainer.max_steps", "--wandb", "--trainer.callbacks", "--seed")
    sections = [
        ("what is fitted, and by what", names) if fit else ("", []),
        (f"options of --data {data.__name__}", [] if predict else _options("data", data)),
        (f"options of --model {model.__name__}", _options("model", model) if fit else []),
        ("what is written", [(f"--{name} {value}", text) for name, value, _, _, text in OUTPUT] if predict else []),
        ("the run", run if fit else [entry for entry in run if not entry[0].startswith(training)]),
    ]
    shown = "\n".join(examples(verb))
    listed = "\n".join(f"{title}:\n{layout(entries)}" for title, entries in sections if entries)
    return (
        f"usage: pe-lightning {verb} {usage.get(verb, CHECKPOINT)}\n           {sections_of_usage}".rstrip()
        + f"\n\n{PURPOSES[verb]}\n\n{shown}\n\n{listed}\n"
        f"Options of other classes: add --model NAME or --data NAME. All options, the Trainer's too: --help=all\n"
    )


def _choices(registry: str) -> str:
    return f"{', '.join(find_registry(registry))} (pe-lightning list {registry})"


def _options(section: str, cls: type[Any]) -> list[Entry]:
    """The arguments of a class, groups of them last."""
    parameters: dict[str, inspect.Parameter] = {}
    for base in reversed(cls.__mro__):  # a subclass may take the arguments of its base by name
        parameters |= inspect.signature(vars(base).get("__init__", object.__init__)).parameters
    entries, groups = list[Entry](), list[Entry]()
    for name, value, text in argument_descriptions(cls):
        default = parameters[name].default if name in parameters else None
        if is_dataclass(default):
            groups += _options(f"{section}.{name}", type(default))
        elif f"{section}.{name}" != "model.encoder":
            entries.append((f"--{section}.{name} {value}", text))
    return [*entries, *groups]


def argument_descriptions(cls: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Name, default (its name in capitals if required) and description of every constructor argument of a class.

    A long description is cut to its first sentence; the docstring names the class that takes ``**kwargs``.
    """
    parser = ArgumentParser()
    parser.add_class_arguments(cls, fail_untyped=False, instantiate=False)
    defaults = parser.get_defaults()
    texts: dict[str, str] = {}
    documented = list(reversed(cls.__mro__))
    for base in documented:
        for parameter in parse(base.__doc__ or "", DocstringStyle.GOOGLE).params:
            texts[parameter.arg_name] = plain_text(parameter.description or "")
            if parameter.arg_name.startswith("**"):  # "Arguments of :class:`~package.Parent`"
                parents = re.findall(r":class:`~?([\w.]+)`", parameter.description or "")
                for parent in map(pydoc.locate, parents):
                    documented += reversed(parent.__mro__) if isinstance(parent, type) else ()
    parameters = inspect.signature(cls).parameters
    for name, value in vars(defaults).items():
        required = name in parameters and parameters[name].default is inspect.Parameter.empty
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        text = texts.get(name, "")
        if len(text) > MAX_TEXT:
            text = re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
        yield name, name.upper() if required else shown, text


def plain_text(text: str) -> str:
    """A docstring without markup: ``:class:`~a.B``` becomes ``B``, ``None`` the null of YAML."""
    text = text.replace("``None``", "null")
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?([^`]*)`", r"\1", " ".join(text.split()))
    return re.sub(r"`+([^`]*)`+", r"\1", text)


def layout(entries: Iterable[Entry]) -> str:
    """Options in one column and their descriptions in another, in the width of the terminal."""
    width = min(120, max(80, shutil.get_terminal_size((100, 24)).columns))
    lines = []
    for option, text in entries:
        first, *rest = textwrap.wrap(text, width - INDENT, break_on_hyphens=False) or [""]
        head = f"  {option}".ljust(INDENT)
        lines += [f"{head}{first}".rstrip()] if head.endswith(" ") else [head, f"{' ' * INDENT}{first}".rstrip()]
        lines += [f"{' ' * INDENT}{line}" for line in rest]
    return "\n".join(lines) + "\n"

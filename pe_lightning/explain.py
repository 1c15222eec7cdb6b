"""The parser's errors in the words of a user."""

from __future__ import annotations

import inspect
import pydoc
import re
from typing import Any

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer

from pe_lightning.callbacks import WandbSettings
from pe_lightning.errors import InputError, did_you_mean

__all__ = ["explain", "root_message"]

OPTIONS = [
    *(f"--{name}" for name in ("config", "seed_everything", "trainer", "model", "data", "wandb", "ckpt_path")),
    *(f"--trainer.{name}" for name in inspect.signature(Trainer).parameters),
    *(f"--wandb.{name}" for name in inspect.signature(WandbSettings).parameters),
]
"""What can be misspelt outside of model and data."""
OBSERVERS = ("PeakMemory", "Snapshots", "StableRank", "TimeToPSNR")
"""Callbacks of ours that are there to be named."""


def root_message(error: BaseException) -> str:
    """What a constructor said, without what jsonargparse put around it."""
    while True:
        inner = error.__cause__ or error.__context__
        if isinstance(inner, MisconfigurationException):  # what a callback of Lightning refuses
            return str(inner)
        if isinstance(error, InputError) or not isinstance(inner, ValueError):
            return str(error) if isinstance(error, InputError) else explain(str(error))
        error = inner


def explain(message: str) -> str:
    """The parser's message as one paragraph, with the nearest names for what it does not know."""
    # jsonargparse also tries the base class in the place of a callback
    message = re.sub(r"Problem with given class_path 'lightning\.Callback':\s+Option '\w+' is not accepted", "", message)
    owner = re.findall(r"Problem with given class_path '([\w.]+)'", message)
    unknown = re.search(r"Option '([\w.+]+)' is not accepted|[Kk]ey '([\w.]+)' is not expected", message)
    if owner and unknown:
        word = next(group for group in unknown.groups() if group)
        cls: Any = pydoc.locate(owner[-1])
        allowed = list(inspect.signature(cls).parameters)
        return f"{cls.__name__} has no argument {word!r}{did_you_mean(word, allowed) or '.'} It takes: {', '.join(allowed)}"
    missing = re.search(r"the following arguments are required: ([\w, ]+)", message)
    if owner and missing:
        return f"{owner[-1].rpartition('.')[2]} needs {missing[1].strip()}"
    unknown_class = re.search(r"trainer\.callbacks.*Expected a dot import path string: (\w+)", message, re.DOTALL)
    if unknown_class:
        near = did_you_mean(unknown_class[1], [cls.__name__ for cls in _subclasses(Callback)]) or "."
        return f"unknown callback {unknown_class[1]!r}{near} Ours: {', '.join(OBSERVERS)}"
    option = re.search(r"[Uu]nrecognized arguments?: (--[\w.]+)", message) or re.search(
        r"[Kk]ey '(?:\w+\.)?([\w.]+)' is not expected", message
    )
    if option:
        near = did_you_mean(option[1], OPTIONS) if option[1].startswith("--") else ""
        return f"unknown option {option[1]!r}{near or '.'} pe-lightning VERB --help lists the options"
    lines = [line.strip(" -") for line in message.splitlines()]
    place = next((place for place, line in enumerate(lines) if line.startswith("Expected a")), None)
    if place is not None:
        keys = [key for line in lines[:place] for key in re.findall(r'Parser key "([\w.]+)"', line)]
        wanted, _, given = lines[place].partition(". Got value: ")
        later = [line[13:] for line in lines[place:] if line.startswith("Given value: ") and "NestedArg" not in line]
        wanted = re.sub(r"a typing\.Literal\[(.*)\]", r"one of \1", wanted.replace("Expected", "expected"))
        wanted = re.sub(r"\ba (?:<class ')?(?:\w+\.)*(\w+)'?>?$", r"\1", wanted)
        return f"{'.'.join(dict.fromkeys(keys))}: {wanted}, got {given or next(iter(later), 'something else')}"
    noise = ("Does not validate against any of the Union subtypes", "Subtypes:", "Errors:")
    return " ".join(line for line in lines if line and not line.startswith(noise))


def _subclasses(base: type[Any]) -> list[type[Any]]:
    return [found for cls in base.__subclasses__() for found in (cls, *_subclasses(cls))]

"""From a checkpoint to the command line that made it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from pe_lightning import runs
from pe_lightning.errors import InputError

__all__ = ["complete_arguments", "option_value", "read_model", "refuse_other_options"]

NEEDS_CHECKPOINT = ("validate", "test", "predict")
OUTPUT_GRID = "pe_lightning.data.output.OutputGrid"
KEPT = ("seed_everything", "data")
"""What evaluating a checkpoint takes from the configuration of its run; the model is the checkpoint's own."""


def read_model(path: str | Path) -> dict[str, Any]:
    """The model of a checkpoint as ``{"class_path": ..., "init_args": {...}}``.

    Raises:
        InputError: If the file is missing or is not a checkpoint of pe_lightning.
    """
    if not Path(path).is_file():
        raise InputError(f"no checkpoint at {str(path)!r}; a run keeps its own in checkpoints/last.ckpt")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        saved = dict(checkpoint["hyper_parameters"])
        return {"class_path": saved.pop("_class_path"), "init_args": saved}
    except (RuntimeError, EOFError, OSError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{str(path)!r} is not a checkpoint of pe_lightning ({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error


MEMORY_OPTIONS = ("signals_per_batch", "points_per_chunk")
"""Arguments of models that change memory and time, and no result."""


def complete_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Adds what the checkpoint and its run's configuration know, ahead of the given arguments, which thus win.

    Raises:
        InputError: If the verb needs a checkpoint and none is given, or it cannot be read.
    """
    if any(argument in ("-h", "--help") or argument.startswith("--print_config") for argument in arguments):
        return list(arguments)
    path = option_value(arguments, "--ckpt_path")
    if path is None:
        if verb in NEEDS_CHECKPOINT:
            raise InputError(f"{verb} needs a checkpoint: pe-lightning {verb} --ckpt_path RUN/checkpoints/last.ckpt")
        return list(arguments)
    known: dict[str, Any] = {"model": read_model(path)}
    if verb == "fit":
        return ["--config", json.dumps(known), *arguments]
    if verb == "predict":
        shape, arguments = _take_sizes(arguments)
        form, arguments = _take_option(arguments, "--output_format")
        output = {"output_shape": shape, "output_format": form or "auto"}
        known["data"] = {"class_path": OUTPUT_GRID, "init_args": output}
        return ["--config", json.dumps(known), *arguments]
    config = runs.of_checkpoint(path) / runs.CONFIG
    if option_value(arguments, "--config") is None and option_value(arguments, "-c") is None and config.is_file():
        saved = yaml.safe_load(config.read_text())
        known |= {key: saved[key] for key in KEPT if key in saved}
    return ["--config", json.dumps(known), *arguments]


def option_value(arguments: Sequence[str], option: str) -> str | None:
    """The value of ``option`` in ``--option value`` or ``--option=value``; the last one counts."""
    value = None
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            value = arguments[place + 1]
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
    return value


def _take_option(arguments: Sequence[str], option: str) -> tuple[str | None, list[str]]:
    """Takes ``option VALUE`` or ``option=VALUE`` out of the arguments."""
    value, rest, pending = None, [], list(arguments)
    while pending:
        argument = pending.pop(0)
        if argument == option:
            if not pending:
                raise InputError(f"{option} needs a value")
            value = pending.pop(0)
        elif argument.startswith(f"{option}="):
            value = argument.partition("=")[2]
        else:
            rest.append(argument)
    return value, rest


def _take_sizes(arguments: Sequence[str]) -> tuple[list[int] | None, list[str]]:
    """Takes ``--output_shape N [N ...]`` out of the arguments."""
    rest, sizes = [], None
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        option, equals, value = argument.partition("=")
        if option != "--output_shape":
            rest.append(argument)
            continue
        words = [value] if equals else []
        while pending and not pending[0].startswith("--"):
            words.append(pending.pop(0))
        try:
            sizes = [int(word) for word in " ".join(words).replace(",", " ").strip("[] ").split()]
        except ValueError as error:
            raise InputError(f"--output_shape takes one whole number per axis, got {' '.join(words)!r}") from error
        if not sizes or min(sizes) < 1:
            raise InputError(f"--output_shape takes one size >= 1 per axis, got {' '.join(words)!r}")
    return sizes, rest


def refuse_other_options(path: str, model: dict[str, Any]) -> None:
    """Raises :class:`InputError` if the configured model is not the one in the checkpoint."""
    saved = read_model(path)
    if model["class_path"].rpartition(".")[2] != saved["class_path"].rpartition(".")[2]:
        raise InputError(
            f"the checkpoint {path!r} holds a {saved['class_path'].rpartition('.')[2]}, "
            f"--model asks for a {model['class_path'].rpartition('.')[2]}; leave --model out"
        )
    for key, value in saved["init_args"].items():
        asked = model["init_args"].get(key)
        if key not in MEMORY_OPTIONS and _plain(asked) != _plain(value):
            raise InputError(
                f"the checkpoint {path!r} was fitted with {key} {_spell(value)}, --model.{key} asks for {_spell(asked)}; "
                "leave the option out, or name another checkpoint"
            )


def _plain(value: Any) -> Any:
    """Class paths by their last word (a class can be imported from several places), containers recursively."""
    if isinstance(value, dict):
        return {
            key: entry.rpartition(".")[2] if key == "class_path" else _plain(entry)
            for key, entry in value.items()
            if entry is not None
        }
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def _spell(value: Any) -> str:
    if isinstance(value, dict) and "class_path" in value:
        arguments = {key: entry for key, entry in (value.get("init_args") or {}).items() if entry is not None}
        return f"{value['class_path'].rpartition('.')[2]}({', '.join(f'{k}={v}' for k, v in arguments.items())})"
    return repr(value)

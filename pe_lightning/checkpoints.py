"""From a checkpoint to the command line that made it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from pe_lightning import __version__, runs
from pe_lightning.errors import InputError

__all__ = ["VERSION_KEY", "complete_arguments", "read_checkpoint", "read_model", "refuse_other_version"]

VERSION_KEY = "pe_lightning/version"
"""Where a checkpoint says which version of this package wrote it."""


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """A checkpoint as it was saved.

    Raises:
        InputError: If the file is missing, is no checkpoint of Lightning, or was written by a version with other parameters.
    """
    if not Path(path).is_file():
        raise InputError(f"no checkpoint at {str(path)!r}; a run keeps its own in checkpoints/last.ckpt")
    try:
        checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        checkpoint = {"hyper_parameters": {}, **checkpoint, "state_dict": checkpoint["state_dict"]}
    except (RuntimeError, EOFError, OSError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{str(path)!r} is not a checkpoint of pe_lightning, or is damaged ({type(error).__name__} while it was read)"
        ) from error
    if "_class_path" in checkpoint["hyper_parameters"]:  # of a model of ours
        refuse_other_version(checkpoint, str(path))
    return checkpoint


def refuse_other_version(checkpoint: Mapping[str, Any], path: str = "the checkpoint") -> None:
    """Checks that the parameters of a checkpoint mean the same in this version: versions ``a.b.c`` with the same ``a.b``.

    Raises:
        InputError: If it was written by another version.
    """
    written = str(checkpoint.get(VERSION_KEY, "0.1.0"))  # the first version did not write its number
    if written.split(".")[:2] != __version__.split(".")[:2]:
        raise InputError(
            f"{path!r} was written by pe_lightning {written}, this is {__version__}: fit again with the config.yaml of its "
            f"run, or install that version (pip install pe-lightning=={written})"
        )


def read_model(path: str | Path) -> dict[str, Any] | None:
    """The model of a checkpoint as ``{"class_path": ..., "init_args": {...}}``; ``None`` if the checkpoint does not name it.

    Raises:
        InputError: If the checkpoint cannot be read.
    """
    arguments = dict(read_checkpoint(path)["hyper_parameters"])
    name = arguments.pop("_class_path", None)
    return None if name is None else {"class_path": name, "init_args": arguments}


def complete_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Adds what the checkpoint and its run's configuration know, ahead of the given arguments, which thus win.

    Raises:
        InputError: If the verb needs a checkpoint and none is given, or it cannot be read.
    """
    if any(argument in ("-h", "--help") or argument.startswith("--print_config") for argument in arguments):
        return list(arguments)
    path = _value_of(arguments, "--ckpt_path")
    if path is None:
        if verb != "fit":
            raise InputError(f"{verb} needs a checkpoint: pe-lightning {verb} --ckpt_path RUN/checkpoints/last.ckpt")
        return list(arguments)
    known: dict[str, Any] = {}
    config = runs.of_checkpoint(path) / runs.CONFIG
    model = read_model(path)
    if verb != "fit" and not (_value_of(arguments, "--config") or _value_of(arguments, "-c")) and config.is_file():
        # predict needs no data; a model that the checkpoint does not name is the one of the run
        keys = ("model",) if verb == "predict" else ("model", "data", "seed_everything")
        saved = yaml.safe_load(config.read_text())
        known = {key: saved[key] for key in keys if key in saved}
    if model is not None:
        known["model"] = model
    return ["--config", json.dumps(known), *arguments]


def _value_of(arguments: Sequence[str], option: str) -> str | None:
    """The value in ``--option value`` or ``--option=value``; the last one counts."""
    value = None
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if argument.partition("=")[0] == option:
            value = argument.partition("=")[2] or following
    return value

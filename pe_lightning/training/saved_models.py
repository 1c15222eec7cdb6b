"""The models that checkpoints name, and their settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule

from pe_lightning.errors import InputError
from pe_lightning.registry import path_of
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import locate, read_checkpoint
from pe_lightning.results.config_files import read_config
from pe_lightning.training.base import models


def model_class(name: object) -> type[LightningModule]:
    """The class that a checkpoint names: a registered name, or the import path of a class that is not registered."""
    try:
        cls = models.get(str(name))
    except ValueError as error:  # of Python too, for a name that is no import path
        raise InputError(f"the checkpoint is of {name!r}, which cannot be made here: {error}") from error
    if not issubclass(cls, LightningModule):
        raise InputError(f"the checkpoint is of {name!r}, which is no LightningModule")
    return cls


def read_model(path: str | Path) -> dict[str, Any] | None:
    """The model of a checkpoint as ``{"class_path": ..., "init_args": {...}}``; ``None`` if it does not name one."""
    arguments = dict(read_checkpoint(path)["hyper_parameters"])
    name = arguments.pop("_class_path", None)
    return None if name is None else {"class_path": path_of(model_class(name)), "init_args": arguments}


def saved_settings(path: str | Path, verb: str, configured: bool) -> dict[str, Any]:
    """The sections of a configuration that a checkpoint and, unless ``configured`` otherwise, its run hold for a verb."""
    settings: dict[str, Any] = {}
    path = locate(path)
    config = runs.of_checkpoint(path) / runs.CONFIG
    model = read_model(path)
    if (verb == "fit" or not configured) and config.is_file():
        # predict needs no data; a model that the checkpoint does not name is the one of the run; a resumed fit has its seed
        keys = {"fit": ("seed_everything",), "predict": ("model",)}.get(verb, ("model", "data", "seed_everything"))
        saved = read_config(config)
        settings = {key: saved[key] for key in keys if key in saved}
    if model is not None:
        settings["model"] = model
    return settings

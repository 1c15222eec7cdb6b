"""Models and their settings read from files, and written as safetensors or without the state of the optimiser."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from pe_lightning.errors import InputError, require, say
from pe_lightning.registry import path_of
from pe_lightning.results import runs
from pe_lightning.results.checkpoint_files import LAST, locate, read_checkpoint
from pe_lightning.results.config_files import read_config
from pe_lightning.signals.files import check_outputs, user_path, write_atomically
from pe_lightning.training.base import models
from pe_lightning.training.checkpoints import METRICS_KEY

Format = Literal["safetensors", "checkpoint"]
FILES: Mapping[Format, str] = {"safetensors": "model.safetensors", "checkpoint": "model.ckpt"}
METADATA_KEY = "pe_lightning"
"""Where a safetensors file holds the settings of the model, as JSON."""
TENSOR = "pe_lightning/tensor"
"""Key of a tensor's name in this JSON."""


def export(run: Path, /, *, format: Format = "safetensors", out: Path | None = None, force: bool = False) -> int:
    """Writes the model of a run as safetensors, or without the state of the optimiser.

    safetensors holds the weights and what the model is; pe_lightning.load reads it back, and so does export with the
    format checkpoint.

      pe-lightning export runs/astronaut-ComplexLinear-gau/1 --out gau.safetensors

    Args:
        run: A run directory, a checkpoint, or a safetensors file.
        format: safetensors, or checkpoint (for predict and test, without the state of the optimiser).
        out: The file (default: exported/model.safetensors or .ckpt in the run directory).
        force: Replace the file if it exists; the file of the model is never replaced.
    """
    source = _file_of(run)
    path = out or runs.of_checkpoint(source) / "exported" / FILES[format]
    check_outputs([path], [source], force)
    checkpoint = read_weights(source)
    write_atomically(path, _safetensors(checkpoint) if format == "safetensors" else _saved(checkpoint).getvalue(), force)
    say(path)
    return 0


def load(path: str | Path) -> LightningModule:
    """The model of a run directory, a checkpoint or a safetensors file, on the CPU, ready for prediction.

    Example:
        >>> load("runs/astronaut-ComplexLinear-gau/1")(coords)  # doctest: +SKIP
    """
    source = _file_of(path)
    checkpoint = read_weights(source)
    arguments = checkpoint["hyper_parameters"]
    name = arguments.get("_class_path")
    if not isinstance(name, str):
        raise InputError(f"{str(source)!r} does not name its model, so that it cannot be made here")
    described = [key for key in ("optimizer", "lr_scheduler") if isinstance(arguments.get(key), Mapping)]
    if described and "_instantiator" not in arguments:
        raise InputError(
            f"{str(source)!r} describes {' and '.join(described)} in hyper_parameters, and lacks _instantiator there, by "
            "which Lightning makes objects of descriptions: leave them out, a model that is loaded takes no steps"
        )
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, and replaced
        return model_class(name).load_from_checkpoint(_saved(checkpoint), map_location="cpu", weights_only=True).eval()


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


def _file_of(path: str | Path) -> Path:
    found = user_path(path)
    if found.is_dir():
        found = found / runs.CHECKPOINTS / LAST
    if not found.is_file():
        raise InputError(f"no model at {str(path)!r}: give a run directory, its checkpoints/{LAST}, or a safetensors file")
    return found


def read_weights(path: str | Path) -> dict[str, Any]:
    """Weights and settings of a model, from a checkpoint or from a safetensors file of :func:`export`."""
    if (file := user_path(path)).suffix == ".safetensors":
        return _read_safetensors(file)
    kept = ("state_dict", "hyper_parameters", "pytorch-lightning_version")
    return {key: value for key, value in read_checkpoint(path).items() if key in kept or key.startswith("pe_lightning/")}


def _saved(checkpoint: Mapping[str, Any]) -> io.BytesIO:
    content = io.BytesIO()
    torch.save(dict(checkpoint), content)
    content.seek(0)
    return content


def _safetensors(checkpoint: Mapping[str, Any]) -> bytes:
    library = require("safetensors.torch", "this format")
    tensors: dict[str, Tensor] = {}
    plain = {key: _take_tensors(value, key, tensors) for key, value in checkpoint.items() if key != METRICS_KEY}
    content: bytes = library.save(tensors, {METADATA_KEY: json.dumps(plain)})
    return content


def _take_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A copy of nested values in which names replace the tensors, which are added to ``tensors``."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().clone().contiguous()  # a copy: encoders that axes share would be refused
        return {TENSOR: name}
    if isinstance(value, Mapping):
        return {key: _take_tensors(entry, f"{name}/{key}", tensors) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_tensors(entry, f"{name}/{place}", tensors) for place, entry in enumerate(value)]
    return value


def _put_tensors(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            return tensors[value[TENSOR]]
        return {key: _put_tensors(entry, tensors) for key, entry in value.items()}
    return [_put_tensors(entry, tensors) for entry in value] if isinstance(value, list) else value


def _read_safetensors(path: Path) -> dict[str, Any]:
    library = require("safetensors", "this format")
    try:
        with library.safe_open(path, framework="pt") as file:
            plain = json.loads((file.metadata() or {})[METADATA_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no dictionary)
        checkpoint: dict[str, Any] = _put_tensors(plain, tensors)
        return {"pytorch-lightning_version": lightning.__version__, **checkpoint}
    except KeyError as error:
        raise InputError(f"{str(path)!r} does not say what its model is: pe-lightning export did not write it") from error
    except (library.SafetensorError, ValueError, TypeError, OSError) as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from error

"""What a checkpoint says about its model, as plain values and in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pe_lightning.data.batches import SignalInfo
from pe_lightning.encoders import Encoder, registry
from pe_lightning.errors import InputError

__all__ = ["plain_encoder", "refuse_other_model", "shape_in_words"]


def plain_encoder(encoder: Encoder) -> dict[str, Any]:
    """The encoder as ``{"class_path": ..., "init_args": {...}}``, which :func:`pe_lightning.encoders.resolve` takes.

    Every argument is written, so that equal encoders have equal descriptions however they were spelt.
    """
    cls, given = type(encoder), encoder.given()
    arguments = {key: given.get(key, parameter.default) for key, parameter in registry.parameters(cls).items()}
    return {"class_path": f"{cls.__module__}.{cls.__qualname__}", "init_args": arguments}


def refuse_other_model(saved: Mapping[str, Any], asked: Mapping[str, Any], free: Collection[str]) -> None:
    """Compares the hyper-parameters of a checkpoint with those of the model that is to load it.

    Args:
        saved: Of the checkpoint.
        asked: Of the model.
        free: Those that may differ.

    Raises:
        InputError: If they are of another class, encoder or architecture.
    """
    # the class first: of another class, the other hyper-parameters differ anyway
    for key in ("_class_path", "encoder", *asked):
        if key not in free and key in saved and saved[key] != asked.get(key):
            raise InputError(
                f"the checkpoint holds {_in_words(key, saved[key])}, the model asked for is "
                f"{_in_words(key, asked.get(key))}; leave the option out, or name a checkpoint of that model"
            )


def shape_in_words(info: SignalInfo) -> str:
    """What two sets of signals must have in common for the parameters of one to fit the other."""
    return f"{info.num_signals} signal(s) of {info.num_axes} axes and {info.channels} channel(s)"


def _in_words(key: str, value: Any) -> str:
    if key == "_class_path":
        return f"a {str(value).rpartition('.')[2]}"
    if key != "encoder":
        return f"a model with {key}={value}"
    described = [_encoder_in_words(entry) for entry in (value if isinstance(value, list) else [value])]
    return f"encoder {', '.join(described)}"


def _encoder_in_words(plain: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value}" for name, value in plain["init_args"].items())
    return f"{plain['class_path'].rpartition('.')[2]}({arguments})"

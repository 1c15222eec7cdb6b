"""Trainable widths of the fixed encoders."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pe_lightning.encoders.base import Encoder, check_choice
from pe_lightning.errors import InputError

__all__ = ["Trained", "set_trainable"]


class Trained:
    """Descriptor of a positive argument: a number, or the exponential of a parameter if the encoder is ``trainable``.

    It is a class attribute with the name of the argument. The constructor calls :func:`set_trainable` and then assigns the
    initial value. The parameter ``log_<name>`` holds the logarithm.

    Args:
        each: Whether ``per_feature`` makes it one value per feature, ``(num_features,)``.
    """

    def __init__(self, each: bool = False) -> None:
        self.each = each

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, encoder: Encoder, owner: type) -> float | Tensor:
        log: Tensor | None = getattr(encoder, f"log_{self.name}", None)
        given: float | Tensor = encoder.__dict__[self.name] if log is None else log.exp()
        return given

    def __set__(self, encoder: Encoder, value: float) -> None:
        if getattr(encoder, "trainable", False):
            shape = (encoder.num_features,) if self.each and encoder.per_feature else ()
            start = torch.full(shape, math.log(value), dtype=torch.float32, device="cpu")
            encoder.register_parameter(f"log_{self.name}", nn.Parameter(start))
        else:
            encoder.__dict__[self.name] = value


def set_trainable(encoder: Encoder, trainable: bool, per_feature: bool) -> None:
    """Checks and sets both attributes of an encoder."""
    encoder.trainable = check_choice(encoder, "trainable", trainable, (False, True))
    encoder.per_feature = check_choice(encoder, "per_feature", per_feature, (False, True))
    if per_feature and not trainable:
        raise InputError(f"{type(encoder).__name__}: per_feature: true needs trainable: true")

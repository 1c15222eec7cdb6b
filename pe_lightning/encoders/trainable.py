"""Widths of the fixed encoders as parameters."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pe_lightning.encoders.base import Encoder, check_choice
from pe_lightning.errors import InputError

__all__ = ["Trained", "set_trainable"]


class Trained:
    """A positive argument of an encoder: a number, or where the encoder is ``trainable``, the exponential of a parameter.

    An attribute of the class, of the name of the argument. The constructor calls :func:`set_trainable` and then assigns the
    value to start from; the parameter is ``log_`` and the name.

    Args:
        each: Whether ``per_feature`` gives each feature a value of its own, ``(num_features,)``.
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
    """Sets both attributes of an encoder, after checking them."""
    encoder.trainable = check_choice(encoder, "trainable", trainable, (False, True))
    encoder.per_feature = check_choice(encoder, "per_feature", per_feature, (False, True))
    if per_feature and not trainable:
        raise InputError(f"{type(encoder).__name__}: per_feature: true is for what is trained; set trainable: true too")

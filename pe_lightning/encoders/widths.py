"""The argument that sets the width of features: given, by the rule, trained, scaled, or left to a solver."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pe_lightning.encoders.arguments import WidthLike
from pe_lightning.encoders.base import Encoder, EncoderLike, registry
from pe_lightning.errors import InputError


class PositiveParameter:
    """Attribute named as a width: its number, or the exponential of the parameter ``log_<name>`` where it is trained."""

    def __set_name__(self, owner: type[Encoder], name: str) -> None:
        self.name = name

    def __get__(self, encoder: Encoder, owner: type) -> float | Tensor:
        logarithm: Tensor | None = getattr(encoder, f"log_{self.name}", None)
        width: float | Tensor = vars(encoder)[self.name] if logarithm is None else logarithm.exp()
        return width

    def __set__(self, encoder: Encoder, value: float) -> None:
        vars(encoder)[self.name] = value


def set_width(
    encoder: Encoder, value: WidthLike, per_unit: float, trainable: bool = False, per_feature: bool = False
) -> None:
    """Sets the argument of :attr:`Encoder.width`: to the value, or to that of its rule for ``None`` and ``"auto"``.

    Args:
        encoder: The encoder, in its constructor.
        value: The given value.
        per_unit: Features per unit length, for the rule.
        trainable: Whether the width is trained.
        per_feature: Whether each feature has its own; a Fourier encoder has one width, and factors of the frequencies.
    """
    assert encoder.width is not None
    encoder.per_feature = per_feature
    if per_feature and not trainable:
        raise InputError(f"{type(encoder).__name__}: per_feature: true needs trainable: true")
    name = encoder.width.argument
    start = encoder.default_width(per_unit) if value is None or value == "auto" else value
    if trainable:
        shape = (encoder.num_features,) if per_feature and encoder.resolution else ()
        logarithm = torch.full(shape, math.log(start), dtype=torch.float32, device="cpu")
        encoder.register_parameter(f"log_{name}", nn.Parameter(logarithm))
    else:
        setattr(encoder, name, start)


def features_per_unit(encoder: Encoder) -> float:
    """Features per unit length of the axis, without those beyond its ends."""
    return encoder.resolution or float(encoder.resolved().get("num_features", encoder.num_features))


def widened(encoder: Encoder, samples: float, factor: float) -> Encoder:
    """The encoder with ``factor`` times the default width for ``samples`` per unit length; more is smoother.

    The default follows the distance of the features, or of the samples where they are fewer: narrower features would leave
    points between samples without any.
    """
    if encoder.width is None:
        return encoder
    default = encoder.default_width(min(features_per_unit(encoder), samples))
    return encoder.copy(**{encoder.width.argument: encoder.width.scaled(default, factor)})


def has_default_width(encoder: Encoder) -> bool:
    """Whether the encoder has a width and none is given."""
    return encoder.width is not None and encoder.arguments[encoder.width.argument] is None


def automatic(encoder: Encoder) -> str | None:
    """Name of the argument of the width, if it was given as ``"auto"``, which leaves it to a solver; else ``None``."""
    argument = None if encoder.width is None else encoder.width.argument
    return argument if encoder.arguments.get(argument or "") == "auto" else None


def automatic_width(encoder: EncoderLike | Sequence[EncoderLike]) -> EncoderLike | Sequence[EncoderLike]:
    """The encoder, or one per axis, with the width ``auto`` where all of them have a width and none is given."""
    many = isinstance(encoder, Sequence) and not isinstance(encoder, str)
    entries = [registry.resolve(entry) for entry in (encoder if many else [encoder])]  # type: ignore[arg-type, union-attr]
    if all(has_default_width(entry) for entry in entries):
        entries = [entry.copy(width="auto") for entry in entries]
    return entries if many else entries[0]

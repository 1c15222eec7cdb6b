"""One encoder for all axes, or one per axis or direction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pe_lightning.encoders.base import Encoder, EncoderLike, registry
from pe_lightning.errors import InputError


class ConfiguredEncoders:
    """The encoders of a model as configured: one for all axes, or several; networks are made from copies of them."""

    def __init__(self, encoder: EncoderLike | Sequence[EncoderLike]) -> None:
        self.one_for_all = isinstance(encoder, (str, Mapping, Encoder))
        given: Sequence[EncoderLike] = [encoder] if self.one_for_all else encoder  # type: ignore[assignment, list-item]
        self.entries: list[Encoder] = [registry.resolve(entry) for entry in given]

    @classmethod
    def of_axes(cls, encoders: Sequence[Encoder]) -> ConfiguredEncoders:
        """From one encoder per axis; one for all if all are the same object."""
        same = all(encoder is encoders[0] for encoder in encoders)
        return cls(encoders[0] if same else list(encoders))

    @classmethod
    def from_checkpoint(cls, specs: Sequence[Mapping[str, Any]], first_axes: Sequence[int]) -> ConfiguredEncoders:
        """From :meth:`specs` and :attr:`first_axes`."""
        made = [registry.resolve(spec) for spec in specs]
        return cls(made[0] if len(made) == 1 else [made[axis] for axis in first_axes])

    def copy(self) -> Encoder | list[Encoder]:
        return copy.deepcopy(self.entries[0] if self.one_for_all else self.entries)

    def specs(self) -> list[dict[str, Any]]:
        return [encoder.spec() for encoder in self.entries]

    @property
    def first_axes(self) -> list[int]:
        """First axis that uses each encoder: axes of equal sizes share theirs."""
        return [self.entries.index(encoder) for encoder in self.entries]


def per_axis(encoder: EncoderLike | Sequence[EncoderLike], num_axes: int) -> list[Encoder]:
    """One encoder per axis; a single one is shared by all axes, with its random and learned parameters."""
    if isinstance(encoder, Sequence) and not isinstance(encoder, str):
        if len(encoder) != num_axes:
            raise InputError(f"{len(encoder)} encoders were given for {num_axes} axes; give one, or one per axis")
        encoders = [registry.resolve(entry) for entry in encoder]
    else:
        encoders = [registry.resolve(encoder)] * num_axes
    for entry in encoders:
        if entry.num_axes != 1:
            raise InputError(
                f"encoder {entry.name!r} with num_axes={entry.num_axes} encodes axes together, and a linear layer has "
                "features of one axis at a time: leave num_axes out, or train a perceptron on the encoder, --model SimpleMLP"
            )
    return encoders


def changed(encoders: Sequence[Encoder], change: Callable[..., Encoder], *arguments: Sequence[float]) -> list[Encoder]:
    """``change(encoder, *arguments)`` per axis; axes with one encoder and equal arguments share the result."""
    new: dict[tuple[object, ...], Encoder] = {}
    keys = [(id(encoder), *values) for encoder, *values in zip(encoders, *arguments, strict=True)]
    for encoder, key in zip(encoders, keys, strict=True):
        if key not in new:
            new[key] = change(encoder, *key[1:])
    return [new[key] for key in keys]

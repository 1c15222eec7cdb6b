"""The encoders of a model as the user configured them, or as a fit resolved them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from pe_lightning.encoders import Encoder, EncoderLike, resolve
from pe_lightning.estimators.linear import automatic_width


class ConfiguredEncoders:
    """One encoder for all axes, or one per axis or direction; networks are made from copies of them.

    Args:
        encoder: An encoder, its name or its description; or a sequence of them.

    Attributes:
        entries: The encoders.
        one_for_all: Whether the single entry is for all axes.
    """

    def __init__(self, encoder: EncoderLike | Sequence[EncoderLike]) -> None:
        self.one_for_all = isinstance(encoder, (str, Mapping, Encoder))
        given: Sequence[EncoderLike] = [encoder] if self.one_for_all else encoder  # type: ignore[assignment, list-item]
        self.entries: list[Encoder] = [resolve(entry) for entry in given]

    @classmethod
    def per_axis(cls, encoders: Sequence[Encoder]) -> ConfiguredEncoders:
        """From one encoder per axis; axes that all have the same object have one for all."""
        same = all(encoder is encoders[0] for encoder in encoders)
        return cls(encoders[0] if same else list(encoders))

    @classmethod
    def from_checkpoint(cls, specs: Sequence[Mapping[str, Any]], first_axes: Sequence[int] | None) -> ConfiguredEncoders:
        """From :meth:`specs` and :attr:`first_axes`; ``None``: no axes share an encoder, as in older checkpoints."""
        made = [resolve(spec) for spec in specs]
        if len(made) == 1:
            return cls(made[0])
        return cls([made[axis] for axis in first_axes] if first_axes is not None else made)

    def with_automatic_widths(self) -> ConfiguredEncoders:
        """The encoders with the width ``auto`` where all of those that have a width are given none."""
        return ConfiguredEncoders(automatic_width(self.entries[0] if self.one_for_all else self.entries))

    def copy(self) -> Encoder | list[Encoder]:
        """An independent copy: the encoder for all axes, or the list."""
        return copy.deepcopy(self.entries[0] if self.one_for_all else self.entries)

    def specs(self) -> list[dict[str, Any]]:
        return [encoder.spec() for encoder in self.entries]

    @property
    def first_axes(self) -> list[int]:
        """First axis that uses each encoder: axes of equal sizes share theirs."""
        return [self.entries.index(encoder) for encoder in self.entries]

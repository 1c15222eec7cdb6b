"""Positions of tokens: an encoder's features added to them or set beside them, rotary positions, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder
from pe_lightning.encodings import Simple
from pe_lightning.encodings.base import EncoderList
from pe_lightning.errors import InputError
from pe_lightning.tasks.transformer import Rotary

__all__ = ["Combine", "PositionChoice", "Positions", "encoding_of"]

PositionChoice: TypeAlias = Encoder | Literal["rope", "none"]
"""An encoder; ``rope`` for rotary positions; ``none``. At run time names and descriptions of encoders are accepted too."""
Combine: TypeAlias = Literal["add", "concat"]
CALIBRATION = 4096
"""Positions, drawn at random, that the largest length of the features is taken from."""


def encoding_of(encoder: Encoder, samples: Sequence[float], width: int) -> Simple:
    """The simple encoding of positions by an encoder, whose open arguments follow the positions.

    ``num_features: auto`` becomes ``width``, divided among the axes; what else is ``auto`` follows the number of positions.
    Features without parameters are scaled to a length of at most one, that of the tokens that they are added to.

    Args:
        encoder: As it was configured.
        samples: Positions per unit length of each axis.
        width: Features that are wanted.

    Raises:
        InputError: If the encoder does not suit so many axes, or its width is to be chosen by an exact fit.
    """
    if argument := encoder.automatic():
        raise InputError(
            f"{encoder.name}: {argument}: auto is chosen by exact fits of signals; leave it out, or give a number"
        )
    joint, mean = encoder.joint, sum(samples) / len(samples)
    made = encoder.below_mlp(mean)
    made = made.for_samples(samples) if joint else made
    made = made.copy(num_features=width) if made.is_open else made
    encoding = Simple(made, len(samples))
    if not joint:  # the rule of a width follows the positions where they are fewer than the features
        encoding.encoders = EncoderList([each.sized(1 / mean, mean) for each in encoding.encoders])
    if not any(True for _ in encoding.parameters()):
        encoding.calibrate(torch.rand(CALIBRATION, len(samples), generator=torch.Generator().manual_seed(0)))
    return encoding


class Positions(nn.Module):
    """Gives tokens their positions.

    Features of another width than the tokens' pass a linear layer before they are added, as in the paper.

    Args:
        choice: An encoder, ``rope`` or ``none``.
        samples: Positions per unit length of each axis, ``D`` numbers.
        width: Features of a token.
        head_width: Features of a head, for ``rope``.
        combine: ``add``, or ``concat`` and a linear layer back to ``width``.

    Shape:
        tokens ``(B, T, width)``, positions ``(B or 1, T, D)`` in [0, 1] -> ``(B, T, width)``.

    Reference: Li et al., 2021, Eq. 9 and App. A.
    """

    def __init__(
        self, choice: PositionChoice, samples: Sequence[float], width: int, head_width: int, combine: Combine
    ) -> None:
        super().__init__()
        if combine not in ("add", "concat"):
            raise InputError(f"combine must be add or concat, got {combine!r}")
        self.combine = combine
        self.rotary = Rotary(head_width, samples) if choice == "rope" else None
        self.encoding = encoding_of(choice, samples, width) if isinstance(choice, Encoder) else None
        features = 0 if self.encoding is None else self.encoding.num_features
        wide = width + features if combine == "concat" else features
        self.project = nn.Linear(wide, width) if features and wide != width else None

    def angles(self, positions: Tensor) -> Tensor | None:
        """Rotary angles of positions; ``None`` without rotary positions."""
        return None if self.rotary is None else self.rotary(positions)

    def penalty(self) -> Tensor | float:
        """The sum of the encoders' auxiliary losses, ``()``."""
        return 0.0 if self.encoding is None else sum(encoder.penalty() for encoder in self.encoding.encoders)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The tokens with their positions; without an encoder as they are."""
        if self.encoding is None:
            return tokens
        features = self.encoding(positions)
        if self.combine == "concat":
            features = torch.cat([tokens, features.expand(*tokens.shape[:-1], -1)], -1)
        projected: Tensor = features if self.project is None else self.project(features)
        return tokens + projected if self.combine == "add" else projected

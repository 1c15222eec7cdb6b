"""Positions of tokens: features of an encoder added or concatenated to them, rotary positions, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn

from pe_lightning.encoders import Encoder, Samples, automatic, for_data
from pe_lightning.encodings import EncoderList, Simple
from pe_lightning.errors import InputError, check_known
from pe_lightning.registry import Described
from pe_papers.tasks.transformer import MixedRotary, Rotary

PositionChoice: TypeAlias = Described[Encoder]
"""An encoder, its name or its description; ``rope`` or ``rope_mixed`` for rotary positions, axial or mixed; ``none``."""
WITHOUT_FEATURES = ("rope", "rope_mixed", "none")
"""The choices that add no features to the tokens."""
Combine: TypeAlias = Literal["add", "concat"]


def encoding_of(encoder: Encoder, samples: Sequence[float], width: int) -> Simple:
    """The simple encoding of positions by an encoder, with the arguments resolved that were left to the data.

    ``num_features: auto`` becomes ``width``, divided among the axes; other arguments follow the number of positions.

    Args:
        encoder: The encoder as configured.
        samples: Positions per unit length of each axis.
        width: Number of features for ``auto``.
    """
    if argument := automatic(encoder):
        raise InputError(
            f"{encoder.name}: {argument}: auto is chosen by exact fits of signals; leave it out, or give a number"
        )
    sized = encoder.copy(num_features=width) if encoder.is_open else encoder
    known = Samples(tuple(samples), use="tokens")
    if encoder.joint:
        return Simple(for_data(sized, known), len(samples))
    encoding, per_axis = Simple(sized, len(samples)), Samples((known.mean,), use="tokens")
    encoding.encoders = EncoderList([for_data(each, per_axis) for each in encoding.encoders])
    return encoding


class Positions(nn.Module):
    """Adds positions to tokens.

    Features of another width than the tokens' pass a linear layer before they are added, as in the paper. The vectors that
    are added or concatenated are multiplied by :attr:`scale`, so that their mean length before training is 1, like the
    length of tokens, for every encoder.

    Args:
        choice: An encoder, ``rope``, ``rope_mixed`` or ``none``.
        samples: Positions per unit length of each axis, ``D`` numbers.
        width: Features of a token.
        heads: Number of heads, for rotary positions.
        depth: Number of blocks of the Transformer, for ``rope_mixed``.
        combine: ``add``, or ``concat`` and a linear layer back to ``width``.

    Shape:
        tokens ``(B, T, width)``, positions ``(B or 1, T, D)`` in [0, 1] -> ``(B, T, width)``.

    Reference: Li et al., 2021, Eq. 9 and App. A.
    """

    scale: Tensor
    """Factor of the features, ``()``: measured once before training, and stored in checkpoints."""

    def __init__(
        self, choice: PositionChoice, samples: Sequence[float], width: int, heads: int, depth: int, combine: Combine
    ) -> None:
        super().__init__()
        check_known("unknown combine", combine, get_args(Combine), "It is one of")
        self.combine = combine
        self.rotary: Rotary | MixedRotary | None = None
        if choice == "rope":
            self.rotary = Rotary(width // heads, samples)
        elif choice == "rope_mixed":
            self.rotary = MixedRotary(depth, heads, width // heads, samples)
        self.encoding = encoding_of(choice, samples, width) if isinstance(choice, Encoder) else None
        features = 0 if self.encoding is None else self.encoding.num_features
        wide = width + features if combine == "concat" else features
        self.project = nn.Linear(wide, width) if features and wide != width else None
        if self.project is not None and combine == "add":
            nn.init.zeros_(self.project.bias)
        self.register_buffer("scale", torch.ones(()))
        if self.encoding is not None:
            self._set_length_to_one(self.encoding, len(samples))

    @torch.no_grad()
    def _set_length_to_one(self, encoding: Simple, num_axes: int) -> None:
        """Sets :attr:`scale`, and the scale of tables, from the mean length at random positions."""
        # number of random positions over which the length of the features is measured
        positions = torch.rand(4096, num_axes, generator=torch.Generator().manual_seed(0))
        training = encoding.training
        encoding.eval()  # without dropout
        if not all(encoder.normalizable for encoder in encoding.encoders):
            # trained tables are scaled themselves: the optimiser's steps are relative to their entries, not to the scale.
            # The features may be sums of products of entries, so the factor is found iteratively
            # iterations that scale tables to features of mean length 1; each at least halves the logarithm of the length
            for _ in range(32):
                length = self._features(encoding, positions).norm(dim=-1).mean()
                for parameter in encoding.parameters():
                    parameter.mul_(length**-0.5)
        self.scale.copy_(1 / self._features(encoding, positions).norm(dim=-1).mean())
        encoding.train(training)

    def _features(self, encoding: Simple, positions: Tensor) -> Tensor:
        """Returns the vectors that are added or concatenated, ``(*batch, features)``."""
        features: Tensor = encoding(positions)
        features = features * self.scale.to(features.dtype)
        return features if self.combine == "concat" or self.project is None else self.project(features)

    def angles(self, positions: Tensor) -> Tensor | None:
        """Returns rotary angles ``(depth or 1, B, heads or 1, T, pairs)``; ``None`` without rotary positions."""
        return None if self.rotary is None else self.rotary(positions)

    def penalty(self) -> Tensor | float:
        """The sum of the encoders' auxiliary losses, ``()``."""
        return 0.0 if self.encoding is None else sum(encoder.penalty() for encoder in self.encoding.encoders)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The tokens with their positions; unchanged without an encoder."""
        if self.encoding is None:
            return tokens
        features = self._features(self.encoding, positions)
        if self.project is None or self.combine == "add":
            return tokens + features
        joined: Tensor = self.project(torch.cat([tokens, features.expand(*tokens.shape[:-1], -1)], -1))
        return joined

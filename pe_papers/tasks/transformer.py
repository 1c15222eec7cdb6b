"""A small Transformer: pre-norm blocks of attention and a perceptron, optionally with rotary positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pe_lightning.errors import InputError


class Rotary(nn.Module):
    r"""Angles of axial rotary positions in D dimensions: each axis rotates its own share of the pairs of a head.

    The pair ``d`` of axis ``a`` is rotated by :math:`p_a b^{-d/n}`, with ``n`` pairs per axis and the position :math:`p_a`
    in samples. The product of a rotated query and key depends on the difference of their positions alone.

    Args:
        head_width: Features of a head.
        samples: Positions per unit length of each axis, ``D`` numbers.

    Shape:
        ``(B, T, D)`` -> ``(1, B, 1, T, head_width / 2)``: the same for all blocks and heads.

    Reference: Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*, 2021; in axes as Heo et al.,
    *Rotary Position Embedding for Vision Transformer*, ECCV 2024.
    """

    def __init__(self, head_width: int, samples: Sequence[float]) -> None:
        super().__init__()
        self.frequencies: Tensor
        # longest over shortest wavelength of axial rotary positions: 6 samples to 600, for axes of tens of positions
        self.register_buffer("frequencies", _axial_frequencies(head_width, samples, 100.0), persistent=False)

    def forward(self, positions: Tensor) -> Tensor:
        """Returns the angles in radians."""
        return (positions.to(self.frequencies.dtype) @ self.frequencies.T)[None, :, None]


class MixedRotary(nn.Module):
    """Angles of mixed rotary positions in D dimensions: each pair has a trained frequency vector over all axes.

    Every block and head has its own frequencies. Their initial values are the axial ones, rotated for each head by a
    uniformly random rotation or reflection: of two axes, by an angle from the whole circle.

    Args:
        depth: Number of blocks.
        heads: Number of heads.
        head_width: Features of a head.
        samples: Positions per unit length of each axis, ``D`` numbers.

    Shape:
        ``(B, T, D)`` -> ``(depth, B, heads, T, head_width / 2)``.

    Reference: Heo et al., *Rotary Position Embedding for Vision Transformer*, ECCV 2024, Sec. 3.2 (RoPE-Mixed).
    """

    def __init__(self, depth: int, heads: int, head_width: int, samples: Sequence[float]) -> None:
        super().__init__()
        # the same ratio at the start of mixed rotary positions, as in Heo et al
        axial = _axial_frequencies(head_width, [1.0] * len(samples), 10.0)
        # of the QR decompositions of normal matrices, those with a positive diagonal are uniformly distributed
        q, r = torch.linalg.qr(torch.randn(depth, heads, len(samples), len(samples)))
        rotations = q * r.diagonal(dim1=-2, dim2=-1).sgn()[..., None, :]
        self.samples: Tensor
        self.register_buffer("samples", torch.tensor(list(samples)).float(), persistent=False)
        self.frequencies = nn.Parameter(axial @ rotations)

    def forward(self, positions: Tensor) -> Tensor:
        """Returns the angles in radians."""
        places = positions.to(self.frequencies.dtype) * self.samples
        return torch.einsum("btd,lhpd->lbhtp", places, self.frequencies)


def _axial_frequencies(head_width: int, samples: Sequence[float], base: float) -> Tensor:
    """Frequencies ``(head_width / 2, D)`` in radians per unit length; each pair is rotated by one axis."""
    pairs, axes = head_width // 2, len(samples)
    if head_width % 2 or pairs < axes:
        raise InputError(f"rope needs an even width / heads of at least {2 * axes} for {axes} axes, got {head_width}")
    counts = [pairs // axes + (axis < pairs % axes) for axis in range(axes)]
    decays = (base ** (-torch.arange(n, dtype=torch.float64)[:, None] / n) for n in counts)
    blocks: Tensor = torch.block_diag(*decays)  # type: ignore[no-untyped-call]
    return (blocks * torch.tensor(list(samples))).float()


def table(rows: int, width: int) -> nn.Embedding:
    """A table of trained vectors of mean squared length 1, like the position features that are added to them."""
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, 0, width**-0.5)
    return embedding


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotates the pairs ``(x_i, x_{i + h/2})`` of ``(B, heads, T, h)`` by the angles ``(B or 1, heads or 1, T, h/2)``."""
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attention(nn.Module):
    """Multi-head attention of tokens to themselves, or to a memory.

    Args:
        width: Features of a token.
        heads: Number of heads.

    Shape:
        ``(B, T, width)``, memory ``(B, M, width)`` -> ``(B, T, width)``.

    Reference: Vaswani et al., *Attention Is All You Need*, NeurIPS 2017; Li et al., 2021, Eqs. 7-8.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        angles: Tensor | None = None,
        memory_angles: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        """The output of each token.

        Args:
            x: The tokens of the queries.
            memory: The tokens of keys and values; ``None``: ``x``.
            angles: Rotary angles of ``x``; ``None``: no rotation.
            memory_angles: Rotary angles of the memory.
            causal: Whether token ``t`` attends only to tokens up to ``t``.
        """
        keys, values = self.key_value(x if memory is None else memory).chunk(2, -1)
        query, key, value = (
            each.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for each in (self.query(x), keys, values)
        )
        query = query if angles is None else rotate(query, angles)
        key_angles = angles if memory is None else memory_angles
        key = key if key_angles is None else rotate(key, key_angles)
        read = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        found: Tensor = self.out(read.transpose(-2, -3).flatten(-2))
        return found


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, cross: bool) -> None:
        super().__init__()
        self.attention, self.norm = Attention(width, heads), nn.LayerNorm(width)
        self.cross = Attention(width, heads) if cross else None
        self.cross_norm = nn.LayerNorm(width) if cross else None
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(
        self, x: Tensor, angles: Tensor | None, causal: bool, memory: Tensor | None, memory_angles: Tensor | None
    ) -> Tensor:
        x = x + self.attention(self.norm(x), angles=angles, causal=causal)
        if self.cross is not None and self.cross_norm is not None:
            x = x + self.cross(self.cross_norm(x), memory, angles, memory_angles)
        added: Tensor = x + self.mlp(x)
        return added


class Transformer(nn.Module):
    """A Transformer encoder; with ``causal`` a decoder, with ``cross`` the decoder of an encoder-decoder.

    Args:
        width: Features of a token.
        heads: Number of heads, which divides the width.
        depth: Number of blocks.
        causal: Whether a token attends only to itself and the tokens before it.
        cross: Whether each block also attends to a memory.

    Shape:
        ``(B, T, width)`` -> ``(B, T, width)``, normalised.
    """

    def __init__(self, width: int, heads: int, depth: int, causal: bool = False, cross: bool = False) -> None:
        super().__init__()
        if width % heads:
            raise InputError(f"heads must divide width; got {heads} and {width}")
        self.causal = causal
        self.blocks = nn.ModuleList(_Block(width, heads, cross) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, x: Tensor, angles: Tensor | None = None, memory: Tensor | None = None, memory_angles: Tensor | None = None
    ) -> Tensor:
        """The tokens after all blocks.

        Args:
            x: Tokens ``(B, T, width)``.
            angles: Rotary angles of each block, ``(depth or 1, B or 1, heads or 1, T, pairs)``; ``None``: no rotation.
            memory: Tokens that keys and values come from, ``(B, M, width)``; ``None``: ``x``.
            memory_angles: Rotary angles of the memory.
        """
        for index, block in enumerate(self.blocks):
            own, of_memory = (None if each is None else each[index % len(each)] for each in (angles, memory_angles))
            x = block(x, own, self.causal, memory, of_memory)
        found: Tensor = self.norm(x)
        return found

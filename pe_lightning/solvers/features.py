"""Raw features of the axes of a grid."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lightning.encoders import Encoder, interpolates, is_local, local_features
from pe_lightning.encoders.configured import changed
from pe_lightning.linalg import Identity, Operator, encode_axis

MAX_HOST_NUMBERS = 1 << 18
"""Features of an axis, samples times features, up to which LAPACK factorises them sooner than a GPU does."""


def encode(encoders: Sequence[Encoder], axes: Sequence[Tensor], device: torch.device) -> list[Operator]:
    """Raw features per axis in float64; axes with one encoder and equal coordinates share them."""
    if len(encoders) == 1 and is_local(encoders[0]):
        x = axes[0].to(device)
        if interpolates(encoders[0], x):
            return [Identity((len(x), len(x)), torch.float64, device)]
        return [local_features(encoders[0], x)]
    features: list[Operator] = []
    for a, (encoder, x) in enumerate(zip(encoders, axes, strict=True)):
        same = (b for b in range(a) if encoders[b] is encoder and torch.equal(axes[b], x))
        b = next(same, None)
        compact = encoder.support is not None
        features.append(encode_axis(encoder, x.to(device), compact) if b is None else features[b])
    return features


def on_host(
    encoders: Sequence[Encoder], axes: Sequence[Tensor], device: torch.device
) -> tuple[Sequence[Encoder], list[Tensor]]:
    """Encoders and coordinates ``(N_a,)`` of features to be factorised: on the CPU if these are few, else on the device.

    The device reads no number back then.
    """
    if any(len(x) * encoder.num_features > MAX_HOST_NUMBERS for encoder, x in zip(encoders, axes, strict=True)):
        return encoders, [x.to(device) for x in axes]

    def moved(encoder: Encoder) -> Encoder:
        elsewhere = any(part.device.type != "cpu" for part in (*encoder.parameters(), *encoder.buffers()))
        return copy.deepcopy(encoder).cpu() if elsewhere else encoder

    return changed(encoders, moved), [x.cpu() for x in axes]

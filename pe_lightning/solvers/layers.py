"""Computations on signals and channels of a grid, the layers, in groups that fit in the cache of a CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TypeAlias

import torch
from torch import Tensor

from pe_lightning.linalg.threads import side_by_side

LayerIndex: TypeAlias = tuple[slice, slice]

NUMBERS_AT_ONCE = 1 << 18
"""Numbers of the layers that a thread computes at once, about, so that they fit in the cache of a CPU."""


def by_layers(
    function: Callable[[LayerIndex], Sequence[Tensor]], shape: Sequence[int], device: torch.device
) -> list[Tensor]:
    """Results of a function for groups of layers, computed side by side, as one tensor ``(S, C, *)`` each.

    Layers ``(S, C, *sizes)`` of very many numbers are one group: all threads share their products. The function takes
    signals and channels of a group and returns tensors ``(s, c, *)``. It writes nothing that another group reads.
    """
    signals, channels, *sizes = shape
    numbers = math.prod(sizes)
    count = max(1, NUMBERS_AT_ONCE // max(1, numbers))
    everything = slice(None)
    if device.type != "cpu" or numbers > 1 << 22 or signals * channels <= count:
        return list(function((everything, everything)))
    if count >= channels:
        count //= channels
        groups = [(slice(start, start + count), everything) for start in range(0, signals, count)]
    else:
        some = [slice(start, start + count) for start in range(0, channels, count)]
        groups = [(slice(signal, signal + 1), part) for signal in range(signals) for part in some]
    results: list[Tensor] = []
    allocating = Lock()

    def compute(index: LayerIndex) -> None:
        parts = function(index)
        with allocating:
            if not results:
                results.extend(part.new_empty(signals, channels, *part.shape[2:]) for part in parts)
        for result, part in zip(results, parts, strict=True):
            result[index] = part

    side_by_side(compute, groups, device)
    return results


def sums(x: Tensor) -> Tensor:
    """Sums of the layers ``(s, c, *)`` in float64, ``(s, c)``."""
    return _reduced(x, partial(torch.sum, dim=-1, dtype=torch.float64))


def norms(x: Tensor) -> Tensor:
    """Euclidean norms of the layers ``(s, c, *)`` in float64, ``(s, c)``."""
    return _reduced(x, partial(torch.linalg.vector_norm, dim=-1, dtype=torch.float64))


def _reduced(x: Tensor, reduction: Callable[[Tensor], Tensor]) -> Tensor:
    if x.device.type != "cpu" or math.prod(x.shape[2:]) <= NUMBERS_AT_ONCE:
        return reduction(x.flatten(2))
    # a CPU converts what it reduces to float64, here one layer at a time
    return torch.stack([reduction(layer.flatten()) for signal in x for layer in signal]).reshape(x.shape[:2])

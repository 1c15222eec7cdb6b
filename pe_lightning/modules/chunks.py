"""Errors of a few signals at a time, so that what they take in memory is held for those only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from pe_lightning.data.batches import GridBatch, PointBatch
from pe_lightning.errors import InputError
from pe_lightning.modules.apart import per_signal

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["check_signals_per_batch", "squared_errors", "squared_errors_in_chunks"]


def check_signals_per_batch(count: int | None) -> int | None:
    """``count`` if it is ``None`` or an integer >= 1, else an :class:`InputError`."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise InputError(f"signals_per_batch must be an integer >= 1, or null for all signals at once; got {count!r}")
    return count


def squared_errors(module: CoordinateModule, batch: GridBatch | PointBatch) -> Tensor:
    """The sum of squared errors of each signal, ``(S,)``, from the errors of all of them."""
    errors = module.errors(batch)
    # a dot product per signal: one pass over the errors, forward and backward; in full precision, as half of it
    # overflows at 65504
    with torch.autocast(errors.device.type, enabled=False):
        return torch.bmm(errors.unsqueeze(1), errors.unsqueeze(2)).reshape(-1)


def squared_errors_in_chunks(module: CoordinateModule, batch: GridBatch | PointBatch, count: int) -> Tensor:
    """As :func:`squared_errors`, ``count`` signals at a time.

    What autograd needs is computed once more, chunk by chunk, when gradients are: a third more operations.
    """
    errors = _Errors(module)
    named = {f"module.{name}": tensor for name, tensor in per_signal(module)}

    def some(first: int) -> Tensor:
        part = slice(first, first + count)
        own = {name: tensor[part] for name, tensor in named.items()}
        squared: Tensor = functional_call(errors, own, (_take(batch, part),))
        return squared

    signals = batch.values.shape[0]
    # nothing is drawn at random in between
    parts = [checkpoint(some, first, use_reentrant=False, preserve_rng_state=False) for first in range(0, signals, count)]
    return torch.cat(parts)


class _Errors(nn.Module):
    """Lets another method than ``forward`` be called with other parameters."""

    def __init__(self, module: CoordinateModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: GridBatch | PointBatch) -> Tensor:
        return squared_errors(self.module, batch)


def _take(batch: GridBatch | PointBatch, part: slice) -> GridBatch | PointBatch:
    """The batch of some signals."""
    if isinstance(batch, GridBatch):
        return replace(batch, values=batch.values[part])
    index = batch.index if batch.index is None or len(batch.index) == 1 else batch.index[part]
    coords = batch.coords if len(batch.coords) == 1 else batch.coords[part]
    return replace(batch, values=batch.values[part], coords=coords, index=index)

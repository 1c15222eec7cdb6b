"""Arrays already in memory as signals."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from pe_lightning.data.datamodule import SignalDataModule
from pe_lightning.data.dataset import BatchKind
from pe_lightning.data.sampling import Sampling
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.sources.tensor import TensorSource
from pe_lightning.data.splits import Protocol

__all__ = ["TensorDataModule"]


class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``: signals, samples along each axis, channels. Floating point in [0, 1], kept as
            float32; or uint8 or uint16, divided by 255 or 65535. It is copied.
        names: One name per signal, distinct and usable as file names; ``signal0``, ``signal1``, ... by default.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th) or ``random`` (a ``fraction``).
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``.
        batch: What one step sees: ``full``, ``points`` or ``blocks`` (:class:`SignalDataModule`).
        batch_size: Points per signal, or trained samples of a block per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100, or one pass over points or blocks.

    Raises:
        InputError: If the array has another layout or dtype, values that are not finite or outside [0, 1], or the
            names do not fit.

    Example:
        >>> import torch
        >>> data = TensorDataModule(torch.rand(1, 64, 64, 3), sampling="random")
        >>> tuple(data.train_batch().values.shape)
        (1, 1024, 3)
    """

    def __init__(
        self,
        values: Tensor | np.ndarray[Any, Any],
        names: list[str] | None = None,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batch: BatchKind = "full",
        batch_size: int | list[int] | None = None,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__(sampling, protocol, batch, batch_size, shuffle, steps_per_epoch, in_memory=True)
        self._source = TensorSource(values, names)

    def read(self) -> RawSignals:
        """The array and the names; nothing is decoded."""
        return self._source.read()

    def describe_source(self) -> dict[str, Any]:
        """There is no file."""
        return self._source.describe()

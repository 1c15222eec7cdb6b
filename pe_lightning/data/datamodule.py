"""The base of all DataModules: a set of signals in memory, split into trained and held-out samples."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.coordinates import grid_axes, point_coordinates
from pe_lightning.data.sampling import Sampling, resolve
from pe_lightning.data.splits import GridSplit, PointSplit, Protocol, Split, check_protocol
from pe_lightning.errors import InputError

__all__ = ["Repeat", "SignalDataModule"]

B = TypeVar("B")


class Repeat(Generic[B]):
    """The same batch, ``times`` times an epoch: a full-batch loader that costs nothing per step."""

    def __init__(self, batch: B, times: int = 1) -> None:
        self.batch = batch
        self.times = times

    def __iter__(self) -> Iterator[B]:
        return itertools.repeat(self.batch, self.times)

    def __len__(self) -> int:
        return self.times

    def state_dict(self) -> dict[str, Any]:
        """Nothing: every batch is the same one. Its presence tells Lightning that a fit can resume within an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes what :meth:`state_dict` gave."""


class SignalDataModule(LightningDataModule, ABC):
    """A set of signals of one shape, fitted together, held in memory.

    A subclass defines :meth:`load`, and :meth:`describe_source` if it has anything to say; it must not decode anything
    in its constructor. Data is loaded and checked once per process, by the first of :meth:`prepare_data`,
    :meth:`setup` and :meth:`prepare` to be called.

    Args:
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th) or ``random`` (a ``fraction``).
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``. ``rest`` of nothing is ``none``, with a notice.
        steps_per_epoch: Optimiser steps that make one epoch; each sees all trained samples.

    Attributes:
        values: ``(S, N_1, ..., N_D, C)`` float32 in [0, 1], after loading.
        info: Names, grid and channels, after loading.
        split: The trained samples, after loading.
    """

    def __init__(self, sampling: Sampling | str = "grid", protocol: Protocol = "rest", steps_per_epoch: int = 100) -> None:
        super().__init__()
        check_protocol(protocol)
        if isinstance(steps_per_epoch, bool) or not isinstance(steps_per_epoch, int) or steps_per_epoch < 1:
            raise InputError(f"steps_per_epoch must be an integer >= 1, got {steps_per_epoch!r}")
        self.sampling = resolve(sampling)
        self.protocol = protocol
        self.steps_per_epoch = steps_per_epoch
        self._values: Tensor | None = None
        self._device_copies: dict[tuple[int, torch.device], GridBatch | PointBatch] = {}

    # -- what a subclass defines ------------------------------------------------------------------------------------

    @abstractmethod
    def load(self) -> tuple[Tensor, Sequence[str]]:
        """Reads the signals.

        Returns:
            ``(S, N_1, ..., N_D, C)`` float32 values in [0, 1] on the CPU, and ``S`` distinct names.

        Raises:
            InputError: If the source cannot be read.
        """

    def describe_source(self) -> dict[str, Any]:
        """Plain values that say where the signals come from, for ``metrics.json``."""
        return {}

    # -- loading ----------------------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Loads and checks the data, so that bad input fails before anything else happens."""
        self.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Loads the data unless this process already has; the same for every ``stage``."""
        self.prepare()

    def prepare(self) -> None:
        """Loads, checks and splits the signals, once.

        Raises:
            InputError: If the source cannot be read, or the sampling or protocol does not suit the signals.
        """
        if self._values is not None:
            return
        values, names = self.load()
        if len(names) != len(values):
            raise InputError(f"{type(self).__name__}.load returned {len(values)} signals but {len(names)} names")
        info = SignalInfo(tuple(names), tuple(values.shape[1:-1]), values.shape[-1])
        if min(info.grid) < 2:
            sizes = "x".join(map(str, info.grid))
            raise InputError(f"the signals have {sizes} samples; at least 2 are needed on each axis")
        split = self.sampling.split(info.grid, info.num_signals)
        test_mask = split.test_mask(self.protocol)
        # Only now, when nothing can fail any more: a failed attempt leaves no half-loaded state behind.
        self._info, self._split, self._test_mask, self._values = info, split, test_mask, values
        if self.effective_protocol != self.protocol:
            rank_zero_info(
                f"Every sample is trained on, so protocol {self.protocol!r} has nothing to score: it is taken as "
                f"'none', and there is no test PSNR. Hold samples out (now: {self.sampling!r}), or set protocol: all."
            )

    @property
    def values(self) -> Tensor:
        """``(S, N_1, ..., N_D, C)`` float32 in [0, 1]."""
        self.prepare()
        assert self._values is not None
        return self._values

    @property
    def info(self) -> SignalInfo:
        """Names, grid and channels of the signals."""
        self.prepare()
        return self._info

    @property
    def split(self) -> Split:
        """The trained samples."""
        self.prepare()
        return self._split

    @property
    def effective_protocol(self) -> Protocol:
        """The protocol in force: ``none`` where the one that was asked for leaves nothing to score."""
        self.prepare()
        return self.protocol if bool(self._test_mask.any()) else "none"

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any value, the shape or the trained samples."""
        digest = hashlib.sha256()
        for tensor in (self.values, *self.split.train_indices):
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
            digest.update(tensor.contiguous().numpy().data.cast("B"))
        return digest.hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """What the data is, as plain values, for ``metrics.json``."""
        return {
            **self.describe_source(),
            **self.info.to_dict(),
            "sampling": self.sampling.spec(),
            "protocol": self.effective_protocol,
            "fingerprint": self.fingerprint,
        }

    # -- batches ----------------------------------------------------------------------------------------------------

    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples, a sub-grid or points with their positions in the grid; always the same object."""
        return self._train_batch

    def evaluation_batch(self) -> GridBatch:
        """The whole grid, with the masks of scored and of trained samples; always the same object."""
        return self._evaluation_batch

    @cached_property
    def _train_batch(self) -> GridBatch | PointBatch:
        values, split, axes = self.values, self.split, grid_axes(self.info.grid)
        if isinstance(split, GridSplit):
            chosen = tuple(axis[index] for axis, index in zip(axes, split.index, strict=True))
            return GridBatch(chosen, split.take(values))
        if isinstance(split, PointSplit):
            return PointBatch(point_coordinates(axes, split.index), split.take(values), axes, split.index)
        raise TypeError(f"{self.sampling!r} made a {type(split).__name__}; a split is a GridSplit or a PointSplit")

    @cached_property
    def _evaluation_batch(self) -> GridBatch:
        values, train_mask = self.values, self.split.train_mask()
        return GridBatch(grid_axes(self.info.grid), values, self._test_mask, train_mask)

    def train_dataloader(self) -> Repeat[GridBatch | PointBatch]:
        """The training batch, ``steps_per_epoch`` times."""
        return Repeat(self.train_batch(), self.steps_per_epoch)

    def val_dataloader(self) -> Repeat[GridBatch]:
        """The evaluation batch, once."""
        return Repeat(self.evaluation_batch())

    def test_dataloader(self) -> Repeat[GridBatch]:
        """The evaluation batch, once."""
        return Repeat(self.evaluation_batch())

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copies each of our two batches to a device once and hands out that copy ever after.

        On the CPU it is the batch itself. Any other batch is left to Lightning.
        """
        if not any(batch is own for own in (self.__dict__.get("_train_batch"), self.__dict__.get("_evaluation_batch"))):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        if batch.values.device == device:
            return batch
        key = (id(batch), device)  # our batches live as long as this object, so an id stands for one of them
        if key not in self._device_copies:
            self._device_copies[key] = super().transfer_batch_to_device(batch, device, dataloader_idx)
        return self._device_copies[key]

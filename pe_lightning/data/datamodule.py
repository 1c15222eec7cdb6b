"""The base of all DataModules: a set of signals, in memory or in a file, split into trained and held-out samples."""

from __future__ import annotations

import hashlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.dataset import BatchKind, SignalDataset, check_batches, to_device
from pe_lightning.data.loaders import Repeat, TrainLoader
from pe_lightning.data.opening import check_storage, fits_in_memory, open_signals
from pe_lightning.data.sampling import Sampling, resolve
from pe_lightning.data.signals import RawSignals
from pe_lightning.data.splits import GridSplit, Protocol, Split, check_protocol
from pe_lightning.data.streams import EvaluationStream
from pe_lightning.data.values import FileValues, load, unit_slabs
from pe_lightning.distributed import Process
from pe_lightning.errors import InputError

__all__ = ["SignalDataModule"]


class SignalDataModule(LightningDataModule, ABC):
    """A set of signals of one shape, fitted together.

    A subclass defines :meth:`read`, :meth:`describe_source` and, if it decodes files, :meth:`source_files`; it must not
    decode anything in its constructor. Signals that fit in a quarter of the free memory are loaded, once per process, by
    the first of :meth:`prepare_data`, :meth:`setup` and :meth:`prepare` to be called; larger ones stay in their file.

    Args:
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``all``, or ``none``. ``rest`` of nothing is ``none``, with a notice.
        batch: What one step sees: ``full`` (all trained samples), ``points`` (``batch_size`` random ones) or ``blocks``
            (a part of the trained grid).
        batch_size: For ``points``, how many per signal, of all processes together; for ``blocks``, the trained samples of
            a block per axis, one number or one per axis.
        shuffle: Whether blocks come in random order.
        steps_per_epoch: Optimiser steps that make one epoch; by default 100 of ``full`` batches, else one pass over the
            trained samples.
        in_memory: Whether signals are loaded, or stay in their file and are read as they are needed.
        cache: ``auto`` keeps decoded signals for the next run, ``off`` does not.
        cache_dir: Where; by default ``PE_LIGHTNING_CACHE`` or ``~/.cache/pe_lightning``.

    Attributes:
        values: ``(S, N_1, ..., N_D, C)`` float32 in [0, 1], after loading.
        info: Names, grid and channels, after loading.
        split: The trained samples, after loading.
    """

    def __init__(
        self,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batch: BatchKind = "full",
        batch_size: int | list[int] | None = None,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
        in_memory: bool | Literal["auto"] = "auto",
        cache: Literal["auto", "off"] = "auto",
        cache_dir: str | None = None,
    ) -> None:
        super().__init__()
        check_protocol(protocol)
        check_batches(batch, batch_size, steps_per_epoch)
        check_storage(in_memory, cache)
        self.sampling = resolve(sampling)
        self.protocol = protocol
        self.batch: BatchKind = batch
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.steps_per_epoch = steps_per_epoch
        self.in_memory = in_memory
        self.cache: Literal["auto", "off"] = cache
        self.cache_dir = cache_dir
        self._info: SignalInfo | None = None
        self._own: tuple[slice, SignalDataset] | None = None
        self._device_copies: dict[tuple[int, torch.device], GridBatch | PointBatch] = {}

    # -- what a subclass defines ------------------------------------------------------------------------------------

    @abstractmethod
    def read(self) -> RawSignals:
        """Describes the signals; they are decoded later, and only if they have not been before.

        Raises:
            InputError: If the source cannot be read.
        """

    def source_files(self) -> Sequence[Path]:
        """The files that are decoded, whose content decides whether the cache is up to date; none if nothing is."""
        return ()

    def describe_source(self) -> dict[str, Any]:
        """Plain values that say where the signals come from, for ``metrics.json`` and the cache."""
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
            InputError: If the source cannot be read, or the sampling, protocol or batch does not suit the signals.
        """
        if self._info is not None:
            return
        source = {key: value for key, value in self.describe_source().items() if key != "paths"}
        parameters = {"kind": type(self).__name__, **source}
        raw = open_signals(self.read, self.source_files(), parameters, self.cache, self.cache_dir)
        info = SignalInfo(raw.names, raw.grid, raw.channels, raw.scaling, raw.rate, raw.media)
        if min(info.grid) < 2:
            sizes = "x".join(map(str, info.grid))
            raise InputError(f"the signals have {sizes} samples; at least 2 are needed on each axis")
        loaded = fits_in_memory(raw) if self.in_memory == "auto" else self.in_memory
        split = (self.sampling.split if loaded else self.sampling.stream)(info.grid, info.num_signals)
        split.test_mask_of(self.protocol, tuple(slice(0, 1) for _ in info.grid))  # refuses what does not suit
        if self.batch == "blocks" and not isinstance(split, GridSplit):
            raise InputError(f"batch: blocks are parts of a training grid; {self.sampling!r} makes none: set batch: points")
        if self.batch == "full" and not loaded:
            raise InputError(
                f"the signals stay in their file ({raw.nbytes / 1e9:.3g} GB as float32), so they cannot be one full batch: "
                "set --data.batch points or blocks, or --data.in_memory true"
            )
        everything = split.num_train == math.prod(info.grid)
        protocol: Protocol = "none" if self.protocol == "rest" and everything else self.protocol
        # Only now, when nothing can fail any more: a failed attempt leaves no half-loaded state behind.
        self._dataset = SignalDataset(load(raw) if loaded else FileValues(raw), split, protocol)
        self._raw, self._info = raw, info
        if protocol != self.protocol:
            rank_zero_info(
                f"Every sample is trained on, so protocol {self.protocol!r} has nothing to score: it is taken as "
                f"'none', and there is no test PSNR. Hold samples out (now: {self.sampling!r}), or set protocol: all."
            )

    @property
    def dataset(self) -> SignalDataset:
        """The batches."""
        self.prepare()
        return self._dataset

    @property
    def streamed(self) -> bool:
        """Whether the signals stay in their file."""
        return isinstance(self.dataset.values, FileValues)

    @property
    def values(self) -> Tensor:
        """``(S, N_1, ..., N_D, C)`` float32 in [0, 1].

        Raises:
            InputError: If the signals stay in their file.
        """
        return self.dataset.in_memory()

    @property
    def info(self) -> SignalInfo:
        """Names, grid and channels of the signals, and the way back to their source."""
        self.prepare()
        assert self._info is not None
        return self._info

    @property
    def split(self) -> Split:
        """The trained samples."""
        return self.dataset.split

    @property
    def effective_protocol(self) -> Protocol:
        """The protocol in force: ``none`` where the one that was asked for leaves nothing to score."""
        return self.dataset.protocol

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with any value, the shape or the trained samples."""
        info, digest = self.info, hashlib.sha256()
        digest.update(f"{(info.num_signals, *info.grid, info.channels)} {self.split.num_train};".encode())
        if self.streamed:
            for slab in unit_slabs(self._raw):
                digest.update(np.ascontiguousarray(slab).data.cast("B"))
        else:
            digest.update(self.values.contiguous().numpy().data.cast("B"))
        for tensor in self.split.train_indices:
            digest.update(tensor.contiguous().numpy().data.cast("B"))
        return digest.hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """What the data is, as plain values, for ``metrics.json``."""
        return {
            **self.describe_source(),
            **self.info.to_dict(),
            "sampling": self.sampling.spec(),
            "batch": self.batch,
            "streamed": self.streamed,
            "protocol": self.effective_protocol,
            "fingerprint": self.fingerprint,
        }

    # -- batches ----------------------------------------------------------------------------------------------------

    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples, a sub-grid or points with their positions in the grid; always the same object.

        Raises:
            InputError: If the signals stay in their file.
        """
        return self.dataset.train_batch

    def calibration_batch(self) -> GridBatch | PointBatch:
        """All trained samples, or points spread over the file: enough for means and the scales of features."""
        return self.dataset.calibration_batch()

    def evaluation_batch(self) -> GridBatch:
        """The whole grid, with the masks of scored and of trained samples; always the same object.

        Raises:
            InputError: If the signals stay in their file.
        """
        return self.dataset.evaluation_batch

    @property
    def process(self) -> Process:
        """This process, of those that train together."""
        trainer = self.trainer
        return Process() if trainer is None else Process(trainer.global_rank, trainer.world_size)

    def shard(self) -> tuple[SignalDataset, Process]:
        """What this process fits: its share of every batch, or, under the strategy ``signals``, signals of its own."""
        own = getattr(self.trainer.lightning_module, "shard", None) if self.trainer is not None else None
        if own is None:
            return self.dataset, self.process
        if self._own is None or self._own[0] != own:
            self._own = (own, self.dataset.of(own))
        return self._own[1], Process()

    def train_dataloader(self) -> TrainLoader:
        """The training batches of this process, on its device if the signals are in memory."""
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        # Lightning's seed_everything leaves the seed there; the order of the batches follows it
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
        part, process = self.shard()
        return part.train_loader(self.batch, self.batch_size, self.shuffle, self.steps_per_epoch, seed, process, device)

    def val_dataloader(self) -> Repeat[GridBatch] | EvaluationStream:
        """The whole grid, at once or in pieces."""
        part, process = self.shard()
        return part.evaluation_loader(process)

    def test_dataloader(self) -> Repeat[GridBatch] | EvaluationStream:
        """The whole grid, at once or in pieces."""
        return self.dataset.evaluation_loader(self.process)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copies the evaluation batch to a device once and hands out that copy ever after.

        What is there already is handed on as it is. Any other batch is left to Lightning.
        """
        if not isinstance(batch, (GridBatch, PointBatch)):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        datasets = [self.dataset] if self._own is None else [self.dataset, self._own[1]]
        whole = [vars(dataset).get(name) for dataset in datasets for name in ("train_batch", "evaluation_batch")]
        if not any(batch is known for known in whole):
            return to_device(batch, device)
        key = (id(batch), device)  # these live as long as this object, so an id stands for one of them
        if key not in self._device_copies:
            self._device_copies[key] = to_device(batch, device)
        return self._device_copies[key]

"""The DataModule of a set of signals from any source."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from pe_lightning.checks import choice, number
from pe_lightning.data.batches import GridBatch, PointBatch, SignalInfo
from pe_lightning.data.cache import CacheNotice, DamagedEntry, open_signals
from pe_lightning.data.dataset import PointDataset, SignalDataset, to_device
from pe_lightning.data.loaders import GridLoader, TrainLoader
from pe_lightning.data.options import Batching, Storage, ValidationShare
from pe_lightning.data.output import OutputGrid
from pe_lightning.data.sampling import FoldsLike, GridSampling, Sampling, make_folds, samplings
from pe_lightning.data.signals import Scaling
from pe_lightning.data.sources.base import Source, sources
from pe_lightning.data.splits import MIN_TRAINED_SAMPLES, GridSplit, PointSplit, Protocol, Split
from pe_lightning.data.values import FileValues, check_known, known_samples, load, unit_blocks
from pe_lightning.distributed import SIGNALS_STRATEGY, Process, rank_zero_info
from pe_lightning.errors import InputError
from pe_lightning.registry import Registry

__all__ = ["SignalDataModule", "datamodules"]

DEFAULT_VALIDATION = 0.1
"""Share of the trained samples that ``validation: auto`` holds out."""
WHOLE_BATCHES = ("train_batch", "evaluation_batch", "validation_batch")
"""Attributes of a dataset that hold all samples, and are copied to a device once."""


datamodules: Registry[LightningDataModule] = Registry(
    "DataModule", LightningDataModule, "pe_lightning.datamodules", modules=("pe_lightning.tasks",)
)
"""The names that ``--data`` and ``data:`` accept."""


@datamodules.register("SignalDataModule")
class SignalDataModule(LightningDataModule):
    """A set of signals of one shape, fitted together. Data is read when it is first needed.

    Args:
        source: Reads the signals: a source, its registered name, or ``{name: ..., **arguments}``.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        protocol: Which samples are scored: ``rest`` (all that are not trained on), ``odd`` (those whose index is odd on
            every axis; grid of stride 2 only), ``midpoints`` (halfway between trained ones on every axis; even strides),
            ``all``, or ``none``. ``rest`` of nothing is ``none``, with a notice.
        batching: Batches of training: a :class:`Batching`, or a mapping of its arguments.
        storage: Storage of the values: a :class:`Storage`, or a mapping of its arguments.
        folds: Scores every known sample while all of them are trained on, by fits of all folds but one: ``random``,
            ``blocks``, or a mapping of the arguments of :class:`~pe_lightning.data.sampling.FoldSampling`.
        validation: Share of the trained samples, at most 0.5, that is held out of training and gives the ``val/`` scores;
            the ``test/`` scores are then of samples that nothing was selected by. ``auto``: 0.1 where there are at least 8
            trained samples, in memory. ``0`` and ``None``: ``val/`` is of the samples of ``test/``; but in place of ``None``
            the command takes ``auto`` where ``val/`` scores decide when to stop, or change the rate.
    """

    def __init__(
        self,
        source: Source | str,
        sampling: Sampling | str = "grid",
        protocol: Protocol = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
        folds: FoldsLike | None = None,
        validation: ValidationShare | None = None,
    ) -> None:
        super().__init__()
        choice("protocol", protocol, Protocol)
        if validation is not None and validation not in (0, "auto"):
            number("validation", validation, "(0, 0.5]", hint=", such as 0.1, auto, or 0 for none")
        self.validation = validation
        self.source = sources.resolve(source)
        self.sampling = samplings.resolve(sampling)
        self.protocol = protocol
        self.batching = Batching(**batching) if isinstance(batching, Mapping) else batching
        self.storage = Storage(**storage) if isinstance(storage, Mapping) else storage
        self.folds = None if folds is None else make_folds(folds)
        if self.folds is not None and self.sampling == GridSampling():
            self.sampling = GridSampling(1)  # folds are of everything that is known
        self._info: SignalInfo | None = None
        self._shard: tuple[slice, SignalDataset] | None = None
        self._device_copies: dict[tuple[int, torch.device], GridBatch | PointBatch] = {}

    def prepare_data(self) -> None:
        """Loads and checks the data, so that bad input fails before the fit starts."""
        self.prepare()

    def setup(self, stage: str | None = None) -> None:
        """Loads the data unless it is loaded; the same for every ``stage``."""
        self.prepare()

    def prepare(self) -> None:
        """Loads, checks and splits the signals, once.

        Raises:
            InputError: If the source cannot be read, or the sampling, protocol or batching does not suit the signals.
        """
        if self._info is not None:
            return
        raw = open_signals(self.source, self.storage)
        scattered = raw.points is not None
        grid = tuple(axis.size for axis in raw.axes) if scattered else raw.grid
        info = SignalInfo(raw.names, grid, raw.channels, raw.scaling, raw.rate, raw.media, self.source.metric, raw.axes)
        info = replace(info, num_points=raw.grid[0]) if scattered else info
        if min(info.grid) < 2:
            raise InputError(f"the signals have {info.grid} samples; at least 2 are needed on each axis")
        loaded = scattered or self.storage.loads(raw)
        if scattered:
            split: Split = self.sampling.split_rows(raw.grid[0], info.num_signals)
        else:
            split = (self.sampling.split if loaded else self.sampling.stream)(raw.grid, info.num_signals)
        split.test_mask_of(self.protocol, tuple(slice(0, 1) for _ in raw.grid))  # raises if the protocol does not apply
        if not loaded and getattr(self.source, "missing", "nan") != "nan":
            raise InputError(
                "signals with missing samples are held in memory: set --data.in_memory true, or make them smaller (resize, "
                "center_crop, frames, length)"
            )
        if self.batching.kind == "full" and not loaded:
            raise InputError(
                f"the signals are read from their file ({raw.nbytes / 1e9:.3g} GB as float32), so they cannot be one full "
                "batch: set --data.batch points or blocks, or --data.in_memory true"
            )
        try:
            values = load(raw) if loaded else FileValues(raw)
        except DamagedEntry as error:
            warnings.warn(error.notice, CacheNotice, stacklevel=2)
            values = load(open_signals(self.source, self.storage))
        if isinstance(values, Tensor) and (known := known_samples(values)) is not None:
            check_known(known, info.names)
            split = self.sampling.split_known(raw.grid, info.num_signals, known)
            if split.num_train < 2:
                raise InputError(
                    f"{int(known.flatten(1).sum(1).min())} of {math.prod(raw.grid)} samples are known, of which "
                    f"{split.num_train} would be trained on, and a fit needs at least 2: check what marks missing samples"
                )
            values = values.where(known[..., None], torch.nan)
            counts = known.flatten(1).sum(1)
            if isinstance(split, PointSplit) and split.trains_all and (surplus := int((counts - counts.min()).sum())):
                rank_zero_info(
                    f"Signals that are fitted together are trained on equally many samples, {split.num_train}: {surplus} of "
                    f"{int(counts.sum())} known samples, of signals with fewer missing ones, are not trained on. To train "
                    "on all of them, fit one file at a time, or use pe-lightning fill, which fits each signal by itself."
                )
        if self.batching.kind == "blocks" and (scattered or not isinstance(split, GridSplit)):
            reason = "" if split.known is None else ", since trained samples are missing"
            raise InputError(
                f"batches of blocks need a training grid, which {self.sampling!r} does not give{reason}: set --data.batch "
                "points"
            )
        everything = self.protocol == "rest" and split.trains_all
        if self.folds is not None and not (everything and loaded):
            raise InputError(
                "folds score signals in memory of which every known sample is trained on: set --data.sampling.stride 1 and "
                "--data.in_memory true, or leave out folds"
            )
        if self.validation == "auto":
            share = DEFAULT_VALIDATION if loaded and split.num_train >= MIN_TRAINED_SAMPLES else 0.0
        else:
            share = self.validation or 0.0
        if share and not loaded:
            raise InputError(
                "validation samples are held out of signals in memory only: set in_memory: true, or validation: 0"
            )
        if share:
            split = split.with_validation(share)
        # assigned last, so that a failed attempt leaves no partial state
        protocol: Protocol = "none" if everything else self.protocol
        self._dataset: SignalDataset
        if raw.points is not None:
            assert isinstance(values, Tensor)
            self._dataset = PointDataset(values, split, protocol, torch.from_numpy(raw.points), grid)
        else:
            self._dataset = SignalDataset(values, split, protocol, raw.axes)
        self._raw, self._info = raw, info
        if everything and self.folds is None:
            rank_zero_info(
                f"Every sample is trained on ({self.sampling!r}), so protocol {self.protocol!r} scores nothing and is "
                "replaced by 'none': there is no held-out PSNR. Hold samples out, or set folds: random."
            )

    def resampled(self, sampling: Sampling, protocol: Protocol = "rest") -> SignalDataModule:
        """The same signals in memory with other trained samples."""
        dataset, other = self.dataset, copy.copy(self)
        grid, count, known = dataset.split.grid, self.info.num_signals, dataset.split.known
        if self.info.num_points is not None:
            split: Split = sampling.split_rows(self.info.num_points, count)
        else:
            split = sampling.split(grid, count) if known is None else sampling.split_known(grid, count, known)
        other.sampling, other.protocol, other.trainer = sampling, protocol, None
        other.folds = None
        other._dataset, other._shard, other._device_copies = dataset.resampled(split, protocol), None, {}
        vars(other).pop("fingerprint", None)
        return other

    def one(self, signal: int) -> SignalDataModule:
        """The data of one of the signals in memory, in a DataModule of its own."""
        info, other = self.info, copy.copy(self)
        low, high = info.scaling.of(signal)
        scaling = Scaling(info.scaling.dtype, (low,), (high,))
        other._info, other.trainer = replace(info, names=(info.names[signal],), scaling=scaling), None
        other._dataset, other._shard, other._device_copies = self.dataset.of(slice(signal, signal + 1)), None, {}
        vars(other).pop("fingerprint", None)
        return other

    @property
    def num_missing(self) -> list[int] | None:
        """Missing samples of each signal; ``None`` if there are none."""
        known = self.split.known
        return None if known is None else (~known).flatten(1).sum(1).tolist()

    @property
    def num_validation(self) -> int:
        """Samples of each signal that are held out of training for the ``val/`` scores."""
        mask = self.split.validation
        return 0 if mask is None else int(mask[0].sum())

    @property
    def scores_validation(self) -> bool:
        """Whether there are samples for ``val/`` scores."""
        return self.effective_protocol != "none" or self.num_validation > 0

    @property
    def dataset(self) -> SignalDataset:
        """The batches of all signals."""
        self.prepare()
        return self._dataset

    @property
    def streamed(self) -> bool:
        """Whether the signals are read from their file."""
        return isinstance(self.dataset.values, FileValues)

    @property
    def values(self) -> Tensor:
        """``(S, N_1, ..., N_D, C)`` float32 in [0, 1], NaN at missing samples.

        Raises:
            InputError: If the signals are read from their file.
        """
        return self.dataset.in_memory()

    @property
    def info(self) -> SignalInfo:
        """Shape and origin of the signals."""
        self.prepare()
        assert self._info is not None
        return self._info

    @property
    def split(self) -> Split:
        """The split into trained and held-out samples."""
        return self.dataset.split

    @property
    def effective_protocol(self) -> Protocol:
        """The protocol in use: ``none`` if the requested one leaves no sample to score."""
        return self.dataset.protocol

    @property
    def scored_by(self) -> str:
        """How held-out samples are chosen, in words: the folds, or the protocol."""
        return self.effective_protocol if self.folds is None else self.folds.words()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the values, the shape and the trained samples: 16 hexadecimal digits."""
        info, digest = self.info, hashlib.sha256()
        digest.update(f"{(info.num_signals, *self.split.grid, info.channels)} {self.split.num_train};".encode())
        for values in unit_blocks(self._raw) if self.streamed else [self.values.numpy()]:
            digest.update(np.ascontiguousarray(values).data.cast("B"))
        if self._raw.points is not None:
            digest.update(np.ascontiguousarray(self._raw.points).data.cast("B"))
        for indices in self.split.train_indices:
            digest.update(indices.contiguous().numpy().data.cast("B"))
        return digest.hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """Description of the data as plain values, for ``metrics.json``."""
        return {
            **self.source.describe(),
            **self.info.to_dict(),
            "sampling": self.sampling.spec(),
            "batch": self.batching.kind,
            "streamed": self.streamed,
            "protocol": self.scored_by,
            **({} if self.split.validation is None else {"num_validation": self.num_validation}),
            "fingerprint": self.fingerprint,
            **({} if self.num_missing is None else {"num_missing": self.num_missing}),
        }

    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples, always the same object; not for signals that are read from their file."""
        return self.dataset.train_batch

    def calibration_batch(self) -> GridBatch | PointBatch:
        """Samples for means and scales of features: all trained samples, or points spread over the file."""
        return self.dataset.calibration_batch()

    def evaluation_batch(self) -> GridBatch | PointBatch:
        """The whole grid, or all points, with masks, always the same object; not for signals read from their file."""
        return self.dataset.evaluation_batch

    @property
    def process(self) -> Process:
        """Rank of this process and number of processes."""
        trainer = self.trainer
        return Process() if trainer is None else Process(trainer.global_rank, trainer.world_size)

    def shard(self) -> tuple[SignalDataset, Process]:
        """Dataset and process of a fit: all signals and this rank, or this rank's signals (strategy ``signals``)."""
        trainer = self.trainer
        fitting = trainer is not None and trainer.state.fn == TrainerFn.FITTING
        if trainer is None or not fitting or getattr(trainer.strategy, "strategy_name", None) != SIGNALS_STRATEGY:
            return self.dataset, self.process
        own = self.process.share(self.info.num_signals)
        if self._shard is None or self._shard[0] != own:
            self._shard = (own, self.dataset.of(own))
        return self._shard[1], Process()

    def train_dataloader(self) -> TrainLoader:
        """Training batches of this process, on its device if the signals are in memory."""
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        # set by Lightning's seed_everything; it determines the order of the batches
        seed = int(os.environ.get("PL_GLOBAL_SEED", 0))
        dataset, process = self.shard()
        return dataset.train_loader(self.batching, seed, process, device)

    def val_dataloader(self) -> GridLoader[Any]:
        """The whole grid, in one batch or in blocks, with the mask of the samples of ``val/``."""
        dataset, process = self.shard()
        return dataset.evaluation_loader(process, validation=True)

    def test_dataloader(self) -> GridLoader[Any]:
        """The whole grid, in one batch or in blocks."""
        return self.dataset.evaluation_loader(self.process)

    def predict_dataloader(self) -> GridLoader[tuple[Tensor, ...]]:
        """Coordinates of the whole grid, in one batch or in blocks."""
        grid = OutputGrid(list(self.info.grid))
        grid.trainer = self.trainer
        return grid.predict_dataloader()

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copies a full batch of signals in memory to a device once, and reuses the copy.

        Other batches of this package are copied unless they are there already. Foreign batches are left to Lightning.
        """
        if not isinstance(batch, (GridBatch, PointBatch)):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        datasets = [self.dataset, *([] if self._shard is None else [self._shard[1]])]
        whole = [vars(dataset).get(name) for dataset in datasets for name in WHOLE_BATCHES]
        if not any(batch is known for known in whole):
            return to_device(batch, device)
        key = (id(batch), device)  # these live as long as this object, so their ids are unique
        if key not in self._device_copies:
            self._device_copies[key] = to_device(batch, device)
        return self._device_copies[key]

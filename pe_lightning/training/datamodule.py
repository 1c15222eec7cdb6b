"""The DataModules of signals from any source, of files of one kind and tensors, and of the places of a prediction."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse.typing import register_type
from lightning.pytorch import LightningDataModule
from lightning.pytorch.trainer.states import TrainerFn
from PIL import Image
from torch import Tensor

from pe_lightning.errors import InputError, show_bytes
from pe_lightning.registry import Described, Registry
from pe_lightning.results.output import Output
from pe_lightning.results.signal_files import media
from pe_lightning.signals.axes import SampleKind
from pe_lightning.signals.batches import GridBatch, PointBatch, SignalInfo, to_device
from pe_lightning.signals.blocks import grid_axes, grid_blocks
from pe_lightning.signals.cache import Storage
from pe_lightning.signals.distributed import SIGNALS_STRATEGY, Process, run_seed
from pe_lightning.signals.files import free_bytes
from pe_lightning.signals.loaders import Batching, GridLoader, TrainLoader
from pe_lightning.signals.raw import ValueRange
from pe_lightning.signals.sampling import FoldsLike, Sampling, Splitting
from pe_lightning.signals.sources.base import Source, sources
from pe_lightning.signals.sources.images import ImageSource
from pe_lightning.signals.sources.kinds import clear_kind, values_of
from pe_lightning.signals.sources.missing import MissingLike
from pe_lightning.signals.sources.paths import Paths, as_list
from pe_lightning.signals.sources.rows import RowSource
from pe_lightning.signals.sources.tensor import Array, TensorSource
from pe_lightning.signals.sources.video import VideoSource
from pe_lightning.signals.split_signals import Signals
from pe_lightning.signals.splits import EvalMask, GridSplit, ValidationShare

BLOCK_BYTES = 1 << 28
"""Bytes of values predicted at a time."""

datamodules: Registry[LightningDataModule] = Registry("DataModule", LightningDataModule, "pe_lightning.datamodules")
"""The names that ``--data`` and ``data:`` accept."""


@datamodules.register("SignalDataModule")
class SignalDataModule(LightningDataModule):
    """A set of signals of one shape, fitted together. Data is read when it is first needed.

    Args:
        source: Reads the signals: a source, its registered name, or ``{name: ..., **arguments}``.
        sampling: Which samples are trained on: ``grid`` (every ``stride``-th), ``random`` (a ``fraction``) or ``mask``.
        eval_mask: Which samples are scored: ``rest`` (all not trained on), ``odd``, ``midpoints``, ``all`` or ``none``.
            Indices of ``odd`` samples are odd on every axis (grid of stride 2 only), ``midpoints`` are halfway between
            trained ones on every axis (even strides). ``rest`` of nothing is ``none``, with a notice.
        batching: Batches of training: a :class:`Batching`, or a mapping of its arguments.
        storage: Storage of the values: a :class:`Storage`, or a mapping of its arguments.
        folds: Scores every known sample while all of them are trained on, by fits of all folds but one: ``random``,
            ``blocks``, or a mapping of the arguments of :class:`~pe_lightning.signals.sampling.FoldSampling`.
        validation: Share of the trained samples, at most 0.5, that is held out of training and gives the ``val/`` scores;
            the ``test/`` scores are then of samples that nothing was selected by. ``auto``: 0.1 where there are at least 8
            trained samples, in memory. ``0`` and ``None``: ``val/`` is of the samples of ``test/``; but in place of ``None``
            the command takes ``auto`` where ``val/`` scores decide when to stop, or change the rate.
        samples: What samples are: ``points``, or ``cells`` for means over the cells of the grid, as the pixels of a camera.
            Features are then averaged over the cells, and a prediction on another grid has means over the cells of that.
        added_noise: Standard deviation, where values are in [0, 1], of normal noise that is added to the trained samples, to
            try how a fit meets it: 0.1 is 20 dB. Scores are of the values without it, on trained samples too. It is the
            same in every run; signals in memory.
    """

    def __init__(
        self,
        source: Described[Source],
        sampling: Described[Sampling] = "grid",
        eval_mask: EvalMask = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
        folds: FoldsLike | None = None,
        validation: ValidationShare | None = None,
        samples: SampleKind = "points",
        added_noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.source = sources.resolve(source)
        self._splitting = options = Splitting(sampling, eval_mask, storage, folds, validation, samples, added_noise)
        self.sampling, self.eval_mask, self.samples = options.sampling, options.eval_mask, options.samples
        self.folds, self.validation, self.storage = options.folds, options.validation, options.storage
        self.batching = Batching(**batching) if isinstance(batching, Mapping) else batching or Batching()
        self._epoch: int | None = None  # steps, of the fit that runs

    def with_signals(self, signals: Signals) -> SignalDataModule:
        """These options, with other signals that are read already."""
        other = copy.copy(self)
        other.signals, other.trainer = signals, None
        return other

    # -- Lightning's hooks --------------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Reads and checks the data, so that bad input fails before the fit starts."""
        self.prepare()

    def setup(self, stage: str | None = None) -> None:
        self.prepare()
        self._epoch = None
        limits = (0,) if self.trainer is None else (self.trainer.max_steps, self.trainer.max_epochs)
        if stage == "fit" and 0 not in limits and self.signals.streamed and self.batching.kind == "full":
            raise InputError(
                f"the signals are read from their file ({self.signals.raw.nbytes / 1e9:.3g} GB as float32), so they cannot "
                "be one full batch: set --data.batching.kind points or blocks, or --data.storage.in_memory true"
            )

    def train_dataloader(self) -> TrainLoader:
        """Training batches of this process, on its device if the signals are in memory."""
        device = torch.device("cpu") if self.trainer is None else self.trainer.strategy.root_device
        signals, process = self.shard()
        batching = self.batching
        if self.signals.streamed and batching.kind == "full":  # of a fit without steps
            batching = Batching("blocks" if isinstance(self.signals.split, GridSplit) else "points")
        if self._epoch is None and (trainer := self.trainer) is not None:
            self._epoch = batching.epoch_of(trainer.max_steps, trainer.log_every_n_steps)  # type: ignore[attr-defined]
        steps = self._epoch or batching.steps_per_epoch
        return signals.train_loader(replace(batching, steps_per_epoch=steps), run_seed(), process, device)

    def state_dict(self) -> dict[str, Any]:
        return {"steps_per_epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keeps the epochs of a fit that is resumed for more steps, unless their length is given."""
        self._epoch = self.batching.steps_per_epoch or state_dict["steps_per_epoch"]

    def val_dataloader(self) -> GridLoader[Any]:
        """The whole grid, in one batch or in blocks, with the mask of the samples of ``val/``."""
        signals, process = self.shard()
        return signals.evaluation_loader(process, validation=True)

    def test_dataloader(self) -> GridLoader[Any]:
        return self.signals.evaluation_loader(self.process)

    def predict_dataloader(self) -> GridLoader[tuple[Tensor, ...]]:
        grid = OutputGrid(list(self.info.grid))
        grid.trainer = self.trainer
        return grid.predict_dataloader()

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Copies a batch of this package to a device once: the batch holds its copy."""
        if not isinstance(batch, (GridBatch, PointBatch)):
            return super().transfer_batch_to_device(batch, device, dataloader_idx)
        if batch.values.device == device:
            return batch
        if device not in batch.device_copies:
            batch.device_copies[device] = to_device(batch, device)
        return batch.device_copies[device]

    # -- the signals --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Reads and checks the signals, once."""
        _ = self.signals

    @cached_property
    def signals(self) -> Signals:
        """The signals and their split, which need no Trainer."""
        signals = Signals.read(self.source, self._splitting)
        if self.batching.kind == "blocks" and not isinstance(signals.split, GridSplit):
            reason = "" if signals.num_missing is None else ", since trained samples are missing"
            raise InputError(
                f"batches of blocks need a training grid, which {self.sampling!r} does not give{reason}: set "
                "--data.batching.kind points"
            )
        return signals

    def take_scaling(self, scaling: ValueRange) -> None:
        """Scales values as for the fit of a checkpoint, where the range is measured on the trained samples."""
        if self.signals.has_trained_range and scaling.dtype == self.info.scaling.dtype:
            self.signals = self.signals.scaled(scaling)

    @property
    def process(self) -> Process:
        trainer = self.trainer
        return Process() if trainer is None else Process(trainer.global_rank, trainer.world_size)

    def shard(self) -> tuple[Signals, Process]:
        """Signals and process of a fit: all signals and this rank, or this rank's (strategy ``independent_signals``)."""
        trainer = self.trainer
        fitting = trainer is not None and trainer.state.fn == TrainerFn.FITTING
        if trainer is None or not fitting or getattr(trainer.strategy, "strategy_name", None) != SIGNALS_STRATEGY:
            return self.signals, self.process
        return self.signals.select(self.process.share(self.info.num_signals)), Process()

    @property
    def info(self) -> SignalInfo:
        return self.signals.info

    @property
    def values(self) -> Tensor:
        """``(S, N_1, ..., N_D, C)`` float32 in [0, 1], NaN at missing samples."""
        return self.signals.values

    @property
    def fingerprint(self) -> str:
        """Hash of the values, the shape and the trained samples: 16 hexadecimal digits."""
        return self.signals.fingerprint

    def train_batch(self) -> GridBatch | PointBatch:
        """All trained samples; not for signals that are read from their file."""
        return self.signals.train_batch()

    def evaluation_batch(self) -> GridBatch | PointBatch:
        """The whole grid, or all points, with masks; not for signals that are read from their file."""
        return self.signals.evaluation_batch()

    def describe(self) -> dict[str, Any]:
        signals = self.signals
        return {
            **self.source.describe(),
            **signals.info.to_dict(),
            "sampling": self.sampling.spec(),
            "batch": self.batching.kind,
            "streamed": signals.streamed,
            "protocol": signals.eval_mask if self.folds is None else self.folds.words(),
            **({} if signals.split.validation is None else {"num_validation": signals.num_validation}),
            "fingerprint": signals.fingerprint,
            **({} if signals.num_missing is None else {"num_missing": signals.num_missing}),
        }


COMMON_ARGUMENTS = frozenset(inspect.signature(SignalDataModule).parameters) - {"source"}
"""Arguments of every DataModule of signals; all other arguments are the source's."""


class OutputGrid(Output, LightningDataModule):
    """The coordinates of the samples to predict. Large grids are divided into blocks of whole rows, in order."""

    @staticmethod
    def flat(batch: Sequence[Tensor] | Tensor) -> Tensor:
        """The points of a batch, ``(P, D)``."""
        return batch if isinstance(batch, Tensor) else torch.cartesian_prod(*batch).reshape(-1, len(batch))

    def predict_dataloader(self) -> GridLoader[Any]:
        """Coordinate vectors of the grid, or of its blocks; for models of scattered points also places ``(P, D)``."""
        fitted = getattr(getattr(self.trainer, "lightning_module", None), "info", None)
        info = fitted if isinstance(fitted, SignalInfo) else SignalInfo(("",), tuple(self.output_shape or ()), 1)
        if self.at is not None:
            unit = torch.from_numpy(media.create(info.media).places(self.at, info.axes))
            return GridLoader([()], lambda _: unit[unit.isfinite().all(1)].float())
        shape, values = self.grid(info), info.num_signals * info.channels
        if self.trainer is not None:
            needed = values * math.prod(shape) * np.dtype(info.scaling.dtype).itemsize
            if needed > (free := free_bytes(Path(self.trainer.default_root_dir))):
                raise InputError(
                    f"output_shape {list(shape)} takes {show_bytes(needed)}; the disk has {show_bytes(free)} free"
                )
        if info.num_points is not None:
            spread = tuple(torch.from_numpy(axis.spread(n)).float() for axis, n in zip(info.axes, shape, strict=True))
            return GridLoader([()], lambda _: spread)
        rows = max(1, BLOCK_BYTES // (4 * values * math.prod(shape[1:])))
        axes = grid_axes(shape, cells=info.cells)
        return GridLoader(
            list(grid_blocks(shape, (rows, *shape[1:])[: len(shape)])),
            lambda part: tuple(x[along] for x, along in zip(axes, part, strict=True)),
        )


class FileDataModule(SignalDataModule, ABC):
    """Base of the DataModules of files: the arguments of :class:`SignalDataModule` and of a source.

    Args:
        paths: One or more files, folders (sorted, not recursive) or ``samples://NAME``.
        **source: The other arguments of the source, by which jsonargparse extends the command line.
    """

    def __init__(
        self,
        paths: str | list[str],
        *,
        sampling: Described[Sampling] = "grid",
        eval_mask: EvalMask = "rest",
        batching: Batching = Batching(),
        storage: Storage = Storage(),
        folds: FoldsLike | None = None,
        validation: ValidationShare | None = None,
        samples: SampleKind = "points",
        added_noise: float = 0.0,
        **source: Any,
    ) -> None:
        files = self.make_source(paths, **source)
        super().__init__(files, sampling, eval_mask, batching, storage, folds, validation, samples, added_noise)

    @staticmethod
    @abstractmethod
    def make_source(paths: str | list[str], **source: Any) -> Source:
        """The source of the files."""


@datamodules.register("ImageDataModule")
class ImageDataModule(FileDataModule):
    """Images as signals of two axes: any number of files, 8- or 16-bit, fitted together.

    Args:
        **source: The other arguments of :class:`~pe_lightning.signals.sources.images.ImageSource`.

    Example:
        >>> data = ImageDataModule("samples://astronaut", center_crop=256)
        >>> tuple(data.values.shape)
        (1, 256, 256, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> ImageSource:
        return ImageSource(paths, **source)


@datamodules.register("RowDataModule")
class RowDataModule(FileDataModule):
    """Signals of one axis, fitted together: rows and columns of images, arrays, columns of tables, sound.

    Args:
        **source: The other arguments of :class:`~pe_lightning.signals.sources.rows.RowSource`.

    Example:
        >>> data = RowDataModule("samples://astronaut", rows=[100, 200])
        >>> tuple(data.values.shape)
        (2, 512, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> RowSource:
        return RowSource(paths, **source)


@datamodules.register("VideoDataModule")
class VideoDataModule(FileDataModule):
    """Videos ``(T, H, W, C)`` and volumes ``(Z, Y, X, C)`` as signals of three axes, fitted together.

    The arguments ``fps``, ``frames``, ``resize``, ``center_crop`` apply in this order.

    Args:
        paths: Videos, TIFF stacks, NIfTI volumes, array files, folders of them, frame folders, or ``samples://NAME``.
        **source: The other arguments of :class:`~pe_lightning.signals.sources.video.VideoSource`.

    Example:
        >>> data = VideoDataModule("samples://bigbuckbunny", frames=[0, 8], resize=[36, 64])
        >>> tuple(data.values.shape)
        (1, 8, 36, 64, 3)
    """

    @staticmethod
    def make_source(paths: str | list[str], **source: Any) -> VideoSource:
        return VideoSource(paths, **source)


@datamodules.register("TensorDataModule")
class TensorDataModule(SignalDataModule):
    """Arrays already in memory as signals, with any number of axes.

    Args:
        values: ``(S, N_1, ..., N_D, C)``, or one signal; see :class:`~pe_lightning.signals.sources.tensor.TensorSource`.
        names: One name per signal; ``signal0``, ``signal1``, ... by default.
        sampling: As of :class:`SignalDataModule`; or an array of the shape of the grid that is not zero at trained samples.
        missing: Array that is not zero at missing samples, or a number at them; NaN is missing anyway.
        value_range: ``(low, high)``, the values that become 0 and 1, of arrays beyond [0, 1].
        **options: The other arguments of :class:`SignalDataModule`.

    Example:
        >>> import torch
        >>> data = TensorDataModule(torch.rand(1, 64, 64, 3), sampling="random")
        >>> tuple(data.train_batch().values.shape)
        (1, 1024, 3)
    """

    def __init__(
        self,
        values: Tensor | Array,
        names: list[str] | None = None,
        sampling: Described[Sampling] | Tensor | Array = "grid",
        missing: MissingLike | Tensor | Array = "nan",
        value_range: list[float] | None = None,
        **options: Any,
    ) -> None:
        source = TensorSource(values, names, missing=missing, value_range=value_range)
        super().__init__(source, sampling, **options)  # type: ignore[arg-type]  # configurations have no arrays


def _refuse_array(value: object) -> Any:
    raise ValueError("arrays and tensors do not come from configurations: name files, or use TensorDataModule in Python")


for _array in (Tensor, np.ndarray):  # the parser would instantiate any class that is named in place of one
    register_type(_array, deserializer=_refuse_array, fail_already_registered=False)


def make_datamodule(signals: Paths | Tensor | np.ndarray[Any, Any] | Image.Image, **arguments: Any) -> SignalDataModule:
    """Makes the DataModule for the kind of the signals, with its arguments.

    Args:
        signals: Files, folders or ``samples://NAME``, whose kind :func:`~pe_lightning.signals.sources.kinds.kind_of` finds;
            or an array or a picture of Pillow, for :class:`TensorDataModule`.
        **arguments: Arguments of that DataModule.

    Example:
        >>> make_datamodule("samples://astronaut", center_crop=64).info.grid
        (64, 64)
    """
    if (values := values_of(signals)) is not None:
        return TensorDataModule(values, **arguments)
    paths = as_list(signals)  # type: ignore[arg-type]
    options = {name: value for name, value in arguments.items() if name not in COMMON_ARGUMENTS}
    kind = clear_kind(paths, **options)
    module: Callable[..., SignalDataModule] = datamodules.get(sources.get(kind).datamodule)  # type: ignore[assignment]
    if module is not SignalDataModule:
        return module(paths, **arguments)
    common = {name: value for name, value in arguments.items() if name in COMMON_ARGUMENTS}
    return SignalDataModule(sources.create(kind, paths=paths, **options), **common)

"""What a test and a prediction leave in the run directory: scores, reconstructions, predicted signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.results import runs
from pe_lightning.results.maps import write_predicted
from pe_lightning.results.points import write_points
from pe_lightning.results.reconstructions import FileAssembly, PredictionWriter, std_writer, write_reconstructions
from pe_lightning.signals.batches import GridBatch, PointBatch
from pe_lightning.signals.blocks import FileValues
from pe_lightning.signals.dataset import to_device
from pe_lightning.training.base import datamodule_of
from pe_lightning.training.callbacks.base import data_of
from pe_lightning.training.callbacks.scores import describe, rmse_in_units, score
from pe_lightning.training.coordinate import CoordinateModule
from pe_lightning.training.datamodule import OutputGrid

Array = npt.NDArray[np.float32]


class TestResults:
    """Predictions of a test, kept by the first process, or in files for signals that stay in theirs."""

    def __init__(self, trainer: Trainer, module: Any, run_dir: Path) -> None:
        self.trainer, self.module, self.run_dir = trainer, module, run_dir
        self.data, self.info = data_of(trainer), getattr(module, "info", None)
        self._tested: tuple[Array, Array] | None = None
        self._at_points: tuple[Array, PointBatch] | None = None
        self._files: FileAssembly | None = None
        if self.info is not None and self.data is not None and self.data.streamed:
            self._files = FileAssembly(run_dir / runs.RECONSTRUCTIONS, self.info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def add(self, prediction: Tensor, batch: Any) -> None:
        first = self.trainer.is_global_zero
        if isinstance(batch, PointBatch) and first:
            self._at_points = prediction.float().cpu().numpy(), to_device(batch, torch.device("cpu"))
        elif isinstance(batch, GridBatch) and self._files is not None:
            self._files.add(prediction, batch.start)
        elif isinstance(batch, GridBatch) and first and batch.start is None:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), batch.values.float().cpu().numpy()

    def gather(self) -> None:
        """Completes the files, to which every process has added its blocks when all have said so."""
        if self._files is not None:
            filled = self.trainer.strategy.reduce_boolean_decision(self._files.filled, all=False)
            values = self.data.dataset.values if self.data is not None else None
            self._files.finish(filled, values if isinstance(values, FileValues) else None)

    def scores(self) -> dict[str, Any]:
        """Scores for ``metrics.json``; :attr:`described` is then the description of the module."""
        self.described = describe(self.module, self.data)
        scores = score(self.module, self.described, self._tested)
        if self._at_points is not None and "test/psnr" in self.module.scores:
            scores |= rmse_in_units(self.module.scores, self.module.info)
        return scores

    def write(self, metrics: dict[str, Any], best: tuple[str, Array] | None, draw: bool) -> list[str]:
        """Writes the reconstructions beside the truth and the best interpolation, and returns the pictures among them."""
        folder = self.run_dir / runs.RECONSTRUCTIONS
        if self._at_points is not None:
            return write_points(folder, metrics, *self._at_points, self.module.info, draw)
        if self._tested is None:
            return []
        mask = self.data.split.train_mask().numpy() if self.data is not None else None
        write = getattr(getattr(self.data, "source", None), "write", None)  # a source may have a format of its own
        return write_reconstructions(folder, metrics, *self._tested, self.info, mask, write, best, draw)


class Predictions:
    """Predicted signals as files: on the grid of the signals, or at the samples of an :class:`OutputGrid`.

    Without a folder ``run_dir`` none are written.
    """

    def __init__(self, trainer: Trainer, module: LightningModule, run_dir: Path | None) -> None:
        self.output = OutputGrid() if data_of(trainer) is not None else datamodule_of(trainer, OutputGrid)
        self.info, self.run_dir = getattr(module, "info", None), run_dir
        self.module = module if isinstance(module, CoordinateModule) and module.has_std else None
        self._writers: list[PredictionWriter] = []
        if self.output is not None and self.output.output_std and self.module is None:
            raise InputError(
                f"{type(module).__name__} has no standard deviations from a checkpoint: leave out output_std; Adaptive has "
                "them, of one signal"
            )

    def add(self, values: Tensor, batch: Any) -> list[Path]:
        """Writes the prediction of a batch, and returns the files that are complete."""
        info, output, folder = self.info, self.output, self.run_dir
        if folder is None or info is None:
            return []
        std: Tensor | None = None
        if self.module is not None and output is not None and (info.num_points is not None or output.output_std):
            std = self.module.std(output.flat(batch)).reshape(values.shape)
        if output is not None and info.num_points is not None:
            deviations = None if std is None else std.float().cpu().numpy()
            return [write_predicted(folder, info, output, values.float().cpu().numpy(), deviations)]
        if not self._writers:
            self._writers = [PredictionWriter(folder, info, output)]
            if output is not None and std is not None:
                self._writers.append(std_writer(folder, info, output))
        each = [values] if std is None else [values, std]
        return [path for writer, found in zip(self._writers, each, strict=True) for path in writer.add(found)]

"""Predictions of a test: their scores, and their files beside the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import Trainer
from torch import Tensor

from pe_lightning.results import runs
from pe_lightning.results.predictions import FileAssembly
from pe_lightning.results.reconstructions import compare_files, write_reconstructions
from pe_lightning.results.signal_files import media
from pe_lightning.signals.batches import GridBatch, PointBatch, to_device
from pe_lightning.training.callbacks.base import data_of
from pe_lightning.training.callbacks.picture_scores import PictureScores
from pe_lightning.training.callbacks.scores import rmse_in_units, score

Array = npt.NDArray[np.float32]


class TestResults:
    """Predictions of a test, kept by the first process, or in files if the signals are read block by block."""

    def __init__(self, trainer: Trainer, module: Any, run_dir: Path) -> None:
        self.trainer, self.module, self.folder = trainer, module, run_dir / runs.RECONSTRUCTIONS
        self.data, self.info = data_of(trainer), getattr(module, "info", None)
        self._tested: tuple[Array, GridBatch | PointBatch] | None = None
        self._files: FileAssembly | None = None
        if self.info is not None and self.data is not None and self.data.signals.streamed:
            self._files = FileAssembly(self.folder, self.info, first=trainer.is_global_zero)
            trainer.strategy.barrier("the files are there")

    def add(self, prediction: Tensor, batch: Any) -> None:
        whole = isinstance(batch, PointBatch) or (isinstance(batch, GridBatch) and batch.start is None)
        if isinstance(batch, GridBatch) and self._files is not None:
            self._files.add(prediction, batch.start)
        elif whole and self.trainer.is_global_zero:  # signals in memory are one batch
            self._tested = prediction.float().cpu().numpy(), to_device(batch, torch.device("cpu"))

    def gather(self) -> None:
        """Completes the files when all processes have added their blocks."""
        if self._files is None:
            return
        filled = self.trainer.strategy.reduce_boolean_decision(self._files.filled, all=False)
        paths = self._files.finish(filled)
        if filled and self.trainer.is_global_zero and self.data is not None:
            compare_files(paths, self.data.signals.raw, self._files.info)

    def scores(self, described: dict[str, Any], of_pictures: PictureScores) -> dict[str, Any]:
        """Scores for ``metrics.json``, of a module with this description."""
        scores, tested = score(self.module, described), self._tested
        at_points = tested is not None and isinstance(tested[1], PointBatch)
        if "grid" in described:
            on_grid = None if tested is None or at_points else (tested[0], tested[1].values.float().numpy())
            scores |= of_pictures.score(on_grid, described["num_signals"])
        if at_points and "test/psnr" in self.module.scores:
            scores |= rmse_in_units(self.module.scores, self.module.info)
        return scores

    def write(self, metrics: dict[str, Any], best: tuple[str, Array] | None, draw: bool) -> list[str]:
        """Writes the reconstructions beside the truth and the best interpolation, and returns the pictures among them."""
        if self._tested is None or self.info is None:
            return []
        prediction, batch = self._tested
        pictures = media.create(self.info.media).pictures(self.folder, metrics, prediction, batch, self.info, draw)
        if pictures is not None:
            return pictures
        mask = self.data.signals.split.train_mask().numpy() if self.data is not None else None
        values = batch.values.float().numpy()
        return write_reconstructions(self.folder, metrics, prediction, values, self.info, mask, best, draw)

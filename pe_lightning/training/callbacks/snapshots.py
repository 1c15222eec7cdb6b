"""Reconstructions during a fit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from PIL import Image
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.results.pictures import COMPARED_FRAMES, comparison_frames, row_plot, stacked, to_image, write_png
from pe_lightning.results.runs import file_names, frames_of
from pe_lightning.signals import validation
from pe_lightning.signals.blocks import grid_axes
from pe_lightning.training.base import signals_of
from pe_lightning.training.callbacks.base import (
    PeriodicCallback,
    TrainingClock,
    callbacks,
    require_coordinates,
)
from pe_lightning.training.callbacks.recorder import RunRecorder
from pe_lightning.training.datamodule import SignalDataModule

MAX_SHOWN_SIDE = 2048
"""Longer axes of a picture, or of a frame, are subsampled."""

Array = npt.NDArray[np.float32]


@callbacks.register("Snapshots")
class Snapshots(PeriodicCallback):
    """Writes reconstructions at regular steps to ``snapshots/<signal>/<step>.png`` in the run directory, and to W&B.

    Of pictures it is the reconstruction; of rows the line plot beside the truth; of videos and volumes four frames beside
    the truth and the error, and only these four are computed. The first process does it alone; the clock of ``fit_seconds``
    is stopped meanwhile. In W&B they are ``snapshots``.

    Args:
        every_n_steps: Optimiser steps between two reconstructions.
        signals: How many signals, from the first on.
    """

    def __init__(self, every_n_steps: int = 100, signals: int = 4) -> None:
        super().__init__(every_n_steps)
        validation.integer("Snapshots: signals", signals, 1)
        self.signals = signals

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        require_coordinates("Snapshots", pl_module)
        if not any(isinstance(callback, RunRecorder) for callback in trainer.callbacks):  # type: ignore[attr-defined]
            raise InputError("Snapshots writes into the run directory: give the Trainer callbacks=[..., RunRecorder()] too")
        data = signals_of(pl_module)
        if data.info.num_axes > 3 or (data.info.num_axes == 1 and data.streamed):
            raise InputError("Snapshots shows signals of 1 to 3 axes, and rows beside the truth, in memory")

    def act(self, trainer: Trainer, pl_module: LightningModule) -> None:
        run_dir = RunRecorder.run_dir_of(trainer)
        if run_dir is None or not trainer.is_global_zero:
            return
        with TrainingClock.of(trainer).paused(pl_module.device):
            data, step = signals_of(pl_module), trainer.global_step
            shown = [_shown(n, axis, data.info.num_axes) for axis, n in enumerate(data.info.grid)]
            axes = [x[part].to(pl_module.device) for x, part in zip(grid_axes(data.info.grid), shown, strict=True)]
            with torch.no_grad(), trainer.precision_plugin.val_step_context():
                predictions = require_coordinates("Snapshots", pl_module).predict_grid(axes)[: self.signals].float().cpu()
            paths = []
            for index, stem in enumerate(file_names(data.info.names)[: self.signals]):
                picture = _picture(data, index, predictions[index].numpy(), shown, f"reconstruction, step {step}")
                paths.append(str(write_png(run_dir / "snapshots" / stem / f"{step}.png", picture)))
            for logger in trainer.loggers:
                if isinstance(logger, WandbLogger):
                    names = [f"{name}, step {step}" for name in data.info.names[: self.signals]]
                    logger.log_image("snapshots", list(paths), step=step, caption=names)


def _picture(data: SignalDataModule, index: int, prediction: Array, shown: list[Tensor], caption: str) -> Image.Image:
    info = data.info
    if info.num_axes == 2:
        return to_image(prediction)
    if data.streamed:
        return stacked([to_image(frame) for frame in prediction])
    truth = data.values[index]
    for axis, part in enumerate(shown):
        truth = truth.index_select(axis, part)
    if info.num_axes == 1:
        mask = data.split.train_mask().numpy()
        return row_plot(prediction, truth.numpy(), mask[index if len(mask) > 1 else 0], caption, info.rate)
    return comparison_frames(prediction, truth.numpy(), caption, shown[0].tolist(), info.grid[0])


def _shown(count: int, axis: int, num_axes: int) -> Tensor:
    """Indices of the shown samples of an axis of ``count`` samples, ``(n,)`` int64."""
    if num_axes == 1:
        return torch.arange(count)
    if num_axes == 3 and axis == 0:
        return torch.tensor(frames_of(count, COMPARED_FRAMES))
    return torch.arange(0, count, -(-count // MAX_SHOWN_SIDE))

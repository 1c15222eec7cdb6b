"""Reconstructions during a fit."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger

from pe_lightning.errors import InputError
from pe_lightning.results.pictures import COMPARED_FRAMES, comparison_frames, row_plot, to_image, write_png
from pe_lightning.results.runs import file_names, frames_of
from pe_lightning.signals import validation
from pe_lightning.signals.blocks import grid_axes
from pe_lightning.training import FunctionModule
from pe_lightning.training.base import signals_of
from pe_lightning.training.callbacks.base import TrainingClock, callbacks
from pe_lightning.training.callbacks.recorder import RunRecorder
from pe_lightning.training.checkpoints import callbacks_of


@callbacks.register("Snapshots")
class Snapshots(Callback):
    """Writes reconstructions at regular steps to ``snapshots/<signal>/<step>.png`` in the run directory, and to W&B.

    Rows are plotted beside the truth; of videos and volumes four frames are computed, and shown beside truth and error. The
    clock of ``fit_seconds`` is stopped meanwhile.

    Args:
        every_n_steps: Optimiser steps between two reconstructions.
        signals: How many signals, from the first on.
    """

    def __init__(self, every_n_steps: int = 100, signals: int = 4) -> None:
        self.every_n_steps = validation.integer("Snapshots: every_n_steps", every_n_steps, 1)
        self.signals = validation.integer("Snapshots: signals", signals, 1)
        self._last = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if not isinstance(pl_module, FunctionModule):
            raise InputError(f"Snapshots is for the coordinate networks of pe_lightning, got a {type(pl_module).__name__}")
        if not any(isinstance(callback, RunRecorder) for callback in callbacks_of(trainer)):
            raise InputError("Snapshots writes into the run directory: give the Trainer callbacks=[..., RunRecorder()] too")
        data = signals_of(pl_module)
        if data.info.num_axes > 3 or (data.info.num_axes != 2 and data.signals.streamed):
            raise InputError("Snapshots shows signals of 1 to 3 axes; rows, videos and volumes beside the truth, in memory")

    def next_step(self, trainer: Trainer) -> int:
        return trainer.global_step + self.every_n_steps - trainer.global_step % self.every_n_steps

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        run_dir, step, last = RunRecorder.run_dir_of(trainer), trainer.global_step, self._last
        self._last = step  # the same for several batches, if gradients are accumulated
        if step == last or step % self.every_n_steps or run_dir is None or not trainer.is_global_zero:
            return
        with TrainingClock.of(trainer).paused(pl_module.device):
            data = signals_of(pl_module)
            info, caption = data.info, f"reconstruction, step {step}"
            shown = frames_of(info.grid[0], COMPARED_FRAMES) if info.num_axes == 3 else list(range(info.grid[0]))
            first, *axes = grid_axes(info.grid)
            with torch.no_grad(), trainer.precision_plugin.val_step_context():
                predictions = pl_module.predict_grid([x.to(pl_module.device) for x in (first[shown], *axes)])
            paths = []
            for index, stem in enumerate(file_names(info.names)[: self.signals]):
                prediction = predictions[index].float().cpu().numpy()
                if info.num_axes == 2:
                    picture = to_image(prediction)
                elif info.num_axes == 1:
                    truth, mask = data.values[index].numpy(), data.signals.split.train_mask().numpy()
                    picture = row_plot(prediction, truth, mask[index % len(mask)], caption, info, index=index)
                else:
                    truth = data.values[index, shown].numpy()
                    picture = comparison_frames(prediction, truth, caption, shown, info.grid[0])
                paths.append(str(write_png(run_dir / "snapshots" / stem / f"{step}.png", picture)))
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                names = [f"{name}, step {step}" for name in info.names[: self.signals]]
                logger.log_image("snapshots", list(paths), step=step, caption=names)

"""Reconstructions while a fit is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import WandbLogger
from PIL import Image
from torch import Tensor

from pe_lightning.callbacks.clock import clocks_paused
from pe_lightning.callbacks.outputs import write_png
from pe_lightning.callbacks.pictures import FRAMES, comparison, row_plot, to_image
from pe_lightning.callbacks.quiet import QuietCallback
from pe_lightning.callbacks.schedule import Schedule
from pe_lightning.callbacks.surroundings import require_module, require_recorder, require_signals, run_dir_of
from pe_lightning.data.batches import SignalInfo
from pe_lightning.data.coordinates import grid_axes
from pe_lightning.errors import InputError
from pe_lightning.runs import file_names

__all__ = ["Snapshots"]

FOLDER = "snapshots"
LARGEST_SIDE = 2048
"""Of longer axes of a picture, or of a frame, every so many samples are shown."""

Array = npt.NDArray[np.float32]


class Snapshots(QuietCallback):
    """Writes reconstructions every few steps to ``snapshots/<signal>/<step>.png`` in the run directory, and to W&B.

    Of pictures it is the reconstruction; of rows the line plot beside the truth; of videos and volumes four frames beside
    the truth and the error, and only these four are computed. The first process does it alone; the clock of ``fit_seconds``
    is stopped meanwhile. In W&B they are ``snapshots``.

    Args:
        every_n_steps: Optimiser steps between two reconstructions.
        signals: How many signals, from the first on.

    Raises:
        InputError: If an argument is out of range, a signal has more than three axes, or is a row that stays in its file.
    """

    def __init__(self, every_n_steps: int = 100, signals: int = 4) -> None:
        self._schedule = Schedule("Snapshots", every_n_steps)
        if signals < 1:
            raise InputError(f"Snapshots: signals must be >= 1, got {signals}")
        self.signals = signals
        self._view: _View | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuses what cannot be shown, before a run directory is made."""
        if stage != "fit":
            return
        require_module("Snapshots", pl_module)
        require_recorder("Snapshots", trainer)
        data = require_signals("Snapshots", trainer)
        if data.info.num_axes > 3:
            raise InputError(f"Snapshots shows signals of 1 to 3 axes; these have {data.info.num_axes}")
        if data.info.num_axes == 1 and data.streamed:
            raise InputError("Snapshots draws rows beside the truth, which stays in its file; set in_memory: true")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count, from the step of the checkpoint if there is one."""
        self._schedule.start(trainer.global_step)
        self._view = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Writes every few steps."""
        if self._schedule.due(trainer.global_step) and trainer.is_global_zero:
            with clocks_paused(trainer):
                self._show(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Frees the truth."""
        self._view = None

    def _show(self, trainer: Trainer, pl_module: LightningModule) -> None:
        run_dir = run_dir_of(trainer)
        if run_dir is None:
            return
        module = require_module("Snapshots", pl_module)
        if self._view is None:
            self._view = self._look_at(trainer, module.device)
        view, step = self._view, trainer.global_step
        with torch.no_grad(), trainer.precision_plugin.val_step_context():
            predictions: Array = module.predict_grid(view.axes)[: self.signals].float().cpu().numpy()
        stems = file_names(view.info.names)[: self.signals]
        paths = [
            str(write_png(run_dir / FOLDER / stem / f"{step}.png", view.picture(values, place, step)))
            for place, (stem, values) in enumerate(zip(stems, predictions, strict=True))
        ]
        for logger in trainer.loggers:
            if isinstance(logger, WandbLogger):
                logger.log_image("snapshots", list(paths), step=step, caption=[f"{stem}, step {step}" for stem in stems])

    def _look_at(self, trainer: Trainer, device: torch.device) -> _View:
        data = require_signals("Snapshots", trainer)
        info = data.info
        chosen = [_shown(count, place, info.num_axes) for place, count in enumerate(info.grid)]
        axes = tuple(x[part].to(device) for x, part in zip(grid_axes(info.grid), chosen, strict=True))
        truth = trained = None
        if not data.streamed:
            values = data.values[: self.signals]
            for place, part in enumerate(chosen):
                values = values.index_select(place + 1, part)
            truth = values.numpy()
        if info.num_axes == 1:
            trained = data.split.train_mask().numpy()
        return _View(info, axes, chosen[0], truth, trained)


@dataclass
class _View:
    """What of the signals is shown.

    Args:
        info: The signals.
        axes: Coordinates, one vector per axis.
        frames: Which samples of the first axis, ``(n,)``.
        truth: ``(signals, *grid, C)`` at these coordinates; ``None`` if it stays in its file.
        trained: Of rows, which samples were trained on, ``(S or 1, N)``.
    """

    info: SignalInfo
    axes: tuple[Tensor, ...]
    frames: Tensor
    truth: Array | None
    trained: npt.NDArray[np.bool_] | None

    def picture(self, values: Array, place: int, step: int) -> Image.Image:
        """Signal number ``place``, reconstructed as ``values`` after ``step`` steps."""
        caption = f"reconstruction, step {step}"
        truth = None if self.truth is None else self.truth[place]
        if self.info.num_axes == 1:
            assert truth is not None
            trained = None if self.trained is None else self.trained[place if len(self.trained) > 1 else 0]
            return row_plot(values, truth, trained, caption, self.info.rate)
        if self.info.num_axes == 2:
            return to_image(values)
        if truth is None:
            return _stack([to_image(frame) for frame in values])
        titles = [f"ground truth, {frame + 1} of {self.info.grid[0]}" for frame in self.frames.tolist()]
        rows = zip(values, truth, titles, strict=True)
        return _stack([comparison(frame, known, caption, title) for frame, known, title in rows])


def _shown(count: int, place: int, num_axes: int) -> Tensor:
    """Which of ``count`` samples of an axis are shown, ``(n,)`` int64."""
    if num_axes == 1:
        return torch.arange(count)
    if num_axes == 3 and place == 0:  # the middles of equal parts
        return torch.tensor(sorted({(2 * part + 1) * count // (2 * FRAMES) for part in range(FRAMES)}))
    return torch.arange(0, count, -(-count // LARGEST_SIDE))


def _stack(rows: list[Image.Image]) -> Image.Image:
    """Pictures of one size, one below the other."""
    width, height = rows[0].size
    sheet = Image.new(rows[0].mode, (width, height * len(rows)), "white")
    for place, row in enumerate(rows):
        sheet.paste(row, (0, place * height))
    return sheet

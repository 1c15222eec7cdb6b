"""Time until a fit reaches given PSNRs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from pe_lightning.errors import InputError
from pe_lightning.evaluation.metrics import psnr
from pe_lightning.signals import validation
from pe_lightning.training.callbacks.base import TimedCallback, callbacks, log_values, require_coordinates


@callbacks.register("TimeToPSNR")
class TimeToPSNR(TimedCallback):
    """Seconds of training, and optimiser steps, until the PSNR first reaches each of several thresholds.

    The train PSNR, mean over signals of the latest batch before its step, is read after the first step, every
    ``every_n_steps`` and after the last, until all thresholds are reached; the held-out PSNR is that of every validation.
    Under several processes it is that of all their samples. The clock is that of ``fit_seconds``.

    Logged at the end are the seconds, ``time_to/25dB`` for the train PSNR and ``time_to/val_25dB`` for the held-out one, of
    the thresholds that were reached. The report is ``time_to_psnr``: ``{"train": {"25dB": {"seconds": .., "steps": ..},
    "30dB": null}, "val": {..}}``, ``val`` only if there was a validation.

    Args:
        thresholds: PSNRs in dB.
        every_n_steps: Optimiser steps between two readings of the train PSNR: the resolution of the result.
    """

    def __init__(self, thresholds: Sequence[float] = (20.0, 25.0, 30.0, 35.0, 40.0), every_n_steps: int = 10) -> None:
        super().__init__()
        if not thresholds or not all(math.isfinite(threshold) for threshold in thresholds):
            raise InputError(f"TimeToPSNR: thresholds are one or more numbers in dB, got {list(thresholds)}")
        self.thresholds = {f"{threshold:g}dB": float(threshold) for threshold in sorted(thresholds)}
        self.every_n_steps = validation.integer("TimeToPSNR: every_n_steps", every_n_steps, 1)
        self._reached: dict[str, dict[str, Any]] = {}
        self._shared: bool | None = None  # whether processes have samples of the same signals, once there was a step

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock and clears the results of an earlier fit; a resumed fit keeps its own."""
        require_coordinates("TimeToPSNR", pl_module)
        self._reached = self._reached if self._earlier else {}
        self._reached.setdefault("train", {})
        self._shared = None
        super().on_fit_start(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every_n_steps == 0 or self._shared is None:
            self._shared = getattr(batch, "total", None) is not None
            self._read(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        held_out = trainer.callback_metrics.get("val/psnr")
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and held_out is not None:
            self._note("val", held_out.item(), trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._read(trainer, pl_module)
        super().on_train_end(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        for kind, prefix in (("train", "time_to/"), ("val", "time_to/val_")):
            log_values(trainer, {f"{prefix}{name}": at["seconds"] for name, at in self._reached.get(kind, {}).items()})

    def report(self) -> dict[str, Any]:
        """``time_to_psnr``: seconds and steps per threshold; ``None`` if it was not reached."""
        found = {kind: {name: at.get(name) for name in self.thresholds} for kind, at in self._reached.items()}
        return {"time_to_psnr": found} if found else {}

    def state_dict(self) -> dict[str, Any]:
        return {"reached": self._reached, "seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._reached, self._earlier = state_dict["reached"], state_dict["seconds"]

    def _read(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if len(self._reached["train"]) < len(self.thresholds):
            self._note("train", self._train_psnr(trainer, pl_module).item(), trainer.global_step)

    def _note(self, kind: str, value: float, step: int) -> None:
        entries = self._reached.setdefault(kind, {})
        for name, threshold in self.thresholds.items():
            if value >= threshold:  # not of NaN
                entries.setdefault(name, {"seconds": self.clock.seconds, "steps": step})

    def _train_psnr(self, trainer: Trainer, pl_module: LightningModule) -> Tensor:
        """Train PSNR of the last batch, mean over the signals of all processes, ``()``. Collective."""
        module = require_coordinates("TimeToPSNR", pl_module)
        if trainer.world_size == 1:
            return module.last_train.psnr()
        squared, count = module.last_train.squared.to(module.device), module.last_train.count
        if self._shared:  # every process has samples of the same signals
            sums = torch.cat([squared.double(), squared.new_tensor([count], dtype=torch.float64)])
            together: Any = trainer.strategy.reduce(sums, reduce_op="sum")
            return psnr(together[:-1], together[-1]).mean()
        scores = psnr(squared.double(), squared.new_tensor(count))  # every process has signals of its own
        total: Any = trainer.strategy.reduce(torch.stack([scores.sum(), scores.new_tensor(len(scores))]), reduce_op="sum")
        mean: Tensor = total[0] / total[1]
        return mean

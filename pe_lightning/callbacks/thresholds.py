"""How long a fit takes to reach a quality."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor

from pe_lightning.callbacks.clock import TrainingClock
from pe_lightning.callbacks.quiet import QuietCallback
from pe_lightning.callbacks.schedule import Schedule
from pe_lightning.callbacks.surroundings import log_values, require_module
from pe_lightning.errors import InputError
from pe_lightning.metrics import psnr
from pe_lightning.modules import CoordinateModule

__all__ = ["TimeToPSNR"]


class TimeToPSNR(QuietCallback):
    """Seconds of training, and optimiser steps, until the PSNR first reaches each of several thresholds.

    The train PSNR, mean over signals of the latest batch before its step, is looked at after the first step, every
    ``every_n_steps`` and after the last; each look waits for the device, until all thresholds are reached. The held-out
    PSNR is looked at whenever it is validated. The clock runs as that of ``fit_seconds``: from data in memory on, without
    validation, and on from where it was if the fit is resumed.

    Logged at the end are the seconds, ``time_to/25dB`` for the train PSNR and ``time_to/val_25dB`` for the held-out one, of
    the thresholds that were reached. The report is ``time_to_psnr``: ``{"train": {"25dB": {"seconds": .., "steps": ..},
    "30dB": null}, "val": {..}}``, ``val`` only if there was a validation.

    Under several processes it is the PSNR of all their samples together, which they add up at every look.

    Args:
        thresholds: PSNRs in dB.
        every_n_steps: Optimiser steps between two looks at the train PSNR: the resolution of the result.

    Raises:
        InputError: If an argument is out of range.
    """

    def __init__(self, thresholds: Sequence[float] = (20.0, 25.0, 30.0, 35.0, 40.0), every_n_steps: int = 10) -> None:
        if not thresholds or not all(math.isfinite(threshold) for threshold in thresholds):
            raise InputError(f"TimeToPSNR: thresholds are one or more numbers in dB, got {list(thresholds)}")
        self.thresholds = sorted({float(threshold) for threshold in thresholds})
        self.clock = TrainingClock()
        self._schedule = Schedule("TimeToPSNR", every_n_steps)
        self._reached: dict[str, dict[str, Any]] = {}
        self._earlier = 0.0
        self._looked = self._shared = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock."""
        require_module("TimeToPSNR", pl_module)
        self._reached = self._reached if self._earlier else {}
        self._reached.setdefault("train", {})
        self._looked = False
        self.clock.start(self._earlier)
        self._earlier = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count, from the step of the checkpoint if there is one."""
        self._schedule.start(trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Looks at the train PSNR every few steps."""
        if self._schedule.due(trainer.global_step) or not self._looked:
            self._looked, self._shared = True, getattr(batch, "total", None) is not None
            self._look(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock."""
        if trainer.state.fn == TrainerFn.FITTING:
            if pl_module.device.type == "cuda":
                torch.cuda.synchronize(pl_module.device)
            self.clock.pause()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks at the held-out PSNR."""
        held_out = trainer.callback_metrics.get("val/psnr")
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and held_out is not None:
            self._note("val", held_out.item(), trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Starts the clock again after a validation."""
        self.clock.resume()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks a last time."""
        self._look(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stops the clock and logs what was reached."""
        self.clock.pause()
        names = {"train": "time_to/", "val": "time_to/val_"}
        found = {
            f"{names[kind]}{threshold}": entry["seconds"]
            for kind, entries in self._reached.items()
            for threshold, entry in entries.items()
        }
        if found:
            log_values(trainer, found)

    def report(self) -> dict[str, Any]:
        """``time_to_psnr``; ``None`` for what was not reached."""
        if not self._reached:
            return {}
        names = [_name(threshold) for threshold in self.thresholds]
        return {
            "time_to_psnr": {kind: {name: entries.get(name) for name in names} for kind, entries in self._reached.items()}
        }

    def state_dict(self) -> dict[str, Any]:
        """What was reached and the seconds so far."""
        return {"reached": self._reached, "seconds": self.clock.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what :meth:`state_dict` gave."""
        self._reached, self._earlier = state_dict["reached"], state_dict["seconds"]

    def _look(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if all(_name(threshold) in self._reached["train"] for threshold in self.thresholds):
            return
        module = require_module("TimeToPSNR", pl_module)
        value = module.last_train_psnr() if trainer.world_size == 1 else _of_all(trainer, module, self._shared)
        self._note("train", value.item(), trainer.global_step)

    def _note(self, kind: str, value: float, step: int) -> None:
        entries = self._reached.setdefault(kind, {})
        for threshold in self.thresholds:
            if value >= threshold:  # not of NaN
                entries.setdefault(_name(threshold), {"seconds": self.clock.seconds, "steps": step})


def _of_all(trainer: Trainer, module: CoordinateModule, shared: bool) -> Tensor:
    """The train PSNR of the latest batch, mean over the signals of all processes, ``()``; all of them have to ask.

    Args:
        trainer: The Trainer.
        module: The module of this process.
        shared: Whether every process has its samples of the same signals, or signals of its own.
    """
    squared, count = module.last_train_errors or (torch.zeros(0, device=module.device), 0)
    if shared:
        sums = torch.cat([squared.double(), squared.new_tensor([count], dtype=torch.float64)])
        sums = _sum(trainer, sums)
        together: Tensor = psnr(sums[:-1], sums[-1]).mean()
        return together
    scores = psnr(squared.double(), squared.new_tensor(count))
    total, signals = _sum(trainer, torch.stack([scores.sum(), scores.new_tensor(len(scores))]))
    mean: Tensor = total / signals
    return mean


def _sum(trainer: Trainer, values: Tensor) -> Tensor:
    reduced = trainer.strategy.reduce(values, reduce_op="sum")
    assert isinstance(reduced, Tensor)
    return reduced


def _name(threshold: float) -> str:
    return f"{threshold:g}dB"

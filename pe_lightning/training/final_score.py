"""The score of the final weights of a fit."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from pe_lightning.errors import show_metric, show_protocol
from pe_lightning.evaluation import metrics
from pe_lightning.signals.distributed import rank_zero_info
from pe_lightning.training.base import datamodule_of
from pe_lightning.training.datamodule import SignalDataModule


class FinalScore(Callback):
    """Scores the final weights: a fit that ends within an epoch, or has no steps, has no validation then.

    Args:
        logs: Whether loggers get the score; ``False`` where a test follows.
    """

    def __init__(self, logs: bool = True) -> None:
        self.logs = logs
        self._validated: int | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._validated = trainer.global_step

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        pl_module.gather()
        validated, self._validated = self._validated, None
        bar, data = trainer.progress_bar_callback, datamodule_of(trainer, SignalDataModule)
        # without a progress bar fits are silent; a bar that declares `prints_scores` has a table after it
        prints = bar is not None and not getattr(bar, "prints_scores", False)
        logs = self.logs and bool(trainer.limit_val_batches and trainer.loggers) and validated != trainer.global_step
        if not (prints or logs) or data is None or not trainer.is_global_zero:
            return
        if data.signals.streamed or not data.signals.scores_validation:
            return
        count, name = data.info.num_signals, pl_module.metric_name
        with torch.no_grad():
            batch = data.transfer_batch_to_device(data.signals.validation_batch, pl_module.device, 0)
            metric = metrics.create(name, count, sync_on_compute=False).to(pl_module.device)
            metric.update(pl_module.predicted(batch), batch.values, batch.mask)
            score = float(metric.per_signal().mean())
        if prints:
            over = f"; mean over {count} signals" if count > 1 else ""
            value = f"{score:.2f} {metric.unit}".rstrip()
            rank_zero_info(f"held-out {show_metric(name)}: {value}, {show_protocol(data.signals.eval_mask)}{over}")
        if logs:
            for logger in trainer.loggers:
                logger.log_metrics({pl_module.monitor: score, "epoch": trainer.current_epoch}, step=trainer.global_step)
                logger.save()

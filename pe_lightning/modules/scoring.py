"""What a module logs: losses and PSNR, at the optimiser step, as means over the signals of all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from pe_lightning.modules.building import is_fitted

if TYPE_CHECKING:
    from pe_lightning.modules.base import CoordinateModule

__all__ = ["log_step", "log_test", "log_validation", "over_signals"]


def log_step(module: CoordinateModule, values: dict[str, Tensor]) -> None:
    """Logs values that are the same in every process, in a fit at the optimiser step.

    Lightning's own rows count batches, and from one more after a resumption. So it gets what a fit logs for callbacks and
    the progress bar, and loggers get it from here.

    Args:
        module: Under a Trainer.
        values: Numbers by name, ``()`` each.
    """
    fitted = is_fitted(module)
    for name, value in values.items():
        module.log(name, value, batch_size=1, logger=False if fitted else None)
    if fitted and module.loggers and not module.trainer.sanity_checking:
        row = {name: value.item() for name, value in values.items()} | {"epoch": module.current_epoch}
        for logger in module.loggers:
            logger.log_metrics(row, step=module.global_step)
            logger.save()


def log_validation(module: CoordinateModule) -> None:
    """Logs ``val/psnr``, mean over signals, and begins anew; nothing when no sample is held out."""
    score = over_signals(module, module.test_psnr.per_signal()) / module.require_info().num_signals
    module.test_psnr.reset()
    if not score.isnan():
        log_step(module, {"val/psnr": score.float()})


def log_test(module: CoordinateModule) -> dict[str, Tensor]:
    """Logs the means of ``test/psnr`` and ``test/train_psnr`` and begins anew; returns the scores per signal."""
    scores = {"test/psnr": module.test_psnr.per_signal().cpu(), "train/psnr": module.train_psnr.per_signal().cpu()}
    module.test_psnr.reset()
    module.train_psnr.reset()
    for name, values in scores.items():
        if values.isfinite().all():
            key = name if name.startswith("test/") else "test/train_psnr"
            module.log(key, values.mean().float(), batch_size=1, sync_dist=True)
    if not module.automatic_optimization:  # else Lightning puts the number of batches in its place
        module.log("step", float(module.global_step), batch_size=1)
    return scores


def over_signals(module: CoordinateModule, values: Tensor) -> Tensor:
    """The sum of ``(S,)`` values over the signals of all processes, ``()``."""
    total = values.sum()
    if module.own is not None:
        total = module.trainer.strategy.reduce(total, reduce_op="sum")
    return total

"""Fits without logs, files and messages."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from lightning.pytorch import Trainer

from pe_lightning.signals.distributed import without_notices
from pe_lightning.training import FunctionModule
from pe_lightning.training.datamodule import SignalDataModule

HIDDEN_WARNINGS = [
    # Lightning 2.6 calls a deprecated function of torch >= 2.13
    r".*LeafSpec",
    # the data is one batch in memory, for which worker processes are slower
    r"The '\w+' does not have many workers",
    # evaluation needs no callback that writes checkpoints
    r"Be aware that when using `ckpt_path`, callbacks used to create",
    # a resumed fit keeps its directory
    r"Checkpoint directory .* exists and is not empty",
    # rows are logged at multiples of log_every_n_steps over all epochs, and of every validation
    r"The number of training batches .* is smaller than the logging interval",
]
"""Warnings that users of the command cannot act on."""


def fit_quietly(
    module: FunctionModule, data: SignalDataModule, max_steps: int = 0, *, score: bool = False, **trainer: Any
) -> FunctionModule:
    """Fits a module, which is then on the CPU, without logs, files and messages of Lightning.

    Args:
        module: The module.
        data: The signals.
        max_steps: Optimiser steps.
        score: Whether the held-out samples are scored.
        **trainer: Further arguments of the Trainer.
    """
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options: dict[str, Any] = {**dict.fromkeys(off, False), "num_sanity_val_steps": 0, **trainer}
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.WARNING)  # on devices, and why a fit ends
    try:
        with without_notices(), warnings.catch_warnings():
            for message in HIDDEN_WARNINGS:
                warnings.filterwarnings("ignore", message=message)
            made = Trainer(max_steps=max_steps, limit_val_batches=None if score else 0, **options)
            made.fit(module, data)
            if score:
                made.test(module, data, verbose=False)
    finally:
        logger.setLevel(before)
    return module.cpu().eval()

"""Fits without logs, files and messages."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
]
"""Warnings that users of the command cannot act on."""


def fit_quietly(
    module: FunctionModule, data: SignalDataModule, max_steps: int = 0, *, score: bool = False, **trainer: Any
) -> FunctionModule:
    """Fits a module, which is then on the CPU, without logs, files and messages of Lightning.

    With ``score`` the whole grid is predicted, and the held-out samples are scored; ``trainer`` are further arguments of the
    Trainer.
    """
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    options: dict[str, Any] = {**dict.fromkeys(off, False), "num_sanity_val_steps": 0, **trainer}
    with quiet():
        made = Trainer(max_steps=max_steps, limit_val_batches=None if score else 0, **options)
        made.fit(module, data)
        if score:
            made.test(module, data, verbose=False)
    return module.cpu().eval()


@contextmanager
def quiet() -> Iterator[None]:
    """Hides notices, Lightning's on devices and why a fit ends too, and warnings that nobody can act on."""
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with without_notices(), warnings.catch_warnings():
            for message in HIDDEN_WARNINGS:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        logger.setLevel(before)

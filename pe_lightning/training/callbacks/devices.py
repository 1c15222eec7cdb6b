"""The precision of products on a GPU."""

from __future__ import annotations

from typing import Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pe_lightning.training.callbacks.base import callbacks


@callbacks.register("MatmulPrecision")
class MatmulPrecision(Callback):
    """Sets the precision of float32 products in training steps on a GPU.

    Exact fits and Gram matrices are always computed in full precision.

    Args:
        precision: ``high`` is TF32 (faster, 10 bits), ``medium`` bfloat16, ``highest`` float32.
    """

    def __init__(self, precision: Literal["highest", "high", "medium"] = "high") -> None:
        self.precision = precision

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        torch.set_float32_matmul_precision(self.precision)

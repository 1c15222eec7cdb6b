"""Linear solves want every bit of their dtype, whatever a Trainer has set for training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["full_precision"]


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """No gradients, no autocast, no TF32 or bfloat16 inside float32 products; what was set is restored.

    Args:
        device: Where the products run.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)

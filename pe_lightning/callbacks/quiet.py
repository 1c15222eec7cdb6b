"""Callbacks that cost nothing in the steps in which they do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightning.pytorch import Callback

__all__ = ["QuietCallback"]


class QuietCallback(Callback):
    """A callback without the hooks of a step that a subclass does not define.

    Lightning looks up six hooks of every callback in every step, and calls each of them under its profiler if it can be
    called: 10 microseconds a step for one that does nothing, 3 without these hooks (two cores, Lightning 2.6).
    """

    if not TYPE_CHECKING:
        on_train_batch_start = None
        on_before_zero_grad = None
        on_before_backward = None
        on_after_backward = None
        on_before_optimizer_step = None
        on_train_batch_end = None

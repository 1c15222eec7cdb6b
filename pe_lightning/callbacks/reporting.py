"""What callbacks have to say about a fit, for its ``metrics.json``."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from lightning.pytorch import Trainer

__all__ = ["Reporting", "reports"]


@runtime_checkable
class Reporting(Protocol):
    """A callback with something to say."""

    def report(self) -> dict[str, Any]:
        """Keys and plain values for ``metrics.json``: no tensors, and ``None`` for what is not finite.

        Nothing before a fit. What concerns all processes was exchanged during the fit: one process may ask alone.
        """
        ...


def reports(trainer: Trainer) -> dict[str, Any]:
    """The reports of all callbacks of a Trainer, in their order."""
    found: dict[str, Any] = {}
    callbacks: list[object] = list(trainer.callbacks)  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Reporting):
            found |= callback.report()
    return found

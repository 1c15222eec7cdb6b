"""What callbacks may wait for."""

from __future__ import annotations

from collections.abc import Iterable

from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from pe_lightning.errors import InputError, did_you_mean

__all__ = ["LOGGED", "check_monitors"]

LOGGED = {"val/psnr": "max", "train/psnr": "max", "train/loss": "min"}
"""What our modules log during a fit, and in which direction it improves."""


def check_monitors(callbacks: Iterable[object], held_out: bool, others: Iterable[str] = ()) -> None:
    """Refuses an ``EarlyStopping`` or ``ModelCheckpoint`` that would wait for what does not come, or for the worse.

    Args:
        callbacks: The callbacks of a Trainer.
        held_out: Whether samples are held out, so that there is a ``val/psnr``.
        others: What else is logged, by a module of the user's own.

    Raises:
        InputError: If a callback monitors something else, or in the other direction.
    """
    known = [name for name in LOGGED if held_out or name != "val/psnr"]
    for callback in callbacks:
        if not isinstance(callback, (EarlyStopping, ModelCheckpoint)) or callback.monitor is None:
            continue
        owner, monitor = type(callback).__name__, callback.monitor
        if monitor == "val/psnr" and not held_out:
            raise InputError(
                f"{owner}: there is no val/psnr, as no sample is held out (protocol none); monitor 'train/psnr', or hold "
                "samples out"
            )
        if monitor not in known and monitor not in set(others):
            near = did_you_mean(monitor, known) or "."
            raise InputError(f"{owner}: nothing logs {monitor!r}{near} There are: {', '.join(known)}")
        best = LOGGED.get(monitor)
        if best is not None and callback.mode != best:
            grows = "grows" if best == "max" else "falls"
            raise InputError(f"{owner}: {monitor} {grows} as the fit improves; set mode: {best} (now: {callback.mode})")

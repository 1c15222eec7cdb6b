"""Signals that ask a command to stop: Ctrl-C (SIGINT), SIGTERM of a scheduler, SIGHUP of a closed terminal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """Raised by a signal if nothing can stop gracefully."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        return "interrupted" if self.signum == signal.SIGINT else f"stopped by {signal.Signals(self.signum).name}"


def exit_status(signum: int) -> int:
    """The exit status of a command that a signal stopped: 130, 143 or 129."""
    return 128 + signum


class StopSignals:
    """Handles the signals that ask to stop, within a ``with`` block of the main thread.

    The first is passed to ``act``, and so is the first SIGTERM or SIGHUP after Ctrl-C. A second Ctrl-C raises
    :class:`Interrupted`; repeated SIGTERM and SIGHUP change nothing, since schedulers repeat them. Where SIGHUP is ignored,
    as under ``nohup``, it stays ignored.

    Attributes:
        signum: The last signal that was passed on, if there was one.
    """

    def __init__(self, act: Callable[[int], None]) -> None:
        self.signum: int | None = None
        self._act = act
        self._before: dict[int, Any] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._terminals = [number for number in (1, 2) if _is_terminal(number)]
            for signum in STOP_SIGNALS:
                before = signal.getsignal(signum)
                # None: a handler that was not installed from Python, and could not be restored
                if before is not None and not (signum == getattr(signal, "SIGHUP", None) and before == signal.SIG_IGN):
                    self._before[signum] = signal.signal(signum, self._received)
        return self

    def __exit__(self, *exception: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
            outer = getattr(handler, "__self__", None)
            if isinstance(outer, StopSignals):
                outer.signum = outer.signum if self.signum is None else self.signum  # so that it knows a repeated signal
        self._before = {}

    def _received(self, signum: int, frame: FrameType | None) -> None:
        if signum == getattr(signal, "SIGHUP", None):  # the terminal is gone: writing to it would fail
            for number in self._terminals:
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        if self.signum is None or (self.signum == signal.SIGINT != signum):
            self.signum = signum
            self._act(signum)
        elif signum == signal.SIGINT:
            raise Interrupted(signum)


def raise_interrupted(signum: int) -> None:
    """Raises :class:`Interrupted`."""
    raise Interrupted(signum)


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False

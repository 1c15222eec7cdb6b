"""Ctrl-C during a sweep: the first lets the current cell finish, the second ends it at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from typing_extensions import Self

__all__ = ["AfterThis"]


class AfterThis:
    """Within its block, an interrupt only sets :attr:`asked`; a second one is an ordinary interrupt.

    Args:
        announce: Called at the first interrupt.
    """

    def __init__(self, announce: Callable[[], None]) -> None:
        self.asked = False
        self._announce = announce
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()

    def _hear(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        self._announce()

    def _restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

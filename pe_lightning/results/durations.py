"""Wall seconds of a command, by what they were spent on."""

from __future__ import annotations

import time


class Durations:
    """Seconds by name, and in all since the command began or this object was made.

    Attributes:
        seconds: Seconds by name, in the order in which they were first measured.
    """

    command_began: float | None = None
    """When the command of this process began, by :func:`time.perf_counter`; ``None`` outside of a command."""

    def __init__(self) -> None:
        now = time.perf_counter()
        self.seconds: dict[str, float] = {}
        self._began = self._marked = now
        if Durations.command_began is not None:
            self._began = Durations.command_began
            self.seconds["start"] = now - self._began

    def mark(self, name: str) -> None:
        """Adds the seconds since this object was made, or since the last mark, to those of this name."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._marked
        self._marked = now

    @property
    def total(self) -> float:
        return time.perf_counter() - self._began

"""Acting every so many optimiser steps, also where one batch makes several of them."""

from __future__ import annotations

from pe_lightning.errors import InputError

__all__ = ["Schedule"]


class Schedule:
    """Says after a batch whether a multiple of ``every`` steps was reached or passed. Costs two comparisons.

    Args:
        owner: Name of the callback, for the message of the error.
        every: Optimiser steps between two actions.

    Raises:
        InputError: If ``every`` is not an integer >= 1.
    """

    def __init__(self, owner: str, every: int) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise InputError(f"{owner}: every_n_steps must be an integer >= 1, got {every!r}")
        self.every = every
        self._next: int | None = None

    def start(self, step: int) -> None:
        """Begins at ``step`` optimiser steps, as a fit does, or a resumed one."""
        self._next = (step // self.every + 1) * self.every

    def due(self, step: int) -> bool:
        """Whether to act now, after ``step`` optimiser steps in all; True once per multiple."""
        if self._next is not None and step < self._next:
            return False
        self.start(step)
        return True

"""Results that depend on the training batch alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["BatchCache"]


class BatchCache:
    """Holds one result per name, with the inputs that it was computed from."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[object, ...], Any]] = {}

    def get(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """The result of ``compute()``, which is called again when an input is another object than last time.

        Args:
            name: Name of the result.
            inputs: Inputs of the computation, compared by identity. References are held, so that no other object can take
                their place in memory.
            compute: Computes it.
        """
        held = self._held.get(name)
        if held is None or len(held[0]) != len(inputs) or not all(map(operator.is_, held[0], inputs)):
            held = self._held[name] = (tuple(inputs), compute())
        return held[1]

    def clear(self) -> None:
        """Removes all results."""
        self._held.clear()

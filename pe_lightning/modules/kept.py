"""Results that are kept while they come from the same objects."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Kept"]


class Kept:
    """One result per name, with what it was computed from."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[tuple[object, ...], Any]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str, inputs: Sequence[object], compute: Callable[[], Any]) -> Any:
        """``compute()``, which is called again when an input is another object than last time.

        Args:
            name: What is computed.
            inputs: What it is computed from, compared by identity. They are held too, so that no other object can take
                their place in memory.
            compute: Computes it.
        """
        held = self._held.get(name)
        if held is None or len(held[0]) != len(inputs) or not all(map(operator.is_, held[0], inputs)):
            held = self._held[name] = (tuple(inputs), compute())
        return held[1]

    def clear(self) -> None:
        """Forgets everything."""
        self._held.clear()

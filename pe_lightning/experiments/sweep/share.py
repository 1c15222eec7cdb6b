"""What a cell gets of a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Share"]


@dataclass(frozen=True)
class Share:
    """What a cell gets of a machine in a cluster.

    Args:
        cpus: CPUs, and threads of torch.
        gpus: A GPU, none, or a part of one.
    """

    cpus: int = 1
    gpus: float = 0.0

    def __str__(self) -> str:
        return f"{self.cpus} CPU(s)" + (f" and {self.gpus:g} GPU(s)" if self.gpus else "")

    def places(self, resources: Mapping[str, float]) -> int:
        """How many cells a machine with these resources can run at a time."""
        places = int(resources.get("CPU", 0) // self.cpus)
        if self.gpus:  # a part is of one GPU, never of two
            places = min(places, int(resources.get("GPU", 0)) * int(1 / self.gpus))
        return places

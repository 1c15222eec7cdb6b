"""One of several processes, its share of samples, and the seed of its run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pe_lightning.signals.blocks import Block


@dataclass(frozen=True)
class Process:
    """Rank of this process, from 0, and number of processes."""

    rank: int = 0
    world_size: int = 1

    def share(self, count: int) -> slice:
        """This process's slice of ``count`` items; sizes differ by at most one.

        >>> [Process(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)

    def rows(self, block: Block) -> Block:
        """This process's share of a block, divided along the first axis."""
        share = self.share(block[0].stop - block[0].start)
        return (slice(block[0].start + share.start, block[0].start + share.stop), *block[1:])


def run_seed() -> int:
    """Seed of the run: the argument of Lightning's ``seed_everything``, which processes hand to their children, or 0."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0))

"""Several processes: the share of each, and notices that one of them prints."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pe_lightning.errors import InputError, printable

if TYPE_CHECKING:
    from pe_lightning.signals.blocks import Block

SIGNALS_STRATEGY = "independent_signals"
"""Name of the strategy in which each process fits its own signals."""
NOTICES = logging.getLogger("pe_lightning")
"""Logger of notices to the user; like Lightning's it prints to stderr where the program has no handlers."""
NOTICES.setLevel(logging.INFO)
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Variables that a launcher sets before the processes are connected."""


def check_launch_variables() -> None:
    """Refuses variables of launchers that hold no number: PyTorch and Lightning cannot be imported with them."""
    for name in (*RANK_VARIABLES, "SLURM_NTASKS"):
        if not (given := os.environ.get(name, "0")).isdecimal():
            raise InputError(
                f"the environment has {name}={given!r}, which is no number: type unset {name}, unless a launcher sets it"
            )


def rank_zero_info(text: str) -> None:
    """Logs a notice in the process of rank 0."""
    dist = sys.modules.get("torch.distributed")  # without torch there is one process
    if dist is not None and dist.is_available() and dist.is_initialized():
        rank = dist.get_rank()
    else:
        rank = next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)
    if rank == 0:
        if not NOTICES.hasHandlers():
            NOTICES.addHandler(logging.StreamHandler())
        NOTICES.info(printable(text))


@contextmanager
def without_notices() -> Iterator[None]:
    """Hides notices."""
    before = NOTICES.level
    NOTICES.setLevel(logging.WARNING)
    try:
        yield
    finally:
        NOTICES.setLevel(before)


@dataclass(frozen=True)
class Process:
    """Rank of this process, from 0, and number of processes."""

    rank: int = 0
    world_size: int = 1

    def share(self, count: int) -> slice:
        """This process's slice of ``count`` consecutive items; sizes differ by at most one, and may be 0.

        >>> [Process(rank, 3).share(7) for rank in range(3)]
        [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
        """
        return slice(self.rank * count // self.world_size, (self.rank + 1) * count // self.world_size)

    def rows(self, block: Block) -> Block:
        """This process's share of a block, divided along the first axis.

        >>> Process(1, 2).rows((slice(4, 10), slice(0, 5)))
        (slice(7, 10, None), slice(0, 5, None))
        """
        share = self.share(block[0].stop - block[0].start)
        return (slice(block[0].start + share.start, block[0].start + share.stop), *block[1:])

"""Several processes: variables of launchers, the share and the seed of one, and notices that one process prints."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pe_lightning.errors import InputError, printable

SIGNALS_STRATEGY = "independent_signals"
"""Name of the strategy in which each process fits its own signals."""
NOTICES = logging.getLogger("pe_lightning")
"""Logger of notices to the user, which prints to stderr where the program has no handlers."""
NOTICES.setLevel(logging.INFO)
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Variables that a launcher sets before the processes are connected."""


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

    def rows(self, block: tuple[slice, ...]) -> tuple[slice, ...]:
        """This process's share of a block, divided along the first axis."""
        share = self.share(block[0].stop - block[0].start)
        return (slice(block[0].start + share.start, block[0].start + share.stop), *block[1:])


def run_seed() -> int:
    """Seed of the run: the argument of Lightning's ``seed_everything``, which processes hand to their children, or 0."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0))


def check_launch_variables() -> None:
    """Refuses variables of launchers that hold no number, with which PyTorch and Lightning cannot be imported."""
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

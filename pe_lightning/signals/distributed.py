"""Several processes: variables of launchers, and notices that one process prints."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pe_lightning.errors import InputError, printable

SIGNALS_STRATEGY = "independent_signals"
"""Name of the strategy in which each process fits its own signals."""
NOTICES = logging.getLogger("pe_lightning")
"""Logger of notices to the user, which prints to stderr where the program has no handlers."""
NOTICES.setLevel(logging.INFO)
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
"""Variables that a launcher sets before the processes are connected."""


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

"""Seconds and CPU seconds of exact fits while other programs use every core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pe_lightning.linalg import threads
from pe_lightning.solvers import solve_grid, solve_points


@contextmanager
def busy_cores(number: int = os.cpu_count() or 1) -> Iterator[None]:
    """Busy processes, by default one per core."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def measured(solve: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    solve()
    return time.perf_counter() - wall, time.process_time() - cpu


def loaded(sizes: tuple[int, ...] = (32, 128, 256), repeats: int = 2) -> None:
    """Prints the table: all threads and the chosen number, in turns, the fastest of ``repeats``."""
    cores, number = os.cpu_count(), torch.get_num_threads()
    print(f"\nfits of one N x N RGB picture, gau, ridge auto; {cores} busy processes beside them; seconds (CPU seconds)")
    print(f"with all {number} threads, and with the number that the work is worth; the faster of {repeats} turns")
    print(f"{'':12}{'all threads':>18}{'chosen':>18}{'ratio':>8}")
    chosen = threads.OPERATIONS_PER_THREAD
    with busy_cores():
        for kind, n in [(kind, n) for kind in ("grid", "points") for n in sizes]:
            values, mask = torch.rand(1, n, n, 3), torch.rand(n, n) < 0.25
            axes = [torch.arange(n, dtype=torch.float64) / n] * 2

            def solve(kind=kind, values=values, mask=mask, axes=axes) -> object:  # type: ignore[no-untyped-def]
                return (
                    solve_grid(values, "gau", axes) if kind == "grid" else solve_points(values, "gau", axes=axes, mask=mask)
                )

            best = {}
            for _ in range(repeats):
                for side, operations in (("all", 1.0), ("chosen", chosen)):
                    threads.OPERATIONS_PER_THREAD = operations
                    best[side] = min(best.get(side, (float("inf"), 0.0)), measured(solve))
            columns = "".join(f"{wall:9.3f} ({cpu:6.3f})" for wall, cpu in best.values())
            print(f"{kind} {n:<7}{columns}{best['all'][0] / best['chosen'][0]:8.1f}", flush=True)
    threads.OPERATIONS_PER_THREAD = chosen

"""Number 3: one large picture, fit and evaluation of all its pixels."""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import time

import torch
from solvers_quality import coordinates
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.linalg import encode_axis
from pe_lightning.solvers import GridSolver

ROUTES = ("compact", "dense", "plain")


def picture(rows: slice, columns: slice) -> Tensor:
    """A part of an endless picture of waves and edges, ``(1, n, m, 3)``; made anew where it is asked for."""
    i = torch.arange(rows.start, rows.stop, dtype=torch.float32)[:, None, None]
    j = torch.arange(columns.start, columns.stop, dtype=torch.float32)[None, :, None]
    period = torch.tensor([37.0, 61.0, 97.0])
    waves = torch.sin(i / period) * torch.cos(j / period.flip(0)) * 0.25
    return (0.5 + waves + 0.2 * ((i + 2 * j) % 211 < 90))[None]


def large(size: int, repeats: int) -> None:
    """Prints the table; each route runs in a process of its own, for its peak of memory."""
    features = size // 2
    print(f"\n{size}^2 RGB, gau, K = {features} per axis, ridge 0.01: fit and evaluation of all pixels, median of {repeats}")
    print(f"{'':10}{'encode':>8}{'fit':>9}{'evaluate':>10}{'sum':>9}{'peak MB':>9}   error to compact")
    context = multiprocessing.get_context("spawn")
    expected: list[float] | None = None
    for route in ROUTES:
        with context.Pool(1) as pool:
            seconds, peak, probe = pool.apply(run, (route, size, features, repeats))
        expected = expected or probe
        error = max(abs(a - b) for a, b in zip(probe, expected, strict=True))
        row = "".join(f"{value:{width}.2f}" for value, width in zip((*seconds, sum(seconds)), (8, 9, 10, 9), strict=True))
        print(f"{route:10}{row}{peak:9.0f}   {error:.1e}", flush=True)


def run(route: str, size: int, features: int, repeats: int) -> tuple[list[float], float, list[float]]:
    """Median seconds to encode, fit and evaluate, peak MB, and some pixels of the result.

    ``plain`` is float32 least squares by ``torch.linalg.lstsq`` and dense products: no mean, no ridge.
    """
    values = picture(slice(0, size), slice(0, size))
    encoder, x = encoders.create("gau", num_features=features), coordinates(size)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        psi = encoder(x).float() if route == "plain" else encode_axis(encoder, x, compact=route == "compact")
        encoded = time.perf_counter()
        if route == "plain":
            assert isinstance(psi, Tensor)
            pinv = [torch.linalg.lstsq(psi, torch.eye(size)).solution for _ in range(2)]
            weight = pinv[0] @ values[0].movedim(-1, 0) @ pinv[1].T
            fitted = time.perf_counter()
            image = (psi @ weight @ psi.T).movedim(0, -1)[None]
        else:
            solver = GridSolver([psi, psi])
            solver.accumulate(values)
            solution = solver.solve(0.01)
            fitted = time.perf_counter()
            image = solution.evaluate([psi, psi])
        seconds.append([encoded - began, fitted - encoded, time.perf_counter() - fitted])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    medians = [statistics.median(column) for column in zip(*seconds, strict=True)]
    step = max(size // 7, 1)
    return medians, peak, image[0, ::step, ::step].flatten().tolist()

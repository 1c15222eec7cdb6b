"""The adaptive fit against interpolation: the tables of docs/adaptive.md.

    python benchmarks/adaptive.py --paths FOLDER                    # 16 pictures of 512 x 512: a core minute
    python benchmarks/adaptive.py --only grid --paths samples://astronaut

Every second sample of each axis is trained on unless a section says otherwise; mean PSNR of all others, not clamped. The
defaults of Adaptive were chosen on the even-numbered half of the pictures; tables have both halves.

- ``large``: seconds and memory. ``grid``: bicubic interpolation. ``strides``: every fourth sample. ``noise``: of 25/255 on
  the trained samples. ``points``: 25 % of four pictures at random.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from harness import load, load_all, make_parser, print_row, print_titles, psnr, run_sections, seconds_of
from torch import Tensor

from pe_fill.adaptive import grid as adaptive
from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.grid import AdaptiveGrid
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals import GridBatch, PointBatch, RandomSampling, grid_axes, point_coordinates
from pe_lightning.solvers import solve_points

Method = Callable[[Tensor, tuple[int, ...]], Tensor]
"""Trained samples ``(n_1, ..., n_D, C)`` and the shape of the whole ``(N_1, ..., N_D)`` -> ``(N_1, ..., N_D, C)``."""


def fitted(known: Tensor, shape: tuple[int, ...], ridges: Sequence[float] = (2**-10,)) -> Tensor:
    """The adaptive fit, as the module makes it, with the ridge of least held-out error."""
    bank = AnisotropicKernels("laplace", len(shape), 12, (2, 6))
    steps = [-(-n // k) for n, k in zip(shape, known.shape, strict=False)]
    fits = (AdaptiveGrid(bank, known, shape, (0,) * len(shape), steps, 0.8, ridge) for ridge in ridges)
    return min(fits, key=lambda fit: fit.error).predict(grid_axes(shape))


denoised: Method = partial(fitted, ridges=adaptive.RIDGES)
"""The adaptive fit with ``noise: auto``."""


def baseline(name: str) -> Method:
    """An interpolation."""

    def run(known: Tensor, shape: tuple[int, ...]) -> Tensor:
        axes = grid_axes(shape)
        trained = tuple(x[:: -(-n // k)] for x, n, k in zip(axes, shape, known.shape, strict=False))
        return interpolate(name, GridBatch(trained, known[None]), axes)[0]

    return run


def table(pictures: Tensor, methods: dict[str, Method], stride: int = 2, noise: float = 0.0) -> dict[str, float]:
    """Prints a row per method, and returns the mean PSNR of each; the worst difference is to the first method."""
    shape = tuple(pictures.shape[1:-1])
    every, rest = (slice(None, None, stride),) * len(shape), torch.ones(pictures.shape[1:-1], dtype=torch.bool)
    rest[every] = False
    print_titles("method", "all, dB", "even", "odd-numbered", "worst against the first", "core s")
    first, means = np.array(0.0), {}
    for name, method in methods.items():
        scores, began = [], time.process_time()
        for place, truth in enumerate(pictures):
            known = truth[every].contiguous()
            known = known + noise * torch.randn(known.shape, generator=torch.Generator().manual_seed(place))
            scores.append(psnr((method(known, shape) - truth)[rest]))
        seconds = (time.process_time() - began) / len(pictures)
        first = first if means else np.array(scores)
        halves = [float(np.mean(scores[k::2] or torch.nan)) for k in (0, 1)]
        means[name] = float(np.mean(scores))
        print_row(name, means[name], *halves, float((scores - first).min()), seconds)
    return means


def points(pictures: Tensor, fraction: float) -> dict[str, float]:
    """Random samples, each picture its own: prints a row per method, and returns the mean PSNR of each."""
    grid = tuple(pictures.shape[1:3])
    axes, split = grid_axes(grid), RandomSampling(fraction).split(grid, len(pictures))
    batch = PointBatch(point_coordinates(axes, split.index), split.take(pictures), axes, split.index)
    rest = ~split.train_mask()
    laplace = {"name": "laplace", "num_features": grid[0], "scale": 0.004 * 512 / grid[0]}
    exact = partial(solve_points, batch.values, laplace, axes=axes, index=split.index, ridge=0.062)
    bank = AnisotropicKernels("laplace", len(grid), 12, (2, 6))  # as the module makes it
    signals = [(bank, *each) for each in zip(batch.values, batch.coords, strict=True)]
    methods: dict[str, Callable[[], Tensor]] = {
        "nearest": lambda: interpolate("nearest", batch, axes),
        "delaunay": lambda: interpolate("delaunay", batch, axes),
        "laplace, conjugate gradients": lambda: exact().predict(axes),
        "Adaptive": lambda: torch.stack([AdaptivePoints(*each, grid, 0.8, RIDGE).predict(axes) for each in signals]),
    }
    means = {}
    print_titles(f"{fraction:.0%} of the samples", "PSNR, dB", "core s")
    for name, method in methods.items():
        began = time.process_time()
        prediction = method()
        seconds = (time.process_time() - began) / len(pictures)
        means[name] = float(np.mean([psnr((p - t)[m]) for p, t, m in zip(prediction, pictures, rest, strict=True)]))
        print_row(name, means[name], seconds)
    return means


def large(_: argparse.Namespace) -> None:
    """Seconds and peak memory of one picture of 2040 x 1356 from every second sample."""
    picture = load("samples://astronaut").repeat(3, 4, 1)[:1356, :2040].contiguous()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = seconds_of(lambda: fitted(picture[::2, ::2].contiguous(), (1356, 2040)))
    above = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"2040 x 1356 x 3: {seconds:.1f} core seconds, {above:.0f} MiB above the {before / 1024:.0f} MiB before")


BOTH = {"bicubic": baseline("bicubic"), "Adaptive": fitted}


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"], help="pictures of one size, or a folder")
    sections = {
        "large": large,  # first: it measures memory
        "grid": lambda options: table(load_all(options.paths), BOTH),
        "strides": lambda options: table(load_all(options.paths), BOTH, 4),
        "noise": lambda options: table(load_all(options.paths), {**BOTH, "noise: auto": denoised}, noise=25 / 255),
        "points": lambda options: points(load_all(options.paths)[:4], 0.25),
    }
    run_sections(parser, sections)

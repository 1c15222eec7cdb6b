"""A video cube from every second sample of each of its three axes: closed forms and interpolation.

    python benchmarks/video.py                       # a synthetic pan over a picture of scikit-image; two minutes
    python benchmarks/video.py --npy clip.npy        # a real clip: (T, H, W, 3) or (T, H, W), uint8 or float in [0, 1]

The default cube is no real clip: a window slides over one still picture, one sample a frame along one axis and half a
sample along the other, so that nothing in it deforms, appears or blurs. It is a rigid motion, and says so in the table.

Trained on 64 x 64 x 64 of 128 x 128 x 128 samples, scored on all the others, unclamped; K = 64 per axis and the papers'
widths for the closed form. ``plain`` is their closed form: float32 least squares per axis, no ridge, no mean taken out.
Times are from encoder names to weights (for interpolation: to the whole cube), medians of ``--repeats``, sides in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from quiet import machine
from torch import Tensor

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.encodings import Complex
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.evaluation.metrics import SignalPSNR
from pe_lightning.linalg import mode_products
from pe_lightning.signals import GridBatch, GridSampling, grid_axes
from pe_lightning.signals.sources.samples import sample_path
from pe_lightning.solvers import solve_grid

PAPER: list[dict[str, Any]] = [
    {"name": "linf", "sigma": 4.0},
    {"name": "logf", "sigma": 3.0},
    {"name": "rff", "sigma": 6.0},
    {"name": "tri", "half_width": 3 / 64},
    {"name": "gau", "sigma": 0.009},
]
"""Table 3 of the papers, closed form, K = 64."""


def pan(size: int, name: str) -> Tensor:
    """A window sliding over a picture: ``(1, size, size, size, 3)``, time first."""
    picture = torch.from_numpy(np.array(Image.open(sample_path(f"samples://{name}")).convert("RGB"))).float() / 255
    if picture.shape[0] < 2 * size or picture.shape[1] < 2 * size:
        raise SystemExit(f"samples://{name} has {picture.shape[0]} x {picture.shape[1]} samples; {2 * size} are needed")
    frames = []
    for t in range(size):
        row, rest = divmod(t, 2)
        part = picture[row : row + size, t : t + size]
        if rest:  # half a sample further down
            part = (part + picture[row + 1 : row + 1 + size, t : t + size]) / 2
        frames.append(part)
    return torch.stack(frames)[None]


def clip(path: str, size: int) -> Tensor:
    """The middle of a clip, ``(1, size, size, size, C)``."""
    array = torch.from_numpy(np.load(path))
    values = array.float() / (1 if array.is_floating_point() else 255)
    values = values if values.ndim == 4 else values[..., None]
    if values.ndim != 4 or min(values.shape[:3]) < size:
        raise SystemExit(
            f"{path}: a clip is (T, H, W, C) or (T, H, W) with at least {size} of each; got {tuple(array.shape)}"
        )
    for axis in range(3):
        values = values.narrow(axis, (values.shape[axis] - size) // 2, size)
    return values[None].contiguous()


def plain(encoder: Encoder, batch: GridBatch) -> Tensor:
    """The papers' closed form, ``(S, C, K, K, K)``."""
    features = [encoder(x) for x in batch.axes]
    inverses = [torch.linalg.lstsq(psi, torch.eye(len(psi))).solution for psi in features]
    return mode_products(batch.values.movedim(-1, 1), inverses)


def main(arguments: list[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npy", help="a real clip as an array")
    parser.add_argument("--sample", default="astronaut", help="the picture that the default cube slides over")
    parser.add_argument("--size", type=int, default=128, help="samples per axis, even")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    cube = clip(options.npy, options.size) if options.npy else pan(options.size, options.sample)
    what = options.npy or f"synthetic pan over samples://{options.sample}"
    print(f"{Path(__file__).name}: {machine()}, load {os.getloadavg()[0]:.1f}")
    print(f"{what}: {tuple(cube.shape[1:])}, from {options.size // 2} samples per axis; medians of {options.repeats}\n")

    split = GridSampling(2).split(cube.shape[1:4], 1)
    axes = grid_axes(cube.shape[1:4])
    batch = GridBatch(tuple(x[i] for x, i in zip(axes, split.index, strict=True)), split.take(cube))
    held_out = split.test_mask("rest")

    def score(prediction: Tensor) -> float:
        metric = SignalPSNR(1)
        metric.update(prediction, cube, held_out)
        return metric.per_signal().item()

    def medians(*sides: Callable[[], Any]) -> list[tuple[float, Any]]:
        seconds: list[list[float]] = [[] for _ in sides]
        results: list[Any] = [None] * len(sides)
        for _ in range(options.repeats):
            for number, side in enumerate(sides):
                start = time.perf_counter()
                results[number] = side()
                seconds[number].append(time.perf_counter() - start)
        return [(statistics.median(s), r) for s, r in zip(seconds, results, strict=True)]

    print(f"{'':8}{'plain dB':>10}{'s':>8}{'auto dB':>10}{'s':>8}{'ridge':>11}{'fixed dB':>10}{'s':>8}   (fixed: one ridge)")
    for spec in PAPER:
        encoder = resolve({**spec, "num_features": options.size // 2})
        encoding = Complex(encoder, 3, normalize=False)
        chosen = solve_grid(batch.values, encoder, batch.axes)
        (first, weight), (second, solution), (third, fixed) = medians(
            lambda e=encoder: plain(e, batch),  # type: ignore[misc]
            lambda e=encoder: solve_grid(batch.values, e, batch.axes),  # type: ignore[misc]
            lambda e=encoder, r=chosen.ridge: solve_grid(batch.values, e, batch.axes, ridge=r),  # type: ignore[misc]
        )
        values = [
            score(encoding.grid(w, axes).movedim(1, -1) + mean)
            for w, mean in ((weight, 0.0), (solution.weight, solution.mean), (fixed.weight, fixed.mean))
        ]
        print(
            f"{spec['name']:8}{values[0]:10.2f}{first:8.3f}{values[1]:10.2f}{second:8.3f}{solution.ridge:11.3g}"
            f"{values[2]:10.2f}{third:8.3f}",
            flush=True,
        )
    labels = {"nearest": "nearest", "linear": "linear (trilinear)", "bicubic": "tricubic", "spline": "spline"}
    for name, label in labels.items():
        ((seconds, prediction),) = medians(lambda n=name: interpolate(n, batch, axes))  # type: ignore[misc]
        print(f"{label:18}{score(prediction):10.2f}{seconds:8.3f}", flush=True)


if __name__ == "__main__":
    main()

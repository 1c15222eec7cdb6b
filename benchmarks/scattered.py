"""A random share of the samples of pictures: exact solves, gradient descent through blending, Delaunay triangulation.

    python benchmarks/scattered.py --paths FOLDER              # PNGs of one size, such as natural16; 20 minutes
    python benchmarks/scattered.py --size 128 --steps 100      # a look, on scikit-image's samples

Trained on ``--fraction`` of the samples, drawn per picture, scored on all the others: mean of the PSNR per picture,
unclamped. Two tables:

- Quality of all pictures: exact solves at fixed ridges and with ``ridge: auto``, Delaunay interpolation.
- Time on ``--descents`` pictures, one by one: gradient descent as in the papers (blending, K = 256, Adam at 0.1, zero
  start, mean taken out) against the solver. Sides take turns: the descent is cut into five blocks of steps, and after
  each block the solver fits the same picture from scratch. Compared are the median solve and five times the median block.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from quiet import machine
from solvers_quality import load
from torch import Tensor

from pe_lightning.encoders import Encoder, resolve
from pe_lightning.encodings import Blended, Complex
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.evaluation.metrics import SignalPSNR
from pe_lightning.signals import PointBatch, RandomSampling, grid_axes, point_coordinates
from pe_lightning.solvers import Solution, solve_points

BLOCKS = 5
PAPER: dict[str, Any] = {"name": "gau", "num_features": 256, "sigma": 0.005}
"""The papers' setting for scattered points."""


class Task:
    """Pictures and which of their samples are trained on."""

    def __init__(self, values: Tensor, fraction: float) -> None:
        self.values = values
        self.grid = tuple(values.shape[1:3])
        self.axes = grid_axes(self.grid)
        self.split = RandomSampling(fraction).split(self.grid, len(values))
        self.mask = self.split.train_mask()
        self.coords = point_coordinates(self.axes, self.split.index)
        self.batch = PointBatch(self.coords, self.split.take(values), self.axes, self.split.index)

    def score(self, prediction: Tensor, signals: slice = slice(None)) -> float:
        """Mean PSNR over the samples that are not trained on."""
        values = self.values[signals]
        metric = SignalPSNR(len(values))
        metric.update(prediction, values, ~self.mask[signals])
        return metric.per_signal().mean().item()

    def solve(self, encoder: Encoder, signals: slice = slice(None), **options: Any) -> Solution:
        """The exact fit of some pictures."""
        return solve_points(self.batch.values[signals], encoder, axes=self.axes, index=self.split.index[signals], **options)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def quality(task: Task, size: int, repeats: int) -> None:
    """The table of all pictures."""
    scale = 512 / size  # widths are the papers' at 512 samples
    fixed = [
        ("gau K=256 sigma=0.0035", {"name": "gau", "num_features": size // 2, "sigma": 0.0035 * scale}, 0.12),
        ("laplace K=512 scale=0.004", {"name": "laplace", "num_features": size, "scale": 0.004 * scale}, 0.062),
    ]
    count = len(task.values)
    print(f"\n{'':44}{'dB':>7}{'s/picture':>11}{'iterations':>12}{'ridge':>9}")
    for label, spec, ridge in fixed:
        encoder = resolve(spec)
        for options in ({"ridge": ridge, "tolerance": 1e-3}, {"ridge": ridge}, {"ridge": "auto"}):
            runs = [timed(lambda e=encoder, o=options: task.solve(e, **o)) for _ in range(repeats)]  # type: ignore[misc]
            seconds, solution = statistics.median(s for s, _ in runs), runs[0][1]
            how = f"ridge {options['ridge']}, to {options.get('tolerance', 1e-4):g}"
            psnr = task.score(solution.predict(task.axes))
            used = f"{int(solution.iterations.min())}-{int(solution.iterations.max())}"
            print(f"{label + ', ' + how:44}{psnr:7.2f}{seconds / count:11.3f}{used:>12}{solution.ridge:9.3g}", flush=True)
    for name in ("delaunay", "nearest"):
        runs = [timed(lambda n=name: interpolate(n, task.batch, task.axes)) for _ in range(repeats)]  # type: ignore[misc]
        seconds = statistics.median(s for s, _ in runs)
        print(f"{name:44}{task.score(runs[0][1]):7.2f}{seconds / count:11.3f}", flush=True)


class SparseProduct(torch.autograd.Function):
    """``matrix @ columns``; PyTorch's own backward pass of a sparse product is slow."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        """The product."""
        ctx.transposed = transposed
        return matrix @ columns.contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The product with the transpose."""
        return ctx.transposed @ gradient.contiguous(), None, None


def blending_matrix(blended: Blended, coords: Tensor) -> tuple[Tensor, Tensor]:
    """The papers' sparse matrix ``B`` ``(P, nodes)`` of points ``(P, D)``, and its transpose, both compressed by rows."""
    (index,), (weight,) = blended.neighbours(coords)
    rows = torch.arange(len(coords)).expand(len(index), -1).flatten()
    size = (len(coords), math.prod(blended.nodes))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        matrix = torch.sparse_coo_tensor(torch.stack([rows, index.flatten()]), weight.flatten(), size, check_invariants=True)
        return matrix.coalesce().to_sparse_csr(), matrix.T.coalesce().to_sparse_csr()


class Descent:
    """Gradient descent on one picture through blending, as the papers do it."""

    def __init__(self, task: Task, signal: int, encoder: Encoder) -> None:
        encoding = Complex(encoder, 2)
        encoding.calibrate(task.axes)
        self.blended = Blended(encoding)
        self.matrices = blending_matrix(self.blended, task.coords[signal])
        self.features = self.blended.node_features(torch.float32)
        values = task.batch.values[signal : signal + 1]
        self.mean = values.mean(1)
        self.target = (values - self.mean[:, None]).movedim(-1, 1).contiguous()
        self.weight = torch.zeros(1, values.shape[-1], *encoding.num_features, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.weight], lr=0.1, weight_decay=1e-8, fused=True)

    def run(self, steps: int) -> None:
        """Some steps, full batch."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            nodes = self.blended.encoding.products(self.weight, self.features).flatten(2)
            prediction = SparseProduct.apply(nodes[0].T, *self.matrices).T[None]
            torch.nn.functional.mse_loss(prediction, self.target).backward()
            self.optimizer.step()

    @torch.no_grad()
    def predict(self, task: Task) -> tuple[Tensor, Tensor]:
        """The whole grid, exactly and through blending."""
        points = torch.stack(torch.meshgrid(*task.axes, indexing="ij"), -1).reshape(-1, 2)
        exact = self.blended.encoding.grid(self.weight, task.axes).movedim(1, -1)
        blended = self.blended(self.weight, points).movedim(1, -1).reshape(exact.shape)
        return exact + self.mean, blended + self.mean


def descents(task: Task, size: int, count: int, steps: int) -> None:
    """The table of times."""
    scale = 512 / size
    paper = resolve({**PAPER, "num_features": size // 2, "sigma": PAPER["sigma"] * scale})
    sides = [
        ("gau, the same encoder", paper, {"ridge": 0.12}),
        ("gau, the same, ridge: auto", paper, {"ridge": "auto"}),
        ("gau sigma=0.0035", resolve({"name": "gau", "num_features": size // 2, "sigma": 0.0035 * scale}), {"ridge": 0.12}),
        ("laplace", resolve({"name": "laplace", "num_features": size, "scale": 0.004 * scale}), {"ridge": 0.062}),
    ]
    sides = [(label, encoder, {"tolerance": 1e-3, **options}) for label, encoder, options in sides]
    seconds: dict[str, list[float]] = {label: [] for label, _, _ in sides}
    blocks: list[float] = []
    psnr: dict[str, list[float]] = {label: [] for label in ("exact", "blended", *seconds)}
    for signal in range(count):
        one = slice(signal, signal + 1)
        descent = Descent(task, signal, paper)
        for block in range(BLOCKS):
            blocks.append(timed(lambda d=descent: d.run(steps // BLOCKS))[0])  # type: ignore[misc]
            for label, encoder, options in sides:
                spent, solution = timed(lambda e=encoder, o=options, w=one: task.solve(e, w, **o))  # type: ignore[misc]
                seconds[label].append(spent)
                if block == 0:
                    psnr[label].append(task.score(solution.predict(task.axes), one))
        for label, prediction in zip(("exact", "blended"), descent.predict(task), strict=True):
            psnr[label].append(task.score(prediction, one))
    slow = BLOCKS * statistics.median(blocks)
    print(f"\n{count} picture(s), medians of {BLOCKS * count} turns{'':12}{'dB':>7}{'s/picture':>11}{'times faster':>14}")
    mean = statistics.mean
    print(f"{f'descent, {steps} steps, evaluated exactly':44}{mean(psnr['exact']):7.2f}{slow:11.2f}")
    print(f"{f'descent, {steps} steps, evaluated by blending':44}{mean(psnr['blended']):7.2f}")
    for label, values in seconds.items():
        median = statistics.median(values)
        print(f"{'solver, ' + label:44}{mean(psnr[label]):7.2f}{median:11.3f}{slow / median:14.0f}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", nargs="+", help="pictures of one size, or a folder; default: samples of scikit-image")
    parser.add_argument("--fraction", type=float, default=0.25)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000, help="of gradient descent, a multiple of five")
    parser.add_argument("--descents", type=int, default=2, help="pictures that gradient descent is run on")
    parser.add_argument("--size", type=int, default=512, help="crop the pictures to this side")
    parser.add_argument("--pictures", type=int, help="take only the first so many pictures")
    parser.add_argument("--only", default="quality,time", help="tables, separated by commas")
    options = parser.parse_args(arguments)
    values = load(options.paths)[: options.pictures, : options.size, : options.size].contiguous()
    task = Task(values, options.fraction)
    load_average = f"load {os.getloadavg()[0]:.1f}"
    print(f"{Path(__file__).name}: {machine()}, {load_average}; {len(values)} pictures of {task.grid}, {vars(options)}")
    tables = options.only.split(",")
    if "quality" in tables:
        quality(task, options.size, options.repeats)
    if "time" in tables:
        descents(task, options.size, min(options.descents, len(values)), options.steps)


if __name__ == "__main__":
    main()

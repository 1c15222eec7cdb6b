"""Number 2: seconds from encoded axes to weights."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from solvers_quality import PAPER, coordinates, plain
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.linalg import mode_products
from pe_lightning.solvers import GridSolver, solve_grid


def turns(sides: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each side; they take turns, after one turn to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def timing(images: Tensor, repeats: int) -> None:
    """Prints the table."""
    train = images[:, ::2, ::2].contiguous()
    axes = [coordinates(n)[::2] for n in images.shape[1:3]]
    print(f"\nseconds from encoded axes to the weights of all {len(images)} pictures, median of {repeats}")
    print(f"{'':6}{'lstsq f32':>10}{'solver':>9}{'ratio':>7}{'floor':>8}{'ridge auto':>12}{'sigma auto':>12}")
    for name, arguments in PAPER.items():
        encoder = encoders.create(name, num_features=256, **arguments)
        first = encoder(axes[0])
        features = [first, first if train.shape[1] == train.shape[2] else encoder(axes[1])]
        single = [psi.float() for psi in features]
        channels_first = train.movedim(-1, 1).contiguous()

        def solve(features: list[Tensor] = features) -> object:
            solver = GridSolver(features)
            solver.accumulate(train)
            return solver.solve(1e-3)

        def floor(single: list[Tensor] = single, values: Tensor = channels_first) -> object:
            # into the eigenbasis and out of it again, at full rank
            ranks = [min(psi.shape) for psi in single]
            spectrum = mode_products(values, [psi[:, :r].T for psi, r in zip(single, ranks, strict=True)])
            return mode_products(spectrum, [psi[:r].T for psi, r in zip(single, ranks, strict=True)])

        seconds = turns(
            {
                "plain": lambda single=single: plain(single, train),  # type: ignore[misc]
                "solve": solve,
                "floor": floor,
                "ridge": lambda encoder=encoder: solve_grid(train, encoder, axes),  # type: ignore[misc]
                "sigma": lambda encoder=encoder: solve_grid(train, encoder, axes, sigma="auto"),  # type: ignore[misc]
            },
            repeats,
        )
        print(
            f"{name:6}{seconds['plain']:10.3f}{seconds['solve']:9.3f}{seconds['plain'] / seconds['solve']:7.2f}"
            f"{seconds['floor']:8.3f}{seconds['ridge']:12.3f}{seconds['sigma']:12.3f}",
            flush=True,
        )

"""Closed-form fits on grids: quality, and time beside other programs. Prints one table per section.

    python benchmarks/solvers.py                                     # everything, some minutes on two cores
    python benchmarks/solvers.py --only quality --paths FOLDER       # pictures of one size, such as natural16

- ``quality``: test PSNR of the closed form with ``ridge: auto``, with the best fixed ridge, and with ``sigma: auto`` too.
  Trained on every second sample of each axis, scored on all the others, not clamped, mean of the PSNR per picture.
- ``threads``: wall and processor seconds of exact fits while other programs use every core, with all threads and with the
  number that is chosen; the sides take turns, the least of two.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from harness import (
    PHOTOGRAPHS,
    bicubic_psnr,
    busy_cores,
    files_of,
    load,
    make_parser,
    print_row,
    print_titles,
    psnr,
    run_sections,
    seconds_of,
)
from torch import Tensor

from pe_lightning import encoders
from pe_lightning.linalg import threads
from pe_lightning.solvers import solve_grid, solve_points

PAPER: dict[str, dict[str, Any]] = {
    "linf": {"sigma": 6.0},
    "logf": {"sigma": 6.5},
    "rff": {"sigma": 42.0, "seed": 0},
    "tri": {"half_width": 1 / 256},
    "gau": {"sigma": 0.0025},
}
"""The papers' settings for the closed form at K = 256."""


def coordinates(n: int) -> Tensor:
    """``i / n``."""
    return torch.arange(n, dtype=torch.float64) / n


def quality(images: Tensor) -> None:
    """Prints the table of pictures ``(S, H, W, C)``."""
    axes = [coordinates(n) for n in images.shape[1:3]]
    train, half = images[:, ::2, ::2], [x[::2] for x in axes]
    mask = torch.ones(images.shape[1:3], dtype=torch.bool)
    mask[::2, ::2] = False

    def score(found: Any) -> float:
        error = (found.predict(axes) - images)[:, mask]
        return sum(map(psnr, error)) / len(images)

    print_titles("encoder", "ridge auto, dB", "ridge", "best fixed ridge, dB", "sigma auto, dB", "sigma")
    for name, arguments in PAPER.items():
        encoder = encoders.create(name, num_features=256, **arguments)
        auto, free = solve_grid(train, encoder, half), solve_grid(train, encoder, half, sigma="auto")
        best = max(score(solve_grid(train, encoder, half, ridge=10 ** (k / 2))) for k in range(-16, 1))
        assert free.choice is not None
        print_row(name, score(auto), f"{auto.ridge:.1e}", best, score(free), f"{free.choice.report()['value'][0]:.4g}")
    print(f"bicubic interpolation {sum(map(bicubic_psnr, images)) / len(images):.2f}", flush=True)


def loaded(sizes: tuple[int, ...] = (32, 128, 256), repeats: int = 2) -> None:
    """Prints the table: all threads and the chosen number, in turns, the fastest of ``repeats``."""
    print_titles("RGB picture, gau", "all threads, s", "core s", "chosen, s", "core s", "ratio")
    chosen = threads.OPERATIONS_PER_THREAD
    with busy_cores():
        for kind, n in [(kind, n) for kind in ("grid", "points") for n in sizes]:
            values, mask = torch.rand(1, n, n, 3), torch.rand(n, n) < 0.25
            options = {"axes": [coordinates(n)] * 2} | ({"mask": mask} if kind == "points" else {})
            solve, best = solve_grid if kind == "grid" else solve_points, {}
            for _ in range(repeats):
                for side, operations in (("all", 1.0), ("chosen", chosen)):
                    threads.OPERATIONS_PER_THREAD, began = operations, time.process_time()
                    wall = seconds_of(lambda: solve(values, "gau", **options), time.perf_counter)  # noqa: B023
                    best[side] = min(best.get(side, (torch.inf, 0.0)), (wall, time.process_time() - began))
            print_row(f"{kind} {n}", *best["all"], *best["chosen"], best["all"][0] / best["chosen"][0])
    threads.OPERATIONS_PER_THREAD = chosen


def main() -> None:
    """Runs the sections."""
    parser = make_parser(__doc__)
    parser.add_argument(
        "--paths", nargs="+", default=[f"samples://{PHOTOGRAPHS[0]}"], help="pictures of one size, or a folder"
    )

    def of_pictures(options: argparse.Namespace) -> None:
        quality(torch.stack([load(path) for path in files_of(options.paths)]))

    run_sections(parser, {"quality": of_pictures, "threads": lambda options: loaded()})


if __name__ == "__main__":
    main()

"""Exact fits: learned widths and frequencies, and time beside other programs. Prints one table per section.

    python benchmarks/solvers.py                                              # everything, minutes on two cores
    python benchmarks/solvers.py --only widths --paths FOLDER                 # pictures of one size, such as natural16
    OMP_NUM_THREADS=1 python benchmarks/solvers.py --only authors --repeats 9 --paths FOLDER

- ``widths``: widths that are learned from a start that is four times wrong, beside the best of nine fixed widths;
  ``descent`` is gradient descent of weights and width together.
- ``learned``: encoders with learned frequencies or phases, beside the exact fit of their start, over eight
  draws; of pictures at 48 x 48.
- ``threads``: exact fits while other programs use every core, with all threads and with the number that is chosen.
- ``authors``: sixteen pictures, every second sample of each axis, beside a program that solves them as the authors' does.

Times are wall and processor seconds, the least of ``--repeats`` turns, in which both sides take part.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import harness
import torch
from harness import PHOTOGRAPHS, load_all, print_row, print_titles
from torch import Tensor

import pe_lightning
from pe_lightning import encoders
from pe_lightning.linalg import threads
from pe_lightning.solvers import solve_grid, solve_points
from pe_lightning.training import ComplexLinear, ImageDataModule

PAPER: dict[str, dict[str, Any]] = {
    "linf": {"sigma": 6.0},
    "logf": {"sigma": 6.5},
    "rff": {"sigma": 42.0, "seed": 0},
    "tri": {"half_width": 1 / 256},
    "gau": {"sigma": 0.0025},
}
"""The papers' settings for the closed form at K = 256."""
Times = tuple[float, float]


def coordinates(n: int) -> Tensor:
    """``i / n``."""
    return torch.arange(n, dtype=torch.float64) / n


def widths(path: str, descent: int = 100) -> None:
    """Prints held-out PSNR in dB of learned widths; ``descent`` is the number of its steps."""
    warnings.simplefilter("ignore")
    ways = [f"{way}, x {factor}" for factor in (4, 0.25) for way in ("learned", "descent")]
    print_titles("encoder", "best fixed width", *ways)
    data = ImageDataModule(path)
    for name in ("gau", "laplace", "rff"):
        encoder = encoders.for_data(encoders.resolve(name), encoders.Samples(tuple((n + 1) // 2 for n in data.info.grid)))
        argument = encoder.width.argument
        scaled = partial(_scaled, encoder, argument, float(getattr(encoder, argument)))
        row = [max(pe_lightning.fit(data, scaled(2 ** (k / 2))).psnr for k in range(-4, 5))]
        for factor in (4.0, 0.25):
            row.append(pe_lightning.fit(data, scaled(factor, trainable=True)).psnr)
            model = ComplexLinear(scaled(factor, trainable=True))
            row.append(pe_lightning.fit(data, model=model, max_steps=descent).psnr)
        print_row(name, *row)


class Waves(encoders.Encoder):
    """Cosines and sines of eight normal frequencies, or the first layer of a SIREN, learned unless they are ``fixed``."""

    def __init__(self, siren: bool = False, scale: float = 10.0, seed: int = 0, fixed: bool = False) -> None:
        super().__init__(16)
        self.siren, generator = siren, torch.Generator().manual_seed(seed)
        if siren:  # sin(30 (w x + b)), w and b uniform
            rows = 30 / (2 * torch.pi) * (2 * torch.rand(2, 16, generator=generator) - 1)
        else:
            rows = scale * torch.randn(1, 8, generator=generator)
        self.register_buffer("rows", rows)
        if not fixed:
            del self.rows
            self.rows = torch.nn.Parameter(rows)

    def forward(self, x: Tensor) -> Tensor:
        rows = 2 * torch.pi * self.rows.to(x.dtype)
        if self.siren:
            return torch.sin(x[..., None] * rows[0] + rows[1])
        return torch.cat([torch.cos(x[..., None] * rows[0]), torch.sin(x[..., None] * rows[0])], -1)


def learned(paths: Sequence[str], seeds: int = 8) -> None:
    """Prints held-out PSNR in dB, mean over draws, of exact fits with given and with learned parameters."""
    warnings.simplefilter("ignore")
    pairs: dict[str, Callable[[int], tuple[Any, Any]]] = {
        "own, 8 frequencies": lambda seed: (Waves(seed=seed, fixed=True), Waves(seed=seed)),
        "own, SIREN's layer": lambda seed: (Waves(True, seed=seed, fixed=True), Waves(True, seed=seed)),
    }
    free = {"trainable": True, "per_feature": True}
    for name, more in {"rff": {"num_features": 16, "sigma": 10.0}, "logf": {"sigma": 3.0}}.items():
        drawn = ("seed",) if name == "rff" else ()
        pairs[f"{name}, per_feature"] = lambda seed, name=name, more=more, drawn=drawn: (  # type: ignore[misc]
            {"name": name, **more, **dict.fromkeys(drawn, seed)},
            {"name": name, **more, **dict.fromkeys(drawn, seed), **free},
        )
    print_titles("picture", "encoder", "start, dB", "learned, dB", "least gain", "largest gain", "draws below the start")
    for path in paths:
        data = ImageDataModule(path, resize=48)
        for name, pair in pairs.items():
            draws = range(seeds if name[:3] in ("own", "rff") else 1)
            start, found = torch.tensor([[pe_lightning.fit(data, one).psnr for one in pair(seed)] for seed in draws]).T
            gain = found - start
            below = f"{int((gain < -0.02).sum())} of {len(gain)}"
            print_row(
                Path(path).name, name, *(float(x) for x in (start.mean(), found.mean(), gain.min(), gain.max())), below
            )


def _scaled(encoder: encoders.Encoder, argument: str, width: float, factor: float, **options: Any) -> encoders.Encoder:
    return encoder.copy(**{argument: width * factor}, **options)


def timed(work: Callable[[], object]) -> Times:
    """Wall and processor seconds of a call."""
    wall, core = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - core


def loaded(sizes: tuple[int, ...] = (32, 128, 256), repeats: int = 2) -> None:
    """Prints the table of exact fits while other programs use every core."""
    chosen = threads.OPERATIONS_PER_THREAD

    def fit(operations: float, solve: Callable[[], object]) -> Times:
        threads.OPERATIONS_PER_THREAD = operations
        return timed(solve)

    columns = (f"{side}, {unit}" for side in ("chosen", "all threads") for unit in ("wall s", "core s"))
    print_titles("RGB picture, gau", *columns, "ratio")
    try:
        with harness.busy_cores():
            for kind, n in [(kind, n) for kind in ("grid", "points") for n in sizes]:
                values, options = torch.rand(1, n, n, 3), {"axes": [coordinates(n)] * 2}
                solve = partial(solve_grid, values, "gau", **options)
                if kind == "points":
                    solve = partial(solve_points, values, "gau", mask=torch.rand(n, n) < 0.25, **options)
                turns = [[fit(operations, solve) for operations in (chosen, 1.0)] for _ in range(repeats)]
                first, second = (tuple(map(min, zip(*side, strict=True))) for side in zip(*turns, strict=True))
                print_row(f"{kind} {n}", *(f"{x:.3g}" for x in (*first, *second)), second[0] / first[0])
    finally:
        threads.OPERATIONS_PER_THREAD = chosen


def authors(repeats: int, paths: Sequence[str]) -> None:
    """Prints core seconds of the authors' closed form, and the ratios of exact fits of all pictures to it."""
    print_titles("encoder", "authors, core s", "given ridge, ratio", "ridge auto, ratio")
    images = load_all(paths)
    if len(images) == 1:
        images = torch.cat([images.roll((32 * shift, 32 * shift), (1, 2)) for shift in range(16)])
    values, axes = images[:, ::2, ::2].contiguous(), [coordinates(images.shape[1])[::2]] * 2  # square pictures
    for name, arguments in PAPER.items():
        encoder = encoders.create(name, num_features=256, **arguments)

        def closed_form(encoder: encoders.Encoder = encoder) -> None:
            for picture in values:  # as the authors' program: one after another, in float32, without mean and ridge
                features = encoder(axes[0].float())
                inverse = torch.linalg.lstsq(features, torch.eye(len(features))).solution
                _ = inverse @ picture.movedim(-1, 0) @ inverse.T

        fits = {ridge: partial(solve_grid, values, encoder, axes, ridge=ridge) for ridge in (1e-3, "auto")}
        turns = [[timed(side)[1] for side in (closed_form, *fits.values())] for _ in range(repeats)]
        theirs, given, auto = map(min, zip(*turns, strict=True))
        print_row(name, f"{theirs:.3f}", given / theirs, auto / theirs)


if __name__ == "__main__":
    parser = harness.make_parser(__doc__)
    photograph = [f"samples://{PHOTOGRAPHS[0]}"]
    parser.add_argument("--paths", nargs="+", default=photograph, help="pictures of one size, or a folder")
    parser.add_argument("--repeats", type=int, default=3, help="turns of authors")
    sections: dict[str, Callable[[argparse.Namespace], None]] = {
        "widths": lambda options: widths(harness.files_of(options.paths)[0]),
        "learned": lambda options: learned(harness.files_of(options.paths)),
        "threads": lambda options: loaded(),
        "authors": lambda options: authors(options.repeats, options.paths),
    }
    harness.run_sections(parser, sections)

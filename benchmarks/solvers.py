"""Exact fits: quality, learned widths, and time beside other programs. Prints one table per section.

    python benchmarks/solvers.py                                              # everything, minutes on two cores
    python benchmarks/solvers.py --only quality widths --paths FOLDER         # pictures of one size, such as natural16
    OMP_NUM_THREADS=1 python benchmarks/solvers.py --only authors --repeats 9 --paths FOLDER
    python benchmarks/solvers.py --only fill --busy 2                         # beside two busy processes

- ``quality``: PSNR of the closed form with ``ridge: auto``, with the best fixed ridge, and with ``sigma: auto`` too, trained
  on every second sample of each axis, scored on the others.
- ``widths``: widths that are learned from a start that is four times wrong, beside the best of nine fixed widths;
  ``descent`` is gradient descent of weights and width together.
- ``learned``: encoders with learned frequencies or phases, beside the exact fit of their start, over eight
  draws; of pictures at 48 x 48.
- ``threads``: exact fits while other programs use every core, with all threads and with the number that is chosen.
- ``fill``: a picture of 512 x 768, of which a quarter is known, with one thread and with the default number.
- ``sweep``: ``pe-lightning sweep`` of 5 encoders x 3 widths, and 15 ``fit`` commands, which have the same PSNR.
- ``authors``: sixteen pictures, every second sample of each axis, beside a program that solves them as the authors' does.

Times are wall and processor seconds, the least of ``--repeats`` turns, in which both sides take part.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from harness import PHOTOGRAPHS, bicubic_psnr, load, load_all, print_row, print_titles, psnr, run
from PIL import Image
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


def compare(name: str, sides: Mapping[str, Callable[[], Times]], repeats: int) -> None:
    """Prints the least seconds of two sides that take turns, and the second over the first."""
    turns = [[side() for side in sides.values()] for _ in range(repeats)]
    first, second = (tuple(map(min, zip(*side, strict=True))) for side in zip(*turns, strict=True))
    print_row(name, *(f"{x:.3g}" for x in (*first, *second)), second[0] / first[0])


def titles(what: str, first: str, second: str) -> None:
    """The head of a table of :func:`compare`."""
    print_titles(what, *(f"{side}, {unit}" for side in (first, second) for unit in ("wall s", "core s")), "ratio")


def loaded(sizes: tuple[int, ...] = (32, 128, 256), repeats: int = 2) -> None:
    """Prints the table of exact fits while other programs use every core."""
    chosen = threads.OPERATIONS_PER_THREAD

    def fit(operations: float, solve: Callable[[], object]) -> Times:
        threads.OPERATIONS_PER_THREAD = operations
        return timed(solve)

    titles("RGB picture, gau", "chosen", "all threads")
    try:
        with harness.busy_cores():
            for kind, n in [(kind, n) for kind in ("grid", "points") for n in sizes]:
                values, options = torch.rand(1, n, n, 3), {"axes": [coordinates(n)] * 2}
                solve = partial(solve_grid, values, "gau", **options)
                if kind == "points":
                    solve = partial(solve_points, values, "gau", mask=torch.rand(n, n) < 0.25, **options)
                compare(f"{kind} {n}", {"chosen": partial(fit, chosen, solve), "all": partial(fit, 1.0, solve)}, repeats)
    finally:
        threads.OPERATIONS_PER_THREAD = chosen


def filled(repeats: int) -> None:
    """Prints the table of the command ``fill``."""
    titles("fill", "one thread", "default")
    picture = load(f"samples://{PHOTOGRAPHS[0]}").mul(255).round().byte().numpy()
    wide = np.concatenate([picture, picture[:, :255:-1]], 1)
    missing = np.random.default_rng(0).random(wide.shape[:2]) > 0.25
    with tempfile.TemporaryDirectory() as folder:
        for name, values in (("quarter.png", wide), ("mask.png", missing.astype(np.uint8) * 255)):
            Image.fromarray(values).save(Path(folder, name))
        command = ["fill", "quarter.png", "--missing", "mask.png", "--out", "out.png", "--force"]
        sides = {n: partial(run, *command, folder=Path(folder), OMP_NUM_THREADS=str(n)) for n in (1, os.cpu_count())}
        compare("a quarter known", {str(n): lambda side=side: side()[1:] for n, side in sides.items()}, repeats)  # type: ignore[misc]


def swept(options: argparse.Namespace, num_features: int = 256) -> None:
    """Prints the seconds of a sweep and of single commands."""
    paths = [path if "://" in path else str(Path(path).absolute()) for path in options.paths]
    common = ["--config", "image/closed_form", f"--data.paths={json.dumps(paths)}", "--wandb.enabled=false"]
    common.append("--trainer.enable_progress_bar=false")
    cells = []
    for name, width in {"gau": "sigma", "tri": "half_width", "laplace": "scale", "rff": "sigma", "rect": "sigma"}.items():
        default = float(getattr(encoders.create(name, num_features=num_features), width))
        shared = f"name: {name}, num_features: {num_features}, {width}"
        cells += [f"{{{shared}: {default * factor:.6f}}}" for factor in (0.5, 1.0, 2.0)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = {"PE_LIGHTNING_CACHE": str(folder / "cache")}
        run("fit", *common, folder=folder, **cache)  # decodes into the cache
        sweep = ["sweep", *common, "--vary", f"model.encoder={','.join(cells)}", "--out", "swept"]
        _, *together = run(*sweep, folder=folder, **cache)
        alone = [run("fit", *common, f"--model.encoder={cell}", folder=folder, **cache)[1:] for cell in cells]
        files = folder.glob("swept/*/metrics.json"), folder.glob("runs/*/*/metrics.json")
        scores, fits = ({json.loads(path.read_text())["test/psnr"] for path in paths} for paths in files)
    assert scores <= fits, "the sweep's runs are those of the single commands"
    for label, (wall, core) in {"sweep": together, "fit commands": map(sum, zip(*alone, strict=True))}.items():
        print(f"{len(cells)} cells, {label}: {wall:.1f} s, {core:.1f} core seconds", flush=True)


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


def beside(work: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> None:
    """Runs a section beside busy processes."""
    with harness.busy_cores(options.busy):
        work(options)


if __name__ == "__main__":
    parser = harness.make_parser(__doc__)
    photograph = [f"samples://{PHOTOGRAPHS[0]}"]
    parser.add_argument("--paths", nargs="+", default=photograph, help="pictures of one size, or a folder")
    parser.add_argument("--busy", type=int, default=0, help="busy processes beside fill and authors")
    parser.add_argument("--repeats", type=int, default=3, help="turns of fill and authors")
    sections: dict[str, Callable[[argparse.Namespace], None]] = {
        "quality": lambda options: quality(load_all(options.paths)),
        "widths": lambda options: widths(harness.files_of(options.paths)[0]),
        "learned": lambda options: learned(harness.files_of(options.paths)),
        "threads": lambda options: loaded(),
        "fill": partial(beside, lambda options: filled(options.repeats)),
        "authors": partial(beside, lambda options: authors(options.repeats, options.paths)),
        "sweep": swept,
    }
    harness.run_sections(parser, sections)

"""The adaptive fit against interpolation: every table of docs/adaptive.md.

    python benchmarks/adaptive.py --paths FOLDER                    # 16 pictures of 512 x 512: about 10 core minutes
    python benchmarks/adaptive.py --only grid --paths samples://astronaut
    python benchmarks/adaptive.py --only clip,large                 # the clip of datasets/, pictures of scikit-image

Every second sample of each axis is trained on unless a section says otherwise; PSNR per picture of what was held out,
not clamped, then the mean. ``rest``: all other samples; ``odd``: those between four trained ones. Times are those of the
processor, all threads together, which depend less on other work. The settings of Adaptive are its defaults everywhere.
They were chosen on the even-numbered half of the pictures; tables have both halves.

- ``grid``: bicubic, Li and Orchard's corrections (R), the bank mixed by leave-one-out errors alone (B), Adaptive.
- ``photo``: Pillow's and, if it is installed, OpenCV's filters at the same sample positions.
- ``points``: 25 % and 10 % of the samples, at random. ``strides``: every third and fourth sample. ``noise``: on the trained
  samples. ``clip``: a cube of 128 frames. ``large``: seconds and memory. ``ablation``: what each part gives.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable, Sequence
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from quiet import machine
from scipy.ndimage import gaussian_filter
from torch import Tensor

from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals import GridBatch, PointBatch, RandomSampling, grid_axes, point_coordinates
from pe_lightning.solvers import adaptive, solve_points
from pe_lightning.solvers.adaptive import AdaptiveGrid
from pe_lightning.solvers.adaptive_points import RIDGE, AdaptivePoints
from pe_lightning.training import ImageDataModule, VideoDataModule

SECTIONS = ("grid", "photo", "points", "strides", "noise", "clip", "large", "ablation")
Method = Callable[[Tensor, tuple[int, ...]], Tensor]
"""Trained samples ``(n_1, ..., n_D, C)`` and the shape of the whole ``(N_1, ..., N_D)`` -> ``(N_1, ..., N_D, C)``."""


def steps(known: Tensor, shape: Sequence[int]) -> list[int]:
    """Distance of trained samples, per axis."""
    return [-(-n // k) for n, k in zip(shape, known.shape, strict=False)]


def fitted(
    encoder: str = "laplace", angles: int = 12, aspects: Sequence[float] = (2, 6), window: float = 0.8, ridge: float = 2**-10
) -> Method:
    """The adaptive fit, as the module makes it."""

    def run(known: Tensor, shape: tuple[int, ...]) -> Tensor:
        bank = AnisotropicKernels(encoder, len(shape), angles, aspects)
        field = AdaptiveGrid(bank, known, shape, (0,) * len(shape), steps(known, shape), window, ridge)
        return field.predict(grid_axes(shape))

    return run


def denoised(known: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The adaptive fit with ``noise: auto``."""
    bank, step = AnisotropicKernels("laplace", len(shape), 12, (2, 6)), steps(known, shape)
    tried = [AdaptiveGrid(bank, known, shape, (0,) * len(shape), step, 0.8, ridge) for ridge in adaptive.RIDGES]
    return min(tried, key=lambda field: field.error).predict(grid_axes(shape))


def by_leave_one_out(known: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The same bank, mixed by leave-one-out errors alone, their window 1.5."""
    with patch.object(adaptive, "CELL_ERROR_WEIGHT", 0.0):
        return fitted(window=1.5)(known, shape)


def baseline(name: str) -> Method:
    """An interpolation."""

    def run(known: Tensor, shape: tuple[int, ...]) -> Tensor:
        axes = grid_axes(shape)
        trained = tuple(x[::step] for x, step in zip(axes, steps(known, shape), strict=True))
        return interpolate(name, GridBatch(trained, known[None]), axes)[0]

    return run


def edge_directed(known: Tensor, shape: tuple[int, ...]) -> Tensor:
    """R: bicubic plus a correction by four neighbours, fitted by ridge regression at twice the spacing (Li and Orchard)."""
    lattice = known.double().numpy()
    result = baseline("bicubic")(known.double(), shape).numpy().copy()
    keys = np.array([-1, 9, 9, -1]) / 16

    def moved(values: np.ndarray, rows: int, columns: int) -> np.ndarray:
        i, j = (np.clip(np.arange(n) + s, 0, n - 1) for n, s in zip(values.shape, (rows, columns), strict=False))
        return values[i][:, j]

    def residual(kind: tuple[int, int]) -> np.ndarray:
        found = lattice
        for axis in np.flatnonzero(kind):
            shifts = [(t, 0) if axis == 0 else (0, t) for t in (-3, -1, 1, 3)]
            found = sum(k * moved(found, *shift) for k, shift in zip(keys, shifts, strict=True))
        return lattice - found

    for kind, window in (((1, 1), 2.0), ((0, 1), 2.5), ((1, 0), 2.5)):
        diagonal = kind == (1, 1)
        around = [(-1, -1), (-1, 1), (1, -1), (1, 1)] if diagonal else [(0, -1), (0, 1), (-1, 0), (1, 0)]
        near = np.stack([moved(lattice, *shift) for shift in around])
        near, r = near - near.mean(0), residual(kind)
        products = np.concatenate([near, r[None]])
        moments = np.einsum("ahwc,bhwc->abhw", products, products)
        moments = gaussian_filter(moments, (0, 0, window, window), mode="nearest")
        for axis in np.flatnonzero(kind):
            moments = (moments + np.take(moments, np.r_[1 : moments.shape[axis + 2], -1], axis + 2)) / 2
        a, b, v = moments[:4, :4], moments[:4, 4], moments[4, 4]
        shrink = 0.3 * v + 1e-4 + 0.05 * np.einsum("aahw->hw", a) / 4
        a = np.moveaxis(a, (0, 1), (2, 3)) + shrink[..., None, None] * np.eye(4)
        weights = np.linalg.solve(a, np.moveaxis(b, 0, 2)[..., None])[..., 0]
        fine = [moved(result, *shift)[kind[0] :: 2, kind[1] :: 2] for shift in around]
        fine = np.stack(fine) - np.mean(fine, 0)
        result[kind[0] :: 2, kind[1] :: 2] += np.einsum("hwa,ahwc->hwc", weights, fine)
    return torch.from_numpy(result).to(known)


def pillow(filter: Image.Resampling) -> Method:
    """Pillow's resize of float channels, its box moved so that samples stay where they are."""

    def run(known: Tensor, shape: tuple[int, ...]) -> Tensor:
        (height, width), pad = known.shape[:2], 8
        box = (pad + 0.25, pad + 0.25, pad + 0.25 + width, pad + 0.25 + height)
        wide = np.pad(known.numpy(), ((pad, pad), (pad, pad), (0, 0)), "edge")
        planes = [Image.fromarray(wide[..., c]).resize(shape[::-1], filter, box) for c in range(known.shape[-1])]
        return torch.from_numpy(np.stack([np.asarray(plane) for plane in planes], -1))

    return run


def opencv(name: str) -> Method:
    """OpenCV's remap to the positions of the samples."""
    import cv2

    def run(known: Tensor, shape: tuple[int, ...]) -> Tensor:
        y, x = np.meshgrid(*(np.arange(n, dtype=np.float32) / 2 for n in shape), indexing="ij")
        return torch.from_numpy(cv2.remap(known.numpy(), x, y, getattr(cv2, name), borderMode=cv2.BORDER_REPLICATE))

    return run


def decibels(prediction: Tensor, truth: Tensor, mask: Tensor) -> float:
    """PSNR of the samples of a mask."""
    return float(-10 * (prediction - truth)[mask].double().square().mean().log10())


def masks(shape: Sequence[int], stride: int) -> tuple[Tensor, Tensor]:
    """``rest`` and ``odd``."""
    rest, odd = torch.ones(*shape, dtype=torch.bool), torch.zeros(*shape, dtype=torch.bool)
    rest[(slice(None, None, stride),) * len(shape)] = False
    odd[(slice(1, None, 2),) * len(shape)] = True
    return rest, odd


def table(
    pictures: Tensor, methods: dict[str, Method], stride: int = 2, noise: float = 0.0, first: str | None = None
) -> dict[str, float]:
    """Prints a row per method: rest, its halves, odd, the worst difference to the first method, seconds a picture.

    Returns:
        The mean of ``rest`` of each method.
    """
    shape = tuple(pictures.shape[1:-1])
    rest, odd = masks(shape, stride)
    print(f"{'':30}  rest    even    odd-numbered   {'odd':5}  worst against {first or next(iter(methods))}   core seconds")
    against: list[float] = []
    means = {}
    for name, method in methods.items():
        scores, between, began = [], [], time.process_time()
        for place, truth in enumerate(pictures):
            known = truth[(slice(None, None, stride),) * len(shape)].contiguous()
            known = known + noise * torch.randn(known.shape, generator=torch.Generator().manual_seed(place))
            prediction = method(known, shape)
            scores.append(decibels(prediction, truth, rest))
            between.append(decibels(prediction, truth, odd))
        seconds, against = (time.process_time() - began) / len(pictures), against or scores
        worst = min(a - b for a, b in zip(scores, against, strict=True))
        halves = [np.mean(scores[k::2]) if scores[k::2] else float("nan") for k in (0, 1)]
        print(
            f"{name:30} {np.mean(scores):6.2f}  {halves[0]:6.2f}  {halves[1]:6.2f}         {np.mean(between):6.2f} "
            f"{worst:+8.2f}                 {seconds:6.2f}",
            flush=True,
        )
        means[name] = float(np.mean(scores))
        if name == "Adaptive":
            print("    per picture: " + " ".join(f"{a - b:+.2f}" for a, b in zip(scores, against, strict=True)))
    return means


def points(pictures: Tensor, fraction: float) -> dict[str, float]:
    """Random samples, each picture its own: prints a row per method, and returns the mean PSNR of each."""
    grid = tuple(pictures.shape[1:3])
    axes, split = grid_axes(grid), RandomSampling(fraction).split(grid, len(pictures))
    batch = PointBatch(point_coordinates(axes, split.index), split.take(pictures), axes, split.index)
    rest = ~split.train_mask()
    laplace = {"name": "laplace", "num_features": grid[0], "scale": 0.004 * 512 / grid[0]}
    methods: dict[str, Callable[[], Tensor]] = {
        "nearest": lambda: interpolate("nearest", batch, axes),
        "delaunay": lambda: interpolate("delaunay", batch, axes),
        "laplace, conjugate gradients": lambda: solve_points(
            batch.values, laplace, axes=axes, index=split.index, ridge=0.062
        ).predict(axes),
        "Adaptive": lambda: adapted_points(batch, grid),
    }
    means = {}
    print(f"{fraction:.0%} of the samples, at random:   rest   core seconds")
    for name, method in methods.items():
        began = time.process_time()
        prediction = method()
        seconds = (time.process_time() - began) / len(pictures)
        scores = [decibels(p, t, m) for p, t, m in zip(prediction, pictures, rest, strict=True)]
        print(f"{name:30} {np.mean(scores):6.2f} {seconds:7.2f}", flush=True)
        means[name] = float(np.mean(scores))
    return means


def adapted_points(batch: PointBatch, grid: tuple[int, ...]) -> Tensor:
    """The adaptive fit of scattered samples, as the module makes it."""
    bank = AnisotropicKernels("laplace", len(grid), 12, (2, 6))
    fields = [AdaptivePoints(bank, v, c, grid, 0.8, RIDGE) for v, c in zip(batch.values, batch.coords, strict=True)]
    return torch.stack([field.predict(grid_axes(grid)) for field in fields])


def large() -> None:
    """Seconds and peak memory of one picture of 2040 x 1356 from every second sample; seconds of enlarging one."""
    source = ImageDataModule("samples://astronaut").values[0]
    picture = source.repeat(3, 4, 1)[:1356, :2040].contiguous()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    fitted()(picture[::2, ::2].contiguous(), (1356, 2040))
    seconds, peak = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = f"{(peak - before) / 1024:.0f} MiB above the {before / 1024:.0f} MiB before"
    print(f"2040 x 1356 x 3: {seconds:.1f} core seconds, {memory}")
    field = AdaptiveGrid(AnisotropicKernels("laplace", 2, 12, (2.0, 6.0)), source, (512, 512), (0, 0), (1, 1), 0.8, 2**-10)
    for size in (1024, 1200):
        began = time.process_time()
        field.predict(grid_axes((size, size)))
        print(f"512 x 512 enlarged to {size} x {size}: {time.process_time() - began:.1f} core seconds")


def main(arguments: list[str] | None = None) -> None:
    """Runs the sections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--paths", default="samples://astronaut")
    parser.add_argument("--count", type=int, help="only so many pictures")
    options = parser.parse_args(arguments)
    chosen = options.only.split(",")
    if not set(chosen) <= set(SECTIONS):
        parser.error(f"--only takes {', '.join(SECTIONS)}; got {options.only}")
    print(f"adaptive.py {options.only}: {machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    if "large" in chosen:  # first: it measures memory
        large()
    if set(chosen) - {"large", "clip"}:
        data = ImageDataModule(options.paths)
        pictures = data.values[: options.count]
        print(f"{len(pictures)} picture(s) of {tuple(pictures.shape[1:])}")
    ours = {"bicubic": baseline("bicubic"), "Adaptive": fitted()}
    if "grid" in chosen:
        parts = {"R: fitted corrections": edge_directed, "B: leave-one-out alone": by_leave_one_out}
        mean = {"mean of R and B": lambda k, s: (edge_directed(k, s) + by_leave_one_out(k, s)) / 2}
        mixed = {"mean of R and Adaptive": lambda k, s: (edge_directed(k, s) + fitted()(k, s)) / 2}
        table(pictures, {"bicubic": baseline("bicubic"), "linear": baseline("linear"), **parts, **mean, **ours, **mixed})
    if "photo" in chosen:
        filters = {f"Pillow {name}": pillow(Image.Resampling[name]) for name in ("BICUBIC", "LANCZOS")}
        try:
            filters |= {f"OpenCV {name}": opencv(name) for name in ("INTER_CUBIC", "INTER_LANCZOS4")}
        except ImportError:
            print("OpenCV is not installed")
        table(pictures, {"bicubic": baseline("bicubic"), **filters, "Adaptive": fitted()})
    for fraction in (0.25, 0.1) if "points" in chosen else ():
        points(pictures, fraction)
    for stride in (3, 4) if "strides" in chosen else ():
        print(f"every {stride}th sample")
        table(pictures, ours, stride)
    for noise in (0, 10, 25) if "noise" in chosen else ():
        print(f"noise of {noise}/255")
        table(pictures, {**ours, "Adaptive, noise: auto": denoised}, noise=noise / 255)
    if "clip" in chosen:
        cube = VideoDataModule("samples://bigbuckbunny", preset="papers").values
        print(f"clip of {tuple(cube.shape[1:])}")
        table(
            cube,
            {
                "linear": baseline("linear"),
                "bicubic": baseline("bicubic"),
                "spline": baseline("spline"),
                "Adaptive": fitted(),
            },
        )
    if "ablation" in chosen:
        variants = {f"{angles} angles": fitted(angles=angles) for angles in (0, 4, 8, 12, 16)}
        variants |= {f"aspects {aspects}": fitted(aspects=aspects) for aspects in ((2,), (6,), (2, 4, 8))}
        variants |= {f"window {window}": fitted(window=window) for window in (0.5, 1.5, 3.0)}
        variants |= {f"ridge {ridge}": fitted(ridge=ridge) for ridge in (1e-4, 1e-2)}
        variants |= {f"bank of {name}": fitted(name) for name in ("gau", "bspline", "tri")}
        table(pictures, {"bicubic": baseline("bicubic"), "Adaptive": fitted(), **variants})


if __name__ == "__main__":
    main()

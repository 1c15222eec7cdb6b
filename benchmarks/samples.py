"""Missing and scattered samples: the adaptive fit beside every interpolation, quality, time and standard deviations.

    python benchmarks/samples.py                             # a few minutes: one picture, small rasters, up to 10,000 points
    python benchmarks/samples.py --paths FOLDER --count 16 --size 512 --sides 1024 4096 --points 1000 10000 100000 1000000

Tables have the PSNR of the held-out samples (values are scaled to [0, 1] by their range, predictions are not clamped), mean
over signals; core seconds of fit and prediction of all held-out samples, on one thread; and, where a method has standard
deviations, the percentage of the held-out samples within 1.645 of them (90 % are aimed at).

- ``pixels``: 10, 25 and 50 % of the pixels known at random, and blocks of 16 x 16 missing; a sample of scikit-image, or
  ``--paths``.
- ``raster``: a fractal surface, about 40 % of it under clouds of any size, with ``--sides`` samples per side.
- ``points``: heights of the Jacksboro fault, which ship with Matplotlib, at random places; beyond 100,000 the surface.
- ``series``: weekly CO2 of statsmodels (left out if that is not installed) with stretches missing; a made sound with
  dropouts.
- ``clip``: frames of ``samples://bigbuckbunny``, a quarter of them lost.
- ``noise``: ``fill --smooth`` of the pictures with normal noise, by the models that it takes: PSNR of known and of missing
  pixels.

``laplace`` is the exact fit of a linear layer by conjugate gradients, with its default width and a ridge of 0.06. Ordinary
kriging by PyKrige (exponential variogram), if it is installed, takes up to 5,000 points. A baseline that the tables of fits
leave out is left out here too, and the row says why.
"""

from __future__ import annotations

import argparse
import importlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import make_parser, print_row, print_titles, psnr, run_sections
from scipy.ndimage import gaussian_filter
from torch import Tensor

from pe_lightning.encodings.bank import AnisotropicKernels
from pe_lightning.encodings.complex import per_axis
from pe_lightning.errors import InputError
from pe_lightning.estimators.filling import ModelName, fill
from pe_lightning.estimators.linear import linear_uncertainty
from pe_lightning.evaluation import baselines
from pe_lightning.signals import PointBatch, SignalInfo, grid_axes
from pe_lightning.signals.splits import PointSplit
from pe_lightning.solvers import solve_points
from pe_lightning.solvers.adaptive_points import RIDGE, AdaptivePoints
from pe_lightning.training import ImageDataModule, VideoDataModule

MAX_KRIGING = 5000
LAPLACE_RIDGE = 0.06
WITHIN = 1.645
MAX_HELD_OUT = 5000
FIRST_FRAME = 12
"""Frame of the clip from which its camera moves."""


@dataclass
class Task:
    """Samples of one signal, some of them held out."""

    values: Tensor
    """Known values ``(P, C)`` in [0, 1]."""
    coords: Tensor
    """Their coordinates ``(P, D)`` in [0, 1)."""
    grid: tuple[int, ...]
    """Samples per axis; the unit of lengths."""
    places: Tensor
    """Coordinates of the held-out samples, ``(Q, D)``."""
    truth: Tensor
    """``(Q, C)``."""
    index: Tensor | None = None
    """Row-major positions of the known samples of a grid, ``(P,)``."""
    wanted: Tensor | None = None
    """Row-major positions of the held-out samples of a grid, ``(Q,)``."""


def of_grid(values: Tensor, missing: Tensor) -> Task:
    """A signal ``(N_1, ..., N_D, C)`` with missing samples ``(N_1, ..., N_D)``."""
    grid = tuple(missing.shape)
    coords = torch.cartesian_prod(*grid_axes(grid)).reshape(-1, len(grid))
    known, wanted = ((~missing).flatten().nonzero()[:, 0], missing.flatten().nonzero()[:, 0])
    flat = values.flatten(0, -2)
    return Task(flat[known], coords[known], grid, coords[wanted], flat[wanted], known, wanted)


def scattered(coords: Tensor, values: Tensor, sizes: tuple[int, ...], count: int, seed: int) -> Task:
    """``count`` of the points, and up to 5,000 others that are held out."""
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(seed))
    known, held = order[:count], order[count : count + MAX_HELD_OUT]
    return Task(values[known], coords[known], sizes, coords[held], values[held])


# -- methods ------------------------------------------------------------------------------------------------------------


def adaptive(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """The adaptive fit, and its standard deviations."""
    bank = AnisotropicKernels("laplace", len(task.grid), 12, (2.0, 6.0))
    field = AdaptivePoints(bank, task.values, task.coords, task.grid, 0.8, RIDGE)
    return field.at(task.places), lambda: field.std(task.places)


def filled(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """What ``fill`` does by default, with its held-out fits, for samples of a grid."""
    if task.index is None or task.wanted is None:
        raise LookupError("points")
    flat = np.full((math.prod(task.grid), task.values.shape[1]), np.nan, np.float32)
    flat[task.index] = task.values
    found = fill(flat.reshape(*task.grid, -1), axes=len(task.grid), std=True)
    assert found.std is not None
    values, std = (torch.from_numpy(each.reshape(flat.shape))[task.wanted] for each in (found.values, found.std))
    return values, lambda: std


def laplace(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """The exact fit of a linear layer, by conjugate gradients, and its standard deviations."""
    where: dict[str, Any] = {"coords": task.coords[None]}
    if task.index is not None:
        where = {"axes": grid_axes(task.grid), "index": task.index[None]}
    density = (len(task.values) / math.prod(task.grid)) ** (1 / len(task.grid))
    encoders = [{"name": "laplace", "num_features": n, "scale": 1.0 / (n * density)} for n in task.grid]
    fit = solve_points(task.values[None], encoders, ridge=LAPLACE_RIDGE, **where)

    def std() -> Tensor:
        found = PointBatch(task.coords[None], task.values[None], where.get("axes"), where.get("index"))
        return linear_uncertainty(found, task.grid, per_axis(encoders, len(task.grid)), LAPLACE_RIDGE, True).std(task.places)

    return fit.at(task.places)[0], std


def kriging(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """Ordinary kriging, by PyKrige; its variogram is fitted to each channel."""
    if len(task.grid) != 2 or len(task.values) > MAX_KRIGING:
        raise InputError(f"up to {MAX_KRIGING:,} points of two axes")
    pykrige = importlib.import_module("pykrige")
    size = np.array(task.grid)
    known, wanted = task.coords.double().numpy() * size, task.places.double().numpy() * size
    found, variances = [], []
    for channel in task.values.double().numpy().T:
        model = pykrige.OrdinaryKriging(*known.T, channel, variogram_model="exponential")
        values, variance = model.execute("points", *wanted.T, backend="vectorized")
        found.append(np.asarray(values))
        variances.append(np.asarray(variance))
    deviations = torch.from_numpy(np.sqrt(np.maximum(np.stack(variances, 1), 0)))
    return torch.from_numpy(np.stack(found, 1)), lambda: deviations


def baseline(name: str, task: Task) -> tuple[Tensor, None]:
    """A registered interpolation."""
    info = SignalInfo(
        ("signal",), task.grid, task.values.shape[1], num_points=None if task.index is not None else len(task.places)
    )
    split = PointSplit(task.grid, torch.arange(len(task.values))[None] if task.index is None else task.index[None])
    method = baselines.baselines.create(name)
    if not method.applies_to(info, split):
        raise LookupError(name)
    if task.index is None or task.wanted is None:
        size = torch.tensor(task.grid)
        batch = PointBatch(task.coords[None] * size, task.values[None])
        return baselines.interpolate(name, batch, task.places.double() * size)[0], None
    axes = grid_axes(task.grid)
    batch = PointBatch(task.coords[None], task.values[None], axes, task.index[None])
    return baselines.interpolate(name, batch, axes)[0].flatten(0, -2)[task.wanted], None


def methods() -> dict[str, Callable[[Task], tuple[Tensor, Callable[[], Tensor] | None]]]:
    """All methods by name."""
    others = {name: partial(baseline, name) for name in baselines.names() if baselines.baselines.get(name).on_points}
    return {"fill": filled, "adaptive": adaptive, "laplace": laplace, **others, "kriging (PyKrige)": kriging}


# -- tasks --------------------------------------------------------------------------------------------------------------


def clouds(shape: tuple[int, ...], seed: int, share: float = 0.4) -> Tensor:
    """A mask of irregular gaps of all sizes."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    field = sum(sigma * gaussian_filter(noise, sigma) for sigma in (2, 6, 18))
    return torch.from_numpy(field > np.quantile(field, 1 - share))


def surface(side: int, seed: int) -> Tensor:
    """A fractal surface with a spectrum that falls as the third power of the frequency, in [0, 1]: ``(N, N, 1)``."""
    noise = np.fft.rfft2(np.random.default_rng(seed).standard_normal((side, side)))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    return scaled(np.fft.irfft2(noise * frequency**-1.8, (side, side))[..., None])


def scaled(values: np.ndarray) -> Tensor:
    """Values in [0, 1]."""
    return torch.from_numpy((values - values.min()) / (values.max() - values.min())).float()


def pictures(options: argparse.Namespace) -> Tensor:
    """Samples of the package resized, files cropped: ``(S, H, W, C)``."""
    resize = options.size if "://" in options.paths[0] else None
    return ImageDataModule(options.paths, resize=resize).values[: options.count, : options.size, : options.size]


def pixels(options: argparse.Namespace) -> Iterator[tuple[str, list[Task]]]:
    """Pictures of which pixels or blocks are missing."""

    def missing(name: str, side: int, known: float | None = None) -> tuple[str, list[Task]]:
        tasks = []
        for number, picture in enumerate(pictures(options)):
            shape = [-(-n // side) for n in picture.shape[:2]]
            drawn = torch.rand(shape, generator=torch.Generator().manual_seed(number))
            mask = drawn < 0.2 if known is None else drawn >= known
            mask = mask.repeat_interleave(side, 0).repeat_interleave(side, 1)[: picture.shape[0], : picture.shape[1]]
            tasks.append(of_grid(picture, mask))
        return name, tasks

    for share in (0.1, 0.25, 0.5):
        yield missing(f"{share:.0%} of the pixels", 1, share)
    yield missing("blocks of 16 x 16 missing, 20 %", 16)


def raster(options: argparse.Namespace) -> Iterator[tuple[str, list[Task]]]:
    """A surface under clouds."""
    for side in options.sides:
        yield f"surface of {side} x {side}, clouds", [of_grid(surface(side, 0), clouds((side, side), 1))]


def points(options: argparse.Namespace) -> Iterator[tuple[str, list[Task]]]:
    """Heights at random places."""
    from matplotlib.cbook import get_sample_data

    heights = scaled(get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype(np.float64)[..., None])
    for count in options.points:
        values = heights if count <= 100_000 else surface(math.isqrt(count) + 150, 0)
        coords = torch.cartesian_prod(*grid_axes(values.shape[:2]))
        name = "Jacksboro heights" if count <= 100_000 else "surface"
        yield f"{count:,} points of the {name}", [scattered(coords, values.flatten(0, 1), tuple(values.shape[:2]), count, 0)]


def stretches(length: int, count: int, longest: int, seed: int) -> Tensor:
    """A mask of stretches of random lengths."""
    random, mask = np.random.default_rng(seed), torch.zeros(length, dtype=torch.bool)
    for start, n in zip(random.integers(0, length - longest, count), random.integers(2, longest, count), strict=True):
        mask[start : start + n] = True
    return mask


def series(options: argparse.Namespace) -> Iterator[tuple[str, list[Task]]]:
    """Series with missing stretches."""
    try:
        co2 = importlib.import_module("statsmodels.datasets.co2").load_pandas().data["co2"].to_numpy()
    except ImportError:
        print("CO2 is left out: statsmodels is not installed")
    else:
        known = scaled(co2[~np.isnan(co2)][:, None])
        yield "CO2, weekly, stretches of up to 8 weeks", [of_grid(known, stretches(len(known), 60, 9, 0))]
        yield "CO2, weekly, a quarter at random", [of_grid(known, torch.rand(len(known)) < 0.25)]
    t = torch.arange(20_000) / 16_000
    sound = sum(torch.exp(-3 * t) * torch.sin(2 * math.pi * 220 * k * t) / k for k in range(1, 9))
    gaps = stretches(len(t), 200, 20, 0)
    yield "a made sound, dropouts of up to 20 samples", [of_grid(scaled(sound.numpy()[:, None]), gaps)]


def clip(options: argparse.Namespace) -> Iterator[tuple[str, list[Task]]]:
    """A clip with lost frames."""
    span = [FIRST_FRAME, FIRST_FRAME + 16]
    frames = VideoDataModule("samples://bigbuckbunny", frames=span, resize=128, center_crop=64).values[0]
    lost = torch.rand(len(frames), generator=torch.Generator().manual_seed(0)) < 0.25
    lost[0] = lost[-1] = False
    mask = lost[:, None, None].expand(frames.shape[:3]).contiguous()
    yield f"16 frames of 64 x 64, {int(lost.sum())} lost", [of_grid(frames, mask)]


def noise(options: argparse.Namespace) -> None:
    """Prints how well noisy pictures with missing pixels are smoothed."""
    models: tuple[ModelName, ...] = ("auto", "adaptive", "exact")
    print("dB of known / missing pixels, core seconds")
    print_titles("levels", "missing", "noisy", *models)
    for levels in (10, 25, 50):
        for share in (0.0, 0.5):
            scores: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("noisy", *models)}
            for number, clean in enumerate(pictures(options).numpy()):
                random = np.random.default_rng(number)
                noisy = (clean + levels / 255 * random.standard_normal(clean.shape)).clip(0, 1).astype(np.float32)
                missing = random.random(clean.shape[:2]) < share
                scores["noisy"].append((decibels(noisy, clean, ~missing),))
                for model in models:
                    began = time.process_time()
                    given = np.where(missing[..., None], np.nan, noisy)
                    found = fill(given, model=model, smooth=True, folds="none").values.clip(0, 1)
                    seconds = time.process_time() - began
                    scores[model].append((decibels(found, clean, ~missing), decibels(found, clean, missing), seconds))
            cells = []
            for name in models:
                known, unseen, seconds = np.mean(scores[name], 0)
                cells.append(f"{known:.2f} / {unseen:.2f}, {seconds:.1f} s" if share else f"{known:.2f}, {seconds:.1f} s")
            print_row(levels, f"{share:.0%}", np.mean(scores["noisy"]), *cells)


def decibels(found: np.ndarray, clean: np.ndarray, where: np.ndarray) -> float:
    """PSNR at some pixels; NaN at none."""
    return psnr((found - clean)[where]) if where.any() else math.nan


# -- measuring ----------------------------------------------------------------------------------------------------------


def table(name: str, tasks: list[Task]) -> None:
    """A row per method: PSNR, core seconds and coverage, or the reason why it is left out."""
    print(f"\n{len(tasks)} signal(s), {len(tasks[0].values):,} known, {len(tasks[0].places):,} held out")
    print_titles(name, "PSNR", "core seconds", "within 90 %")
    for label, method in methods().items():
        rows = []
        try:
            for task in tasks:
                began = time.process_time()
                found, spread = method(task)
                seconds = time.process_time() - began
                error = found.double() - task.truth.double()
                inside = math.nan if spread is None else float((error.abs() <= WITHIN * spread()).double().mean())
                rows.append((psnr(error), seconds, 100 * inside))
        except LookupError:
            continue
        except (InputError, ImportError, np.linalg.LinAlgError) as error:
            print_row(label, f"left out: {str(error).splitlines()[0]}", "", "")
        else:
            print_row(label, *np.mean(rows, 0))


def main() -> None:
    """Prints the tables."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"], help="pictures of one size")
    parser.add_argument("--count", type=int, default=1, help="number of pictures")
    parser.add_argument("--size", type=int, default=256, help="side: samples are resized to it, files cropped")
    parser.add_argument("--sides", type=int, nargs="+", default=[256], help="of the raster")
    parser.add_argument("--points", type=int, nargs="+", default=[1000, 10_000])

    def tables(cases: Callable[[argparse.Namespace], Iterator[tuple[str, list[Task]]]], options: argparse.Namespace) -> None:
        for name, tasks in cases(options):
            table(name, tasks)

    torch.set_num_threads(1)
    sections = {cases.__name__: partial(tables, cases) for cases in (pixels, raster, points, series, clip)}
    run_sections(parser, {**sections, "noise": noise})


if __name__ == "__main__":
    main()

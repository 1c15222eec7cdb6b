"""Gaps of pictures and clips: ``fill`` beside OpenCV, scikit-image and interpolation, quality and processor time.

    python benchmarks/gaps.py                                     # crops of a sample of scikit-image, a clip, a volume
    python benchmarks/gaps.py --only scratches blocks8 --paths FOLDER --count 4 --shape 256 256
    OMP_NUM_THREADS=1 python benchmarks/gaps.py --only scratches --shape 512 768

Tables have the PSNR in dB of the missing samples, mean over signals, and processor seconds of one signal, all threads
together, without imports. ``fill`` includes its held-out fits, score and standard deviations; ``within 90 %`` is the share
of the missing samples within 1.645 standard deviations. FSR and Telea are those of OpenCV (``pip install
opencv-contrib-python-headless``); without it they are left out. So is ordinary kriging by PyKrige (``pip install
pykrige``), also where its matrix of all pairs of known pixels is too large: give ``--shape 64 64``. ``edges`` has gaps at
the first and the last place of an axis beside gaps inside.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import torch
from harness import files_of, load, make_parser, print_row, print_titles, psnr, run_sections
from matplotlib.font_manager import findfont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.estimators.filling import fill
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals.batches import PointBatch
from pe_lightning.training import VideoDataModule

ANATOMY = Path(nibabel.__file__).parent / "tests/data/anatomical.nii"
MAX_KRIGED = 5000
"""Most known pixels of PyKrige, which holds the distances of all pairs."""
SHARE = 0.12
"""Of the blocks that are missing."""
Array = NDArray[Any]
Mask = NDArray[np.bool_]
Method = Callable[[Array, Mask], Array]


# -- gaps ---------------------------------------------------------------------------------------------------------------


def scratches(shape: tuple[int, int], seed: int) -> Mask:
    """Straight lines of 2 to 5 pixels in width."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    draw = ImageDraw.Draw(image)
    while (np.asarray(image) > 0).mean() < 0.06:
        start, angle = random.uniform(0, 1, 2) * shape[::-1], random.uniform(0, math.pi)
        end = start + random.uniform(0.1, 0.6) * max(shape) * np.array([math.cos(angle), math.sin(angle)])
        draw.line([*start, *end], fill=255, width=int(random.integers(2, 6)))
    return np.asarray(image) > 0


def text(shape: tuple[int, int], seed: int) -> Mask:
    """Lines of random letters of 16 pixels."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    font, draw = ImageFont.truetype(findfont("DejaVu Sans"), 16), ImageDraw.Draw(image)
    for y in range(4, shape[0] - 12, 24):
        letters = [chr(random.integers(97, 123)) if random.random() > 0.15 else " " for _ in range(shape[1] // 8)]
        draw.text((4, y), "".join(letters), fill=255, font=font)
    return np.asarray(image) > 64


def blocks(shape: tuple[int, ...], seed: int, *sides: int) -> Mask:
    """An eighth of the blocks of a picture, a clip or a volume."""
    mask = np.random.default_rng(seed).random([-(-n // side) for n, side in zip(shape, sides, strict=True)]) < SHARE
    for axis, side in enumerate(sides):
        mask = mask.repeat(side, axis).take(range(shape[axis]), axis)
    return mask


CASES: dict[str, Callable[[tuple[int, int], int], Mask]] = {
    "scratches": scratches,
    "text": text,
    **{f"blocks{side}": lambda shape, seed, side=side: blocks(shape, seed, side, side) for side in (8, 16, 32)},  # type: ignore[misc]
    "known25": lambda shape, seed: np.random.default_rng(seed).random(shape) >= 0.25,
    "known50": lambda shape, seed: np.random.default_rng(seed).random(shape) >= 0.5,
}


# -- methods ------------------------------------------------------------------------------------------------------------


def opencv(name: str, picture: Array, missing: Mask) -> Array:
    """FSR or Telea, of 8 bits."""
    cv2 = importlib.import_module("cv2")
    levels = np.where(missing[..., None], 0, np.rint(picture * 255)).astype(np.uint8)
    if name == "FSR":
        result = np.zeros_like(levels)
        cv2.xphoto.inpaint(levels, np.where(missing, 0, 255).astype(np.uint8), result, cv2.xphoto.INPAINT_FSR_FAST)
    else:
        result = cv2.inpaint(levels, missing.astype(np.uint8), 3, cv2.INPAINT_TELEA)
    return np.asarray(result, np.float32) / 255


def frame_by_frame(values: Array, missing: Mask) -> Array:
    """Frames of one or three channels by FSR."""
    colours = np.broadcast_to(values, (*values.shape[:3], 3))
    found = [opencv("FSR", *each) if each[1].any() else each[0] for each in zip(colours, missing, strict=True)]
    return np.stack(found)[..., : values.shape[-1]]


def total_variation(picture: Array, missing: Mask) -> Array:
    """Least total variation of the missing pixels, by projected denoising steps of scikit-image."""
    from skimage.restoration import denoise_tv_chambolle

    result = interpolated("nearest", picture, missing)
    for weight in np.geomspace(0.2, 0.01, 15):
        smooth = denoise_tv_chambolle(result, weight, max_num_iter=30, channel_axis=-1)
        result = np.where(missing[..., None], smooth, picture).astype(np.float32)
    return result


def interpolated(name: str, picture: Array, missing: Mask) -> Array:
    """A baseline of the package."""
    known = torch.from_numpy(~missing)
    axes = [torch.arange(n, dtype=torch.float64) for n in missing.shape]
    batch = PointBatch(known.nonzero()[None].double(), torch.from_numpy(picture)[known][None])
    return interpolate(name, batch, axes)[0].numpy()


def kriged(picture: Array, missing: Mask) -> Array:
    """Ordinary kriging by PyKrige, of the 32 nearest known pixels."""
    ordinary = importlib.import_module("pykrige.ok").OrdinaryKriging
    (y, x), (rows, columns) = (np.nonzero(where) for where in (~missing, missing))
    result = picture.copy()
    for channel in range(picture.shape[-1]):
        kriging = ordinary(x.astype(float), y.astype(float), picture[y, x, channel], "exponential")
        at = columns.astype(float), rows.astype(float)
        result[missing, channel] = kriging.execute("points", *at, n_closest_points=32, backend="loop")[0]
    return result


def around(values: Array, missing: Mask) -> Array:
    """The mean of the frames before and after, the nearest that are known at a pixel: linear interpolation in time."""
    found, frames = values.copy(), np.arange(len(values))
    for y, x in np.argwhere(missing.any(0)):
        lost = missing[:, y, x]
        for channel in range(values.shape[-1]):
            found[lost, y, x, channel] = np.interp(frames[lost], frames[~lost], values[~lost, y, x, channel])
    return found


# -- tables -------------------------------------------------------------------------------------------------------------


def table(title: str, signals: list[tuple[Array, Mask]], peers: dict[str, Method]) -> None:
    """Prints the means over signals ``(N_1, ..., N_D, C)`` in [0, 1] with missing samples, of ``fill`` and other methods."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for values, missing in signals:
        began = time.process_time()
        made = fill(np.where(missing[..., None], np.nan, values), axes=missing.ndim, std=True)
        seconds = time.process_time() - began
        assert made.std is not None
        within = 100 * float((np.abs(made.values - values) < 1.645 * made.std)[missing].mean())
        rows.setdefault("fill", []).append((psnr((made.values.clip(0, 1) - values)[missing]), seconds, within))
        for name, method in peers.items():
            began = time.process_time()
            found = method(values, missing)
            seconds = time.process_time() - began
            rows.setdefault(name, []).append((psnr((found.clip(0, 1) - values)[missing]), seconds, math.nan))
    print_titles(title, "dB", "s", "within 90 %")
    for name, some in rows.items():
        print_row(name, *np.mean(some, 0))


def of_pictures(case: str, options: argparse.Namespace) -> None:
    """Crops from the middle of pictures."""
    signals = []
    for seed, path in enumerate(files_of(options.paths)[: options.count]):
        picture = load(path).numpy()
        top, left = (max(0, (n - size) // 2) for n, size in zip(picture.shape, options.shape, strict=False))
        picture = picture[top : top + options.shape[0], left : left + options.shape[1]]
        signals.append((picture, CASES[case](picture.shape[:2], seed)))
    peers: dict[str, Method] = {name: partial(interpolated, name) for name in ("biharmonic", "delaunay")}
    peers["total variation"] = total_variation
    if importlib.util.find_spec("cv2"):
        peers |= {name: partial(opencv, name) for name in ("FSR", "Telea")}
    if importlib.util.find_spec("pykrige") and max((~missing).sum() for _, missing in signals) <= MAX_KRIGED:
        peers["PyKrige"] = kriged
    table(f"{len(signals)} picture(s) of {options.shape[0]} x {options.shape[1]}", signals, peers)


def lost_frames(options: argparse.Namespace) -> None:
    """Two lost frames of a clip."""
    values = VideoDataModule("samples://bigbuckbunny", frames=[12, 22], resize=[144, 176]).values[0].numpy()
    lost = np.zeros(values.shape[:3], bool)
    lost[[3, 7]] = True
    table("two lost frames of 176 x 144", [(values, lost)], {"mean of the frames around": around})


def cubes(options: argparse.Namespace) -> None:
    """Missing blocks of a clip and of a volume."""
    clip = VideoDataModule("samples://bigbuckbunny", frames=[12, 24], resize=[96, 128]).values[0].numpy()
    volume = anatomy()
    peers: dict[str, Method] = {"mean of the frames around": around, "nearest": partial(interpolated, "nearest")}
    if importlib.util.find_spec("cv2"):
        peers["FSR of each frame"] = frame_by_frame
    for title, values, sides in (
        ("12 frames of 128 x 96, blocks of 16 x 16 of single frames", clip, (1, 16, 16)),
        ("12 frames of 128 x 96, blocks of 8 x 8 of 4 frames", clip, (4, 8, 8)),
        (f"{ANATOMY.name} of nibabel, blocks of 4 x 4 x 4", volume, (4, 4, 4)),
        (f"{ANATOMY.name} of nibabel, blocks of 8 x 8 x 8", volume, (8, 8, 8)),
    ):
        table(title, [(values, blocks(values.shape[:3], 0, *sides))], peers)


def edges(options: argparse.Namespace) -> None:
    """Lost samples at the first and the last place of an axis, and inside: a season, lines, frames, slices."""
    t, random = np.arange(400), np.random.default_rng(0)
    season = 5 * np.sin(np.pi * t / 6) + 1.5 * np.sin(np.pi * t / 3 + 1) + t / 100 + 0.3 * random.standard_normal(400)
    clip = VideoDataModule("samples://bigbuckbunny", frames=[12, 24], resize=[72, 88]).values[0].numpy()
    picture = load(files_of(options.paths)[0]).numpy()[:128, :128]
    volume = anatomy()
    cases: list[tuple[str, Array, int, dict[str, slice]]] = [
        ("18 samples of a season", season[:, None], 1, {str(n): slice(n, n + 18) for n in (0, 4, 191, 378, 382)}),
        ("a line", picture, 2, {str(n): slice(n, n + 1) for n in (0, 64, 127)}),
        ("three lines", picture, 2, {str(n): slice(n, n + 3) for n in (0, 64, 125)}),
        ("a frame", clip, 3, {str(n): slice(n, n + 1) for n in (0, 6, 11)}),
        ("a slice", volume, 3, {str(n): slice(n, n + 1) for n in (0, 12, len(volume) - 1)}),
    ]
    for title, values, axes, places in cases:
        print_titles(f"{title}, from", "error", "std", "within 90 %", "score, dB", "dB")
        for name, place in places.items():
            lost = np.zeros(values.shape[:axes], bool)
            lost[place] = True
            made = fill(np.where(lost[..., None], np.nan, values), axes=axes, std=True)
            assert made.std is not None
            error, extent = (made.values - values)[lost], float(np.ptp(values[~lost]))
            within = 100 * float((np.abs(error) < 1.645 * made.std[lost]).mean())
            sizes = float(np.sqrt(np.square(error).mean())), float(made.std[lost].mean())
            print_row(name, *(f"{size:.4f}" for size in sizes), within, made.score, psnr(error / extent))


def anatomy() -> Array:
    """A small volume that ships with nibabel, ``(N_1, N_2, N_3, 1)`` in [0, 1]."""
    volume = np.asarray(nibabel.load(ANATOMY).dataobj, np.float32)
    return np.moveaxis(volume / volume.max(), 2, 0)[..., None]


def main() -> None:
    """Runs the sections."""
    parser = make_parser(__doc__)
    parser.add_argument("--paths", nargs="+", default=["samples://astronaut"], help="pictures, or folders of them")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--shape", type=int, nargs=2, default=[256, 256])
    run_sections(
        parser, {**{case: partial(of_pictures, case) for case in CASES}, "clip": lost_frames, "cubes": cubes, "edges": edges}
    )


if __name__ == "__main__":
    main()

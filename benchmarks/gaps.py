"""Gaps of pictures, clips and sounds: ``fill`` beside OpenCV, scikit-image and interpolation, quality and processor time.

    python benchmarks/gaps.py                                     # crops of a sample of scikit-image, a sound, a clip
    python benchmarks/gaps.py --only scratches blocks8 --paths FOLDER --count 4 --shape 256 256
    OMP_NUM_THREADS=1 python benchmarks/gaps.py --only scratches --shape 512 768

Tables have the PSNR in dB of the missing samples (signal-to-noise of sounds), mean over signals, and processor seconds of
one signal, all threads together, without imports. ``fill`` includes its held-out fits, score and standard deviations;
``covered`` is the share of the missing samples within 1.645 standard deviations (90 % are aimed at). FSR, Telea and
Navier-Stokes are those of OpenCV (``pip install opencv-contrib-python-headless``); without it they are left out. So is
ordinary kriging by PyKrige (``pip install pykrige``), also where its matrix of all pairs of known pixels is too large: give
``--shape 64 64``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import skimage
import torch
from harness import machine
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pe_lightning.estimators.filling import fill
from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.signals.batches import PointBatch
from pe_lightning.solvers.gap_members import MEMBERS, Gaps
from pe_lightning.training import VideoDataModule

MAX_KRIGED = 5000
"""Most known pixels of PyKrige, which holds the distances of all pairs."""
Array = NDArray[Any]
Mask = NDArray[np.bool_]
Method = Callable[[Array, Mask], Array]


def scratches(shape: tuple[int, int], seed: int, share: float = 0.06) -> Mask:
    """Straight lines of 2 to 5 pixels in width."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    draw = ImageDraw.Draw(image)
    while (np.asarray(image) > 0).mean() < share:
        start, angle = random.uniform(0, 1, 2) * shape[::-1], random.uniform(0, math.pi)
        end = start + random.uniform(0.1, 0.6) * max(shape) * np.array([math.cos(angle), math.sin(angle)])
        draw.line([*start, *end], fill=255, width=int(random.integers(2, 6)))
    return np.asarray(image) > 0


def text(shape: tuple[int, int], seed: int) -> Mask:
    """Lines of random letters of 16 pixels."""
    random, image = np.random.default_rng(seed), Image.new("L", shape[::-1])
    folder = Path(importlib.import_module("matplotlib").get_data_path())
    font, draw = ImageFont.truetype(folder / "fonts/ttf/DejaVuSans.ttf", 16), ImageDraw.Draw(image)
    for y in range(4, shape[0] - 12, 24):
        letters = [chr(random.integers(97, 123)) if random.random() > 0.15 else " " for _ in range(shape[1] // 8)]
        draw.text((4, y), "".join(letters), fill=255, font=font)
    return np.asarray(image) > 64


def blocks(shape: tuple[int, int], seed: int, side: int) -> Mask:
    """An eighth of the blocks."""
    few = np.random.default_rng(seed).random((-(-shape[0] // side), -(-shape[1] // side))) < 0.12
    return few.repeat(side, 0).repeat(side, 1)[: shape[0], : shape[1]]


def scattered(shape: tuple[int, int], seed: int, known: float) -> Mask:
    """Random pixels."""
    return np.random.default_rng(seed).random(shape) >= known


CASES: dict[str, Callable[[tuple[int, int], int], Mask]] = {
    "scratches": scratches,
    "text": text,
    "blocks8": lambda shape, seed: blocks(shape, seed, 8),
    "blocks16": lambda shape, seed: blocks(shape, seed, 16),
    "blocks32": lambda shape, seed: blocks(shape, seed, 32),
    "known25": lambda shape, seed: scattered(shape, seed, 0.25),
    "known50": lambda shape, seed: scattered(shape, seed, 0.5),
}


def pictures(options: argparse.Namespace) -> list[Array]:
    """Crops from the middle of pictures in [0, 1]."""
    files = sorted(path for folder in options.paths for path in Path(folder).glob("*.png"))[: options.count]
    loaded = [np.asarray(Image.open(path).convert("RGB")) for path in files] or [skimage.data.astronaut()]  # type: ignore[no-untyped-call]
    found = []
    for picture in loaded:
        top, left = (max(0, (n - size) // 2) for n, size in zip(picture.shape, options.shape, strict=False))
        found.append(picture[top : top + options.shape[0], left : left + options.shape[1]].astype(np.float32) / 255)
    return found


def opencv(name: str, picture: Array, missing: Mask) -> Array:
    """A method of OpenCV, of 8 bits."""
    cv2 = importlib.import_module("cv2")
    levels = np.where(missing[..., None], 0, np.rint(picture * 255)).astype(np.uint8)
    if name == "FSR":
        result = np.zeros_like(levels)
        cv2.xphoto.inpaint(levels, np.where(missing, 0, 255).astype(np.uint8), result, cv2.xphoto.INPAINT_FSR_FAST)
    else:
        flag = cv2.INPAINT_TELEA if name == "Telea" else cv2.INPAINT_NS
        result = cv2.inpaint(levels, missing.astype(np.uint8), 3, flag)
    return np.asarray(result, np.float32) / 255


def total_variation(picture: Array, missing: Mask) -> Array:
    """Least total variation of the missing pixels, by projected denoising steps of scikit-image."""
    from skimage.restoration import denoise_tv_chambolle

    result = interpolated("nearest", picture, missing)
    for weight in np.geomspace(0.2, 0.01, 15):
        smooth = denoise_tv_chambolle(result, weight, max_num_iter=30, channel_axis=-1)  # type: ignore[no-untyped-call]
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


def member(name: str, values: Array, missing: Mask) -> Array:
    """One member of the mixture alone."""
    known = torch.from_numpy(~missing)
    return MEMBERS[name](Gaps(torch.from_numpy(values) * known[..., None], known, ~known)).numpy()


def methods(num_known: int) -> dict[str, Method]:
    """Methods to compare with that are installed."""
    found: dict[str, Method] = {}
    for name in ("FSR", "Telea", "Navier-Stokes") if importlib.util.find_spec("cv2") else ():
        found[name] = partial(opencv, name)
    for name in ("biharmonic", "delaunay"):
        found[name] = partial(interpolated, name)
    if importlib.util.find_spec("pykrige") and num_known <= MAX_KRIGED:
        found["PyKrige"] = kriged
    return {**found, "total variation": total_variation}


def decibels(found: Array, truth: Array, where: Mask) -> float:
    """PSNR of values in [0, 1]."""
    return float(-10 * np.log10(np.square(found.clip(0, 1) - truth)[where].mean(dtype=np.float64)))


def timed(method: Callable[[], Array]) -> tuple[Array, float]:
    """The result and processor seconds."""
    began = time.process_time()
    found = method()
    return found, time.process_time() - began


def filled(values: Array, missing: Mask, members: list[str] | None = None) -> Array:
    """The values of ``fill``."""
    return np.asarray(fill(values, missing, axes=missing.ndim, members=members).values)


def report(title: str, rows: dict[str, list[tuple[float, ...]]]) -> None:
    """Prints means over signals."""
    print(f"\n{title}\n| method | dB | s | covered |\n| --- | --- | --- | --- |")
    for name, some in rows.items():
        score, seconds, *covered = np.mean(some, 0)
        print(f"| {name} | {score:.2f} | {seconds:.1f} | {f'{covered[0]:.0%}' if covered else ''} |", flush=True)


def of_pictures(case: str, options: argparse.Namespace) -> None:
    """Prints one table of pictures."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    for seed, picture in enumerate(pictures(options)):
        missing = CASES[case](picture.shape[:2], seed)
        given = np.where(missing[..., None], np.nan, picture)
        began = time.process_time()
        made = fill(given, std=True)
        seconds = time.process_time() - began
        assert made.std is not None
        covered = float((np.abs(made.values - picture) < 1.645 * made.std)[missing].mean())
        rows.setdefault("fill", []).append((decibels(made.values, picture, missing), seconds, covered))
        for name, method in {"fourier alone": partial(member, "fourier"), **methods(int((~missing).sum()))}.items():
            found, seconds = timed(partial(method, picture, missing))
            rows.setdefault(name, []).append((decibels(found, picture, missing), seconds))
    report(f"{case}, {len(rows['fill'])} picture(s) of {options.shape[0]} x {options.shape[1]}", rows)


def of_clip(options: argparse.Namespace) -> None:
    """Prints the table of lost frames."""
    values = VideoDataModule("samples://bigbuckbunny", frames=[12, 22], resize=[144, 176]).values[0].numpy()
    lost = np.zeros(values.shape[:3], bool)
    lost[[3, 7]] = True
    found, seconds = timed(partial(filled, values, lost))
    means = np.array(values)
    means[[3, 7]] = (values[[2, 6]] + values[[4, 8]]) / 2
    rows: dict[str, list[tuple[float, ...]]] = {}
    rows["fill"] = [(decibels(found, values, lost), seconds)]
    rows["mean of neighbours"] = [(decibels(means, values, lost), 0.0)]
    report("two lost frames of 176 x 144", rows)


def cubes(shape: tuple[int, ...], sides: tuple[int, ...], seed: int = 0) -> Mask:
    """An eighth of the blocks of a clip or a volume."""
    mask = np.random.default_rng(seed).random([-(-n // side) for n, side in zip(shape, sides, strict=True)]) < 0.12
    for axis, side in enumerate(sides):
        mask = mask.repeat(side, axis).take(range(shape[axis]), axis)
    return mask


def of_cubes(options: argparse.Namespace) -> None:
    """Prints the tables of missing blocks of a clip and of a volume."""
    clip = VideoDataModule("samples://bigbuckbunny", frames=[12, 24], resize=[96, 128]).values[0].numpy()
    nibabel = importlib.import_module("nibabel")
    folder = Path(nibabel.__file__).parent / "tests" / "data"
    volume = np.asarray(nibabel.load(folder / "anatomical.nii").dataobj, np.float32)
    volume = np.moveaxis(volume / volume.max(), 2, 0)[..., None]
    cases = {
        "12 frames of 128 x 96, blocks of 16 x 16 of single frames": (clip, (1, 16, 16)),
        "12 frames of 128 x 96, blocks of 8 x 8 of 4 frames": (clip, (4, 8, 8)),
        f"anatomical.nii of nibabel, {'x'.join(map(str, volume.shape[:3]))}, blocks of 4 x 4 x 4": (volume, (4, 4, 4)),
        "the same, blocks of 8 x 8 x 8": (volume, (8, 8, 8)),
    }
    members = ("fourier", "kriging", "neighbours")
    for title, (values, sides) in cases.items():
        missing = cubes(values.shape[:3], sides)
        peers: dict[str, Method] = {"fill": filled, **{f"{name} alone": partial(member, name) for name in members}}
        peers["nearest"] = partial(interpolated, "nearest")
        if importlib.util.find_spec("cv2"):
            peers["FSR of each frame"] = frame_by_frame
        rows: dict[str, list[tuple[float, ...]]] = {}
        for name, method in peers.items():
            found, seconds = timed(partial(method, values, missing))
            rows[name] = [(decibels(found, values, missing), seconds)]
        report(title, rows)


def frame_by_frame(values: Array, missing: Mask) -> Array:
    """Frames of one or three channels by FSR."""
    colours = np.broadcast_to(values, (*values.shape[:3], 3))
    found = [opencv("FSR", *each) if each[1].any() else each[0] for each in zip(colours, missing, strict=True)]
    return np.stack(found)[..., : values.shape[-1]]


def of_sound(options: argparse.Namespace) -> None:
    """Prints the table of dropouts in tones, signal-to-noise."""
    random, t = np.random.default_rng(0), np.arange(16_000) / 16_000
    tones = sum(np.sin(2 * math.pi * f * t * (1 + 0.02 * t) + f) / n for n, f in enumerate((220, 523.3, 1310, 2741), 1))
    tones = (tones + 0.01 * random.standard_normal(len(t))).astype(np.float32)
    lost = np.zeros(len(t), bool)
    for start in range(200, 15_800, 320):
        lost[start : start + random.integers(10, 60)] = True

    def ratio(found: Array) -> float:
        return float(10 * np.log10(np.square(tones[lost]).sum() / np.square(found - tones)[lost].sum()))

    at = np.arange(len(t))
    rows: dict[str, list[tuple[float, ...]]] = {}
    for name, members in {"fill": None, "autoregressive alone": ["autoregressive"], "adaptive alone": ["adaptive"]}.items():
        found, seconds = timed(partial(filled, tones, lost, members))
        rows[name] = [(ratio(found), seconds)]
    rows["linear"] = [(ratio(np.interp(at, at[~lost], tones[~lost])), 0.0)]
    rows["silence"] = [(0.0, 0.0)]
    report("dropouts of 10 to 59 samples in tones, signal-to-noise", rows)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    others = {"clip": of_clip, "cubes": of_cubes, "sound": of_sound}
    parser.add_argument("--only", nargs="+", default=[*CASES, *others], choices=[*CASES, *others])
    parser.add_argument("--paths", nargs="*", default=[], help="folders of PNG files")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--shape", type=int, nargs=2, default=[256, 256])
    options = parser.parse_args()
    print(machine(), f"{os.environ.get('OMP_NUM_THREADS', 'all')} thread(s)")
    for name in options.only:
        if name in others:
            others[name](options)
        else:
            of_pictures(name, options)


if __name__ == "__main__":
    main()

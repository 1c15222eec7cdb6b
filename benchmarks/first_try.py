"""What the first command gives: ``pe-lightning fit FILE`` on files of many sizes, beside the best interpolation.

    python benchmarks/first_try.py --paths FOLDER_OF_PICTURES
    python benchmarks/first_try.py --only sound

The pictures of scikit-image at their own sizes, and 3 rows and 3 columns of one; those of a folder resized to 512 x 341,
300 x 500 and 2000 x 1300; the sample clip cut to 24, 37 and 120 frames, a crop of it, and played there and back for 250;
sounds of 0.5, 1, 3, 5, 10 and 30 s, synthesised: plucked strings (Karplus and Strong, 1983), a new note every quarter of a
second, the sound of 5 s in stereo; a CSV of 5000 rows: daily and yearly cycles, autoregressive noise; the phantom, and a
scan from the tests of nibabel, as NIfTI. Each with every second sample seen, then with 25 and 10 per cent at random. Seconds
and peak memory are those of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import skimage
import soundfile
import tifffile
import torch
from PIL import Image
from quiet import machine
from scipy.signal import lfilter

from pe_lightning.results.signal_files import write_signal
from pe_lightning.signals.sources.samples import image_samples, sample_path
from pe_lightning.training import VideoDataModule

ROOT = Path(__file__).parents[1]
SIZES = [(512, 341), (300, 500), (2000, 1300)]
SOUNDS = [(0.5, 44100), (1, 8000), (3, 16000), (5, 44100), (10, 44100), (30, 44100)]
BELOW = 0.05
"""A fit this far below the best interpolation, in dB, is marked."""


def strings(seconds: float, rate: int) -> np.ndarray:
    """A melody of plucked strings, ``(N,)`` in [-1, 1]."""
    random, sound = np.random.default_rng(0), np.zeros(round((seconds + 2) * rate))
    for start in range(0, round(seconds * rate), rate // 4):
        period = round(rate / (220 * 2 ** (random.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)))
        pluck = np.zeros(rate)
        pluck[:period] = random.uniform(-1, 1, period)
        feedback = np.zeros(period + 2)
        feedback[[0, period, period + 1]] = 1, -0.498, -0.498
        sound[start : start + rate] += lfilter([1], feedback, pluck) * np.linspace(1, 0, rate)
    return sound[: round(seconds * rate)] / (1.1 * np.abs(sound).max())


def table(path: Path) -> None:
    """A series of temperatures as a CSV file."""
    hours = np.arange(5000)
    noise = lfilter([1], [1, -0.95], np.random.default_rng(0).normal(0, 0.4, 5000))
    degrees = 10 + 8 * np.sin(2 * np.pi * hours / 8760) + 4 * np.sin(2 * np.pi * hours / 24) + noise
    path.write_text("hour,temperature\n" + "\n".join(f"{h},{t:.3f}" for h, t in zip(hours, degrees, strict=True)) + "\n")


def cases(folder: Path, paths: list[Path], count: int) -> Iterator[tuple[str, str, list[str]]]:
    """Kind, name and arguments of ``pe-lightning fit``."""
    for name in image_samples():
        yield "image", name, [f"samples://{name}"]
    for path in [file for given in paths for file in (sorted(given.iterdir()) if given.is_dir() else [given])][:count]:
        for width, height in SIZES:
            resized = folder / f"{path.stem}_{width}x{height}.png"
            Image.open(path).convert("RGB").resize((width, height), Image.Resampling.LANCZOS).save(resized)
            yield "image", resized.stem, [str(resized)]
    for shape, cut in (("3x500", np.s_[100:103, :500]), ("500x3", np.s_[:500, 200:203])):
        path = folder / f"astronaut_{shape}.png"
        Image.fromarray(skimage.data.astronaut()[cut]).save(path)
        yield "image", path.stem, [str(path)]
    yield "video", "bigbuckbunny, crop", ["samples://bigbuckbunny", "--data.frames=[60,84]", "--data.center_crop=[128,160]"]
    for frames in (24, 37, 120):
        yield "video", f"bigbuckbunny, {frames} frames", ["samples://bigbuckbunny", f"--data.frames=[0,{frames}]"]
    data = VideoDataModule("samples://bigbuckbunny", resize=128)
    data.prepare_data()
    clip = write_signal(
        folder / "there_and_back", torch.cat([data.values[0], data.values[0].flip(0)])[:250].numpy(), formats="mp4"
    )
    yield "video", "the clip and back, 250 frames", [str(clip)]
    for seconds, rate in SOUNDS:
        file = folder / f"strings_{seconds}s_{rate}.wav"
        sound = strings(seconds, rate)
        if seconds == 5:
            sound = np.stack([sound, 0.7 * np.roll(sound, 300)], 1)
        soundfile.write(file, sound, rate, subtype="PCM_16")
        yield "sound", f"strings, {seconds} s at {rate / 1000:g} kHz", [str(file)]
    phantom = np.moveaxis(tifffile.imread(sample_path("samples://phantom3d", "video")), 0, -1)
    nibabel.save(nibabel.Nifti1Image(phantom, np.eye(4)), folder / "phantom.nii.gz")
    scan = Path(nibabel.__file__).parent / "tests/data/anatomical.nii"
    for path in (folder / "phantom.nii.gz", *([scan] if scan.is_file() else [])):
        yield "volume", path.name, [str(path)]
    table(folder / "temperature.csv")
    yield "table", "temperature.csv, 5000 rows", [str(folder / "temperature.csv"), "--data.select=[temperature]"]


def fit(arguments: list[str], folder: Path) -> tuple[dict[str, object] | str, float, float]:
    """The content of ``metrics.json``, or why there is none; seconds and peak memory in GB."""
    command = [sys.executable, "-m", "pe_lightning", "fit", *arguments, "--wandb.enabled=false"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PE_LIGHTNING_CACHE": str(folder / "cache")}
    before, began = set(folder.glob("runs/*/*/metrics.json")), time.perf_counter()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds, memory = time.perf_counter() - began, usage.ru_maxrss * 1024 / 1e9
    made = set(folder.glob("runs/*/*/metrics.json")) - before
    if process.returncode or not made:
        return ((folder / "log").read_text().strip().splitlines() or ["killed"])[-1], seconds, memory
    return json.loads(made.pop().read_text()), seconds, memory


def main() -> None:
    """Fits everything and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paths", nargs="*", type=Path, default=[], help="pictures, or folders of them")
    parser.add_argument("--count", type=int, default=2, help="how many of those pictures")
    parser.add_argument("--only", nargs="*", default=["image", "video", "sound", "table", "volume"])
    parser.add_argument("--samplings", nargs="*", default=["grid", "0.25", "0.1"], help="grid, or shares of random samples")
    parser.add_argument("--match", default="", help="only names that hold this")
    options = parser.parse_args()
    print(machine(), flush=True)
    print(
        f"{'signal':38} {'seen':>6} {'fit':>7} {'linear':>7}  {'best interpolation':20} {'seconds':>7} {'GB':>5}", flush=True
    )
    refused = below = fits = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, label, arguments in cases(folder, options.paths, options.count):
            if kind not in options.only or options.match not in label:
                continue
            for seen in options.samplings:
                scattered = ["--data.sampling=random", f"--data.sampling.fraction={seen}"] if seen != "grid" else []
                recipe = ["--config=image/inpaint"] if scattered and kind == "image" else []
                found, seconds, memory = fit([*arguments, *recipe, *scattered], folder)
                fits += 1
                if isinstance(found, str):
                    refused += 1
                    print(f"{label:38} {seen:>6} refused after {seconds:.1f} s: {found}", flush=True)
                    continue
                rows = {
                    method: row["test/psnr"] for method, row in found["baselines"].items() if row["test/psnr"] is not None
                }
                if not rows:
                    print(f"{label:38} {seen:>6} {found['test/psnr']:7.2f}  no interpolation to compare with", flush=True)
                    continue
                best = max(rows, key=rows.__getitem__)
                linear = rows.get("linear", rows.get("delaunay", rows["nearest"]))
                score = found["test/psnr"]
                worse = score < rows[best] - BELOW
                below += worse
                shown = f"{best} {rows[best]:.2f}"
                print(
                    f"{label:38} {seen:>6} {score:7.2f} {linear:7.2f}  {shown:20} {seconds:7.1f} {memory:5.2f}"
                    + (f"  {rows[best] - score:.2f} dB below" if worse else ""),
                    flush=True,
                )
    print(f"{fits} fits, {refused} refused, {below} more than {BELOW} dB below the best interpolation")


if __name__ == "__main__":
    main()

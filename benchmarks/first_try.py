"""What the first command gives: ``pe-lightning fit FILE`` on files of many sizes, beside the best interpolation.

    python benchmarks/first_try.py --paths FOLDER_OF_PICTURES
    python benchmarks/first_try.py --only sound
    python benchmarks/first_try.py --only tones series table clips volume --samplings grid   # docs/samples.md
    python benchmarks/first_try.py --choosers                                                # docs/samples.md

The pictures of scikit-image at their own sizes, and 3 rows and 3 columns of one; those of a folder resized to 512 x 341,
300 x 500 and 2000 x 1300; the sample clip cut to 24, 37 and 120 frames, a crop of it, and played there and back for 250;
sounds of 0.5, 1, 3, 5, 10 and 30 s, synthesised: plucked strings (Karplus and Strong, 1983), a new note every quarter of a
second, the sound of 5 s in stereo; a CSV of 5000 rows: daily and yearly cycles, autoregressive noise; the phantom, and a
scan from the tests of nibabel, as NIfTI. ``tones`` are twelve kinds of synthesised sound of half a second, ``series`` three
kinds of series, ``clips`` four clips made from photographs of scikit-image: a still camera, changing light, and cameras that
move by 0.2 and by 2 pixels a frame, each with every second sample of all axes and with every second frame seen. Each with
every second sample seen, then with 25 and 10 per cent at random. Seconds and peak memory are those of the whole command.

``--choosers`` compares ways to choose among splines for ``tones`` and ``series`` and for rows and columns of photographs:
the least leave-one-out error, the mixture by leave-one-out errors (``AdaptiveLine``), the least error at every second known
sample, the evidence (restricted likelihood of the folded power spectrum), and a spectral model (the power law that fits the
upper half of the spectrum, which carries the errors to the spacing of the questions).
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
from scipy.ndimage import shift
from scipy.signal import chirp, lfilter

from pe_lightning.evaluation.baselines import interpolate
from pe_lightning.results.signal_files import write_signal
from pe_lightning.signals import GridBatch
from pe_lightning.signals.sources.paths import image_samples, sample_path
from pe_lightning.solvers.adaptive_line import DEGREES, MARGIN, AdaptiveLine, continued, member_errors, spectra
from pe_lightning.training import VideoDataModule

ROOT = Path(__file__).parents[1]
SIZES = [(512, 341), (300, 500), (2000, 1300)]
SOUNDS = [(0.5, 44100), (1, 8000), (3, 16000), (5, 44100), (10, 44100), (30, 44100)]
KINDS = ("image", "video", "sound", "table", "volume", "tones", "series", "clips")
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


def tones(count: int = 11025, rate: int = 22050) -> dict[str, np.ndarray]:
    """Twelve kinds of sound, ``(N,)`` each."""
    random, seconds = np.random.default_rng(0), np.arange(count) / rate

    def notes(decay: float) -> np.ndarray:
        sound = np.zeros(count)
        for start in range(0, count, rate // 8):
            after, pitch = seconds[: count - start], 220 * 2 ** (random.integers(0, 12) / 12)
            for k in range(1, int(min(20, rate / 2 / pitch))):
                envelope = np.exp(-after * (8 + k)) * (1 - np.exp(-after * 200)) * k**-decay
                sound[start:] += envelope * np.sin(2 * np.pi * k * pitch * after + random.uniform(0, 6))
        return sound

    def voice(pulses: np.ndarray) -> np.ndarray:
        for formant, width in ((500, 60), (1500, 90), (2500, 120), (3500, 180)):
            pole = np.exp(-np.pi * width / rate)
            pulses = lfilter([1], [1, -2 * pole * np.cos(2 * np.pi * formant / rate), pole**2], pulses)
        return pulses

    noise = random.normal(size=count)
    bursts = sum(np.exp(-np.maximum(seconds - s, 0) * 40) * (seconds >= s) for s in (0.02, 0.14, 0.26, 0.38))
    glottal = lfilter([1], [1, -0.95], (np.arange(count) % 150 == 0).astype(float))
    return {
        "chirp with a tone of 2.9 kHz": chirp(seconds, 100, 0.5, 2000) + np.sin(2 * np.pi * 2900 * seconds),
        "tone of 440 Hz": np.sin(2 * np.pi * 440 * seconds),
        "tone of 4.1 kHz with tremolo": np.sin(2 * np.pi * 4100 * seconds) * (1 + 0.5 * np.sin(2 * np.pi * 5 * seconds)),
        "soft notes": notes(2.0),
        "bright notes": notes(1.0),
        "soft notes, hiss": notes(2.0) + 0.003 * random.normal(size=count),
        "voiced speech": voice(glottal),
        "whisper": voice(noise),
        "drums": bursts * random.normal(size=count),
        "sawtooth": seconds * 220 % 1,
        "square wave": np.sign(np.sin(2 * np.pi * 173 * seconds)),
        "white noise": noise,
    }


def series() -> dict[str, np.ndarray]:
    """Three kinds of series, ``(N,)`` each."""
    random, day = np.random.default_rng(1), np.arange(2000.0)
    walk = np.cumsum(random.normal(size=2000))
    season = 0.01 * day + 3 * np.sin(2 * np.pi * day / 52) + lfilter([1], [1, -0.8], random.normal(0, 0.2, 2000))
    cycle = np.maximum(np.sin(2 * np.pi * day / 11), 0) * (2 + np.sin(2 * np.pi * day / 97)) + random.normal(0, 0.1, 2000)
    return {"random walk": walk, "trend, season, noise": season, "cycles, noise": cycle}


def clips() -> dict[str, np.ndarray]:
    """Four clips of 32 frames of 96 x 96 pixels from photographs, ``(T, H, W)`` in [0, 1]."""
    coffee, astronaut = (getattr(skimage.data, name)().mean(-1) / 255 for name in ("coffee", "astronaut"))
    random = np.random.default_rng(0)

    def pan(picture: np.ndarray, pixels: float) -> np.ndarray:
        area = picture[100:300, 100:300]
        return np.stack([shift(area, (-0.4 * pixels * t, -pixels * t), order=5)[20:116, 20:116] for t in range(32)])

    still = np.repeat(coffee[None, 100:196, 100:196], 32, 0)
    light = 0.8 + 0.2 * np.sin(1.2 * np.arange(32))[:, None, None]
    made = {"still camera": still, "changing light": still * light}
    made |= {"0.2 pixels a frame": pan(astronaut, 0.2), "2 pixels a frame": pan(coffee, 2)}
    return {name: (clip + random.normal(0, 0.002, clip.shape)).clip(0, 1) for name, clip in made.items()}


def choosers() -> None:
    """Prints the loss of each way to choose among splines, against the best of them and against interpolation."""
    rows = {**{("sound", name): x for name, x in tones().items()}, **{("series", name): x for name, x in series().items()}}
    for name in ("astronaut", "brick", "camera", "chelsea", "coffee", "grass", "gravel", "text"):
        picture = getattr(skimage.data, name)().astype(float)
        picture = picture if picture.ndim == 2 else picture.mean(-1)
        rows |= {("pictures", f"row of {name}"): picture[100], ("pictures", f"column of {name}"): picture[:, 100]}
    lost: dict[tuple[str, str], list[float]] = {}
    for (kind, name), row in rows.items():
        values = torch.from_numpy((row - row.min()) / np.ptp(row))[:, None]
        size, known = len(values), values[::2]
        members = torch.eye(AdaptiveLine.num_members, dtype=torch.float64)[: len(DEGREES)]
        axis, trained = torch.arange(size, dtype=torch.float64) / size, torch.arange(0, size, 2, dtype=torch.float64) / size

        def decibels(prediction: torch.Tensor) -> float:
            return float(-10 * ((prediction - values)[1::2].square().mean() + 1e-20).log10())  # noqa: B023

        def spline(samples: torch.Tensor, step: float, member: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return AdaptiveLine(samples, size, 0.0, step, 0.0, member).predict([x])  # noqa: B023

        scores = [decibels(spline(known, 2.0, member, axis)) for member in members]
        coarse = [(spline(known[::2], 4.0, m, trained) - known)[1::2].square().mean() for m in members]
        loo = member_errors(known)[: len(DEGREES)].square().mean((1, 2))
        padded = continued(known, MARGIN)
        power = torch.fft.rfft(padded, dim=0)[:, 0].abs().square()
        inverses = torch.stack(list(spectra(len(padded), padded.device)[1].values()))
        evidence, upper = [_deviance(power[some], inverses[:, some]) for some in (slice(1, None), _upper(power))]
        own = decibels(AdaptiveLine(known, size, 0.0, 2.0, 0.0).predict([axis]))
        batch = GridBatch((trained,), known[None])
        others = max(decibels(interpolate(n, batch, [axis])[0]) for n in ("nearest", "linear", "bicubic", "spline"))
        found = {"leave-one-out": loo, "every second": coarse, "evidence": evidence, "spectral model": upper}
        chosen = {label: scores[int(np.argmin(values_))] for label, values_ in found.items()} | {"mixture": own}
        for label, score in chosen.items():
            for reference, best in (("member", max(scores)), ("interpolation", others)):
                lost.setdefault((label, f"{kind}, {reference}"), []).append(max(best - score, 0.0))
        print(f"{name:30} interpolation {others:6.2f}, best spline {max(scores):6.2f}: "
              + ", ".join(f"{label} {score:.2f}" for label, score in chosen.items()), flush=True)  # fmt: skip
    columns = list(dict.fromkeys(column for _, column in lost))
    print("| loss, mean / worst, dB | " + " | ".join(columns) + " |")
    for label in dict.fromkeys(label for label, _ in lost):
        cells = [f"{np.mean(lost[label, c]):.2f} / {np.max(lost[label, c]):.2f}" for c in columns]
        print(f"| {label} | " + " | ".join(cells) + " |")


def _deviance(power: torch.Tensor, inverses: torch.Tensor) -> list[float]:
    """Restricted likelihood, to the power of -2 / n, of every inverse spectrum, in logarithms."""
    return [float((power * inverse).mean().log() - inverse.log().mean()) for inverse in inverses]


def _upper(power: torch.Tensor) -> slice:
    return slice(len(power) // 2, None)


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
    for number, (label, sound) in enumerate(tones().items()):
        soundfile.write(folder / f"tone{number}.wav", sound / np.abs(sound).max(), 22050, subtype="FLOAT")
        yield "tones", label, [str(folder / f"tone{number}.wav")]
    for number, (label, values) in enumerate(series().items()):
        np.savetxt(folder / f"series{number}.csv", values, "%.5f", header="value", comments="")
        yield "series", label, [str(folder / f"series{number}.csv")]
    for number, (label, frames) in enumerate(clips().items()):
        clip = write_signal(folder / f"clip{number}", frames[..., None].astype(np.float32), formats="mp4")
        for stride, note in ((2, ""), ([2, 1, 1], ", every second frame")):
            yield "clips", label + note, [str(clip), "--data.resize=null", f"--data.sampling.stride={stride}"]
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
    parser.add_argument("--only", nargs="*", default=KINDS)
    parser.add_argument("--samplings", nargs="*", default=["grid", "0.25", "0.1"], help="grid, or shares of random samples")
    parser.add_argument("--match", default="", help="only names that hold this")
    parser.add_argument("--choosers", action="store_true", help="compare ways to choose among splines instead")
    options = parser.parse_args()
    print(machine(), flush=True)
    if options.choosers:
        torch.set_num_threads(1)
        return choosers()
    print(
        f"{'signal':38} {'seen':>6} {'fit':>7} {'linear':>7}  {'best interpolation':20} {'seconds':>7} {'GB':>5}", flush=True
    )
    refused = below = fits = 0
    lost: dict[str, list[float]] = {}
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
                lost.setdefault(kind, []).append(max(rows[best] - score, 0.0))
                shown = f"{best} {rows[best]:.2f}"
                print(
                    f"{label:38} {seen:>6} {score:7.2f} {linear:7.2f}  {shown:20} {seconds:7.1f} {memory:5.2f}"
                    + (f"  {rows[best] - score:.2f} dB below" if worse else ""),
                    flush=True,
                )
    for kind, losses in lost.items():
        print(f"{kind}: loss against the best interpolation, mean {np.mean(losses):.3f} dB, worst {max(losses):.2f} dB")
    print(f"{fits} fits, {refused} refused, {below} more than {BELOW} dB below the best interpolation")


if __name__ == "__main__":
    main()
